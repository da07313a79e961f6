"""One handle's share in a run: where it lives, who goes on with it, and all that may be done to it.

``Run`` is what a person holds; the engine and the notebook hold its session. A session drives the run
on the run's loop when it is its turn, and follows the journal when others drive: another process, or
another handle here.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import Conflict, NotPending, StoreError, UsageError
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
from nbagent.core.call.threads import private_loop, running_loop
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import is_same_place
from nbagent.core.journal.journal import Decide, Journal, Unsaid
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.journal.unwritten import forget_unwritten, unwritten_of
from nbagent.core.state.fork import forked
from nbagent.core.state.next_step import CallModel, next_step
from nbagent.core.state.retry import check_known, check_none_ran_elsewhere
from nbagent.core.state.state import RunState, Status, running_calls, waits_in_body
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

from .answerer import Answerer, AnswerKeeper
from .answers import (
    AnyResolution,
    TimeIsOver,
    answer,
    check_open,
    interrupts_of,
    next_driver,
    remember,
)
from .deadlines import Deadlines, expired, expiry_error
from .driving import Driving
from .follow import taken_from
from .follower import Follower
from .generate import message_queued, rejected
from .host import Place, ScriptHost
from .queued import Before, Line, run_started
from .scripted_answers import Answers, AnswerSource, KeptAnswers
from .stopping import Stopping
from .waiters import Waiters
from .writes import Writes

R = TypeVar("R")

logger = logging.getLogger("nbagent")


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
        "_deadlines",
        "_scripted",
        "attended",
        "driving",
        "error",
        "follower",
        "handle",
        "host",
        "journal",
        "line",
        "loop",
        "spec",
        "stopping",
        "values",
        "waiters",
        "writes",
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
        self.values = dict(values or {})
        self._deadlines = Deadlines()
        self.waiters = Waiters()
        self.writes = Writes(self)
        """What is on its way to the store."""
        self.driving = Driving(self)
        """The driver, where one is at work here."""
        self.line = Line(self)
        """Where the run stands in line behind another one."""
        self.follower = Follower(self)
        """What others do with the run."""
        self.stopping = Stopping(self)
        """How it is cancelled."""
        self._scripted: Answerer | None = None
        kept: KeptAnswers | None = hooks.kept_answers(spec.model)
        if not place.attended and (answers is not None or kept is not None):
            self._scripted = Answerer(AnswerSource(answers), kept, self)
            journal.subscribe(self._scripted.hear)
        if kept is not None:
            keeper = AnswerKeeper(kept)
            for event in journal.subscribe(keeper.hear):
                keeper.hear_of_before(event)
        with _lock:
            _open.add(self)

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
        return self.journal.state.status

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
        return (
            self.follower.others.awaited if self.status == "running" and self.error is None else ""
        )

    @property
    def is_stored(self) -> bool:
        """Whether the run's journal outlives this process."""
        return not isinstance(self.journal.store, MemoryStore)

    @property
    def is_stopping(self) -> bool:
        """Whether the run is being cancelled: no answer is taken and no driver started any more."""
        return self.stopping.is_under_way

    def tool(self, name: str) -> Tool[..., Any] | None:
        """The registered tool of this name, as it is defined now."""
        return self.spec.tools.get(name)

    def why_not_pending(self, interrupt_id: str) -> str:
        """What became of an interrupt that takes no answer (any more): who answered, and when."""
        try:
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
                self.begun()
            else:
                meanwhile()
                self.take_up()

        self.writes.then(self.journal.submit(begin), begun)

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

        def queued(_events: Sequence[StoredEvent]) -> None:
            self.line.join(before)
            self.follow()

        self.writes.then(self.journal.submit(lambda _state: [event]), queued)

    def begun(self) -> None:
        """The run has begun: let it go on."""
        self._watch_pending()
        self.go_on()

    def beside(self, run_id: str) -> Session | None:
        """The session of another run of this run's store, where this process has one."""
        return held(run_id, self.journal.store)

    def first_in_line(self) -> Before | None:
        """The run that all before this one wait for; None where this one is not queued."""
        return self.line.first()

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
                raise UsageError(f"only a failed run is retried; this one is {state.status}")
            return [event, *self._unwritten(state, state.outcome)]

        self.submit(decide, lambda _events: self._retried(), self._not_retried)

    def _not_retried(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self.lost(error)
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
        made.writes.then(journal.submit(lambda _state: events), lambda _events: made.take_up())
        return made

    def _unwritten(self, state: RunState, failed: RunFailed) -> Sequence[StoredEvent]:
        """What tools came to that could not be stored; refuses where that cannot be known."""
        check_none_ran_elsewhere(state, failed)
        check_known(state, failed)
        return unwritten_of(self.run_id, state)

    def submit(
        self,
        decide: Decide,
        go_on: Callable[[Sequence[StoredEvent]], R],
        failed: Callable[[BaseException], None],
    ) -> Future[R]:
        """Write what a person decides; where that is refused, others may have gone on with the run."""
        try:
            return self.writes.then(self.journal.submit(decide), go_on, failed)
        except Exception:
            self.follow()
            raise

    # --- driving

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""
        self.home().call_soon_threadsafe(work)

    def home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on; another one once that is closed."""
        with _lock:
            if self.loop.is_closed():
                for part in (self.driving, self.stopping, self.follower, self._deadlines):
                    part.forget()
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
        loop = running_loop()
        here = [one for one in self.line.here() if loop is not None and one.loop is loop]
        if here and (loop is private_loop() or any(one.is_at_work for one in here)):
            return False
        for one in here:
            one.move()
        return True

    def move(self) -> None:
        """Live on the private loop from now on; called on the loop of before, where nothing of it is at work."""
        self.follower.leave()
        self._deadlines.leave()
        with _lock:
            self._move(private_loop())
        self.follow()

    @property
    def is_at_work(self) -> bool:
        """Whether a driver is, or something waits to be written."""
        return self.driving.is_active or self.driving.has_begun or bool(self.writes)

    def go_on(self) -> None:
        """Let a driver look at the state; from any thread."""
        if self.status == "queued":  # it was retried: nothing is to be driven yet
            self.follow()
            return
        self.driving.go_on()

    def driven(self) -> None:
        """A driver is at work from now on; called on the run's loop."""
        self.follower.watch_on()

    def undriven(self, error: BaseException | None) -> bool:
        """It has ended with this error, or well; whether another process has taken the run."""
        is_over, taken, was_taken = (
            self.state.outcome is not None,
            self.journal.taken,
            self.follower.was_taken,
        )
        if is_over:
            self.follower.leave()
            self.follower.seen()
        if was_taken and not is_over and taken is not None:
            self.error = taken_from(self.run_id, taken)
        elif error is not None:
            self.error = error
            self.follower.seen()
            if isinstance(error, StoreError) and not is_over:  # nor could that be stored
                self.follower.look_later()
        return was_taken

    def cut_off(self, unsaid: Unsaid) -> None:
        """Ctrl+C has ended the driver with the program's loop, and what it was about to say."""
        self.stopping.cancelled("keyboard", unsaid=unsaid)

    def paused(self, event: Interrupted) -> None:
        """A question waits from now on; called on the run's loop."""
        self._deadlines.watch(self, event)
        self.progressed()
        self.follow()

    def progressed(self) -> None:
        """The run may have come to a stand: tell who waits."""
        if self.journal.owes:
            self.follower.look_later()
        self.line.leave()
        self._deadlines.apply(self)
        self.notify()

    def lost(self, why: BaseException | None) -> None:
        """Note why the run cannot go on, or that it does; called on its loop, its state may be another by now.

        It can once a store that fails is back.
        """
        self.error = why
        if isinstance(why, StoreError):
            self.follower.look_later()
        for event in self.state.pending:
            self._deadlines.watch(self, event)
        self.progressed()

    def _revive(self) -> None:
        """Go on elsewhere if the run's loop was closed under it."""
        if not self.loop.is_closed():
            return
        stopped = self.error is not None and self.status == "running"
        was_cut_off = stopped and not running_calls(self.state)
        if self.driving.is_active or was_cut_off:  # it closed before the driver got there
            self.go_on()
        elif self.error is None or isinstance(self.error, StoreError):
            self.error = None  # the look that was planned is gone with the loop
            self.follow()

    def follow(self) -> None:
        """Keep up with what others write, and go on where nobody else does; from any thread."""
        self.follower.follow()

    # --- answering

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution | TimeIsOver, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt; safe from any thread. See ``Run.resolve``.

        Returns:
            The event, once it is stored; what can be refused now raises now.
        """
        if not isinstance(resolution, TimeIsOver):
            self._deadlines.apply(self)
        stamp = (by, self.spec.clock())
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
            logger.warning("an answer to run %s was not taken: %s", self.run_id, error)
        if isinstance(error, StoreError) and by != "expiry":
            self.lost(error)  # for who waits for the run, and not for the answer
        else:
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

        def decide(state: RunState) -> list[StoredEvent]:
            return [] if state.outcome else [event]

        def written(events: Sequence[StoredEvent]) -> bool:
            if events and isinstance(next_step(self.state), CallModel):  # for an outside system
                self.go_on()
            return bool(events)

        sent = self.submit(decide, written, self._not_sent)
        if sent.done():
            return sent.result()
        sent.add_done_callback(self._sent)
        return self.state.outcome is None

    def _sent(self, sent: Future[bool]) -> None:
        if sent.exception() is None and not sent.result():
            self._not_sent(NotPending("the run has ended elsewhere"))

    def _not_sent(self, error: BaseException) -> None:
        logger.warning("a message to run %s was not sent: %s", self.run_id, error)
        if isinstance(error, StoreError):
            self.lost(error)

    def dismiss(self, *, by: str = "code") -> Future[None]:
        """Refuse all that is asked, and stop: the person wants something else; done once that is stored.

        Does nothing where a call or the model is at work, or where the run has ended.
        """
        stamp = (by, self.spec.clock())
        stopped = RunCancelled(at=stamp[1], by=by, user=user_behind(by))

        def decide(state: RunState) -> list[StoredEvent]:
            if state.status != "interrupted":
                return []
            return [*rejected(state, self.spec, stamp), stopped]

        def written(events: Sequence[StoredEvent]) -> None:
            if events:
                self._abandon()

        return self.submit(decide, written, self.lost)

    def fail_expired(self, event: Interrupted) -> None:
        """Fail the run of a question that nobody answered, as soon as nothing runs any more."""
        error, now = expiry_error(self.state, event), self.spec.clock()

        def abandon(written: Sequence[StoredEvent]) -> None:
            if written:
                self.error = error
                self._abandon()

        decide = partial(expired, event=event, text=str(error), now=now)
        failed = partial(self._not_resolved, "expiry")
        self.writes.then(self.journal.submit(decide), abandon, failed)

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
            first = self.line.first()
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
        if self.writes:
            return False
        if self.driving.is_active:  # a body that waits at the line where it asks keeps its driver
            waits = self.status == "interrupted" and waits_in_body(self.state)
            return waits and not self.driving.decides
        if self.status == "queued" and self.error is None:
            first = self.line.first()
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
        return self.waiters.when(holds)

    def notify(self) -> None:
        """Look who has waited long enough, and tell the runs behind this one."""
        self.line.tell()
        self.waiters.tell()

    # --- stopping

    def stop(self, *, by: str) -> Future[None]:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        return self.stopping.stop(by)

    def _abandon(self) -> None:
        """The run has ended: leave the bodies that wait for answers nobody can give any more."""
        self.call_soon(self._leave_bodies)

    def _leave_bodies(self) -> None:
        self.driving.leave()
        self.progressed()


_open: weakref.WeakSet[Session] = weakref.WeakSet()
"""The sessions that this process holds."""
_lock = threading.RLock()
"""Held for a moment while a session moves to another loop, or begins to follow."""


def _nobody() -> None:
    return None


def open_sessions() -> list[Session]:
    """The sessions that this process holds."""
    with _lock:  # a set is not looked through while another thread adds to it
        return list(_open)


def held(run_id: str, store: object) -> Session | None:
    """The session of a run that this process holds; another store may have another run of its id."""
    for one in open_sessions():
        never_began = one.error is not None and not one.state.position
        is_it = one.run_id == run_id and not never_began
        if is_it and is_same_place(one.journal.store, store):
            return one
    return None


@atexit.register
def _report_unfinished() -> None:
    """Warn that the program ends before runs that it began and never waited for."""
    for one in open_sessions():
        is_left = (
            one.status == "running" and not one.waiters.were_any and not one.follower.is_theirs
        )
        if is_left and isinstance(one.host, ScriptHost):
            logger.warning(
                "nbagent: the program ended before its run of %r, as nothing waited for it. Use agent.run_sync(…), which "
                "gives the result, or await the run.%s",
                escaped(one.spec.agent),
                f" nb.open_run({one.run_id!r}) goes on with it." if one.is_stored else "",
            )
