"""The reading of events that others write to a run, and the takeover of a run that nobody else drives."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from nbagent.core.base.errors import RunError, StoreError, UsageError
from nbagent.core.base.events import (
    Resolved,
    RunCancelled,
    RunFailed,
    RunTaken,
    StoredEvent,
    ToolFinished,
)
from nbagent.core.base.process import this_process
from nbagent.core.call.threads import running_loop
from nbagent.core.journal.default import is_closed
from nbagent.core.journal.journal import Decide, Journal
from nbagent.core.state.next_step import is_stuck
from nbagent.core.state.state import RunState, Status, running_calls
from nbagent.core.tools.spec import RunSpec

from .heartbeat import OtherProcesses
from .lost_calls import (
    RELEASE,
    ScopedCall,
    Turn,
    lost_call_events,
    lost_calls,
    owners_elsewhere,
    runs_elsewhere,
    takeover_events,
    whose_turn,
)
from .polling import POLL, Planned, call_when_written

T = TypeVar("T")

LONGEST = 10.0
"""Longest time between two looks at a failing store, in seconds."""


class FollowedRun(Protocol):
    """The parts of a session that a ``Follower`` uses."""

    spec: RunSpec
    journal: Journal
    error: BaseException | None
    is_stored: bool
    """Whether the run's journal outlives this process."""
    is_active: bool
    """Whether a driver of this session is running, or scheduled on the loop."""
    is_stopping: bool
    """Whether the run is being cancelled."""
    is_released: bool
    """Whether this handle has released the run. Then the process that answers drives the run."""
    seen: int
    """The number of events to which this handle has reacted; -1 at first."""

    @property
    def state(self) -> RunState:
        """The run's state."""

    @property
    def status(self) -> Status:
        """The run's status."""

    @property
    def was_taken(self) -> bool:
        """Whether another process has taken the run over and drives it."""

    @property
    def is_driven_here(self) -> bool:
        """Whether any handle of this process drives the run."""

    @property
    def is_writing(self) -> bool:
        """Whether a write is pending."""

    def home(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call ``work`` on the run's loop; from any thread."""

    def drive(self) -> None:
        """Start or wake the driver; from any thread."""

    def follow(self) -> None:
        """Call ``Follower.follow``; called by the journal after writes by others."""

    def set_error(self, why: BaseException | None) -> None:
        """Set or clear the error that stops the run in this process; called on the run's loop."""

    def submit(
        self,
        decide: Decide,
        on_written: Callable[[Sequence[StoredEvent]], None],
        failed: Callable[[BaseException], None],
    ) -> Future[None]:
        """Write a person's decision."""

    def submit_own(
        self,
        submit: Callable[[], Future[T]],
        on_written: Callable[[T], object],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Start a write or read that no person asked for."""

    def notify(self) -> None:
        """Let code that waits for the run check its state again."""

    def start_or_end_after_previous(self) -> bool:
        """Start this run if the previous run completed, or end it in the same way; returns whether to look again."""

    @property
    def is_ending(self) -> bool:
        """Whether the driver of this handle takes no further step, as after an error of its own."""

    def abandon_bodies(self) -> None:
        """Abandon bodies that wait for answers, because the run has ended."""

    def stop_driving(self) -> None:
        """Stop driving: the run was taken over, or released."""


class Follower:
    """The watcher of one handle: reacts to what other handles and processes do with the run.

    A run in memory has none until another handle writes to it. The store notifies the follower, or the follower polls
    while that is needed. The follower stops once the handle is garbage-collected.
    """

    __slots__ = (
        "__weakref__",
        "_others",
        "_run",
        "_timer",
        "_wait",
        "looks_finished",
        "looks_requested",
    )

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._others: OtherProcesses | None = None
        self.looks_requested = self.looks_finished = 0
        """The number of requested looks, and the number of finished looks."""
        self._timer: Planned | None = None
        self._wait = POLL
        """Seconds until the next look at a failing store."""

    @property
    def others(self) -> OtherProcesses:
        """The liveness of the other processes that the run's events name, as far as is known."""
        if self._others is None:
            self._others = OtherProcesses(self._run.journal.store, self._run.journal.run_id)
        return self._others

    def follow(self) -> None:
        """Look for new events now, and keep watching while that is needed; from any thread."""
        run = self._run
        if run.journal.store is None:
            return
        if run.journal.state.outcome is not None and not run.journal.unstored_end:
            # a refused write may have read the run's end, to which nothing has reacted yet
            if run.seen != run.journal.state.position:
                run.call_soon(partial(self._looked, self.looks_requested))
            return
        run.journal.watch(run)
        self.looks_requested += 1
        try:
            run.home().call_soon_threadsafe(self._next_look)
        except RuntimeError:
            if not run.home().is_closed():
                raise
        # if the loop has closed meanwhile, the next wait for the run calls this method again

    def look(self) -> None:
        """Read new events and react to them; called only on the run's loop."""
        run = self._run
        if running_loop() is not run.home():  # the run has changed its loop
            self.follow()
            return
        self.cancel_look()
        looks_requested = self.looks_requested
        run.submit_own(
            run.journal.look,
            lambda _: self._report_look(looks_requested),
            partial(self._unread, looks_requested),
        )

    def look_later(self) -> None:
        """Plan another look at a failing store, with growing delays; called on the run's loop."""
        run = self._run
        self.cancel_look()
        loop, wait = run.home(), self._wait
        self._wait = min(2 * wait, LONGEST)
        # the planned look keeps the handle alive, unless the run only waits for an answer
        waits = run.journal.state.status == "interrupted" or is_closed(run.journal.store)
        look = partial(_look, weakref.ref(self)) if waits else self.look
        self._timer = loop.call_later(wait, look)

    def watch_for_takeover(self) -> None:
        """Watch for a takeover while a driver runs here; called on the run's loop."""
        run = self._run
        if self._timer is None and not run.journal.watch(run):
            look = partial(_look, weakref.ref(self))
            self._timer = call_when_written(run.journal.store, look, run.home())

    def forget(self) -> None:
        """Forget the planned look, because its loop is closed."""
        self._timer = None

    def cancel_look(self) -> None:
        """Cancel the planned look; called on the run's loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_theirs(self) -> bool:
        """Whether another process drives the run and is, as far as is known, alive."""
        run, driver = self._run, self._run.journal.driver
        if driver in ("", this_process()) or run.is_active or run.journal.state.status != "running":
            return False
        return not self.others.has_ended(driver)

    @property
    def driven_elsewhere(self) -> str:
        """Another living process that drives the run or executes one of its bodies; empty if there is none."""
        run = self._run
        if run.journal.state.outcome is not None:
            return ""
        drives = [run.journal.driver] if run.journal.state.status == "running" else []
        owners = [*drives, *owners_elsewhere(run.journal.state)]
        others = (one for one in owners if one not in ("", this_process()))
        return next((one for one in others if not self.others.has_ended(one)), "")

    def take_over(self) -> Future[None]:
        """Drive the run in this process from now on. Calls that run in other processes count as lost."""
        run = self._run

        def decide(state: RunState) -> Sequence[StoredEvent]:
            is_over = state.outcome is not None or state.status == "queued"
            is_mine = run.journal.may_drive and not runs_elsewhere(state)
            return [] if is_over or is_mine else takeover_events(state, run.spec)

        return run.submit(decide, self._took_over, run.set_error)

    def release(self) -> Future[None]:
        """Release the run, so that the process that answers drives the run; see ``Run.release``."""
        run = self._run

        def decide(state: RunState) -> Sequence[StoredEvent]:
            if state.outcome is not None or not (run.journal.may_drive or run.is_released):
                return []
            busy = [call.name for call in running_calls(state)]
            if state.status != "interrupted" or busy:
                what = f"{', '.join(busy)} is still running" if busy else f"it is {state.status}"
                raise UsageError(
                    f"Run {run.journal.run_id!r} cannot be released, because {what}. Wait for `await run.settled()`"
                )
            now, here = run.spec.clock(), this_process()
            return [] if run.is_released else [RunTaken(at=now, by=RELEASE, gone=here)]

        def released(written: Sequence[StoredEvent]) -> None:
            if written:
                run.is_released = True
                if running_loop() is run.home():  # at once, before code on this loop can answer
                    run.stop_driving()
                else:
                    run.call_soon(run.stop_driving)

        return run.submit(decide, released, run.set_error)

    # --- looking

    @property
    def _next_look(self) -> Callable[[], None]:
        """A function that looks again. It keeps the handle alive only if nobody drives the run."""
        is_due = self._run.journal.is_vacant and self._run.journal.state.status == "running"
        return self.look if is_due else partial(_look, weakref.ref(self))

    def _unread(self, looks_requested: int, error: BaseException) -> None:
        """Handle a failed read: the store fails, or the run's first event was never written."""
        self.looks_finished = max(self.looks_finished, looks_requested)
        if self._run.journal.state.outcome is not None or self._run.is_active:
            self.look_later()  # a running driver gets the store's error by itself
        elif isinstance(error, StoreError):
            self._run.set_error(error)

    def _report_look(self, looks_requested: int) -> None:
        """Pass the result of a look on to the run's loop; called on the thread that read."""
        if running_loop() is self._run.home():
            self._looked(looks_requested)
        else:
            self._run.call_soon(partial(self._looked, looks_requested))

    def _looked(self, looks_requested: int) -> None:
        run, state = self._run, self._run.journal.state
        try:
            if isinstance(run.error, StoreError) and state.outcome is None:
                run.set_error(None)
            self._react(state)
            if not (
                run.is_writing or run.journal.unstored_end or isinstance(run.error, StoreError)
            ):
                self._wait = POLL
        finally:
            if self.looks_finished < looks_requested:
                self.looks_finished = looks_requested
                run.notify()

    def _react(self, state: RunState) -> None:
        """Act on the state, and plan the next look."""
        run = self._run
        moved = state.position != run.seen
        if moved:
            run.seen = state.position
            if self._others is not None:
                self._others.moved()
        if run.is_active or run.is_stopping:
            is_timed, again = self._beside_driver(state, moved=moved)
        else:
            again = self._take_turn(state, moved=moved) or runs_elsewhere(run.journal.state)
            is_timed = run.journal.state.status != "interrupted" or runs_elsewhere(
                run.journal.state
            )
        if again and self._timer is None:
            loop, look = run.home(), self._next_look
            self._timer = (
                loop.call_later(POLL, look)
                if is_timed
                else call_when_written(run.journal.store, look, loop)
            )

    def _beside_driver(self, state: RunState, *, moved: bool) -> tuple[bool, bool]:
        """React while a driver runs in this process.

        Returns whether to look again after a fixed time, and whether to look again at all.
        """
        run, end = self._run, state.outcome
        if isinstance(end, RunCancelled | RunFailed) and not (run.is_ending or run.is_stopping):
            run.abandon_bodies()  # somebody else ended the run, so no body gets an answer any more
        elif moved:
            run.drive()
        if run.was_taken:
            run.stop_driving()
        not_here = not run.journal.may_drive
        can_be_taken = run.is_stored and not run.journal.is_notified
        is_timed = runs_elsewhere(state) or not_here
        again = can_be_taken or is_timed
        if again and self._whose_turn(state) == "ours" and not_here:
            self._take()
        return is_timed, again

    def _take_turn(self, state: RunState, *, moved: bool) -> bool:
        """Drive the run if it is this handle's turn; returns whether to look again later."""
        run = self._run
        if state.status == "queued":
            return run.start_or_end_after_previous() or not run.journal.is_notified
        whose = self._whose_turn(state)
        if whose == "ours" and run.is_released:
            whose = "theirs"
        elif whose == "ours":
            if run.journal.may_drive:
                run.drive()
            else:
                self._take()
        elif moved and whose == "nobody's" and is_stuck(state):
            run.set_error(
                RunError(
                    f"Run {run.journal.run_id!r} is not waiting for anything, so it cannot continue. Its journal, or the "
                    "document that it comes from, was changed. Cancel it, or start another run"
                )
            )
        elif moved and whose != "lost":
            end = state.outcome
            is_why = isinstance(end, RunFailed) and end.error == type(run.error).__name__
            run.set_error(run.error if run.was_taken or is_why else None)
        return whose in ("theirs", "lost") or (whose == "nobody's" and not run.journal.is_notified)

    def _whose_turn(self, state: RunState) -> Turn:
        """Decide who drives the run next, and ask about calls whose process has ended."""
        journal, here = self._run.journal, self._run.is_driven_here
        whose = whose_turn(
            *(state, journal.driver, self.others), is_driven_here=here, is_vacant=journal.is_vacant
        )
        if whose == "lost":
            self._ask_about(lost_calls(state, self.others, is_driven_here=here))
        return whose

    # --- taking

    def _take(self) -> None:
        """Store the takeover of a run that nobody drives, then drive. If several handles try, one write counts."""
        run, journal = self._run, self._run.journal
        last = (journal.driver, journal.is_vacant)

        def decide(state: RunState) -> Sequence[StoredEvent]:
            driver, is_vacant = now = (journal.driver, journal.is_vacant)
            if now != last or state.outcome is not None:
                return []
            return takeover_events(state, run.spec, "vacancy" if is_vacant else "silence", driver)

        run.submit_own(partial(journal.submit, decide), self._took_over)

    def _took_over(self, written: Sequence[StoredEvent]) -> None:
        if written:
            self._run.is_released = False
            self._run.drive()
        else:
            self.follow()

    def _ask_about(self, lost: Sequence[ScopedCall]) -> None:
        """Ask for the outcome of calls whose process has ended; see ``lost_call_events``."""
        run = self._run

        def asked(written: Sequence[StoredEvent]) -> None:
            run.call_soon(partial(run.set_error, None))
            if any(isinstance(event, Resolved | ToolFinished) for event in written):
                run.drive()

        decide = partial(lost_call_events, lost=lost, spec=run.spec)
        run.submit_own(partial(run.journal.submit, decide), asked)


def _look(follower: Callable[[], Follower | None]) -> None:
    """Look for new events, unless the handle was garbage-collected."""
    found = follower()
    if found is not None:
        found.look()
