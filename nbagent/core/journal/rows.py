"""Journals in their stored form: a row for each event, with a seal over the row and all earlier rows.

A seal is the SHA-256 of the row and of the previous row's seal. If a row of a run is changed, removed or
inserted, all later seals are wrong. Seals prove that the rows belong together, not who wrote them. To notice
that the last rows are missing, you need an earlier note of the last seal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, runtime_checkable

from nbagent.core.base.errors import Conflict, StoreError
from nbagent.core.base.events import FORMAT_VERSION, StoredEvent, parse
from nbagent.core.base.incoming_json import MAX_EVENT_PARTS, read_by, within_parts


class Row(NamedTuple):
    """One stored event."""

    version: int
    """The format that ``data`` is written in."""
    data: str
    """The event's JSON."""
    seal: str | None
    """See ``seal_of``; None if an nbagent without seals wrote the row."""


class Last(NamedTuple):
    """Facts about a journal's last event, for code that does not need the whole event."""

    type: str
    at: float
    scope: tuple[str, ...] = ()


class Head(NamedTuple):
    """The length of one journal, and facts about its last event."""

    run_id: str
    length: int
    """Number of events."""
    last: Last | None
    """Facts about the last event; None if it cannot be read."""


class End(NamedTuple):
    """The length of one journal, and its last event, for code that reads no other event."""

    run_id: str
    length: int
    """Number of events."""
    data: str | None
    """The JSON of the last event; None if it cannot be read."""


class Changes(NamedTuple):
    """The heads of the runs that were written since an earlier ``Changes``."""

    heads: list[Head]
    """All heads that changed; unchanged heads may be among them."""
    token: object
    """The value to pass as ``since`` the next time; None if all heads must then be read again."""
    is_whole: bool
    """Whether these are all heads, oldest first: a run that is not among them does not exist."""


AT_ONCE = 1000
"""Maximum events of several runs that are read at once; a longer run is read by itself."""
SEALED_FROM = 2
"""The first format whose rows all have seals."""


@runtime_checkable
class Archive(Protocol):
    """A store that can list, export, import and delete its runs."""

    def heads(self, prefix: str = "") -> list[Head]:
        """The length and last event of each run whose id starts with the prefix, oldest first. Includes damaged runs.

        Raises:
            StoreError: the runs could not be read.
        """

    def stamp(self) -> object:
        """A value that is equal until a journal is written; fast, for frequent checks.

        Raises:
            StoreError: the store could not be read.
        """

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal as stored rows.

        Raises:
            UsageError: the run does not exist.
            StoreError: the rows could not be read.
        """

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Import a journal with its seals.

        Raises:
            Conflict: a run with this id exists; nothing was added.
            LostReference: a run to which the journal refers does not exist, as for ``append``; nothing was added.
            StoreError: the rows could not be written; nothing was added.
        """

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none, also if other runs continue them; ``nb.delete_run`` checks that first.

        Args:
            run_ids: the runs to delete.
            known: the runs that the caller has seen; any other run may continue a run to delete. None: do not compare.

        Raises:
            UsageError: one of the runs does not exist; nothing was deleted.
            Conflict: there is a run that is not in ``known``; nothing was deleted.
            StoreError: the runs could not be deleted.
        """


def check_known(there: Iterable[str], known: Collection[str] | None) -> None:
    """Raise if a run was added since the caller read ``known``: the new run may continue a run to delete.

    Raises:
        Conflict: there is a new run; the message names it.
    """
    new = None if known is None else next((each for each in there if each not in known), None)
    if new is not None:
        raise Conflict(f"Run {new!r} was started in the meantime, so nothing was deleted")


@runtime_checkable
class Searching(Protocol):
    """A store that can search its runs without reading all of them."""

    def search(self, text: str) -> list[str]:
        """The ids of the runs in which an event's JSON contains this text, oldest first.

        Raises:
            StoreError: the runs could not be read.
        """


@runtime_checkable
class Changing(Protocol):
    """A store that returns the heads of the runs that changed, without reading all of them."""

    def changes(self, prefix: str, since: object) -> Changes:
        """The heads of the runs with this id prefix that were written since ``since``, a token for the same prefix.

        All heads are returned if ``since`` is None, a run was deleted, or the store has no record of the changes.

        Raises:
            StoreError: the heads could not be read.
        """


@runtime_checkable
class Ending(Protocol):
    """A store that returns the last events of many runs at once."""

    def ends(self, prefix: str) -> list[End]:
        """Ends of the runs whose id starts with the prefix, oldest first. Includes damaged runs.

        Raises:
            StoreError: the runs could not be read.
        """


@runtime_checkable
class Batching(Protocol):
    """A store that reads several runs at once, because each request to its server takes time."""

    def read_each(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent] | StoreError]:
        """All events of each run that exists, or the error if the run cannot be read.

        Raises:
            StoreError: none of the runs could be read.
        """


def in_batches(heads: Iterable[Head]) -> Iterator[list[str]]:
    """The run ids in their order, in groups to read at once; see ``AT_ONCE``."""
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
    """Facts about an event's JSON; None if it is damaged, which is reported when the run is read."""
    try:
        plain = read_by(json.loads, within_parts(data, MAX_EVENT_PARTS))
        return Last(str(plain["type"]), float(plain["at"]), tuple(plain.get("scope", ())))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def seal_of(before: str, version: int, data: str | bytes) -> str:
    """The seal of a row; ``before`` is the previous row's seal, or for the first row the run's id."""
    text = data.encode() if isinstance(data, str) else data
    return sha256(b"%s\n%d\n%s" % (before.encode(), version, text)).hexdigest()


def with_seals(before: str, texts: Iterable[str]) -> list[Row]:
    """The JSON of events as rows; ``before`` as in ``seal_of``."""
    rows, seal = [], before
    for text in texts:
        seal = seal_of(seal, FORMAT_VERSION, text)
        rows.append(Row(FORMAT_VERSION, text, seal))
    return rows


def first_broken(run_id: str, rows: Sequence[Row]) -> int | None:
    """The number of the first row that does not match its seal; None if all match.

    Rows of an older nbagent have no seal. They are valid only at the beginning, and the first sealed row
    covers them.
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
    """The seal of the last row, which the next row's seal needs; computed if the row has none."""
    seal = run_id
    for row in rows:
        seal = row.seal if row.seal is not None else seal_of(seal, row.version, row.data)
    return seal


def events_of(rows: Iterable[Row]) -> list[StoredEvent]:
    """The events in rows.

    Raises:
        StoreError: an event is damaged, or from a newer nbagent; the message has its number.
    """
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(parse(row.data, row.version))
        except StoreError as error:
            raise StoreError(f"Event {number}: {error}") from error
    return found
