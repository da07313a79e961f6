"""Calls of an answer, however a server numbers, names, cuts and repeats them: none runs twice or with another input."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest

from nbagent.core.engine.response import Collected
from nbagent.models.openai import calls
from nbagent.models.openai.chat import ChatParser
from nbagent.models.openai.responses import ResponsesParser
from nbagent.models.openai.stream import Bounded, UnusableAnswer
from tests.unit.core.schedules.search import THOROUGH

Runs = list[tuple[str, Any]]


def runs_of(parser: ChatParser | ResponsesParser, values: Iterable[Any]) -> Runs | None:
    """The names and inputs of the calls that would run; None if the answer cannot be used."""
    collected = Collected({})
    try:
        for value in values:
            for delta in parser.chunk(value):
                collected.add(delta)
        end = parser.finished()
        assert end is not None
        parser.check(end)
    except UnusableAnswer:
        return None
    collected.add(end)
    calls = collected.event(0.0, (), scope=()).calls
    return [(call.name, dict(call.input)) for call in calls if call.raw is None]


def chunk(*calls: dict[str, Any], finish: str | None = None, where: str = "delta") -> Any:
    return {"choices": [{"index": 0, where: {"tool_calls": [*calls]}, "finish_reason": finish}]}


def piece(
    arguments: Any = "", index: Any = None, call_id: Any = None, name: Any = None
) -> dict[str, Any]:
    """A piece of a call, without the fields that are None."""
    own = {"index": index, "id": call_id}
    function = {"arguments": arguments, **({} if name is None else {"name": name})}
    return {**{key: value for key, value in own.items() if value is not None}, "function": function}


FACTS: dict[str, tuple[list[dict[str, Any]], Runs]] = {
    "Ollama: index 0 for every call (vercel/ai 14277)": (
        [piece('{"x":1}', 0, "a", "f"), piece('{"x":1}', 0, "b", "f")],
        [("f", {"x": 1}), ("f", {"x": 1})],
    ),
    "Ollama before 2025, Gemini: no index (ollama 7881, openai-python 2806)": (
        [piece('{"x":1}', None, "a", "f"), piece("{}", None, "b", "g")],
        [("f", {"x": 1}), ("g", {})],
    ),
    "DashScope: empty id and name in later pieces (opencode 37783, symfony/ai 2220)": (
        [piece("", 0, "a", "f"), piece('{"x":', 0, "", ""), piece("1}", 0, "", "")],
        [("f", {"x": 1})],
    ),
    "Fireworks: id and name in each piece (SillyTavern 5948)": (
        [piece("", 0, "a", "f"), piece('{"x":', 0, "a", "f"), piece("1}", 0, "a", "f")],
        [("f", {"x": 1})],
    ),
    "vLLM with GLM: id and name again with the last piece (vllm 44098)": (
        [piece("", 0, "a", "f"), piece('{"x":', 0), piece("1}", 0, "a", "f")],
        [("f", {"x": 1})],
    ),
    "GLM-4: another id in each piece (rig 1508)": (
        [
            *(piece("", 0, "a1", "f"), piece('{"x":', 0, "a2", ""), piece("1}", 0, "a3", "")),
            *(piece("", 1, "b1", "g"), piece("{}", 1, "b2", ""), piece("", 1, "b3", "")),
        ],
        [("f", {"x": 1}), ("g", {})],
    ),
    "DeepSeek, Zhipu: one id for parallel calls (nanobot 3943)": (
        [piece('{"x":1}', 0, "a", "f"), piece('{"x":2}', 1, "a", "f")],
        [("f", {"x": 1}), ("f", {"x": 2})],
    ),
    "Nebius, Cerebras: another index in later pieces (dirac 215)": (
        [piece("", 0, "a", "f"), piece('{"x":', 1), piece("1}", 2)],
        [("f", {"x": 1})],
    ),
    "Azure by way of LiteLLM, Mistral: the name after the id (pipecat 5023)": (
        [piece("", 0, "a"), piece("", 0, None, "f"), piece('{"x":1}', 0), piece("{}", 1, "b", "g")],
        [("f", {"x": 1}), ("g", {})],
    ),
    "proxies: no index in later pieces (openai-agents-python 4824)": (
        [piece("", 0, "a", "f"), piece('{"x":', None, "a"), piece("1}", None, "a")],
        [("f", {"x": 1})],
    ),
    "LiteLLM with Ollama: arguments as an object, index 0 (litellm 37792)": (
        [piece({"x": 1}, 0, "a", "f"), piece({"x": 2}, 0, "b", "f")],
        [("f", {"x": 1}), ("f", {"x": 2})],
    ),
    "Bedrock, Gemini: an empty object first (openai-agents-js 712, autogen 6843)": (
        [piece("{}", 0, "a", "f"), piece('{"x":', 0), piece("1}", 0)],
        [("f", {"x": 1})],
    ),
    "Qwen2.5: arguments as a JSON string, also of a string (sglang 7863, quarkus-langchain4j 2569)": (
        [piece('"{\\"x\\":1}"', 0, "a", "f"), piece(json.dumps('"{}"'), 1, "b", "g")],
        [("f", {"x": 1}), ("g", {})],
    ),
    "new-api: the call again at the end, at the next index (new-api 6278)": (
        [piece("", 0, "a", "f"), piece('{"x":1}', 0), piece('{"x":1}', 1, "a", "f")],
        [("f", {"x": 1})],
    ),
}
"""What servers send, each with the report of it (repository and number on GitHub)."""


@pytest.mark.parametrize("server", FACTS)
def test_what_servers_send_is_understood(server: str) -> None:
    """The calls run as the model requested them."""
    pieces, runs = FACTS[server]
    chunks = [*map(chunk, pieces), chunk(finish="tool_calls")]
    assert runs_of(ChatParser(), chunks) == runs


def events(*more: dict[str, Any], output: Sequence[Any] = ()) -> list[dict[str, Any]]:
    end = {"status": "completed", "output": list(output)}
    return [*more, {"type": "response.completed", "response": end}]


def item(kind: str, call: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.output_item.{kind}",
        "item": {"type": "function_call", **call},
        **more,
    }


def arguments(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "delta": text, **more}


DROP = {"call_id": "c", "name": "drop", "arguments": ""}
WHOLE = {**DROP, "arguments": '{"table":"tmp"}'}
ITEMS: dict[str, tuple[list[dict[str, Any]], Runs | None]] = {
    "GitHub Copilot: another item id at the end of a call (hermes-agent 94707)": (
        events(
            item("added", {**DROP, "id": "1"}),
            arguments('{"table":"tmp"}', item_id="1"),
            item("done", {**WHOLE, "id": "1x"}),
        ),
        [("drop", {"table": "tmp"})],
    ),
    "gpt-5.3-codex-spark: arguments only once they are complete (litellm 27144, pi 2745)": (
        events(
            item("added", {**DROP, "id": "1"}, output_index=0),
            {
                "type": "response.function_call_arguments.done",
                "item_id": "1",
                "output_index": 0,
                "arguments": WHOLE["arguments"],
            },
        ),
        [("drop", {"table": "tmp"})],
    ),
    "arguments only where the item is announced": (
        events(item("added", {**WHOLE, "id": "1"}, output_index=0)),
        [("drop", {"table": "tmp"})],
    ),
    "arguments where the item is announced, and again": (
        events(
            item("added", {**WHOLE, "id": "1"}, output_index=0),
            arguments(WHOLE["arguments"], item_id="1", output_index=0),
            item("done", {**WHOLE, "id": "1"}, output_index=0),
        ),
        [("drop", {"table": "tmp"})],
    ),
    "Codex: another name of the last event (oh-my-pi 4692, 9router 2142)": (
        [
            item("done", WHOLE, output_index=0),
            {"type": "response.done", "response": {"status": "completed", "output": []}},
        ],
        [("drop", {"table": "tmp"})],
    ),
    "arguments as an object": (
        events(output=[{"type": "function_call", **DROP, "arguments": {"table": "tmp"}}]),
        [("drop", {"table": "tmp"})],
    ),
    "the output is numbered differently": (
        events(
            item("added", {**DROP, "id": "1"}, output_index=3),
            item("done", {**WHOLE, "id": "1"}, output_index=3),
            output=[{"type": "function_call", **WHOLE}],
        ),
        [("drop", {"table": "tmp"})],
    ),
    "arguments at another index": (
        events(
            item("added", {**DROP, "id": "1"}, output_index=0),
            arguments('{"table":', output_index=1, item_id="1"),
            arguments('"tmp"}', output_index=2),
        ),
        [("drop", {"table": "tmp"})],
    ),
    "other arguments at the end": (
        events(
            item("added", DROP, output_index=0),
            arguments('{"table":"main"}', output_index=0),
            item("done", WHOLE, output_index=0),
        ),
        None,
    ),
    "arguments of nothing": (
        events(arguments("{}", output_index=1), item("added", DROP, output_index=0)),
        None,
    ),
}


@pytest.mark.parametrize("server", ITEMS)
def test_what_servers_of_responses_send_is_understood(server: str) -> None:
    """An item is one call under any of its numbers."""
    values, runs = ITEMS[server]
    assert runs_of(ResponsesParser(), values) == runs


class Server:
    """A server that cuts the calls of a model into pieces in its own way."""

    def __init__(self, seed: int) -> None:
        pick = self._random = random.Random(seed)
        self.index = pick.choice(["right", "right", "zero", "none", "new"])
        self.id = pick.choice(["head", "head", "each", "none", "late", "fresh", "same"])
        self.name = pick.choice(["head", "head", "each", "late"])
        if self.index == "new" and self.id in ("none", "late"):
            self.name = "head"  # a name at another index is another call
        self.repeat = pick.choice(["", "whole", "pieces", "last", "head", "message", "twice"])
        knows_calls = self.index in ("right", "new") or self.id not in ("none", "late")
        self.interleaves = knows_calls and pick.random() < 0.4
        self.calls: Runs = [
            (pick.choice("fg"), pick.choice([{}, {"x": 1}, {"x": 2}, {"y": {"z": [1, "}"]}}]))
            for _ in range(pick.choice([1, 2, 2, 3]))
        ]
        if self.id == "same":  # the same id, name and arguments would be one call
            self.calls = [(name, {**own, "n": n}) for n, (name, own) in enumerate(self.calls)]
        self._new = 10

    def chunks(self) -> list[Any]:
        """The stream of an answer."""
        pick = self._random
        queues = [self._pieces(n) for n in range(len(self.calls))]
        sent: list[dict[str, Any]] = []
        while any(queues):
            full = [queue for queue in queues if queue]
            sent.append((pick.choice(full) if self.interleaves else full[0]).pop(0))
        sent += self._repeated(sent)
        chunks = list(map(chunk, sent))
        if self.repeat == "message":
            calls = [self._whole(n, None) for n in range(len(self.calls))]
            return [*chunks, chunk(*calls, finish="stop", where="message")]
        return [*chunks, chunk(finish="tool_calls")]

    def _text(self, number: int) -> str:
        own = self.calls[number][1]
        return json.dumps(own) if own or number % 2 else ""

    def _id(self, number: int) -> str | None:
        return None if self.id == "none" else "same" if self.id == "same" else f"call{number}"

    def _whole(self, number: int, index: int | None) -> dict[str, Any]:
        return piece(self._text(number), index, self._id(number), self.calls[number][0])

    def _pieces(self, number: int) -> list[dict[str, Any]]:
        pick, text = self._random, self._text(number)
        places = sorted(pick.choices(range(len(text) + 1), k=pick.randrange(4)))
        cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        is_late = self.name == "late" and self.index in ("zero", "none")
        if is_late or pick.random() < 0.5:  # only an index says whose arguments come before a name
            cuts.insert(0, "")
        if len(cuts) == 1 and "late" in (self.id, self.name):
            cuts.append("")
        return [self._piece(number, place, cut) for place, cut in enumerate(cuts)]

    def _piece(self, number: int, place: int, arguments: str) -> dict[str, Any]:
        self._new += 1
        indexes = {"right": number, "zero": 0, "none": None, "new": self._new if place else number}
        names = {"head": place == 0, "each": True, "late": place == min(1, place)}
        name = self.calls[number][0] if names[self.name] else None
        if self.name == "late" and place == 0:
            name = None
        own = self._id(number)
        if self.id == "fresh" and place and name is None:
            own = f"{own}.{place}"
        elif self.id == "late":
            own = own if place == 1 else None
        elif self.id != "each" and place:
            own = self._random.choice([None, ""])
        return piece(arguments, indexes[self.index], own, name)

    def _repeated(self, sent: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the server sends again. Without an id, only the index says that it is a repetition."""
        number = self._random.randrange(len(self.calls))
        keyed = {"right": number, "zero": 0}.get(self.index)
        if self._id(number) is None or self.id in ("late", "fresh"):
            if self.index != "right" or self.name != "head":
                return []
            again = self._whole(number, number)
            return [again] if self.repeat == "whole" and self.id == "none" else []
        match self.repeat:
            case "whole":
                return [self._whole(number, self._random.choice([keyed, 50]))]
            case "twice":
                return [self._whole(number, 50), self._whole(number, 51)]
            case "pieces":
                head, *rest = self._pieces(number)
                again = [{**head, "index": 60, "id": self._id(number)}, *rest]
                return [{**each, "index": 60} for each in again]
            case "head":
                return [piece("", keyed, self._id(number), self.calls[number][0])]
            case "last":
                return [sent[-1]]
            case _:
                return []


WRONG = (2108455996, 2108428812, 2108445692, 508426877)
"""Servers without ids in which calls were taken for each other."""


def test_no_call_runs_twice_or_with_another_input_however_it_is_cut() -> None:
    """Any pieces of a server run as the model requested, or not at all. Most are understood."""
    wanted = THOROUGH or 500
    first = random.randrange(2**32) if THOROUGH else 0
    outcomes: Counter[str] = Counter()
    for seed in (*WRONG, *range(first, first + wanted)):
        server = Server(seed)
        chunks = server.chunks()
        runs = runs_of(ChatParser(), chunks)
        requested = Counter(json.dumps(call) for call in server.calls)
        ran = Counter(json.dumps(call) for call in runs or ())
        assert ran <= requested, (seed, vars(server), chunks, runs)
        outcomes["unusable" if runs is None else "whole" if ran == requested else "part"] += 1
    assert outcomes["whole"] > wanted // 2, outcomes
    print(outcomes)


@pytest.mark.parametrize("index", [0, None])
def test_the_end_of_arguments_is_found_without_reading_them_again(
    index: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many braces follow, the arguments are parsed at most once."""
    parsed: list[str] = []

    def is_json(text: str) -> bool:
        parsed.append(text)
        return True

    monkeypatch.setattr(calls, "_is_json", is_json)
    found = calls.StreamedCalls()
    found.delta(index, "a", "f", '{"a":"\\')
    for text in ['"}', "}" * 90, *["}"] * 400, '"', " ", "}", *["}"] * 400]:
        found.delta(index, None, None, text)
    assert len(parsed) <= 1


async def test_other_tasks_run_between_the_events_of_a_large_read() -> None:
    """A read of thousands of events does not hold the loop."""
    steps = 0

    async def tick() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    async def arriving() -> AsyncIterator[bytes]:
        yield b"data: {}\n\n" * 40_000

    ticking = asyncio.create_task(tick())
    sizes = [len(each) async for each in Bounded(arriving(), "", 10**9)]
    ticking.cancel()
    assert sum(sizes) == 400_000
    assert max(sizes) <= 10_000
    assert steps >= len(sizes) - 1
