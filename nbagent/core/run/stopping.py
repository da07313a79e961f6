"""How a run is cancelled: by a person, by code, or by Ctrl+C where code waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Protocol

from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import RunCancelled
from nbagent.core.base.user import user_behind
from nbagent.core.call.threads import interruption, running_loop
from nbagent.core.journal.journal import Journal, Unsaid, finished
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from . import driving
from .driving import Driving
from .follower import Follower
from .writes import Writes


class StoppedRun(Protocol):
    """What ``Stopping`` needs of the run that is cancelled."""

    spec: RunSpec
    journal: Journal
    driving: Driving
    follower: Follower
    writes: Writes
    loop: asyncio.AbstractEventLoop

    @property
    def state(self) -> RunState:
        """Where the run stands."""

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on."""

    def progressed(self) -> None:
        """The run may have come to a stand."""


class Stopping:
    """The end of one run before its time: finished results are kept, a body that won't stop is left behind."""

    __slots__ = ("_run", "_stopped", "is_under_way")

    def __init__(self, run: StoppedRun) -> None:
        self.is_under_way = False
        """Whether the run is being cancelled: no answer is taken and no driver started any more."""
        self._run = run
        self._stopped: Future[None] | None = None
        """Done when it is cancelled, while it is being cancelled."""

    def stop(self, by: str) -> Future[None]:
        """Stop for good; done once that is stored."""
        self.is_under_way = True
        loop = self._run.home()
        if self._stopped is not None:
            return self._stopped
        if loop is not running_loop() or self._run.driving.has_begun:
            self._stopped = asyncio.run_coroutine_threadsafe(self._stop(by), loop)
            return self._stopped
        return self.cancelled(by)

    @contextmanager
    def by_keyboard(self) -> Iterator[None]:
        """Code that waits for the run: Ctrl+C cancels it, and goes on when that is stored.

        A run that another process goes on with is only waited for no more.
        """
        run = self._run
        try:
            yield
        except KeyboardInterrupt:
            if run.follower.is_theirs:
                raise
            try:
                stopped = self.stop("keyboard")
                if running_loop() is not run.loop:
                    with suppress(TimeoutError):  # something holds up the loop of the run
                        stopped.result(2 * driving.GRACE)
            finally:  # also where it is pressed again
                self._end_at_once("keyboard")
            raise
        except asyncio.CancelledError:
            if (
                interruption()() and not run.follower.is_theirs
            ):  # and its loop is about to be closed
                self._end_at_once("keyboard")
            raise

    def cancelled(
        self, by: str, still_running: tuple[str, ...] = (), unsaid: Unsaid = tuple
    ) -> Future[None]:
        """Write that the run was cancelled, after all that waits to be written and what is ``unsaid``."""
        run, event = self._run, self._cancellation(by, still_running)

        def stopped(_: None) -> None:
            # one that had failed already may be tried again
            run.driving.rest()
            self.is_under_way = False
            self._stopped = None
            run.progressed()

        began = bool(run.state.position or run.writes)
        ended = run.journal.submit_end(event, unsaid) if began else finished(None)
        return run.writes.then(ended, stopped)

    def forget(self) -> None:
        """The loop is closed, and what was under way on it is gone."""
        self._stopped = None

    async def _stop(self, by: str) -> None:
        still_running: tuple[str, ...] = ()
        unsaid = self._run.driving.unsaid
        try:
            still_running = await self._run.driving.end()
        finally:
            stored = self.cancelled(by, still_running, unsaid)
        await asyncio.wrap_future(stored)

    def _end_at_once(self, by: str) -> None:
        """Store that the run is cancelled, from any thread, whatever still runs."""
        run = self._run
        if run.state.position == 0:  # its first event was on its way
            with suppress(UsageError):
                run.journal.catch_up()
        if run.state.position and run.state.outcome is None:
            run.journal.end(self._cancellation(by, run.driving.left_bodies), run.driving.unsaid)

    def _cancellation(self, by: str, still_running: tuple[str, ...]) -> RunCancelled:
        now = self._run.spec.clock()
        return RunCancelled(at=now, by=by, still_running=still_running, user=user_behind(by))
