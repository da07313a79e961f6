"""What a journal needs of a store, and what both call an append that did not succeed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from nbagent.core.base.errors import Conflict, StoreError
from nbagent.core.base.events import Resolved, RunCancelled, StoredEvent, ToolStarted
from nbagent.core.base.user import named


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


class Append(NamedTuple):
    """An append to one run: the arguments of ``Store.append``."""

    run_id: str
    events: Sequence[StoredEvent]
    expected: int


class Watcher(Protocol):
    """An object that a store notifies when a run's journal grows."""

    def on_append(self) -> None:
        """Handle an append; called afterwards, on the thread that appended."""


class RunDeleted(StoreError):
    """The store no longer has the run."""


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
