"""The end of the time that questions wait: applied once each, whoever else does it too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .answers import AnyResolution, expiry_of
from .drive import Drive
from .errors import Conflict, Expired, NotPending
from .events import Interrupted, RunFailed, StoredEvent
from .journal import Journal
from .state import RunState, paused_messages, status_of


class Expiring(Protocol):
    """A run whose questions have their time."""

    def resolve(self, interrupt: str, resolution: AnyResolution, *, by: str) -> object:
        """Settle an interrupt."""


class Deadlines:
    """Watches over the questions of one run."""

    __slots__ = ("_clock", "_drive", "_journal", "_run")

    def __init__(
        self, journal: Journal, clock: Callable[[], float], drive: Drive, run: Expiring
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._drive = drive
        self._run = run

    def watch(self, event: Interrupted) -> None:
        """Apply the end of this question's time when it comes; only called on the run's loop."""
        if event.expires_at is not None:
            delay = max(0.0, event.expires_at - self._clock())
            self._drive.loop.call_later(delay, self.apply)

    def apply(self) -> None:
        """Settle the questions whose time is over."""
        now = self._clock()
        for event in self._journal.state.open:
            if event.expires_at is None or event.expires_at > now:
                continue
            if event.on_expire == "fail":
                self._fail(event)
            else:
                with suppress(Conflict, NotPending):
                    self._run.resolve(event.id, expiry_of(event), by="expiry")

    def _fail(self, event: Interrupted) -> None:
        """Fail the run, as soon as no call runs any more whose result would be lost."""
        text = f"nobody answered {event.tool_name!r} in time"
        failed = RunFailed(at=self._clock(), error="Expired", message=text)

        def decide(state: RunState) -> list[StoredEvent]:
            waits = status_of(state) == "interrupted" and event in state.pending
            return [failed] if waits else []

        messages = paused_messages(self._journal.state)
        if self._journal.commit(decide):
            self._drive.abandon(Expired(text, messages=messages))
