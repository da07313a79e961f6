"""Agents as tools: failures, budgets, cancels and events at every depth."""

from __future__ import annotations

import asyncio
import json

import pytest

import nbagent as nb
from nbagent.core.base.events import ToolFinished, dump, parse
from nbagent.core.base.model import Usage
from nbagent.core.run.run import session_of
from nbagent.core.state.fold import apply
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import RunState
from tests.unit.core.family import Family, outer, wait_for_question

call = nb.ScriptedModel.call


async def test_an_inner_failure_is_the_result_of_the_call_or_fails_the_run(play):
    """As for any other tool."""
    family = Family(RuntimeError("model is down"))
    s = await play(outer(), family)
    assert "model is down" in s.results[0]
    with pytest.raises(nb.errors.RunError, match="model is down"):
        await play(outer(), Family(RuntimeError("model is down")), on_tool_error="raise")


async def test_a_failed_inner_run_is_retried_from_its_last_good_state(play):
    """``Retry`` around an agent does not repeat what the agent had done."""
    family = Family(call("look", n=1), RuntimeError("model is down"), call("look", n=2), "at last")
    s = await play(outer(), family, middleware=[nb.Retry(2)])
    assert s.results == ["at last"]
    assert family.log == [("look", 1), ("look", 2)]


async def test_run_retry_continues_inside():
    """``run.retry()`` keeps the inner agent's finished steps too."""
    family = Family(call("look", n=1), RuntimeError("model is down"), "at last")
    agent = nb.Agent(nb.ScriptedModel(outer()), on_tool_error="raise")
    family(agent)
    run = agent.run("go")
    with pytest.raises(nb.errors.RunError, match="model is down"):
        await run
    assert (await run.retry()).text == "done"
    assert family.log == [("look", 1)]


async def test_the_outer_budget_counts_usage_of_inner_agents():
    """Inner tokens are outer tokens, and no inner agent continues past the outer limit."""
    family = Family(*(call("look", n=n) for n in range(50)))
    agent = nb.Agent(
        nb.ScriptedModel(outer(), usage=Usage(10, 1)), budget=nb.Budget(tokens=50), name="outer"
    )
    family(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (i.kind, i.path) == ("budget", ("outer",))
    assert run.usage.total_tokens == 55
    assert run.status == "interrupted"
    run.respond(i, 20)
    await run.settled()
    assert run.usage.total_tokens == 77
    run.reject(run.interrupts[0])
    with pytest.raises(nb.errors.BudgetExceeded, match="tokens"):
        await run
    assert len(family.log) == len(set(family.log))


async def test_the_outer_budget_stops_inner_agents_step_by_step_without_losing_them():
    """With a larger budget, the error's messages continue the inner run."""
    family = Family(call("look", n=1), call("look", n=2), call("look", n=3), "in")
    agent = nb.Agent(nb.ScriptedModel(outer(), usage=Usage(10, 1)), budget=nb.Budget(tokens=30))
    family(agent)
    with pytest.raises(nb.errors.BudgetExceeded, match="tokens") as caught:
        await agent.generate("go")
    assert family.log == [("look", 1), ("look", 2)]
    messages = json.loads(json.dumps(caught.value.messages))
    agent.budget = nb.Budget(tokens=1000)
    done = await agent.generate(messages=messages)
    assert (done.text, family.log) == ("done", [("look", 1), ("look", 2), ("look", 3)])
    assert done.usage.total_tokens == 66


async def test_a_question_about_the_inner_turn_limit_has_its_path():
    """The answer lets the inner agent continue, in the run or from the run's messages."""
    family = Family(
        *(call("look", n=n) for n in range(3)), "in", call("look", n=3), "in", max_turns=2
    )
    agent = nb.Agent(nb.ScriptedModel([*outer(), "done"]), name="outer")
    family(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (i.kind, i.path) == ("budget", ("outer", "banker"))
    saved = json.loads(json.dumps(run.messages))
    assert agent.interrupts(saved) == [i]
    run.respond(i, 10)
    assert (await run).text == "done"
    replies = [nb.tool_response(agent.interrupts(saved)[0], 10)]
    branch = await agent.generate(messages=saved, tool_responses=replies)
    assert (branch.text, [n for _, n in family.log]) == ("done", [0, 1, 2, 3])


async def test_an_inner_turn_limit_counts_across_pauses(play):
    """Step by step, the outer model gets an error; live, a person is asked."""
    family = Family(call("look", n=1), call("transfer", amount=5), "never said", max_turns=2)
    s = await play(outer(), family)
    await s.answer(restart={0: {}})
    if s.live:
        assert [(i.kind, i.path) for i in s.interrupts] == [("budget", ("agent", "banker"))]
    else:
        assert "2 turns" in s.results[0]
    assert len(family.model.requests) == 2


async def test_cancel_reaches_all_inner_runs(short_grace):
    """Inner bodies are stopped, and inner questions are closed."""
    stopped: list[str] = []
    started = asyncio.Event()
    inner = nb.Agent(nb.ScriptedModel([[call("slow"), call("asks")]]), name="inner")

    @inner.tool
    async def slow() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("slow")
        return "slow"

    @inner.tool
    async def asks(ctx: nb.ToolContext) -> str:
        try:
            return await ctx.ask("well?")
        finally:
            stopped.append("asks")

    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="p")]), tools=[inner.as_tool()])
    run = agent.run("go")
    await started.wait()
    await wait_for_question(run)
    await run.cancel()
    assert (run.status, sorted(stopped), run.interrupts) == ("cancelled", ["asks", "slow"], [])
    with pytest.raises(nb.errors.Cancelled):
        await run


async def test_events_of_inner_runs_carry_their_scope_and_replay():
    """One journal has all events, and its JSON folds to the same state."""
    family = Family([call("look", n=1), call("transfer", amount=5)], "all sent", depth=3)
    agent = nb.Agent(nb.ScriptedModel(outer()))
    family(agent)
    run = await agent.run("go").settled()
    state = RunState()
    for event in run.journal:
        state = apply(state, parse(dump(event)))
    assert (state.status, state.open) == (run.status, session_of(run).state.open)
    assert (paused_messages(state), state.usage) == (run.messages, run.usage)
    depths = {len(e.scope) for e in run.journal if e.type == "model_responded"}
    assert depths == {0, 1, 2, 3}
    assert next(e.scope for e in run.journal if e.type == "interrupted")[0] == "call_1"


async def test_an_inner_agent_can_have_a_typed_output(play):
    """The outer model gets the output as JSON."""

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(nb.ScriptedModel(["[1, 2]"]), name="inner", output_type=list[int])
        agent.add(inner.as_tool(description="numbers"))

    s = await play([call("inner", prompt="p"), "done"], define)
    assert s.results == [[1, 2]]


async def test_an_agent_call_that_another_process_settled_fails_nothing():
    """P2: the driver in this process stops; the call has the other process's result."""
    inner = nb.Agent(nb.ScriptedModel([call("asks")]), name="inner")

    @inner.tool
    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("well?", reply=str)

    agent = nb.Agent(
        nb.ScriptedModel([call("inner", prompt="p"), "done"]),
        tools=[inner.as_tool()],
        on_tool_error="raise",
    )
    store = nb.MemoryStore()
    run = await agent.run("go", store=store, attended=True, show=False).settled()
    (outermost,) = [e.call_id for e in run.journal if e.type == "tool_started" and not e.scope]
    settled = ToolFinished(at=1.0, call_id=outermost, output="elsewhere")
    store.append(run.id, [settled], len(run.journal))
    assert (await run).text == "done"
    assert run.calls["inner"][0].output == "elsewhere"
