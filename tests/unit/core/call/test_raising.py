"""P11 and P1: an exception fails only its own call, and a pause is found however it is wrapped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import nbagent as nb

call = nb.ScriptedModel.call


class OddError(BaseException):
    """Not an ``Exception``: some libraries raise such errors so that nobody catches them."""


class MuteError(Exception):
    """An error of a library whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("response")


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError("a pool went away"),
        OddError("odd"),
        MuteError(),
        ExceptionGroup("g", [ValueError("in")]),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_p11_any_exception_of_a_tool_is_its_own_failure(error, alone, is_async):
    """The siblings and the run continue."""
    agent = nb.Agent(nb.ScriptedModel([[call("odd"), *([] if alone else [call("ok")])], "done"]))

    @agent.tool
    async def ok() -> str:
        await asyncio.sleep(0)
        return "ok"

    if is_async:

        @agent.tool
        async def odd() -> str:
            raise error
    else:

        @agent.tool(name="odd")
        def odd_sync() -> str:
            raise error

    run = agent.run("go")
    assert (await asyncio.wait_for(run.settled(), 10)).status == "completed"
    assert type(error).__name__ in run.calls["odd"][0].output


async def in_group(pause: Any) -> None:
    """A task group wraps the exceptions of its tasks."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.Event().wait())
        group.create_task(pause())


async def in_task(pause: Any) -> None:
    """Pause in another task."""
    await asyncio.create_task(pause())


async def gathered(pause: Any) -> None:
    """Pause in ``gather``."""
    await asyncio.gather(asyncio.sleep(0), pause())


async def as_cause(pause: Any) -> None:
    """Raise another error from the pause."""
    try:
        await pause()
    except nb.Interrupt as found:
        raise ValueError("wrapped") from found


async def as_context(pause: Any) -> None:
    """Raise another error while handling the pause."""
    try:
        await pause()
    except nb.Interrupt:
        raise ValueError("wrapped")  # noqa: B904 - the context is what is tested


@pytest.mark.parametrize("wrap", [in_group, in_task, gathered, as_cause, as_context])
async def test_p1_a_pause_is_found_however_it_is_wrapped(wrap):
    """The call waits, and the model gets nothing."""
    ran: list[int] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate"), "done"]))

    async def pause() -> None:
        await asyncio.sleep(0)
        raise nb.Interrupt({"why": "wrapped"})

    @agent.tool
    async def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            await wrap(pause)
        ran.append(1)
        return "ok"

    run = await agent.run("go").settled()
    assert [i.metadata for i in run.interrupts] == [{"why": "wrapped"}]
    assert ran == []
    run.restart(run.interrupts[0])
    assert (await run).text == "done"


async def test_p11_a_failing_call_ends_the_run_while_an_inner_agent_works_and_asks():
    """Running inner bodies end first; the inner question is dropped, and is open again after a retry."""
    go, tries = asyncio.Event(), []
    steps = [[call("slow"), call("asks")], "inner done"]
    inner = nb.Agent(nb.ScriptedModel(steps), name="inner", on_tool_error="raise")

    @inner.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    @inner.tool
    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("well?")

    first = [call("inner", prompt="p"), call("broken")]
    model = nb.ScriptedModel([first, "done"])
    agent = nb.Agent(model, tools=[inner.as_tool()], on_tool_error="raise")

    @agent.tool
    async def broken() -> str:
        tries.append(1)
        while not run.interrupts:  # noqa: ASYNC110 - until the question inside is open
            await asyncio.sleep(0)
        if len(tries) == 1:
            raise OSError("line is down")
        return "mended"

    run = agent.run("go")
    while not tries or not run.interrupts:  # noqa: ASYNC110 - until the question inside is open
        await asyncio.sleep(0)
    for _ in range(50):  # the failure waits for running bodies
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(nb.errors.RunError, match="line is down"):
        await asyncio.wait_for(run, 10)
    await run.retry().settled()
    run.respond(run.interrupts[0], "well")
    assert (await asyncio.wait_for(run, 10)).text == "done"
    assert len(tries) == 2
