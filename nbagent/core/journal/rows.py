"""Journals as they are kept: a row for each event, sealed to all rows before it.

A seal is the SHA-256 of the row and of the seal before it, so that no row of a run can be changed, taken
out or put in between without all later seals being wrong. It proves that the rows belong together, not
who wrote them; what was cut off at the end shows only where somebody has noted the last seal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, runtime_checkable

from nbagent.core.base.errors import Conflict, StoreError
from nbagent.core.base.events import FORMAT_VERSION, StoredEvent, parse
from nbagent.core.base.foreign import MAX_EVENT_PARTS, counted, read_by


class Row(NamedTuple):
    """One event as it is kept."""

    version: int
    """The format that ``data`` is written in."""
    data: str
    """The event's JSON."""
    seal: str | None
    """See ``sealed``; None where an nbagent wrote it that did not seal."""


class Last(NamedTuple):
    """What tells of a journal's last event where it stands, without reading all of it."""

    type: str
    at: float
    scope: tuple[str, ...] = ()


class Head(NamedTuple):
    """The end of one journal."""

    run_id: str
    length: int
    """How many events it has."""
    last: Last | None
    """Of the last one; None where it cannot be read."""


class End(NamedTuple):
    """The end of one journal with its last event, for who reads nothing else of it."""

    run_id: str
    length: int
    """How many events it has."""
    data: str | None
    """The JSON of the last one; None where it cannot be read."""


AT_ONCE = 1000
"""Events that are read in one go, of several runs; a longer run is read by itself."""
SEALED_FROM = 2
"""The first format whose rows all have seals."""


@runtime_checkable
class Archive(Protocol):
    """A store that tells of all its runs at once, and lets them be taken out, brought in and deleted."""

    def heads(self, prefix: str = "") -> list[Head]:
        """Where each journal ends whose run's id begins so, oldest run first; a row's damage is no matter of the others.

        Raises:
            StoreError: they could not be read.
        """

    def stamp(self) -> object:
        """A value that is equal as long as nobody writes to any journal; cheap to ask for again and again.

        Raises:
            StoreError: it could not be read.
        """

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal as it is kept.

        Raises:
            UsageError: there is no such run.
            StoreError: they could not be read.
        """

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Bring in a journal as it was kept elsewhere, seals included.

        Raises:
            Conflict: there is a run of this id; nothing was added.
            LostReference: a run that it refers to is not there, as for ``append``; nothing was added.
            StoreError: they could not be written; nothing was added.
        """

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none, whoever goes on with their runs; ``nb.delete_run`` asks first.

        Args:
            run_ids: which.
            known: the runs of which it was asked whether they go on with one of these.

        Raises:
            UsageError: one of them is not there; nothing was deleted.
            Conflict: there is a run that is not among the known ones; nothing was deleted.
            StoreError: they could not be deleted.
        """


def check_known(there: Iterable[str], known: Collection[str] | None) -> None:
    """Refuse a deletion that was decided before a run began, which may go on with what is to be deleted.

    Raises:
        Conflict: naming it.
    """
    new = None if known is None else next((each for each in there if each not in known), None)
    if new is not None:
        raise Conflict(f"Run {new!r} was started in the meantime, so nothing was deleted")


@runtime_checkable
class Searching(Protocol):
    """A store that finds what its runs hold, without anybody reading all of them."""

    def search(self, text: str) -> list[str]:
        """The runs in which an event's JSON has this text, oldest first.

        Raises:
            StoreError: they could not be read.
        """


@runtime_checkable
class Ending(Protocol):
    """A store that gives the last events of many runs in one go."""

    def ends(self, prefix: str) -> list[End]:
        """Of each run whose id begins so, oldest first; a row's damage is no matter of the others.

        Raises:
            StoreError: they could not be read.
        """


@runtime_checkable
class Batching(Protocol):
    """A store that reads several runs in one go: each time it is asked, it waits for another machine."""

    def read_each(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent] | StoreError]:
        """All events of each run that is there, or why it cannot be read.

        Raises:
            StoreError: none of them could be read.
        """


def in_batches(heads: Iterable[Head]) -> Iterator[list[str]]:
    """The runs in their order, in groups of few events in all, as they are read in one go."""
    group: list[str] = []
    size = 0
    for head in heads:
        if group and size + head.length > AT_ONCE:
            yield group
            group, size = [], 0
        group.append(head.run_id)
        size += head.length
    if group:
        yield group


def last_of(data: str | bytes) -> Last | None:
    """Of an event's JSON; None where that is damaged, which whoever reads the run is told."""
    try:
        plain = read_by(json.loads, counted(data, MAX_EVENT_PARTS))
        return Last(str(plain["type"]), float(plain["at"]), tuple(plain.get("scope", ())))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def seal_of(before: str, version: int, data: str | bytes) -> str:
    """The seal of a row; ``before`` is that of the row before it, or of the first row the run's id."""
    text = data.encode() if isinstance(data, str) else data
    return sha256(b"%s\n%d\n%s" % (before.encode(), version, text)).hexdigest()


def sealed(before: str, texts: Iterable[str]) -> list[Row]:
    """The JSON of events as rows; ``before`` as in ``seal_of``."""
    return list(_sealed(before, texts))


def _sealed(seal: str, texts: Iterable[str]) -> Iterator[Row]:
    for text in texts:
        seal = seal_of(seal, FORMAT_VERSION, text)
        yield Row(FORMAT_VERSION, text, seal)


def first_broken(run_id: str, rows: Sequence[Row]) -> int | None:
    """The number of the first row that is not as it was sealed; None where all are.

    Rows that an older nbagent wrote have no seal: they may stand at the beginning alone, and the first
    sealed row holds them together.
    """
    seal = run_id
    has_begun = False
    for number, row in enumerate(rows):
        expected = seal_of(seal, row.version, row.data)
        if row.seal is None and not has_begun and row.version < SEALED_FROM:
            seal = expected
            continue
        has_begun = True
        if row.seal != expected:
            return number
        seal = expected
    return None


def last_seal(run_id: str, rows: Sequence[Row]) -> str:
    """What the next row is sealed to: worked out where the last one has no seal."""
    seal = run_id
    for row in rows:
        seal = row.seal if row.seal is not None else seal_of(seal, row.version, row.data)
    return seal


def events_of(rows: Iterable[Row]) -> list[StoredEvent]:
    """The events in rows.

    Raises:
        StoreError: one is damaged, or of a newer nbagent; the message says which.
    """
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(parse(row.data, row.version))
        except StoreError as error:
            raise StoreError(f"Event {number}: {error}") from error
    return found
