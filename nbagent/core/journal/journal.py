"""The append-only list of a run's events in a store: who writes it, when, and what becomes of each write."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar
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
from nbagent.core.base.process import fork_safe, this_process
from nbagent.core.base.secrets import live_masks, release
from nbagent.core.state.fold import apply
from nbagent.core.state.state import EMPTY_STATE, RunState, call_at, evolve, running_calls
from nbagent.core.tools.call_output import OutputDelta

from .history import (
    KnownHistory,
    LostReference,
    histories_of,
    reference_of,
    referred_by,
    resolve_reference,
    with_full_history,
    with_reference,
)
from .store import Append, RunDeleted, Store, Watcher
from .unwritten import keep_unwritten
from .writer import Written, do_postponed, here, in_group, in_thread

RunEvent: TypeAlias = StoredEvent | ModelDelta | OutputDelta
Listener: TypeAlias = Callable[[RunEvent], None]
_NAMES_DRIVER = (RunStarted, Resolved, ToolStarted, RunRetried, RunTaken)
"""Events that name the process that drives the run."""
T = TypeVar("T")
W = TypeVar("W", bound="Future[Any] | Written")
Decide: TypeAlias = Callable[[RunState], Sequence[StoredEvent]]
"""A function that returns the events to add to a state, or raises; called again if the journal has grown."""
CutOff: TypeAlias = Callable[[], Sequence[StoredEvent]]
"""A function that returns the events to write before a run's end; called when the end is written."""
MOST = 64
"""Maximum number of runs in one group."""
logger = logging.getLogger("nbagent")


def is_slow(store: object) -> bool:
    """Whether to call a store only in threads, because a call may take long, as over a network."""
    return getattr(store, "without_waiting", None) is None


class Record:
    """What is known of one run.

    Events are stored first, then folded (``accept``, ``take``), then passed to the listeners (``tell``). Listeners are
    called under a lock: they must be quick and must not wait. A listener that raises is logged and removed, because
    it has missed an event.
    """

    __slots__ = (
        "__weakref__",
        "_before",
        "_is_telling",
        "_is_vacant",
        "_known",
        "_last",
        "_lock",
        "_untold",
        "driver",
        "listeners",
        "may_drive",
        "run_id",
        "state",
        "store",
        "taken",
        "unstored_end",
    )

    def __init__(self, run_id: str, store: Store | None, state: RunState | None) -> None:
        self.run_id = run_id
        self.store = store
        self.state = state if state is not None else EMPTY_STATE
        self.listeners: tuple[Listener, ...] = ()
        self._known: list[StoredEvent] | None = None
        """The stored events, if they are kept."""
        self._lock = threading.RLock()
        """Held briefly while folding and calling listeners."""
        self._untold: tuple[tuple[StoredEvent, tuple[Listener, ...]], ...] = ()
        """Folded events, with the listeners that have not got them yet."""
        self._is_telling = False
        self.unstored_end: tuple[StoredEvent, ...] = ()
        """The run's end that could not be stored; it is written before any later event."""
        self._before = self.state
        """The state without the end in ``unstored_end``."""
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

    @property
    def remembered(self) -> Sequence[Remembered]:
        """Approvals that a person chose to remember in this run."""
        return self.state.remembered

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages up to now."""
        return self.state.messages

    @property
    def is_vacant(self) -> bool:
        """Whether certainly no process drives the run; the next driver writes ``RunTaken`` first."""
        return self._is_vacant or not self.driver

    @property
    def stored_length(self) -> int:
        """The number of stored events, as far as this process knows."""
        return self.state.position - len(self.unstored_end)

    def may_end(self, event: StoredEvent) -> bool:
        """Whether this process may end the run. Only a process that executes the run may end it with ``RunFailed``."""
        state = self.state
        if state.outcome is not None or not isinstance(event, RunFailed) or self.may_drive:
            return state.outcome is None
        return any(call.owner == this_process() for call in running_calls(state))

    # --- folding

    def accept(self, events: Sequence[StoredEvent], sent: Sequence[StoredEvent]) -> None:
        """Fold events that are stored now, after all known ones and an end that waited to be stored.

        ``sent`` are the events as they are stored, that end included.
        """
        with self._lock:
            if self._known is not None:
                self._known += [*self.unstored_end, *events]
            self.unstored_end = ()
            self._last = sent[-1]
            self._fold(events)
        if self.store is not None:
            for event in sent:
                forget_encoding(event)

    def keep_end(self, events: Sequence[StoredEvent]) -> None:
        """Fold a run's end that could not be stored."""
        with self._lock:
            self._before = self.state
            self._fold(events)
            self.unstored_end = tuple(events)

    def take(self, stored: Sequence[StoredEvent]) -> None:
        """Fold events that others have stored; they replace an end that could not be stored."""
        if not stored:
            return
        with self._lock:
            owed, self.unstored_end = self.unstored_end, ()
            if not _starts_with(stored, owed):
                self.state, owed = self._before, ()
            if self._known is not None:
                self._known += stored
            self._last = stored[-1]
            self._fold(stored[len(owed) :])

    def _fold(self, events: Sequence[StoredEvent]) -> None:
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
            known = KnownHistory(self.state.position, self.state.messages)
            histories_of(self.store).keep(self.run_id, known)
        if self.listeners:
            self._untold += tuple((event, self.listeners) for event in events)

    def update_may_drive(self) -> None:
        """Set ``may_drive`` after the driver, or (in a fork) this process, has changed."""
        is_mine = self.driver == this_process() and not self._is_vacant
        self.may_drive = self.store is None or is_mine

    # --- listeners

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Pass a delta, which is not stored, to the listeners."""
        for listener in self.listeners:
            self._call(listener, delta)

    def tell(self) -> None:
        """Pass the folded events on. Events that a listener adds are passed on after the earlier ones."""
        if not self._untold:
            return
        with self._lock:
            if self._is_telling:
                return
            self._is_telling = True
            try:
                while self._untold:
                    (event, listeners), *later = self._untold
                    self._untold = tuple(later)
                    for listener in listeners:
                        if listeners is self.listeners or listener in self.listeners:
                            self._call(listener, event)
            finally:
                self._is_telling = False

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one != listener)

    def _call(self, listener: Listener, event: RunEvent) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("a listener of run %s failed and was removed", self.run_id)
            self.unsubscribe(listener)


def _starts_with(stored: Sequence[StoredEvent], sent: Sequence[StoredEvent]) -> bool:
    """Whether the stored events begin with these, compared by their encoding."""
    first = stored[: len(sent)]
    return list(map(encoded, first)) == list(map(encoded, sent))


class _Write:
    """One write of a run: it decides on events, proposes to append them, and is over when they are folded.

    ``docs/design.md`` draws its states.
    """

    __slots__ = ("append", "decide", "events", "folded", "is_end", "is_look", "written")

    def __init__(self, decide: Decide, *, is_end: bool = False, is_look: bool = False) -> None:
        self.decide = decide
        self.is_end = is_end
        """Whether it ends the run, also if the store fails."""
        self.is_look = is_look
        """Whether it first reads what others have written."""
        self.events: Sequence[StoredEvent] = ()
        """What was decided."""
        self.folded: Sequence[StoredEvent] = ()
        """The same events as they are folded: as they are read back from the store, with full histories."""
        self.append: Append | None = None
        """The proposed append, until its outcome is known. A group may leave it to another thread."""
        self.written: Any = None
        """The future of a write that waits, with ``set_result`` and ``set_exception``."""


class Journal(Record):
    """One run's events: written in order, folded into the state, and passed to listeners.

    ``write`` and ``submit`` never block an event loop: a write that the store does not accept at once waits
    in a thread, in order. ``commit`` and ``end`` block the caller's thread. Events are stored before they are
    folded or passed on. Without a store (``generate``) only the state is kept.

    Listeners are called on the thread that writes; see ``Record``.
    """

    __slots__ = ("_follower", "_is_slow", "_line", "_turn", "_writer", "is_notified")
    scope: tuple[str, ...] = ()
    """The ids of the calls that lead to the run: none."""

    def __init__(
        self,
        run_id: str,
        store: Store | None,
        state: RunState | None = None,
        *,
        keeps_events: bool = True,
    ) -> None:
        """``keeps_events=False`` saves memory if only the state is needed."""
        super().__init__(run_id, store, state)
        self._is_slow = store is not None and is_slow(store)
        if self._is_slow and keeps_events:  # so that no event loop waits to read them again
            self._known = []
        is_instant = not self._is_slow and getattr(store, "is_instant", store is None)
        self._turn = self._lock if is_instant else threading.RLock()
        """Held while writing, or reading what others wrote; may be held for long. Taken before ``_lock``."""
        self._line: tuple[_Write, ...] = ()
        """Writes that wait for a thread; the first may be in progress."""
        self._writer: int | None = None
        """The thread that appends now; the store's notifications on it are ignored."""
        self._follower: Any = None
        """The session that follows the run."""
        self.is_notified: bool | None = None
        """Whether the store notifies this journal of writes by others; None until somebody watches."""

    @property
    def root(self) -> Journal:
        """The journal of the outermost run: this one."""
        return self

    # --- three ways to write: at once, in a thread, or on the caller's thread

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """``commit`` on an event loop, without blocking it.

        The write completes even if the awaiting task is cancelled.
        """
        write = _Write(decide)
        if self._now(write):
            return write.events
        written = self._later(write, Written())
        await written.ended
        events: Sequence[StoredEvent] = written.outcome()
        return events

    def submit(self, decide: Decide) -> Future[Sequence[StoredEvent]]:
        """``commit`` for code that may run on an event loop; if ``decide`` raises now, this method raises.

        On a thread without an event loop, the write is complete on return, except in a listener during a group's write.
        """
        if _may_wait():
            return finished(self.commit(decide))
        write = _Write(decide)
        if self._now(write):
            return finished(write.events)
        decide(self.state)
        return self._later(write, under_way())

    def submit_end(self, event: StoredEvent, before: CutOff = tuple) -> Future[None]:
        """``end`` for code that may run on an event loop."""
        return self._soon(self._end(event, before))

    def look(self) -> Future[None]:
        """``catch_up`` for code that may run on an event loop; then store an end that could not be stored before."""
        if self.store is None:
            return finished(None)
        return self._soon(_Write(lambda _: (), is_look=True))

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """Add the events that ``decide`` returns for the state; if it raises, nothing is written.

        Raises:
            StoreError: the store failed; nothing was added.
        """
        return self._wait(_Write(decide))

    def end(self, event: StoredEvent, before: CutOff = tuple) -> None:
        """Add what ``before()`` returns, then the event that ends the run; only in memory if the store fails.

        If the run has already ended, this method only tries again to store the end.
        """
        self._wait(self._end(event, before))

    def _end(self, event: StoredEvent, before: CutOff) -> _Write:
        def decide(_: RunState) -> Sequence[StoredEvent]:
            return [*before(), event] if self.may_end(event) else ()

        return _Write(decide, is_end=True)

    def _now(self, write: _Write) -> bool:
        """Do a write on the caller's thread, unless it would have to wait. Return whether it is done."""
        if self._is_slow or self._line or not self._turn.acquire(blocking=False):
            return False
        try:
            self._do(write, at_once=True)
        except _WouldWait:
            return False
        finally:
            self._turn.release()
        return True

    def _soon(self, write: _Write) -> Future[Any]:
        return finished(None) if self._now(write) else self._later(write, under_way())

    def _wait(self, write: _Write) -> Sequence[StoredEvent]:
        """Do a write on the caller's thread, after the one that another thread is doing."""
        with self._turn:
            self._finish_proposed()
            self._do(write)
        return write.events

    def _later(self, write: _Write, written: W) -> W:
        """Do a write in a thread, after all waiting writes of this run; with those of other runs, if the store has a group."""
        # an append that would have waited is decided again
        write.written, write.append = written, None
        with _line_lock:
            is_first = not self._line
            self._line += (write,)
        if is_first:
            self._start_line()
        return written

    def _start_line(self) -> None:
        group: Group | None = getattr(self.store, "group", None)
        if group is not None and group.is_of(self.store):
            group.add(self)
        else:
            in_thread(self._work_off)

    def _work_off(self) -> None:
        """Do the writes of the line on this thread."""
        while True:
            with self._turn:
                if not self._line:
                    return
                self._do_first()

    def _finish_proposed(self) -> None:
        """Do the first waiting write if it has proposed its append; this thread holds the turn.

        Nothing may come in between: the store may already have the events.
        """
        if self._line and self._line[0].append is not None and self._writer is None:
            self._do_first()

    def _do_first(self) -> None:
        write = self._line[0]
        try:
            self._do(write)
        except BaseException as error:
            self._end_line(write, error)
        else:
            self._end_line(write)

    def _end_line(self, write: _Write, error: BaseException | None = None) -> bool:
        """Remove the first write, and tell its writer how it ended. Return whether others wait."""
        with _line_lock:
            self._line = self._line[1:]
            waits = bool(self._line)
        if error is None:
            write.written.set_result(write.events)
        else:
            write.written.set_exception(error)
        return waits

    # --- one write

    def _do(self, write: _Write, *, at_once: bool = False) -> None:
        """Do a write on this thread, which holds the turn.

        Raises:
            _WouldWait: with ``at_once``, the write has to wait; nothing was done.
        """
        try:
            while self._propose(write, at_once=at_once):
                assert write.append is not None
                self._writer = threading.get_ident()
                try:
                    if at_once and self._turn is not self._lock:
                        self._append_at_once(write.append)
                    elif self.store is not None:  # an instant store makes nobody wait
                        self.store.append(*write.append)
                except _WouldWait:
                    raise
                except Exception as error:
                    if self._is_stored_after(error, write):
                        break
                else:
                    self.accept(write.folded, write.append.events)
                    write.append = None
                    break
                finally:
                    self._writer = None
        except StoreError as error:
            self._give_up(write, error)
        finally:
            if self._untold:
                self.tell()

    def _propose(self, write: _Write, *, at_once: bool) -> bool:
        """Decide what to append, unless that is decided. Return whether there is anything.

        Raises:
            _WouldWait: another run would have to be read first.
        """
        if write.append is not None:
            return True
        if write.is_look and self.store is not None:
            self._catch_up(self.store)
        write.events = write.folded = events = write.decide(self.state)
        if not events and not (self.unstored_end and (write.is_end or write.is_look)):
            return False
        short: Sequence[StoredEvent] = events
        expected = self.stored_length
        if self.store is not None:
            short, write.folded = self._encoded(self.store, events, at_once=at_once)
        write.append = Append(self.run_id, [*self.unstored_end, *short], expected)
        return True

    def _append_at_once(self, append: Append) -> None:
        store: Any = self.store
        try:
            with store.without_waiting():
                store.append(*append)
        except Busy as error:
            raise _WouldWait from error

    def _is_stored_after(self, error: Exception, write: _Write) -> bool:
        """Whether an append that raised was stored, as when the connection broke after it; False to decide again.

        Raises:
            StoreError: nothing was stored.
        """
        assert write.append is not None
        assert self.store is not None
        (_, sent, length), write.append = write.append, None
        for event in sent:
            forget_encoding(event)
        if isinstance(error, Conflict):
            self._catch_up(self.store)
            if self.stored_length > length:
                return False
            text = f"The store rejected the write but has no new events: {error}"
        elif isinstance(error, LostReference):
            # a queued run would wait for a run that does not exist
            if any(isinstance(event, RunQueued) for event in sent):
                raise error
            for gone in referred_by(self.run_id, sent):  # the history is stored in full
                histories_of(self.store).forget(gone)
            return False
        elif self._has_arrived(sent):
            return True
        else:
            text = f"Run {self.run_id!r} could not be written: {error}"
        keep_unwritten(self.run_id, self.state, write.events)
        if isinstance(error, NbagentError) and not isinstance(error, Conflict):
            raise error
        raise StoreError(text) from error

    def _give_up(self, write: _Write, error: StoreError) -> None:
        """Keep the run's end in memory if it cannot be stored; other writes raise the error."""
        if not write.is_end:
            raise error
        logger.error("run %s: its end could not be stored", self.run_id, exc_info=error)
        owed = write.decide(self.state)
        if owed:
            self.keep_end(owed)

    # --- writing in a group, on one thread with other runs

    def propose_first(self) -> Append | None:
        """Take the turn, and return the append of the first waiting write; None if the write is not in the group."""
        if not self._turn.acquire(blocking=False):  # another thread writes or reads
            in_thread(self._work_off)
            return None
        write = self._line[0] if self._line else None
        if write is None or write.append is not None:  # another thread did it, or is about to
            self._turn.release()
            return None
        over: bool | BaseException = True
        try:
            if write.is_look:
                over = False
            elif self._propose(write, at_once=True):
                self._writer = threading.get_ident()
                return write.append
        except _WouldWait:
            over = False
        except BaseException as error:
            over = error
        self.end_first(over)
        return None

    def fold_first(self, outcome: bool | Exception) -> bool | BaseException:  # noqa: FBT001 - a fact
        """Take in whether the append was stored, or the error after which that is unknown.

        Return whether the write is over, or its error. Otherwise the next thread with the turn appends the same again.
        """
        write, self._writer = self._line[0], None
        try:
            if isinstance(outcome, Exception):
                return self._is_stored_after(outcome, write)
            if outcome and write.append is not None:
                self.accept(write.folded, write.append.events)
                write.append = None
        except StoreError as error:
            try:
                self._give_up(write, error)
            except StoreError:
                return error
            return True
        except BaseException as error:
            return error
        return outcome

    def end_first(self, over: bool | BaseException) -> None:  # noqa: FBT001 - a fact
        """Tell the listeners, and the writer if the write is over; then let go of the turn."""
        waits = False
        if over is False:
            in_thread(self._work_off)
        else:
            self.tell()
            waits = self._end_line(self._line[0], None if over is True else over)
        self._turn.release()
        if waits:
            self._start_line()

    # --- reading

    def catch_up(self, read_events: Sequence[StoredEvent] | None = None) -> None:
        """Fold in what other processes have written. For a new ``Journal``, pass its events if you have read them."""
        if self.store is None:
            return
        with self._turn:
            self._finish_proposed()
            if read_events is None:
                self._catch_up(self.store)
            else:
                self.take(self._with_full_history(self.store, read_events))
            self.tell()

    def read(self) -> list[StoredEvent]:
        """All events so far."""
        with self._lock:
            if self._known is not None:
                return [*self._known, *self.unstored_end]
            known = self.stored_length
            stored = self._stored(self.store, 0) if self.store is not None and known else []
            return [*stored[:known], *self.unstored_end]

    def subscribe(self, listener: Listener) -> list[StoredEvent]:
        """Call ``listener`` with each new event; returns all earlier events."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
            return self.read()

    def forget_events(self) -> None:
        """Read the events from the store again, because the run was deleted there."""
        with self._lock:
            self._known = None

    def watch(self, follower: Any) -> bool:
        """Call the session's ``follow``, on any thread, after writes by others; return False if the store does not notify."""
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

    def _catch_up(self, store: Store) -> None:
        stored = self._stored(store, self.stored_length)
        if stored and self._last is not None:
            last = self._stored(store, self.stored_length - 1)[:1]
            if [*map(_mark, last)] != [_mark(self._last)]:
                raise self._deleted(store)
        self.take(stored)

    def _has_arrived(self, sent: Sequence[StoredEvent]) -> bool:
        """Whether the store has the events, which are then folded."""
        assert self.store is not None
        try:
            stored = self.store.read(self.run_id, self.stored_length)
            arrived = _starts_with(stored, sent)
        except Exception:  # the failure of the append is reported instead
            return False
        self.take(self._with_full_history(self.store, stored))
        return arrived

    def _stored(self, store: Store, start: int) -> list[StoredEvent]:
        try:
            return self._with_full_history(store, store.read(self.run_id, start))
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

    # --- histories, of which the store has each message once

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
        self, store: Store, events: Sequence[StoredEvent], *, at_once: bool
    ) -> tuple[list[StoredEvent], list[StoredEvent]]:
        """The events as they are stored, and the same events with full histories.

        Raises:
            _WouldWait: the previous run would have to be read first.
        """
        short = list(events)
        for at, event in enumerate(events):
            if isinstance(event, RunStarted) and event.after and not event.scope:
                short[at] = self._shortened(store, event, at_once=at_once)
        short = [storable_event(event) for event in short]
        complete = short.copy()
        for at, (event, shorter) in enumerate(zip(events, short, strict=True)):
            if shorter is event or not isinstance(shorter, RunStarted):
                continue
            reference = reference_of(shorter)
            if reference is not None and isinstance(event, RunStarted):
                complete[at] = with_full_history(shorter, event.messages[: reference.messages])
        return short, complete

    def _shortened(self, store: Store, event: RunStarted, *, at_once: bool) -> RunStarted:
        """The event with a reference to the previous run, if the store has that run and the history begins with it."""
        if event.after is None or event.after == self.run_id:
            return event
        known = histories_of(store).last(event.after)
        if at_once and (known is None or self._is_slow):
            raise _WouldWait
        try:
            if known is None:
                before = Journal(event.after, store)
                before.catch_up()
                known = KnownHistory(before.state.position, before.state.messages)
            is_there = known.events > 0 and bool(store.read(event.after, known.events - 1))
        except (StoreError, UsageError):  # the previous run is in another store, or deleted
            return event
        return with_reference(event, known, event.after) if is_there else event


def _mark(event: StoredEvent) -> tuple[str, float]:
    return event.type, event.at


def _may_wait() -> bool:
    """Whether this thread may wait for a store or another write: it writes no group, and runs no event loop."""
    if here.wakes is not None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def finished(value: T) -> Future[T]:
    """A future that already has this result."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def under_way() -> Future[Any]:
    """A future of a pending write; cancelling a wait for it does not cancel the write."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
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
    def scope(self) -> tuple[str, ...]:
        """The ids of the calls that lead to the inner run."""
        return (*self._outer.scope, self._call_id)

    @property
    def store(self) -> Store | None:
        """The store of the outermost run."""
        return self.root.store

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners of the outermost run."""
        return self._outer.listeners

    def read(self) -> list[StoredEvent]:
        """All events so far, as if the run had its own journal; none if the outermost run has none, as in ``generate``."""
        return _events_in(self.scope, self.root.read())

    def subscribe(self, listener: Listener) -> list[StoredEvent]:
        """See ``Journal.subscribe``."""
        scope = self.scope
        return _events_in(scope, self.root.subscribe(_ScopedListener(listener, scope)))

    def unsubscribe(self, listener: Listener) -> None:
        """See ``Journal.unsubscribe``."""
        self.root.unsubscribe(_ScopedListener(listener, self.scope))

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
        if isinstance(delta, OutputDelta):
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


@dataclass(frozen=True, slots=True)
class _ScopedListener:
    """A listener for the events of one inner run."""

    listener: Listener
    scope: tuple[str, ...]

    def __call__(self, event: Any) -> None:
        for own in _events_in(self.scope, (event,)):
            self.listener(own)


def _events_in(scope: tuple[str, ...], events: Iterable[Any]) -> list[Any]:
    """The events of an inner run, with their scope from there."""
    depth = len(scope)
    own = [event for event in events if getattr(event, "scope", ())[:depth] == scope]
    return [
        event._replace(scope=event.scope[depth:])
        if isinstance(event, OutputDelta)
        else replace(event, scope=event.scope[depth:])
        for event in own
    ]


def _forget_secrets(
    before: RunState, after: RunState, event: ToolFinished | Resolved | RunCancelled
) -> None:
    """Release the secrets of calls that will not run again."""
    if isinstance(event, RunCancelled):
        if event.scope:
            return  # the result of the outer call comes next
        over = list(before.calls.values())
    else:
        then, now = (call_at(state, event.scope, event.call_id) for state in (before, after))
        over = [then] if then is not None and (now is None or now.status == "done") else []
    while over:
        call = over.pop()
        release(call.proposed, call.input, call.passed_input, list(call.answers.values()))
        release(*(one.resumed.data for one in call.answered.values()))
        over += [] if call.child is None else call.child.calls.values()


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
            in_thread(self._work_off)

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
            do_postponed()

    def _write(self, journals: list[Journal]) -> None:
        """Append to all runs; then fold all, and only then tell anybody: a listener may write to a neighbour."""
        store = self._store()
        assert store is not None  # the journals keep the store alive
        with in_group():
            proposed = {one: append for one in journals if (append := one.propose_first())}
        if not proposed:
            return
        outcomes: list[bool | Exception]
        try:
            stored = store.append_each([*proposed.values()])
            outcomes = [outcome for _, outcome in zip(proposed, stored, strict=True)]
        except Exception as error:  # each finds out what was stored
            outcomes = [error] * len(proposed)
        with in_group():
            over = [
                one.fold_first(outcome) for one, outcome in zip(proposed, outcomes, strict=True)
            ]
            for one, is_over in zip(proposed, over, strict=True):
                one.end_first(is_over)


_line_lock = fork_safe(threading.Lock())
"""Held for a moment to change a journal's line."""
_watch_lock = fork_safe(threading.RLock())
"""Held briefly while a journal subscribes to its store's notifications."""


class _WouldWait(Exception):
    """The work would have to wait; nothing was done."""
