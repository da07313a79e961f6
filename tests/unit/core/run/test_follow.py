"""Which process continues a run, and when an unseen process counts as ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

import nbagent as nb
from nbagent.core.base import process
from nbagent.core.base.errors import StoreError
from nbagent.core.base.events import RunTaken, StoredEvent
from nbagent.core.base.messages import user
from nbagent.core.base.process import this_process
from nbagent.core.engine.driver import run_started
from nbagent.core.run import heartbeat, lost_calls
from nbagent.core.run.heartbeat import BEAT, MISSED, UNHEARD, OtherProcesses, start_beating
from nbagent.core.run.lost_calls import MOMENT, lost_call_events, whose_turn
from nbagent.core.run.run import session_of
from nbagent.core.state.fold import apply
from nbagent.core.state.state import Calls, CallState, RunState
from tests.until import turns, until

GONE = this_process().replace(":", ":1", 1)  # an id of no process, or of another start
FAR = "another machine:1:1:far"


class Time:
    """A monotonic clock that the test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    """A clock that only the test moves."""
    moved = Time()
    monkeypatch.setattr(heartbeat, "time", moved)
    return moved


class Beats:
    """A store with heartbeats."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def beat(self, process: str) -> None:
        self.count += 1

    def beats(self, process: str) -> int:
        if self.fails:
            raise StoreError("locked")
        return self.count


def running(*owners: str) -> RunState:
    """A run with calls that these processes started."""
    calls = [
        CallState(id=f"c{i}", name="t", proposed={}, input={}, status="running", owner=owner)
        for i, owner in enumerate(owners)
    ]
    return RunState(calls=Calls(calls))


@pytest.mark.parametrize(
    ("owners", "whose"),
    [
        ((GONE,), "lost"),
        ((GONE, GONE), "lost"),
        ((GONE, FAR), "lost"),
        ((FAR,), "theirs"),
        ((), "nobody's"),
    ],
)
def test_a_run_with_a_lost_call_is_lost(time: Time, owners: tuple[str, ...], whose: str) -> None:
    """A question is asked about the lost call, whatever else continues."""
    state = running(*owners)
    if not owners:
        waiting = CallState(id="c", name="t", proposed={}, input={}, status="waiting")
        state = RunState(calls=Calls([waiting]))
    others = OtherProcesses(Beats(), "run")
    assert whose_turn(state, GONE, others, is_driven_here=False) == whose


LIVES = process._owner(os.getppid())
"""A process of this machine that runs, or whose state is unknown."""


def test_a_run_without_a_driver_belongs_first_to_its_process_and_then_to_anyone(
    time: Time,
) -> None:
    """Its own process, and any process after an ended or missing driver, continues it at once."""
    due = RunState(calls=Calls([CallState(id="c", name="t", proposed={}, input={})]))

    def turn(driver: str, *, here: bool = False) -> str:
        return whose_turn(due, driver, others, is_driven_here=here, is_vacant=True)

    others = OtherProcesses(Beats(), "run")
    assert [turn(one) for one in (this_process(), GONE, "")] == ["ours"] * 3
    assert turn(this_process(), here=True) == "theirs"
    assert [turn(one) for one in (LIVES, FAR)] == ["theirs"] * 2
    time.now += MOMENT
    assert [turn(one) for one in (LIVES, FAR)] == ["ours"] * 2


def test_a_live_process_without_heartbeats_drives_nothing(
    time: Time, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After its silence other processes continue its steps, with a warning; a running body is waited for."""
    monkeypatch.setattr(lost_calls, "has_ended", lambda _: False)
    monkeypatch.setattr(heartbeat, "has_ended", lambda _: False)
    due = RunState(calls=Calls([CallState(id="c", name="t", proposed={}, input={})]))
    store = Beats()
    others = OtherProcesses(store, "run")
    turns = []
    for beats in (True, False):
        for _ in range(MISSED):
            time.now += BEAT
            store.count += beats
            turns.append(whose_turn(due, LIVES, others, is_driven_here=False))
    assert turns == ["theirs"] * (2 * MISSED - 1) + ["ours"]
    assert whose_turn(running(LIVES), LIVES, others, is_driven_here=False) == "theirs"
    assert whose_turn(due, LIVES, OtherProcesses(object(), "run"), is_driven_here=False) == "theirs"
    assert others.awaited.endswith("silent for 30 s")
    [told] = caplog.records
    assert "which is running but does not respond: it has been silent for 10 s" in told.getMessage()


def test_a_remote_process_counts_as_live_while_it_sends_heartbeats_or_events(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """Any beat or event counts; a store error counts as neither; a warning precedes the end."""
    store = Beats()
    others = OtherProcesses(store, "run")
    for _ in range(3 * MISSED):
        time.now += BEAT
        store.beat(FAR)
        assert not others.has_ended(FAR)
    assert caplog.records == []
    store.fails = True
    for _ in range(MISSED - 1):
        time.now += BEAT
        assert not others.has_ended(FAR)
    assert "process 1 on far, silent for 25 s" in others.awaited
    [told] = caplog.records
    assert told.levelno == logging.WARNING
    assert "run is waiting for process 1 on far" in told.getMessage()
    store.fails = False
    time.now += BEAT
    assert others.has_ended(FAR)
    others.moved()
    assert not others.has_ended(FAR)


def test_without_heartbeats_in_the_store_only_events_count(time: Time) -> None:
    """A slow tool on another machine gets more time."""
    others = OtherProcesses(object(), "run")
    time.now = UNHEARD - 1
    assert not others.has_ended(FAR)
    time.now = UNHEARD
    assert others.has_ended(FAR)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_end_of_one_run_ends_no_heartbeats_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has an entry of its own, also for one store; without runs there are no heartbeats."""
    monkeypatch.setattr(heartbeat, "_entries", {})
    monkeypatch.setattr(heartbeat, "_beating", [threading.current_thread()])
    one, other = Beats(), Beats()
    ends = [start_beating(store) for store in (one, one, other)]
    counts = []
    for end in ends:
        assert heartbeat._beat_once()
        counts.append((one.count, other.count))
        assert end is not None
        end()
    assert counts == [(1, 1), (2, 2), (2, 3)]
    assert not heartbeat._beat_once()


def test_a_takeover_from_an_ended_process_leaves_the_calls_of_a_third() -> None:
    """A takeover from all processes takes every open call, also those inside an agent's call."""
    inner = CallState(id="a", name="t", proposed={}, input={}, child=running(GONE, FAR))
    state = RunState(calls=Calls([*running(GONE, FAR, "").calls.values(), inner]))

    def owners(gone: str) -> list[str]:
        taken = RunTaken(at=1.0, by="silence", owner=this_process(), gone=gone)
        calls = [*apply(state, taken).calls.values()]
        assert calls[-1].child is not None
        return [call.owner for call in (*calls[:3], *calls[-1].child.calls.values())]

    me = this_process()
    assert owners(GONE) == [me, FAR, me, me, FAR]
    assert owners("") == [me] * 5


def test_a_lost_call_that_has_moved_on_is_not_asked_about() -> None:
    """Another handle has asked, answered or run it again since the call was found."""
    spec = nb.Agent(nb.ScriptedModel([]))._spec({})
    lost = [((), call) for call in running(GONE).calls.values()]
    [(_, call)] = lost
    moved = [replace(call, attempt=1), replace(call, status="waiting"), replace(call, id="other")]
    for now in moved:
        assert lost_call_events(RunState(calls=Calls([now])), lost, spec) == []
    assert [e.type for e in lost_call_events(running(GONE), lost, spec)] == ["interrupted"]


async def test_of_two_processes_that_take_a_run_the_second_does_nothing() -> None:
    """The takeover of the other one is stored first, in the same moment."""

    class Raced(nb.MemoryStore):
        def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
            if isinstance(events[0], RunTaken) and len(self.read(run_id)) == 1:
                super().append(run_id, [replace(events[0], owner=FAR)], 1)
            super().append(run_id, events, expected)

    store, model = Raced(), nb.ScriptedModel(["done"])
    agent = nb.Agent(model, store=store)
    begun = run_started(agent._spec({}), [user("go")], 0.0)
    store.append("raced", [replace(begun, owner=GONE)], 0)
    run = await nb.open_run("raced", agent=agent, attended=True, show=False)
    await until(lambda: len(store.read("raced")) > 1)
    await turns(100)
    assert [e.owner for e in store.read("raced")] == [GONE, FAR]
    assert (run.status, model.requests) == ("running", [])
    await run.cancel()


async def test_a_forked_process_drives_no_run_of_its_parent() -> None:
    """A fork has a copy of each run, and must not run the parent's calls again."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("ask"), "done"]))

    @agent.tool(approval=True)
    def ask() -> str:
        return "asked"

    run = await agent.run("go", attended=True).settled()
    journal = session_of(run).journal
    assert journal.may_drive
    child = os.fork()
    if not child:
        os._exit(int(journal.may_drive))
    status = os.waitpid(child, 0)[1]  # noqa: ASYNC222 - it ends at once
    assert os.waitstatus_to_exitcode(status) == 0
    assert journal.may_drive
