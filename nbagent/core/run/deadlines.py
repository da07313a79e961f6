"""The end of the time that questions wait: applied once each, whoever else does it too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from nbagent.core.base.errors import Conflict, Expired, NotPending, StoreError
from nbagent.core.base.events import Interrupted, RunFailed, StoredEvent
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from .answers import EXPIRY, TIME_IS_OVER, AnyResolution, TimeIsOver

logger = logging.getLogger("nbagent")

LOOK = 60.0
"""Seconds between looks at the clock while a question has a deadline."""
AGAIN = 1.0
"""Seconds until a deadline is applied that could not be, as when the store failed or a sibling runs."""


class Asking(Protocol):
    """The session whose questions are watched over."""

    loop: asyncio.AbstractEventLoop
    spec: RunSpec

    @property
    def state(self) -> RunState:
        """Where the run stands."""

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution | TimeIsOver, *, by: str
    ) -> Future[StoredEvent]:
        """Settle a question."""

    def fail_expired(self, event: Interrupted) -> None:
        """Fail the run of a question that nobody answered."""


class Deadlines:
    """Watches over one session's questions, and holds it only while a timer runs.

    The timer is touched on the run's loop only.
    """

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        """When the clock is looked at again."""

    def apply(self, asking: Asking) -> None:
        """Settle the questions whose time is over; what the store does not take is tried again by ``look``.

        It raises nothing of that: whoever moved the run has another failure to tell, or none.
        """
        state = asking.state
        if not state.questions:
            return
        now = asking.spec.clock()
        for event in state.open:
            if not event.is_late(now):
                continue
            try:
                if event.on_expire == "fail":
                    asking.fail_expired(event)
                else:
                    with suppress(Conflict, NotPending):
                        asking.resolve(event.id, TIME_IS_OVER, by=EXPIRY)
            except StoreError as error:
                logger.warning("the end of the time of %r is not stored yet: %s", event.id, error)

    def watch(self, asking: Asking, event: Interrupted, *, if_late: float = 0.0) -> None:
        """Apply the end of this question's time when it comes; only called on the run's loop.

        The run's clock may be set meanwhile, and the loop's stands still while the machine sleeps: so it is
        looked at again and again.
        """
        if event.expires_at is None:
            return
        now, loop = asking.spec.clock(), asking.loop
        left = if_late if event.is_late(now) else event.expires_at - now
        due = loop.time() + min(left, LOOK)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self.look, asking)

    def look(self, asking: Asking) -> None:
        """Apply what is over by now, and look again when the next one is."""
        self._timer = None
        try:
            self.apply(asking)
        finally:
            for event in asking.state.open:
                self.watch(asking, event, if_late=AGAIN)

    def leave(self) -> None:
        """Watch on this loop no more; called on it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def forget(self) -> None:
        """The loop is closed, and the timer gone with it."""
        self._timer = None


def expired(state: RunState, event: Interrupted, text: str, now: float) -> Sequence[StoredEvent]:
    """What fails the run: nothing as long as a call runs whose result would be lost."""
    waits = state.status == "interrupted" and event in state.pending
    return [RunFailed(at=now, error="Expired", message=text)] if waits else []


def expiry_error(state: RunState, event: Interrupted) -> Expired:
    """Why the run fails, and the history to go on from."""
    messages: Any = paused_messages(state)
    return Expired(f"nobody answered {event.tool_name!r} in time", messages=messages)
