"""Agents as tools: the outer run has the inner questions, and finished calls are not repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import nbagent as nb
from tests.unit.core.family import Family, outer, wait_for_question

call = nb.ScriptedModel.call


async def test_c103_an_inner_interrupt_has_the_whole_path_and_finished_steps_are_not_repeated(play):
    """The inner agent's finished call stays done, and its answer is the outer call's result."""
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
async def test_c103_an_interrupt_at_any_depth_has_the_whole_path(play, depth):
    """The path names every agent on the way."""
    family = Family(call("transfer", amount=5), "all sent", depth=depth)
    s = await play(outer(), family, name="planner")
    middle = [f"level{n}" for n in range(depth - 1, 0, -1)]
    assert s.interrupts[0].path == ("planner", *middle, "banker", "transfer")
    await s.answer(restart={0: {}})
    assert family.log == [("transfer", 5.0, {"asked": 5.0})]
    assert s.results == [f"level {depth - 1} done"]


CHANGED = 'A person changed the arguments of this call to {"amount":2}.'


@pytest.mark.parametrize(
    ("answer", "told", "sent"),
    [
        ({"respond": {0: "by hand"}}, "by hand", []),
        ({"restart": {0: {}}}, "sent 5.0", [5.0]),
        ({"restart": {0: {"new_input": {"amount": 2}}}}, f"{CHANGED}\nsent 2.0", [2.0]),
        ({"reject": {0: "too much"}}, "too much", []),
    ],
    ids=["respond", "restart", "new input", "reject"],
)
async def test_c103_c120_a_run_is_answered_three_agents_deep(play, answer, told, sent):
    """Finished inner calls are not repeated; a rejection reaches the innermost model."""
    script = [[call("look", n=1)], [call("transfer", amount=5), call("look", n=2)], "inner done"]
    family = Family(*script, depth=2)
    s = await play(outer(), family)
    await s.answer(**answer)
    first = family.model.requests[-1].messages[-1]["content"][0]
    assert told in first["output"]
    assert sorted(entry[1] for entry in family.log) == sorted([1, 2, *sent])
    assert (s.results, len(family.model.requests)) == (["level 1 done"], 3)


async def test_being_resumed_never_leaks_into_a_nested_call(play):
    """Approving a call of an agent approves none of that agent's own calls."""
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
    """Two inner questions, one outer call: each answer counts alone, and nothing runs twice."""
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


async def test_an_early_inner_answer_is_accepted_while_siblings_still_run():
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
    await wait_for_question(run)
    assert run.status == "running"
    run.respond(run.interrupts[0], "b")
    assert run.interrupts == []
    go.set()
    assert (await run).text == "done"


async def test_middleware_that_swallows_a_nested_pause_creates_no_result(play):
    """Middleware cannot undo a pause of an inner agent."""

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


async def test_middleware_can_pause_a_started_agent(play):
    """The middleware's question comes before the next inner one; both must be answered."""
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


async def test_c65_inner_questions_continue_in_another_process(play):
    """The messages carry the questions, answers, steps and approvals of an inner agent."""
    did: list[Any] = []

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner")

        @inner.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return f"did {n}"

        @inner.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            await ctx.step("reserve", lambda: did.append("reserved"))
            return await ctx.ask("first?") + await ctx.ask("second?")

        agent.add(inner.as_tool())

    model = nb.ScriptedModel([[call("act", n=1), call("wizard")], "inner done"])
    s = await play([call("inner", prompt="p"), "done"], define)
    assert [i.path[-1] for i in s.interrupts] == ["act", "wizard"]
    await s.answer(restart={0: {"new_input": {"n": 7}}}, respond={1: "a"})
    await s.answer(respond={0: "b"})
    told = [part["output"] for part in model.requests[-1].messages[-1]["content"]]
    assert told == ['A person changed the arguments of this call to {"n":7}.\ndid 7', "ab"]
    assert (did, s.results) == (["reserved", 7], ["inner done"])
