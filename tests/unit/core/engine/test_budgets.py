"""Budgets of turns, tokens, cost and time: over the whole run, its pauses and its inner runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Discarded, Finished, Usage
from nbagent.notebook.view.questions import Question
from tests.unit.core.clock import Clock

call = nb.ScriptedModel.call


def loops(*, pausing: bool = False, **budget: Any) -> nb.Agent:
    """An agent whose model calls a tool each turn: 10 + 1 tokens and 1 cent a response."""
    model = nb.ScriptedModel(lambda _m: call("work"), usage=Usage(10, 1, 0.01))
    agent = nb.Agent(model, budget=nb.Budget(**budget), max_turns=1000)

    @agent.tool
    def work(ctx: nb.ToolContext) -> str:
        if pausing and not ctx.resumed:
            ctx.interrupt()
        return "worked"

    return agent


BUDGETS = [({"tokens": 25}, "tokens", 3, 22, 2), ({"cost": 0.025}, "cost", 3, 0.02, 2)]


@pytest.mark.parametrize(("budget", "name", "turns", "more", "extra"), BUDGETS)
async def test_c689_p10_live_a_person_is_asked_whether_to_continue(
    budget, name, turns, more, extra
):
    """The answer is the additional amount; other answers are refused; a rejection fails the run."""
    agent = loops(**budget)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (i.kind, i.call_id, i.restartable) == ("budget", "", False)
    assert run.journal[-1].budget == name
    question = Question.of(run.journal[-1])
    assert question.title.endswith(". So far: 33 tokens, $0.03.")
    assert (question.named, run.journal[-1].prefill) == (
        f"More {name}",
        budget[name] // 2 or budget[name] / 2,
    )
    assert len(agent.model.requests) == turns
    for wrong in (0, -1, "3", None, True, [], 1.5 if name == "tokens" else "x"):
        with pytest.raises(nb.errors.InvalidAnswer):
            run.respond(i, wrong)
    run.respond(i, more)
    await run.settled()
    assert len(agent.model.requests) == turns + extra
    run.reject(run.interrupts[0])
    with pytest.raises(nb.errors.BudgetExceeded, match=name) as caught:
        await run
    assert caught.value.messages == run.messages
    assert run.status == "failed"
    await run.retry().settled()
    assert [i.kind for i in run.interrupts] == ["budget"], "a retry asks again"


@pytest.mark.parametrize("through_json", [True, False])
async def test_p10_a_budget_counts_across_five_pauses_step_by_step(through_json):
    """Usage before a pause counts after the pause, in another process too."""
    agent = loops(pausing=True, tokens=50)
    response = await agent.generate("go")
    for _ in range(4):
        messages = json.loads(json.dumps(response.messages)) if through_json else response.messages
        found = agent.interrupts(messages)
        response = await agent.generate(
            messages=messages, tool_restarts=[nb.tool_restart(i) for i in found]
        )
    assert response.usage.total_tokens == 55
    with pytest.raises(nb.errors.BudgetExceeded, match="tokens"):
        await agent.generate(
            messages=response.messages,
            tool_restarts=[nb.tool_restart(i) for i in response.interrupts],
        )
    assert len(agent.model.requests) == 5


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("budget", [{"tokens": 25}, {"cost": 0.025}])
async def test_p10_an_unusable_answer_is_not_asked_for_again_past_the_budget(budget, inner):
    """Its usage counts, also if no usable answer follows; a person is asked as before any other request."""
    used = Usage(20, 6, 0.026)
    good = ["good", Finished(usage=Usage(1, 1, 0.001))]
    model = nb.ScriptedModel([[Discarded("it is empty", used), "not asked for"], good])
    agent = nb.Agent(model, budget=nb.Budget(**budget), name="asked")
    if inner:
        outer = nb.ScriptedModel([call("asked", prompt="go"), "good"], usage=Usage(0, 0, 0.0))
        agent.budget = nb.Budget()
        agent = nb.Agent(outer, tools=[agent.as_tool()], budget=nb.Budget(**budget))
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (i.kind, len(model.requests)) == ("budget", 1)
    run.respond(i, 100)
    assert (await run).text == "good"
    assert (run.usage.input_tokens, round(run.usage.known_cost, 6)) == (21, 0.027)


async def test_p10_the_usage_of_an_answer_that_fails_the_run_counts():
    """A retry finds it in the journal."""
    error = nb.errors.ModelError("gave no answer, also when it was asked again")
    error.usage = Usage(5, 2, 0.01)
    model = nb.ScriptedModel([[Discarded("it is empty", Usage(20, 6, 0.02)), error]])
    run = await nb.Agent(model, budget=nb.Budget(tokens=30)).run("go").settled()
    assert (run.status, run.usage.total_tokens, run.usage.cost) == ("failed", 33, 0.03)
    await run.retry().settled()
    assert [i.kind for i in run.interrupts] == ["budget"]


async def test_p10_a_budget_counts_across_five_pauses_live():
    agent = loops(pausing=True, tokens=50)
    run = await agent.run("go").settled()
    for _ in range(5):
        run.restart(run.interrupts[0])
        await run.settled()
    assert [i.kind for i in run.interrupts] == ["budget"]
    assert len(agent.model.requests) == 5


async def test_p10_time_counts_work_and_not_waiting():
    """A night between question and answer costs nothing; also after a slow sibling has ended."""
    clock = Clock()
    model = nb.ScriptedModel([[call("gate"), call("slow")], call("slow"), call("slow"), "never"])
    agent = nb.Agent(model, budget=nb.Budget(seconds=25))

    @agent.tool
    async def slow() -> str:
        clock.now += 10
        return "slow"

    @agent.tool
    async def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        return "ok"

    run = clock.on(agent).run("go")
    await run.settled()
    clock.now += 60 * 60 * 12
    run.restart(run.interrupts[0])
    await run.settled()
    assert run.journal[-1].budget == "seconds"
    assert len(model.requests) == 3
    clock.now += 60 * 60 * 12
    run.respond(run.interrupts[0], 100.5)
    assert (await run).text == "never"


async def test_p10_time_before_a_failure_counts_after_a_retry_and_time_between_does_not():
    """A failed run uses no time until its retry."""
    clock = Clock()
    model = nb.ScriptedModel([call("slow"), RuntimeError("down"), "done"])
    agent = nb.Agent(model, budget=nb.Budget(seconds=15))

    @agent.tool
    async def slow() -> str:
        clock.now += 10
        return "slow"

    run = clock.on(agent).run("go")
    with pytest.raises(nb.errors.ModelError):
        await run
    clock.now += 60 * 60 * 12
    assert (await run.retry()).text == "done"


async def test_time_is_counted_step_by_step_across_pauses():
    """The messages carry the time used."""
    agent = loops(pausing=True, seconds=30)
    response = await agent.generate("go")
    last = json.loads(json.dumps(response.messages))
    run = last[-1]["content"][0]["nbagent"]["run"]
    assert run["seconds"] >= 0
    run["seconds"] = 31.0
    with pytest.raises(nb.errors.BudgetExceeded, match="time"):
        await agent.generate(
            messages=last, tool_restarts=[nb.tool_restart(i) for i in agent.interrupts(last)]
        )


async def test_p10_declining_ends_the_run_while_a_body_of_an_inner_agent_asks():
    """The body is stopped; nobody has to answer its question first."""

    def inner_says(messages: Any) -> Any:
        started = messages[0]["content"][0]["text"]
        return call("asks") if started == "ask" else call("work")

    inner = nb.Agent(nb.ScriptedModel(inner_says, usage=Usage(5, 5)), name="inner")

    @inner.tool
    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("well?")

    @inner.tool
    def work() -> str:
        return "worked"

    first = [call("inner", prompt=what) for what in ("ask", "work")]
    middle = nb.Agent(nb.ScriptedModel([first]), name="middle", tools=[inner.as_tool()])
    model = nb.ScriptedModel([call("middle", prompt="p")])
    agent = nb.Agent(model, tools=[middle.as_tool()], budget=nb.Budget(tokens=40))
    run = await agent.run("go").settled()
    (budget,) = [i for i in run.interrupts if i.kind == "budget"]
    run.reject(budget)
    with pytest.raises(nb.errors.BudgetExceeded, match="tokens"):
        await asyncio.wait_for(run, 10)
    assert run.status == "failed"


async def test_p10_a_run_is_not_settled_while_an_inner_body_runs_past_the_budget():
    """The budget question is open at once; awaiting the run raises after the body has ended."""
    go = asyncio.Event()

    def inner_says(messages: Any) -> Any:
        started = messages[0]["content"][0]["text"]
        return "inner done" if messages[-1]["role"] == "tool" else call(started)

    inner = nb.Agent(nb.ScriptedModel(inner_says, usage=Usage(5, 5)), name="inner")

    @inner.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    @inner.tool
    def work() -> str:
        return "worked"

    first = [call("inner", prompt=what) for what in ("slow", "work")]
    model = nb.ScriptedModel([first, "done"], usage=Usage(1, 0))
    agent = nb.Agent(model, tools=[inner.as_tool()], budget=nb.Budget(tokens=20))
    run = agent.run("go")
    while not run.interrupts:  # noqa: ASYNC110 - events() would do, at more length
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert run.status == "running"
    go.set()
    with pytest.raises(nb.HumanInputRequired):
        await asyncio.wait_for(run, 10)
    run.respond(run.interrupts[0], 1000)
    assert (await run).text == "done"


async def test_turns_tokens_and_cost_are_separate_budgets():
    """More of one budget is not more of another."""
    agent = loops(tokens=25)
    agent.max_turns = 2
    run = await agent.run("go").settled()
    kinds = []
    for more in (100, 100):
        kinds.append(run.journal[-1].budget or "turns")
        run.respond(run.interrupts[0], more)
        await run.settled()
    assert kinds == ["turns", "tokens"]
    await run.cancel()


async def test_a_new_message_starts_a_new_count():
    """A conversation can continue without end."""
    model = nb.ScriptedModel(["one", "two"], usage=Usage(10, 1))
    agent = nb.Agent(model, budget=nb.Budget(tokens=15))
    first = await agent.generate("a")
    assert (await agent.generate("b", messages=first.messages)).text == "two"


async def test_a_malformed_usage_record_is_refused():
    """No model call on a history that was tampered with."""
    agent = loops(pausing=True, tokens=50)
    last = json.loads(json.dumps((await agent.generate("go")).messages))
    last[-1]["content"][0]["nbagent"]["run"]["usage"] = ["many", None]
    with pytest.raises(nb.NbagentError):
        agent.interrupts(last)
