"""One body at a time: calls that are retried, awaited, or never run a second time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.call.body import Body
from nbagent.core.tools.call_output import CallOutput
from tests.until import until

call = nb.ScriptedModel.call
SOON = 0.01
"""Seconds after which ``nb.Timeout`` gives up on a body that waits for the test."""


class Slow:
    """A body in a thread that cannot be stopped; it counts its runs, at once and in all."""

    def __init__(self, *, fails: bool = False) -> None:
        self.go = threading.Event()
        self.bodies = self.running = self.most = 0
        self._fails = fails
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Wait until it may end."""
        with self._lock:
            self.bodies += 1
            self.running += 1
            self.most = max(self.most, self.running)
            mine = self.bodies
        assert self.go.wait(30)
        with self._lock:
            self.running -= 1
        if self._fails and mine == 1:
            raise OSError("line is down")
        return f"body {mine}"


class Opens:
    """Middleware that lets the slow body end at the given pass."""

    def __init__(self, slow: Slow, at: int) -> None:
        self.passes = 0
        self._slow, self._at = slow, at

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        """Count the passes."""
        self.passes += 1
        if self.passes == self._at:
            self._slow.go.set()
        return await nxt(c)


def agent_of(slow: Slow, middleware: list[Any], *, idempotent: bool, **options: Any) -> nb.Agent:
    """An agent that transfers once."""
    agent = nb.Agent(nb.ScriptedModel([call("transfer"), "done"]), middleware=middleware, **options)

    @agent.tool(idempotent=idempotent)
    def transfer() -> str:
        return slow()

    return agent


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS)
async def test_c142_one_body_runs_in_either_order_of_retry_and_timeout(order):
    """The model learns that the outcome is unknown; no second body starts."""
    slow = Slow()
    usual: list[Any] = [nb.ToolErrorsToText(), nb.Retry(3), nb.Timeout(SOON)]
    agent = agent_of(slow, [usual[n] for n in order], idempotent=False)
    run = await agent.run("go").settled()
    told = run.calls["transfer"][0].output
    assert "took longer" in told
    assert "It may or may not take effect" in told
    slow.go.set()
    assert (slow.bodies, run.status) == (1, "completed")


async def test_c142_an_idempotent_body_that_still_runs_is_awaited():
    """The next attempt gets the first body's result, however late."""
    slow = Slow()
    opens = Opens(slow, at=2)
    again = [nb.ToolErrorsToText(), nb.Retry(30), nb.Timeout(SOON), opens]
    run = await agent_of(slow, again, idempotent=True).run("go").settled()
    assert run.calls["transfer"][0].output == "body 1"
    assert slow.bodies == 1
    assert opens.passes > 1


async def test_c142_a_late_failure_is_retried_once_the_body_has_ended():
    """The next try gets the failure; the try after it starts a new body."""
    slow = Slow(fails=True)
    again = [nb.Retry(30), nb.Timeout(SOON), Opens(slow, at=3)]
    run = await agent_of(slow, again, idempotent=True).run("go").settled()
    assert run.calls["transfer"][0].output == "body 2"
    assert (slow.bodies, slow.most) == (2, 1)


@pytest.mark.parametrize("outcome", ["paid", OSError("line is down")])
async def test_c142_an_outcome_that_arrives_in_the_moment_of_the_timeout_is_not_lost(outcome):
    """Else the next try would start a second body."""
    go = threading.Event()

    @nb.tool
    def transfer() -> str:
        go.wait(30)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    body = Body(transfer, CallOutput("c", lambda _delta: None), ("run", "c"))
    task = asyncio.ensure_future(body.run({}))
    await until(lambda: body.has_unread_result)
    body._thread.add_done_callback(lambda _: task.cancel())
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert body.has_unread_result
    [result] = await asyncio.gather(body.wait_for_abandoned(), return_exceptions=True)
    assert result is outcome
    assert not body.has_unread_result


async def test_c142_a_body_that_never_ends_is_never_started_twice():
    """All tries time out."""
    slow = Slow()
    agent = agent_of(slow, [nb.Retry(3), nb.Timeout(SOON)], idempotent=True)
    run = await agent.run("go").settled()
    assert "took longer" in run.calls["transfer"][0].output
    slow.go.set()
    assert slow.bodies == 1


async def test_c142_a_restart_waits_for_the_body_that_timed_out():
    """The middleware interrupts after the timeout; the restart runs no second body beside the first."""
    slow = Slow()

    async def ask(c: nb.ToolCall, nxt: Any) -> Any:
        try:
            return await nxt(c)
        except TimeoutError:
            c.interrupt({"late": True})

    agent = agent_of(slow, [ask, nb.Timeout(SOON)], idempotent=False)
    run = await agent.run("go").settled()
    agent.middleware.clear()
    run.restart(run.interrupts[0])
    for _ in range(20):
        await asyncio.sleep(0)
    assert slow.bodies == 1
    slow.go.set()
    assert (await run).text == "done"
    assert (slow.bodies, slow.most) == (2, 1)


async def test_c142_the_retry_of_a_run_waits_for_the_body_that_timed_out():
    """The run failed while the thread was running."""
    slow = Slow()
    agent = agent_of(slow, [nb.Timeout(SOON)], idempotent=False, on_tool_error="raise")
    run = agent.run("go")
    with pytest.raises(nb.errors.RunError, match="may or may not"):
        await run
    agent.middleware.clear()
    again = run.retry()
    for _ in range(20):
        await asyncio.sleep(0)
    assert slow.bodies == 1
    slow.go.set()
    assert (await again).text == "done"
    assert (slow.bodies, slow.most) == (2, 1)


# --- failures that are retried


class FailsFirst:
    """Middleware whose first passes fail before the body."""

    def __init__(self, failures: int) -> None:
        self._left = failures

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        """Fail, or call next."""
        self._left -= 1
        if self._left >= 0:
            raise OSError("no line yet")
        return await nxt(c)


KINDS = ["sync", "on the loop", "async", "generator", "async generator"]


def failing(agent: nb.Agent, kind: str, ran: list[str], **options: Any) -> None:
    """Add a tool of this kind that does its work and then fails."""
    name = kind.replace(" ", "_")
    if kind in ("sync", "on the loop"):

        @agent.tool(name=name, thread=kind == "sync", **options)
        def _sync() -> str:
            ran.append(kind)
            raise OSError("line is down")

    elif kind == "async":

        @agent.tool(name=name, **options)
        async def _async() -> str:
            ran.append(kind)
            raise OSError("line is down")

    elif kind == "generator":

        @agent.tool(name=name, **options)
        def _generator():
            ran.append(kind)
            yield "a"
            raise OSError("line is down")

    else:

        @agent.tool(name=name, **options)
        async def _async_generator():
            ran.append(kind)
            yield "a"
            raise OSError("line is down")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("idempotent", [True, False])
async def test_p3_a_started_body_is_run_again_only_if_it_is_declared_safe(kind, idempotent, caplog):
    """Failures before the body are always retried; the warning is logged once."""
    ran: list[str] = []
    name = kind.replace(" ", "_")
    agent = nb.Agent(
        nb.ScriptedModel([call(name), call(name), "done"]),
        middleware=[nb.Retry(5), FailsFirst(3)],
    )
    failing(agent, kind, ran, idempotent=idempotent)
    with caplog.at_level(logging.WARNING, logger="nbagent"):
        run = agent.run("go")
        await run
    first, second = run.calls[name]
    assert "line is down" in first.output
    assert len(ran) == (2 + 5 if idempotent else 2)
    told = [r.getMessage() for r in caplog.records if "idempotent=True" in r.getMessage()]
    assert len(told) == (0 if idempotent else 1)
    assert ("idempotent=True" in (second.traceback or "")) is not idempotent
    assert "idempotent" not in first.output + second.output


async def test_p3_an_agent_is_retried_unless_a_body_inside_has_started():
    """A failed inner body runs again only if its tool is idempotent."""
    for idempotent, times in [(False, 1), (True, 2)]:
        ran: list[str] = []
        inner = nb.Agent(
            nb.ScriptedModel([call("sync"), "in"]), name="inner", on_tool_error="raise"
        )
        failing(inner, "sync", ran, idempotent=idempotent)
        agent = nb.Agent(
            nb.ScriptedModel([call("inner", prompt="go"), "done"]),
            tools=[inner.as_tool()],
            middleware=[nb.Retry(2)],
        )
        assert (await agent.run("go")).text == "done"
        assert len(ran) == times
