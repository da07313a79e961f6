"""References between histories: a history that continues a run begins with a reference to that run.

So each message is stored once. The reference is ``{"role": "run", "id": RUN, "events": N, "messages": M}``. Its
meaning is the first M messages of the run, after its first N events. All later messages follow in full. A journal
only grows, so a reference never changes its meaning. Only journals make and resolve references.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

from nbagent.core.base.errors import StoreError
from nbagent.core.base.events import (
    RunCancelled,
    RunFailed,
    RunQueued,
    RunStarted,
    StoredEvent,
    parse,
)
from nbagent.core.base.messages import Message
from nbagent.core.base.process import fork_safe
from nbagent.core.state.fold import apply
from nbagent.core.state.state import EMPTY_STATE, RunState

from .rows import Row

Read: TypeAlias = Callable[[str], Sequence[StoredEvent]]
"""The stored events of a run; raises if there is no such run."""


class Reference(NamedTuple):
    """The beginning of a history: the first ``messages`` messages of a run after its first ``events`` events."""

    run_id: str
    events: int
    messages: int


class KnownHistory(NamedTuple):
    """The messages of a run after its first ``events`` events."""

    events: int
    messages: tuple[Message, ...]


def reference_of(event: StoredEvent) -> Reference | None:
    """The reference at the beginning of a stored history; None if it is complete.

    Raises:
        StoreError: the first entry is not a valid reference.
    """
    if not isinstance(event, RunStarted) or not event.messages:
        return None
    first = event.messages[0]
    if not isinstance(first, dict) or first.get("role") != "run":
        return None
    found = (first.get("id"), first.get("events"), first.get("messages"))
    is_whole = isinstance(found[0], str) and len(first) == 4
    counts = [n for n in found[1:] if type(n) is int and n > 0]
    if not is_whole or len(counts) != 2:
        raise StoreError(
            f"The history begins with {first!r:.200}, which is not a reference to a run"
        )
    return Reference(str(found[0]), *counts)


class LostReference(StoreError):
    """The events refer to a run that does not exist; nothing was added."""

    def __init__(self, run_id: str, missing: str) -> None:
        super().__init__(
            f"Run {run_id!r} continues run {missing!r}, which was deleted in the meantime"
        )


def referred_by(run_id: str, events: Sequence[StoredEvent]) -> set[str]:
    """The ids of other runs that these events of a run need in the store.

    A run needs the run with which its history begins, and, while it is queued, the previous run. An invalid
    reference is ignored, because reading the run reports it.
    """
    found = set()
    waits_for: str | None = None
    for event in events:
        if event.scope:
            continue
        if isinstance(event, RunQueued):
            waits_for = None if event.elsewhere else event.after
        elif isinstance(event, RunStarted | RunFailed | RunCancelled):
            waits_for = None
        with suppress(StoreError):
            reference = reference_of(event)
            found |= set() if reference is None else {reference.run_id}
    return (found | ({waits_for} if waits_for else set())) - {run_id}


def referred_by_rows(run_id: str, rows: Iterable[Row]) -> set[str]:
    """The result of ``referred_by`` for stored rows; damaged rows are ignored."""
    events = []
    for row in rows:
        with suppress(StoreError):
            events.append(parse(row.data, row.version))
    return referred_by(run_id, events)


def with_reference(event: RunStarted, before: KnownHistory, run_id: str) -> RunStarted:
    """The event with a reference in place of the first messages that its history shares with the previous run."""
    same = 0
    for message, earlier in zip(event.messages, before.messages, strict=False):
        if message is not earlier and message != earlier:
            break
        same += 1
    if not same:
        return event
    entry = {"role": "run", "id": run_id, "events": before.events, "messages": same}
    return replace(event, messages=[entry, *event.messages[same:]])


def with_full_history(event: RunStarted, messages: Sequence[Message]) -> RunStarted:
    """The event with these messages in place of its reference."""
    return replace(event, messages=[*messages, *event.messages[1:]])


def resolve_reference(
    run_id: str, reference: Reference, read: Read, known: Histories
) -> tuple[Message, ...]:
    """The messages to which a reference of a run refers.

    Each earlier run of the thread is read once, back to a run whose messages are in ``known``.

    Raises:
        StoreError: an earlier run is missing or damaged, or does not match the reference.
    """
    steps: list[tuple[Reference, Sequence[StoredEvent]]] = []
    seen = {run_id}
    following: Reference | None = reference
    messages: tuple[Message, ...] = ()
    while following is not None:
        found = known.at(following)
        if found is not None:
            steps.append((following, ()))
            messages = found
            break
        if following.run_id in seen:
            raise _lost(run_id, following, "which in turn continues this run")
        seen.add(following.run_id)
        events = _events(run_id, following, read)
        steps.append((following, events))
        following = next(filter(None, map(reference_of, events)), None)
    for at, (step, events) in enumerate(reversed(steps)):
        if events:
            before = steps[len(steps) - at][0].messages if at else 0
            if before > len(messages):
                raise _lost(run_id, step, "whose own history does not match its reference")
            messages = _messages_after(run_id, step, events, messages[:before])
            known.keep(step.run_id, KnownHistory(step.events, messages))
    if reference.messages > len(messages):
        raise _lost(run_id, reference, f"which has only {len(messages)} messages")
    return messages[: reference.messages]


def _events(run_id: str, reference: Reference, read: Read) -> Sequence[StoredEvent]:
    try:
        events = read(reference.run_id)[: reference.events]
    except Exception as error:
        raise _lost(run_id, reference, f"which cannot be read: {error}") from error
    if len(events) < reference.events:
        raise _lost(run_id, reference, f"which has only {len(events)} events")
    return events


def _messages_after(
    run_id: str,
    reference: Reference,
    events: Sequence[StoredEvent],
    before: tuple[Message, ...],
) -> tuple[Message, ...]:
    """The messages of a run after these events; the run's history begins with ``before``.

    The fold needs only the last message of ``before``, because its calls may get results.
    """
    last = before[-1:] if before and before[-1]["role"] == "assistant" else ()

    def whole(event: StoredEvent) -> StoredEvent:
        if reference_of(event) is None or not isinstance(event, RunStarted):
            return event
        return with_full_history(event, last)

    try:
        state: RunState = reduce(apply, map(whole, events), EMPTY_STATE)
    except Exception as error:
        raise _lost(run_id, reference, f"which is damaged: {error}") from error
    return before + state.messages[len(last) :]


def _lost(run_id: str, reference: Reference, why: str) -> StoreError:
    return StoreError(
        f"Run {run_id!r} continues the first {reference.events} events of run {reference.run_id!r}, {why}. Restore "
        "that run (from a copy of the store, or with nb.import_run and a document that has both), or delete "
        f"{run_id!r} with nb.delete_run"
    )


class Histories:
    """A cache of the messages of a store's most recently used runs, because new runs continue those."""

    MOST = 32

    def __init__(self) -> None:
        self._known: OrderedDict[str, KnownHistory] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, run_id: str, known: KnownHistory) -> None:
        """Remember the messages of a run, in place of its earlier messages."""
        with self._lock:
            self._known[run_id] = known
            self._known.move_to_end(run_id)
            while len(self._known) > self.MOST:
                self._known.popitem(last=False)

    def last(self, run_id: str) -> KnownHistory | None:
        """The remembered messages of a run."""
        with self._lock:
            return self._known.get(run_id)

    def at(self, reference: Reference) -> tuple[Message, ...] | None:
        """All messages of a run at a reference, if known."""
        found = self.last(reference.run_id)
        return found.messages if found is not None and found.events == reference.events else None

    def forget(self, run_id: str) -> None:
        """Forget a run that was deleted."""
        with self._lock:
            self._known.pop(run_id, None)


def histories_of(store: Any) -> Histories:
    """The remembered histories of a store in this process; always empty if the store is not hashable."""
    try:
        with _lock:
            return _histories.setdefault(store, Histories())
    except TypeError:
        return Histories()


_histories: weakref.WeakKeyDictionary[Any, Histories] = weakref.WeakKeyDictionary()
_lock = fork_safe(threading.Lock())
