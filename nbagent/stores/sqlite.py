"""Journals in one SQLite file: they survive restarts, and the processes of one machine share them.

One row for each event, in one B-tree in which a run's events are adjacent: the row's key is the
run's number and the event's position. An append is one transaction and writes only the new rows.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from nbagent.core.base.errors import Busy, Conflict, StoreError, UsageError
from nbagent.core.base.events import StoredEvent, dump, parse
from nbagent.core.base.pickling import Made, Travels, made_once
from nbagent.core.base.process import FORK_WAIT, fork_safe
from nbagent.core.journal.history import LostReference, referred_by, referred_by_rows
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
from nbagent.core.journal.store import id_was_reused, journal_changed

T = TypeVar("T")
logger = logging.getLogger("nbagent")

APPLICATION_ID = 0x6E626167
"""The mark of nbagent's files ("nbag"), in their header."""
SCHEMA_VERSION = 2
"""The version of the tables; each event's own format is in its row."""
SCHEMA = """
create table runs (number integer primary key, id text not null unique);
create table events (key integer primary key, version integer not null, data text not null, seal text)
"""
TAKEN = "create table taken (number integer not null)"
"""The highest number of a deleted run; it is never reused, because other processes may remember it."""
UPGRADES = {1: ("alter table events add column seal text", TAKEN)}
"""The statements that upgrade a file, by its version."""
BEATS = "create table if not exists beats (process text primary key, count integer not null)"
"""A table that is created when a file is opened, also in older files."""
MAX_BEATING = 100
"""The maximum number of processes with stored beats; the oldest are dropped, and count from 1 at their next beat."""
FORGET_BEATS = (
    "delete from beats where rowid not in (select rowid from beats order by rowid desc limit ?)"
)
CHECKPOINT = 4_000_000
"""Bytes at which a thread moves the write-ahead log into the file."""

HEADS = """
select runs.number, runs.id, events.key, events.data from runs join events on events.key = (
  select max(key) from events where key >= runs.number << 32 and key < (runs.number + 1) << 32
) {where} order by runs.number
"""
ALL = HEADS.format(where="")
IDS = "select id from runs order by number"
STARTS = "where runs.id >= :prefix and runs.id < :prefix || cast(x'ff' as text)"
"""A range of the index; UTF-8 has no byte ff."""
OF_PREFIX = HEADS.format(where=STARTS)
CHANGED = HEADS.format(
    where="where runs.number in (select run from moved where number > :since) and substr(runs.id, 1, length(:prefix)) = :prefix"
)
CHANGES_TABLE = (
    "create table moved (number integer primary key, run integer not null)",
    "insert into moved values (1, 0)",
    "create trigger event_added after insert on events begin insert into moved (run) values (new.key >> 32); end",
    "create trigger run_deleted after delete on runs begin insert into moved (run) values (0); end",
    "create trigger moved_kept after insert on moved when new.number % 1024 = 0 "
    "begin delete from moved where number <= new.number - 8192; end",
)
"""A log of written runs (0 for a deletion). Triggers write it, so older versions of nbagent write it too.

SQLite serializes writers, so the log's numbers are in commit order. The log is added to a file when a list of many
runs is read again; a file whose runs nobody lists never has it."""
LOGGED_FROM = 200
"""Files with more runs get the log; in others, all heads are read."""
SEARCH = """
select id from runs where exists (
  select 1 from events where key >= number << 32 and key < (number + 1) << 32 and instr(data, ?)
) order by number
"""

PAUSE = 0.01
"""Seconds between attempts while another process writes."""
_DAMAGED = "the file is damaged. Restore a copy, or save what is left with `sqlite3 FILE .recover`"
_REASONS = {
    sqlite3.SQLITE_BUSY: "another process has locked it",
    sqlite3.SQLITE_LOCKED: "another process has locked it",
    sqlite3.SQLITE_READONLY: "it, or its folder, is read-only. Copy it to a folder where you can write",
    sqlite3.SQLITE_FULL: "the disk is full. Free some space, then continue",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database. Use another path",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_ERROR: _DAMAGED,  # its tables have changed
    sqlite3.SQLITE_IOERR: "it cannot be read or written. Is it a file, and is the disk working?",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. SQLite needs a writable folder, even to read. Copy the file to one",
}
_BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""The errors of sqlite3; ``UnicodeDecodeError`` if a message contains damaged bytes."""
_POSITIONS = 32
"""Bits of a key for the position in the run."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Handle:
    """A process's connection to a file, shared by all its stores of that file.

    It must not be used, nor closed, in a forked process.
    """

    connection: sqlite3.Connection
    file: tuple[int, int]
    """Its device and inode."""
    pid: int
    wal_bytes: int
    """Bytes in the write-ahead log, approximately."""
    is_private: bool = False
    """Whether other users' rights were removed; no run is written before that."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SQLiteStore(Travels):
    """Journals in the SQLite file at ``path``; the first run creates it, readable only by you.

    The first write makes an existing file private too. Links are followed. Reading creates no file:
    if the file is missing or empty, there are no runs.

    Usable from any thread, from processes forked from this one, and by several processes at once.
    A commit survives the end of the process at any point; a power failure may undo the last ones.

    Args:
        path: the file; its folder is created with it. It must be on a local disk.
        timeout: seconds to wait for another process that writes.

    Raises:
        StoreError: the file cannot be used; the message names it and says why.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._given = os.fspath(path)
        if self._given in ("", ":memory:"):
            raise UsageError("SQLiteStore needs a file. For runs in memory, use nb.MemoryStore()")
        self.path = Path(os.path.realpath(Path(self._given).expanduser()))
        self._timeout = timeout
        self._local = threading.local()
        """Whether this thread is inside ``without_waiting``."""
        self._numbers: dict[str, int] = {}
        """The number that a run had when it was read or started here, by its id."""
        self._closed = False
        self._handle: _Handle | None = None
        """The connection; None as long as there is nothing to read and nothing was written."""
        if self._missing_content() is None:
            self._handle = self._open()

    def __reduce__(self) -> Made:
        return made_once(type(self), str(self.path), timeout=self._timeout)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """A block in which ``append``, on this thread, raises ``Busy`` instead of waiting for another writer."""
        before, self._local.without_waiting = self._at_once, True
        try:
            yield
        finally:
            self._local.without_waiting = before

    @property
    def _at_once(self) -> bool:
        return getattr(self._local, "without_waiting", False)

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones, in one transaction.

        Raises:
            Conflict: the journal has new events, which the message names; nothing was added.
            StoreError: the file could not be written; nothing was added.
            ValueError: an event contains a value that is not JSON; nothing was added.
        """
        texts, referred = [dump(event) for event in events], referred_by(run_id, events)
        self._retry_while_busy(lambda: self._append(run_id, texts, expected, referred))

    def _append(self, run_id: str, texts: list[str], expected: int, referred: set[str]) -> None:
        with self._writable() as handle, _transaction(handle.connection) as connection:
            number = self._number(connection, run_id)
            length, seal = _length_and_seal(connection, number, run_id)
            if length != expected:
                raise journal_changed(
                    run_id, expected, length, self._at(connection, number, expected)
                )
            if expected and self._numbers.setdefault(run_id, number or 0) != number:
                raise id_was_reused(run_id)
            if not texts:
                return
            self._check_references(connection, run_id, referred)
            if number is None:
                number = _new_number(connection, run_id)
            _insert(connection, (number << _POSITIONS) + expected, with_seals(seal, texts))
        self._numbers[run_id] = number
        self._checkpoint_if_large(handle, sum(map(len, texts)) + 1024 * (len(texts) + 1))

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events, starting at number ``start``.

        Raises:
            UsageError: there is no such run.
            StoreError: the file cannot be read, or a newer nbagent has written these events.
        """
        first, rows = self._retry_while_busy(lambda: self._rows(run_id, start))
        return [
            self._parsed(run_id, key, first + i, data, version)
            for i, (key, data, version, _seal) in enumerate(rows)
        ]

    def _rows(self, run_id: str, start: int) -> tuple[int, list[tuple[int, Any, Any, Any]]]:
        with self._readable() as handle:
            number = None if handle is None else self._number(handle.connection, run_id)
            if handle is None or number is None:
                nothing = None if handle is not None else self._missing_content()
                why = f": {nothing}. Is the path right?" if nothing else ""
                raise UsageError(f"{self!r} has no run {run_id!r}{why}")
            if start == 0:
                self._numbers[run_id] = number
            first, end = _keys_of(number)
            return first + start, handle.connection.execute(
                "select key, data, version, seal from events where key >= ? and key < ? order by key",
                (first + start, end),
            ).fetchall()

    def run_ids(self) -> list[str]:
        """The ids of its runs, oldest first."""
        return self._query(lambda connection: _texts(connection, IDS), [])

    def heads(self, prefix: str = "") -> list[Head]:
        """The length and last event of each run whose id starts with the prefix, oldest first; damaged runs do not affect others."""
        return [_head(*row) for row in self._heads(prefix)]

    def ends(self, prefix: str) -> list[End]:
        """As ``heads``, but with the whole last event, as JSON."""
        return [
            End(
                run_id.decode(errors="replace"),
                key - (number << _POSITIONS) + 1,
                data.decode(errors="replace") if isinstance(data, bytes) else None,
            )
            for number, run_id, key, data in self._heads(prefix)
        ]

    def _heads(self, prefix: str) -> list[tuple[int, bytes, int, Any]]:
        return self._query(lambda connection: _heads(connection, prefix), [])

    def changes(self, prefix: str, since: object) -> Changes:
        """The heads of runs written after ``since``; after a deletion or many writes, of all runs."""
        rows, token, is_complete = self._retry_while_busy(lambda: self._changes(prefix, since))
        return Changes([_head(*row) for row in rows], token, is_complete)

    def _changes(
        self, prefix: str, since: object
    ) -> tuple[list[tuple[int, bytes, int, Any]], int | None, bool]:
        if since is not None:  # a file that is listed only once gets no log
            with suppress(StoreError), self._readable() as handle:  # locked, or read-only
                if handle is not None:
                    _add_changes_table(handle.connection)
        with self._readable() as handle:
            if handle is None:
                return [], None, True
            with _transaction(handle.connection, "deferred") as connection:
                if not _has_changes_table(connection):
                    return _heads(connection, prefix), 0, True
                first, last = connection.execute(
                    "select (select min(number) from moved), (select max(number) from moved)"
                ).fetchone()
                is_known = isinstance(since, int) and first <= since <= last
                if (
                    not is_known
                    or connection.execute(
                        "select 1 from moved where number > ? and run = 0", (since,)
                    ).fetchone()
                ):
                    return _heads(connection, prefix), last, True
                values = {"prefix": prefix, "since": since}
                return connection.execute(CHANGED, values).fetchall(), last, False

    def search(self, text: str) -> list[str]:
        """The runs with an event whose JSON contains this text, oldest first."""
        return self._query(lambda connection: _texts(connection, SEARCH, text), [])

    def stamp(self) -> object:
        """A value that changes with each write to any journal, also by other processes."""
        with self._readable() as handle:
            if handle is None:
                return None
            return _pragma(handle.connection, "data_version"), handle.connection.total_changes

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal in its stored form.

        Raises:
            UsageError: there is no such run.
            StoreError: the file cannot be read.
        """
        _, rows = self._retry_while_busy(lambda: self._rows(run_id, 0))
        return [_row(version, data, seal) for _, data, version, seal in rows]

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Import a journal with its seals, in one transaction.

        Raises:
            Conflict: a run with this id exists; nothing was added.
            LostReference: a run that it refers to does not exist; nothing was added.
            StoreError: the file could not be written; nothing was added.
        """
        referred = referred_by_rows(run_id, rows)
        self._retry_while_busy(lambda: self._put(run_id, rows, referred))

    def _put(self, run_id: str, rows: Sequence[Row], referred: set[str]) -> None:
        with self._writable() as handle, _transaction(handle.connection) as connection:
            if self._number(connection, run_id) is not None:
                raise Conflict(f"{self!r} already has a run {run_id!r}")
            self._check_references(connection, run_id, referred)
            number = _new_number(connection, run_id)
            _insert(connection, number << _POSITIONS, rows)
        self._numbers[run_id] = number
        self._checkpoint_if_large(handle, sum(len(row.data) for row in rows))

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none; their space is overwritten (at once if nobody reads) and reused.

        Raises:
            UsageError: one of them does not exist.
            Conflict: a run is not in ``known``; see ``Archive.delete``.
            StoreError: the file could not be written.
        """
        self._retry_while_busy(lambda: self._delete(run_ids, known))

    def _delete(self, run_ids: Sequence[str], known: Collection[str] | None) -> None:
        with self._writable() as handle, _transaction(handle.connection) as connection:
            check_known(_texts(connection, IDS) if known is not None else (), known)
            for run_id in run_ids:
                number = self._number(connection, run_id)
                if number is None:
                    raise UsageError(f"{self!r} has no run {run_id!r}")
                keys = _keys_of(number)
                connection.execute("delete from events where key >= ? and key < ?", keys)
                connection.execute("delete from runs where number = ?", (number,))
                connection.execute("delete from taken where number < ?", (number,))
                connection.execute(
                    "insert into taken select ? where not exists (select * from taken)", (number,)
                )
        with suppress(StoreError):  # another connection reads: the next delete empties the WAL
            self._retry_while_busy(self._empty_wal)

    def _empty_wal(self) -> None:
        """Checkpoint and truncate the WAL, because it contains deleted data."""
        with self._readable() as handle:
            if handle is None:
                return
            busy, *_ = handle.connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            if busy:
                raise Busy("another process is reading or writing")
            handle.wal_bytes = 0

    def beat(self, process: str) -> None:
        """Add one heartbeat of a process."""
        self._retry_while_busy(lambda: self._beat(process))

    def _beat(self, process: str) -> None:
        with self._writable() as handle, _transaction(handle.connection) as connection:
            update = "update beats set count = count + 1 where process = ?"
            if connection.execute(update, (process,)).rowcount:
                return
            connection.execute("insert into beats values (?, 1)", (process,))
            connection.execute(FORGET_BEATS, (MAX_BEATING,))

    def beats(self, process: str) -> int:
        """The number of heartbeats of a process."""
        with self._readable() as handle:
            if handle is None:
                return 0
            found = handle.connection.execute(
                "select count from beats where process = ?", (process,)
            ).fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        """Close the file; runs that still use this store fail from then on."""
        self._closed = True
        self._handle = None  # the connection ends with the last store of this file

    @property
    def file(self) -> tuple[int, int] | None:
        """The device and inode of the file that is open, or would be opened; None if there is none."""
        handle = self._handle
        if handle is not None:
            return handle.file
        with suppress(OSError):
            found = self.path.stat()
            return found.st_dev, found.st_ino
        return None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SQLiteStore({self._given!r})"

    # --- reading the tables

    def _number(self, connection: sqlite3.Connection, run_id: str) -> int | None:
        row = connection.execute("select number from runs where id = ?", (run_id,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], int):  # only after damage
            raise self._damaged()
        return int(row[0])

    def _check_references(
        self, connection: sqlite3.Connection, run_id: str, referred: Collection[str]
    ) -> None:
        """Check within the writing transaction that all runs in ``referred`` exist."""
        for each in referred:
            found = self._number(connection, each)
            if found is None or self._numbers.get(each, found) != found:
                raise LostReference(run_id, each)

    def _at(
        self, connection: sqlite3.Connection, number: int | None, position: int
    ) -> StoredEvent | None:
        if number is None:
            return None
        row = connection.execute(
            "select data, version from events where key = ?",
            ((number << _POSITIONS) + position,),
        ).fetchone()
        if row is None:
            return None
        with suppress(StoreError):  # reading the run reports it
            return self._parsed("", 0, 0, *row)
        return None

    def _parsed(self, run_id: str, key: int, expected: int, data: Any, version: Any) -> StoredEvent:
        """The event in a row.

        Raises:
            StoreError: the event is damaged or missing, or a newer nbagent has written it.
        """
        if key != expected:
            raise self._unreadable(run_id, expected, "it is missing")
        if not isinstance(version, int) or version < 1 or not isinstance(data, bytes):
            why = f"its data is {data!r:.80}, and its version is {version!r:.80}"
            raise self._unreadable(run_id, expected, why)
        try:
            return parse(data, version)
        except StoreError as error:
            raise self._unreadable(run_id, expected, str(error)) from error

    def _unreadable(self, run_id: str, key: int, why: str) -> StoreError:
        return StoreError(
            f"Event {key & ((1 << _POSITIONS) - 1)} of run {run_id!r} in the store at {str(self.path)!r} cannot be "
            f"read (other runs work): {why}"
        )

    # --- the connection

    def _retry_while_busy(self, act: Callable[[], T]) -> T:
        """Call ``act``, and again while the file is locked; other threads may write in between."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return act()
            except Busy:
                if self._at_once or time.monotonic() >= until:
                    raise
            time.sleep(PAUSE)

    def _query(self, read: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What ``read`` returns, once the file is not locked; ``nothing`` if there is nothing to read."""

        def act() -> T:
            with self._readable() as handle:
                return nothing if handle is None else read(handle.connection)

        return self._retry_while_busy(act)

    @contextmanager
    def _readable(self) -> Iterator[_Handle | None]:
        """This process's connection for reading; None if there is nothing to read."""
        if self._handle is None and not self._closed and self._missing_content() is not None:
            yield None
            return
        with self._locked() as handle:
            yield handle

    @contextmanager
    def _writable(self) -> Iterator[_Handle]:
        """This process's connection for writing; a missing file is created, private to its owner."""
        with self._locked() as handle:
            if not handle.is_private:
                _make_private(self.path)
                handle.is_private = True
            yield handle

    @contextmanager
    def _locked(self) -> Iterator[_Handle]:
        """This process's connection, locked for this thread; a missing file is created."""
        handle = self._handle
        if self._closed:
            raise StoreError(f"{self!r} is closed")
        if handle is not None and handle.pid != os.getpid():
            _abandoned.append(handle)
            handle = None
        if handle is None:
            handle = self._handle = self._open()
        with handle.lock:
            try:
                yield handle
            except _BROKEN as error:
                raise self._failure(error) from error

    def _damaged(self) -> StoreError:
        return StoreError(f"The store at {str(self.path)!r} cannot be used: {_DAMAGED}")

    def _failure(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            # meanwhile, by another thread or the end of the program
            return StoreError(f"{self!r} is closed")
        known = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = known & 0xFF  # the rest is the extended code
        reason = _REASONS.get(code)
        text = f"{reason} ({error})" if reason else str(error)
        kind = Busy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        return kind(f"The store at {str(self.path)!r} cannot be used: {text}")

    def _missing_content(self) -> str | None:
        """The reason why there is nothing to read; None if the file has content.

        Raises:
            StoreError: it is not a file, or could not be created.
        """
        try:
            _check_file(self.path)
            if self.path.exists():
                return None if self.path.stat().st_size else "the file is empty"
            _check_folder(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        return "the file does not exist"

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(
            f"The store at {str(self.path)!r} cannot be created or used: {error.strerror}. Pass a path in a folder "
            "where you can write"
        )

    def _open(self) -> _Handle:
        try:
            _make_file(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        found = self.path.stat()
        file = (found.st_dev, found.st_ino)
        with _opening:
            handle = _shared.get((*file, os.getpid()))
            if handle is None:
                handle = self._retry_while_busy(lambda: self._connected(file))
                _shared[*file, os.getpid()] = handle
        return handle

    def _connected(self, file: tuple[int, int]) -> _Handle:
        try:
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            connection.text_factory = bytes  # bytes that are not text are reported with their run
            connection.execute("pragma page_size = 1024")  # affects only a new file
            connection.execute("pragma cell_size_check = on")
            connection.execute("pragma trusted_schema = off")
            self._check_kind(connection)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.execute("pragma wal_autocheckpoint = 0")
            connection.execute("pragma secure_delete = on")
            if _pragma(connection, "user_version") == 0:
                self._create(connection)
            if _pragma(connection, "user_version") < SCHEMA_VERSION:
                self._upgrade(connection)
            connection.execute(BEATS)
        except BaseException as error:
            connection.close()
            if isinstance(error, _BROKEN):
                raise self._failure(error) from error
            raise
        wal_bytes = 0
        with suppress(OSError):
            wal_bytes = self.path.with_name(f"{self.path.name}-wal").stat().st_size
        handle = _Handle(connection, file, os.getpid(), wal_bytes)
        weakref.finalize(handle, _close, connection, os.getpid())
        return handle

    def _check_kind(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "deferred"):  # another process may be making it
            version = _pragma(connection, "user_version")
            kind = _pragma(connection, "application_id")
            tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if kind != APPLICATION_ID and (kind or version or tables):
            raise StoreError(
                f"The file {str(self.path)!r} is the SQLite database of another program. Use another file"
            )
        if kind and not version:
            raise self._damaged()
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"The store at {str(self.path)!r} was created by a newer nbagent: its version is {version}, and this nbagent "
                f"supports versions up to {SCHEMA_VERSION}. Upgrade with: pip install -U jupyter-nbagent"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            if _pragma(connection, "user_version"):  # another process was faster
                return
            for statement in (*SCHEMA.split(";"), TAKEN):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Upgrade an older file to this version; its rows do not change."""
        with _transaction(connection):
            for version in range(_pragma(connection, "user_version"), SCHEMA_VERSION):
                for statement in UPGRADES[version]:
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {version + 1}")

    def _checkpoint_if_large(self, handle: _Handle, written: int) -> None:
        """Start a thread that moves the WAL's pages into the file, if the WAL is large."""
        handle.wal_bytes += written
        if handle.wal_bytes < CHECKPOINT:
            return
        handle.wal_bytes = 0
        thread = threading.Thread(
            target=_checkpoint, args=(self.path,), name="nbagent-checkpoint", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system has no threads, as in a web page
            _checkpoint(self.path)


_shared: weakref.WeakValueDictionary[tuple[int, int, int], _Handle] = weakref.WeakValueDictionary()
"""The open connections by file and process."""
_opening, _checkpointing = fork_safe(threading.Lock()), fork_safe(threading.Lock())
_closing = fork_safe(threading.RLock())  # closing may collect garbage, and so close another
_abandoned: list[_Handle] = []
"""Connections of a parent process: closing one here would break the parent's."""
_held: list[Any] = []
"""The locks that the fork now being made holds."""


def _hold_for_fork() -> None:
    """Wait until no thread is in SQLite: the forked process would find SQLite's own locks held for ever."""
    end = time.monotonic() + FORK_WAIT
    if not _opening.acquire(timeout=FORK_WAIT):
        return
    own: list[Any] = [one.lock for one in [*_shared.values()] if one.pid == os.getpid()]
    _held.append(_opening)
    _held.extend(
        lock
        for lock in (*own, _checkpointing, _closing)
        if lock.acquire(timeout=max(0, end - time.monotonic()))
    )


def _release_after_fork() -> None:
    held, _held[:] = _held[:], []
    for lock in held:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_for_fork, after_in_parent=_release_after_fork, after_in_child=_held.clear
    )


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if pid == os.getpid():
        with _closing:
            connection.close()


def _check_folder(path: Path) -> None:
    """Check that a file could be created at this path."""
    folder = next(one for one in path.parents if one.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _make_file(path: Path) -> None:
    """Create the file and missing folders, for their owner only; existing ones do not change.

    Raises:
        OSError: it cannot be created, or its status cannot be read.
        StoreError: as ``_check_file``.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _check_file(path)


def _check_file(path: Path) -> None:
    """Check that it is a file, and private or yours. Nothing is changed.

    It is not opened, because closing it would drop SQLite's locks.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"The store at {str(path)!r} is not a file. Pass the path of a file")
    if _is_open_to_others(status) and os.geteuid() not in (0, status.st_uid):
        raise StoreError(
            f"The store at {str(path)!r} may be readable by others and belongs to another user. Use a file of your own"
        )


def _is_open_to_others(status: os.stat_result) -> bool:
    return os.name != "nt" and bool(status.st_mode & 0o077)


def _make_private(path: Path) -> None:
    """Remove the rights of other users from a store's file and from SQLite's files next to it."""
    changed = False
    for suffix in ("", "-wal", "-shm"):
        each = path.with_name(path.name + suffix)
        with suppress(OSError):  # no such file, or a disk without permissions
            status = each.lstat()
            if _is_open_to_others(status):
                each.chmod(status.st_mode & 0o700)
                changed = True
    if changed:
        logger.warning(
            "the store at %r was readable by others; it is now private to you", str(path)
        )


def _checkpoint(path: Path) -> None:
    with _checkpointing:
        connection = sqlite3.connect(path, timeout=0)
        try:
            connection.execute("pragma wal_checkpoint(passive)")
        except sqlite3.Error:
            return  # the WAL stays complete, and is moved the next time
        finally:
            connection.close()


@contextmanager
def _transaction(
    connection: sqlite3.Connection, kind: Literal["immediate", "deferred"] = "immediate"
) -> Iterator[sqlite3.Connection]:
    """A transaction: ``immediate`` keeps out other writers, ``deferred`` reads one snapshot."""
    connection.execute(f"begin {kind}")
    try:
        yield connection
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"pragma {name}").fetchone()[0])


def _texts(connection: sqlite3.Connection, select: str, *values: str) -> list[str]:
    """The first column of a query's rows."""
    return [text.decode(errors="replace") for (text,) in connection.execute(select, values)]


def _keys_of(number: int) -> tuple[int, int]:
    """The first key of a run's events, and the first one after them."""
    return number << _POSITIONS, (number + 1) << _POSITIONS


def _heads(connection: sqlite3.Connection, prefix: str) -> list[tuple[int, bytes, int, Any]]:
    return connection.execute(OF_PREFIX if prefix else ALL, {"prefix": prefix}).fetchall()


def _head(number: int, run_id: bytes, key: int, data: Any) -> Head:
    return Head(
        run_id.decode(errors="replace"),
        key - (number << _POSITIONS) + 1,
        last_of(data) if isinstance(data, bytes) else None,
    )


def _has_changes_table(connection: sqlite3.Connection) -> bool:
    found = connection.execute("select 1 from sqlite_master where name = 'moved'").fetchone()
    return found is not None


def _add_changes_table(connection: sqlite3.Connection) -> None:
    """Add the log to a file of many runs."""
    many = "select 1 from runs limit 1 offset ?"
    if _has_changes_table(connection) or not connection.execute(many, (LOGGED_FROM,)).fetchone():
        return
    with _transaction(connection):
        if not _has_changes_table(connection):  # another process was faster
            for statement in CHANGES_TABLE:
                connection.execute(statement)


def _length_and_seal(
    connection: sqlite3.Connection, number: int | None, run_id: str
) -> tuple[int, str]:
    """A run's length and last seal (its id if there are no events)."""
    if number is None:
        return 0, run_id
    keys = _keys_of(number)
    row = connection.execute(
        "select key, seal from events where key >= ? and key < ? order by key desc limit 1", keys
    ).fetchone()
    if row is None:
        return 0, run_id
    length = int(row[0]) - keys[0] + 1
    if isinstance(row[1], bytes):
        return length, row[1].decode(errors="replace")
    rows = connection.execute(
        "select version, data, seal from events where key >= ? and key < ? order by key", keys
    )
    return length, last_seal(run_id, [_row(*row) for row in rows])


def _new_number(connection: sqlite3.Connection, run_id: str) -> int:
    made = connection.execute(
        "insert into runs select 1 + max(ifnull((select max(number) from runs), 0), "
        "ifnull((select max(number) from taken), 0)), ?",
        (run_id,),
    )
    return made.lastrowid or 0


def _insert(connection: sqlite3.Connection, first: int, rows: Sequence[Row]) -> None:
    connection.executemany(
        "insert into events (key, version, data, seal) values (?, ?, ?, ?)",
        [(first + i, *row) for i, row in enumerate(rows)],
    )


def _row(version: Any, data: Any, seal: Any) -> Row:
    """A row as stored; a value that is not text makes the row damaged."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else f"{data!r:.80}"
    kept = seal.decode(errors="replace") if isinstance(seal, bytes) else None
    return Row(version if isinstance(version, int) else 0, text, kept)
