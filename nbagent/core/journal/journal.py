"""The append-only list of a run's events, where it is kept, and who hears of it."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from nbagent.core.base.errors import Conflict, NbagentError, StoreError
from nbagent.core.base.events import (
    Resolved,
    RunCancelled,
    RunRetried,
    RunStarted,
    StepFinished,
    StoredEvent,
    ToolFinished,
    ToolStarted,
    dump,
    slim,
)
from nbagent.core.base.model import ModelDelta
from nbagent.core.base.process import this_process
from nbagent.core.state.fold import apply
from nbagent.core.state.state import CallState, RunState, evolve
from nbagent.core.tools.output import Chunk, Displayed, OutputDelta, Printed, Progressed

_TAKE_ON = (RunStarted, Resolved, ToolStarted, RunRetried)
"""Events that say which process goes on with the run."""

RunEvent: TypeAlias = StoredEvent | ModelDelta | OutputDelta
Listener: TypeAlias = Callable[[RunEvent], None]
logger = logging.getLogger("nbagent")


class Store(Protocol):
    """Keeps journals. ``append`` is the one door, and its ``expected`` gives exactly-once answers."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones.

        Raises:
            Conflict: the journal has moved on; nothing was added.
            StoreError: they could not be written; nothing was added.
        """

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events from number ``start`` on.

        Raises:
            UsageError: there is no such run.
            StoreError: they could not be read.
        """

    def run_ids(self) -> list[str]:
        """The runs it holds, oldest first."""


class Watcher(Protocol):
    """Who wants to know when a run's journal grows."""

    def on_append(self) -> None:
        """It has; called on the thread that appended, after it did."""


@runtime_checkable
class Telling(Protocol):
    """A store that tells of what is written, so that nobody needs to ask it again and again."""

    def watch(self, run_id: str, watcher: Watcher) -> None:
        """Tell ``watcher`` of appends to this run, for as long as anybody else holds it."""


def moved_on(run_id: str, expected: int, length: int, winner: StoredEvent | None) -> Conflict:
    """The refusal of an append to a journal of ``length`` events; ``winner`` stands in its place."""
    told = f"run {run_id!r} has moved on: it has {length} events, not {expected}"
    if winner is None:
        return Conflict(told)
    who = {Resolved: "by", RunCancelled: "by", ToolStarted: "owner"}.get(type(winner))
    by = f" by {getattr(winner, who)}" if who else ""
    return Conflict(f"{told}; number {expected} is {winner.type!r}{by} at {moment(winner.at)}")


def moment(at: float) -> str:
    """A Unix time as people read it, in UTC."""
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).isoformat("T", "seconds")


class Journal:
    """One run's events: appended under a lock, folded at once, told to listeners in order.

    Without a store (``generate``) nothing is kept but the state. Listeners are called on the thread
    that appends, while it holds the lock: they must be quick and wait for nobody. One that raises is
    logged and dropped, since what it shows has a hole from then on; the run goes on.
    """

    __slots__ = (
        "__weakref__",
        "_before",
        "_follow",
        "_lock",
        "_owed",
        "_telling",
        "_untold",
        "_writer",
        "driver",
        "listeners",
        "run_id",
        "state",
        "store",
    )

    def __init__(self, run_id: str, store: Store | None, state: RunState | None = None) -> None:
        self.run_id = run_id
        self.store = store
        self.state = state if state is not None else RunState()
        self.listeners: tuple[Listener, ...] = ()
        self._lock = threading.RLock()
        self._untold: tuple[StoredEvent, ...] = ()
        self._telling = False
        self._owed: tuple[StoredEvent, ...] = ()
        """The run's end, while it could not be stored; it goes before whatever is stored next."""
        self._before = self.state
        """The state without that end."""
        self.driver = ""
        """The process that took the run on last: started it, answered, or ran a call."""
        self._writer: int | None = None
        """The thread that writes now: what the store tells on it is no news."""
        self._follow: Callable[[], None] | None = None

    def append(self, *events: StoredEvent) -> None:
        """Add these events, whatever the state.

        Raises:
            Conflict: another process has written meanwhile; the state is up to date again.
            StoreError: the store failed; nothing was added.
        """
        with self._lock:
            self._write(events)

    def commit(self, decide: Callable[[RunState], Sequence[StoredEvent]]) -> Sequence[StoredEvent]:
        """Add what ``decide`` makes of the state; decided again whenever the journal has moved on.

        ``decide`` may raise to refuse, and then nothing is written.

        Raises:
            StoreError: the store failed; nothing was added.
        """
        with self._lock:
            while True:
                position = self._stored_length
                events = decide(self.state)
                if not events:
                    return events
                try:
                    self._write(events)
                except Conflict as error:
                    if self._stored_length == position:
                        keep_unwritten(self.run_id, self.state, events)
                        raise StoreError(
                            f"the store refuses, but has nothing new: {error}"
                        ) from error
                    continue
                return events

    def end(self, event: StoredEvent) -> None:
        """Add the event that ends the run; in memory alone while the store takes nothing.

        Where the run has ended already, it only tries again to store an end that could not be.
        """
        with self._lock:
            try:
                self._settle()
                self.commit(lambda state: [event] if state.outcome is None else [])
            except StoreError:
                logger.exception("run %s: its end could not be stored", self.run_id)
                if self.state.outcome is None:
                    self._before = self.state
                    self._fold([event])
                    self._owed = (event,)

    def subscribe(self, listener: Listener) -> list[StoredEvent]:
        """Tell ``listener`` what comes from now on; gives back all that came before."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
            return self.read()

    def unsubscribe(self, listener: Listener) -> None:
        """Tell ``listener`` nothing any more."""
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Tell listeners something that is not stored."""
        for listener in self.listeners:
            self._tell(listener, delta)

    def read(self) -> list[StoredEvent]:
        """All events so far."""
        with self._lock:
            stored = (
                self._stored(self.store, 0)
                if self.store is not None and self._stored_length
                else []
            )
            return [*stored, *self._owed]

    def catch_up(self) -> None:
        """Fold in what other processes have written."""
        with self._lock:
            if self.store is not None:
                self._take(self._stored(self.store, self._stored_length))

    @property
    def _stored_length(self) -> int:
        """How many events the store has, as far as is known here."""
        return self.state.position - len(self._owed)

    def _settle(self) -> None:
        """Store the end that could not be stored, unless others have gone on."""
        if self._owed:
            with suppress(Conflict):
                self._write(())

    def _take(self, stored: Sequence[StoredEvent]) -> None:
        """Fold in what the store has from there on; an end it never got gives way to that."""
        if not stored:
            return
        owed, self._owed = self._owed, ()
        if not _begins_with(stored, owed):
            self.state, owed = self._before, ()
        self._fold(stored[len(owed) :])

    def _arrived(self, sent: Sequence[StoredEvent]) -> bool:
        """Whether an append that raised was done all the same, as when the connection broke after it."""
        if self.store is None:
            return False
        try:
            stored = self.store.read(self.run_id, self._stored_length)
            arrived = _begins_with(stored, sent)
        except Exception:  # the failure of the append is the one to be told
            return False
        self._take(stored)
        return arrived

    def _stored(self, store: Store, start: int) -> list[StoredEvent]:
        try:
            return store.read(self.run_id, start)
        except NbagentError:
            raise
        except Exception as error:
            raise StoreError(f"run {self.run_id!r} could not be read: {error}") from error

    def watch(self, follow: Callable[[], None]) -> bool:
        """Call this, on any thread, when others write; False where the store doesn't tell."""
        self._follow = follow
        store: object = self.store
        if not isinstance(store, Telling):
            return False
        store.watch(self.run_id, self)
        return True

    def on_append(self) -> None:
        """The store tells that the journal has grown."""
        if self._follow is not None and self._writer != threading.get_ident():
            self._follow()

    def _write(self, events: Sequence[StoredEvent]) -> None:
        if self.store is not None and (events or self._owed):
            events = [slim(event) for event in events]
            sent = [*self._owed, *events]
            self._writer = threading.get_ident()
            try:
                self.store.append(self.run_id, sent, self._stored_length)
            except Conflict:
                self.catch_up()
                raise
            except Exception as error:
                if self._arrived(sent):
                    return
                keep_unwritten(self.run_id, self.state, events)
                if isinstance(error, NbagentError):
                    raise
                raise StoreError(f"run {self.run_id!r} could not be written: {error}") from error
            finally:
                self._writer = None
            self._owed = ()
        self._fold(events)

    def _fold(self, events: Sequence[StoredEvent]) -> None:
        """Fold all in, then tell all: a listener that appends in turn is told of it afterwards."""
        for event in events:
            self.state = apply(self.state, event)
            if isinstance(event, _TAKE_ON):
                self.driver = event.owner or self.driver
        if not self.listeners:
            return
        self._untold += tuple(events)
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                event, *later = self._untold
                self._untold = tuple(later)
                for listener in self.listeners:
                    self._tell(listener, event)
        finally:
            self._telling = False

    def _tell(self, listener: Listener, heard: RunEvent) -> None:
        try:
            listener(heard)
        except Exception:
            logger.exception("a listener of run %s failed and is dropped", self.run_id)
            self.unsubscribe(listener)


def _begins_with(stored: Sequence[StoredEvent], sent: Sequence[StoredEvent]) -> bool:
    """Whether these are the first of what is stored; by what is written of each."""
    first = stored[: len(sent)]
    return list(map(dump, first)) == list(map(dump, sent))


class InnerJournal:
    """The journal of the run inside a call: the outer one's events and lock, seen from inside.

    Whoever writes gives the events their scope. What the inner model streams is not told: the call's
    row shows what its tools show, and the stored responses.
    """

    def __init__(self, outer: Journal | InnerJournal, call_id: str) -> None:
        self.run_id: str = outer.run_id
        self._outer = outer
        self._call_id = call_id

    @property
    def state(self) -> RunState:
        """The inner run's state; ended as soon as an outer one is."""
        return self._inner(self._outer.state)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who listens to the outermost run."""
        return self._outer.listeners

    def append(self, *events: StoredEvent) -> None:
        """Add these events, whatever the state."""
        self._outer.append(*events)

    def commit(self, decide: Callable[[RunState], Sequence[StoredEvent]]) -> Sequence[StoredEvent]:
        """Add what ``decide`` makes of the inner state; see ``Journal.commit``."""
        return self._outer.commit(lambda state: decide(self._inner(state)))

    def end(self, event: StoredEvent) -> None:
        """Add the event that ends the inner run."""
        self.commit(lambda state: [event] if state.outcome is None else [])

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Tell listeners what an inner tool shows."""
        if isinstance(delta, Printed | Displayed | Progressed | Chunk):
            self._outer.emit(delta)

    def _inner(self, outer: RunState) -> RunState:
        call = outer.calls.get(self._call_id)
        if call is None or call.status == "done":  # somebody else has settled it
            return RunState(
                outcome=outer.outcome or RunCancelled(at=0.0, by="the call's own result")
            )
        inner = call.child if call.child is not None else RunState()
        if outer.outcome is not None and inner.outcome is None:
            return evolve(inner, outcome=outer.outcome)
        return inner


AnyJournal: TypeAlias = Journal | InnerJournal

# --- what bodies came to that could not be stored yet: kept by run, so that any handle can retry

CallOutcome: TypeAlias = ToolFinished | StepFinished


class _Kept(NamedTuple):
    event: CallOutcome
    attempt: int
    """The body that it is the outcome of."""


def keep_unwritten(run_id: str, state: RunState, events: Sequence[StoredEvent]) -> None:
    """Keep those of the events that tell what a body of this process came to."""
    for event in events:
        if not isinstance(event, CallOutcome):
            continue
        call = _call_of(state, event)
        if call is not None and call.attempt and call.owner == this_process():
            with _lock:
                _kept.setdefault(run_id, {})[_key(event)] = _Kept(event, call.attempt)


def unwritten_of(run_id: str, state: RunState) -> list[CallOutcome]:
    """What was kept of a run and still holds, oldest first: no other body was started since."""
    with _lock:
        found = tuple(_kept.get(run_id, {}).values())
    return [event for event, attempt in found if _still_holds(state, event, attempt)]


def forget_unwritten(run_id: str) -> None:
    """It is written, or of no use any more."""
    with _lock:
        _kept.pop(run_id, None)


def _call_of(state: RunState, event: CallOutcome) -> CallState | None:
    for call_id in event.scope:
        call = state.calls.get(call_id)
        if call is None or call.child is None:
            return None
        state = call.child
    return state.calls.get(event.call_id)


def _still_holds(state: RunState, event: CallOutcome, attempt: int) -> bool:
    call = _call_of(state, event)
    if call is None or call.status == "done" or call.owner != this_process():
        return False
    return call.attempt == attempt


def _key(event: CallOutcome) -> tuple[object, ...]:
    """The same for an outcome that could not be stored by a retry either."""
    return event.type, event.scope, event.call_id, getattr(event, "name", None)


_kept: dict[str, dict[tuple[object, ...], _Kept]] = {}
"""By run, so that any handle of this process can retry."""
_lock = threading.Lock()
