"""Keeping up with a run that somebody else may go on with: another process, or another handle here.

Who answers, drives. Everybody else follows: is told by the store, or asks it four times a second. A
follower goes on itself only where nobody does, and never runs again what was started.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from nbagent.core.base.errors import RunError, StoreError, UsageError
from nbagent.core.base.events import Resolved, RunFailed
from nbagent.core.base.process import describe_process, has_ended, this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.state.next_step import Wait, next_step
from nbagent.core.state.state import CallState, RunState, running_calls

POLL = 0.25
"""Seconds between looks at a store that tells nobody what is written to it."""
UNHEARD = 300.0
"""Seconds without news after which a process that should go on with a run is not waited for."""

Whose: TypeAlias = Literal["ended", "nobody's", "ours", "theirs", "lost"]
"""Who makes the run go on: nobody before an answer comes, we, somebody else, or nobody ever again."""


class Followed(Protocol):
    """One handle on a run, as its follower sees it."""

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop it lives on."""

    def is_driving(self) -> bool:
        """Whether this handle's own driver is at work."""

    def is_driven_here(self) -> bool:
        """Whether any handle's driver in this process is at work."""

    def go_on(self) -> None:
        """Drive."""

    def on_change(self, lost: BaseException | None) -> None:
        """The state is another by now, or ``lost`` says why it cannot go on."""


class Follower:
    """Follows for one handle, while that handle does not drive."""

    __slots__ = ("__weakref__", "_is_told", "_journal", "_news", "_run", "_seen", "_timer")

    def __init__(self, journal: Journal, run: Followed) -> None:
        self._journal = journal
        self._run = run
        self._timer: asyncio.TimerHandle | None = None
        self._seen = -1
        self._news = time.monotonic()
        """When the journal was last seen to move."""
        self._is_told = journal.watch(self)

    def follow(self) -> None:
        """Look now, and go on looking while it is needed; from any thread."""
        weak = weakref.ref(self)
        try:
            self._run.home().call_soon_threadsafe(_look, weak)
        except RuntimeError:
            if not self._run.home().is_closed():
                raise
        # a loop that closed meanwhile: whoever next waits for the run calls this again

    def look(self) -> None:
        """Take in what others wrote and react; only ever called on the run's loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._journal.catch_up()
        except StoreError as error:
            self._run.on_change(error)
            return
        whose = self._react()
        if whose in ("theirs", "lost") or (whose == "nobody's" and not self._is_told):
            loop = self._run.home()
            self._timer = loop.call_later(POLL, _look, weakref.ref(self))

    def _react(self) -> Whose:
        state, seen = self._journal.state, self._seen
        if state.position != seen:
            self._seen, self._news = state.position, time.monotonic()
        if self._run.is_driving():
            if state.position != seen:
                self._run.go_on()
            return "nobody's" if state.pending else "ended"
        whose = self._whose(state)
        if whose == "ours":
            self._run.go_on()
        elif whose == "lost":
            self._run.on_change(self._loss(state))
        elif state.position != seen:
            self._run.on_change(None)
        return whose

    def _whose(self, state: RunState) -> Whose:
        if state.outcome is not None:
            return "ended"
        if isinstance(next_step(state), Wait):
            started = running_calls(state)
            if not started:
                return "nobody's"
            return "lost" if any(self._is_lost(call) for call in started) else "theirs"
        return "theirs" if self._is_driven(self._journal.driver) else "ours"

    def _is_driven(self, driver: str) -> bool:
        """Whether the process that last took the run on is still to be waited for."""
        silent = time.monotonic() - self._news
        if driver == this_process():
            return self._run.is_driven_here() or silent < POLL
        if not driver or has_ended(driver):
            return False
        return silent < UNHEARD

    def _is_lost(self, call: CallState) -> bool:
        if call.owner == this_process():
            return not self._run.is_driven_here() and time.monotonic() - self._news >= POLL
        return bool(has_ended(call.owner))

    def _loss(self, state: RunState) -> RunError:
        lost = [call for call in running_calls(state) if self._is_lost(call)]
        told = ", ".join(f"{call.name!r} (by {describe_process(call.owner)})" for call in lost)
        return RunError(
            f"these calls were started and never ended, and who ran them is gone: {told}. Whether "
            "they took effect is not known, so they are not run again",
            messages=state.messages,
        )


def _look(follower: Callable[[], Follower | None]) -> None:
    """Look, unless nobody has the run any more."""
    found = follower()
    if found is not None:
        found.look()


def next_driver(state: RunState, answer: Resolved) -> str:
    """Who goes on after an answer: who takes it, or the process whose body waits at its line."""
    for call_id in answer.scope:
        state = state.calls[call_id].child or RunState()
    call = state.calls.get(answer.call_id)
    if call is None or answer.id not in call.asked or has_ended(call.owner) is not False:
        return this_process()
    return call.owner


def check_none_ran_elsewhere(state: RunState, failed: RunFailed) -> None:
    """Refuse to run bodies again that ran in another process than the one in which the run failed.

    Raises:
        UsageError: naming the tools, as they may have done their work.
    """
    elsewhere = [c for c in running_calls(state) if failed.owner and c.owner != failed.owner]
    if elsewhere:
        told = ", ".join(f"{call.name!r} (by {describe_process(call.owner)})" for call in elsewhere)
        raise UsageError(
            f"these calls ran in another process when the run failed: {told}. Whether they took effect "
            "is not known, so they are not run again: start a new run; after= goes on with what was said"
        )
