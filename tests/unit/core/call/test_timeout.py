"""``nb.Timeout``: a slow tool's call fails; time that a person takes does not count."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import nbagent as nb
from tests.unit.core.clock import Clock, put_forward

call = nb.ScriptedModel.call


async def test_a_tool_that_takes_too_long_times_out(play):
    """The error says so; the siblings keep their results."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def slow() -> str:
            put_forward(31)
            await asyncio.Event().wait()
            return "late"

        @agent.tool
        async def quick() -> str:
            return "quick"

    s = await play([[call("quick"), call("slow")], "done"], define, middleware=[nb.Timeout(30)])
    assert s.results[0] == "quick"
    assert "took longer than 30 s" in s.results[1]


async def test_a_thread_that_timed_out_can_no_longer_change_the_run():
    """Its late result is ignored, and its questions are not asked."""
    begun, go, left = threading.Event(), threading.Event(), threading.Event()
    after: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("slow"), "done"]), middleware=[nb.Timeout(30)])

    @agent.tool
    def slow(ctx: nb.ToolContext) -> str:
        begun.set()
        go.wait(30)
        try:
            after.append(ctx.ask_sync("still there?"))
        finally:
            left.set()
        return "late"

    clock = Clock()
    run = clock.on(agent).run("go")
    await asyncio.to_thread(begun.wait, 30)
    await clock.go_on(31)
    await run.settled()
    assert run.status == "completed"
    journal = run.journal
    go.set()
    await asyncio.to_thread(left.wait, 30)
    assert (after, run.journal) == ([], journal)


async def test_a_timeout_error_of_the_tool_is_not_mistaken_for_that_of_the_middleware(play):
    """The result has the tool's message."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def slow() -> str:
            raise TimeoutError("the database said so")

    s = await play([call("slow"), "done"], define, middleware=[nb.Timeout(30)])
    assert "the database said so" in s.results[0]


@pytest.mark.parametrize("is_async", [True, False])
async def test_waiting_for_a_person_does_not_count_as_time(is_async):
    """A live ask may take any time; the time after it counts again."""
    agent = nb.Agent(nb.ScriptedModel([call("slow"), "done"]), middleware=[nb.Timeout(30)])

    if is_async:

        @agent.tool
        async def slow(ctx: nb.ToolContext) -> str:
            return await ctx.ask("how?")

    else:

        @agent.tool(name="slow")
        def slow_sync(ctx: nb.ToolContext) -> str:
            return ctx.ask_sync("how?")

    clock = Clock()
    run = await clock.on(agent).run("go").settled()
    for _ in range(3):
        await clock.go_on(60 * 60)
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], "well")
    assert (await run).text == "done"
    assert run.calls["slow"][0].output == "well"


async def test_the_timeout_continues_after_a_live_ask():
    """A body that is slow after the answer times out, but not too early."""
    agent = nb.Agent(nb.ScriptedModel([call("slow"), "done"]), middleware=[nb.Timeout(30)])
    dawdles = asyncio.Event()

    @agent.tool
    async def slow(ctx: nb.ToolContext) -> str:
        await ctx.ask("how?")
        dawdles.set()
        await asyncio.Event().wait()
        return "late"

    clock = Clock()
    run = await clock.on(agent).run("go").settled()
    await clock.go_on(60 * 60)
    run.respond(run.interrupts[0], "well")
    await dawdles.wait()
    await clock.go_on(29)
    assert run.status == "running"
    await clock.go_on(2)
    await asyncio.wait_for(run, 20)
    assert "took longer" in run.calls["slow"][0].output
