"""What real servers refuse or send that others don't, each from public reports, in both APIs, streamed and whole."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from time import process_time
from typing import Any

import mcp_types as types
import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import ModelError, ToolError
from nbagent.core.base.events import CallRequested, ModelResponded
from nbagent.core.base.messages import load
from nbagent.core.base.model import TextDelta
from nbagent.core.tools.tool import Tool, ToolOptions
from nbagent.mcp_servers.tools import tool_of
from nbagent.models.openai.chat import ChatParser
from nbagent.models.openai.encoding import name_at_server
from nbagent.models.openai.parser import ThinkTags
from tests.integration.chat_server import Body, ChatServer, Refuse, Reply, Step
from tests.integration.responses_server import ResponsesServer
from tests.until import until

PLAYED = pytest.mark.parametrize(
    ("api", "stream"), [(api, stream) for api in ("chat", "responses") for stream in (True, False)]
)
SERVERS: dict[str, type[ChatServer]] = {"chat": ChatServer, "responses": ResponsesServer}
Rule = Callable[[Body], str]


def model_at(server: ChatServer, name: str = "m", **options: Any) -> nb.OpenAIModel:
    api: Any = "responses" if isinstance(server, ResponsesServer) else "chat"
    return nb.OpenAIModel(name, base_url=server.url, api_key="k", api=api, **options)


async def run_on(agent: nb.Agent, prompt: str | None, *, stream: bool, **how: Any) -> nb.Run:
    run = agent.run(prompt, attended=False, **how) if prompt else agent.run(attended=False, **how)
    if stream:
        run.subscribe(lambda _event: None)
    await run
    return run


def items(body: Body) -> list[dict[str, Any]]:
    """The messages or items of a request."""
    found: list[dict[str, Any]] = body.get("messages") or body["input"]
    return found


def calls(body: Body) -> Iterator[tuple[str, str]]:
    """The id and name of each call in a request's history."""
    for item in items(body):
        for call in item.get("tool_calls", ()):
            yield call["id"], call["function"]["name"]
        if item.get("type") == "function_call":
            yield item["call_id"], item["name"]


def results(body: Body) -> list[Any]:
    """The text of each result in a request's history."""
    chat = [item["content"] for item in items(body) if item.get("role") == "tool"]
    return chat + [item["output"] for item in items(body) if "output" in item]


# --- empty answers and results


def strict(body: Body) -> str:
    """Moonshot, Mistral, Vertex and Zhipu: no message may be blank."""
    for index, item in enumerate(items(body)):
        said = item.get("output", item.get("content"))
        if isinstance(said, str) and not said.strip():
            role = item.get("role", "tool")
            return f"the message at position {index} with role '{role}' must not be empty"
        if item.get("role") == "assistant" and said is None and not item.get("tool_calls"):
            return "Assistant message must have either content or tool_calls, but not none."
    return ""


THOUGHT = {"type": "reasoning", "text": "Hm."}
EMPTY: dict[str, list[Any]] = {
    "nothing": [],
    "an empty text": [{"type": "text", "text": ""}],
    "blanks": [{"type": "text", "text": " \n"}],
    "reasoning alone": [THOUGHT],
    "reasoning and blanks": [THOUGHT, {"type": "text", "text": "\n\n"}],
}
CALL = {"type": "tool_call", "id": "c1", "name": "look", "input": {}}


@PLAYED
@pytest.mark.parametrize("case", EMPTY)
async def test_c670_an_empty_answer_is_kept_but_never_sent(api: str, stream: bool, case: str):
    """Alone it is left out; beside a call only its text is."""
    result = {"type": "tool_result", "id": "c1", "name": "look", "output": ""}
    history = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": EMPTY[case]},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": [*EMPTY[case], CALL]},
        {"role": "tool", "content": [result]},
    ]
    with SERVERS[api]([Reply("done")]) as server:
        server.rule = strict
        run = await run_on(nb.Agent(model_at(server)), None, messages=history, stream=stream)
        assert (run.result.text, server.refused) == ("done", [])
        assert list(run.messages[:5]) == list(load(history))
        assert [len(list(calls(body))) for body in server.bodies] == [1]


@PLAYED
@pytest.mark.parametrize(
    ("output", "sent"), [("", '""'), (" \n", r'" \n"'), (None, "null"), ("0", "0")]
)
async def test_c670_an_empty_result_is_sent_as_json(api: str, stream: bool, output: Any, sent: str):
    """The model learns that the text is empty; the journal has the text itself."""
    with SERVERS[api]([Reply(calls=[("look", {})]), Reply("done")]) as server:
        server.rule = strict
        agent = nb.Agent(model_at(server), tools=[nb.tool(name="look")(lambda: output)])
        run = await run_on(agent, "go", stream=stream)
        assert (server.refused, results(server.bodies[-1])) == ([], [sent])
        assert run.calls["look"][0].output == output


@PLAYED
async def test_c670_an_empty_typed_answer_is_asked_for_again(api: str, stream: bool):
    """The history of the next request has no blank answer, whatever the model said before."""

    class City(BaseModel):
        name: str

    steps = [Reply(" "), Reply("Rome"), Reply('{"name": "Rome"}')]
    with SERVERS[api](steps) as server:
        server.rule = strict
        agent = nb.Agent(model_at(server, output="prompt"), output_type=City)
        assert (await run_on(agent, "go", stream=stream)).result.output == City(name="Rome")
        assert server.refused == []


# --- ids of calls


def refusing(pattern: str, told: str) -> Rule:
    """The rule of a server whose ids of calls match a pattern."""

    def rule(body: Body) -> str:
        bad = [own for own, _ in calls(body) if not re.fullmatch(pattern, own)]
        return told.format(bad[0]) if bad else ""

    return rule


def unique(body: Body) -> str:
    """Anthropic: no id twice."""
    own = [each for each, _ in calls(body)]
    return "" if len(set(own)) == len(own) else "messages.1: `tool_use` ids must be unique"


NINE = refusing(
    "[a-zA-Z0-9]{9}", "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9."
)
FORTY = refusing(
    "[a-zA-Z0-9_-]{1,40}",
    "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
)
SIXTY_FOUR = refusing(
    "[a-zA-Z0-9_-]{1,64}",
    "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64",
)
WORD = refusing(
    "[a-zA-Z0-9_-]+",
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
)
BEDROCK = refusing(
    "[a-zA-Z0-9_-]{1,64}",
    "Value '{}' at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint",
)
FOREIGN = ["functions.look:0", "call_" + "x" * 60, "fine-id_1", "abcDEF123", "toolu." + "é" * 3]
WIDE, SHORT = FOREIGN[2:4], FOREIGN[3:4]
IDS: dict[str, tuple[str, Rule, int, list[str]]] = {
    "Mistral": ("mistral:m", NINE, 0, SHORT),
    "OpenAI": ("openai:m", FORTY, 0, WIDE),
    "OpenAI's Responses": ("openai:m", SIXTY_FOUR, 0, WIDE),
    "Anthropic": ("anthropic:m", WORD, 0, WIDE),
    "a server with Mistral's template": ("m", NINE, 1, SHORT),
    "a router to OpenAI": ("m", FORTY, 1, WIDE),
    "a router to OpenAI's Responses": ("m", SIXTY_FOUR, 1, WIDE),
    "a router to Anthropic": ("m", WORD, 1, WIDE),
    "a router to Bedrock": ("m", BEDROCK, 1, WIDE),
    "any other": ("m", lambda _body: "", 0, FOREIGN),
}
"""The model's name, the server's rule, how many requests it refuses first, and the ids that are sent unchanged."""


def other_history() -> list[dict[str, Any]]:
    """A history with calls of other servers."""
    parts = [{**CALL, "id": own} for own in FOREIGN]
    done = [{"type": "tool_result", "id": i, "name": "look", "output": i} for i in FOREIGN]
    return [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": parts},
        {"role": "tool", "content": done},
        {"role": "user", "content": "two"},
    ]


@PLAYED
@pytest.mark.parametrize("case", IDS)
async def test_c671_ids_of_another_server_are_sent_as_this_one_accepts_them(
    api: str, stream: bool, case: str
):
    """Each call keeps its result, the same id is sent in each request, and the journal keeps the first id."""
    name, rule, refused, kept = IDS[case]
    look = nb.tool(name="look")(lambda: 1)
    with SERVERS[api]([Reply("two"), Reply("three")]) as server:
        server.rule = rule
        agent = nb.Agent(model_at(server, name), tools=[look])
        run = await run_on(agent, None, messages=other_history(), stream=stream)
        await run_on(agent, "three", after=run, stream=stream)
        sent = [[own for own, _ in calls(body)] for body in server.bodies]
    assert (len(server.refused), len(sent)) == (refused, refused + 2)
    assert sent[:refused] == [FOREIGN] * refused
    assert sent[-2] == sent[-1]
    assert [own for own in sent[-1] if own in FOREIGN] == kept
    assert len(set(sent[-1])) == len(FOREIGN)
    assert results(server.bodies[-1]) == FOREIGN
    assert [part["id"] for part in run.messages[1]["content"]] == FOREIGN


@pytest.mark.parametrize("api", SERVERS)
async def test_c671_concurrent_runs_learn_the_rule_together(api: str):
    """Several refusals of one rule count as one, so no id is changed without need."""
    all_sent = threading.Barrier(4)

    def rule(body: Body) -> str:
        told = WORD(body)
        if told:
            all_sent.wait(30)
        return told

    with SERVERS[api](lambda _body: Reply("two")) as server:
        server.rule = rule
        agent = nb.Agent(model_at(server))
        await asyncio.gather(*(agent.generate(messages=other_history()) for _ in range(4)))
        sent = [own for own, _ in calls(server.bodies[-1])]
    assert len(server.refused) == 4
    assert [own for own in sent if own in FOREIGN] == WIDE


@PLAYED
async def test_c671_an_id_that_another_server_repeated_becomes_unique(api: str, stream: bool):
    """The first server gets its own ids; the next refuses them, and gets different ones."""
    look = nb.tool(name="look")(lambda n: n)
    twice = Reply(calls=[("look", {"n": 1}), ("look", {"n": 2})], ids=None)
    with SERVERS[api]([twice, Reply("one")]) as first, SERVERS[api]([Reply("two")]) as other:
        other.rule = unique
        run = await run_on(nb.Agent(model_at(first), tools=[look]), "1", stream=stream)
        next_ = nb.Agent(model_at(other), tools=[look])
        assert (await run_on(next_, "2", after=run, stream=stream)).result.text == "two"
        assert (first.refused, len(other.refused)) == ([], 1)
        assert [results(server.bodies[-1]) for server in (first, other)] == [["1", "2"]] * 2


async def test_an_error_about_another_part_of_a_call_changes_no_id():
    """Such a request is sent once."""
    told = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    with ChatServer([Refuse(400, told)]) as server:
        with pytest.raises(ModelError, match="must be followed"):
            await nb.Agent(model_at(server)).generate(messages=other_history())
        assert len(server.bodies) == 1


# --- names of tools

LONG = "x" * 100
NAMES = ["catalog.get", "a/b", "a:b", LONG, LONG + "y", "größe", "2.x", "fine-name_1"]


def listed(name: str, ran: list[str]) -> Tool[..., Any]:
    """The tool of an MCP server."""

    async def body(one: types.Tool, _arguments: Any, _ctx: Any) -> str:
        ran.append(one.name)
        return one.name

    entry = types.Tool(name=name, input_schema={"type": "object", "properties": {}})
    options: Any = ToolOptions()
    return tool_of(entry, body, body, name=name, server="s", place="p", options=options)  # type: ignore[arg-type]


def names_of(body: Body) -> list[str]:
    tools = (tool.get("function", tool) for tool in body.get("tools", ()))
    return [*(tool["name"] for tool in tools), *(name for _, name in calls(body))]


def named_well(body: Body) -> str:
    """OpenAI, Anthropic and others."""
    bad = [name for name in names_of(body) if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)]
    return f"Invalid 'tools[0].name': {bad[0]!r} does not match pattern" if bad else ""


@PLAYED
async def test_c672_a_server_tool_has_a_safe_name_at_the_model_and_its_own_here(
    api: str, stream: bool
):
    """The names are unique and stable; the journal, the rules and ``tool_choice`` have the server's own names."""
    ran: list[str] = []
    told: list[str] = []

    def call_all(body: Body) -> Reply:
        return Reply(calls=[(name, {}) for name in names_of(body)])

    with SERVERS[api]([call_all, Reply("done")]) as server:
        server.rule = named_well
        agent = nb.Agent(
            model_at(server, tool_choice="catalog.get"),
            tools=[listed(name, ran) for name in NAMES],
            policy=[nb.deny("a/*"), nb.allow("*")],
        )
        run = await run_on(agent, "go", stream=stream)
        run.subscribe(lambda event: told.append(getattr(event, "name", "")))
        assert (run.result.text, server.refused) == ("done", [])
        sent = names_of(server.bodies[0])
        assert len(set(sent)) == len(NAMES)
        assert sent[-1] == NAMES[-1]
        assert all(name[0].isalpha() for name in sent)
        assert names_of(server.bodies[-1]) == sent * 2
        choice = server.bodies[0]["tool_choice"]
        assert choice.get("function", choice)["name"] == sent[0] == name_at_server("catalog.get")
        assert sorted(ran) == sorted(set(NAMES) - {"a/b"})
        responded = [event for event in run.journal if isinstance(event, ModelResponded)]
        assert [call.name for call in responded[0].calls] == NAMES
        assert isinstance(responded[0].calls[0], CallRequested)
        assert set(run.calls) == set(NAMES)


async def test_c672_a_model_may_also_call_the_name_that_it_reads_elsewhere():
    """A description or an error may have told it the server's own name."""
    ran: list[str] = []
    with ChatServer([Reply(calls=[("a.b", {})]), Reply("done")]) as server:
        await nb.Agent(model_at(server), tools=[listed("a.b", ran)]).run("go")
    assert ran == ["a.b"]


@pytest.mark.parametrize("name", ["größe", "a.b", "a/b", "a:b", "two words", "x" * 65])
def test_c673_a_function_name_that_apis_refuse_is_refused_where_it_is_declared(name: str):
    """Also of a tool without a body; the error has the rule and the way out."""
    for declare in (lambda: nb.tool(name=name)(lambda: 1), lambda: nb.interrupt_tool(name)):
        with pytest.raises(ToolError, match=r"letters a to z, digits, _ and -, at most 64.*name="):
            declare()


# --- arguments of local models


class Item(BaseModel):
    """One of several."""

    tags: list[str]


@PLAYED
async def test_c674_a_list_in_a_string_is_read_and_what_is_shown_is_what_runs(
    api: str, stream: bool
):
    """Only where the schema allows no string; the approval, the journal and the next request have what runs."""
    ran: list[Any] = []

    @nb.tool(approval=True)
    def save(ids: list[int], items: list[Item], note: str, more: dict[str, int] | None = None):
        ran.append((ids, items, note, more))

    said = {
        "ids": " [1, 2]",
        "items": '[{"tags": "[\\"a\\"]"}]',
        "note": "[1]",
        "more": '{"n": 1}',
    }
    meant = {"ids": [1, 2], "items": [{"tags": ["a"]}], "note": "[1]", "more": {"n": 1}}
    with SERVERS[api]([Reply(calls=[("save", said)]), Reply("done")]) as server:
        run = nb.Agent(model_at(server), tools=[save]).run("go", attended=True)
        if stream:
            run.subscribe(lambda _event: None)
        await run.settled()
        assert run.interrupts[0].input == meant
        run.restart(run.interrupts[0])
        await run
        sent = json.dumps(server.bodies[-1])
    assert ran == [([1, 2], [Item(tags=["a"])], "[1]", {"n": 1})]
    assert json.dumps(json.dumps(meant, separators=(",", ":"))) in sent


AS_SAID: dict[str, tuple[dict[str, Any], Any]] = {
    "a text may be meant": ({"type": ["array", "string"]}, "[1]"),
    "anything may be meant": ({}, "[1]"),
    "an enum without a type": ({"enum": ["[1]"]}, "[1]"),
    "a text in a union": ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "[1]"),
    "one text in a union": ({"anyOf": [{"type": "array"}, {"const": "[1]"}]}, "[1]"),
    "another kind": ({"type": "object"}, "[1]"),
    "no json": ({"type": "array"}, "[1"),
    "a number": ({"type": "array"}, "1"),
    "too deep": ({"type": "array"}, "[" * 101 + "]" * 101),
    "too deep where it is": ({"type": "array"}, "[" * 100 + "]" * 100),
}


@pytest.mark.parametrize("case", AS_SAID)
async def test_c674_no_other_string_is_read(case: str):
    """The arguments stay as the model sent them."""
    schema, said = AS_SAID[case]
    own = {"type": "object", "properties": {"x": schema}}
    tool = nb.tool(name="look", schema=own)(lambda **_given: 1)
    with ChatServer([Reply(calls=[("look", {"x": said})]), Reply("done")]) as server:
        run = await nb.Agent(model_at(server), tools=[tool]).run("go")
    assert run.messages[1]["content"][0]["input"] == {"x": said}


BAD = {
    '{"x": [1, 2,]}': r"\(.*line 1 column \d+",
    "{'x': [1]}": r"\(Expecting property name enclosed in double quotes: line 1 column 2",
    '{"x": None}': r"\(Expecting value: line 1 column 7",
    '{"x": True}': r"\(Expecting value: line 1 column 7",
    '{"x": NaN}': r"\(NaN is not JSON\)",
    "[1]": "levels: ",
}


@PLAYED
@pytest.mark.parametrize("arguments", BAD)
async def test_c675_malformed_arguments_are_asked_for_again_with_the_reason(
    api: str, stream: bool, arguments: str
):
    """Nothing runs, and the model learns where its JSON is wrong."""
    ran: list[Any] = []

    @nb.tool
    def look(x: list[int]) -> None:
        ran.append(x)

    steps = [Reply(calls=[("look", arguments)]), Reply(calls=[("look", {"x": [1]})]), Reply("k")]
    with SERVERS[api](steps) as server:
        await run_on(nb.Agent(model_at(server), tools=[look]), "go", stream=stream)
        told = results(server.bodies[1])[0]
    assert re.search(BAD[arguments], told)
    assert ran == [[1]]


# --- what a server does not have


async def test_c677_a_server_without_a_tool_choice_is_an_error_that_says_so():
    """LM Studio's words."""
    told = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
    with ChatServer([Refuse(400, told)]) as server:
        model = model_at(server, tool_choice="look")
        agent = nb.Agent(model, tools=[nb.tool(name="look")(lambda: 1)])
        with pytest.raises(ModelError, match="Pass the model another tool_choice=, or none"):
            await agent.run("go")


@PLAYED
async def test_c778_a_server_that_ignores_the_tool_choice_is_a_note(api: str, stream: bool):
    """At the answer that had to call a tool, and only there."""
    for choice in ("look", "required", "auto"):
        with SERVERS[api]([Reply("no"), Reply(calls=[("look", {})]), Reply("yes")]) as server:
            model = model_at(server, tool_choice=choice)
            agent = nb.Agent(model, tools=[nb.tool(name="look")(lambda: 1)])
            runs = [await run_on(agent, "go", stream=stream) for _ in range(2)]
        notes = [e.notes for run in runs for e in run.journal if isinstance(e, ModelResponded)]
        assert [len(each) for each in notes] == [choice != "auto", 0, 0]
        if choice != "auto":
            assert f"ignored tool_choice={choice!r}" in notes[0][0]


@PLAYED
async def test_c677_a_server_without_json_mode_is_a_note(api: str, stream: bool):
    """In the response that found out; the answer is checked here in any case."""
    step: list[Step] = [Refuse(400, "response_format json_schema is not supported")]
    with SERVERS[api]([*step, Reply('{"value": 1}'), Reply('{"value": 2}')]) as server:
        agent = nb.Agent(model_at(server), output_type=int)
        runs = [await run_on(agent, "go", stream=stream) for _ in range(2)]
    assert [run.result.output for run in runs] == [1, 2]
    notes = [e.notes for run in runs for e in run.journal if isinstance(e, ModelResponded)]
    assert [len(each) for each in notes] == [1, 0]
    assert re.search("does not accept a JSON Schema|has no JSON mode", notes[0][0])


# --- reasoning in the content

TAGS: dict[str, tuple[str, str, str]] = {
    "plain": ("<think>Hm.</think>Yes.", "Hm.", "Yes."),
    "with lines": ("\n<think>\nHm.\n</think>\n\nYes.\n", "Hm.\n", "Yes.\n"),
    "twice": ("<think>a</think>\n<think>b</think>\nYes.", "ab", "Yes."),
    "empty": ("<think>\n\n</think>\n\nYes.", "", "Yes."),
    "nested": ("<think>a<think>b</think>c</think>Yes.", "abc", "Yes."),
    "a tag that is only named": ("<think>a <think> b</think>Yes.", "a  bYes.", "Yes."),
    "in the middle": ("Use <think>x</think>.", "", "Use <think>x</think>."),
    "Mistral's (llama.cpp 16158, Roo-Code 8522)": ("[THINK]Hm. [1][/THINK]Yes.", "Hm. [1]", "Yes."),
    "Gemini's": ("<thought>Hm.</thought>Yes.", "Hm.", "Yes."),
    "no opening tag (llama.cpp 12107)": ("Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    "no opening tag, and another one": ("Hm.\n</think>\n<think>b</think>Yes.", "Hm.b", "Yes."),
    "only a closing tag": ("</think>\n\nYes.", "", "Yes."),
    "a closing tag in a line": ("Use </think>\nso.", "", "Use </think>\nso."),
    "a closing tag in code": ("```\nx\n</think>\n```\n", "", "```\nx\n</think>\n```\n"),
    "a closing tag in the answer": ("<think>Hm.</think>a\n</think>\nb", "Hm.", "a\n</think>\nb"),
    "another tag": ("<thinker>x", "", "<thinker>x"),
    "brackets": ("[THIS] is text", "", "[THIS] is text"),
    "a piece of a tag": ("<thi", "", "<thi"),
    "no tag": ("  Yes.", "", "  Yes."),
}


@pytest.mark.parametrize("api", SERVERS)
@pytest.mark.parametrize(("stream", "pieces"), [(False, 1), (True, 3), (True, 50)])
@pytest.mark.parametrize("case", TAGS)
async def test_c676_reasoning_in_tags_is_no_answer(api: str, stream: bool, pieces: int, case: str):
    """However the text is cut, it is reasoning for the card, and is not sent back."""
    text, reasoning, answer = TAGS[case]
    with SERVERS[api]([Reply(text, pieces=pieces), Reply("more")]) as server:
        agent = nb.Agent(model_at(server))
        run = await run_on(agent, "go", stream=stream)
        await run_on(agent, "on", after=run, stream=stream)
        sent = json.dumps(server.bodies[-1])
    said = next(event for event in run.journal if isinstance(event, ModelResponded))
    assert (said.reasoning, said.text, run.result.text) == (reasoning, answer, answer)
    assert ("Hm." in sent, server.refused) == (False, [])


def test_c676_what_may_begin_a_tag_is_text_at_the_end_of_any_answer():
    """Also of a whole one without a reason for its end."""
    whole = b'{"choices": [{"message": {"content": "<thi"}, "finish_reason": null}]}'
    assert ChatParser().response(whole) == [TextDelta("<thi")]


LARGE = {
    "closed tags": "<think></think>" * 400_000,
    "open tags": "<think>" * 900_000,
    "blanks": " " * 2_000_000,
    "a blank line": "x\n" + " " * 2_000_000,
    "closing tags in lines": "x\n</think>x\n" * 400_000,
    "closing tags in code": "```\n</think>\n" * 400_000,
}


@pytest.mark.parametrize("case", LARGE)
def test_c676_any_text_of_tags_is_read_quickly(case: str):
    """Not in the square of its length."""
    begun = process_time()
    assert sum(len(piece.text) for piece in ThinkTags().split(LARGE[case])) > 1_000_000
    assert process_time() - begun < 5  # in the square, it would be minutes


@PLAYED
@pytest.mark.parametrize("opening", ["<think>", ""])
async def test_c676_a_typed_answer_is_read_without_its_reasoning(
    api: str, stream: bool, opening: str
):
    """JSON in the reasoning is not the answer."""
    said = f'{opening}{{"value": 1}}\n</think>\n{{"value": 2}}'
    with SERVERS[api]([Reply(said, pieces=9)]) as server:
        agent = nb.Agent(model_at(server), output_type=int)
        assert (await run_on(agent, "go", stream=stream)).result.output == 2


@PLAYED
async def test_c676_an_answer_of_unclosed_reasoning_is_no_answer(api: str, stream: bool):
    """It is asked for once more, as any empty answer is."""
    with SERVERS[api]([Reply("<think>Hm. {}", pieces=4), Reply("Yes.")]) as server:
        run = await run_on(nb.Agent(model_at(server)), "go", stream=stream)
    assert (run.result.text, len(server.bodies)) == ("Yes.", 2)


CUTS = {
    "<think>": [],
    "<think>Hm. An": [],
    "<think>Hm.</thi": [],
    "<think>Hm.</think>": [],
    "<think>Hm.</think>The": [("reasoning", "Hm."), ("text", "The")],
}


@pytest.mark.parametrize("api", SERVERS)
@pytest.mark.parametrize("said", CUTS)
async def test_c676_a_stopped_answer_keeps_its_reasoning_apart(api: str, said: str):
    """Reasoning that was cut off is no text of the next turn, and no tag is text."""
    before = {"chat": 1, "responses": 4}[api]  # the events before the first character
    whole = Reply(f"{said}!", pieces=len(said) + 1, stall=before + len(said))
    with SERVERS[api]([whole]) as server:
        run = nb.Agent(model_at(server)).run("go")
        seen: list[Any] = []
        run.subscribe(seen.append)
        shown = re.sub("</?think>|</thi", "", said)
        await until(server.asked.is_set)
        await until(lambda: shown_of(seen) == shown)
        await run.cancel()
    parts = [(part["type"], part["text"]) for m in run.messages[1:] for part in m["content"]]
    assert parts == CUTS[said]


def shown_of(seen: Sequence[Any]) -> str:
    return "".join(event.text for event in seen if event.type.endswith(("t_delta", "g_delta")))


# --- conversations that are too long

TOO_LONG = {
    "OpenAI, chat": (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9345 tokens. Please "
        "reduce the length of the messages.",
    ),
    "OpenAI, responses": (
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "OpenAI and Groq, per minute": (
        429,
        "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 36000. The "
        "input or output tokens must be reduced in order to run successfully.",
    ),
    "Groq": (400, "Please reduce the length of the messages or completion."),
    "llama.cpp": (
        400,
        "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    ),
    "vLLM": (
        400,
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, "
        "100 in the completion).",
    ),
    "vLLM, prompt": (
        400,
        "The decoder prompt (length 5951) is longer than the maximum model length of 4096.",
    ),
    "SGLang": (
        400,
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    ),
    "TGI": (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
    ),
    "LM Studio": (
        400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens",
    ),
    "Ollama, where it does not truncate": (400, "the input length exceeds the context length"),
    "Mistral": (
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    ),
    "Anthropic": (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    "Anthropic, with max_tokens": (
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ),
    "Anthropic, bytes": (413, "request_too_large: Request exceeds the maximum size"),
    "Gemini": (
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    "xAI": (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
    "Moonshot": (400, "Invalid request: Your request exceeded model token limit: 8192"),
    "Zhipu": (400, "Prompt exceeds max length"),
    "DashScope": (400, "Range of input length should be [1, 129024]"),
    "Bedrock": (400, "Input is too long for requested model."),
    "OpenRouter": (
        400,
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 140000 tokens.",
    ),
    "MiniMax": (400, "invalid params, context window exceeds limit"),
    "Groq, per minute": (
        413,
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_1` service tier `on_demand` on "
        "tokens per minute (TPM): Limit 6000, Requested 8207, please reduce your message size (rate_limit_exceeded)",
    ),
    "GitHub Models": (413, "Request body too large for gpt-4.1 model. Max size: 8000 tokens."),
    "SGLang, input": (
        400,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
    ),
    "Poolside": (400, "Input length 131393 exceeds the maximum allowed input length of 131040."),
    "SiliconFlow": (400, "length of prompt_tokens (57535) must be less than max_seq_len (32768)."),
    "Vertex": (
        400,
        "Unable to submit request because the input token count is 32825 but model only supports up to 32768.",
    ),
}
OTHERS = {
    "an id": (400, "Invalid 'messages[1].tool_calls[0].id': string too long. Expected 40"),
    "a rate": (429, "Rate limit reached for requests per min. Limit 3. Please try again in 20s."),
    "throttled": (429, "Throttling error: Too many tokens, please wait before trying again"),
    "a limit": (400, "max_tokens is too large: 100000. This model supports at most 4096"),
    "a picture": (400, "The image is too large"),
    "a picture in the prompt": (400, "The prompt has an image that exceeds the maximum size"),
    "no access": (403, "This key has no access to the context window of 1M"),
}


@PLAYED
async def test_c775_a_conversation_that_is_too_long_is_known_by_each_server(api: str, stream: bool):
    """It is not sent again as it is; with ``nb.keep`` a shorter one is."""
    before = [{"role": "user", "content": "x" * 4000}, {"role": "assistant", "content": "ok"}]
    with SERVERS[api]() as server:
        agent = nb.Agent(model_at(server))
        for who, refusal in TOO_LONG.items():
            server.script = [Refuse(*refusal), Refuse(*refusal), Reply(who)]
            agent.history = None
            with pytest.raises(nb.errors.HistoryTooLong, match="too long for the model"):
                await run_on(agent, "go", stream=stream)
            assert len(server.script) == 2, who
            agent.history = nb.keep()
            run = await run_on(agent, "go", stream=stream, messages=before)
            assert run.result.text == who
            first, second = [len(str(items(body))) for body in server.bodies[-2:]]
            assert first > 4000 > second


async def test_c775_other_refusals_are_not_taken_for_a_length():
    """Their message stays as it was."""
    with ChatServer() as server:
        for refusal in OTHERS.values():
            server.script = [Refuse(*refusal)] * 9
            with pytest.raises(ModelError) as failed:
                await run_on(nb.Agent(model_at(server)), "go", stream=False)
            assert not isinstance(failed.value, nb.errors.HistoryTooLong), refusal


async def test_c775_a_length_that_is_refused_inside_a_stream_is_known_too():
    """OpenAI's Responses API starts the answer first."""
    error = {"type": "error", "code": "context_length_exceeded", "message": "too long"}

    class Late(ResponsesServer):
        def events(self, body: Body, reply: Reply) -> Iterator[bytes]:
            yield f"data: {json.dumps(error)}\n\n".encode()

    with Late(lambda _body: Reply("")) as server:
        with pytest.raises(nb.errors.HistoryTooLong):
            await run_on(nb.Agent(model_at(server)), "go", stream=True)
        assert len(server.requests) == 1
