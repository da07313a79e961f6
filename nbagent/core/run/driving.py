"""The driver of a session: begun when there is something to do, woken by answers, gone at a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from nbagent.core.base.errors import RunError
from nbagent.core.base.events import Interrupted
from nbagent.core.call.setup import Hooks
from nbagent.core.call.threads import interruption, running_loop
from nbagent.core.engine.driver import Driver
from nbagent.core.journal.default import is_same_place
from nbagent.core.journal.journal import Journal, Unsaid
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from . import heartbeat
from .host import Host

GRACE = 2.0
"""Seconds that a cancelled tool gets to stop."""
TICK = 0.02
"""Seconds between looks at whether it has."""


class DrivenRun(Protocol):
    """What ``Driving`` needs of the run that is driven."""

    spec: RunSpec
    journal: Journal
    host: Host
    values: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    error: BaseException | None

    @property
    def state(self) -> RunState:
        """Where the run stands."""

    @property
    def is_stopping(self) -> bool:
        """Whether the run is being cancelled."""

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on."""

    def paused(self, event: Interrupted) -> None:
        """A question waits from now on."""

    def progressed(self) -> None:
        """The run may have come to a stand."""

    def driven(self) -> None:
        """A driver is at work from now on."""

    def undriven(self, error: BaseException | None) -> bool:
        """It has ended with this error, or well; whether another process has taken the run."""

    def cut_off(self, unsaid: Unsaid) -> None:
        """Ctrl+C has ended the driver with the program's loop, and what it was about to say."""

    def follow(self) -> None:
        """Keep up with what others write."""


class Driving:
    """The driver of one session, where one is at work. All but ``go_on`` is for the run's loop."""

    __slots__ = ("_again", "_driver", "_run", "_task", "_was_interrupted", "is_active")

    def __init__(self, run: DrivenRun) -> None:
        self.is_active = False
        """Whether a driver is at work, or on its way to the loop."""
        self._run = run
        self._driver: Driver | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether to drive again once the driver that was stopped has ended."""
        self._was_interrupted: Callable[[], bool] = bool
        """Whether Ctrl+C has told the program to end."""

    @property
    def has_begun(self) -> bool:
        """Whether a driver has come to the loop, and was not let go of yet."""
        return self._task is not None

    @property
    def decides(self) -> bool:
        """Whether what is asked may yet be answered by the body that asks, or is not asked yet."""
        return self._driver is None or self._driver.decides

    @property
    def left_bodies(self) -> tuple[str, ...]:
        """The calls of which nobody knows what they came to, as their bodies were abandoned."""
        return () if self._driver is None else self._driver.left_bodies

    @property
    def unsaid(self) -> Unsaid:
        """Gives what the model has said of a response that the end of the run cuts off; also once the driver is gone."""
        return _unsaid_of(self._driver)

    def is_of(self, run_id: str, store: object) -> bool:
        """Whether it drives this run of this store."""
        journal = self._run.journal
        return journal.run_id == run_id and is_same_place(journal.store, store)

    def go_on(self) -> None:
        """Let a driver look at the state; from any thread."""
        self.is_active = True
        while True:
            loop = self._run.home()
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

    def give_up(self) -> None:
        """Run nothing more of a run that another process has taken over."""
        if self._driver is not None and self._task is not None and not self._driver.stopped:
            self._driver.stop()
            self._task.cancel()

    def leave(self) -> None:
        """Leave the bodies that wait for answers nobody can give any more: the run has ended."""
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            self._task.cancel()
        else:
            self.is_active = False

    def rest(self) -> None:
        """The run is cancelled: nothing is on its way to the loop any more."""
        self.is_active = False

    def forget(self) -> None:
        """The loop is closed, and the driver gone with it."""
        self._driver = self._task = None

    async def end(self) -> tuple[str, ...]:
        """Stop the driver and its bodies, as far as they let themselves be; gives ``left_bodies``."""
        driver, task = self._driver, self._task
        if driver is None or task is None:
            return ()
        driver.stop()
        task.cancel()
        await _bodies_end(driver, task)
        return driver.left_bodies

    def _drive(self) -> None:
        """Start a driver, or wake the one at work. Only ever called on the run's loop."""
        run = self._run
        if self._task is not None and not self._task.done() and self._driver is not None:
            self._again |= self._driver.stopped  # a retry came while it was still ending
            run.error = None
            self._driver.wake()
            return
        if run.is_stopping:
            return
        self.is_active, run.error = True, None
        hooks = Hooks(run.paused, run.progressed, run.host.present, run.host.on_main)
        self._driver = Driver(run.spec, run.journal, live=True, hooks=hooks)
        self._driver.values = run.values
        name = f"nbagent run {run.journal.run_id}"
        self._task = run.loop.create_task(self._driver.drive(), name=name)
        self._was_interrupted = interruption()
        _at_work.add(self)
        self._task.add_done_callback(self._ended)
        end = heartbeat.begin(run.journal.store)
        self._task.add_done_callback(lambda _: end())
        run.driven()

    def _ended(self, task: asyncio.Task[None]) -> None:
        run, error = self._run, _error_of(task)
        over = run.state.outcome is not None
        is_end = task.cancelled() and (run.is_stopping or over)
        was_taken = run.undriven(None if is_end else error)
        if task is not self._task:  # an answer came as it ended, and another is at work by now
            return
        was_interrupted, self._was_interrupted = self._was_interrupted, bool
        driver, self._driver, self._task = self._driver, None, None  # a paused run is data
        self.is_active = False
        _at_work.discard(self)
        if task.cancelled() and not run.is_stopping and was_interrupted():
            self._again, run.error = False, None
            run.cut_off(_unsaid_of(driver))
            return
        again, self._again = self._again and not over, False  # an end is not gone on with
        if again:
            run.error = None
            self._drive()
            return
        run.progressed()
        if error is None or was_taken:
            run.follow()


_at_work: set[Driving] = set()
"""Those with a driver at work: an event loop alone keeps no task alive."""


def is_driven_here(run_id: str, store: object) -> bool:
    """Whether any handle of this process drives a run."""
    return any(one.is_of(run_id, store) for one in set(_at_work))


async def _bodies_end(driver: Driver, task: asyncio.Task[None]) -> None:
    """Wait until a cancelled driver and the bodies it started have ended, or the grace is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + GRACE
    await asyncio.wait([task], timeout=GRACE)
    for _ in range(int(GRACE / TICK)):  # threads tell nobody that they end
        if not driver.running_bodies or loop.time() >= until:
            return
        await asyncio.sleep(TICK)


def _unsaid_of(driver: Driver | None) -> Unsaid:
    return tuple if driver is None else partial(driver.cut_off, "stopped")


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if task.cancelled():
        return RunError("the event loop that the run lived on stopped while the run went on")
    return task.exception()
