"""Keeps up with what others write to a run, and takes the run where nobody else drives it."""

from __future__ import annotations

import asyncio
import threading
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
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.state.next_step import is_stuck
from nbagent.core.state.state import RunState, Status, running_calls
from nbagent.core.tools.spec import RunSpec

from .follow import (
    POLL,
    RELEASE,
    Lost,
    Turn,
    about_lost,
    lost_calls,
    owners_elsewhere,
    runs_elsewhere,
    taken_over,
    whose_turn,
)
from .heartbeat import Others
from .rounds import Planned, when_written

T = TypeVar("T")

LONGEST = 10.0
"""Seconds between looks at a store that fails, at most; others may tell that it is back before."""


class FollowedRun(Protocol):
    """What a ``Follower`` needs of the run that it follows."""

    spec: RunSpec
    journal: Journal
    error: BaseException | None
    is_stored: bool
    """Whether the run's journal outlives this process."""
    is_active: bool
    """Whether a driver is at work here, or on its way to the loop."""
    is_stopping: bool
    """Whether it is being cancelled."""

    @property
    def state(self) -> RunState:
        """Where the run stands."""

    @property
    def status(self) -> Status:
        """The run's status."""

    @property
    def is_driven_here(self) -> bool:
        """Whether any handle of this process drives the run."""

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the store."""

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""

    def go_on(self) -> None:
        """Let a driver look at the state; from any thread."""

    def lost(self, why: BaseException | None) -> None:
        """Note why the run cannot go on, or that it does; called on its loop."""

    def submit(
        self,
        decide: Decide,
        go_on: Callable[[Sequence[StoredEvent]], None],
        failed: Callable[[BaseException], None],
    ) -> Future[None]:
        """Write what a person decides."""

    def attempt(
        self,
        submit: Callable[[], Future[T]],
        go_on: Callable[[T], object],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Write, or read, what the run does by itself."""

    def notify(self) -> None:
        """Let those who wait for the run look again."""

    def look_at_run_before(self) -> bool:
        """Begin if the run before has ended, or end with it; whether to look again later."""

    def leave_bodies(self) -> None:
        """Leave the bodies that wait for answers nobody can give any more."""

    def give_up(self) -> None:
        """Run nothing more of a run that another process has taken over."""


class Follower:
    """One handle's look at what others do with its run.

    It is told of by the store, or looks again and again while that is needed; not once nobody has the run.
    """

    __slots__ = (
        "__weakref__",
        "_follows",
        "_is_told",
        "_run",
        "_seen",
        "_timer",
        "_wait",
        "is_released",
        "looked_at",
        "news",
        "others",
    )

    def __init__(self, run: FollowedRun) -> None:
        self.others = Others(run.journal.store, run.journal.run_id)
        """What is known of the other processes that hold the run."""
        self._run = run
        self._follows = False
        self._is_told = False
        """Whether the store tells of what others write."""
        self.news = self.looked_at = 0
        """How often it was told to look, and what of that it has looked at."""
        self.is_released = False
        """Whether this handle leaves the run to others, whoever answers it."""
        self._timer: Planned | None = None
        self._seen = -1
        """How long the journal was when it was last looked at."""
        self._wait = POLL
        """Seconds until the next look where the store fails."""

    def follow(self) -> None:
        """Look now, and go on looking while it is needed; from any thread."""
        run = self._run
        if run.journal.store is None:
            return
        if run.journal.state.outcome is not None and not run.journal.owes:
            if (
                self._seen != run.journal.state.position
            ):  # found by who was refused: not all know it yet
                run.call_soon(partial(self._looked, self.news))
            return
        if not self._follows:
            self._hears_of_writes()
        self.news += 1
        try:
            run.home().call_soon_threadsafe(self._next_look)
        except RuntimeError:
            if not run.home().is_closed():
                raise
        # a loop that closed meanwhile: whoever next waits for the run calls this again

    def keep_up(self) -> None:
        """Follow a run that has just paused here: look only where others may have written what is not known here.

        A store in memory calls ``follow`` at each write of another handle; what was written before it was asked to
        do so shows in the number of events that it has.
        """
        journal = self._run.journal
        store, state = journal.store, journal.state
        is_mine = journal.is_driven_here and state.status == "interrupted" and not journal.owes
        if (
            is_mine
            and isinstance(store, MemoryStore)
            and self._hears_of_writes()
            and store.length(journal.run_id) == state.position
        ):
            self._seen = state.position
        else:
            self.follow()

    def look(self) -> None:
        """Take in what others wrote and react; only ever called on the run's loop."""
        run = self._run
        if running_loop() is not run.home():  # it has left that one
            self.follow()
            return
        self.leave()
        news = self.news
        run.attempt(run.journal.look, lambda _: self._has_looked(news), partial(self._unread, news))

    def look_later(self) -> None:
        """The store fails: plan another look, ever later until one succeeds; called on the run's loop."""
        run = self._run
        self.leave()
        loop, wait = run.home(), self._wait
        self._wait = min(2 * wait, LONGEST)
        # a run that waits for an answer alone is looked at for those who have it
        waits = run.journal.state.status == "interrupted" or is_closed(run.journal.store)
        look = partial(_look, weakref.ref(self)) if waits else self.look
        self._timer = loop.call_later(wait, look)

    def watch_on(self) -> None:
        """A driver is at work, and the run may be taken from it; called on the run's loop."""
        run = self._run
        if run.is_stored and self._timer is None and not self._hears_of_writes():
            look = partial(_look, weakref.ref(self))
            self._timer = when_written(run.journal.store, look, run.home())

    def _hears_of_writes(self) -> bool:
        """Whether the store calls ``follow`` when others write; it is asked to the first time."""
        with _lock:
            if not self._follows:
                self._follows, self._is_told = True, self._run.journal.watch(self.follow)
            return self._is_told

    def forget(self) -> None:
        """The loop is closed, and what was planned on it is gone."""
        self._timer = None

    def seen(self) -> None:
        """What the journal has by now is no news."""
        self._seen = self._run.journal.state.position

    def leave(self) -> None:
        """Plan no look any more; called on the loop that has the plan."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def was_taken(self) -> bool:
        """Whether another process has taken the run over, and drives it."""
        journal = self._run.journal
        return journal.taken is not None and not journal.is_driven_here

    @property
    def is_theirs(self) -> bool:
        """Whether another process, as far as is known a living one, goes on with the run."""
        run, driver = self._run, self._run.journal.driver
        if driver in ("", this_process()) or run.is_active or run.journal.state.status != "running":
            return False
        return not self.others.has_ended(driver)

    @property
    def driven_elsewhere(self) -> str:
        """The other living process that drives the run now, or runs a body of it; empty where there is none."""
        run = self._run
        if run.journal.state.outcome is not None:
            return ""
        drives = [run.journal.driver] if run.journal.state.status == "running" else []
        owners = [*drives, *owners_elsewhere(run.journal.state)]
        others = (one for one in owners if one not in ("", this_process()))
        return next((one for one in others if not self.others.has_ended(one)), "")

    def take_over(self) -> Future[None]:
        """Drive the run here from now on, whoever does; what ran there is asked about as lost."""
        run = self._run

        def decide(state: RunState) -> Sequence[StoredEvent]:
            is_over = state.outcome is not None or state.status == "queued"
            is_mine = run.journal.is_driven_here and not runs_elsewhere(state)
            return [] if is_over or is_mine else taken_over(state, run.spec)

        return run.submit(decide, self._took_over, run.lost)

    def release(self) -> Future[None]:
        """Leave the run to whichever process answers it; see ``Run.release``."""
        run = self._run

        def decide(state: RunState) -> Sequence[StoredEvent]:
            if state.outcome is not None or not (run.journal.is_driven_here or self.is_released):
                return []
            busy = [call.name for call in running_calls(state)]
            if state.status != "interrupted" or busy:
                what = f"{', '.join(busy)} still runs" if busy else f"it is {state.status}"
                raise UsageError(
                    f"run {run.journal.run_id!r} cannot be released: {what}. Wait for `await run.settled()`"
                )
            now, here = run.spec.clock(), this_process()
            return [] if self.is_released else [RunTaken(at=now, by=RELEASE, gone=here)]

        def released(written: Sequence[StoredEvent]) -> None:
            if written:
                self.is_released = True
                run.call_soon(run.give_up)

        return run.submit(decide, released, run.lost)

    # --- looking

    @property
    def _next_look(self) -> Callable[[], None]:
        """Looks again, as long as anybody has the run; one that nobody drives is taken whoever has it still."""
        is_due = self._run.journal.is_vacant and self._run.journal.state.status == "running"
        return self.look if is_due else partial(_look, weakref.ref(self))

    def _unread(self, news: int, error: BaseException) -> None:
        """The store cannot be read; or it has no such run, which never began then, and ``error`` says why."""
        self.looked_at = max(self.looked_at, news)
        if self._run.journal.state.outcome is not None:
            self.look_later()
        elif isinstance(error, StoreError):
            self._run.lost(error)

    def _has_looked(self, news: int) -> None:
        """On the thread that looked."""
        if running_loop() is self._run.home():
            self._looked(news)
        else:
            self._run.call_soon(partial(self._looked, news))

    def _looked(self, news: int) -> None:
        run, state = self._run, self._run.journal.state
        try:
            if isinstance(run.error, StoreError) and state.outcome is None:
                run.lost(None)
            self._react(state)
            if not (run.is_writing or run.journal.owes or isinstance(run.error, StoreError)):
                self._wait = POLL
        finally:
            if self.looked_at < news:
                self.looked_at = news
                run.notify()

    def _react(self, state: RunState) -> None:
        """Do what the state asks for, and plan the next look."""
        run = self._run
        moved = state.position != self._seen
        if moved:
            self._seen = state.position
            self.others.moved()
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
                else when_written(run.journal.store, look, loop)
            )

    def _beside_driver(self, state: RunState, *, moved: bool) -> tuple[bool, bool]:
        """React while a driver is at work here; whether to look again by the clock, and at all."""
        run, end = self._run, state.outcome
        is_failure_here = isinstance(end, RunFailed) and end.owner == this_process()
        if isinstance(end, RunCancelled | RunFailed) and not (is_failure_here or run.is_stopping):
            run.leave_bodies()  # somebody else ended it: no body is answered any more
        elif moved:
            run.go_on()
        if self.was_taken:
            run.give_up()
        is_theirs = not run.journal.is_driven_here
        can_be_taken = run.is_stored and not self._is_told
        is_timed = runs_elsewhere(state) or is_theirs
        again = can_be_taken or is_timed
        if again and self._whose_turn(state) == "ours" and is_theirs:
            self._take()
        return is_timed, again

    def _take_turn(self, state: RunState, *, moved: bool) -> bool:
        """Go on with the run where it is this handle's turn; whether to look again later."""
        run = self._run
        if state.status == "queued":
            return run.look_at_run_before() or not self._is_told
        whose = self._whose_turn(state)
        if whose == "ours" and self.is_released:
            whose = "theirs"
        elif whose == "ours":
            if run.journal.is_driven_here:
                run.go_on()
            else:
                self._take()
        elif moved and whose == "nobody's" and is_stuck(state):
            run.lost(_stuck(run.journal.run_id))
        elif moved and whose != "lost":
            run.lost(run.error if self.was_taken or _is_why(run.error, state) else None)
        return whose in ("theirs", "lost") or (whose == "nobody's" and not self._is_told)

    def _whose_turn(self, state: RunState) -> Turn:
        """Who makes the run go on; what became of calls whose process is gone is asked."""
        journal, here = self._run.journal, self._run.is_driven_here
        whose = whose_turn(
            *(state, journal.driver, self.others), is_driven_here=here, is_vacant=journal.is_vacant
        )
        if whose == "lost":
            self._ask_about(lost_calls(state, self.others, is_driven_here=here))
        return whose

    # --- taking

    def _take(self) -> None:
        """Drive a run that nobody drives, once that is written; of several handles that do, one counts."""
        run, journal = self._run, self._run.journal
        last = (journal.driver, journal.is_vacant)

        def decide(state: RunState) -> Sequence[StoredEvent]:
            driver, is_vacant = now = (journal.driver, journal.is_vacant)
            if now != last or state.outcome is not None:
                return []
            return taken_over(state, run.spec, "vacancy" if is_vacant else "silence", driver)

        run.attempt(partial(journal.submit, decide), self._took_over)

    def _took_over(self, written: Sequence[StoredEvent]) -> None:
        if written:
            self.is_released = False
            self._run.go_on()
        else:
            self.follow()

    def _ask_about(self, lost: Sequence[Lost]) -> None:
        """Ask what became of calls whose process is gone; see ``about_lost``."""
        run = self._run

        def asked(written: Sequence[StoredEvent]) -> None:
            run.call_soon(partial(run.lost, None))
            if any(isinstance(event, Resolved | ToolFinished) for event in written):
                run.go_on()

        decide = partial(about_lost, lost=lost, spec=run.spec)
        run.attempt(partial(run.journal.submit, decide), asked)


def _is_why(error: BaseException | None, state: RunState) -> bool:
    """Whether the run has failed with this error."""
    end = state.outcome
    return isinstance(end, RunFailed) and end.error == type(error).__name__


def _stuck(run_id: str) -> RunError:
    return RunError(
        f"Run {run_id!r} is not waiting for anything, so it cannot continue. Its journal, or the document that it "
        "comes from, was changed. Cancel it, or start another run"
    )


_lock = threading.RLock()
"""Held for a moment while a session begins to follow."""


def _look(follower: Callable[[], Follower | None]) -> None:
    """Look what others wrote, unless nobody has the run any more."""
    found = follower()
    if found is not None:
        found.look()
