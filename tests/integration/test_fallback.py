"""``nb.Fallback``: several models, each at a server of its own, of which one answers."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import pytest

import nbagent as nb
from nbagent.batch.shares import dumped
from nbagent.core.base.errors import ErrorKind, ModelError, UsageError
from nbagent.core.base.events import ModelResponded
from nbagent.core.base.model import (
    Discarded,
    Finished,
    Notice,
    ReasoningDelta,
    TextDelta,
    Usage,
    Waiting,
)
from nbagent.models.openai.credentials import Credentials
from nbagent.models.openai.errors import clear_error, refused_error
from nbagent.models.openai.stream import reported
from tests.integration.chat_server import Body, ChatServer, Refuse, Reply, Step
from tests.integration.test_server_rules import PLAYED, SERVERS, calls, model_at, run_on
from tests.until import until

CALL = nb.ScriptedModel.call


@contextmanager
def two(api: str, *steps: Step, **options: Any) -> Iterator[tuple[Any, Any, nb.Fallback]]:
    """A server of ``steps``, a good server with the other API, and the fallback of their models."""
    other = {"chat": "responses", "responses": "chat"}[api]
    with SERVERS[api](list(steps)) as bad, SERVERS[other](lambda _: Reply("From good.")) as good:
        yield bad, good, nb.Fallback(model_at(bad, "bad"), model_at(good, "good"), **options)


def responses_of(run: nb.Run) -> list[ModelResponded]:
    return [event for event in run.journal if isinstance(event, ModelResponded)]


LONG = {"retry-after": "40"}
FAILURES: dict[str, tuple[Step, int, str]] = {
    "a limit with a time": (Refuse(429, "slow down", LONG), 1, "too many requests (429)"),
    "a limit without a time": (Refuse(429, "slow down", {}), 2, "too many requests (429)"),
    "no quota": (Refuse(402, "pay first"), 1, "402"),
    "overload": (Refuse(529, "overloaded", {}), 2, "the server failed (529)"),
    "overload with a time": (Refuse(503, "overloaded", LONG), 1, "the server failed (503)"),
    "an early end": (Reply("cut", ends_early=1), 1, "ended in the middle"),
    "an empty answer": (Reply(""), 1, "gave no answer"),
    "reasoning alone": (Reply("", reasoning="Hm."), 1, "gave no answer"),
    "a filtered answer": (Reply("", finish="content_filter"), 1, "content filter"),
    "a filtered prompt": (Refuse(400, "content_filter: no such talk"), 1, "no such talk"),
}
"""A server's failure, the most requests to it, and a part of the note."""
BOTH = pytest.mark.parametrize(("api", "stream"), [("chat", True), ("responses", False)])


@BOTH
@pytest.mark.parametrize("case", FAILURES)
async def test_c700_the_next_model_answers_for_one_that_cannot(api: str, stream: bool, case: str):
    """No server is waited for if another model can answer. The journal names the model, and a note the reason."""
    step, most, reason = FAILURES[case]
    stream |= case == "an early end"
    with two(api, *[step] * 5) as (bad, good, model):
        async with asyncio.timeout(20), model:
            run = await run_on(nb.Agent(model), "hello", stream=stream)
        assert (await run).text == "From good."
        assert 1 <= len(bad.requests) <= most
        assert len(good.requests) == 1
    (response,) = responses_of(run)
    assert response.model == "good"
    assert reason in response.notes[-1]
    assert response.notes[-1].endswith("Asked 'good' instead.")
    assert not response.reasoning
    assert "Asked 'good' instead." in run.to_html().replace("&#x27;", "'")


async def test_c700_a_server_that_cannot_be_reached_or_is_silent_is_asked_only_once() -> None:
    """A silent server is not asked again, because that takes its timeout again."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ChatServer([Reply("I.")]) as good:
        silent.settimeout(0.01)
        port = silent.getsockname()[1]
        hangs = nb.OpenAIModel("hangs", base_url=f"http://127.0.0.1:{port}/v1", timeout=0.2)
        gone = nb.OpenAIModel("gone", base_url="http://127.0.0.1:9/v1")
        async with nb.Fallback(hangs, gone, model_at(good)) as model:
            run = await run_on(nb.Agent(model), "hello", stream=True)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    (response,) = responses_of(run)
    assert [note.partition(":")[0] for note in response.notes] == [
        "The model 'hangs'",
        "The model 'gone'",
    ]


@pytest.mark.parametrize(
    ("on", "step", "is_next"),
    [
        (("rate_limit", "outage", "refusal"), Refuse(401, "wrong key"), False),
        (("rate_limit", "outage", "refusal"), Refuse(400, "prompt is too long"), False),
        (("rate_limit", "outage", "refusal"), Refuse(400, "unknown field"), False),
        ("access", Refuse(401, "wrong key"), True),
        (["too_long"], Refuse(400, "prompt is too long"), True),
        ("too_long", Refuse(500, "fails", {"x-should-retry": "false"}), False),
        (["outage"], Refuse(402, "pay first"), False),
        (nb.errors.ModelError, Refuse(400, "unknown field"), True),
    ],
)
async def test_c701_only_the_named_errors_lead_to_the_next_model(
    on: Any, step: Step, is_next: bool
):
    """Any other error is raised as it is, and the next model is not asked."""
    with two("chat", step, on=on) as (_, good, model):
        async with model:
            if is_next:
                assert (await nb.Agent(model).generate("hello")).text == "From good."
                return
            with pytest.raises(ModelError, match=r"^The model 'bad' at "):
                await nb.Agent(model).generate("hello")
        assert not good.requests


async def test_c701_a_server_is_waited_for_if_waiting_is_no_cause() -> None:
    """A model alone waits, and so does one whose limits are no reason to ask another."""
    with two("chat", Refuse(429, "slow", {"retry-after": "0.6"}), Reply("I."), on="outage") as made:
        async with made[2] as model:
            run = await run_on(nb.Agent(model), "hello", stream=False)
    (response,) = responses_of(run)
    assert (response.text, response.model, response.notes) == ("I.", "bad", ())


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        (("gpt-5",), {}, "at least two models"),
        (("gpt-5", 5), {}, "A model must be a name or an object with a stream method, got 5"),
        (("gpt-5", "gpt-5-mini"), {"on": ()}, "on must be one or several of rate_limit, outage"),
        (("gpt-5", "gpt-5-mini"), {"on": "outages"}, "Did you mean 'outage'?"),
        (("gpt-5", "gpt-5-mini"), {"cooldown": -1}, "cooldown must be a finite number"),
        (("gpt-5", "claude-sonnet-4-5"), {}, "anthropic:claude-sonnet-4-5"),
    ],
)
def test_c701_a_wrong_fallback_is_refused(
    models: Any, options: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the argument and what is allowed."""
    monkeypatch.delenv("OPENAI_BASE_URL")  # so that names are checked
    with pytest.raises(UsageError) as caught:
        nb.Fallback(*models, **options)
    assert words in str(caught.value)


async def test_c702_an_answer_that_was_shown_is_never_replaced() -> None:
    """A break after some text is the end, with the text; a break that the model repairs itself is repeated there."""
    broken = ModelError("it broke", kind="outage")
    lines = nb.ScriptedModel([["Half an ", broken]], name="lines")
    other = nb.ScriptedModel(["Other."])
    run = nb.Agent(nb.Fallback(lines, other)).run("hello", attended=False)
    with pytest.raises(ModelError, match=r"^it broke$"):
        await run
    assert not other.requests
    assert responses_of(run)[0].text == "Half an "
    again = nb.ScriptedModel([["Half", Discarded("it broke"), "Whole."]], name="again")
    result = await nb.Agent(nb.Fallback(again, other)).run("hello", attended=False)
    assert result.text == "Whole."
    assert not other.requests


async def test_c702_reasoning_and_calls_of_a_failed_model_do_not_count() -> None:
    """They are discarded, so the answer has only what the next model sent."""
    thought = [ReasoningDelta("Hm."), TextDelta("So."), ReasoningDelta("So.", replaces_text=True)]
    begun = [*thought, Notice("A note."), CALL("look", x=1)]
    for end in (ConnectionError("gone"), Discarded("gone")):
        first = nb.ScriptedModel([[*begun, end]], name="first")
        run = nb.Agent(nb.Fallback(first, nb.ScriptedModel(["Yes."], name="second"))).run("hello")
        assert (await run).text == "Yes."
        (response,) = responses_of(run)
        assert (response.reasoning, response.calls) == ("", ())
        assert response.notes == ("The model 'first': gone. Asked 'second' instead.",)


async def test_c703_the_error_of_all_models_names_each_with_its_reason() -> None:
    """Its kind is the kind that all have."""
    full = ModelError("The model 'a' is full", kind="rate_limit")
    for last, kind in ((full, "rate_limit"), (TimeoutError("late"), None)):
        models = [nb.ScriptedModel([full], name="a"), nb.ScriptedModel([last], name="b")]
        with pytest.raises(ModelError) as caught:
            await nb.Agent(nb.Fallback(*models)).generate("hello")
        assert str(caught.value) == (
            "None of the 2 models answered. (1) The model 'a' is full; (2) The model 'b': "
            + ("The model 'a' is full" if last is full else "late")
        )
        assert caught.value.kind == kind


async def test_c703_if_no_model_answers_those_that_only_had_to_wait_are_asked_again() -> None:
    """So a fallback never fails where one of its models alone would have waited; the shortest wait is first."""

    def busy(seconds: float, name: str) -> nb.ScriptedModel:
        return nb.ScriptedModel(lambda _: [Waiting(seconds, "busy", "rate_limit"), name], name=name)

    down = nb.ScriptedModel([OSError("down")], name="down")
    model = nb.Fallback(busy(30, "slow"), busy(20, "soon"), down)
    run = nb.Agent(model).run("hello", attended=False)
    assert (await run).text == "soon"
    (response,) = responses_of(run)
    assert response.model == "soon"
    assert [note.rpartition(". ")[2] for note in response.notes] == [
        "Asked 'soon' instead.",
        "Asked 'down' instead.",
        "Asked 'soon' instead.",
    ]


async def test_c704_a_model_that_failed_is_asked_after_the_others_for_a_while() -> None:
    """A dead server costs one request its timeout, not each request. Afterwards it is the first one again."""
    first = nb.ScriptedModel([OSError("down"), "Back.", "Back."], name="first")
    second = nb.ScriptedModel(["1", "2", OSError("down")], name="second")
    model = nb.Fallback(first, second)
    agent = nb.Agent(model)
    texts = [(await agent.run(str(n), attended=False)).text for n in range(2)]
    assert (texts, len(first.requests)) == (["1", "2"], 1)
    run = agent.run("now the second one is down", attended=False)
    assert (await run).text == "Back."
    assert responses_of(run)[0].notes[0].endswith("s ago). Asked 'second' instead.")
    assert (await agent.run("again", attended=False)).text == "Back."
    rested = nb.Fallback(nb.ScriptedModel([OSError("x"), "Back."]), second, cooldown=0)
    second._steps.append("3")
    assert [(await nb.Agent(rested).run("go", attended=False)).text for _ in "ab"] == ["3", "Back."]


async def test_c704_a_refusal_of_one_prompt_keeps_the_order() -> None:
    """Another prompt may be accepted."""
    filtered = ModelError("filtered", kind="refusal")
    first = nb.ScriptedModel([filtered, "First."], name="first")
    agent = nb.Agent(nb.Fallback(first, nb.ScriptedModel(["Second."])))
    texts = [(await agent.run("hello", attended=False)).text for _ in range(2)]
    assert texts == ["Second.", "First."]


async def test_c705_each_model_counts_at_its_own_price() -> None:
    """A failed answer that was paid for counts too. A model without a price is named before the run starts."""
    filtered = [Finished("content_filter", Usage(100, 0, cost=1.0))]
    first = nb.ScriptedModel([filtered], name="first", usage=Usage(cost=0.0))
    second = nb.ScriptedModel(["Yes."], name="second", usage=Usage(10, 5, cost=0.25))
    agent = nb.Agent(nb.Fallback(first, second), budget=nb.Budget(cost=5))
    usage = (await agent.run("hello", attended=False)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (110, 5, 1.25)
    unpriced = nb.ScriptedModel([], name="unpriced", usage=Usage())
    agent = nb.Agent(nb.Fallback(second, unpriced), budget=nb.Budget(cost=5))
    with pytest.raises(UsageError, match="the price of the model 'unpriced' is unknown"):
        await agent.run("hello", attended=False)


@PLAYED
async def test_c706_a_conversation_moves_between_servers_within_a_run(
    api: str, stream: bool
) -> None:
    """Each server gets the whole history in its own form: APIs, ids and names of tools."""

    def look(x: int) -> int:
        """Look."""
        return x + 1

    def nine(body: Body) -> str:  # as Mistral
        return "" if all(len(key) == 9 for key, _ in calls(body)) else "id must have 9 letters"

    step = Reply("", calls=[("look", {"x": 1})])
    down = Refuse(500, "down", {"x-should-retry": "false"})
    other = {"chat": "responses", "responses": "chat"}[api]
    with SERVERS[api]([step, down, Reply("Three.")]) as one, SERVERS[other]([step]) as two_:
        two_.rule = nine
        first, second = model_at(one, "first"), model_at(two_, "mistral:second")
        async with nb.Fallback(first, second, cooldown=0) as model:
            agent = nb.Agent(model, tools=[look], output_type=str)
            run = await run_on(agent, "hello", stream=stream)
    assert (await run).text == "Three."
    assert [response.model for response in responses_of(run)] == [
        "first",
        "mistral:second",
        "first",
    ]
    assert [name for _, name in calls(one.bodies[-1])] == ["look", "look"]
    assert [len(key) for key, _ in calls(two_.bodies[-1])] == [9]


@PLAYED
async def test_c707_a_typed_answer_has_the_form_of_the_server_that_answers(api: str, stream: bool):
    """A schema, its answer and the error of a wrong one go to whichever model is asked."""
    with two(api, Refuse(401, "no key"), on="access") as (_, good, model):
        good._every = lambda _: Reply(
            '{"value": 5}' if len(good.requests) > 1 else '{"value": "x"}'
        )
        async with model:
            run = await run_on(nb.Agent(model, output_type=int), "hello", stream=stream)
    assert (await run).output == 5
    assert "schema" in str(good.bodies[0])


SECRET = "sk-planted-4711"


async def test_c708_a_fallback_travels_to_other_processes_without_its_keys() -> None:
    """With all limits, which the processes of a batch share."""
    models = [nb.OpenAIModel(name, api_key=SECRET, rpm=5) for name in ("gpt-5", "gpt-5-mini")]
    model = nb.Fallback(*models, "ollama:qwen3", on=("access", TimeoutError), cooldown=5)
    told = pickle.dumps(model)
    assert SECRET.encode() not in told
    again = pickle.loads(told)
    assert repr(again) == repr(model) == "Fallback('gpt-5', 'gpt-5-mini', 'ollama:qwen3')"
    assert again.name == "gpt-5 or gpt-5-mini or ollama:qwen3"
    assert (again.on, again.cooldown) == (model.on, 5)
    kit, limits = dumped(nb.Agent(model))
    assert len(limits) == 3
    assert SECRET.encode() not in kit


THERE = """
import asyncio, pickle, sys
import nbagent as nb

async def main():
    agent, store = pickle.load(open(sys.argv[1], "rb"))
    run = await nb.open_run("march", agent=agent, store=store)
    run.resolve(run.interrupts[0], nb.Restart())
    await run
    print((await agent.run("And?", after=run, id="april", attended=False)).text)

asyncio.run(main())
"""


async def test_c708_a_run_continues_in_another_process(tmp_path: Any) -> None:
    """The models, their order and ``on`` are the agent's; which model answered is in the journal."""

    def pay(amount: int) -> str:
        return f"paid {amount}"

    step = Reply("", calls=[("pay", {"amount": 5})])
    down = Refuse(500, "down", {"x-should-retry": "false"})
    with two("chat", step, down, down) as (bad, good, model):
        store = nb.SQLiteStore(tmp_path / "runs.db")
        agent = nb.Agent(model, tools=[pay], policy=[nb.review("pay")], store=store)
        run = agent.run("Pay.", id="march", attended=False)
        with pytest.raises(nb.HumanInputRequired):
            await run
        (tmp_path / "agent").write_bytes(cloudpickle.dumps((agent, store)))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", THERE, tmp_path / "agent"],
            env={**os.environ, "OPENAI_API_KEY": "of that process"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        await model.aclose()
    assert done.stdout == "From good.\n", done.stderr
    assert (len(bad.requests), len(good.requests)) == (2, 2)
    models = [
        [event.model for event in store.read(run_id) if isinstance(event, ModelResponded)]
        for run_id in ("march", "april")
    ]
    assert models == [["bad", "good"], ["good"]]


async def test_c708_no_credential_is_in_a_note_or_an_error() -> None:
    """Whatever a server repeats."""
    with two("chat", *[Refuse(500, f"key {SECRET}", {"x-should-retry": "false"})] * 2) as made:
        bad, good, _ = made
        good._every = lambda _: Refuse(401, f"key {SECRET}")
        keyed = [
            nb.OpenAIModel(name, base_url=server.url, api_key=SECRET, api=api)
            for name, server, api in (("a", bad, "chat"), ("b", good, "responses"))
        ]
        async with nb.Fallback(*keyed) as model:
            notes: list[Any] = []
            run = nb.Agent(model).run("hello", attended=False)
            run.subscribe(notes.append)
            with pytest.raises(ModelError) as caught:
                await run
            assert "(2) The model 'b' at" in str(caught.value)
            assert SECRET not in f"{caught.value} {notes} {run.journal}"
            assert model.without_credentials(f"key {SECRET}") != f"key {SECRET}"


async def test_c709_a_recording_of_a_fallback_says_which_model_answered(tmp_path: Any) -> None:
    """A replay needs neither model."""
    path = tmp_path / "session.json"
    with two("chat", Refuse(402, "pay first")) as (_, _, model):
        async with nb.RecordedModel(path, model) as recorded:
            await nb.Agent(recorded).run("hello", attended=False)
    run = nb.Agent(nb.RecordedModel(path)).run("hello", attended=False)
    assert (await run).text == "From good."
    (response,) = responses_of(run)
    assert response.model == "good"
    assert "402" in response.notes[0]


async def test_c710_a_stopped_run_stops_the_request_of_the_model_that_is_asked() -> None:
    """Its connection is closed, and no other model is asked."""
    slow = Reply("word " * 500, pieces=500, delay=0.02)
    with ChatServer([Refuse(402, "pay first")]) as bad, ChatServer([slow]) as good:
        third = nb.ScriptedModel([])
        async with nb.Fallback(model_at(bad), model_at(good, "good"), third) as model:
            run = nb.Agent(model).run("hello", attended=False)
            texts: list[Any] = []
            run.subscribe(texts.append)
            await until(lambda: any(isinstance(event, TextDelta) for event in texts))
            await run.cancel()
            with pytest.raises(nb.errors.Cancelled):
                await run
        await until(lambda: not good._sockets)
    assert not third.requests


def test_c711_a_hosted_tool_is_one_that_each_model_has() -> None:
    """Otherwise the first failure would take the tool away in the middle of a run."""
    search = nb.hosted("web_search")
    first = nb.OpenAIModel("gpt-5.5", api="responses")
    nb.Agent(nb.Fallback(first, nb.OpenAIModel("gpt-5.1", api="responses")), tools=[search])
    with pytest.raises(UsageError, match="which the model 'small' does not support"):
        nb.Agent(nb.Fallback(first, nb.ScriptedModel([], name="small")), tools=[search])


REPORTS: list[tuple[int, str, ErrorKind | None]] = [
    (429, "Rate limit reached", "rate_limit"),
    (413, "Request too large on tokens per minute (TPM): rate_limit_exceeded", "rate_limit"),
    (402, "Insufficient Balance", "rate_limit"),
    (500, "The server had an error", "outage"),
    (529, "Overloaded", "outage"),
    (408, "Request Timeout", "outage"),
    (401, "Incorrect API key provided", "access"),
    (403, "You do not have access to this model", "access"),
    (404, "The model `x` does not exist", "access"),
    (403, "Your input was flagged by moderation", "refusal"),
    (400, "The response was filtered: content management policy", "refusal"),
    (400, "Input data may contain inappropriate content: data_inspection_failed", "refusal"),
    (400, "InternalError.Algo.DataInspectionFailed: inappropriate content.", "refusal"),
    (400, "tool_use_failed: Failed to call a function", "outage"),
    (400, "This model's maximum context length is 8192 tokens", "too_long"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", "too_long"),
    (400, "The input token count (1200000) exceeds the maximum number of tokens", "too_long"),
    (400, "the request exceeds the available context size, try increasing it", "too_long"),
    (422, "Input is too long for requested model.", "too_long"),
    (413, "Request Entity Too Large", "too_long"),
    (400, "Unsupported parameter: 'temperature'", None),
]
"""Errors as servers word them, in public reports."""


@pytest.mark.parametrize(("status", "words", "kind"), REPORTS)
def test_c712_an_error_says_of_which_kind_it_is(status: int, words: str, kind: ErrorKind | None):
    """From its status, or from the server's words where the status has several meanings."""
    error = clear_error(
        refused_error(status, words),
        model="m",
        base_url="http://h/v1",
        credentials=Credentials(()),
        provider=None,
    )
    assert isinstance(error, ModelError)
    assert error.kind == kind
    assert pickle.loads(pickle.dumps(error)).kind == kind
    if kind in ("rate_limit", "too_long", "refusal") and words != "Request Entity Too Large":
        assert reported({"message": words, "code": status}).kind == kind
