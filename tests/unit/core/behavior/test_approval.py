"""docs/behavior.md, approval: tools that run only once a person approves, on every driver."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import Misuse, ToolFailed
from tests.unit.core.behavior.drivers import Steps
from tests.unit.core.usual import parts

call = nb.ScriptedModel.call


async def test_c73_c74_c75_c87_rules_on_arguments_allow_deny_or_ask_once(play):
    """The first matching rule decides; without one the tool asks. A run asks no rule again afterwards."""
    looked: list[int] = []
    did: list[int] = []

    def is_large(typed: Any) -> bool:
        looked.append(typed.n)
        return typed.n > 100

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return f"did {n}"

    rules = [
        nb.deny("act", when=is_large, reason="too large"),
        nb.allow("act", when=lambda typed: typed.n < 5),
    ]
    script = [[call("act", n=500), call("act", n=1), call("act", n=50)], "done"]
    s = await play(script, define, policy=rules)
    assert [(i.input, i.kind) for i in s.interrupts] == [({"n": 50}, "approval")]
    assert (did, sorted(looked)) == ([1], [1, 50, 500])
    await s.answer(restart={0: {}})
    assert "too large" in s.results[0]
    assert (s.results[1:], did) == (["did 1", "did 50"], [1, 50])
    again = [50] if isinstance(s, Steps) else []  # a history has no verdicts
    assert sorted(looked) == sorted([1, 50, 500, *again])


async def test_c87_a_rule_that_allowed_a_call_is_not_asked_again_after_the_call_pauses(
    play_stored, tools
):
    """The verdict still counts after the body's own pause, also in another process."""
    looked: list[float] = []

    def allows(typed: Any) -> bool:
        looked.append(typed.amount)
        return len(looked) == 1

    rules = [nb.allow("gate", when=allows), nb.deny("*")]
    s = await play_stored([call("gate", amount=1), "done"], tools, policy=rules)
    await s.answer(restart={0: {}})
    assert (looked, s.results) == ([1.0], ["sent 1.0"])


async def test_c87_a_history_carries_no_verdict_and_denial_rules_are_checked_again(
    play_steps, tools
):
    """A verdict in a history does not count, whatever a person answers."""
    rules = [nb.allow("gate", when=lambda _: not tools.entered), nb.deny("*")]
    s = await play_steps([call("gate", amount=1), "done"], tools, policy=rules)
    await s.answer(restart={0: {}})
    assert "A rule denies this call" in s.results[0]
    assert (len(tools.entered), tools.log) == (1, [])


async def test_c76_approving_runs_exactly_the_displayed_input(play, tools):
    s = await play([call("gate", amount=500), "done"], tools)
    shown = s.interrupts[0].input
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", shown["amount"])]


async def twice(c: nb.ToolCall, nxt: Any) -> Any:
    """Middleware that tries again after any exception, also one that is no failure."""
    try:
        return await nxt(c)
    except BaseException:
        return await nxt(c)


async def test_c81_middleware_that_retries_a_pause_enters_the_body_once(play, tools):
    """One attempt a round: the call stays paused, and work before the pause is not repeated."""
    s = await play([call("gate", amount=1), "done"], tools, middleware=[twice])
    assert ([i.tool_name for i in s.interrupts], len(tools.entered)) == (["gate"], 1)
    await s.answer(restart={0: {}})
    assert (s.results, len(tools.entered), len(tools.log)) == (["sent 1.0"], 2, 1)


@pytest.mark.parametrize("how", ["interrupt", "ask"])
async def test_c18_c81_middleware_that_retries_a_misuse_enters_the_body_once(play, how):
    """The run fails at once."""
    entered: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def gate(ctx: nb.ToolContext) -> str:
            entered.append(1)
            if how == "ask":
                await ctx.ask(object())
            ctx.interrupt(object())

    with pytest.raises(Misuse, match="not JSON"):
        await play([call("gate")], define, middleware=[twice])
    assert entered == [1]


async def test_c63_c76_an_approval_survives_a_failure_before_its_body(play):
    """A retry runs the approved input, and asks nobody again."""
    did: list[int] = []
    passes: list[int] = []

    async def flaky(c: nb.ToolCall, nxt: Any) -> Any:
        passes.append(1)
        if len(passes) == 2:
            raise OSError("line is down")
        return await nxt(c)

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return f"did {n}"

    script = [call("act", n=1), "done"]
    s = await play(script, define, middleware=[flaky], on_tool_error="raise")
    with pytest.raises(ToolFailed, match="line is down"):
        await s.answer(restart={0: {"new_input": {"n": 2}}})
    assert did == []
    await s.retry()
    assert (s.interrupts, did, s.text) == ([], [2], "done")


@pytest.mark.parametrize("reason", ["too much", None])
async def test_c78_c79_a_rejection_reaches_the_model_and_never_the_body(play, tools, reason):
    """The result names the tool, and the reason where there is one."""
    s = await play([call("gate", amount=500), "done"], tools)
    await s.answer(reject={0: reason})
    (told,) = s.results
    assert "gate" in told
    assert "reject" in told
    assert ("too much" in told) == (reason is not None)
    assert reason or told == "A person rejected this call of gate. It was not run."
    assert tools.log == []
    assert s.text == "done"


def named(value):
    """A name that is the same in every process: without an object's address."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


NO_DECISIONS: list[Any] = [
    None,
    "approve",
    "false",
    "true",
    {},
    {"type": "restart"},
    {"type": "launch"},
    [],
    True,
    False,
    0,
    nb.Respond,
    object(),
]


@pytest.mark.parametrize("decision", NO_DECISIONS, ids=named)
@pytest.mark.parametrize("tool", ["gate", "ask", "stream"])
async def test_c80_an_answer_that_is_not_a_decision_never_runs_a_tool(decision, tool):
    """Live: an error, nothing stored, question open; for streaming tools too."""
    ran = []
    agent = nb.Agent(nb.ScriptedModel([call(tool)]))
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        ran.append(1)
        return "ran"

    @agent.tool
    async def stream(ctx: nb.ToolContext):
        if not ctx.resumed:
            ctx.interrupt()
        ran.append(1)
        yield "ran"

    run = await agent.run("go").settled()
    before = run.journal
    with pytest.raises(nb.errors.InvalidAnswer):
        run.resolve(run.interrupts[0], decision)
    with pytest.raises((TypeError, nb.errors.NotPending)):
        run.resolve(decision, nb.Restart())
    if decision is not None:
        if not isinstance(decision, str):
            with pytest.raises(nb.errors.InvalidAnswer):
                run.reject(run.interrupts[0], decision)
        if not isinstance(decision, dict):
            with pytest.raises(nb.errors.InvalidAnswer):
                run.restart(run.interrupts[0], new_input=decision)
    assert run.journal == before
    assert (len(run.interrupts), run.status, ran) == (1, "interrupted", [])


@pytest.mark.parametrize("decision", NO_DECISIONS, ids=named)
async def test_c80_an_answer_that_is_not_a_decision_is_refused_and_the_question_still_waits(
    play, decision
):
    """A streaming tool: nothing runs, nothing is stored; a proper decision settles the call."""
    ran: list[str] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        async def stream():
            ran.append("stream")
            yield "ran"

    s = await play([call("stream"), "done"], define)
    before = json.dumps(s.messages)
    for where in ("tool_restarts", "tool_responses", "tool_rejections"):
        with pytest.raises(nb.errors.InvalidAnswer):
            await s.decide(decision, where)
    if not s.live:  # a restart in the list of responses must not run the tool
        with pytest.raises(nb.errors.InvalidAnswer, match="tool_responses"):
            await s.generate(tool_responses=[nb.tool_restart(s.interrupts[0])])
    assert (json.dumps(s.messages), s.requests, ran) == (before, 1, [])
    await s.decide(nb.Restart(interrupt=s.interrupts[0]), "tool_restarts")
    assert (ran, s.results) == (["stream"], ["ran"])


async def test_c84_c85_an_edited_approval_runs_the_edit_and_the_model_gets_a_note(play, tools):
    """Without edits the original runs, without a note."""
    s = await play([[call("gate", amount=500), call("gate", amount=600)], "done"], tools)
    await s.answer(restart={0: {"new_input": {"amount": 50}}, 1: {}})
    assert sorted(tools.log) == [("gate", 50.0), ("gate", 600.0)]
    assert s.results[0].startswith("A person changed the arguments")
    assert s.results[1] == "sent 600.0"


async def test_c88_answering_instead_of_running(play, tools):
    """The answer is the result; the body is not run (again), whether the body or a rule asked."""
    rule = nb.review("plain")
    s = await play([[call("gate", amount=500), call("plain")], "done"], tools, policy=[rule])
    await s.answer(respond={0: "do it by hand", 1: {"x": 5}})
    assert (s.results, tools.log) == (["do it by hand", {"x": 5}], [])


async def test_c139_an_answer_in_place_of_an_approval_is_sent_and_recorded_as_an_answer(
    play, tools
):
    """The model gets the answer, the tool does not run, and the history has the decision."""
    s = await play([call("plain"), "done"], tools, policy=[nb.review("plain")])
    assert s.interrupts[0].kind == "approval"
    await s.answer(respond={0: {"x": 5}})
    (result,) = parts(s.messages, "tool_result")
    (record,) = result["nbagent"]
    assert record["resolution"] == {"type": "respond", "output": {"x": 5}}
    assert (result["output"], tools.log) == ({"x": 5}, [])


async def test_c80_c84_a_streaming_tool_is_approved_edited_and_rejected_like_any_other(play):
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        async def stream(n: int):
            did.append(n)
            yield f"n={n}"

        @agent.tool(approval=True)
        def stream_sync(n: int):
            did.append(n)
            yield f"n={n}"

    s = await play(
        [[call("stream", n=1), call("stream_sync", n=2), call("stream", n=3)], "done"], define
    )
    assert did == []
    await s.answer(restart={0: {}, 1: {"new_input": {"n": 20}}}, reject={2: None})
    assert sorted(did) == [1, 20]
    assert s.results[0] == "n=1"
    assert s.results[1].endswith("n=20")


@pytest.mark.parametrize("empty", [None, {}, {"seat": None}, {"seat": "1A", "price": ""}])
async def test_c89_a_required_answer_left_empty_is_an_error_at_its_field(play, empty):
    """The question stays open; the error's ``loc`` has the field."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask", output=Seat))

    s = await play([call("ask"), "done"], define)
    with pytest.raises(nb.errors.InvalidAnswer) as caught:
        await s.answer(respond={0: empty})
    fields = {error["loc"] for error in caught.value.errors}
    assert fields <= {(), ("seat",), ("price",)}
    assert fields
    await s.answer(respond={0: {"seat": "1A", "price": 5}})
    assert s.results == [{"seat": "1A", "price": 5.0}]


class Seat(BaseModel):
    """A typed answer."""

    seat: str
    price: float


async def test_c90_comments_lead_to_revisions_until_the_draft_is_accepted(play):
    """Two comments give two revisions; the result is the accepted draft."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def draft(topic: str, ctx: nb.ToolContext) -> str:
            state = ctx.state_as(dict) or {"text": topic, "revisions": 0}
            comment = ctx.resumed.data if ctx.resumed else None
            if comment is not None:
                state = {
                    "text": f"{state['text']}, {comment}",
                    "revisions": state["revisions"] + 1,
                }
            if comment is not None or not ctx.resumed:
                ctx.interrupt({"draft": state["text"]}, state=state)
            return f"{state['text']} ({state['revisions']} revisions)"

    s = await play([call("draft", topic="birds"), "done"], define)
    for comment, shown in (("longer", "birds, longer"), ("kinder", "birds, longer, kinder")):
        await s.answer(restart={0: {"data": comment}})
        assert s.interrupts[0].metadata == {"draft": shown}
    await s.answer(restart={0: {}})
    assert s.results == ["birds, longer, kinder (2 revisions)"]


async def test_c93_code_can_replace_input_that_no_form_can_edit_and_it_is_validated(play):
    """``editable`` limits forms; code is limited only by the schema."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return f"did {n}"

    s = await play([call("act", n=1), "done"], define)
    assert s.interrupts[0].editable is False
    with pytest.raises(nb.errors.InvalidAnswer):
        await s.answer(restart={0: {"new_input": {"n": "many"}}})
    assert did == []
    await s.answer(restart={0: {"new_input": {"n": 2}}})
    assert (did, s.results[0].splitlines()[-1]) == ([2], "did 2")
