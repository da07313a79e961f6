"""Agents as tools: what is asked inside surfaces outside, and what was done is not repeated."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

import nbagent as nb
from nbagent.core import drive as drive_module
from nbagent.core.events import dump, parse
from nbagent.core.model import Usage
from nbagent.core.state import RunState, apply

call = nb.ScriptedModel.call


class Family:
    """planner ▸ banker ▸ transfer, with a log; the inner models are kept over fresh agents."""

    def __init__(self, *inner: Any, depth: int = 1, **options: Any) -> None:
        self.log: list[Any] = []
        self.seen: list[Any] = []
        self.model = nb.ScriptedModel(inner, usage=Usage(10, 1))
        self.middles = [
            nb.ScriptedModel(
                [call("banker" if n == 1 else f"level{n - 1}", prompt="p"), f"level {n} done"]
            )
            for n in range(1, depth)
        ]
        self.options = options

    def __call__(self, agent: nb.Agent) -> None:
        """Give the outer agent its inner one, and a plain tool."""
        banker = nb.Agent(self.model, name="banker", **self.options)
        banker.add(nb.interrupt_tool("ask", output=str))

        @banker.tool
        def look(n: int = 0) -> str:
            self.log.append(("look", n))
            return f"looked {n}"

        @banker.tool
        async def transfer(amount: float, ctx: nb.ToolContext) -> str:
            self.seen.append(ctx.resumed)
            if not ctx.resumed:
                ctx.interrupt({"amount": amount}, state={"asked": amount})
            self.log.append(("transfer", amount, ctx.state))
            return f"sent {amount}"

        inner = banker
        for n, model in enumerate(self.middles, 1):
            above = nb.Agent(model, name=f"level{n}")
            above.add(inner.as_tool())
            inner = above
        agent.add(inner.as_tool(name="helper"))

        @agent.tool
        def plain(n: int = 0) -> str:
            self.log.append(("plain", n))
            return f"plain {n}"


async def asked(run: nb.Run) -> None:
    """Wait until something is asked, whatever else still runs."""
    async for event in run.events():
        if getattr(event, "type", "") == "interrupted":
            return


def outer(*steps: Any) -> list[Any]:
    """The outer model's script: it calls the helper, then says done."""
    return [*(steps or (call("helper", prompt="move money"),)), "done"]


async def test_c103_one_interrupt_with_the_whole_path_and_finished_steps_are_not_repeated(play):
    """What the inner agent did before stays done, and its answer is the call's result."""
    family = Family([call("look", n=1)], call("transfer", amount=5), "all sent")
    s = await play(outer(), family, name="planner")
    (i,) = s.interrupts
    assert i.path == ("planner", "banker", "transfer")
    assert (i.metadata, i.state, i.input) == ({"amount": 5.0}, {"asked": 5.0}, {"amount": 5})
    assert family.log == [("look", 1)]
    await s.answer(restart={0: {}})
    assert family.log == [("look", 1), ("transfer", 5.0, {"asked": 5.0})]
    assert (s.results, s.text) == (["all sent"], "done")
    assert len(family.model.requests) == 3


@pytest.mark.parametrize("depth", [2, 4])
async def test_c103_at_any_depth(play, depth):
    """The path names every agent on the way."""
    family = Family(call("transfer", amount=5), "all sent", depth=depth)
    s = await play(outer(), family, name="planner")
    middle = [f"level{n}" for n in range(depth - 1, 0, -1)]
    assert s.interrupts[0].path == ("planner", *middle, "banker", "transfer")
    await s.answer(restart={0: {}})
    assert family.log == [("transfer", 5.0, {"asked": 5.0})]
    assert s.results == [f"level {depth - 1} done"]


async def test_c120_a_rejection_reaches_the_inner_model(play):
    """With its reason, as that call's result; the body never runs."""
    family = Family(call("transfer", amount=5), "understood")
    s = await play(outer(), family)
    await s.answer(reject={0: "too much"})
    last = family.model.requests[-1].messages[-1]["content"][0]
    assert "too much" in last["output"]
    assert (family.log, s.results) == ([], ["understood"])


async def test_an_edit_reaches_the_inner_model_and_the_body(play):
    """It is told what a person changed."""
    family = Family(call("transfer", amount=5), "ok")
    s = await play(outer(), family)
    await s.answer(restart={0: {"new_input": {"amount": 2}}})
    assert family.log == [("transfer", 2.0, {"asked": 5.0})]
    told = family.model.requests[-1].messages[-1]["content"][0]["output"]
    assert told.startswith('A person changed the arguments of this call to {"amount":2}.')


async def test_an_answer_in_the_inner_tools_place_is_that_tools_result(play):
    """The inner model gets it, and the outer one only the inner answer."""
    family = Family(call("ask"), "they said b")
    s = await play(outer(), family)
    await s.answer(respond={0: "b"})
    assert family.model.requests[-1].messages[-1]["content"][0]["output"] == "b"
    assert s.results == ["they said b"]


async def test_being_resumed_never_leaks_into_a_nested_call(play):
    """An approved agent's own tools are not approved by that."""
    family = Family(call("transfer", amount=5), call("transfer", amount=6), "ok")
    s = await play(outer(), family, policy=[nb.review("helper")])
    assert [i.kind for i in s.interrupts] == ["approval"]
    await s.answer(restart={0: {"data": "for the outer one"}})
    assert [(i.tool_name, i.kind) for i in s.interrupts] == [("transfer", "tool")]
    assert (family.seen, family.log) == ([None], [])
    await s.answer(restart={0: {}})
    assert [i.input for i in s.interrupts] == [{"amount": 6}]
    assert family.seen[-1] is None


async def test_inner_parallel_calls_are_answered_one_by_one_in_call_order(play):
    """Two inside, one outside; each answer counts on its own, and nothing runs twice."""
    family = Family(
        [call("transfer", amount=1), call("look", n=1), call("transfer", amount=2)], "both sent"
    )
    s = await play(outer([call("helper", prompt="p"), call("plain", n=7)]), family)
    assert [i.input["amount"] for i in s.interrupts] == [1, 2]
    await s.answer(restart={1: {}})
    assert [i.input["amount"] for i in s.interrupts] == [1]
    assert len(family.model.requests) == 1
    await s.answer(restart={0: {}})
    assert sorted(map(str, family.log)) == sorted(
        map(
            str,
            [
                ("look", 1),
                ("plain", 7),
                ("transfer", 2.0, {"asked": 2.0}),
                ("transfer", 1.0, {"asked": 1.0}),
            ],
        )
    )
    results = family.model.requests[-1].messages[-1]["content"]
    assert [r["output"] for r in results] == ["sent 1.0", "looked 1", "sent 2.0"]
    assert s.results == ["both sent", "plain 7"]


async def test_an_early_answer_inside_is_taken_while_siblings_still_run():
    """An inner question is answerable the moment it is asked."""
    go = asyncio.Event()
    inner = nb.Agent(nb.ScriptedModel([[call("ask"), call("slow")], "in"]), name="inner")
    inner.add(nb.interrupt_tool("ask", output=str))

    @inner.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="p"), "done"]), tools=[inner.as_tool()])
    run = agent.run("go")
    await asked(run)
    assert run.status == "running"
    run.respond(run.interrupts[0], "b")
    assert run.interrupts == []
    go.set()
    assert (await run).text == "done"


async def test_two_inner_agents_at_once_keep_apart():
    """Same ids, same tools: an answer for one is not one for the other."""
    log: list[Any] = []
    models = [nb.ScriptedModel([call("act", "same", n=n), f"agent {n}"]) for n in (1, 2)]
    agent = nb.Agent(nb.ScriptedModel([[call("a1", prompt="p"), call("a2", prompt="p")], "done"]))
    for n, model in enumerate(models, 1):
        inner = nb.Agent(model, name=f"a{n}")

        @inner.tool(approval=True)
        def act(n: int) -> str:
            log.append(n)
            return f"did {n}"

        agent.add(inner.as_tool())
    run = await agent.run("go").settled()
    first, second = run.interrupts
    assert [i.path for i in run.interrupts] == [("agent", "a1", "act"), ("agent", "a2", "act")]
    run.restart(second)
    await run.settled()
    assert log == [2]
    run.reject(first)
    await run
    assert (log, [run.calls[f"a{n}"][0].output for n in (1, 2)]) == ([2], ["agent 1", "agent 2"])


async def test_inner_failures_are_that_calls_result_or_fail_the_run(play):
    """As for any other tool."""
    family = Family(RuntimeError("model is down"))
    s = await play(outer(), family)
    assert "model is down" in s.results[0]
    with pytest.raises(nb.RunError, match="model is down"):
        await play(outer(), Family(RuntimeError("model is down")), on_tool_error="raise")


async def test_a_failed_inner_run_is_tried_again_from_its_last_good_state(play):
    """``Retry`` around an agent does not repeat what the agent had done."""
    family = Family(call("look", n=1), RuntimeError("model is down"), call("look", n=2), "at last")
    s = await play(outer(), family, middleware=[nb.Retry(2)])
    assert s.results == ["at last"]
    assert family.log == [("look", 1), ("look", 2)]


async def test_run_retry_goes_on_inside():
    """The inner agent's finished steps are kept by ``run.retry()`` too."""
    family = Family(call("look", n=1), RuntimeError("model is down"), "at last")
    agent = nb.Agent(nb.ScriptedModel(outer()), on_tool_error="raise")
    family(agent)
    run = agent.run("go")
    with pytest.raises(nb.RunError, match="model is down"):
        await run
    assert (await run.retry()).text == "done"
    assert family.log == [("look", 1)]


async def test_partial_answers_of_nested_interrupts_step_by_step():
    """What is left inside is no unknown tool."""
    family = Family([call("ask"), call("ask")], "in")
    agent = nb.Agent(nb.ScriptedModel(outer()))
    family(agent)
    paused = await agent.generate("go")
    one, two = paused.interrupts
    with pytest.raises(nb.PendingInterrupts, match=two.id):
        await agent.generate(messages=paused.messages, tool_responses=[nb.tool_response(one, "a")])
    half = await agent.generate(
        messages=paused.messages, tool_responses=[nb.tool_response(one, "a")], partial=True
    )
    done = await agent.generate(messages=half.messages, tool_responses=[nb.tool_response(two, "b")])
    assert done.text == "done"


async def test_nested_asks_go_on_at_their_line_or_from_the_start(play):
    """Live and through JSON the same, with the inner agent's locals or its earlier answers."""
    entered: list[int] = []

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner")

        @inner.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            entered.append(1)
            first = await ctx.ask("first?")
            second = await ctx.ask("second?")
            return f"{first} {second}"

        agent.add(inner.as_tool())

    model = nb.ScriptedModel([call("wizard"), "in"])
    s = await play([call("inner", prompt="p"), "done"], define)
    assert s.interrupts[0].path == ("agent", "inner", "wizard")
    await s.answer(respond={0: "a"})
    assert s.interrupts[0].metadata == {"message": "second?"}
    await s.answer(respond={0: "b"})
    assert model.requests[-1].messages[-1]["content"][0]["output"] == "a b"
    assert s.results == ["in"]


async def test_the_outer_budget_counts_what_inner_agents_use():
    """Inner tokens are outer tokens, and nobody inside can go past the outer limit."""
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
    with pytest.raises(nb.BudgetExceeded, match="tokens"):
        await run
    assert len(family.log) == len(set(family.log))


async def test_the_outer_budget_stops_inner_agents_step_by_step_without_losing_them():
    """The error's messages go on inside, where the budget allows it."""
    family = Family(call("look", n=1), call("look", n=2), call("look", n=3), "in")
    agent = nb.Agent(nb.ScriptedModel(outer(), usage=Usage(10, 1)), budget=nb.Budget(tokens=30))
    family(agent)
    with pytest.raises(nb.BudgetExceeded, match="tokens") as caught:
        await agent.generate("go")
    assert family.log == [("look", 1), ("look", 2)]
    messages = json.loads(json.dumps(caught.value.messages))
    agent.budget = nb.Budget(tokens=1000)
    done = await agent.generate(messages=messages)
    assert (done.text, family.log) == ("done", [("look", 1), ("look", 2), ("look", 3)])
    assert done.usage.total_tokens == 66


async def test_the_inner_turn_limit_is_asked_about_with_its_path():
    """It is the inner agent that may go on."""
    family = Family(*(call("look", n=n) for n in range(4)), "in", max_turns=2)
    agent = nb.Agent(nb.ScriptedModel(outer()), name="outer")
    family(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (i.kind, i.path) == ("budget", ("outer", "banker"))
    run.respond(i, 10)
    assert (await run).text == "done"


async def test_cancel_goes_down_the_tree(monkeypatch):
    """Inner bodies are stopped, inner asks end, and nothing inside goes on."""
    monkeypatch.setattr(drive_module, "GRACE", 0.3)
    stopped: list[str] = []
    started = asyncio.Event()
    inner = nb.Agent(nb.ScriptedModel([[call("slow"), call("asks")]]), name="inner")

    @inner.tool
    async def slow() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
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
    await asked(run)
    await run.cancel()
    assert (run.status, sorted(stopped), run.interrupts) == ("cancelled", ["asks", "slow"], [])
    with pytest.raises(nb.Cancelled):
        await run


async def test_events_of_inner_runs_carry_their_scope_and_replay():
    """One journal holds all; its JSON gives the same state."""
    family = Family([call("look", n=1), call("transfer", amount=5)], "all sent", depth=3)
    agent = nb.Agent(nb.ScriptedModel(outer()))
    family(agent)
    run = await agent.run("go").settled()
    state = RunState()
    for event in run.journal:
        state = apply(state, parse(dump(event)))
    assert state == run._journal.state
    depths = {len(e.scope) for e in run.journal if e.type == "model_responded"}
    assert depths == {0, 1, 2, 3}
    assert next(e.scope for e in run.journal if e.type == "interrupted")[0] == "call_1"


async def test_middleware_that_swallows_a_nested_pause_makes_no_result_of_it(play):
    """A pause inside is as sticky as one's own."""

    async def swallow(c: nb.ToolCall, nxt: Any) -> Any:
        try:
            return await nxt(c)
        except BaseException:
            return "all went well"

    family = Family(call("transfer", amount=5), "all sent")
    s = await play(outer(), family, middleware=[swallow])
    assert [i.tool_name for i in s.interrupts] == ["transfer"]
    await s.answer(restart={0: {}})
    assert s.results == ["all sent"]


async def test_middleware_may_pause_an_agent_that_has_begun(play):
    """Both its own question and the inner one are there, and both must be answered."""
    passes: list[int] = []

    async def sometimes(c: nb.ToolCall, nxt: Any) -> Any:
        passes.append(1)
        if len(passes) == 2:
            c.interrupt({"why": "rate limit"})
        return await nxt(c)

    family = Family(call("transfer", amount=5), call("transfer", amount=6), "all sent")
    s = await play(outer(), family, middleware=[sometimes])
    await s.answer(restart={0: {}})
    assert [(i.tool_name, i.metadata) for i in s.interrupts] == [("helper", {"why": "rate limit"})]
    assert s.status == "interrupted"
    await s.answer(restart={0: {}})
    assert [i.input for i in s.interrupts] == [{"amount": 6}]
    await s.answer(restart={0: {}})
    assert s.results == ["all sent"]
    assert [entry[1] for entry in family.log] == [5.0, 6.0]


async def test_headless_answers_reach_inner_questions():
    """By the inner tool's name."""
    family = Family(call("transfer", amount=5), "all sent")
    agent = nb.Agent(nb.ScriptedModel(outer()))
    family(agent)
    assert (await agent.run("go", answers={"transfer": True})).text == "done"
    assert family.log == [("transfer", 5.0, {"asked": 5.0})]


async def test_an_inner_agent_may_have_a_typed_output(play):
    """It is JSON for the outer model."""

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(nb.ScriptedModel(["[1, 2]"]), name="inner", output_type=list[int])
        agent.add(inner.as_tool(description="numbers"))

    s = await play([call("inner", prompt="p"), "done"], define)
    assert s.results == [[1, 2]]


FRESH = """
import asyncio, json, sys
import nbagent as nb

call = nb.ScriptedModel.call
done = []
inner = nb.Agent(nb.ScriptedModel(["inner done"]), name="inner")

@inner.tool(approval=True)
def act(n: int) -> str:
    done.append(n)
    return f"did {n}"

@inner.tool
async def wizard(ctx: nb.ToolContext) -> str:
    await ctx.step("reserve", lambda: done.append("reserved"))
    return await ctx.ask("first?") + await ctx.ask("second?")

agent = nb.Agent(nb.ScriptedModel(["the end"]), name="outer", tools=[inner.as_tool()])

async def main():
    messages = json.load(sys.stdin)
    answers = iter(["a", "b"])
    while found := agent.interrupts(messages):
        response = await agent.generate(
            messages=messages,
            tool_responses=[i.respond(next(answers)) for i in found if i.kind == "ask"],
            tool_restarts=[i.restart(new_input={"n": 7}) for i in found if i.kind == "approval"],
        )
        messages = json.loads(json.dumps(response.messages))
    print(json.dumps([response.text, done, [list(i.path) for i in found], messages]))

asyncio.run(main())
"""


async def test_c65_what_waits_inside_goes_on_in_another_process():
    """Questions, answers, steps and approvals of an inner agent ride in the messages."""
    inner = nb.Agent(nb.ScriptedModel([[call("act", n=1), call("wizard")]]), name="inner")

    @inner.tool(approval=True)
    def act(n: int) -> str:
        return "never here"

    @inner.tool
    async def wizard(ctx: nb.ToolContext) -> str:
        await ctx.step("reserve", lambda: "reserved here")
        return await ctx.ask("first?") + await ctx.ask("second?")

    agent = nb.Agent(
        nb.ScriptedModel([call("inner", prompt="p")]), name="outer", tools=[inner.as_tool()]
    )
    paused = await agent.generate("go")
    assert [i.path[-1] for i in paused.interrupts] == ["act", "wizard"]
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FRESH],
        input=json.dumps(paused.messages),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    text, done, _, messages = json.loads(ran.stdout)
    assert (text, done) == ("the end", [7])
    assert messages[2]["content"][0]["output"] == "inner done"
