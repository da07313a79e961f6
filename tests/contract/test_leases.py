"""Heartbeats show whether the driver of a shared run is alive, whatever the clocks say."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import nbagent as nb
from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    RunStarted,
    StoredEvent,
    ToolStarted,
)
from nbagent.core.run import heartbeat
from nbagent.core.run.heartbeat import BEAT, MISSED
from nbagent.core.run.run import session_of
from tests.contract.test_stores import Shared, opened
from tests.unit.core.clock import Clock
from tests.until import turns, until

__all__ = ["opened"]
FAR = "another machine:7:1:far"
HOUR = 3600.0


class Time:
    """A monotonic clock that the test moves."""

    now = 0.0
    sleep = staticmethod(time.sleep)

    def monotonic(self) -> float:
        return self.now


def run_driven_by(driver: str, at: float, *, in_a_body: bool) -> list[StoredEvent]:
    """A run that the process ``driver`` drives: it runs a tool, or is about to ask the model."""
    said = [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]
    started = RunStarted(
        at=at, agent="office", model="scripted", messages=said, max_turns=9, owner=driver
    )
    if not in_a_body:
        return [started]
    call = CallRequested(id="c1", name="send", input={})
    asked = ModelResponded(at=at, calls=(call,), finish_reason="tool_calls")
    return [started, asked, ToolStarted(at=at, call_id="c1", attempt=1, owner=driver, input={})]


async def look_and_act(run: nb.Run) -> None:
    """Let a run check its journal and the live processes, and wait until it has acted on both."""
    session = session_of(run)
    await asyncio.wrap_future(session.journal.look())
    session.follower.look()
    await asyncio.wrap_future(session.journal.look())  # the second look may happen in a thread
    heard = session.follower.others._watched
    await until(lambda: not any(one.is_asked for one in heard.values()))  # asked in a thread, too
    await turns()


@pytest.mark.parametrize(
    ("jump", "in_a_body"), [(HOUR, True), (-HOUR, False)], ids=["forward", "back"]
)
async def test_c314_a_clock_jump_neither_takes_a_live_run_nor_leaves_one_stuck(
    opened: Shared, monkeypatch: pytest.MonkeyPatch, jump: float, *, in_a_body: bool
) -> None:
    """The run stays with its process while that process sends heartbeats. After its lease the run continues here."""
    steady, clock, store = Time(), Clock(), opened()
    monkeypatch.setattr(heartbeat, "time", steady)
    others = opened()  # the store as opened on the other machine
    others.append("run", run_driven_by(FAR, clock(), in_a_body=in_a_body), 0)
    others.beat(FAR)
    agent = nb.Agent(nb.ScriptedModel(["Done."]), name="office", store=store)

    @agent.tool
    def send() -> str:
        raise AssertionError("it may have taken effect")

    run = await nb.open_run("run", agent=clock.on(agent), attended=True, show=False)
    for beat in range(MISSED + 2):
        clock.now += jump if beat == 1 else BEAT
        steady.now += BEAT
        others.beat(FAR)
        await look_and_act(run)
        assert (run.status, run.interrupts) == ("running", [])
    clock.now -= jump / 2
    steady.now += BEAT * MISSED - 1
    await look_and_act(run)
    assert (run.status, run.interrupts) == ("running", [])
    steady.now += 1
    session_of(run).follower.look()
    await until(lambda: run.status != "running")
    if in_a_body:
        [lost] = run.interrupts
        assert lost.kind == "lost"
        with pytest.raises(nb.errors.InvalidAnswer, match=r"run.restart.* to run it again"):
            run.approve(lost)
        await run.respond(lost, "sent, as the bank says")
    assert (await run).text == "Done."


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_c314_a_run_that_is_live_elsewhere_is_not_deleted_whatever_its_clock(
    opened: Shared, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Heartbeats show that a process is alive, and missing heartbeats that it is not; event times show neither."""
    steady, store, others = Time(), opened(), opened()
    others.append("run", run_driven_by(FAR, time.time() + jump, in_a_body=True), 0)
    others.beat(FAR)
    silent_since, here = time.monotonic(), threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != here:  # the thread that sends this process's heartbeats
            time.sleep(seconds)
            return
        steady.now += seconds
        if steady.now - silent_since < BEAT * 2:
            others.beat(FAR)

    steady.now = silent_since
    monkeypatch.setattr(steady, "sleep", sleep, raising=False)
    monkeypatch.setattr(heartbeat, "time", steady)
    with pytest.raises(nb.errors.UsageError, match="while it is active in process 7 on far"):
        nb.delete_run("run", store=store)
    steady.now += BEAT * 2
    assert nb.delete_run("run", store=store) == ["run"]
    assert steady.now - silent_since >= BEAT * MISSED
