"""One handle's share in a run: where it lives, who goes on with it, and all that may be done to it.

``Run`` is what a person holds; the engine and the notebook hold its session. A session drives the run
on the run's loop when it is its turn, and follows the journal when others drive: another process, or
another handle here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from nbagent.core.base.errors import Conflict, NotPending, RunError, StoreError, UsageError
from nbagent.core.base.events import (
    Interrupted,
    Resolved,
    RunCancelled,
    RunFailed,
    RunQueued,
    RunRetried,
    StoredEvent,
)
from nbagent.core.base.files import Said, check_room, in_words
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Message, freeze
from nbagent.core.base.process import this_process
from nbagent.core.base.user import this_user, user_behind
from nbagent.core.call.setup import Hooks
from nbagent.core.call.threads import interruption, private_loop, running_loop
from nbagent.core.engine.driver import Driver
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import is_same_place
from nbagent.core.journal.journal import (
    Journal,
    finished,
)
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.journal.unwritten import forget_unwritten, unwritten_of
from nbagent.core.state.fork import forked
from nbagent.core.state.next_step import CallModel, next_step
from nbagent.core.state.retry import check_known, check_none_ran_elsewhere
from nbagent.core.state.state import RunState, Status, running_calls, status_of, waits_in_body
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

from . import heartbeat
from .answerer import Answerer, AnswerKeeper
from .answers import (
    AnyResolution,
    check_in_time,
    check_open,
    check_takes_answers,
    interrupts_of,
    remember,
    resolved,
)
from .before import Before, Held, come_of, run_started
from .deadlines import Deadlines, expired, expiry_error
from .follow import (
    POLL,
    Lost,
    Turn,
    about_lost,
    lost_calls,
    next_driver,
    owners_elsewhere,
    runs_elsewhere,
    taken_from,
    taken_over,
    whose_turn,
)
from .generate import message_queued, rejected
from .heartbeat import Others
from .host import Place
from .rounds import Planned, when_written
from .scripted_answers import Answers, AnswerSource, KeptAnswers

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("nbagent")

GRACE = 2.0
"""Seconds that a cancelled tool gets to stop."""
TICK = 0.02
"""Seconds between looks at whether it has."""


class Session:
    """One handle's share in a run.

    Args:
        spec: what the driver needs to know.
        journal: the run's.
        place: where the run lives; the caller's running loop, or the private one, by default.
        answers: what to answer where nobody is there to be asked.
        values: the tools' own Python objects by call id; in memory only.
    """

    __slots__ = (
        "__weakref__",
        "_again",
        "_deadlines",
        "_driver",
        "_follows",
        "_is_active",
        "_is_stopping",
        "_is_told",
        "_others",
        "_scripted",
        "_seen",
        "_stopped",
        "_task",
        "_timer",
        "_unreadable",
        "_waiting",
        "_was_interrupted",
        "_writing",
        "attended",
        "before",
        "behind",
        "error",
        "handle",
        "host",
        "journal",
        "loop",
        "spec",
        "values",
    )

    def __init__(
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
        self.host = place.host
        self.attended = place.attended
        self.loop = place.loop or running_loop() or private_loop()
        """The event loop the run lives on."""
        self.handle: Callable[[], Any] = _nobody
        """Gives the ``Run`` that a person holds of it, as long as anybody does."""
        self.error: BaseException | None = None
        """Why the run cannot go on here."""
        self._unreadable: BaseException | None = None
        """Why the store could not be read at the last look that failed."""
        self.values = dict(values or {})
        self._is_active = False
        """Whether a driver is at work, or on its way to the loop."""
        self._is_stopping = False
        """Whether the run is being cancelled: no answer is taken and no driver started any more."""
        self._stopped: Future[None] | None = None
        """Done when it is cancelled, while it is being cancelled."""
        self._was_interrupted: Callable[[], bool] = bool
        """Whether Ctrl+C has told the program to end."""
        self._driver: Driver | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether to drive again once the driver that was stopped has ended."""
        self._follows = False
        self._is_told = False
        """Whether the store tells of what others write."""
        self._timer: Planned | None = None
        self._deadlines = Deadlines()
        self._seen = -1
        """How long the journal was when it was last looked at."""
        self.before: Before | None = None
        """The run before, while this one is queued."""
        self.behind: tuple[Session, ...] = ()
        """Runs that are queued behind this one, and told when it moves."""
        self._others = Others(journal.store, journal.run_id)
        self._waiting: tuple[tuple[Callable[[], bool], Future[None]], ...] = ()
        """Who waits for the run, and for what."""
        self._writing: tuple[Future[Any], ...] = ()
        """What waits to be written, and what comes of it."""
        self._scripted: Answerer | None = None
        _open.add(self)
        kept: KeptAnswers | None = hooks.kept_answers(spec.model)
        if not place.attended and (answers is not None or kept is not None):
            self._scripted = Answerer(AnswerSource(answers), kept, self)
            journal.subscribe(self._scripted.hear)
        if kept is not None:
            keeper = AnswerKeeper(kept)
            for event in journal.subscribe(keeper.hear):
                keeper.hear_of_before(event)

    # --- what can be read off the run

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run_id

    @property
    def state(self) -> RunState:
        """Where the run stands, as far as is known here."""
        return self.journal.state

    @property
    def status(self) -> Status:
        """The run's status."""
        return status_of(self.state)

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer, in call order; also while other calls still run."""
        state = self.state
        if state.outcome or not state.asks:
            return []
        return interrupts_of(state, self.spec.tools, self.spec.agent)

    @property
    def executing(self) -> list[str]:
        """The names of the tools whose bodies run now."""
        return [call.name for call in self.state.calls.values() if call.status == "running"]

    @property
    def awaited(self) -> str:
        """Which processes out of sight the run waits for, in words; empty where there is none."""
        return self._others.awaited if self.status == "running" and self.error is None else ""

    @property
    def is_stored(self) -> bool:
        """Whether the run's journal outlives this process."""
        return not isinstance(self.journal.store, MemoryStore)

    def tool(self, name: str) -> Tool[..., Any] | None:
        """The registered tool of this name, as it is defined now."""
        return self.spec.tools.get(name)

    def why_not_pending(self, interrupt_id: str) -> str:
        """What became of an interrupt that takes no answer (any more): who answered, and when."""
        try:
            check_takes_answers(self.state, interrupt_id)
            check_open(self.state, interrupt_id)
        except (NotPending, Conflict) as error:
            return str(error)
        return f"interrupt {interrupt_id!r} waits for an answer"

    # --- beginning

    def start(
        self,
        messages: Sequence[Message],
        *,
        after: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Begin: write the first event, and let the driver go on from this history.

        Args:
            messages: the history.
            after: the run whose conversation it goes on with.
            meanwhile: called where the run was begun elsewhere, which this handle then follows.

        Raises:
            Conflict: the store has a run of this id, and ``meanwhile`` is not given.
        """
        started = run_started(self.spec, messages, self.spec.clock(), after)

        def begin(state: RunState) -> list[StoredEvent]:
            if not state.position:
                return [started]
            if meanwhile is None:
                raise Conflict(f"the run {self.run_id!r} was begun elsewhere meanwhile")
            return []

        def begun(events: Sequence[StoredEvent]) -> None:
            if events or meanwhile is None:
                self._begun()
            else:
                meanwhile()
                self.take_up()

        self._then(self.journal.submit(begin), begun)

    def start_behind(self, before: Session, said: Said) -> None:
        """Keep what is asked, and begin with it once the run before has ended.

        Raises:
            UsageError: its files are too large.
        """
        check_room((), said)
        event = RunQueued(
            at=self.spec.clock(),
            agent=self.spec.agent,
            model=self.spec.model_name,
            after=before.run_id,
            text=in_words(said),
            content=None if isinstance(said, str) else tuple(map(freeze, said)),
            elsewhere=not is_same_place(before.journal.store, self.journal.store),
        )
        self._line_up(before)
        self._then(self.journal.submit(lambda _state: [event]), lambda _events: self.follow())

    def _begun(self) -> None:
        self._watch_pending()
        self.go_on()

    # --- in line behind another run

    def _line_up(self, before: Session) -> None:
        self.before = Before(before.journal, before)
        with _waiting_lock:
            before.behind += (self,)

    def _in_line(self) -> bool:
        """Begin if the run before has ended, or end with it; whether to look again later."""
        try:
            before = self._found_before()
            looked = finished(None) if before.held is not None else before.journal.look()
        except (StoreError, UsageError) as error:
            self._lost(error)
            return False
        if looked.done():
            self._come_of(before)
        else:
            self._then(looked, lambda _: self.call_soon(partial(self._come_of, before)))
        return self.status == "queued" and before.held is None

    def _found_before(self) -> Before:
        """The run before; one that nobody here has by what its journal says.

        Raises:
            UsageError: its store has no such run.
        """
        queued = self.state.behind
        if self.before is None and queued is not None:
            waited_for = held(queued.after, self.journal.store)
            if waited_for is not None:
                self._line_up(waited_for)
            else:
                self.before = Before(Journal(queued.after, self.journal.store))
                self.before.journal.watch(self.follow)
        assert self.before is not None  # whoever asks is queued
        return self.before

    def _come_of(self, before: Before) -> None:
        """Write what comes of this run now; of several handles that do, one counts."""

        def written(events: Sequence[StoredEvent]) -> None:
            if events and self.state.outcome is None:
                self._begun()
            self._progressed()

        decide = partial(come_of, before=before.state, spec=self.spec)
        try:
            self._then(self.journal.submit(decide), written)
        except StoreError as error:
            self._lost(error)

    def _leave_line(self) -> None:
        """Let go of the run before, once it is not waited for any more; where this one failed, it may be again."""
        state, before = self.state, self.before
        if state.behind is not None and not isinstance(state.outcome, RunCancelled):
            return
        self.before = None
        if before is not None and isinstance(before.held, Session):
            with _waiting_lock:
                behind = (one for one in before.held.behind if one is not self)
                before.held.behind = tuple(behind)

    def first_in_line(self) -> Before | None:
        """The run that all before this one wait for; None where this one is not queued."""
        first: Before | None = None
        session: Held | None = self
        while isinstance(session, Session) and session.status == "queued":
            if session.before is None:
                break
            first = session.before
            session = first.held
        return first

    def take_up(self) -> None:
        """Follow a run that was read from its store, and watch over what waits in it already."""
        self._watch_pending()
        self.follow()

    def _watch_pending(self) -> None:
        """Watch over what waits without having been asked here."""
        for event in self.state.pending:
            self.call_soon(partial(self._deadlines.watch, self, event))
            if self._scripted is not None:
                self._scripted.look_at(event.id)

    def retry(self) -> None:
        """Go on after a failure; see ``Run.retry``."""
        event = RunRetried(at=self.spec.clock(), by="code", owner=this_process(), user=this_user())

        def decide(state: RunState) -> list[StoredEvent]:
            if not isinstance(state.outcome, RunFailed):
                raise UsageError(f"only a failed run is retried; this one is {status_of(state)}")
            return [event, *self._unwritten(state, state.outcome)]

        self._submit(decide, lambda _events: self._retried(), self._not_retried)

    def _not_retried(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self._lost(error)
            return
        logger.warning("the retry of run %s was refused: %s", self.run_id, error)
        self.follow()

    def _retried(self) -> None:
        forget_unwritten(self.run_id)
        self.error = None
        for waiting in self.state.pending:
            self.call_soon(partial(self._deadlines.watch, self, waiting))
        self.go_on()

    def fork(self, at: str | StoredEvent | None) -> Session:
        """An independent run that goes on from here, or from when ``at`` was asked; see ``Run.fork``."""
        spec, state = self.spec, self.state
        events = forked(self.journal.read(), at, spec.new_id, spec.clock())
        if at is None and isinstance(state.outcome, RunFailed):
            events += self._unwritten(state, state.outcome)
        journal = Journal(spec.new_id(), self.journal.store)
        place = Place(self.host, self.attended, self.loop)
        made = Session(spec, journal, place, values=self.values)
        if self.before is not None and isinstance(self.before.held, Session):
            made._line_up(self.before.held)
        made._then(journal.submit(lambda _state: events), lambda _events: made.take_up())
        return made

    def _unwritten(self, state: RunState, failed: RunFailed) -> Sequence[StoredEvent]:
        """What tools came to that could not be stored; refuses where that cannot be known."""
        check_none_ran_elsewhere(state, failed)
        check_known(state, failed)
        return unwritten_of(self.run_id, state)

    def _submit(
        self,
        decide: Callable[[RunState], Sequence[StoredEvent]],
        go_on: Callable[[Sequence[StoredEvent]], R],
        failed: Callable[[BaseException], None],
    ) -> Future[R]:
        """Write what a person decides; where that is refused, others may have gone on with the run."""
        try:
            return self._then(self.journal.submit(decide), go_on, failed)
        except Exception:
            self.follow()
            raise

    def _then(
        self,
        written: Future[T],
        go_on: Callable[[T], R],
        failed: Callable[[BaseException], None] | None = None,
    ) -> Future[R]:
        """What comes once this is written: now, or on the thread that writes it.

        Where it fails later, it is the run's ``error``, unless ``failed`` takes it.

        Raises:
            Exception: it has failed already.
        """
        if written.done():
            return finished(go_on(written.result()))
        after: Future[R] = Future()
        with _waiting_lock:
            self._writing += (after,)

        def settle(done: Future[T]) -> None:
            try:
                after.set_result(go_on(done.result()))
            except BaseException as error:
                after.set_exception(error)
                self.call_soon(partial(failed or self._lost, error))
            with _waiting_lock:
                self._writing = tuple(one for one in self._writing if one is not after)
            self.notify()

        written.add_done_callback(settle)
        return after

    # --- driving

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""
        self._home().call_soon_threadsafe(work)

    def _home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on; another one once that is closed."""
        with _lock:
            if self.loop.is_closed():
                self._driver = self._task = self._stopped = None
                self._deadlines.forget()
                self._move(running_loop() or private_loop())
            return self.loop

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        loop.call_soon_threadsafe(self._deadlines.look, self)
        if self._scripted is not None:
            self._scripted.look_again()

    def leave_loop(self) -> bool:
        """Live elsewhere than on the loop of this thread, which is about to be held up, with all runs before.

        False where one of them is at work on it.
        """
        loop, line = running_loop(), [self]
        while line[-1].status == "queued" and line[-1].before is not None:
            if not isinstance(line[-1].before.held, Session):
                break
            line.append(line[-1].before.held)
        here = [one for one in line if loop is not None and one.loop is loop]
        if here and (loop is private_loop() or any(one.is_at_work for one in here)):
            return False
        for one in here:
            one.move()
        return True

    def move(self) -> None:
        """Live on the private loop from now on; called on the loop of before, where nothing of it is at work."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._deadlines.leave()
        with _lock:
            self._move(private_loop())
        self.follow()

    @property
    def is_at_work(self) -> bool:
        """Whether a driver is, or something waits to be written."""
        return self._is_active or self._task is not None or bool(self._writing)

    def go_on(self) -> None:
        """Let a driver look at the state; from any thread."""
        if self.status == "queued":  # it was retried: nothing is to be driven yet
            self.follow()
            return
        self._is_active = True
        while True:
            loop = self._home()
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
            self.error = None
            self._driver.wake()
            return
        if self._is_stopping:
            return
        self._is_active, self.error = True, None
        hooks = Hooks(self._paused, self._progressed, self.host.present, self.host.on_main)
        self._driver = Driver(self.spec, self.journal, live=True, hooks=hooks)
        self._driver.values = self.values
        name = f"nbagent run {self.run_id}"
        self._task = self.loop.create_task(self._driver.drive(), name=name)
        self._was_interrupted = interruption()
        _driven.add(self)
        self._task.add_done_callback(self._ended)
        end = heartbeat.begin(self.journal.store)
        self._task.add_done_callback(lambda _: end())
        if self.is_stored and self._timer is None:  # it may be taken over
            look = partial(_look, weakref.ref(self))
            self._timer = when_written(self.journal.store, look, self.loop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = _error_of(task)
        over = self.state.outcome is not None
        if over and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._was_taken and not over and self.journal.taken is not None:
            self.error = error = taken_from(self.run_id, self.journal.taken)
        elif error is not None and not (task.cancelled() and (self._is_stopping or over)):
            self.error = error
            self._seen = self.state.position  # a look at this end is no news of it
        if task is not self._task:  # an answer came as it ended, and another is at work by now
            return
        was_interrupted, self._was_interrupted = self._was_interrupted, bool
        self._driver = self._task = None  # a paused run is data
        self._is_active = False
        _driven.discard(self)
        if task.cancelled() and not self._is_stopping and was_interrupted():
            self._again, self.error = False, None
            self._cancelled("keyboard")
            return
        again, self._again = self._again and not over, False  # an end is not gone on with
        if again:
            self.error = None
            self._drive()
            return
        self._progressed()
        if error is None or self._was_taken:
            self.follow()

    def _paused(self, event: Interrupted) -> None:
        self._deadlines.watch(self, event)
        self._progressed()
        self.follow()

    def _progressed(self) -> None:
        """The run may have come to a stand: tell who waits; called on its loop."""
        if self.before is not None and self.state.position:
            self._leave_line()
        self._deadlines.apply(self)
        self.notify()

    def _revive(self) -> None:
        """Go on elsewhere if the run's loop was closed under it."""
        if not self.loop.is_closed():
            return
        stopped = self.error is not None and self.status == "running"
        was_cut_off = stopped and not running_calls(self.state)
        if self._is_active or was_cut_off:  # it closed before the driver got there
            self.go_on()
        elif self.error is None:
            self.follow()

    # --- following

    def follow(self) -> None:
        """Keep up with what others write, and go on where nobody else does; from any thread.

        Looks now, and goes on looking while it is needed.
        """
        if self.journal.store is None or self.state.outcome is not None:
            return
        with _lock:
            if not self._follows:
                self._follows, self._is_told = True, self.journal.watch(self.follow)
        try:
            self._home().call_soon_threadsafe(self._next_look)
        except RuntimeError:
            if not self._home().is_closed():
                raise
        # a loop that closed meanwhile: whoever next waits for the run calls this again

    @property
    def _next_look(self) -> Callable[[], None]:
        """Looks again, as long as anybody has the run; one that nobody drives is taken whoever has it still."""
        is_due = self.journal.is_vacant and self.status == "running"
        return self._look if is_due else partial(_look, weakref.ref(self))

    def _look(self) -> None:
        """Take in what others wrote and react; only ever called on the run's loop."""
        if running_loop() is not self.loop:  # it has left that one
            self.follow()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            looked = self.journal.look()
        except StoreError as error:
            self._unread(error)
            return
        if looked.done():
            self._looked()
        else:
            self._then(looked, lambda _: self.call_soon(self._looked), self._unread)

    def _unread(self, error: BaseException) -> None:
        """Note that the store cannot be read, and look again once it may be."""
        self._unreadable = error
        self._lost(error)
        if self._timer is None and not self._is_told:
            loop = self._home()
            self._timer = when_written(self.journal.store, self._next_look, loop)

    def _looked(self) -> None:
        state = self.state
        if self.error is not None and self.error is self._unreadable:  # it can be read again
            self._lost(None)
        moved = state.position != self._seen
        if moved:
            self._seen = state.position
            self._others.moved()
        if self._is_active or self._is_stopping:
            if moved:
                self.go_on()
            if self._was_taken:
                self._give_up()
            is_theirs = not self.journal.is_driven_here
            can_be_taken = self.is_stored and not self._is_told
            is_timed = runs_elsewhere(state) or is_theirs
            again = can_be_taken or is_timed
            if again and self._whose_turn(state) == "ours" and is_theirs:
                self._take()
        else:
            again = self._take_turn(state, moved=moved) or runs_elsewhere(self.state)
            is_timed = self.status != "interrupted" or runs_elsewhere(self.state)
        if again and self._timer is None:
            loop, look = self._home(), self._next_look
            self._timer = (
                loop.call_later(POLL, look)
                if is_timed
                else when_written(self.journal.store, look, loop)
            )

    def _take_turn(self, state: RunState, *, moved: bool) -> bool:
        """Go on with the run where it is this handle's turn; whether to look again later."""
        if status_of(state) == "queued":
            return self._in_line() or not self._is_told
        whose = self._whose_turn(state)
        if whose == "ours":
            if self.journal.is_driven_here:
                self.go_on()
            else:
                self._take()
        elif moved and whose != "lost":
            self._lost(self.error if self._was_taken else None)
        return whose in ("theirs", "lost") or (whose == "nobody's" and not self._is_told)

    def _whose_turn(self, state: RunState) -> Turn:
        """Who makes the run go on; what became of calls whose process is gone is asked."""
        here = any(_is_of(one, self.run_id, self.journal.store) for one in set(_driven))
        journal = self.journal
        whose = whose_turn(
            *(state, journal.driver, self._others), is_driven_here=here, is_vacant=journal.is_vacant
        )
        if whose == "lost":
            self._ask_about(lost_calls(state, self._others, is_driven_here=here))
        return whose

    @property
    def _was_taken(self) -> bool:
        """Whether another process has taken the run over, and drives it."""
        return self.journal.taken is not None and not self.journal.is_driven_here

    def _give_up(self) -> None:
        """Run nothing more of a run that another process has taken over."""
        if self._driver is not None and self._task is not None and not self._driver.stopped:
            self._driver.stop()
            self._task.cancel()

    def take_over(self) -> Future[None]:
        """Drive the run here from now on, whoever does; what ran there is asked about as lost."""

        def decide(state: RunState) -> Sequence[StoredEvent]:
            is_over = state.outcome is not None or status_of(state) == "queued"
            is_mine = self.journal.is_driven_here and not runs_elsewhere(state)
            return [] if is_over or is_mine else taken_over(state, self.spec)

        return self._submit(decide, self._took_over, self._lost)

    def _take(self) -> None:
        """Drive a run that nobody drives, once that is written; of several handles that do, one counts."""
        last = (self.journal.driver, self.journal.is_vacant)

        def decide(state: RunState) -> Sequence[StoredEvent]:
            driver, is_vacant = now = (self.journal.driver, self.journal.is_vacant)
            if now != last or state.outcome is not None:
                return []
            return taken_over(state, self.spec, "vacancy" if is_vacant else "silence", driver)

        try:
            self._then(self.journal.submit(decide), self._took_over)
        except StoreError as error:
            self._lost(error)

    def _took_over(self, written: Sequence[StoredEvent]) -> None:
        if written:
            self.go_on()
        else:
            self.follow()

    def _ask_about(self, lost: Sequence[Lost]) -> None:
        """Ask what became of calls whose process is gone; see ``about_lost``."""

        def asked(written: Sequence[StoredEvent]) -> None:
            self._lost(None)
            if any(isinstance(event, Resolved) for event in written):
                self.go_on()

        try:
            self._then(self.journal.submit(lambda state: about_lost(state, lost, self.spec)), asked)
        except StoreError as error:
            self._lost(error)

    def _lost(self, why: BaseException | None) -> None:
        """Note why the run cannot go on, or that it does; its state may be another by now."""
        self.error = why
        for event in self.state.pending:
            self._deadlines.watch(self, event)
        self._progressed()

    # --- answering

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt; safe from any thread. See ``Run.resolve``.

        Returns:
            The event, once it is stored; what can be refused now raises now.
        """
        if by != "expiry":
            self._deadlines.apply(self)
        stamp = (by, self.spec.clock())
        asked_in: list[RunState] = []

        def decide(state: RunState) -> list[StoredEvent]:
            check_takes_answers(state, interrupt_id, is_stopping=self._is_stopping)
            check_in_time(state, interrupt_id, stamp)
            event = resolved(state, interrupt_id, resolution, self.spec.tools, stamp)
            asked_in.append(state)
            return [event.model_copy(update={"owner": next_driver(state, event)})]

        answered = partial(self._resolved, asked_in)
        return self._submit(decide, answered, partial(self._not_resolved, by))

    def _not_resolved(self, by: str, error: BaseException) -> None:
        if by != "expiry":
            logger.warning("an answer to run %s was not taken: %s", self.run_id, error)
        if isinstance(error, StoreError) and by != "expiry":
            self._lost(error)  # for who waits for the run, and not for the answer
        self.follow()

    def _resolved(
        self, asked_in: Sequence[RunState], written: Sequence[StoredEvent]
    ) -> StoredEvent:
        answer = written[0]
        if isinstance(answer, Resolved):
            remember(asked_in[-1], answer, self.spec.tools, self.spec.remembered)
        if self.journal.driver == this_process():
            self.go_on()
        else:
            self.follow()
        return answer

    def queue(self, said: Said, *, by: str = "code") -> bool:
        """Send a message after the open calls' results; False where the run has ended.

        Raises:
            UsageError: its files are too large.
        """
        check_room(self.state.messages, said)
        event = message_queued(self.spec.clock(), said, by=by)
        sent = bool(self.journal.commit(lambda state: [] if state.outcome else [event]))
        if sent and isinstance(next_step(self.state), CallModel):  # it waited for an outside system
            self.go_on()
        return sent

    def dismiss(self, *, by: str = "code") -> None:
        """Refuse all that is asked, and stop: the person wants something else.

        Does nothing where a call or the model is at work, or where the run has ended.
        """
        stamp = (by, self.spec.clock())
        stopped = RunCancelled(at=stamp[1], by=by, user=user_behind(by))

        def decide(state: RunState) -> list[StoredEvent]:
            if status_of(state) != "interrupted":
                return []
            return [*rejected(state, self.spec, stamp), stopped]

        if self.journal.commit(decide):
            self._abandon()

    def fail_expired(self, event: Interrupted) -> None:
        """Fail the run of a question that nobody answered, as soon as nothing runs any more."""
        error, now = expiry_error(self.state, event), self.spec.clock()

        def abandon(written: Sequence[StoredEvent]) -> None:
            if written:
                self.error = error
                self._abandon()

        decide = partial(expired, event=event, text=str(error), now=now)
        self._then(self.journal.submit(decide), abandon)

    # --- waiting

    def when_settled(self) -> Future[None]:
        """Done when nothing can go on without an answer, or at the end; for any thread."""
        return self._when(self.is_settled)

    def when_over(self) -> Future[None]:
        """Done when awaiting the run has something to say; for any thread."""
        return self._when(self.is_over)

    def is_over(self) -> bool:
        """Whether awaiting has something to say: the end, or that a person is asked and nobody is there."""
        if self.status == "queued" and self.error is None:
            first = self.first_in_line()
            return first is not None and first.is_over(attended=self.attended)
        ended = self.state.outcome is not None or self.error is not None
        return self.is_settled() and (ended or (not self.attended and self._asks_a_person()))

    def _asks_a_person(self) -> bool:
        """Whether something waits that no outside system answers, or was answered wrongly."""
        waiting = self.state.pending
        return any(
            event.expects != "external" or event.id in self.wrong_answers for event in waiting
        )

    def is_settled(self) -> bool:
        """Whether nothing can go on without an answer or another process, or the run has ended."""
        if self._scripted is not None and self._scripted.undecided:
            return False
        if self._writing:
            return False
        if self._is_active:  # a body that waits at the line where it asks keeps its driver
            decides = self._driver is None or self._driver.decides
            waits = self.status == "interrupted" and waits_in_body(self.state)
            return waits and not decides
        if self.status == "queued" and self.error is None:
            first = self.first_in_line()
            return first is not None and first.stands()
        return self.status != "running" or self.error is not None

    @property
    def wrong_answers(self) -> Mapping[str, Exception]:
        """What was wrong with answers of ``answers=``, by interrupt id."""
        return {} if self._scripted is None else self._scripted.wrong

    @property
    def answers_told(self) -> str:
        """What is to be known of ``answers=`` where one is missing."""
        return "" if self._scripted is None else self._scripted.told()

    def _when(self, holds: Callable[[], bool]) -> Future[None]:
        """Done once ``holds`` does, which is looked at now and whenever the run has moved."""
        self._deadlines.apply(self)
        self._revive()
        future: Future[None] = Future()
        with _waiting_lock:
            if holds():
                future.set_result(None)
            else:
                self._waiting += ((holds, future),)
        return future

    def notify(self) -> None:
        """Look who has waited long enough, and tell the runs behind this one."""
        for one in self.behind:
            one.follow()
        if not self._waiting:
            return
        with _waiting_lock:
            ready = [(holds, future) for holds, future in self._waiting if holds()]
            self._waiting = tuple(waiting for waiting in self._waiting if waiting not in ready)
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    # --- stopping

    def stop(self, *, by: str) -> Future[None]:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        self._is_stopping = True
        loop = self._home()
        if self._stopped is not None:
            return self._stopped
        if loop is not running_loop() or self._task is not None:
            self._stopped = asyncio.run_coroutine_threadsafe(self._stop(by), loop)
            return self._stopped
        return self._cancelled(by)

    @contextmanager
    def stopped_by_keyboard(self) -> Iterator[None]:
        """Code that waits for the run: Ctrl+C cancels it, and goes on when that is stored.

        A run that another process goes on with is only waited for no more.
        """
        try:
            yield
        except KeyboardInterrupt:
            if self._is_followed:
                raise
            try:
                stopped = self.stop(by="keyboard")
                if running_loop() is not self.loop:
                    with suppress(TimeoutError):  # something holds up the loop of the run
                        stopped.result(2 * GRACE)
            finally:  # also where it is pressed again
                self._end_at_once("keyboard")
            raise
        except asyncio.CancelledError:
            if interruption()() and not self._is_followed:  # and its loop is about to be closed
                self._end_at_once("keyboard")
            raise

    @property
    def _is_followed(self) -> bool:
        """Whether another process, as far as is known a living one, goes on with the run."""
        driver = self.journal.driver
        is_theirs = bool(driver) and driver != this_process() and not self._is_active
        return is_theirs and self.status == "running" and not self._others.has_ended(driver)

    @property
    def driven_elsewhere(self) -> str:
        """The other living process that drives the run now, or runs a body of it; empty where there is none."""
        if self.state.outcome is not None:
            return ""
        drives = [self.journal.driver] if self.status == "running" else []
        owners = [*drives, *owners_elsewhere(self.state)]
        others = (one for one in owners if one not in ("", this_process()))
        return next((one for one in others if not self._others.has_ended(one)), "")

    def _end_at_once(self, by: str) -> None:
        """Store that the run is cancelled, from any thread, whatever still runs."""
        if self.state.position == 0:  # its first event was on its way
            with suppress(UsageError):
                self.journal.catch_up()
        if self.state.position and self.state.outcome is None:
            left = () if self._driver is None else self._driver.left_bodies
            self.journal.end(self._cancellation(by, left))

    def _cancellation(self, by: str, still_running: tuple[str, ...]) -> RunCancelled:
        now = self.spec.clock()
        return RunCancelled(at=now, by=by, still_running=still_running, user=user_behind(by))

    async def _stop(self, by: str) -> None:
        driver, task = self._driver, self._task
        still_running: tuple[str, ...] = ()
        try:
            if driver is not None and task is not None:
                driver.stop()
                task.cancel()
                await _bodies_end(driver, task)
                still_running = driver.left_bodies
        finally:
            stored = self._cancelled(by, still_running)
        await asyncio.wrap_future(stored)

    def _cancelled(self, by: str, still_running: tuple[str, ...] = ()) -> Future[None]:
        """Write that the run was cancelled, after all that waits to be written."""
        event = self._cancellation(by, still_running)

        def stopped(_: None) -> None:
            # one that had failed already may be tried again
            self._is_active = self._is_stopping = False
            self._stopped = None
            self._progressed()

        began = bool(self.state.position or self._writing)
        return self._then(self.journal.submit_end(event) if began else finished(None), stopped)

    def _abandon(self) -> None:
        """The run has ended: leave the bodies that wait for answers nobody can give any more."""
        self.call_soon(self._leave_bodies)

    def _leave_bodies(self) -> None:
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            self._task.cancel()
        else:
            self._is_active = False
        self._progressed()


_open: weakref.WeakSet[Session] = weakref.WeakSet()
"""The sessions that this process holds."""
_lock = threading.RLock()
"""Held for a moment while a session moves to another loop, or begins to follow."""
_waiting_lock = threading.Lock()
"""Held for a moment while somebody begins to wait, or has waited long enough."""
_driven: set[Session] = set()
"""Sessions with a driver at work: an event loop alone keeps no task alive."""


def _look(session: Callable[[], Session | None]) -> None:
    """Look what others wrote, unless nobody has the run any more."""
    found = session()
    if found is not None:
        found._look()  # noqa: SLF001 - its own, by a reference that keeps nothing alive


def _nobody() -> None:
    return None


def open_sessions() -> list[Session]:
    """The sessions that this process holds."""
    return list(_open)


def held(run_id: str, store: object) -> Session | None:
    """The session of a run that this process holds; another store may have another run of its id."""
    return next((one for one in open_sessions() if _is_of(one, run_id, store)), None)


def _is_of(session: Session, run_id: str, store: object) -> bool:
    return session.run_id == run_id and is_same_place(session.journal.store, store)


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
