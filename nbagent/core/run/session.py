"""The work behind one ``Run``: its event loop, its driver and all its operations.

``Run`` is the public handle; the engine and the notebook use its session. A session drives the run on the run's
loop: the driver starts when there is something to do, is woken by answers, and ends at a pause. While another
process or another handle drives the run, the session follows the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from nbagent.core.base.errors import (
    Conflict,
    Expired,
    NbagentError,
    NotPending,
    RunError,
    StoreError,
    UsageError,
)
from nbagent.core.base.events import (
    Interrupted,
    Resolved,
    RowOf,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunRetried,
    RunTaken,
    StoredEvent,
    ToolFinished,
)
from nbagent.core.base.file_parts import Content, check_room, in_words
from nbagent.core.base.interrupts import EXPIRY, PendingInterrupt
from nbagent.core.base.messages import EMPTY, Message, freeze
from nbagent.core.base.process import fork_safe, this_process
from nbagent.core.base.user import this_user, user_behind
from nbagent.core.call.setup import RunHooks
from nbagent.core.call.threads import (
    is_blocked,
    keyboard_interrupt_check,
    private_loop,
    running_loop,
)
from nbagent.core.engine.driver import Driver, fetch_tools_of_questions, run_started
from nbagent.core.engine.runs import StartedRuns
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import is_closed, is_same_place
from nbagent.core.journal.journal import (
    CutOff,
    Decide,
    Journal,
    chained,
    finished,
    is_slow,
    under_way,
)
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.journal.store import RunDeleted
from nbagent.core.journal.unwritten import forget_unwritten, unwritten_of
from nbagent.core.state.fork import forked
from nbagent.core.state.next_step import CallModel, is_stuck, next_step
from nbagent.core.state.pause_record import closed_messages, paused_messages
from nbagent.core.state.retried_calls import check_known
from nbagent.core.state.state import RunState, Status, running_calls, waits_in_body
from nbagent.core.tools.kept_history import History
from nbagent.core.tools.rule_check import all_known
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

from . import heartbeat
from .answers import (
    TIME_IS_OVER,
    AnyResolution,
    Stamp,
    TimeIsOver,
    answer,
    check_open,
    interrupts_of,
    next_driver,
    remember,
)
from .generate import beginning, message_queued, rejected
from .host import Place, started
from .lost_calls import (
    RELEASE,
    ScopedCall,
    Turn,
    lost_call_events,
    lost_calls,
    owners_elsewhere,
    partial_response_events,
    runs_elsewhere,
    taken_over_error,
    takeover_events,
    whose_turn,
)
from .polling import POLL, Planned, call_when_written
from .scripted_answers import Answerer, AnswerKeeper, AnswerRecording, Answers, AnswerSource

T = TypeVar("T")
R = TypeVar("R")
Holds: TypeAlias = Callable[[], bool]
"""Returns True once the wait is over; must be fast and thread-safe."""
Waited: TypeAlias = Future[BaseException | None]
"""A wait. Its result is None, or the error of an answer that could not be stored, which also ends the wait."""

GRACE = 2.0
"""Seconds that a cancelled tool gets to stop."""
STOP_CHECK = 0.02
"""Seconds between checks whether a cancelled tool has stopped."""
CLOCK_CHECK = 60.0
"""The maximum seconds between checks of the clock while a question has a deadline."""
DEADLINE_RETRY = 1.0
"""Seconds until a deadline is applied again, for example after the store failed, or while another call of the run still runs."""
LONGEST_LOOK = 10.0
"""Longest time between two looks at a failing store, in seconds."""
FEW_MESSAGES = 8
"""Messages of a history that a paused run does not keep encoded; a long history would take long to encode again."""
NO_CONTEXT = Context()
"""The context of all runs that were started where no context variable is set; never entered."""

logger = logging.getLogger("nbagent")


class Session:
    """The work behind one ``Run``.

    Args:
        spec: the run's settings for the driver.
        journal: the run's journal.
        place: the run's host and loop; by default the caller's running loop, or the private loop.
        answers: the answers to questions if no person can answer.
        values: the tools' own Python objects by call id; in memory only.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_deadline_check",
        "_driver",
        "_drives_again",
        "_first_write",
        "_follower",
        "_scripted",
        "_stopped",
        "_task",
        "_unwritten",
        "_waiting",
        "_was_keyboard_interrupt",
        "attended",
        "before",
        "error",
        "handle",
        "host",
        "is_active",
        "is_released",
        "is_stopping",
        "is_stored",
        "journal",
        "loop",
        "missing_error",
        "moved_on",
        "queued_sessions",
        "run_id",
        "seen",
        "spec",
        "values",
        "when_started",
    )

    _driver: Driver | None
    _task: asyncio.Task[None] | None
    _first_write: Future[Any] | None
    when_started: Future[Any] | None
    """Done once the first event is stored, or is refused; None if it was stored at once."""
    missing_error: BaseException | None
    """The error if the store does not have the run: its first event was not stored, or the run was deleted."""
    moved_on: MovedMessage | None
    """A message that this run could no longer take; None if there was no such message."""

    def __init__(  # noqa: PLR0915 - one statement for each part of the state
        self,
        spec: RunSpec,
        journal: Journal,
        place: Place,
        *,
        answers: Answers = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = spec
        self.journal = journal
        self.run_id = journal.run_id
        self.is_stored = not isinstance(journal.store, MemoryStore)
        """Whether the run's journal outlives this process."""
        self.host = place.host
        self.attended = place.attended
        self.loop = place.loop or running_loop() or private_loop()
        """The run's event loop."""
        self.handle: Callable[[], Any] = _no_handle
        """Returns the ``Run`` object of this session, or None once it was garbage-collected."""
        context = copy_context()
        self._context = context if len(context) else NO_CONTEXT
        """The context variables of the code that started or opened the run; each driver of the run gets a copy."""
        self.error: BaseException | None = None
        """The error that keeps the run from continuing in this process."""
        self.values: dict[str, Any] = dict(values) if values else EMPTY
        self.is_active = False
        """Whether a driver is running, or scheduled on the loop."""
        self._driver = self._task = self._first_write = None
        self.when_started = self.missing_error = self.moved_on = None
        self._drives_again = False
        """Whether to start a new driver once the stopped driver has ended."""
        self._was_keyboard_interrupt: Callable[[], bool] = bool
        """Returns True if Ctrl+C is ending the program."""
        self.is_stopping = False
        """Whether the run is being cancelled: answers are refused, and no driver starts."""
        self._stopped: Future[None] | None = None
        """The cancellation in progress; None if there is none."""
        self._unwritten: tuple[Future[Any], ...] = ()
        """Writes that the store has not confirmed yet."""
        self._waiting: tuple[tuple[Holds, Waited], ...] = ()
        self._deadline_check: tuple[float, asyncio.TimerHandle] | None = None
        """The time of the next check of deadlines, and its timer; used only on the run's loop."""
        self.before: PreviousRun | None = None
        """The previous run, while this one is queued."""
        self.queued_sessions: tuple[Session, ...] = ()
        """Runs that are queued behind this one; each is notified when this one changes."""
        self._follower: Follower | None = None
        self.is_released = False
        """Whether this handle has released the run. Then the process that answers drives the run."""
        self.seen = -1
        """The number of events to which this handle has reacted."""
        self._scripted: Answerer | None = None
        kept: AnswerRecording | None = hooks.answer_recording_of(spec.model)
        if not place.attended and (answers is not None or kept is not None):
            self._scripted = Answerer(AnswerSource(answers), kept, self)
            journal.subscribe(self._scripted.on_event)
        if kept is not None:
            keeper = AnswerKeeper(kept)
            for event in journal.subscribe(keeper.on_event):
                keeper.add_past_event(event)
        with _lock:
            _sessions.add(self)
        for watch in hooks.live_runs:
            watch(self)

    # --- the state of the run

    @property
    def state(self) -> RunState:
        """The run's state, as far as this process has read it."""
        return self.journal.state

    @property
    def status(self) -> Status:
        """The run's status."""
        return self.journal.state.status

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open interrupts in call order, also while other calls still run."""
        state = self.journal.state
        if state.outcome or not state.questions:
            return []
        return interrupts_of(state, self.spec.tools, self.spec.agent)

    @property
    def follower(self) -> Follower:
        """Reacts to what other handles and processes do with the run; made when it is first needed."""
        with _lock:
            if self._follower is None:
                self._follower = Follower(self)
            return self._follower

    @property
    def was_taken(self) -> bool:
        """Whether another process has taken the run over and drives it."""
        return self.journal.taken is not None and not self.journal.may_drive

    @property
    def executing(self) -> list[str]:
        """The names of the tools whose bodies run now."""
        return [call.name for call in self.state.calls.values() if call.status == "running"]

    @property
    def awaited(self) -> str:
        """The processes that the run waits for and that cannot be checked or were silent, in words; may be empty."""
        return (
            self.follower.others.awaited if self.status == "running" and self.error is None else ""
        )

    def tool(self, name: str) -> Tool[..., Any] | None:
        """The registered tool of this name, as it is defined now."""
        return self.spec.tools.get(name)

    def in_context(self, work: Callable[[], object]) -> None:
        """Call ``work`` in the context of which each driver of the run gets a copy, to set context variables there."""
        if self._context is NO_CONTEXT:
            self._context = Context()
        self._context.run(work)

    def why_not_pending(self, interrupt_id: str) -> str:
        """The reason why an interrupt takes no answer: who answered it, and when."""
        try:
            check_open(self.state, interrupt_id)
        except (NotPending, Conflict) as error:
            return str(error)
        return f"interrupt {interrupt_id!r} is waiting for an answer"

    # --- starting

    def start(
        self,
        messages: Sequence[Message],
        *,
        after: str | None = None,
        on_started_elsewhere: Callable[[], None] | None = None,
        cell: str = "",
        row: RowOf | None = None,
    ) -> None:
        """Write the first event and start the driver.

        Args:
            messages: the history.
            after: the run whose conversation this one continues.
            on_started_elsewhere: called if another process has started the run; this handle then follows it.
            cell: the id of the notebook cell that starts the run.
            row: the row of a batch that the run belongs to.

        Raises:
            Conflict: the store has a run of this id, and ``on_started_elsewhere`` is not given.
        """
        now = self.spec.clock()
        started = run_started(self.spec, messages, now, after=after, cell=cell, row=row)

        def decide(state: RunState) -> list[StoredEvent]:
            if not state.position:
                return [started]
            if on_started_elsewhere is None:
                raise Conflict(
                    f"The run {self.run_id!r} was started elsewhere in the meantime. Open it, or its chat, again"
                )
            return []

        def written(events: Sequence[StoredEvent]) -> None:
            if events or on_started_elsewhere is None:
                self._start_driving()
            else:
                on_started_elsewhere()
                self.follow_stored()

        self.begin(self.journal.submit(decide), written)

    def start_behind(self, before: Session, prompt: Content) -> None:
        """Store the prompt, and start if the previous run completes.

        Raises:
            UsageError: the prompt's files are too large.
        """
        check_room((), prompt)
        event = RunQueued(
            at=self.spec.clock(),
            agent=self.spec.agent,
            model=self.spec.model_name,
            after=before.run_id,
            text=in_words(prompt),
            content=None if isinstance(prompt, str) else tuple(map(freeze, prompt)),
            elsewhere=not is_same_place(before.journal.store, self.journal.store),
        )

        def queued(_events: Sequence[StoredEvent]) -> None:
            self._queue_behind(before)
            self.follow()

        write = partial(self.journal.submit, lambda _state: [event])
        # a store refuses a reference to a run that it does not have yet
        before_write = before.first_write
        self.begin(write() if before_write is None else chained(before_write, write), queued)

    def fail_to_start(self, error: BaseException) -> None:
        """Note that the run's first event was not stored."""
        self.missing_error = error
        self.set_error(error)

    @property
    def first_write(self) -> Future[Any] | None:
        """A future of the first event's write; None if no such write is pending."""
        return None if self.journal.state.position else self._first_write

    def expect_start(self) -> None:
        """Note that the first event is written later, after the store was read."""
        self._first_write = self.when_started = under_way()

    def note_started(self, error: BaseException | None = None) -> None:
        """Note that the store has the first event, or that the run cannot start."""
        if error is not None:
            self.missing_error = error  # now, on the thread that writes: before any later write
        with _tuples_lock:
            expected, self._first_write = self._first_write, None
        if expected is not None and error is None:
            expected.set_result(None)
        elif expected is not None:
            expected.set_exception(error)

    def begin(self, first_write: Future[T], on_written: Callable[[T], None]) -> None:
        """Call ``on_written`` once the write of the first events is done; without them, the run cannot start."""
        if not first_write.done() and self._first_write is None:
            self.expect_start()
        if self._first_write is not None:
            first_write.add_done_callback(lambda done: self.note_started(done.exception()))
        self.then(first_write, on_written, self.fail_to_start)

    def _start_driving(self) -> None:
        if self.journal.state.questions:
            self._watch_pending()
        self.drive()

    def follow_stored(self) -> None:
        """Follow a run that was read from its store, and watch the deadlines of its open questions.

        If an answer to a question needs the tools of a server, they are fetched first.
        """
        if self._scripted is not None:
            self._scripted.may_be_foreign = False
        if not self.journal.state.questions or all_known(self.spec.tools):
            self._watch_stored()
            return
        fetched = fetch_tools_of_questions(self.spec, self.journal.state)
        self.submit_own(
            lambda: asyncio.run_coroutine_threadsafe(fetched, self.home()),
            lambda _: self._watch_stored(),
            self._not_fetched,
        )

    def _not_fetched(self, error: BaseException) -> None:
        logger.warning("%s", error)  # other questions of the run can be answered
        self._watch_stored()

    def _watch_stored(self) -> None:
        self._watch_pending()
        self.follow()

    def _watch_pending(self) -> None:
        """Watch the deadlines of questions that are already open, and look for their scripted answers."""
        for event in self.journal.state.pending:
            self.call_soon(partial(self._watch, event))
            if self._scripted is not None:
                self._scripted.look_at(event.id)

    def retry(self, history: History = None) -> None:
        """Continue after a failure; see ``Run.retry``."""
        event = RunRetried(at=self.spec.clock(), by="code", owner=this_process(), user=this_user())

        def decide(state: RunState) -> list[StoredEvent]:
            if not isinstance(state.outcome, RunFailed):
                raise UsageError(
                    f"Only a failed run can be retried, and this one is {state.status}"
                )
            return [event, *self._results_not_stored(state, state.outcome)]

        def retried(_events: object) -> None:
            if history is not None:
                self.spec = replace(self.spec, history=history)
            forget_unwritten(self.run_id)
            self.error = None
            for waiting in self.journal.state.pending:
                self.call_soon(partial(self._watch, waiting))
            self.drive()

        self.submit(decide, retried, self._not_retried)

    def _not_retried(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self.set_error(error)
            return
        logger.warning("run %s could not be retried: %s", self.run_id, error)
        self.follow()

    def fork(self, at: str | StoredEvent | None) -> Session:
        """An independent run that continues from the current state, or from ``at``; see ``Run.fork``."""
        spec, state = self.spec, self.journal.state
        events = forked(self.journal.read(), at, spec.new_id, spec.clock())
        if at is None and isinstance(state.outcome, RunFailed):
            events += self._results_not_stored(state, state.outcome)
        journal = Journal(spec.new_id(), self.journal.store)
        place = Place(self.host, self.attended, self.loop)
        made = Session(spec, journal, place, values=self.values)
        made.begin(journal.submit(lambda _state: events), lambda _events: made.follow_stored())
        return made

    def _results_not_stored(self, state: RunState, failed: RunFailed) -> Sequence[StoredEvent]:
        """Tool results that could not be stored before; raises an error if such results are unknown."""
        check_known(state, failed)
        return unwritten_of(self.run_id, state)

    # --- queued behind another run

    def _queue_behind(self, before: Session) -> None:
        self.before = PreviousRun(before.journal, before)
        with _tuples_lock:
            before.queued_sessions += (self,)

    def _leave_queue(self) -> None:
        """Forget the previous run, unless this run waits for it, or may wait for it again after a failure."""
        state, before = self.journal.state, self.before
        if before is None or not state.position:
            return
        if state.queue_event is not None and not isinstance(state.outcome, RunCancelled):
            return
        self.before = None
        if before.session is not None:
            with _tuples_lock:
                before.session.queued_sessions = tuple(
                    one for one in before.session.queued_sessions if one is not self
                )

    def first_in_queue(self) -> PreviousRun | None:
        """The run at the front of the queue; None if this one is not queued."""
        before = [one.before for one in self._queue() if one.status == "queued" and one.before]
        return before[-1] if before else None

    def _queue(self) -> Iterator[Session]:
        """This run and the runs before it in the queue, as far as this process has their sessions."""
        one: Session | None = self
        while one is not None:
            yield one
            before = one.before if one.status == "queued" else None
            one = None if before is None else before.session

    def start_or_end_after_previous(self) -> bool:
        """Start this run if the previous run completed, or end it in the same way; returns whether to look again.

        Called on the run's loop.
        """
        try:
            before = self._run_before()
        except (StoreError, UsageError) as error:
            self.set_error(error)
            return False
        if before.session is not None:
            self._start_or_end_with(before)
            return False
        decide_on_loop = partial(self.call_soon, partial(self._start_or_end_with, before))
        self.submit_own(before.journal.look, lambda _: decide_on_loop())
        return self.journal.state.status == "queued" and self.error is None

    def _run_before(self) -> PreviousRun:
        """The previous run; only its journal if this process has no session of it."""
        queued = self.journal.state.queue_event
        if self.before is None and queued is not None:
            waited_for = find_session(queued.after, self.journal.store)
            if waited_for is not None:
                self._queue_behind(waited_for)
            else:
                self.before = PreviousRun(Journal(queued.after, self.journal.store))
                self.before.journal.watch(self)
        assert self.before is not None  # called only while queued
        return self.before

    def _start_or_end_with(self, before: PreviousRun) -> None:
        """Start or end, depending on the previous run. If several handles do so, one write counts."""

        def written(events: Sequence[StoredEvent]) -> None:
            if events and self.journal.state.outcome is None:
                self._start_driving()
            self.progressed()

        decide = partial(queued_run_events, before=before.state, spec=self.spec)
        self.submit_own(partial(self.journal.submit, decide), written)

    # --- writing

    def then(
        self,
        written: Future[T],
        on_written: Callable[[T], R],
        failed: Callable[[BaseException], None] | None = None,
    ) -> Future[R]:
        """Call ``on_written`` once ``written`` is done: now, or later on the thread that writes.

        A later failure becomes the run's ``error``, or goes to ``failed`` on the run's loop.

        Raises:
            Exception: the write has already failed.
        """
        if written.done():
            return finished(on_written(written.result()))
        after: Future[R] = under_way()
        with _tuples_lock:
            self._unwritten += (after,)

        def over() -> None:
            with _tuples_lock:
                self._unwritten = tuple(one for one in self._unwritten if one is not after)
            self.notify()

        def fail(error: BaseException) -> None:
            try:
                (failed or self.set_error)(error)
            finally:
                over()

        def settle(done: Future[T]) -> None:
            try:
                after.set_result(on_written(done.result()))
            except BaseException as error:
                # the session is not settled until ``fail`` has run, which is before code that awaits ``after`` goes on
                self.call_soon(partial(fail, error))
                after.set_exception(error)
            else:
                over()

        written.add_done_callback(settle)
        return after

    def submit_own(
        self,
        submit: Callable[[], Future[T]],
        on_written: Callable[[T], object],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Like ``then``, for a write or read that the run itself starts, on its loop.

        ``failed`` also receives an error of ``submit``.
        """
        try:
            self.then(submit(), on_written, failed)
        except (StoreError, UsageError) as error:
            (failed or self.set_error)(error)

    def submit(
        self,
        decide: Decide,
        on_written: Callable[[Sequence[StoredEvent]], R],
        failed: Callable[[BaseException], None],
    ) -> Future[R]:
        """Write a person's decision. If the write is refused, check whether others have continued the run."""
        try:
            return self.then(self.journal.submit(decide), on_written, failed)
        except Exception:
            self.follow()
            raise

    @property
    def is_writing(self) -> bool:
        """Whether a write is pending."""
        return bool(self._unwritten)

    # --- the event loop

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call ``work`` on the run's loop; from any thread."""
        self.home().call_soon_threadsafe(work)

    def home(self) -> asyncio.AbstractEventLoop:
        """The run's event loop; a new one if the old one is closed."""
        with _lock:
            if self.loop.is_closed():  # its tasks ended with the loop
                self._driver = self._task = None
                self._stopped = self._deadline_check = None
                if self._follower is not None:
                    self._follower.cancel_look()
                self._move_to(running_loop() or private_loop())
            return self.loop

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        loop.call_soon_threadsafe(self._apply_and_watch)
        if self._scripted is not None:
            self._scripted.look_again()

    def move_off_this_loop(self) -> bool:
        """Move this run and the runs before it in the queue to the private loop, before the caller blocks this thread.

        Returns False if one of them is busy on this thread's loop, or if this thread's loop is the private loop.
        """
        loop = running_loop()
        here = [one for one in self._queue() if loop is not None and one.loop is loop]
        if here and (loop is private_loop() or any(one.is_at_work for one in here)):
            return False
        for one in here:
            one.move()
        return True

    def move(self) -> None:
        """Move the run to the private loop; called on the run's old loop while the run is idle."""
        if self._follower is not None:
            self._follower.cancel_look()
        if self._deadline_check is not None:
            self._deadline_check[1].cancel()
            self._deadline_check = None
        with _lock:
            self._move_to(private_loop())
        self.follow()

    @property
    def is_at_work(self) -> bool:
        """Whether a driver is running or a write is pending."""
        return self.is_active or self._task is not None or self.is_writing

    # --- driving

    def is_driven_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task is the run's driver."""
        return task is not None and self._task is task

    def drive(self) -> None:
        """Start or wake the driver; from any thread."""
        if self.journal.state.status == "queued":  # a retried run waits for its previous run
            self.follow()
            return
        self.is_active = True
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
        """Start a driver, or wake the one that is running. Called only on the run's loop."""
        if self._task is not None and not self._task.done() and self._driver is not None:
            self.error = None
            # a retry, or an answer after `Run.release`, may arrive while the driver ends
            if self._driver.stopped:
                self._drives_again = True
            else:
                self._driver.wake()
            return
        if self.is_stopping:
            return
        self.is_active, self.error = True, None
        hooks = RunHooks(self._paused, self.progressed, self.host.present, self.host.on_main)
        self._driver = Driver(self.spec, self.journal, live=True, runs=StartedRuns, hooks=hooks)
        if self.values is EMPTY:
            self.values = {}
        self._driver.values, self._driver.keeps_partials = self.values, self.is_stored
        name = f"nbagent run {self.run_id}"
        self._task = self.loop.create_task(
            self._driver.drive(), name=name, context=self._context.copy()
        )
        self._was_keyboard_interrupt = keyboard_interrupt_check()
        _with_driver.add(self)
        self._task.add_done_callback(self._driver_ended)
        if self.is_stored:
            end = heartbeat.start_beating(self.journal.store)
            if end is not None:
                self._task.add_done_callback(lambda _: end())
            self.follower.watch_for_takeover()

    def _driver_ended(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None = (
            RunError("The event loop of the run stopped while the run was active")
            if task.cancelled()
            else task.exception()
        )
        over = self.journal.state.outcome is not None
        was_intended = task.cancelled() and (self.is_stopping or over)
        was_taken = self._end_driving(None if was_intended else error)
        if task is not self._task:  # meanwhile an answer started another driver
            return
        was_interrupted, self._was_keyboard_interrupt = self._was_keyboard_interrupt, bool
        make_cut_off_events = self.make_cut_off_events
        self._driver = self._task = None  # a paused run needs no driver
        self.values = self.values or EMPTY
        self.is_active = False
        _with_driver.discard(self)
        if task.cancelled() and not self.is_stopping and was_interrupted():
            self._drives_again, self.error = False, None
            self._write_cancellation("keyboard", make_cut_off_events=make_cut_off_events)
            return
        again, self._drives_again = self._drives_again and not over, False
        if again:
            self.error = None
            self._drive()
            return
        self.progressed()
        if was_taken or (error is None and self.journal.unstored_end):
            self.follow()
        elif error is None and not over:
            if len(self.journal.state.messages) <= FEW_MESSAGES:
                for message in self.journal.state.messages:
                    message.wire = None  # a pause may be long, and encoding these again is quick
            self._watch_after_pause()

    def _end_driving(self, error: BaseException | None) -> bool:
        """Record the driver's end and error; returns True if another process took the run, or the run was released."""
        has_ended, taken = self.journal.state.outcome is not None, self.journal.taken
        was_taken = self.was_taken
        if has_ended:
            self.seen = self.journal.state.position
            if self._follower is not None:
                self._follower.cancel_look()
        if was_taken and not has_ended and taken is not None:
            # after a release, the handle follows the run
            self.error = None if self.is_released else taken_over_error(self.run_id, taken)
        elif error is not None:
            self.error = error
            self.seen = self.journal.state.position
            if isinstance(error, StoreError) and not has_ended:  # RunFailed could not be stored
                self.follower.look_later()
        return was_taken

    @property
    def make_cut_off_events(self) -> CutOff:
        """A function that makes the events of a response that the run's end cuts off.

        Get the function while the driver is set; call it then, or after the driver has ended.
        """
        if self._driver is None:  # another process may drive the run
            return lambda: partial_response_events(self.journal.state, self.spec, "stopped")
        return partial(self._driver.cut_off, "stopped")

    def stop_driving(self) -> None:
        """Stop driving, because another process has taken the run over, or this handle has released it."""
        if self.is_released and self._deadline_check is not None:
            self._deadline_check[1].cancel()
            self._deadline_check = None
        if self._driver is not None and self._task is not None and not self._driver.stopped:
            self._driver.stop()
            self._task.cancel()

    @property
    def is_ending(self) -> bool:
        """Whether the driver of this handle takes no further step, as after an error of its own."""
        return self._driver is not None and self._driver.stopped

    def abandon_bodies(self) -> None:
        """Abandon bodies that wait for answers, because the run has ended."""
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            self._task.cancel()
        else:
            self.is_active = False

    def _paused(self, event: Interrupted) -> None:
        """Handle a new question; called on the run's loop."""
        if event.expires_at is not None:
            self._watch(event)
        self.progressed()
        self._watch_after_pause()

    def _watch_after_pause(self) -> None:
        """Watch a run that has just paused in this process; look only if another handle may have written already.

        A store in memory calls ``follow`` at each later write of another handle. The store's number of events shows
        whether there were earlier writes.
        """
        journal = self.journal
        store, state = journal.store, journal.state
        is_mine = journal.may_drive and state.status == "interrupted" and not journal.unstored_end
        if (
            is_mine
            and isinstance(store, MemoryStore)
            and journal.watch(self)
            and store.length(journal.run_id) == state.position
        ):
            self.seen = state.position
        else:
            self.follow()

    def progressed(self) -> None:
        """Notify everyone who waits, because the run may be settled."""
        if self.journal.unstored_end:
            self.follower.look_later()
        if self.before is not None:
            self._leave_queue()
        if self.journal.state.questions:
            self._apply_deadlines()
        self.notify()

    def set_error(self, why: BaseException | None) -> None:
        """Set or clear the error that stops the run in this process; called on the run's loop.

        The run continues once a failing store works again.
        """
        self.error = why
        if isinstance(why, RunDeleted):
            self.missing_error = why
        if isinstance(why, StoreError):
            self.follower.look_later()
        for event in self.journal.state.pending:
            self._watch(event)
        self.progressed()

    def _revive(self) -> None:
        """Continue on another loop, because the run's loop was closed."""
        stopped = self.error is not None and self.journal.state.status == "running"
        can_drive_again = stopped and not running_calls(self.journal.state)
        if self.is_active or can_drive_again:  # no driver ever started, or the driver failed
            self.drive()
        elif stopped or self.error is None or isinstance(self.error, StoreError):
            # the next check of the store was lost with the loop, or the tasks of calls, which are taken over as lost
            self.error = None
            self.follow()

    def follow(self) -> None:
        """Read events that others write, and drive the run if nobody else does; from any thread."""
        self.follower.follow()

    @property
    def is_driven_here(self) -> bool:
        """Whether a handle in this process drives the run."""
        run_id, store = self.run_id, self.journal.store
        return any(
            one.run_id == run_id and is_same_place(one.journal.store, store)
            for one in set(_with_driver)
        )

    # --- answering

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution | TimeIsOver, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt; safe from any thread. See ``Run.resolve``.

        Returns:
            A future of the stored event. An invalid answer raises immediately.
        """
        if not isinstance(resolution, TimeIsOver):
            self._apply_deadlines()
        stamp = Stamp.of(by, self.spec.clock(), resolution)
        asked_in: list[RunState] = []

        def decide(state: RunState) -> list[StoredEvent]:
            asked_in.append(state)
            return [
                answer(
                    state,
                    interrupt_id,
                    resolution,
                    self.spec.tools,
                    stamp,
                    owner=next_driver,
                    is_stopping=self.is_stopping,
                )
            ]

        answered = partial(self._resolved, asked_in)
        return self.submit(decide, answered, partial(self._not_resolved, by))

    def _not_resolved(self, by: str, error: BaseException) -> None:
        if by != "expiry":
            logger.warning("an answer to run %s was not accepted: %s", self.run_id, error)
        if isinstance(error, StoreError) and by != "expiry":
            with _tuples_lock:
                waiting, self._waiting = self._waiting, ()
            _end_waits(waiting, error)  # for code that waits for the run, not for the answer
            self.set_error(error)
        else:
            self.follow()

    def _resolved(
        self, asked_in: Sequence[RunState], written: Sequence[StoredEvent]
    ) -> StoredEvent:
        answer = written[0]
        if isinstance(answer, Resolved):
            remember(asked_in[-1], answer, self.spec.tools, self.spec.remembered)
        if self.journal.driver == this_process():
            self.is_released = False
            self.drive()
        else:
            self.follow()
        return answer

    def send(self, prompt: Content, send_again: Callable[[], Any]) -> bool:
        """Send a message after the results of the open calls; returns False if the run has ended.

        Args:
            prompt: the message.
            send_again: called once, if a slow store reports only later that the run had ended before the message. It
                returns the run that gets the message, and awaiting this run then awaits that one.

        Raises:
            UsageError: the message's files are too large.
        """
        check_room(self.journal.state.messages, prompt)
        event = message_queued(self.spec.clock(), prompt, by="code")
        has_ended = self.journal.state.outcome is not None
        if self.missing_error is not None or (has_ended and is_slow(self.journal.store)):
            return False

        def decide(state: RunState) -> list[StoredEvent]:
            if self.missing_error is not None:
                raise self.missing_error
            return [] if state.outcome else [event]

        def written(events: Sequence[StoredEvent]) -> bool:
            if events and isinstance(next_step(self.journal.state), CallModel):
                if self.is_active or not self.is_driven_here:
                    self.drive()
                else:  # another handle's driver reads the message
                    self.follow()
            return bool(events)

        sent = self.submit(decide, written, self._not_sent)
        if sent.done():
            return sent.result()
        if not has_ended:
            sent.add_done_callback(partial(self._sent, MovedMessage(send_again)))
        return not has_ended

    def _sent(self, moved: MovedMessage, sent: Future[bool]) -> None:
        if sent.exception() is None and not sent.result():
            self.moved_on = moved
            self.call_soon(moved.send_or_log)

    def moved_run(self) -> Any:
        """The run that gets the message in ``moved_on``.

        Raises:
            NbagentError: the message could not be sent, or the store does not have this run.
        """
        assert self.moved_on is not None  # checked by the caller
        if self.missing_error is not None:
            raise self.missing_error
        return self.moved_on.run()

    def replace_queued(self, old: Content, new: Content, *, by: str) -> Future[None]:
        """Replace a message that the model does not have yet; the future is done once this is stored.

        Raises:
            UsageError: the message was sent meanwhile, or the files of the new one are too large.
        """
        check_room(self.journal.state.messages, new)

        def decide(state: RunState) -> list[StoredEvent]:
            if state.outcome or old not in state.queued:
                raise UsageError("This message has been sent meanwhile. Send another one")
            number = state.queued.index(old)
            return [message_queued(self.spec.clock(), new, by=by, replaces=number)]

        return self.submit(decide, lambda _events: None, self._not_sent)

    def _not_sent(self, error: BaseException) -> None:
        logger.warning("a message to run %s was not sent: %s", self.run_id, error)
        if isinstance(error, StoreError):
            self.set_error(error)

    def dismiss(self) -> Future[None]:
        """Reject all open questions and cancel the run; the future is done once this is stored.

        Does nothing if a call or the model is running, or if the run has ended.
        """
        stopped = self._cancellation("code", ())

        def decide(state: RunState) -> list[StoredEvent]:
            if state.status != "interrupted":
                return []
            return [*rejected(state, self.spec, ("code", stopped.at)), stopped]

        return self.submit(decide, self._abandon, self.set_error)

    def _abandon(self, ending: Sequence[StoredEvent]) -> None:
        """Abandon bodies that wait for answers, if these events have ended the run."""
        if ending:
            self.call_soon(self._abandon_and_notify)

    def _abandon_and_notify(self) -> None:
        self.abandon_bodies()
        self.progressed()

    # --- deadlines of questions: each takes effect once, even if several processes apply it

    def _apply_deadlines(self) -> None:
        """Settle the questions whose deadline has passed. A write that the store refuses is tried again later.

        Store errors are logged and not raised.
        """
        if not self.journal.state.questions:
            return
        now = self.spec.clock()
        for event in self.journal.state.open:
            if not event.is_late(now):
                continue
            try:
                if event.on_expire == "fail":
                    self._fail_expired(event)
                else:
                    with suppress(Conflict, NotPending):
                        self.resolve(event.id, TIME_IS_OVER, by=EXPIRY)
            except NbagentError as error:  # the other questions expire all the same
                logger.warning("the expiry of %r is not stored yet: %s", event.id, error)

    def _fail_expired(self, event: Interrupted) -> None:
        """Fail the run because of an unanswered question, unless a call is running whose result would be lost."""
        messages: Any = paused_messages(self.journal.state)
        error = Expired(f"{event.tool_name!r} was not answered in time", messages=messages)
        failed = RunFailed(at=self.spec.clock(), error="Expired", message=str(error))

        def decide(state: RunState) -> Sequence[StoredEvent]:
            waits = state.status == "interrupted" and event in state.pending
            return [failed] if waits else []

        def abandon(written: Sequence[StoredEvent]) -> None:
            if written:
                self.error = error
            self._abandon(written)

        self.then(self.journal.submit(decide), abandon, partial(self._not_resolved, EXPIRY))

    def _watch(self, event: Interrupted, *, late_delay: float = 0.0) -> None:
        """Set the timer for a question's deadline; to ``late_delay`` seconds if the deadline has passed.

        Called only on the run's loop.

        The run's clock can be set, and the loop's clock stops while the machine sleeps, so both are compared every
        ``CLOCK_CHECK`` seconds. The timer keeps the session alive.
        """
        if event.expires_at is None:
            return
        now = self.spec.clock()
        delay = late_delay if event.is_late(now) else event.expires_at - now
        delay = min(delay, CLOCK_CHECK)
        due = self.loop.time() + delay
        if self._deadline_check is not None:
            if self._deadline_check[0] <= due:
                return
            self._deadline_check[1].cancel()
        self._deadline_check = due, self.loop.call_later(delay, self._apply_and_watch)

    def _apply_and_watch(self) -> None:
        """Apply the deadlines that have passed, and set the timer for the next one."""
        self._deadline_check = None
        try:
            self._apply_deadlines()
        finally:
            for event in self.journal.state.open:
                self._watch(event, late_delay=DEADLINE_RETRY)

    # --- waiting

    def when_settled(self) -> Waited:
        """A future that is done once the run is settled; for any thread."""
        return self._when(self.is_settled)

    def when_over(self) -> Waited:
        """A future that is done once ``await run`` can return or raise; for any thread."""
        return self._when(self.is_over)

    def is_over(self) -> bool:
        """Whether ``await run`` can return or raise: the run has ended, or asks a person and no person can answer."""
        if self.journal.state.status == "queued" and self.error is None:
            first = self.first_in_queue()
            return first is not None and first.cannot_end_alone(attended=self.attended)
        if not self.is_settled():
            return False
        error = self.error or self.missing_error
        if self.journal.state.outcome is not None or error is not None:
            return True
        asks_a_person = any(
            event.expects != "external" or event.id in self.wrong_answers
            for event in self.journal.state.pending
        )
        return not self.attended and asks_a_person

    def is_settled(self) -> bool:
        """Whether the run has ended, waits for an answer, or is stopped by an ``error``.

        A queued run is settled while the first run of its queue waits.
        """
        if self._scripted is not None and self._scripted.undecided:
            return False
        follower = self._follower
        looks = follower is not None and follower.looks_requested != follower.looks_finished
        if self._unwritten or looks:  # the state may have changed
            return False
        if self.is_active:  # a body that waits in `ctx.ask` keeps its driver running
            waits = self.journal.state.status == "interrupted" and waits_in_body(self.journal.state)
            # the body may still answer the question itself, or ask another one
            return waits and self._driver is not None and not self._driver.body_may_answer
        if self.journal.state.status == "queued" and self.error is None:
            first = self.first_in_queue()
            return first is not None and first.is_waiting()
        return self.journal.state.status != "running" or self.error is not None

    @property
    def wrong_answers(self) -> Mapping[str, Exception]:
        """The errors of wrong answers in ``answers=``, also of runs that bodies started, by interrupt id."""
        own = {} if self._scripted is None else self._scripted.wrong
        return own if self._driver is None else own | self._driver.wrong_answers

    @property
    def missing_answer_hint(self) -> str:
        """A hint about ``answers=`` for the error of a missing answer."""
        return "" if self._scripted is None else self._scripted.missing_hint()

    def _when(self, holds: Holds) -> Waited:
        """A future that is done once ``holds()`` is true, which is checked now and at each change of the run."""
        if self.journal.state.questions:
            self._apply_deadlines()
        if self.loop.is_closed():
            self._revive()
        kept = started.runs.pop(self.run_id, None)
        future: Waited = Future()
        with _tuples_lock:
            if holds():
                future.set_result(None)
                return future
            self._waiting += ((holds, future),)
        future.add_done_callback(partial(self._forget_wait, kept))
        return future

    def _forget_wait(self, kept: Any, future: Waited) -> None:
        """Forget a wait that is done or was cancelled; after the latter, a run that was kept is waited for by nothing."""
        if kept is not None and future.cancelled():
            started.runs[self.run_id] = kept
        with _tuples_lock:
            self._waiting = tuple(one for one in self._waiting if one[1] is not future)

    def notify(self) -> None:
        """End the waits that are over, and notify the runs queued behind this run, because this run has changed."""
        for one in self.queued_sessions:
            one.follow()
        if not self._waiting:
            return
        with _tuples_lock:
            ready = [one for one in self._waiting if one[0]()]
            self._waiting = tuple(one for one in self._waiting if one not in ready)
        _end_waits(ready)

    # --- stopping: finished results are stored, a body that does not stop is abandoned

    def stop(self, *, by: str) -> Future[None]:
        """Cancel the run; the future is done once the cancellation is stored."""
        self.is_stopping = True
        loop = self.home()
        if self._stopped is not None:
            return self._stopped
        if loop is not running_loop() or self._task is not None:
            self._stopped = asyncio.run_coroutine_threadsafe(self._stop(by), loop)
            self.interrupt()
            return self._stopped
        return self._write_cancellation(by, make_cut_off_events=self.make_cut_off_events)

    def interrupt(self) -> None:
        """End a body that keeps the thread of the run's loop, if this is another thread: the run is being stopped."""
        if self._driver is not None and running_loop() is not self.loop:
            self._driver.stop()
            self._driver.interrupt()

    @contextmanager
    def stopped_by_keyboard(self) -> Iterator[None]:
        """A context for code that waits for the run: Ctrl+C cancels the run, and is raised once the end is stored.

        A run that another process drives is not cancelled; only the wait ends.
        """
        try:
            yield
        except KeyboardInterrupt:
            if self.follower.is_theirs or self.journal.state.outcome is not None:
                raise
            try:
                stopped = self.stop(by="keyboard")
                if running_loop() is not self.loop and not is_blocked(self.loop):
                    with suppress(TimeoutError):
                        stopped.result(2 * GRACE)
            finally:  # also if Ctrl+C is pressed again
                self._end_at_once("keyboard")
            raise
        except asyncio.CancelledError:
            # Ctrl+C also cancels this task, and the loop is about to be closed
            if keyboard_interrupt_check()() and not self.follower.is_theirs:
                self._end_at_once("keyboard")
            raise

    async def _stop(self, by: str) -> None:
        still_running: tuple[str, ...] = ()
        make_cut_off_events, driver, task = self.make_cut_off_events, self._driver, self._task
        try:
            if driver is not None and task is not None:
                driver.stop()
                task.cancel()
                loop = asyncio.get_running_loop()
                until = loop.time() + GRACE
                await asyncio.wait([task], timeout=GRACE)
                for _ in range(int(GRACE / STOP_CHECK)):  # nothing reports the end of a thread
                    if not driver.running_bodies or loop.time() >= until:
                        break
                    await asyncio.sleep(STOP_CHECK)
                still_running = driver.unfinished_calls
        finally:
            stored = self._write_cancellation(by, still_running, make_cut_off_events)
        await asyncio.wrap_future(stored)

    def _write_cancellation(
        self, by: str, still_running: tuple[str, ...] = (), make_cut_off_events: CutOff = tuple
    ) -> Future[None]:
        """Write the cancellation, after pending writes and ``make_cut_off_events``."""
        event = self._cancellation(by, still_running)

        def stopped(_: None) -> None:
            # a run that had failed before the cancellation may be retried
            self.is_active = self.is_stopping = False
            self._stopped = None
            self.progressed()

        began = bool(self.journal.state.position or self.is_writing)
        ended = self.journal.submit_end(event, make_cut_off_events) if began else finished(None)
        return self.then(ended, stopped)

    def _end_at_once(self, by: str) -> None:
        """Store the cancellation at once, from any thread, also while bodies run."""
        if self.journal.state.position == 0:  # its first event may be stored by now
            with suppress(UsageError):
                self.journal.catch_up()
        if self.journal.state.position and self.journal.state.outcome is None:
            left = () if self._driver is None else self._driver.unfinished_calls
            self.journal.end(self._cancellation(by, left), self.make_cut_off_events)

    def _cancellation(self, by: str, still_running: tuple[str, ...]) -> RunCancelled:
        now = self.spec.clock()
        return RunCancelled(at=now, by=by, still_running=still_running, user=user_behind(by))


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

    def __init__(self, run: Session) -> None:
        self._run = run
        self._others: heartbeat.OtherProcesses | None = None
        self.looks_requested = self.looks_finished = 0
        """The number of requested looks, and the number of finished looks."""
        self._timer: Planned | None = None
        self._wait = POLL
        """Seconds until the next look at a failing store."""

    @property
    def others(self) -> heartbeat.OtherProcesses:
        """The liveness of the other processes that the run's events name, as far as is known."""
        if self._others is None:
            self._others = heartbeat.OtherProcesses(
                self._run.journal.store, self._run.journal.run_id
            )
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
        self._wait = min(2 * wait, LONGEST_LOOK)
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

    def cancel_look(self) -> None:
        """Cancel the planned look; called on the run's loop, or after that was closed."""
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


def _end_waits(waiting: Sequence[tuple[Holds, Waited]], error: BaseException | None = None) -> None:
    for _, future in waiting:
        if future.set_running_or_notify_cancel():
            future.set_result(error)


class MovedMessage:
    """A message that is sent again, once, because its run had ended before it.

    Args:
        send: sends the message and returns its run; called in the context of the code that sent it first.
    """

    def __init__(self, send: Callable[[], Any]) -> None:
        self._context, self._send = copy_context(), send
        self._lock = threading.RLock()
        self._run: Future[Any] = Future()

    def run(self) -> Any:
        """Send the message, unless another thread has sent it; return its run.

        Raises:
            NbagentError: the message could not be sent.
        """
        with self._lock:
            if not self._run.done():
                try:
                    self._run.set_result(self._context.run(self._send))
                except BaseException as error:
                    self._run.set_exception(error)
            return self._run.result()

    def send_or_log(self) -> None:
        """Send the message; an error is logged here, and raised where the run is awaited."""
        try:
            self.run()
        except Exception as error:
            logger.warning("a message could not be sent: %s", error)


class PreviousRun:
    """The previous run: its session, or only its journal if this process has no session of it."""

    __slots__ = ("journal", "session")

    def __init__(self, journal: Journal, session: Session | None = None) -> None:
        self.journal = journal
        self.session = session

    @property
    def state(self) -> RunState:
        """The previous run's state, as far as this process has read it."""
        return self.journal.state

    def is_waiting(self) -> bool:
        """Whether the run has not ended, and waits for an answer or is stopped by an error."""
        if self.state.outcome is not None:
            return False
        return (
            self.state.status == "interrupted"
            if self.session is None
            else self.session.is_settled()
        )

    def cannot_end_alone(self, *, attended: bool) -> bool:
        """Whether the run cannot end without help: it has an error, or asks a person and no person can answer."""
        if self.state.outcome is not None:
            return False
        return (
            self.session.is_over()
            if self.session is not None
            else not attended and self.is_waiting()
        )


FAILED = "The previous run failed: "


def queued_run_events(state: RunState, before: RunState, spec: RunSpec) -> list[StoredEvent]:
    """The events that start or end a queued run, from the state of the previous run; none until that has ended.

    The queued run starts if the previous run has completed. If the previous run failed or was cancelled, the queued
    run ends in the same way.
    """
    queued, now = state.queue_event, spec.clock()
    if queued is None or state.outcome is not None:
        return []
    match before.outcome:
        case None:
            return []
        case RunCompleted():
            try:
                messages = beginning(spec, closed_messages(before), queued.prompt, "raise")
            except NbagentError as error:
                return [RunFailed(at=now, error=type(error).__name__, message=str(error))]
            return [run_started(spec, messages, now, after=queued.after)]
        case RunFailed(error=error, message=message):
            first = message if message.startswith(FAILED) else f"{FAILED}{error}: {message}"
            return [RunFailed(at=now, error="RunError", message=first)]
        case RunCancelled():
            return [RunCancelled(at=now, by="the previous run, which was cancelled")]


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
"""The sessions of this process."""
_with_driver: set[Session] = set()
"""The sessions with a running driver. This set keeps their tasks alive, because an event loop does not."""
_lock = fork_safe(threading.RLock())
"""Held for a moment while a session moves to another loop, or one is made."""
_tuples_lock = fork_safe(threading.RLock())
"""Held for a moment while one of a session's tuples changes."""


def _no_handle() -> None:
    return None


def all_sessions() -> list[Session]:
    """The sessions of this process."""
    with _lock:  # a set cannot be iterated while another thread adds to it
        return list(_sessions)


def find_session(run_id: str, store: object) -> Session | None:
    """The session of a run in this process and store; None if there is none."""
    for one in all_sessions():
        matches = one.run_id == run_id and one.missing_error is None
        matches = matches and not one.is_released
        if matches and is_same_place(one.journal.store, store):
            return one
    return None


def _leave_runs_to_parent() -> None:
    """Mark all runs as driven by the parent process, because this process is a fork of it."""
    for one in list(_sessions):  # a forked process has no other threads
        one.journal.update_may_drive()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_runs_to_parent)
