"""docs/behavior.md, pausing: the effects of a tool that asks, on every driver."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import Misuse, ToolFailed
from tests.unit.core.usual import Why, parts

call = nb.ScriptedModel.call


class Fix(BaseModel):
    """Data that no first run has."""

    approved: bool


class Other(BaseModel):
    """Metadata that nobody used."""

    color: str


async def test_c01_a_tool_that_asks_pauses_the_conversation(play, tools):
    """One interrupt, one model call, and a history that ends with the model's message."""
    s = await play([call("ask", q="?")], tools)
    assert (s.status, len(s.interrupts), s.requests) == ("interrupted", 1, 1)
    assert [m["role"] for m in s.messages] == ["user", "assistant"]


async def test_c02_a_tool_without_a_body_shows_its_input_as_metadata(play, tools):
    """The question shows the model's input."""
    s = await play([call("ask", q="beer or wine?")], tools)
    (i,) = s.interrupts
    assert i.metadata == i.input == {"q": "beer or wine?"}
    assert (i.kind, i.restartable, i.tool_name) == ("question", False, "ask")


@pytest.mark.parametrize(
    ("metadata", "typed", "as_other"),
    [
        ({"reason": "r", "amount": 1.0}, Why(reason="r", amount=1), None),
        (Why(reason="r", amount=1), Why(reason="r", amount=1), None),
        ({"reason": "r", "amount": 1.0, "more": 1}, None, None),
        (None, None, None),
    ],
)
async def test_c03_c04_c06_metadata_is_kept_and_typed_by_shape(play, metadata, typed, as_other):
    """Interrupt and saved history have the metadata; a type that does not fit gives None."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            ctx.interrupt(metadata)

    s = await play([call("gate")], define)
    (i,) = s.interrupts
    assert i.metadata_as(Why) == typed
    assert i.metadata_as(Other) is as_other
    (saved,) = parts(json.loads(json.dumps(s.messages)), "tool_call")
    expected = metadata.model_dump() if isinstance(metadata, BaseModel) else metadata
    assert saved["nbagent"]["pause"].get("metadata") == expected == i.metadata


class Question(BaseModel):
    """The input of a question."""

    n: int


async def _async_metadata(typed: Question) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"twice": typed.n * 2}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"fixed": True}, {"fixed": True}),
        (lambda typed: {"twice": typed.n * 2}, {"twice": 14}),
        (_async_metadata, {"twice": 14}),
    ],
)
async def test_c05_the_metadata_of_a_question_can_be_computed(play, metadata, expected):
    """A constant, a function of the typed input, an async function."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask", input=Question, metadata=metadata))

    s = await play([call("ask", n=7)], define)
    assert s.interrupts[0].metadata == expected


async def test_c07_a_tool_can_pause_for_some_inputs_only(play):
    """The small transfer is done; the large transfer waits."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def transfer(amount: float, ctx: nb.ToolContext) -> str:
            if amount > 100 and not ctx.resumed:
                ctx.interrupt()
            return f"sent {amount}"

    s = await play([call("transfer", amount=5), call("transfer", amount=500)], define)
    assert [i.input for i in s.interrupts] == [{"amount": 500}]
    assert s.results == ["sent 5.0"]


async def test_c08_a_mixed_message_pauses_only_the_tools_that_ask(play, tools):
    """Two interrupts in call order; both plain calls ran once and keep their results."""
    s = await play(
        [[call("plain", x=1), call("ask"), call("gate", amount=9), call("plain", x=2)], "ok"], tools
    )
    assert [i.tool_name for i in s.interrupts] == ["ask", "gate"]
    assert sorted(tools.log) == [("plain", 1), ("plain", 2)]
    await s.answer(respond={0: "a", 1: "b"})
    assert s.results == [{"x": 1}, "a", "b", {"x": 2}]
    assert sorted(tools.log) == [("plain", 1), ("plain", 2)]


async def test_c10_a_first_run_carries_nothing(play):
    """Not resumed, no data, no original input, no state."""
    seen = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def look(ctx: nb.ToolContext) -> str:
            seen.append(
                (ctx.resumed, ctx.resumed_as(Fix), ctx.original_input, ctx.state, ctx.attempt)
            )
            return "ok"

    s = await play([call("look"), "done"], define)
    assert seen == [(None, None, None, None, 1)]
    assert s.text == "done"


async def test_c11_nothing_paused_means_no_interrupts(play, tools):
    """An empty list, not None."""
    s = await play(["hello"], tools)
    assert (s.interrupts, s.status, s.text) == ([], "completed", "hello")


async def test_c13_a_failure_is_the_calls_result_by_default(play, tools):
    """The model gets the error and continues."""
    s = await play([call("broken"), "sorry"], tools)
    assert s.text == "sorry"
    assert s.results == ["The tool broken failed: ValueError: no luck"]
    assert parts(s.messages, "tool_result")[0]["error"] is True


async def test_c13_on_tool_error_raise_fails_the_run(play, tools):
    """The error has the cause and the messages to resume from."""
    with pytest.raises(ToolFailed, match="no luck") as caught:
        await play([call("broken")], tools, on_tool_error="raise")
    assert isinstance(caught.value.__cause__, ValueError)
    assert [m["role"] for m in caught.value.messages] == ["user", "assistant"]


async def test_c15_return_tool_calls_executes_nothing(tools):
    """The response lists the calls, and no body runs."""
    agent = nb.Agent(nb.ScriptedModel([[call("plain", x=1), call("gate", amount=2)], "done"]))
    tools(agent)
    response = await agent.generate("go", return_tool_calls=True)
    assert (response.finish_reason, response.interrupts, tools.entered, tools.log) == (
        "tool_calls",
        [],
        [],
        [],
    )
    assert [c["name"] for c in response.tool_calls] == ["plain", "gate"]
    resumed = await agent.generate(messages=response.messages)
    assert [i.tool_name for i in resumed.interrupts] == ["gate"]


async def test_c15_return_tool_calls_after_an_answer_still_settles_that_answer(play_steps, tools):
    """Answered calls run first; calls that the model asks for next are returned, not run."""
    script = [call("gate", amount=2), [call("plain", x=1), call("gate", amount=3)], "done"]
    s = await play_steps(script, tools)
    await s.generate(tool_restarts=[nb.tool_restart(s.interrupts[0])], return_tool_calls=True)
    assert (s.status, tools.log) == ("tool_calls", [("gate", 2.0)])
    assert [p["name"] for p in s.messages[-1]["content"]] == ["plain", "gate"]
    await s.generate()
    assert [i.input for i in s.interrupts] == [{"amount": 3}]
    assert tools.log == [("gate", 2.0), ("plain", 1)]


async def test_c16_text_beside_a_call_is_kept(play, tools):
    """Text before a question stays in the history."""
    s = await play([["let me see", call("ask")], "done"], tools)
    await s.answer(respond={0: "b"})
    assert [p["text"] for p in parts(s.messages, "text")] == ["go", "let me see", "done"]


async def test_c17_a_failing_sibling_does_not_destroy_a_pause(play, tools):
    """The pause survives, and the failure is that call's own result."""
    s = await play([[call("broken"), call("ask")], "done"], tools)
    assert [i.tool_name for i in s.interrupts] == ["ask"]
    await s.answer(respond={0: "yes"})
    assert s.results == ["The tool broken failed: ValueError: no luck", "yes"]


@pytest.mark.parametrize("bad", [object(), float("nan"), {object()}, {"k": float("inf")}])
@pytest.mark.parametrize("where", ["metadata", "state"])
async def test_c18_metadata_that_is_not_json_fails_the_run(play, bad, where):
    """The error names the tool and the value, and never becomes text for the model."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            ctx.interrupt(**{where: bad})

    with pytest.raises(Misuse, match=f"'gate'.*{where}.*not JSON") as caught:
        await play([call("gate")], define)
    assert repr(bad)[:20] in str(caught.value)


@pytest.mark.parametrize("ids", [("", ""), ("same", "same")])
async def test_c19_c141_calls_without_unique_ids_are_distinguished(play, tools, ids):
    """Each gets a distinct id and is answered on its own."""
    s = await play([[call("ask", ids[0], n=1), call("ask", ids[1], n=2)], "done"], tools)
    a, b = s.interrupts
    assert a.call_id
    assert a.call_id != b.call_id
    await s.answer(respond={1: "second"})
    assert [i.call_id for i in s.interrupts] == [a.call_id]
    await s.answer(respond={0: "first"})
    assert s.results == ["first", "second"]


async def test_c141_a_call_that_arrives_several_times_is_one_call(play, tools):
    """Its id, name and arguments are the same; the same arguments with another id are another call."""
    same = call("plain", "same", x=1)
    s = await play([[same, call("plain", "other", x=1), same, same], "done"], tools)
    assert [p["id"] for p in parts(s.messages, "tool_call")] == ["same", "other"]
    assert len(s.results) == 2


async def test_c19_an_id_that_the_model_uses_again_is_made_unique(play, tools):
    """A server that repeats call_1 every turn does not mix up two turns."""
    s = await play([call("plain", "call_1", x=1), call("plain", "call_1", x=2), "done"], tools)
    ids = [p["id"] for p in parts(s.messages, "tool_call")]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 2
