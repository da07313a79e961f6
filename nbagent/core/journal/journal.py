"""The append-only list of a run's events, its store and its listeners."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import ref

from nbagent.core.base.errors import Busy, Conflict, NbagentError, StoreError, UsageError
from nbagent.core.base.events import (
    Resolved,
    RunCancelled,
    RunFailed,
    RunImported,
    RunQueued,
    RunRetried,
    RunStarted,
    RunTaken,
    StoredEvent,
    ToolFinished,
    ToolStarted,
    encoded,
    forget_encoding,
    storable_event,
)
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Message
from nbagent.core.base.model import ModelDelta
from nbagent.core.base.process import this_process
from nbagent.core.base.secrets import live_masks, release
from nbagent.core.base.user import named
from nbagent.core.state.fold import apply
from nbagent.core.state.state import EMPTY_STATE, RunState, evolve, running_calls
from nbagent.core.tools.call_output import (
    Chunk,
    Displayed,
    OutputDelta,
    Printed,
    Progressed,
    StepStarted,
)

from .history import (
    Known,
    LostReference,
    histories_of,
    reference_of,
    referred_by,
    resolve_reference,
    with_full_history,
    with_reference,
)
from .unwritten import call_of, keep_unwritten

_NAMES_DRIVER = (RunStarted, Resolved, ToolStarted, RunRetried, RunTaken)
"""Events that name the process that drives the run."""

T = TypeVar("T")
W = TypeVar("W", bound="Future[Any] | _Written")
RunEvent: TypeAlias = StoredEvent | ModelDelta | OutputDelta
Listener: TypeAlias = Callable[[RunEvent], None]
Decide: TypeAlias = Callable[[RunState], Sequence[StoredEvent]]
"""A function that returns the events to add to a state, or raises; called again if the journal has grown."""
_Steps: TypeAlias = Generator[tuple[Sequence[StoredEvent], int], None, T]
"""A write. In a group, the write yields the events to append, with the expected length, and continues once they are
stored. Otherwise the write appends directly."""
_Append: TypeAlias = Callable[[Sequence[StoredEvent], int], None]
_Work: TypeAlias = Callable[[_Append | None], _Steps[T]]
"""A function that starts a write. The write appends with the passed function; with None, it yields what to append.
Only with ``Journal._append`` may the write wait for the store. Otherwise, if it must wait, it raises ``_WouldWait``."""
_Begun: TypeAlias = tuple[_Steps[T], tuple[Sequence[StoredEvent], int]]
"""A started write, and what it has yielded."""
CutOff: TypeAlias = Callable[[], Sequence[StoredEvent]]
"""A function that returns the events to write before a run's end; called when the end is written."""
_YIELDS = "only a write in a group yields"
LINGER = 0.1
"""Seconds that a thread waits for another write, since starting a thread costs more than many writes."""
MOST = 64
"""Maximum number of runs in one group."""
logger = logging.getLogger("nbagent")


class Store(Protocol):
    """Storage of journals. All writes use ``append``, whose ``expected`` lets a question be answered only once.

    A store may have more attributes. ``without_waiting()`` returns a context in which ``append`` raises ``Busy`` on this
    thread instead of waiting; such a store is written to on the event loop, any other store in a thread. ``group`` is
    a ``Group``, which appends to several runs in one transaction. ``watch(run_id, watcher)`` makes the store
    call the watcher after each append to this run, also by other processes. The store holds the watcher by a weak
    reference. Extra calls on any thread are allowed. ``watch`` returns False if the store cannot notify now.
    """

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones.

        Raises:
            Conflict: the journal has more or fewer events; nothing was added.
            LostReference: a run to which the events refer (``referred_by``) was deleted; nothing was added.
            StoreError: the events could not be written; nothing was added.
        """

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events from number ``start`` on.

        Raises:
            UsageError: there is no such run.
            StoreError: the events could not be read.
        """

    def run_ids(self) -> list[str]:
        """The ids of all runs, oldest first."""


def is_slow(store: object) -> bool:
    """Whether to call a store only in threads, because a call may take long, as over a network."""
    return getattr(store, "without_waiting", None) is None


class RunDeleted(StoreError):
    """The store no longer has the run."""


class Watcher(Protocol):
    """An object that a store notifies when a run's journal grows."""

    def on_append(self) -> None:
        """Handle an append; called afterwards, on the thread that appended."""


class Following(Protocol):
    """An object that follows a run: the session of a handle, or of a run that is queued behind it."""

    def follow(self) -> None:
        """Look for new events; called on any thread."""


class Append(NamedTuple):
    """An append to one run: the arguments of ``Store.append``."""

    run_id: str
    events: Sequence[StoredEvent]
    expected: int


def journal_changed(
    run_id: str, expected: int, length: int, winner: StoredEvent | None
) -> Conflict:
    """The ``Conflict`` of an append to a journal of ``length`` events; ``winner`` is event ``expected``."""
    text = (
        f"Run {run_id!r} was changed in the meantime: it has {length} events, expected {expected}"
    )
    if winner is None:
        return Conflict(text)
    who = {Resolved: "by", RunCancelled: "by", ToolStarted: "owner"}.get(type(winner))
    by = f" by {named(getattr(winner, who), getattr(winner, 'user', ''))}" if who else ""
    return Conflict(f"{text}. Event {expected} is {winner.type!r}{by} at {moment(winner.at)}")


def id_was_reused(run_id: str) -> Conflict:
    """The ``Conflict`` of an append to a deleted run whose id another run has now."""
    return Conflict(f"Run {run_id!r} was deleted, and a new run uses its id")


def moment(at: float) -> str:
    """A Unix time as text, in UTC."""
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).isoformat("T", "seconds")


class Journal:
    """One run's events: written in order, folded into the state, and passed to listeners.

    ``write`` and ``submit`` never block an event loop: a write that the store does not accept at once waits
    in a thread, in order. ``commit``, ``append`` and ``end`` block the caller's thread. Events are stored
    before they are folded or passed on. Without a store (``generate``) only the state is kept.

    Listeners are called on the thread that writes, under a lock: they must be quick and must not wait.
    A listener that raises is logged and removed, because it has missed an event.
    """

    __slots__ = (
        "__weakref__",
        "_before",
        "_follower",
        "_is_sending",
        "_is_slow",
        "_is_vacant",
        "_known",
        "_last",
        "_left",
        "_line",
        "_lock",
        "_outcome",
        "_steps",
        "_turn",
        "_unsent",
        "_unstored_end",
        "_writer",
        "driver",
        "group_append",
        "is_notified",
        "listeners",
        "may_drive",
        "run_id",
        "state",
        "store",
        "taken",
    )

    def __init__(
        self,
        run_id: str,
        store: Store | None,
        state: RunState | None = None,
        *,
        keeps_events: bool = True,
    ) -> None:
        """``keeps_events=False`` saves memory if only the state is needed."""
        self.run_id = run_id
        self.store = store
        self.state = state if state is not None else EMPTY_STATE
        self.listeners: tuple[Listener, ...] = ()
        self._is_slow = store is not None and is_slow(store)
        self._known: list[StoredEvent] | None = [] if self._is_slow and keeps_events else None
        """The stored events, if the store is slow, so that no event loop waits to read them again."""
        self._turn = threading.RLock()
        """Held while writing, or reading what others wrote; may be held for long."""
        is_instant = not self._is_slow and getattr(store, "is_instant", store is None)
        self._lock = self._turn if is_instant else threading.RLock()
        """Held briefly while folding and calling listeners; taken after ``_turn``."""
        self._line: tuple[_Waiting, ...] = ()
        """Writes that wait for the writing thread; the first is in progress."""
        self._unsent: tuple[StoredEvent, ...] = ()
        self._is_sending = False
        self._unstored_end: tuple[StoredEvent, ...] = ()
        """The run's end that could not be stored; it is written before any later event."""
        self._before = self.state
        """The state without the end in ``_unstored_end``."""
        self.driver = ""
        """The process that last started the run, answered it or executed a call."""
        self.taken: RunTaken | None = None
        """The event with which ``driver`` took the run over, if it did."""
        self._is_vacant = False
        """Whether the last answer named no owner, so ``driver`` no longer drives the run."""
        self.may_drive = store is None
        """Whether this process may take the run's next step, because it was the last to drive the run."""
        self._last: StoredEvent | None = None
        """The last stored event that this process knows."""
        self._writer: int | None = None
        """The thread that writes now; the store's notifications on it are ignored."""
        self._follower: Following | None = None
        self.is_notified: bool | None = None
        """Whether the store notifies this journal of writes by others; None until somebody watches."""
        self._steps: _Steps[Any] | None = None
        """The started write of this run in a group."""
        self.group_append: Append | None = None
        """The next append of that write."""
        self._outcome: bool | Exception | None = None
        """The outcome of ``group_append``, until its events are folded."""
        self._left: _Begun[Any] | None = None
        """The first write of the line, if a group has begun it and could not append."""

    @property
    def remembered(self) -> Sequence[Remembered]:
        """Approvals that a person chose to remember in this run."""
        return self.state.remembered

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages up to now."""
        return self.state.messages

    @property
    def root(self) -> Journal:
        """The journal of the outermost run: this one."""
        return self

    @property
    def is_vacant(self) -> bool:
        """Whether certainly no process drives the run; the next driver writes ``RunTaken`` first."""
        return self._is_vacant or not self.driver

    # --- writing

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """``commit`` on an event loop, without blocking it.

        The write completes even if the awaiting task is cancelled.
        """
        work = partial(self._commit, decide)
        try:
            return self._now(work)
        except _WouldWait:
            written = _Written()
            self._later(work, written)
        await written.ended
        events: Sequence[StoredEvent] = written.outcome()
        return events

    def submit(self, decide: Decide) -> Future[Sequence[StoredEvent]]:
        """``commit`` for code that may run on an event loop; if ``decide`` raises now, this method raises.

        On a thread without an event loop, the write is complete on return, except in a listener during a group's write.
        """
        work = partial(self._commit, decide)
        if _wakes.joined is not None:  # other runs of the group must not wait for this one
            if self._turn.acquire(blocking=False):
                if self._outcome is not None:
                    self.finish_group_write()
                self._turn.release()
        elif not _on_loop():
            return finished(self.commit(decide))
        try:
            return finished(self._now(work))
        except _WouldWait:
            decide(self.state)
            return self._later(work, under_way())

    def submit_end(self, event: StoredEvent, before: CutOff = tuple) -> Future[None]:
        """``end`` for code that may run on an event loop."""
        work = partial(self._end, event, before)
        try:
            return finished(self._now(work))
        except _WouldWait:
            return self._later(work, under_way())

    def look(self) -> Future[None]:
        """``catch_up`` for code that may run on an event loop; then store an end that could not be stored before."""
        if self.store is None:
            return finished(None)
        work = partial(self._renew, self.store)
        try:
            return finished(self._now(work))
        except _WouldWait:
            return self._later(work, under_way())

    def append(self, *events: StoredEvent) -> None:
        """Add these events in any state.

        Raises:
            Conflict: another process has written meanwhile; the state is up to date again.
            StoreError: the store failed; nothing was added.
        """
        self._wait_turn(partial(self._write, events))

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """Add the events that ``decide`` returns for the state; if it raises, nothing is written.

        Raises:
            StoreError: the store failed; nothing was added.
        """
        return self._wait_turn(partial(self._commit, decide))

    def end(self, event: StoredEvent, before: CutOff = tuple) -> None:
        """Add what ``before()`` returns, then the event that ends the run; only in memory if the store fails.

        If the run has already ended, this method only tries again to store the end.
        """
        self._wait_turn(partial(self._end, event, before))

    def catch_up(self, read_events: Sequence[StoredEvent] | None = None) -> None:
        """Fold in what other processes have written. For a new ``Journal``, pass its events if you have read them."""
        if self.store is not None:
            with self._turn:
                self.finish_group_write()
                if read_events is None:
                    self._catch_up(self.store)
                else:
                    self._take(self._with_full_history(self.store, read_events))

    def _wait_turn(self, work: _Work[T]) -> T:
        """Write on the caller's thread, after the write that another thread is doing."""
        with self._turn:
            self.finish_group_write()
            return self._perform(work)

    def _perform(self, work: _Work[T], begun: _Begun[T] | None = None) -> T:
        """Write on this thread, which holds the turn; start with what a group has begun."""
        if begun is not None:
            with suppress(_WouldWait):
                return _resumed(*begun, self._append)
        try:
            next(work(self._append))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise AssertionError(_YIELDS)

    def _now(self, work: _Work[T]) -> T:
        """Write on the caller's thread, if no write is waiting.

        Raises:
            _WouldWait: nothing was done.
        """
        if self._is_slow or self._line or not self._turn.acquire(blocking=False):
            raise _WouldWait
        try:
            next(work(self._append_at_once))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            self._turn.release()
        raise AssertionError(_YIELDS)

    def _later(self, work: _Work[T], written: W) -> W:
        """Write in a thread, after all waiting writes of this run; with writes of other runs, if the store has a group."""
        waiting = _Waiting(work, written)
        with _line_lock:
            is_first = not self._line
            self._line += (waiting,)
        if is_first:
            self._start_line()
        return written

    def _start_line(self) -> None:
        group: Group | None = getattr(self.store, "group", None)
        if group is not None and group.is_of(self.store):
            group.add(self)
        else:
            _in_writer(self._work_off)

    def _work_off(self) -> None:
        """Do the writes of the line on this thread."""
        while True:
            with self._turn:
                self.finish_group_write()
                if not self._line:
                    return
                self._do_first()

    def _do_first(self, begun: _Begun[Any] | None = None) -> None:
        """Do the first write of the line; this thread holds the turn."""
        work, written = self._line[0]
        try:
            result = self._perform(work, begun)
        except BaseException as error:
            self._remove_first()
            written.set_exception(error)
        else:
            self._remove_first()
            written.set_result(result)

    def _remove_first(self) -> bool:
        """Remove the first write of the line; return whether there are others."""
        with _line_lock:
            self._line = self._line[1:]
            return bool(self._line)

    # --- writing in a group: on one thread, with other runs

    def begin_group_write(self) -> None:
        """Start the first write of the line. ``group_append`` is then its append, or None if the write is not in the group."""
        if not self._turn.acquire(blocking=False):  # another thread writes or reads
            _in_writer(self._work_off)
        elif not self._line or self._left is not None or self._steps is not None:
            # another thread did the write or is about to, or the write has begun
            self._turn.release()
        else:
            self._steps = self._line[0].work(None)
            self._continue_group_write()

    def note_group_append(self, outcome: bool | Exception) -> None:  # noqa: FBT001 - a fact
        """Note whether ``group_append`` was stored, or the error after which that is unknown.

        If it was not stored, the next thread that holds the turn tries the append again, and continues the write.
        """
        if outcome:
            self._outcome = outcome
        elif self._steps is not None and self.group_append is not None:
            self._left = (self._steps, self.group_append[1:])
            self._end_group_write()
            _in_writer(self._work_off)

    def finish_group_write(self) -> None:
        """Finish the write that a group has begun, if there is one; this thread holds the turn.

        Called by the group, by the next writer, or by another run's listener that writes to this run.
        """
        outcome, self._outcome = self._outcome, None
        left, self._left = self._left, None
        if outcome is not None:
            self._continue_group_write(outcome if isinstance(outcome, Exception) else None)
        elif left is not None:
            self._do_first(left)

    def _continue_group_write(self, error: Exception | None = None) -> None:
        assert self._steps is not None
        self.group_append, written = None, self._line[0].written
        try:
            write = next(self._steps) if error is None else self._steps.throw(error)
        except _WouldWait:
            self._end_group_write()
            _in_writer(self._work_off)
            return
        except StopIteration as end:
            has_more = self._remove_first()
            written.set_result(end.value)
        except BaseException as failure:
            has_more = self._remove_first()
            written.set_exception(failure)
        else:
            self.group_append = Append(self.run_id, *write)
            return
        self._end_group_write()
        if has_more:
            self._start_line()

    def _end_group_write(self) -> None:
        self._steps = self.group_append = None
        self._turn.release()

    def _append(self, sent: Sequence[StoredEvent], expected: int) -> None:
        if self.store is not None:
            self.store.append(self.run_id, sent, expected)

    def _append_at_once(self, sent: Sequence[StoredEvent], expected: int) -> None:
        store: Any = self.store
        if store is None:
            return
        try:
            with store.without_waiting():
                store.append(self.run_id, sent, expected)
        except Busy as error:
            raise _WouldWait from error

    def _commit(self, decide: Decide, append: _Append | None) -> _Steps[Sequence[StoredEvent]]:
        while True:
            position = self._stored_length
            events = decide(self.state)
            if not events:
                return events
            try:
                yield from self._write(events, append)
            except Conflict as error:
                if self._stored_length == position:
                    keep_unwritten(self.run_id, self.state, events)
                    raise StoreError(
                        f"The store rejected the write but has no new events: {error}"
                    ) from error
                continue
            return events

    def _end(self, event: StoredEvent, before: CutOff, append: _Append | None) -> _Steps[None]:
        def decide(state: RunState) -> list[StoredEvent]:
            return [*before(), event] if self._may_end(state, event) else []

        try:
            if self._unstored_end:
                with suppress(Conflict):  # another process has continued the run
                    yield from self._write((), append)
            yield from self._commit(decide, append)
        except StoreError:
            logger.exception("run %s: its end could not be stored", self.run_id)
            owed = decide(self.state)
            if owed:
                with self._lock:
                    self._before = self.state
                    self._fold(owed)
                    self._unstored_end = tuple(owed)

    def _may_end(self, state: RunState, event: StoredEvent) -> bool:
        """Whether this process may end the run. Only a process that executes the run may end it with ``RunFailed``."""
        if state.outcome is not None or not isinstance(event, RunFailed) or self.may_drive:
            return state.outcome is None
        return any(call.owner == this_process() for call in running_calls(state))

    # --- listeners

    def subscribe(self, listener: Listener) -> list[StoredEvent]:
        """Call ``listener`` with each new event; returns all earlier events."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
            return self.read()

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one != listener)

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Pass a delta, which is not stored, to the listeners."""
        for listener in self.listeners:
            self._call_listener(listener, delta)

    def forget_events(self) -> None:
        """Read the events from the store again, because the run was deleted there."""
        with self._lock:
            self._known = None

    def read(self) -> list[StoredEvent]:
        """All events so far."""
        with self._lock:
            if self._known is not None:
                return [*self._known, *self._unstored_end]
            known = self._stored_length
            stored = self._stored(self.store, 0) if self.store is not None and known else []
            return [*stored[:known], *self._unstored_end]

    @property
    def _stored_length(self) -> int:
        """The number of stored events, as far as this process knows."""
        return self.state.position - len(self._unstored_end)

    @property
    def has_unstored_end(self) -> bool:
        """Whether the run's end could not be stored yet."""
        return bool(self._unstored_end)

    def _renew(self, store: Store, append: _Append | None) -> _Steps[None]:
        if append is None:
            raise _WouldWait
        self._catch_up(store)
        if self._unstored_end:
            with suppress(Conflict):  # another process has continued the run
                yield from self._write((), append)

    def _catch_up(self, store: Store) -> None:
        stored = self._stored(store, self._stored_length)
        if stored and self._last is not None:
            last = self._stored(store, self._stored_length - 1)[:1]
            if [*map(_mark, last)] != [_mark(self._last)]:
                raise self._deleted(store)
        self._take(stored)

    def _take(self, stored: Sequence[StoredEvent]) -> None:
        """Fold in further stored events; they replace an end that could not be stored."""
        if not stored:
            return
        with self._lock:
            owed, self._unstored_end = self._unstored_end, ()
            if not _starts_with(stored, owed):
                self.state, owed = self._before, ()
            if self._known is not None:
                self._known += stored
            self._fold(stored[len(owed) :])
            self._last = stored[-1]

    def _arrived(self, sent: Sequence[StoredEvent]) -> bool:
        """Whether an append that raised was stored nevertheless, as when the connection broke after it."""
        if self.store is None:
            return False
        try:
            stored = self.store.read(self.run_id, self._stored_length)
            arrived = _starts_with(stored, sent)
        except Exception:  # the failure of the append is reported instead
            return False
        self._take(self._with_full_history(self.store, stored))
        return arrived

    def _stored(self, store: Store, start: int) -> list[StoredEvent]:
        return self._with_full_history(store, self._read(store, start))

    def _read(self, store: Store, start: int) -> list[StoredEvent]:
        try:
            return store.read(self.run_id, start)
        except UsageError as error:
            if self._last is None:
                raise
            raise self._deleted(store) from error
        except NbagentError:
            raise
        except Exception as error:
            raise StoreError(f"Run {self.run_id!r} could not be read: {error}") from error

    def _deleted(self, store: Store) -> RunDeleted:
        return RunDeleted(
            f"Run {self.run_id!r} was deleted from {store!r}, so nothing is written to it"
        )

    def _with_full_history(self, store: Store, stored: Sequence[StoredEvent]) -> list[StoredEvent]:
        """The events with the histories that they refer to."""
        return [self._with_history(store, event) for event in stored]

    def _with_history(self, store: Store, event: StoredEvent) -> StoredEvent:
        reference = reference_of(event)
        if reference is None or not isinstance(event, RunStarted):
            return event
        has_begun = self.state.position > 0 and self.state.queue_event is None
        if has_begun and len(self.state.messages) >= reference.messages:
            return with_full_history(event, self.state.messages[: reference.messages])
        return with_full_history(
            event, resolve_reference(self.run_id, reference, store.read, histories_of(store))
        )

    def _encoded(
        self, events: Sequence[StoredEvent], *, may_wait: bool
    ) -> tuple[list[StoredEvent], list[StoredEvent]]:
        """The events as they are stored, and the same events with full histories.

        Raises:
            _WouldWait: the previous run would have to be read first.
        """
        short = list(events)
        if self.store is not None:
            for at, event in enumerate(events):
                if isinstance(event, RunStarted) and event.after and not event.scope:
                    short[at] = self._shortened(self.store, event, may_wait=may_wait)
        short = [storable_event(event) for event in short]
        complete = short.copy()
        for at, (event, shorter) in enumerate(zip(events, short, strict=True)):
            if shorter is event or not isinstance(shorter, RunStarted):
                continue
            reference = reference_of(shorter)
            if reference is not None and isinstance(event, RunStarted):
                complete[at] = with_full_history(shorter, event.messages[: reference.messages])
        return short, complete

    def _shortened(self, store: Store, event: RunStarted, *, may_wait: bool) -> RunStarted:
        """The event with a reference to the previous run, if the store has that run and the history begins with it."""
        if event.after is None or event.after == self.run_id:
            return event
        known = histories_of(store).last(event.after)
        if not may_wait and (known is None or self._is_slow):
            raise _WouldWait
        try:
            if known is None:
                before = Journal(event.after, store)
                before.catch_up()
                known = Known(before.state.position, before.state.messages)
            is_there = known.events > 0 and bool(store.read(event.after, known.events - 1))
        except (StoreError, UsageError):  # the previous run is in another store, or deleted
            return event
        return with_reference(event, known, event.after) if is_there else event

    def watch(self, follower: Following) -> bool:
        """Call the follower, on any thread, after writes by others; return False if the store does not notify."""
        if self.is_notified is None:
            with _watch_lock:
                self._follower = follower
                watch: Callable[[str, Watcher], bool] | None = getattr(self.store, "watch", None)
                if self.is_notified is None:
                    self.is_notified = watch is not None and watch(self.run_id, self)
        return self.is_notified

    def on_append(self) -> None:
        """Handle the store's notification of a write."""
        if self._follower is not None and self._writer != threading.get_ident():
            self._follower.follow()

    def _write(  # noqa: C901 - one branch for each outcome
        self, events: Sequence[StoredEvent], append: _Append | None
    ) -> _Steps[None]:
        """Store and fold the events; the caller holds ``_turn``."""
        if self.store is not None and (events or self._unstored_end):
            short, events = self._encoded(events, may_wait=append == self._append)
            sent = [*self._unstored_end, *short]
            self._writer = threading.get_ident()
            try:
                expected = self.state.position - len(self._unstored_end)
                if append is None:
                    yield sent, expected
                else:
                    append(sent, expected)
            except LostReference:  # the previous run was deleted: the history is stored in full
                # a queued run would wait for a run that does not exist
                if any(isinstance(event, RunQueued) for event in sent):
                    raise
                for gone in referred_by(self.run_id, sent):
                    histories_of(self.store).forget(gone)
                yield from self._write(events, append)
                return
            except Conflict:
                self._catch_up(self.store)
                raise
            except _WouldWait:
                raise
            except Exception as error:
                if self._arrived(sent):
                    return
                keep_unwritten(self.run_id, self.state, events)
                if isinstance(error, NbagentError):
                    raise
                raise StoreError(f"Run {self.run_id!r} could not be written: {error}") from error
            finally:
                self._writer = None
                for event in sent:
                    forget_encoding(event)
            self._last = sent[-1]
        with self._lock:
            if self._known is not None:
                self._known += [*self._unstored_end, *events]
            self._unstored_end = ()
            self._fold(events)

    def _fold(self, events: Sequence[StoredEvent]) -> None:
        """Fold all events, then pass them on; events that a listener appends are passed on afterwards."""
        for event in events:
            before, self.state = self.state, apply(self.state, event)
            if live_masks and isinstance(event, ToolFinished | Resolved | RunCancelled):
                _forget_secrets(before, self.state, event)
            if isinstance(event, _NAMES_DRIVER):
                if isinstance(event, RunTaken):
                    self.driver, self.taken = event.owner, event
                elif event.owner not in ("", self.driver):
                    self.driver, self.taken = event.owner, None
                self._is_vacant = isinstance(event, Resolved) and not event.owner
                self.update_may_drive()
            elif isinstance(event, RunImported):
                self.driver, self.taken, self._is_vacant = "", None, False
                self.update_may_drive()
        if self.store is not None and self.state.outcome is not None:
            known = Known(self.state.position, self.state.messages)
            histories_of(self.store).keep(self.run_id, known)
        if not self.listeners:
            return
        self._unsent += tuple(events)
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while self._unsent:
                event, *later = self._unsent
                self._unsent = tuple(later)
                for listener in self.listeners:
                    self._call_listener(listener, event)
        finally:
            self._is_sending = False

    def update_may_drive(self) -> None:
        """Set ``may_drive`` after the driver, or (in a fork) this process, has changed."""
        is_mine = self.driver == this_process() and not self._is_vacant
        self.may_drive = self.store is None or is_mine

    def _call_listener(self, listener: Listener, event: RunEvent) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("a listener of run %s failed and was removed", self.run_id)
            self.unsubscribe(listener)


def _mark(event: StoredEvent) -> tuple[str, float]:
    return event.type, event.at


def _starts_with(stored: Sequence[StoredEvent], sent: Sequence[StoredEvent]) -> bool:
    """Whether the stored events begin with these, compared by their encoding."""
    first = stored[: len(sent)]
    return list(map(encoded, first)) == list(map(encoded, sent))


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def finished(value: T) -> Future[T]:
    """A future that already has this result."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def chained(first: Future[Any], start: Callable[[], Future[T]]) -> Future[T]:
    """A future of the write that ``start`` starts when the first write is done; it fails if the first write fails."""
    outcome: Future[T] = under_way()

    def settle(done: Future[T]) -> None:
        if (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    def start_second(done: Future[Any]) -> None:
        try:
            done.result()
            start().add_done_callback(settle)
        except BaseException as error:
            outcome.set_exception(error)

    first.add_done_callback(start_second)
    return outcome


def under_way() -> Future[Any]:
    """A future of a pending write; cancelling a wait for it does not cancel the write."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


class Group:
    """The runs of one store with waiting writes, which one thread appends together.

    A write that arrives while a group is written is in the next group; no write waits for a group to fill.

    Args:
        store: a store with a method ``append_each``, which gets a list of ``Append``. The method returns for each
            run whether all its events were stored. If not, none were, and ``append`` is called with the same events.
    """

    def __init__(self, store: Any) -> None:
        self._store = ref(store)
        self._lock = threading.Lock()
        self._journals: list[Journal] = []
        self._has_thread = False

    def is_of(self, store: object) -> bool:
        """Whether this is the group of ``store`` itself, and not of a store that ``store`` wraps."""
        return self._store() is store

    def add(self, journal: Journal) -> None:
        """Have the group's thread write what waits in this journal's line."""
        with self._lock:
            self._journals.append(journal)
            is_first, self._has_thread = not self._has_thread, True
        if is_first:
            _in_writer(self._work_off)

    def _work_off(self) -> None:
        while True:
            with self._lock:
                journals, self._journals = self._journals[:MOST], self._journals[MOST:]
                self._has_thread = bool(journals)
            if not journals:
                return
            try:
                self._write(journals)
            except Exception:
                logger.exception("a group of writes failed")
            journals.clear()
            postponed, _wakes.postponed = _wakes.postponed, ()
            for work in postponed:
                work()

    def _write(self, journals: list[Journal]) -> None:
        store = self._store()
        assert store is not None  # the journals keep the store alive
        with _joined_wakes():
            for journal in journals:
                journal.begin_group_write()
        while appends := {
            each: each.group_append for each in journals if each.group_append is not None
        }:
            outcomes: list[tuple[Journal, bool | Exception]]
            try:
                stored = store.append_each([*appends.values()])
                outcomes = [*zip(appends, stored, strict=True)]
            except Exception as error:  # each journal finds out what was stored
                outcomes = [(each, error) for each in appends]
            with _joined_wakes():
                for journal, outcome in outcomes:
                    journal.note_group_append(outcome)
                for journal, outcome in outcomes:
                    if outcome:
                        journal.finish_group_write()


class _Wakes(threading.local):
    """The work of a thread after its part of a group's writes."""

    joined: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] | None = None
    """The futures to set together, with their loops, because each wake of a loop costs a system call. None outside of
    a group."""
    postponed: tuple[Callable[[], None], ...] = ()
    """Work for which the system had no thread. It is done after the group, in which no work may wait for a turn."""


_wakes = _Wakes()


@contextmanager
def _joined_wakes() -> Iterator[None]:
    """Join the wakes of this block."""
    earlier, _wakes.joined = _wakes.joined, []
    try:
        yield
    finally:
        joined, _wakes.joined = _wakes.joined, earlier
        for loop, ended in groupby(joined, itemgetter(0)):
            _wake(loop, [each for _, each in ended])


class _Written:
    """The outcome of a write, for a coroutine that waits on its event loop: a future with a tenth of the cost."""

    __slots__ = ("_error", "_loop", "_value", "ended")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done after the write. Cancelling it, as the end of its task does, does not cancel the write."""
        self._value: Any = None
        self._error: BaseException | None = None

    def outcome(self) -> Any:
        """Return what the write returned, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any) -> None:
        """Note what the write returned; on any thread."""
        self._value = value
        if _wakes.joined is None:
            _wake(self._loop, [self.ended])
        else:
            _wakes.joined.append((self._loop, self.ended))

    def set_exception(self, error: BaseException) -> None:
        """Note the error of the write; on any thread."""
        self._error = error
        self.set_result(None)


def _wake(loop: asyncio.AbstractEventLoop, ended: Sequence[asyncio.Future[None]]) -> None:
    def set_all() -> None:
        for each in ended:
            if not each.done():
                each.set_result(None)

    with suppress(RuntimeError):  # the loop is closed, and its tasks ended with it
        loop.call_soon_threadsafe(set_all)


def _resumed(steps: _Steps[T], write: tuple[Sequence[StoredEvent], int], append: _Append) -> T:
    """Continue a write that a group has started and left, on this thread."""
    try:
        while True:
            try:
                append(*write)
            except BaseException as error:
                write = steps.throw(error)
            else:
                write = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _in_writer(work: Callable[[], None]) -> None:
    """Do the work in a thread, if possible one that has just written. The interpreter ends only after that thread."""
    try:
        idle = _idle_writers.pop()
    except IndexError:
        own: SimpleQueue[Callable[[], None]] = SimpleQueue()
        own.put(work)  # an argument would stay in memory with its thread
        try:
            threading.Thread(target=_write, args=(own,), name="nbagent-write").start()
        except RuntimeError:  # threads are not available, as in a web page
            if _wakes.joined is not None:
                _wakes.postponed += (work,)
            elif _on_loop():
                asyncio.get_running_loop().call_soon(work)
            else:
                work()
    else:
        idle.put(work)


def _write(own: SimpleQueue[Callable[[], None]]) -> None:
    """Do the writes of one journal, then of other journals if they come within ``LINGER``."""
    work = own.get()
    while True:
        work()
        del work  # else the journal stays in memory
        _idle_writers.append(own)
        try:
            work = own.get(timeout=LINGER)
        except Empty:
            try:
                _idle_writers.remove(own)
            except ValueError:  # _in_writer took the queue and puts work into it
                work = own.get()
            else:
                return


_idle_writers: list[SimpleQueue[Callable[[], None]]] = []
"""The queues of the threads that have just written and wait for more work."""
_line_lock = threading.Lock()
"""Held for a moment to change a journal's line."""
_watch_lock = threading.RLock()
"""Held briefly while a journal subscribes to its store's notifications."""


def _reset_in_child() -> None:
    global _line_lock, _watch_lock
    # another thread of the parent may have held them
    _line_lock, _watch_lock = threading.Lock(), threading.RLock()
    _idle_writers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


class _WouldWait(Exception):
    """The work would have to wait; nothing was done."""


class _Waiting(NamedTuple):
    work: _Work[Any]
    written: Future[Any] | _Written


class InnerJournal:
    """The journal of a run inside a call: a view of the outer journal, which does the writing.

    The code that makes the events sets their scope. Deltas of the inner model are not passed on: the call's
    row shows the output of the inner tools and the stored responses.

    Args:
        outer: the outer journal.
        call_id: the call.
        started: the start of the body that writes, if a body starts the inner runs itself. Once another body runs the
            call, this one's inner runs have ended, at every depth.
    """

    def __init__(
        self, outer: Journal | InnerJournal, call_id: str, started: ToolStarted | None = None
    ) -> None:
        self.run_id: str = outer.run_id
        self._outer = outer
        self._call_id = call_id
        self._body = None if started is None else (started.owner, started.attempt)

    @property
    def state(self) -> RunState:
        """The inner run's state, which has ended if an outer run has."""
        return self._inner(self._outer.state)

    @property
    def remembered(self) -> Sequence[Remembered]:
        """Remembered approvals of the outermost run."""
        return self._outer.remembered

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the inner run; for calls that a body makes, the messages of the run around the body."""
        state = self.state
        return self._outer.history if state.of_body else state.messages

    @property
    def root(self) -> Journal:
        """The journal of the outermost run."""
        return self._outer.root

    @property
    def may_drive(self) -> bool:
        """As in ``Journal``; but the process that runs a body drives the runs and calls that the body starts."""
        call = self._outer.state.calls.get(self._call_id)
        if call is not None and call.child is not None and call.child.of_body:
            return call.owner == this_process()
        return self._outer.may_drive

    @property
    def is_outer_over(self) -> bool:
        """Whether an outer run has ended, so that the inner run's end is not its own."""
        return self._outer.state.outcome is not None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners of the outermost run."""
        return self._outer.listeners

    def append(self, *events: StoredEvent) -> None:
        """Add these events in any state."""
        self._outer.append(*events)

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """Add the events that ``decide`` returns for the inner state; see ``Journal.commit``."""
        return self._outer.commit(lambda state: decide(self._inner(state)))

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """``commit`` on an event loop; see ``Journal.write``."""
        return await self._outer.write(lambda state: decide(self._inner(state)))

    def submit_end(self, event: StoredEvent, before: CutOff = tuple) -> Future[Any]:
        """Add what ``before()`` returns, then the event that ends the inner run."""
        return self.submit(lambda state: [*before(), event] if state.outcome is None else [])

    def submit(self, decide: Decide) -> Future[Sequence[StoredEvent]]:
        """See ``Journal.submit``."""
        return self._outer.submit(lambda state: decide(self._inner(state)))

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Pass the output of an inner tool to the listeners."""
        if isinstance(delta, Printed | Displayed | Progressed | Chunk | StepStarted):
            self._outer.emit(delta)

    def _inner(self, outer: RunState) -> RunState:
        call = outer.calls.get(self._call_id)
        if (
            call is None
            or call.status == "done"  # which ends the inner run, as another body of the call does
            or (self._body is not None and self._body != (call.owner, call.attempt))
        ):
            return RunState(outcome=outer.outcome or RunCancelled(at=0.0, by="the end of its call"))
        inner = call.child if call.child is not None else RunState()
        if outer.outcome is not None and inner.outcome is None:
            return evolve(inner, outcome=outer.outcome)
        return inner


AnyJournal: TypeAlias = Journal | InnerJournal


def _forget_secrets(
    before: RunState, after: RunState, event: ToolFinished | Resolved | RunCancelled
) -> None:
    """Release the secrets of calls that will not run again."""
    if isinstance(event, RunCancelled):
        if event.scope:
            return  # the result of the outer call comes next
        over = list(before.calls.values())
    else:
        then, now = call_of(before, event), call_of(after, event)
        over = [then] if then is not None and (now is None or now.status == "done") else []
    while over:
        call = over.pop()
        release(call.proposed, call.input, call.passed_input, list(call.answers.values()))
        release(*(one.resumed.data for one in call.all_answered))
        over += [] if call.child is None else call.child.calls.values()
