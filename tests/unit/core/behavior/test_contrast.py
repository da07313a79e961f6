"""Mistakes that nbagent does not make."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.interrupts import Resumed

call = nb.ScriptedModel.call


async def test_contrast_a_rejected_call_cannot_be_run_by_middleware_that_keeps_the_tool(keeping):
    """Hostile middleware that keeps ``next`` and jumps to the tool runs nothing."""
    kept: list[Any] = []

    async def keep(c: nb.ToolCall, nxt: Any) -> Any:
        kept.append((nxt, c))
        return await nxt(c)

    agent = nb.Agent(
        nb.ScriptedModel([call("gate", n=1), "done"]), middleware=[keep], policy=[nb.review("*")]
    )
    keeping(agent)
    run = await agent.run("go").settled()
    nxt, c = kept[0]
    for resumed in (None, Resumed({"approved": True})):
        c.resumed = resumed
        with pytest.raises(RuntimeError, match="has ended"):
            await nxt(c)
    run.reject(run.interrupts[0])
    await run
    with pytest.raises(RuntimeError, match="has ended"):
        await nxt(c)
    assert (keeping.log, len(kept)) == ([], 1)


async def test_side_effects_of_three_siblings_answered_one_by_one_happen_once(play):
    """A body's work before its pause is done once per start of that body, not per answer."""
    before: list[int] = []
    after: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                before.append(n)
                ctx.interrupt()
            after.append(n)
            return f"did {n}"

    s = await play([[call("gate", n=n) for n in range(3)], "done"], define)
    for _ in range(3):
        await s.answer(restart={0: {}})
    assert (sorted(before), after) == ([0, 1, 2], [0, 1, 2])
    assert s.results == ["did 0", "did 1", "did 2"]


VALUES = [None, False, 0, 0.0, "", [], {}, [None], ["a", {"b": [1, None]}]]


async def test_contrast_falsy_and_nested_results_survive_a_pause(play):
    """Nothing is dropped or run again because it looks empty."""
    ran: list[int] = []

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask"))

        @agent.tool
        def give(n: int) -> Any:
            ran.append(n)
            return VALUES[n]

    numbers = range(len(VALUES))
    s = await play([[call("give", n=n) for n in numbers] + [call("ask")] * 10, "done"], define)
    await s.answer(respond=dict(enumerate(VALUES)))
    await s.answer(respond={0: "last"})
    assert [repr(result) for result in s.results] == [*map(repr, VALUES * 2), "'last'"]
    assert sorted(ran) == [*numbers]
