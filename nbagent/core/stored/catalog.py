"""The runs of a store with the facts that people search by: start, status and open questions."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeAlias

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import Event, RunQueued, RunStarted, StoredEvent
from nbagent.core.base.file_parts import in_words
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import dumps, text_of
from nbagent.core.base.model import Usage
from nbagent.core.journal.journal import Journal, RunEvent, is_slow
from nbagent.core.journal.rows import Archive, Batching, Changes, Changing, Head, Last, in_batches
from nbagent.core.journal.store import Store
from nbagent.core.run.answers import interrupts_of
from nbagent.core.run.describe import bounded
from nbagent.core.state.state import Status

READERS = 20
"""Number of threads that read a slow store, if one call of the store can read only one run."""
logger = logging.getLogger("nbagent")


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a store."""

    id: str
    agent: str
    prompt: str
    """The prompt as text, with a label for each file."""
    status: Status
    asks: tuple[PendingInterrupt, ...]
    """The open questions, in call order."""
    started: float
    """The time of the run's start, in Unix seconds."""
    updated: float
    """The time of the run's last event, in Unix seconds."""
    usage: Usage
    turns: int
    events: int
    """Number of events."""
    after: str | None
    """The id of the run that this run continues or is queued behind."""
    driver: str
    """The process that drives the run, as returned by ``this_process``; empty if there is none."""
    error: str | None = None
    """The error of a failed run."""
    cell: str = ""
    """The id of the notebook cell whose code started the run, if known."""
    started_by: str = ""
    """The process that started the run."""

    @property
    def deadline(self) -> float | None:
        """The time when the run's first open question expires, in Unix seconds."""
        return min((i.expires_at for i in self.asks if i.expires_at is not None), default=None)


class Catalog:
    """The runs of a store. Only runs that have grown are read again.

    Args:
        store: the store.
        journals: maximum number of active runs whose journals stay in memory: those that grew last. A limit
            saves memory, because a journal has many objects. Other runs are read from the start if they have
            grown. None for no limit.
        prefix: only runs whose ids start with this text.
    """

    def __init__(self, store: Store, *, journals: int | None = None, prefix: str = "") -> None:
        self.store = store
        self.prefix = prefix
        self._journals = journals
        self._stamp: object = _NEVER
        self._since: object = None
        """The store's token for the last look, so that the next look gets only later changes."""
        self._heads: dict[str, Head] = {}
        self._behind: dict[str, Head] = {}
        """The heads of runs that are still to be read."""
        self._only_open = False
        self._found: dict[str, Entry] = {}
        """The runs that were read, by id, in the order of the heads."""
        self._open: dict[str, Journal] = {}
        """The journals of runs that have not ended, by id. The run that grew last is at the end."""
        self.count = 0
        """Number of the store's runs at the last look."""
        self.left = 0
        """Number of runs that were not read, because of ``at_most``."""
        self.unreadable: dict[str, str] = {}
        """Errors of runs that cannot be read, by id."""

    def look(self, *, only_open: bool = False, at_most: int | None = None) -> list[Entry]:
        """Read the store and return its runs, oldest first. Not for an event loop, because reading may take long.

        Args:
            only_open: True to leave out runs that have ended, and not to read them.
            at_most: maximum number of new runs to read, those with the latest events first. ``left`` is the number of
                new runs that were not read.

        Raises:
            StoreError: the store cannot be read. A single damaged run is in ``unreadable``.
        """
        stamp = self.store.stamp() if isinstance(self.store, Archive) else _NEVER
        # if a read raises, the next look starts anew
        since, self._since = self._since if only_open == self._only_open else None, None
        changes = self._changes(since)
        self._only_open = only_open
        changed = {head.run_id: head for head in changes.heads}
        if changes.is_whole:
            self._heads, self._behind = {}, {}
        self._heads.update(changed)
        heads = self._behind | changed
        self.count = len(self._heads)
        to_read = self._to_read([*heads.values()], at_most, only_open=only_open)
        new = sum(head.run_id not in self._found for head in to_read)
        for run_id, prefetched in self._runs_to_read(to_read):
            self._read_run(run_id, prefetched)
        self._behind = {k: v for k, v in self._behind.items() if k not in self._found}
        self._arrange(new, is_complete=changes.is_whole)
        self._stamp, self._since = stamp, changes.token
        return [one for one in self._found.values() if not only_open or one.status not in ENDED]

    def _arrange(self, new: int, *, is_complete: bool) -> None:
        """Forget deleted runs, and put the other runs in the order of the heads."""
        ends = [[*islice(reversed(each), new)] for each in (self._found, self._heads)]
        if not is_complete and ends[0] == ends[1]:
            return
        for deleted_id in self._found.keys() - self._heads.keys():
            self._open.pop(deleted_id, None)
        self._found = {k: self._found[k] for k in self._heads if k in self._found}

    def _to_read(self, heads: list[Head], at_most: int | None, *, only_open: bool) -> list[Head]:
        """The heads of runs that have grown or were not read before."""
        known, self.left = self._found, 0
        grown = [h for h in heads if h.run_id in known and known[h.run_id].events != h.length]
        first = [h for h in heads if h.run_id not in known and not (only_open and _is_end(h.last))]
        self._behind = {head.run_id: head for head in grown + first}
        if at_most is None:
            return grown + first
        failed = [head for head in first if head.run_id in self.unreadable]
        first = [head for head in first if head.run_id not in self.unreadable]
        self.left = max(0, len(first) - at_most)
        return grown + failed + sorted(first, key=_moved, reverse=True)[:at_most]

    @property
    def has_changed(self) -> bool:
        """Whether the store may have changed since the last look. Fast.

        Raises:
            StoreError: the store cannot be read.
        """
        stamp = self.store.stamp() if isinstance(self.store, Archive) else None
        return stamp is None or stamp != self._stamp

    def started_since(self, run: Entry) -> bool:
        """Whether another process has started a later run from this run's cell, among the runs read so far."""
        return bool(run.cell) and any(
            one.cell == run.cell and one.started_by != run.started_by and one.started > run.started
            for one in self._found.values()
        )

    def journal(self, run_id: str) -> Journal | None:
        """The journal of a run that had not ended at the last look."""
        return self._open.get(run_id)

    def _changes(self, since: object) -> Changes:
        store: object = self.store
        if isinstance(store, Changing):
            return store.changes(self.prefix, since)
        if isinstance(self.store, Archive):
            heads = self.store.heads(self.prefix) if self.prefix else self.store.heads()
        else:
            ids = (run_id for run_id in self.store.run_ids() if run_id.startswith(self.prefix))
            heads = [Head(run_id, -1, None) for run_id in ids]
        return Changes(heads, None, is_whole=True)

    def _runs_to_read(self, heads: list[Head]) -> Iterator[tuple[str, Prefetched]]:
        """The id of each run to read, with its events if the store reads several runs in one go."""
        store: object = self.store
        if isinstance(store, Batching):
            read_each, groups = store.read_each, in_batches(heads)
        elif not is_slow(store) or sys.platform == "emscripten":  # fast, or without threads
            yield from ((head.run_id, None) for head in heads)
            return
        else:
            ids = iter([head.run_id for head in heads])
            read_each = partial(_read_in_threads, self.store)
            groups = iter(lambda: [*islice(ids, READERS)], [])
        for group in groups:
            new = [run_id for run_id in group if run_id not in self._open]
            found = read_each(new) if len(new) > 1 else {}
            yield from ((run_id, found.get(run_id)) for run_id in group)

    def _read_run(self, run_id: str, prefetched: Prefetched) -> None:
        journal = self._open.get(run_id) or Journal(run_id, self.store, keeps_events=False)
        known = self._found.get(run_id)
        events: list[RunEvent] = []
        journal.listeners = (events.append,)
        try:
            if isinstance(prefetched, StoreError):
                raise prefetched
            journal.catch_up(prefetched)
            if known is None and not events:  # an earlier failed read removed the run's entry
                events += journal.read()[:1]
            entry = _entry(journal, known or events[0]) if known or events else None
        except (StoreError, UsageError) as error:  # a deleted run, or a damaged one
            self.unreadable[run_id] = str(error)
            self._found.pop(run_id, None)
            return
        finally:
            journal.listeners = ()
        self.unreadable.pop(run_id, None)
        if entry is None:
            return
        self._found[run_id] = entry
        self._open.pop(run_id, None)
        if entry.status not in ENDED:
            self._open[run_id] = journal
            while self._journals is not None and len(self._open) > self._journals:
                del self._open[next(iter(self._open))]


Prefetched: TypeAlias = Sequence[StoredEvent] | StoreError | None
"""The events of a run that was read in a batch, the error of reading it, or None if it was not read yet."""
ENDED: tuple[Status, ...] = ("completed", "failed", "cancelled")
_NEVER = object()


def _is_end(event: Last | None) -> bool:
    return (
        event is not None
        and not event.scope
        and event.type in ("run_completed", "run_failed", "run_cancelled")
    )


def _moved(head: Head) -> float:
    """The time of a run's last change; infinite if unreadable, so that the error is reported first."""
    return float("inf") if head.last is None else head.last.at


def _read_in_threads(
    store: Store, run_ids: Sequence[str]
) -> dict[str, list[StoredEvent] | StoreError]:
    """All events of each run; a run that cannot be read is left out, or has the error."""
    found: dict[str, list[StoredEvent] | StoreError] = {}

    def read(run_id: str) -> None:
        try:
            found[run_id] = store.read(run_id)
        except StoreError as error:
            found[run_id] = error
        except Exception:
            pass

    # daemon threads, because the end of the process must not wait for a store that hangs
    threads = [threading.Thread(target=read, args=(each,), daemon=True) for each in run_ids]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def _entry(journal: Journal, source: Entry | RunEvent) -> Entry:
    state = journal.state
    if isinstance(source, Entry):
        started, prompt, after = source.started, source.prompt, source.after
        cell, owner = source.cell, source.started_by
    else:
        started = source.at if isinstance(source, Event) else 0.0
        try:
            prompt, after = _asked(source)
        except (AttributeError, LookupError, TypeError) as error:
            raise StoreError(
                f"The first event of run {journal.run_id!r} has messages that nbagent did not write. Restore the run from "
                "a copy of the store, or delete it with nb.delete_run"
            ) from error
        cell, owner = (source.cell, source.owner) if isinstance(source, RunStarted) else ("", "")
    outcome = state.outcome
    return Entry(
        id=journal.run_id,
        agent=state.agent or ("" if state.queue_event is None else state.queue_event.agent),
        prompt=prompt,
        status=state.status,
        asks=() if outcome is not None else tuple(interrupts_of(state, {}, state.agent)),
        started=started,
        updated=state.at,
        usage=state.usage,
        turns=state.turns,
        events=state.position,
        after=after,
        driver="" if journal.is_vacant else journal.driver,
        error=getattr(outcome, "message", None),
        cell=cell,
        started_by=owner,
    )


def _asked(event: RunEvent) -> tuple[str, str | None]:
    """The prompt as text (for a flow, its input), and the id of the previous run."""
    match event:
        case RunQueued(prompt=content, after=after):
            return in_words(content), after
        case RunStarted(flow=True, messages=messages):
            arguments = messages[-1]["content"][-1]["input"]
            return bounded(
                ", ".join(f"{name}={dumps(value)}" for name, value in arguments.items())
            ), None
        case RunStarted(messages=messages, after=after):
            prompt = next((m for m in reversed(messages) if m["role"] == "user"), None)
            return "" if prompt is None else text_of(prompt), after
        case _:
            return "", None
