"""Whose turn it is to go on, and when a process that cannot be seen counts as ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nbagent.core.base.errors import StoreError
from nbagent.core.base.process import this_process
from nbagent.core.run import heartbeat
from nbagent.core.run.follow import whose_turn
from nbagent.core.run.heartbeat import BEAT, MISSED, UNHEARD, Others
from nbagent.core.state.state import Calls, CallState, RunState

GONE = this_process().replace(":", ":1", 1)  # an id that no process has, or another start
FAR = "another machine:1:1:far"


class Time:
    """The clock of this process, as the test moves it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    """A clock that stands still."""
    moved = Time()
    monkeypatch.setattr(heartbeat, "time", moved)
    return moved


class Beats:
    """A store that takes beats."""

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
    """A run whose calls these processes started."""
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
def test_a_run_is_lost_when_a_call_of_it_is(
    time: Time, owners: tuple[str, ...], whose: str
) -> None:
    """Somebody is asked about the call that does not go on, whatever else does."""
    state = running(*owners)
    if not owners:
        waiting = CallState(id="c", name="t", proposed={}, input={}, status="waiting")
        state = RunState(calls=Calls([waiting]))
    others = Others(Beats(), "run")
    assert whose_turn(state, GONE, others, is_driven_here=False) == whose


def test_a_process_out_of_sight_lives_as_long_as_it_is_heard(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """Any beat or event counts; a store that fails is no news; silence is told before it is believed."""
    store = Beats()
    others = Others(store, "run")
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
    assert "run waits for process 1 on far" in told.getMessage()
    store.fails = False
    time.now += BEAT
    assert others.has_ended(FAR)
    others.moved()
    assert not others.has_ended(FAR)


def test_where_a_store_takes_no_beats_events_alone_are_heard(time: Time) -> None:
    """A slow tool on another machine is given more time there."""
    others = Others(object(), "run")
    time.now = UNHEARD - 1
    assert not others.has_ended(FAR)
    time.now = UNHEARD
    assert others.has_ended(FAR)
