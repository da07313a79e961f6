"""Journals in this process's memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from nbagent.core.base.errors import Conflict, UsageError
from nbagent.core.base.events import RunQueued, RunStarted, StoredEvent, dump
from nbagent.core.base.pickling import Made, Travels, cannot_travel
from nbagent.core.base.process import fork_safe

from .history import LostReference, referred_by
from .rows import Changes, End, Head, Last, Row, check_known, events_of, with_seals
from .store import Watcher, journal_changed

_NOTHING = nullcontext()
_lock = fork_safe(threading.Lock())
"""Held for a moment to read or change any store; one for all, so that a store takes less memory."""


class MemoryStore(Travels):
    """A store in this process's memory; its runs are lost when the process ends."""

    is_instant = True
    """Whether no write ever waits; a journal then needs only one lock."""

    def __init__(self) -> None:
        self._journals: dict[str, _Journal] = {}
        self._changes = 0
        self._written: dict[str, int] | None = None
        """The number of each run's last change, latest last; None until ``changes`` is called, and after a deletion."""
        self._whole = 0
        """The number of the change that was the last deletion."""

    def __reduce__(self) -> Made:
        cannot_travel(
            "nb.MemoryStore()",
            "its runs are in this process's memory. Use nb.SQLStore(url), or nb.SQLiteStore(path) for processes on one machine",
        )

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones, or raise ``Conflict``."""
        with _lock:
            kept = self._journals.get(run_id)
            if kept is None:
                kept = _Journal()
            length = len(kept)
            if length != expected:
                winner = kept[expected] if 0 <= expected < length else None
                raise journal_changed(run_id, expected, length, winner)
            if not events:
                return
            if any(isinstance(event, RunStarted | RunQueued) for event in events):
                self._check_there(run_id, events)  # no other event refers to a run
            self._journals.setdefault(run_id, kept)
            kept += events  # in one step, which Ctrl+C cannot divide
            self._note_change(run_id)
        if kept.watchers:
            kept.notify()

    def without_waiting(self) -> AbstractContextManager[None]:
        """A context that does nothing, because memory never makes a writer wait."""
        return _NOTHING

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events from number ``start`` on."""
        with _lock:
            return self._journal(run_id)[start:]

    def length(self, run_id: str) -> int:
        """The number of events of a run."""
        return len(self._journal(run_id))

    def watch(self, run_id: str, watcher: Watcher) -> bool:
        """Notify ``watcher`` of appends to this run while something else references it."""
        with _lock:
            kept = self._journal(run_id)
            there = tuple(one for one in kept.watchers if one() is not None)
            kept.watchers = (*there, weakref.ref(watcher))
        return True

    def run_ids(self) -> list[str]:
        """The ids of all runs, oldest first."""
        with _lock:
            return list(self._journals)

    def heads(self, prefix: str = "") -> list[Head]:
        """The length and last event of each run whose id has this prefix, oldest run first."""
        return [_head(*one) for one in self._ends(prefix)]

    def changes(self, prefix: str, since: object) -> Changes:
        """The heads of the runs that were written since the token ``since``; all heads after a deletion."""
        with _lock:
            token, found = self._changes, list[tuple[str, int, StoredEvent]]()
            is_whole = not isinstance(since, int) or self._written is None or since < self._whole
            if self._written is None:
                self._written = {}
            for run_id in self._journals if is_whole else reversed(self._written):
                if not is_whole and self._written[run_id] <= cast("int", since):
                    break
                if run_id.startswith(prefix):
                    events = self._journals[run_id]
                    found.append((run_id, len(events), events[-1]))
        heads = [_head(*one) for one in found]
        return Changes(heads if is_whole else heads[::-1], token, is_whole)

    def ends(self, prefix: str) -> list[End]:
        """The last event of each run whose id has this prefix, oldest run first."""
        return [End(run_id, n, dump(event)) for run_id, n, event in self._ends(prefix)]

    def _ends(self, prefix: str) -> list[tuple[str, int, StoredEvent]]:
        """The id, length and last event of each run whose id has this prefix, oldest run first."""
        with _lock:
            return [
                (run_id, len(kept), kept[-1])
                for run_id, kept in self._journals.items()
                if run_id.startswith(prefix)
            ]

    def stamp(self) -> object:
        """A value that changes with each write."""
        return self._changes

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal as rows for disk, with seals that are computed now."""
        return with_seals(run_id, map(dump, self.read(run_id)))

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Import a journal from another store.

        Raises:
            Conflict: a run with this id exists; nothing was added.
            LostReference: a run to which the journal refers does not exist; nothing was added.
        """
        events = events_of(rows)
        with _lock:
            if run_id in self._journals:
                raise Conflict(f"{self!r} already has a run {run_id!r}")
            self._check_there(run_id, events)
            self._journals[run_id] = _Journal(events)
            self._note_change(run_id)

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none.

        Raises:
            UsageError: one of the runs does not exist.
            Conflict: there is a run that is not in ``known``.
        """
        with _lock:
            gone = [self._journal(run_id) for run_id in run_ids]
            check_known(self._journals, known)
            for run_id in run_ids:
                del self._journals[run_id]
            self._changes += 1
            self._whole, self._written = self._changes, None
        for kept in gone:
            kept.notify()

    def _note_change(self, run_id: str) -> None:
        self._changes += 1
        if self._written is not None:
            self._written.pop(run_id, None)
            self._written[run_id] = self._changes

    def _check_there(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        lost = next((b for b in referred_by(run_id, events) if b not in self._journals), None)
        if lost is not None:
            raise LostReference(run_id, lost)

    def _journal(self, run_id: str) -> _Journal:
        if run_id not in self._journals:
            raise UsageError(f"{self!r} has no run {run_id!r}")
        return self._journals[run_id]

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._journals)} runs)"


def _head(run_id: str, length: int, last: StoredEvent) -> Head:
    return Head(run_id, length, Last(last.type, last.at, last.scope))


class _Journal(list[StoredEvent]):
    """The events of one journal, and its watchers."""

    __slots__ = ("watchers",)

    def __init__(self, events: Iterable[StoredEvent] = ()) -> None:
        super().__init__(events)
        self.watchers: tuple[weakref.ref[Watcher], ...] = ()

    def notify(self) -> None:
        """Notify the watchers, on the thread that wrote."""
        for found in self.watchers:
            watcher = found()
            if watcher is not None:
                watcher.on_append()


memory_of_process = MemoryStore()
"""The store of runs for which no other store was chosen."""
