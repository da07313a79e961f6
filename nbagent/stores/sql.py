"""Journals in an SQL database that processes of several machines share, mainly PostgreSQL.

One row for each run, with its length and last seal, and one for each event. An append is one
transaction: it raises the run's length from the expected one, and so locks the run's row.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar

from nbagent.core.base.errors import Busy, Conflict, StoreError, UsageError
from nbagent.core.base.events import StoredEvent, dump, parse
from nbagent.core.base.pickling import Made, Travels, cannot_travel, made_once
from nbagent.core.base.process import FORK_WAIT
from nbagent.core.journal.history import LostReference, referred_by, referred_by_rows
from nbagent.core.journal.journal import Group
from nbagent.core.journal.rows import (
    Changes,
    End,
    Head,
    Row,
    check_known,
    last_of,
    last_seal,
    with_seals,
)
from nbagent.core.journal.store import Append, Watcher, id_was_reused, journal_changed

from .postgres_listener import CHANNEL, Listener, Notices

try:
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql
except ImportError as missing:
    raise UsageError(
        'nb.SQLStore needs SQLAlchemy: pip install "jupyter-nbagent[sql]"'
    ) from missing

T = TypeVar("T")

SCHEMA_VERSION = 1
"""The version of the tables. The format of an event has its own version, stored with the event."""
UPGRADES: dict[int, tuple[str, ...]] = {}
"""The statements that upgrade a database, by the version before the upgrade."""
POOL = {"pool_size": 4, "max_overflow": 4}
"""The connections of a store, except those that listen; a worker of a batch has fewer."""
MAX_GROUPED = 1_000_000
"""Maximum characters of an append in a group, because the other appends wait for it."""
TRUSTED_FOR = 1.0
"""A group uses a connection without a check if its last use was at most this many seconds ago. If the connection has
broken, the group is written again, run by run."""
NOTICE_PATIENCE = 1.0
"""Maximum seconds that ``changes`` waits for the notices of earlier writes; then it reads the rows of all runs."""
PAUSE = 0.02
"""Seconds between attempts after another process was faster."""
STATEMENT_LIMIT = 60
"""The time limit of one statement, in seconds."""
EXIT_WAIT = 5.0
"""Seconds that the end of the process waits for open transactions."""
ENDS = 1000
"""The number of last-written runs whose ends a store remembers, so that a group appends to them without reading."""
BEATS_DELETED_AFTER = 7 * 86400.0
"""Seconds after which the beats of a silent process are deleted. If the process still runs, its count restarts at 1."""

_TEXT = sa.Text().with_variant(mysql.VARCHAR(255, collation="utf8mb4_bin"), "mysql", "mariadb")
_JSON = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
"""JSON as bytes, because databases do not parse bytes and so accept any JSON."""
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_tables = sa.MetaData()
_meta = sa.Table("nbagent_meta", _tables, sa.Column("version", sa.Integer, primary_key=True))
_runs = sa.Table(
    "nbagent_runs",
    _tables,
    sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", _TEXT, nullable=False, unique=True),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("seal", sa.String(64), nullable=False),
    sqlite_autoincrement=True,  # no number is used twice
)
_events = sa.Table(
    "nbagent_events",
    _tables,
    sa.Column("run", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("data", _JSON, nullable=False),
    sa.Column("seal", sa.String(64)),
)
_beats = sa.Table(
    "nbagent_beats",
    _tables,
    sa.Column("process", _TEXT, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

_FIND_RUN = sa.select(_runs.c.number, _runs.c.length, _runs.c.seal).where(
    _runs.c.id == sa.bindparam("run_id")
)
_NUMBER_OF = sa.select(_runs.c.number).where(_runs.c.id == sa.bindparam("run_id"))
_LOCK_SHARED = _NUMBER_OF.with_for_update(read=True, key_share=True)
_LOCK = _NUMBER_OF.with_for_update()
_READ = (
    sa.select(_events.c.position, _events.c.version, _events.c.data, _events.c.seal, _runs.c.number)
    .select_from(
        _runs.outerjoin(
            _events,
            (_events.c.run == _runs.c.number) & (_events.c.position >= sa.bindparam("start")),
        )
    )
    .where(_runs.c.id == sa.bindparam("run_id"))
    .order_by(_events.c.position)
)
_READ_EACH = (
    sa.select(
        *(_runs.c.id, _runs.c.number),
        *(_events.c.position, _events.c.version, _events.c.data),
    )
    .join_from(_runs, _events, _events.c.run == _runs.c.number)
    .where(_runs.c.id.in_(sa.bindparam("run_ids", expanding=True)))
    .order_by(_runs.c.number, _events.c.position)
)
_SET_LENGTH = (
    sa.update(_runs)
    .where((_runs.c.number == sa.bindparam("run")) & (_runs.c.length == sa.bindparam("expected")))
    .values(length=sa.bindparam("after"), seal=sa.bindparam("last"))
)
_NOTIFY = sa.text("select pg_notify(:channel, :notice)")
_ADD_EACH = """
    with given as (
      select * from unnest(
        %(ids)s::text[], %(numbers)s::bigint[], %(lengths)s::integer[], %(before)s::text[], %(after)s::integer[],
        %(last)s::text[], %(notices)s::text[]) as given (id, number, length, before, after, last, notice)
    ), locked as (
      select runs.number, given.after, given.last from nbagent_runs as runs join given
      on runs.number = given.number and runs.length = given.length and runs.seal = given.before
      for no key update of runs skip locked
    ), moved as (
      update nbagent_runs as runs set length = locked.after, seal = locked.last from locked
      where runs.number = locked.number returning runs.id, runs.number
    ), added as (
      insert into nbagent_runs (id, length, seal) select id, after, last from given where number is null
      on conflict (id) do nothing returning id, number
    ), stored as (
      select id, number from moved union all select id, number from added
    ), events as (
      insert into nbagent_events (run, position, version, data, seal)
      select stored.number, event.position, event.version, event.data, event.seal from stored join unnest(
        %(run)s::text[], %(position)s::integer[], %(version)s::integer[], %(data)s::bytea[], %(seal)s::text[])
        as event (run, position, version, data, seal) on event.run = stored.id
    )
    select stored.id, stored.number, pg_notify(%(channel)s, given.notice || stored.number) from stored join given on given.id = stored.id
"""
"""Append to each given run that is not locked and whose stored end is the known one; return only those runs.

It is one statement, so that a group costs one round trip. Locked runs are skipped, and a run that has grown has another
length. The last seal is also compared, because the seals of the new events are computed from it."""
_FIND_EACH = sa.text(
    """
    select id, number from nbagent_runs join nbagent_events on run = number
    join unnest(cast(:ids as text[]), cast(:places as integer[]), cast(:seals as text[])) as given (of_run, place, last)
    on id = of_run and position = place and nbagent_events.seal = last
    """
)
_LIMITS = "select set_config('lock_timeout', %(wait)s, true), set_config('statement_timeout', %(most)s, true)"
_SET_TIME_LIMITS = sa.text(re.sub(r"%\((\w+)\)s", r":\1", _LIMITS))
_READ_ONE = sa.select(_events.c.version, _events.c.data).where(
    (_events.c.run == sa.bindparam("number")) & (_events.c.position == sa.bindparam("place"))
)
_IDS = sa.select(_runs.c.id).order_by(_runs.c.number)
_HEADS = (
    sa.select(_runs.c.number, _runs.c.id, _runs.c.length, _events.c.data)
    .select_from(
        _runs.outerjoin(
            _events,
            (_events.c.run == _runs.c.number) & (_events.c.position == _runs.c.length - 1),
        )
    )
    .order_by(_runs.c.number)
)
_SNAPSHOT = sa.text("select cast(pg_snapshot_xmin(pg_current_snapshot()) as text)")
_CHANGED = sa.text(
    """
    select cast(pg_snapshot_xmin(pg_current_snapshot()) as text), count(*),
      array_agg(number) filter (where age(xmin) <= age(cast(:since as xid)))
    from nbagent_runs where id like :pattern
    """
)
"""The runs whose row was written by a transaction that had not ended at the last call of ``changes``, or began later.

A snapshot's xmin is the oldest transaction that has not ended. The last call saw the rows of all earlier transactions,
so any row that became visible later has this xid or a later one. A row that is returned twice does no harm."""
_AGES = 2**30
"""Transactions after which ``age``, which compares 32 bits, could be wrong."""
_HEADS_OF = _HEADS.where(sa.text("nbagent_runs.number = any(cast(:numbers as bigint[]))"))
_STAMP = sa.select(sa.func.count(), sa.func.sum(_runs.c.length), sa.func.max(_runs.c.number))
"""A value that differs between any two states: lengths only grow, and numbers are used once."""
_BUSY = ("55P03", "57014", "40001", "40P01", "53300", 1205, 1213)
"""Codes of PostgreSQL and MySQL: locked, too slow, retry, deadlock, too many connections."""
_REASONS = {
    "42501": "its role lacks permission. Ask for rights on the tables nbagent_…, or on the schema",
    "25006": "it is read-only. Use the primary server, or turn read-only mode off",
    "42P01": "its tables no longer exist",
    "3D000": "there is no such database",
    "3F000": "there is no schema for its tables. Is the search_path right?",
    "53100": "the disk is full. Free some space, then continue",
}
"""The meanings of PostgreSQL's error codes, in words."""


class _Append(NamedTuple):
    """An append to a run whose end is known here."""

    run_id: str
    number: int | None
    """The run's number; None if this append creates the run."""
    expected: int
    before: str
    """The seal of the run's last event; for a new run, the run's id."""
    rows: Sequence[Row]


class _Known(NamedTuple):
    """The end of a run, as this process wrote it last."""

    number: int | None
    length: int
    seal: str


class _Since(NamedTuple):
    """The runs, as the last call of ``changes`` found them."""

    xid: int
    """The oldest transaction that had not ended."""
    numbers: set[int]
    """The numbers of all runs seen so far. After a deletion, there are more of these numbers than runs."""
    notices: Notices | None
    """The notices received up to that call; None if there was no listener."""


class SQLStore(Travels):
    """Journals in the tables ``nbagent_…`` of an SQL database; the first run creates the tables.

    ``nb.SQLStore("postgresql://user@host/database")``. Tested with PostgreSQL 13 or newer and psycopg 3;
    other databases with transactions that SQLAlchemy supports should work. It needs
    ``pip install "jupyter-nbagent[sql]"``.

    Usable from any thread, from processes forked from this one, and from any machine. PostgreSQL notifies
    other processes of writes; other databases are polled. The tables are those
    of the connection's ``search_path``. Anyone who can read the tables can read prompts and results.

    Args:
        database: its URL, or a ``sqlalchemy.Engine``, which you dispose of yourself.
        timeout: seconds to wait for another process that writes to the same run, and for a connection.

    Raises:
        UsageError: the URL is invalid, or its driver is not installed.
    """

    def __init__(self, database: str | sa.URL | sa.Engine, *, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self._is_own = not isinstance(database, sa.Engine)
        self._engine = (
            database if isinstance(database, sa.Engine) else _engine_of(database, timeout)
        )
        self._public_url = _public_url(self._engine.url)
        self._pid = os.getpid()
        self._token = uuid.uuid4().hex[:12]
        """Identifies the notices that this store sends."""
        self._numbers: dict[str, int] = {}
        """The number of each run that this store has read or written, by run id."""
        self._ends: dict[str, _Known] = {}
        """The ends of the runs that this store wrote to last, by run id."""
        self._is_ready = False
        self._closed = False
        self._stamp_was_read = False
        self._listener: Listener | None = None
        self._lock = threading.RLock()
        self._group = Group(self)
        self._in_doubt: dict[tuple[str, str], _Append] = {}
        """Appends that the server may have committed before the connection broke, by run id and last event's JSON."""
        if self._is_own:
            weakref.finalize(self, _dispose, self._engine, self._pid)

    def __reduce__(self) -> Made:
        """Pickle the URL without its password, which another process must supply, such as in ``PGPASSWORD``."""
        if not self._is_own:
            cannot_travel(
                repr(self), "it has an engine with open connections. Pass the URL instead"
            )
        passwords = [name for name in self._engine.url.query if "passw" in name.lower()]
        url = self._engine.url._replace(password=None).difference_update_query(passwords)
        return made_once(type(self), url.render_as_string(), timeout=self._timeout)

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones, in one transaction.

        Raises:
            Conflict: the journal has new events, which the message names; nothing was added.
            StoreError: it could not be written; nothing was added, unless the connection broke during the commit.
            ValueError: an event contains a value that is not JSON; nothing was added.
        """
        texts, referred = [dump(event) for event in events], referred_by(run_id, events)
        try:
            self._append_alone(run_id, texts, expected, referred)
        except Conflict:
            raise
        except BaseException:
            self._notify_here(run_id, is_unclear=True)
            raise
        if texts:
            self._notify_here(run_id)

    def _append_alone(
        self, run_id: str, texts: list[str], expected: int, referred: set[str]
    ) -> None:
        key = (run_id, "".join(texts[-1:]))
        in_doubt = self._in_doubt.get(key)
        is_own = in_doubt is not None and [row.data for row in in_doubt.rows] == texts
        try:
            self._retry_while_busy(lambda: self._append(run_id, texts, expected, referred))
        except Conflict:
            if in_doubt is None or not is_own or not self._note_stored([in_doubt]):
                raise
        finally:
            if is_own:
                self._in_doubt.pop(key, None)

    @property
    def group(self) -> Group | None:
        """On PostgreSQL, the waiting writes of this process, which share transactions; None for other databases."""
        self._check_process()
        if getattr(self.append, "__func__", None) is not SQLStore.append:
            return None  # a group would bypass the ``append`` of a subclass
        return self._group if self._has_notices else None

    def _grouped_append(self, append: Append) -> _Append | None:
        """The append in the form for a group; None if it is too large, or something must be read first."""
        run_id, events, expected = append
        if (
            not events
            or not self._is_ready
            or not _is_storable(run_id)
            or referred_by(run_id, events)
        ):
            return None
        end = self._ends.get(run_id) if expected else _Known(None, 0, run_id)
        if (
            end is None
            or end.length != expected
            or (expected and self._numbers.get(run_id) != end.number)
        ):
            return None
        texts = [dump(event) for event in events]
        if sum(map(len, texts)) > MAX_GROUPED:
            return None
        rows = with_seals(end.seal, texts)
        return _Append(run_id, end.number, expected, end.seal, rows)

    def _written(self, run_id: str, number: int, length: int, seal: str) -> None:
        """Note the end of a run that was just written."""
        self._numbers[run_id] = number
        with self._lock:
            self._ends.pop(run_id, None)
            self._ends[run_id] = _Known(number, length, seal)
            if len(self._ends) > ENDS:
                del self._ends[next(iter(self._ends))]

    def append_each(self, appends: Sequence[Append]) -> list[bool]:
        """Append to each run that ends as expected, in one transaction; return for each append whether it was stored.

        A run that another process has locked or changed does not block the others.
        """
        writes: dict[str, _Append] = {}
        joined: list[_Append | None] = []
        for append in appends:
            write = None if append.run_id in writes else self._grouped_append(append)
            joined.append(write)
            if write is not None:
                writes[write.run_id] = write
        stored = self._append_all(writes) if writes else {}
        for run_id in stored:
            self._notify_here(run_id)
        return [write is not None and write.run_id in stored for write in joined]

    def _append_all(self, writes: dict[str, _Append]) -> dict[str, int]:
        # sorted: two processes that begin the same runs must not wait for each other
        ordered = [writes[run_id] for run_id in sorted(writes)]
        try:
            _thread.is_in_group = True
            try:
                stored = self._append_in_one(ordered)
            finally:
                _thread.is_in_group = False
        except Busy:  # nothing was sent
            return {}
        except Exception:  # the connection may have broken after the commit
            self._in_doubt |= {(one.run_id, one.rows[-1].data): one for one in ordered}
            try:
                stored = self._note_stored(ordered)
            except Exception:  # each is tried again alone
                return {}
            for run_id in stored:
                self._in_doubt.pop((run_id, writes[run_id].rows[-1].data), None)
        else:
            self._note(ordered, stored)
        return stored

    def _append_in_one(self, writes: Sequence[_Append]) -> dict[str, int]:
        """Append in one round trip; return the runs that were appended to, with their numbers."""
        import psycopg  # noqa: PLC0415 - only PostgreSQL needs it

        ends = [(one.expected + len(one.rows), one.rows[-1].seal) for one in writes]
        events = [
            (one.run_id, at, row.version, row.data.encode(errors="surrogatepass"), row.seal)
            for one in writes
            for at, row in enumerate(one.rows, one.expected)
        ]
        columns = ("run", "position", "version", "data", "seal")
        values: dict[str, Iterable[object]] = {
            **dict(zip(columns, zip(*events, strict=True), strict=True)),
            "ids": [one.run_id for one in writes],
            "numbers": [one.number for one in writes],
            "lengths": [one.expected for one in writes],
            "before": [one.before for one in writes],
            "after": [length for length, _ in ends],
            "last": [seal for _, seal in ends],
            "notices": [self._notice_prefix(one.run_id) for one in writes],
        }
        arrays = {name: _array(column) for name, column in values.items()}
        with self._connected(is_limited=False) as connection:
            raw: Any = connection.connection.driver_connection
            can_pipeline = psycopg.Pipeline.is_supported()  # libpq 14 or newer
            with raw.pipeline() if can_pipeline else nullcontext():
                raw.execute(_LIMITS, self._limits)
                added = raw.execute(_ADD_EACH, {**arrays, "channel": CHANNEL})
                raw.commit()
            return {run_id: number for run_id, number, _ in added}

    def _note(self, writes: Sequence[_Append], stored: Mapping[str, int]) -> None:
        """Remember the ends of the runs in which these writes are stored."""
        for one in writes:
            if one.run_id in stored:
                end = one.expected + len(one.rows)
                self._written(one.run_id, stored[one.run_id], end, last_seal("", one.rows))

    def _note_stored(self, writes: Sequence[_Append]) -> dict[str, int]:
        """Read which of these writes are stored, and remember their runs' ends; return the runs with their numbers."""
        values = {
            "ids": [one.run_id for one in writes],
            "places": [one.expected + len(one.rows) - 1 for one in writes],
            "seals": [one.rows[-1].seal for one in writes],
        }
        found: dict[str, int] = dict(map(tuple, self._all(_FIND_EACH, values)))
        self._note(writes, found)
        return found

    def _append(self, run_id: str, texts: list[str], expected: int, referred: set[str]) -> None:
        with self._writing() as connection:
            found = connection.execute(_FIND_RUN, {"run_id": run_id}).one_or_none()
            number, length, seal = found or (None, 0, run_id)
            if length != expected:
                winner = self._event_at(connection, number, expected)
                raise journal_changed(run_id, expected, length, winner)
            if expected and self._numbers.setdefault(run_id, number or 0) != number:
                raise id_was_reused(run_id)
            if not texts:
                return
            rows = with_seals(seal, texts)
            if number is None:
                number = self._new_run(connection, run_id, rows)
            else:
                values = {"after": expected + len(rows), "last": rows[-1].seal}
                moved = connection.execute(
                    _SET_LENGTH, {"run": number, "expected": expected, **values}
                )
                if moved.rowcount != 1:
                    raise _OtherWasFaster
            self._lock_references(connection, run_id, referred)
            self._insert(connection, number, expected, rows)
            self._notify(connection, run_id, number)
        self._written(run_id, number, expected + len(rows), last_seal(seal, rows))

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events, starting at number ``start``.

        Raises:
            UsageError: there is no such run.
            StoreError: the database cannot be read, or a newer nbagent has written these events.
        """
        return self._parsed(run_id, start, (row[:3] for row in self._rows(run_id, start)))

    def read_each(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent] | StoreError]:
        """All events of each existing run, or the error if it cannot be read.

        Raises:
            StoreError: the database cannot be read.
        """
        wanted = [run_id for run_id in run_ids if _is_storable(run_id)]
        found: dict[str, list[StoredEvent] | StoreError] = {}
        rows = self._all(_READ_EACH, {"run_ids": wanted}) if wanted else []
        for (run_id, number), own in groupby(rows, key=itemgetter(0, 1)):
            self._numbers[run_id] = number
            try:
                found[run_id] = self._parsed(run_id, 0, (row[2:] for row in own))
            except StoreError as error:
                found[run_id] = error
        return found

    def _parsed(self, run_id: str, start: int, rows: Iterable[Any]) -> list[StoredEvent]:
        found = []
        for expected, (position, version, data) in enumerate(rows, start):
            if position != expected:
                raise self._unreadable(run_id, expected, "it is missing")
            try:
                found.append(parse(bytes(data), version))
            except StoreError as error:
                raise self._unreadable(run_id, expected, str(error)) from error
        return found

    def _unreadable(self, run_id: str, number: int, why: str) -> StoreError:
        return StoreError(
            f"Event {number} of run {run_id!r} in {self!r} cannot be read (other runs work): {why}"
        )

    def run_ids(self) -> list[str]:
        """The ids of its runs, oldest first."""
        return [run_id for (run_id,) in self._all(_IDS)]

    def heads(self, prefix: str = "") -> list[Head]:
        """The length and last event of each run whose id starts with the prefix, oldest first; damaged runs do not affect others."""
        return [_head(*row) for row in self._last_events(prefix)]

    def changes(self, prefix: str, since: object) -> Changes:
        """The heads of the runs written since ``since``; of all runs after a deletion, or if this is not PostgreSQL."""
        if not self._has_notices or not _is_storable(prefix):
            return Changes(self.heads(prefix), None, is_whole=True)
        self._check_process()
        listener = self._listener
        is_known = isinstance(since, _Since) and self._has_all_notices(listener)
        # before the heads: the next call then also finds changes in between
        notices = None if listener is None else listener.notices
        if isinstance(since, _Since):
            changed = self._notified(prefix, since, notices) if is_known else None
            changed = changed or self._changed(prefix, since, notices)
            if changed is not None:
                return changed
        before = self._all(_SNAPSHOT)
        rows = list(self._last_events(prefix))
        token = _Since(int(before[0][0]), {row[0] for row in rows}, notices) if before else None
        return Changes([_head(*row) for row in rows], token, is_whole=True)

    def _has_all_notices(self, listener: Listener | None) -> bool:
        """Send a notice, and return whether it arrives. Notices arrive in order, so earlier ones have then arrived."""
        if listener is None or listener.notices is None:
            return False
        marker = uuid.uuid4().hex
        arrived = listener.expect(marker)
        self._all(_NOTIFY, {"channel": CHANNEL, "notice": f"{self._token}::{marker}"})
        return arrived.wait(NOTICE_PATIENCE)

    def _notified(self, prefix: str, since: _Since, notices: Notices | None) -> Changes | None:
        """The runs that changed, by the notices of writes; None if notices may be missing, or a run was deleted."""
        if notices is None or since.notices is None:
            return None
        numbers = notices.listener.written_since(since.notices)
        if numbers is None:
            return None
        found = self._all(_HEADS_OF, {"numbers": [*numbers]}) if numbers else []
        if len(found) < len(numbers):
            return None
        rows = [row for row in found if row[1].startswith(prefix)]
        since.numbers.update(row[0] for row in rows)
        heads = [_head(*row) for row in rows]
        return Changes(heads, since._replace(notices=notices), is_whole=False)

    def _changed(self, prefix: str, since: _Since, notices: Notices | None) -> Changes | None:
        """The runs that changed, found in the rows of all runs; None if all heads must be read."""
        values = {"since": str(since.xid % 2**32), "pattern": _pattern(prefix)}
        for oldest, count, changed in self._all(_CHANGED, values):
            since.numbers.update(changed or ())
            if len(since.numbers) == count and 0 <= int(oldest) - since.xid < _AGES:
                found = self._all(_HEADS_OF, {"numbers": changed}) if changed else []
                return Changes(
                    [_head(*row) for row in found],
                    _Since(int(oldest), since.numbers, notices),
                    is_whole=False,
                )
        return None

    def ends(self, prefix: str) -> list[End]:
        """The last event of each run whose id starts with the prefix, oldest first."""
        return [
            End(run_id, length, None if data is None else data.decode(errors="replace"))
            for _, run_id, length, data in self._last_events(prefix)
        ]

    def _last_events(self, prefix: str) -> Iterator[tuple[int, str, int, bytes | None]]:
        if not _is_storable(prefix):
            return
        has_prefix: sa.ColumnElement[bool]
        if self._engine.dialect.name == "postgresql":  # uses the index where ids have collation C
            has_prefix = _runs.c.id.like(_pattern(prefix))
        else:  # a range would depend on the collation
            has_prefix = sa.func.substr(_runs.c.id, 1, len(prefix)) == prefix
        for number, run_id, length, data in self._all(
            _HEADS.where(has_prefix) if prefix else _HEADS
        ):
            yield number, run_id, length, None if data is None else bytes(data)

    def search(self, text: str) -> list[str]:
        """The runs with an event whose JSON contains this text, oldest first."""
        find = (
            sa.func.pg_catalog.position
            if self._engine.dialect.name == "postgresql"
            else sa.func.instr
        )
        found = find(_events.c.data, sa.bindparam("text", type_=sa.LargeBinary)) > 0
        has_text = sa.exists().where(_events.c.run == _runs.c.number, found)
        values = {"text": text.encode(errors="surrogatepass")}
        return [run_id for (run_id,) in self._all(_IDS.where(has_text), values)]

    def stamp(self) -> object:
        """A value that changes with each write to any journal, also by other processes.

        After the second call, PostgreSQL's notices provide the value, without a query. The value also changes when the
        notices start.
        """
        listener = self._listening() if self._stamp_was_read else None
        self._stamp_was_read = True
        count = None if listener is None else listener.change_count
        return count if count is not None else [tuple(row) for row in self._all(_STAMP)]

    def watch(self, run_id: str, watcher: Watcher) -> bool:
        """Call ``watcher`` on appends to this run; False if the database has no notices."""
        listener = self._listening()
        if listener is not None:
            listener.add(_key(run_id), watcher)
        return listener is not None

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal in its stored form.

        Raises:
            UsageError: there is no such run.
            StoreError: it could not be read.
        """
        return [
            Row(version, bytes(data).decode(errors="replace"), seal)
            for _, version, data, seal in self._rows(run_id, 0)
        ]

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Import a journal with its seals, in one transaction.

        Raises:
            Conflict: a run with this id exists; nothing was added.
            LostReference: a run that the journal refers to does not exist; nothing was added.
            StoreError: the database could not be written; nothing was added.
        """
        referred = referred_by_rows(run_id, rows)
        self._retry_while_busy(lambda: self._put(run_id, rows, referred))
        self._notify_here(run_id)

    def _put(self, run_id: str, rows: Sequence[Row], referred: set[str]) -> None:
        with self._writing() as connection:
            if connection.execute(_FIND_RUN, {"run_id": run_id}).one_or_none() is not None:
                raise Conflict(f"{self!r} already has a run {run_id!r}")
            number = self._new_run(connection, run_id, rows)
            self._lock_references(connection, run_id, referred)
            self._insert(connection, number, 0, rows)
            self._notify(connection, run_id, number)
        self._numbers[run_id] = number

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none.

        Raises:
            UsageError: one of them does not exist.
            Conflict: there is a run that is not among the known ones.
            StoreError: the database could not be written.
        """
        for run_id, number in self._retry_while_busy(lambda: self._delete(run_ids, known)).items():
            self._notify_here(run_id, number)

    def _delete(self, run_ids: Sequence[str], known: Collection[str] | None) -> dict[str, int]:
        deleted_runs: dict[str, int] = {}
        with self._writing() as connection:
            for run_id in sorted(run_ids):  # waits for a transaction that continues one of them now
                number = connection.execute(_LOCK, {"run_id": run_id}).scalar()
                if number is None:
                    raise UsageError(f"{self!r} has no run {run_id!r}")
                connection.execute(sa.delete(_events).where(_events.c.run == number))
                deleted = connection.execute(sa.delete(_runs).where(_runs.c.number == number))
                if deleted.rowcount != 1:
                    raise _OtherWasFaster
                self._notify(connection, run_id, number)
                deleted_runs[run_id] = number
            if known is not None:
                check_known(connection.scalars(_IDS), known)
        return deleted_runs

    def beat(self, process: str) -> None:
        """Add one beat of this process."""
        self._retry_while_busy(lambda: self._beat(process))

    def _beat(self, process: str) -> None:
        now = time.time()
        with self._writing() as connection:
            own_beat = sa.update(_beats).where(_beats.c.process == process)
            if connection.execute(own_beat.values(count=_beats.c.count + 1, at=now)).rowcount:
                return
            connection.execute(sa.delete(_beats).where(_beats.c.at < now - BEATS_DELETED_AFTER))
            connection.execute(sa.insert(_beats).values(process=process, count=1, at=now))

    def beats(self, process: str) -> int:
        """The number of beats of this process."""
        found = self._all(sa.select(_beats.c.count).where(_beats.c.process == process))
        return int(found[0][0]) if found else 0

    def close(self) -> None:
        """Close its connections; runs that still use this store fail from then on."""
        with self._lock:
            self._closed = True
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
        if self._is_own:
            _dispose(self._engine, self._pid)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def url(self) -> str | None:
        """The URL without a password; None for a database in memory."""
        return self._public_url if self._engine.url.database not in (None, "", ":memory:") else None

    def __repr__(self) -> str:
        return f"SQLStore({self._public_url!r})"

    # --- reading and writing the tables

    def _rows(self, run_id: str, start: int) -> list[Any]:
        rows = self._all(_READ, {"run_id": run_id, "start": start}) if _is_storable(run_id) else []
        if not rows:
            why = (
                "" if self._is_ready else ". It has no tables of nbagent. Is it the right database?"
            )
            raise UsageError(f"{self!r} has no run {run_id!r}{why}")
        if start == 0:
            self._numbers[run_id] = rows[0][4]
        return [row[:4] for row in rows if row[0] is not None]

    def _all(self, select: Any, values: dict[str, Any] | None = None) -> list[Any]:
        """The rows of a statement; none if the database has no tables yet."""

        def act() -> list[Any]:
            with self._connected() as connection:
                version = SCHEMA_VERSION if self._is_ready else self._tables_version(connection)
                found = list(connection.execute(select, values or {})) if version else []
            self._is_ready = self._is_ready or version == SCHEMA_VERSION
            return found

        return self._retry_while_busy(act)

    def _event_at(
        self, connection: sa.Connection, number: int | None, position: int
    ) -> StoredEvent | None:
        """An event as stored; None if there is none, or it is damaged, which reading the run reports."""
        if number is None:
            return None
        row = connection.execute(_READ_ONE, {"number": number, "place": position}).one_or_none()
        if row is None or None in tuple(row):
            return None
        version, data = row
        with suppress(StoreError):
            return parse(bytes(data), version)
        return None

    def _new_run(self, connection: sa.Connection, run_id: str, rows: Sequence[Row]) -> int:
        if not _is_storable(run_id):
            raise StoreError(
                f"{self!r} cannot store run {run_id!r}: its id is not valid text for a database"
            )
        values = {"id": run_id, "length": len(rows), "seal": last_seal(run_id, rows)[:64]}
        made = connection.execute(sa.insert(_runs).values(values))
        return int((made.inserted_primary_key or [0])[0])

    def _insert(
        self, connection: sa.Connection, number: int, first: int, rows: Sequence[Row]
    ) -> None:
        values = [
            {
                "run": number,
                "position": first + i,
                "version": row.version,
                "data": row.data.encode(errors="surrogatepass"),
                "seal": row.seal,
            }
            for i, row in enumerate(rows)
        ]
        if values:
            connection.execute(sa.insert(_events), values)

    def _lock_references(
        self, connection: sa.Connection, run_id: str, referred: Collection[str]
    ) -> None:
        """Lock the runs that are referred to until this transaction ends, so that no process deletes them.

        Raises:
            LostReference: one of the runs no longer exists.
        """
        for each in referred:
            kept = connection.execute(_LOCK_SHARED, {"run_id": each}).scalar()
            if kept is None or self._numbers.get(each, kept) != kept:
                raise LostReference(run_id, each)

    # --- notices

    def _notify(self, connection: sa.Connection, run_id: str, number: int) -> None:
        """Have PostgreSQL notify other processes after the commit; the notice contains no id."""
        if self._has_notices:
            notice = f"{self._notice_prefix(run_id)}{number}"
            connection.execute(_NOTIFY, {"channel": CHANNEL, "notice": notice})

    def _notice_prefix(self, run_id: str) -> str:
        """The beginning of the notice of a write to this run; the caller appends the run's number."""
        return f"{self._token}:{_key(run_id)}:"

    def _notify_here(
        self, run_id: str, number: int | None = None, *, is_unclear: bool = False
    ) -> None:
        """Call the watchers in this process, on the thread that wrote, or may have written."""
        listener = self._listener
        if listener is not None:
            known = None if is_unclear else number or self._numbers.get(run_id)
            listener.notify(_key(run_id), known)

    @property
    def _has_notices(self) -> bool:
        return (self._engine.dialect.name, self._engine.driver) == ("postgresql", "psycopg")

    def _listening(self) -> Listener | None:
        """The listener for other processes' writes, started when it is first needed; does not block."""
        if not self._has_notices:
            return None
        self._check_process()
        with self._lock:
            if self._listener is None and not self._closed:
                self._listener = Listener(self._engine, self._token, repr(self))
                weakref.finalize(self, self._listener.end)
            return self._listener

    # --- the connection

    def _retry_while_busy(self, act: Callable[[], T]) -> T:
        """Call ``act``, and again while other processes are faster or hold a lock."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return act()
            except (_OtherWasFaster, Busy) as error:
                if time.monotonic() < until:
                    time.sleep(PAUSE)
                elif isinstance(error, Busy):
                    raise
                else:
                    raise Busy(f"{self!r} is busy: other processes are writing") from error

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes, in a database that has the tables."""
        with self._connected() as connection:
            if not self._is_ready:
                self._make_tables(connection)
            yield connection
        # only after the commit: until then, the transactions of other threads do not see the tables
        self._is_ready = True

    @contextmanager
    def _connected(self, *, is_limited: bool = True) -> Iterator[sa.Connection]:
        """A transaction: committed at the end of the block, rolled back if it raises."""
        if self._closed:
            raise StoreError(f"{self!r} is closed")
        self._check_process()
        pool = self._engine.pool
        try:
            with _counted(), self._engine.begin() as connection:
                if is_limited and connection.dialect.name == "postgresql":
                    connection.execute(_SET_TIME_LIMITS, self._limits)
                yield connection
        except sa.exc.IntegrityError as error:  # another process has inserted the same rows
            raise _OtherWasFaster from error
        except sa.exc.SQLAlchemyError as error:
            raise self._failure(error) from error
        finally:
            # `close` missed the connection of this block: it is in the old pool, or in the new one if `close` ran first
            if self.is_closed and self._is_own:
                with _counted(closes=True):
                    pool.dispose()
                    self._engine.pool.dispose()

    @property
    def _limits(self) -> dict[str, str]:
        """How long one transaction waits for a lock, and how long one statement of it may take."""
        wait = f"{max(1, int(self._timeout * 1000))}ms"
        return {"wait": wait, "most": f"{STATEMENT_LIMIT}s"}

    def _check_process(self) -> None:
        """Use new connections in a forked process; the parent's are not touched."""
        if self._pid != os.getpid():
            self._pid, self._token, self._lock = (
                os.getpid(),
                uuid.uuid4().hex[:12],
                threading.RLock(),
            )
            self._engine.dispose(close=False)
            self._listener = None
            self._group = Group(self)

    def _failure(self, error: sa.exc.SQLAlchemyError) -> StoreError:
        """The error as a ``StoreError``, without the written values and the password."""
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig else None
        text = str(cause if cause is not None else error).strip().partition("\n")[0]
        if password := self._engine.url.password:
            text = text.replace(str(password), "***")
        code = getattr(cause, "sqlstate", None) or next(iter(getattr(cause, "args", ())), None)
        if isinstance(error, sa.exc.TimeoutError):
            return Busy(f"{self!r} is busy: all of its connections are in use ({text})")
        if code in _BUSY or getattr(cause, "sqlite_errorcode", 0) & 0xFF in (5, 6):
            return Busy(f"{self!r} is busy: another process holds a lock ({text})")
        reason = _REASONS.get(str(code))
        return StoreError(f"{self!r} cannot be used: {f'{reason} ({text})' if reason else text}")

    # --- the tables

    def _tables_version(self, connection: sa.Connection) -> int:
        """The version of the tables; 0 if there are none.

        Raises:
            StoreError: a newer nbagent created them.
        """
        if not sa.inspect(connection).has_table(_meta.name):
            return 0
        version = connection.scalar(sa.select(sa.func.max(_meta.c.version)))
        if version is None:
            return 0
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self!r} was created by a newer nbagent: its tables have version {version}, and this nbagent supports "
                f"versions up to {SCHEMA_VERSION}. Upgrade with: pip install -U jupyter-nbagent"
            )
        return int(version)

    def _make_tables(self, connection: sa.Connection) -> None:
        """Create or upgrade the tables, one process at a time if the database supports it."""
        if connection.dialect.name == "postgresql":
            if self._tables_version(connection) == SCHEMA_VERSION:
                return
            connection.execute(sa.func.pg_advisory_xact_lock(0x6E626167).select())
        if not self._tables_version(connection):
            for table in _tables.sorted_tables:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            connection.execute(sa.insert(_meta).values(version=SCHEMA_VERSION))
        for version in range(connection.scalar(sa.select(_meta.c.version)) or 0, SCHEMA_VERSION):
            for statement in UPGRADES[version]:
                connection.execute(sa.text(statement))
            connection.execute(sa.update(_meta).values(version=version + 1))


class _Transactions:
    """The number of transactions that are open, or whose connections close, on all threads of this process."""

    def __init__(self) -> None:
        self.count = 0
        self.changed = threading.Condition()
        self.is_forking = False
        self.is_over = False
        """Whether the interpreter is ending; daemon threads then start no transaction."""

    def hold(self) -> None:
        """Wait until no transaction is open: a forked process would find locks of its driver held for ever."""
        self.changed.acquire()
        self.is_forking = True  # else other transactions would begin all the time
        self.changed.wait_for(lambda: not self.count, timeout=FORK_WAIT)

    def release(self) -> None:
        """Let transactions begin after a fork."""
        self.is_forking = False
        self.changed.notify_all()
        self.changed.release()

    def reset(self) -> None:
        """Reset the count in a forked process."""
        self.count, self.is_forking, self.changed = 0, False, threading.Condition()

    def end(self) -> None:
        """Wait for open transactions, because the interpreter's end would crash a thread in a driver's C code."""
        with self.changed:
            self.is_over = True
            self.changed.wait_for(lambda: not self.count, timeout=EXIT_WAIT)


_transactions = _Transactions()
atexit.register(_transactions.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_transactions.hold,
        after_in_parent=_transactions.release,
        after_in_child=_transactions.reset,
    )


@contextmanager
def _counted(*, closes: bool = False) -> Iterator[None]:
    """Count a transaction while it connects and while it is open, or connections while they are closed.

    Raises:
        StoreError: the interpreter is ending and would interrupt this thread's transaction.
    """
    with _transactions.changed:
        if _transactions.is_over and threading.current_thread().daemon and not closes:
            raise StoreError("The process is ending, so the store is no longer read or written")
        if not closes:  # the garbage collector may close connections in any thread
            _transactions.changed.wait_for(lambda: not _transactions.is_forking, FORK_WAIT)
        _transactions.count += 1
    try:
        yield
    finally:
        with _transactions.changed:
            _transactions.count -= 1
            _transactions.changed.notify_all()


class _Thread(threading.local):
    """Marks the thread that writes a group: its connection is not checked each time, as ``pool_pre_ping`` would do."""

    is_in_group = False


_thread = _Thread()


class _OtherWasFaster(Exception):
    """Another process was faster; nothing was written, and the call is retried."""


def _dispose(engine: sa.Engine, pid: int) -> None:
    """Close an engine's connections; in a process forked since, leave them to the parent."""
    with _counted(closes=True):
        engine.dispose(close=pid == os.getpid())


def _engine_of(database: str | sa.URL, timeout: float) -> sa.Engine:
    try:
        url = sa.make_url(database)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise UsageError(
            "nb.SQLStore takes the URL of a database, as in postgresql://user@host/database"
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageError(
            "SQLStore cannot use a database in memory. For runs in memory, use nb.MemoryStore()"
        )
    pooled: dict[str, Any] = {**POOL, "pool_timeout": timeout}
    if url.drivername == "postgresql+psycopg":
        known = {"connect_timeout": "10", "application_name": "nbagent", "keepalives_idle": "30"}
        url = url.update_query_dict({k: v for k, v in known.items() if k not in url.query})
    try:
        engine = sa.create_engine(url, hide_parameters=True, **pooled)
    except ImportError as error:
        raise UsageError(
            f"The driver of {_public_url(url)!r} is not installed ({error}). For PostgreSQL: pip install "
            '"jupyter-nbagent[sql]"'
        ) from error
    except sa.exc.ArgumentError as error:  # no such dialect
        raise UsageError(
            f"SQLAlchemy has no dialect {url.drivername!r}. Check the URL, or install the dialect"
        ) from error
    sa.event.listen(engine, "checkout", partial(_check_connection, engine.dialect))
    sa.event.listen(engine, "checkin", _note_use)
    return engine


def _note_use(_: object, record: sa.pool.ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _check_connection(
    dialect: sa.Dialect, connection: Any, record: sa.pool.ConnectionPoolEntry, _: object
) -> None:
    """Replace all idle connections if this one broke while it was idle."""
    if _thread.is_in_group and time.monotonic() - record.info.get("used", 0.0) < TRUSTED_FOR:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise sa.exc.InvalidatePoolError from error


def _public_url(url: sa.URL) -> str:
    """A URL without its password and options."""
    return url.set(query={}).render_as_string(hide_password=True)


def _key(run_id: str) -> str:
    """A run's key in a notice: a hash, because anyone who can connect can listen and must not learn ids."""
    return hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()[:32]


def _head(_number: int, run_id: str, length: int, data: bytes | None) -> Head:
    return Head(run_id, length, None if data is None else last_of(data))


def _pattern(prefix: str) -> str:
    """The pattern of ``like`` for texts that start with this one."""
    return re.sub(r"([\\%_])", r"\\\1", prefix) + "%"


def _array(values: Iterable[object]) -> str:
    """A column as PostgreSQL's text for an array, which is faster than the driver's encoding."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return "NULL" if value is None else str(value)


def _is_storable(run_id: str) -> bool:
    with suppress(UnicodeEncodeError):
        return b"\0" not in run_id.encode()
    return False
