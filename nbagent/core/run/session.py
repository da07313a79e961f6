"""Who goes on with a run: this handle's own driver, on the run's loop, or others whom it follows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from nbagent.core.base.errors import Conflict, Expired, NotPending, RunError
from nbagent.core.base.events import Interrupted, RunCancelled, RunFailed, StoredEvent
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.call.setup import Hooks
from nbagent.core.call.threads import private_loop, running_loop
from nbagent.core.engine.driver import Driver
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.state.history import paused_messages
from nbagent.core.state.state import RunState, running_calls, status_of
from nbagent.core.tools.spec import RunSpec

from .answers import AnyResolution, expiry_of
from .follow import Follower
from .host import Place
from .scripted_answers import Answers, AnswerSource

_waiters_lock = threading.Lock()
"""One for all: it is held for a moment."""


class Waiters:
    """Futures that are done as soon as what they wait for holds; from any thread."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: tuple[tuple[Callable[[], bool], Future[None]], ...] = ()

    def when(self, holds: Callable[[], bool]) -> Future[None]:
        """Done once ``holds`` does, which is looked at now and whenever somebody notifies."""
        future: Future[None] = Future()
        with _waiters_lock:
            if holds():
                future.set_result(None)
            else:
                self._waiting += ((holds, future),)
        return future

    def notify(self) -> None:
        """Look who has waited long enough."""
        with _waiters_lock:
            ready = [(h, f) for h, f in self._waiting if h()]
            self._waiting = tuple(w for w in self._waiting if w not in ready)
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)


GRACE = 2.0
"""Seconds that a cancelled tool gets to stop."""
TICK = 0.02
"""Seconds between looks at whether it has."""


class Driven(Protocol):
    """One handle on a run, as its drive sees it."""

    def on_progress(self, asked: Sequence[Interrupted]) -> None:
        """The run may have come to a stand, with these new questions; called on its loop."""


class Drive:
    """Drives a run when it is this handle's turn, and follows its journal when it is not.

    Args:
        spec: what the driver needs to know.
        journal: the run's.
        place: where the run lives; the caller's running loop, or the private one, by default.
        values: the tools' own Python objects by call id, to be added to.
        run: who is told.
    """

    def __init__(
        self,
        spec: RunSpec,
        journal: Journal,
        place: Place,
        *,
        values: dict[str, Any],
        run: Driven,
    ) -> None:
        self.loop = place.loop or running_loop() or private_loop()
        self.error: BaseException | None = None
        """Why the run cannot go on here."""
        self.active = False
        """Whether a driver is at work, or on its way to the loop."""
        self.stopping = False
        """Whether the run is being cancelled: no answer is taken and no driver started any more."""
        self.on_new_loop: Callable[[], None] | None = None
        """Told when the run moves to another loop, where what was scheduled before is lost."""
        self._spec = spec
        self._journal = journal
        self._host = place.host
        self._values = values
        self._run = run
        self._driver: Driver | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether to drive again once the driver that was stopped has ended."""
        self._follower: Follower | None = None

    # --- where

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on; another one once that is closed."""
        with _lock:
            if self.loop.is_closed():
                self.loop = running_loop() or private_loop()
                self._driver = self._task = None
                if self.on_new_loop is not None:
                    self.on_new_loop()
            return self.loop

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""
        self.home().call_soon_threadsafe(work)

    def revive(self) -> None:
        """Go on elsewhere if the run's loop was closed under it."""
        if not self.loop.is_closed():
            return
        if self.active or self._was_cut_off():  # it closed before the driver got there
            self.go_on()
        elif self.error is None:
            self.follow()

    def _was_cut_off(self) -> bool:
        """Whether its loop stopped while it went on, but while no body ran, so that it can go on."""
        state = self._journal.state
        stopped = self.error is not None and status_of(state) == "running"
        return stopped and not running_calls(state)

    # --- driving

    def go_on(self) -> None:
        """Let a driver look at the state; from any thread."""
        self.active = True
        while True:
            loop = self.home()
            if running_loop() is loop:
                self._drive()
                return
            try:
                loop.call_soon_threadsafe(self._drive)
            except RuntimeError:
                if not loop.is_closed():
                    raise
            else:
                return

    def _drive(self) -> None:
        """Start a driver, or wake the one at work. Only ever called on the run's loop."""
        if self._task is not None and not self._task.done() and self._driver is not None:
            self._again |= self._driver.stopped  # a retry came while it was still ending
            self._driver.wake()
            return
        if self.stopping:
            return
        self.active, self.error = True, None
        hooks = Hooks(self._paused, self._idle, self._host.present)
        self._driver = Driver(self._spec, self._journal, live=True, hooks=hooks)
        self._driver.values = self._values
        name = f"nbagent run {self.run_id}"
        self._task = self.loop.create_task(self._driver.drive(), name=name)
        _driven.add(self)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = _error_of(task)
        over = self._journal.state.outcome is not None
        if error is not None and not (task.cancelled() and (self.stopping or over)):
            self.error = error
        if task is not self._task:  # an answer came as it ended, and another is at work by now
            return
        self._driver = self._task = None  # a paused run is data
        self.active = False
        _driven.discard(self)
        if self._again:
            self._again, self.error = False, None
            self._drive()
            return
        self._run.on_progress(())
        if error is None:
            self.follow()

    def _paused(self, event: Interrupted) -> None:
        self._run.on_progress((event,))
        self.follow()

    def _idle(self) -> None:
        self._run.on_progress(())

    # --- following

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._journal.run_id

    def follow(self) -> None:
        """Keep up with what others write to the run, and go on with it where nobody else does."""
        if self._journal.store is None or self._journal.state.outcome is not None:
            return
        with _lock:
            if self._follower is None:
                self._follower = Follower(self._journal, self)
        self._follower.follow()

    def is_driving(self) -> bool:
        """Whether this handle's driver is at work, or on its way to the loop."""
        return self.active or self.stopping

    def is_driven_here(self) -> bool:
        """Whether the driver of any handle in this process is at work."""
        return any(drive.run_id == self.run_id for drive in set(_driven))

    def on_change(self, lost: BaseException | None) -> None:
        """The state is another by now, or ``lost`` says why the run cannot go on."""
        self.error = lost
        self._run.on_progress(self._journal.state.pending)

    # --- stopping

    def stop(self, *, by: str) -> Future[None]:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        self.stopping = True
        loop = self.home()
        if loop is not running_loop() or self._task is not None:
            return asyncio.run_coroutine_threadsafe(self._stop(by), loop)
        self._cancelled(by)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def _stop(self, by: str) -> None:
        driver, task = self._driver, self._task
        if driver is None or task is None:
            self._cancelled(by)
            return
        driver.stop()
        task.cancel()
        try:
            await _bodies_end(driver, task)
        finally:
            self._cancelled(by, driver.running_bodies)

    def _cancelled(self, by: str, still_running: tuple[str, ...] = ()) -> None:
        event = RunCancelled(at=self._spec.clock(), by=by, still_running=still_running)
        self._journal.end(event)
        self.active = self.stopping = False  # one that had failed already may be tried again
        self._run.on_progress(())

    def abandon(self, error: BaseException | None = None) -> None:
        """The run has ended: leave the bodies that wait for answers nobody can give any more."""
        if error is not None:
            self.error = error
        self.call_soon(self._abandon)

    def _abandon(self) -> None:
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            self._task.cancel()
        else:
            self.active = False
        self._run.on_progress(())


_lock = threading.RLock()
"""Held for a moment while a drive moves to another loop, or begins to follow."""
_driven: set[Drive] = set()
"""Drives with a driver at work: an event loop alone keeps no task alive."""


async def _bodies_end(driver: Driver, task: asyncio.Task[None]) -> None:
    """Wait until a cancelled driver and the bodies it started have ended, or the grace is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + GRACE
    await asyncio.wait([task], timeout=GRACE)
    for _ in range(int(GRACE / TICK)):  # threads tell nobody that they end
        if not driver.running_bodies or loop.time() >= until:
            return
        await asyncio.sleep(TICK)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if task.cancelled():
        return RunError("the event loop that the run lived on stopped while the run went on")
    return task.exception()


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


class Asking(Protocol):
    """A run that asks."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer."""

    def resolve(self, interrupt: str, resolution: AnyResolution, *, by: str) -> object:
        """Settle an interrupt."""


class Unattended:
    """Looks at each question of one run once, on the run's loop."""

    def __init__(self, answers: Answers, run: Asking, drive: Drive, waiters: Waiters) -> None:
        self.wrong: dict[str, Exception] = {}
        """What was wrong with an answer, by interrupt id."""
        self.undecided: set[str] = set()
        """Interrupts that may have an answer, but were not looked at yet."""
        self._script = AnswerSource(answers)
        self._run = run
        self._drive = drive
        self._waiters = waiters
        drive.on_new_loop = self._begin_again

    def hear(self, heard: RunEvent) -> None:
        """Take up a question; for a journal to tell of them."""
        if isinstance(heard, Interrupted):
            self.look_at(heard.id)

    def look_at(self, interrupt_id: str) -> None:
        """Take up this question."""
        self.undecided.add(interrupt_id)
        self._drive.call_soon(partial(self._look, interrupt_id))

    def _look(self, interrupt_id: str) -> None:
        for interrupt in self._run.interrupts:
            if interrupt.id == interrupt_id:
                try:
                    resolution = self._script.next(interrupt)
                    if resolution is not None:
                        self._run.resolve(interrupt_id, resolution, by="answers=")
                except Exception as error:  # for whoever awaits the run, which stays paused
                    self.wrong[interrupt_id] = error
        self.undecided.discard(interrupt_id)
        self._waiters.notify()

    def _begin_again(self) -> None:
        for interrupt_id in list(self.undecided):
            self._drive.call_soon(partial(self._look, interrupt_id))
