"""Journals in one SQLite file: kept over restarts, shared by the processes of one machine.

One row for each event, in one B-tree that a run's events stand together in: the row's key is the
run's number and the event's position. An append is one transaction and writes the new rows alone.
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
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from nbagent.core.base.errors import Busy, Conflict, StoreError, UsageError
from nbagent.core.base.events import StoredEvent, dump, parse
from nbagent.core.base.travel import Made, Travels, made_once
from nbagent.core.journal.history import LostReference, referred_by, referred_by_rows
from nbagent.core.journal.journal import begun_anew, moved_on
from nbagent.core.journal.rows import End, Head, Row, check_known, last_of, last_seal, sealed

T = TypeVar("T")
logger = logging.getLogger("nbagent")

APPLICATION_ID = 0x6E626167
"""Marks the file as nbagent's ("nbag"), in its header."""
SCHEMA_VERSION = 2
"""Of the tables; the format of each event stands beside it."""
SCHEMA = """
create table runs (number integer primary key, id text not null unique);
create table events (key integer primary key, version integer not null, data text not null, seal text)
"""
TAKEN = "create table taken (number integer not null)"
"""The highest number that a deleted run had: it is never given again, as other processes may remember it."""
UPGRADES = {1: ("alter table events add column seal text", TAKEN)}
"""By the version that a file has: what makes it the next one."""
BEATS = "create table if not exists beats (process text primary key, count integer not null)"
"""Made when the file is opened, also in one that was made without it."""
BEATING = 100
"""Processes whose beats are kept, those that began last; one that was forgotten and lives begins again."""
FORGET_BEATS = (
    "delete from beats where rowid not in (select rowid from beats order by rowid desc limit ?)"
)
CHECKPOINT = 4_000_000
"""Bytes in the write-ahead log from which it is carried over to the file, in a thread."""

HEADS = """
select runs.number, runs.id, events.key, events.data from runs join events on events.key = (
  select max(key) from events where key >= runs.number << 32 and key < (runs.number + 1) << 32
) where substr(runs.id, 1, length(?1)) = ?1 order by runs.number
"""
SEARCH = """
select id from runs where exists (
  select 1 from events where key >= number << 32 and key < (number + 1) << 32 and instr(data, ?)
) order by number
"""

PAUSE = 0.01
"""Seconds between tries while another process writes."""
_DAMAGED = "the file is damaged. Restore a copy, or save what is left with `sqlite3 FILE .recover`"
_REASONS = {
    sqlite3.SQLITE_BUSY: "another process has locked it",
    sqlite3.SQLITE_LOCKED: "another process has locked it",
    sqlite3.SQLITE_READONLY: "it, or its folder, is read-only. Copy it to a folder where you can write",
    sqlite3.SQLITE_FULL: "the disk is full. Free some space, then continue",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database. Give the store a path of its own",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_ERROR: _DAMAGED,  # its tables are not as they were made
    sqlite3.SQLITE_IOERR: "it cannot be read or written. Is it a file, and is the disk working?",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. SQLite also writes next to it to read it, so copy it to a folder where you can write",
}
_BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises; the latter where it tells of damage in the damaged bytes themselves."""
_POSITIONS = 32
"""Bits of a key that hold the position in the run."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Handle:
    """One process's connection to a file, which all its stores of that file share.

    It must not be used, nor closed, in a process forked from it.
    """

    connection: sqlite3.Connection
    file: tuple[int, int]
    """Its device and number."""
    pid: int
    logged: int
    """Bytes in the write-ahead log, about."""
    is_private: bool = False
    """Whether others have no rights on the file, as nothing is written before that."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SQLiteStore(Travels):
    """Journals in the SQLite file at ``path``, which is made, private to you, when a run begins in it.

    One that is there is made private too. A link stands for the file it leads to. Reading makes no file:
    where there is none, or an empty one, there are no runs.

    Usable from any thread, from processes forked from this one, and by several processes at once.
    A commit survives the end of the process at any point; a power failure may undo the last ones.

    Args:
        path: the file; its folder is made with it. It must be on a local disk.
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
        """Whether this thread asks for what can be done at once."""
        self._numbers: dict[str, int] = {}
        """Which run an id was, when it was read or begun from its first event here."""
        self._closed = False
        self._handle: _Handle | None = None
        """None as long as there is nothing to read, and nothing was written."""
        if self._nothing_there() is None:
            self._handle = self._opened()

    def __reduce__(self) -> Made:
        return made_once(type(self), str(self.path), timeout=self._timeout)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it, on this thread, ``append`` raises ``Busy`` where it would wait for another writer."""
        before, self._local.at_once = self._at_once, True
        try:
            yield
        finally:
            self._local.at_once = before

    @property
    def _at_once(self) -> bool:
        return getattr(self._local, "at_once", False)

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events after the first ``expected`` ones, in one transaction.

        Raises:
            Conflict: the journal has moved on, and the message says with what; nothing was added.
            StoreError: the file could not be written; nothing was added.
            ValueError: an event holds what is no JSON; nothing was added.
        """
        texts, before = [dump(event) for event in events], referred_by(run_id, events)
        self._patiently(lambda: self._append(run_id, texts, expected, before))

    def _append(self, run_id: str, texts: list[str], expected: int, before: set[str]) -> None:
        with self._made() as handle, _transaction(handle.connection) as connection:
            number = self._number(connection, run_id)
            there, seal = _end(connection, number, run_id)
            if there != expected:
                raise moved_on(run_id, expected, there, self._at(connection, number, expected))
            if expected and self._numbers.setdefault(run_id, number or 0) != number:
                raise begun_anew(run_id)
            if not texts:
                return
            self._check_there(connection, run_id, before)
            if number is None:
                number = _new_number(connection, run_id)
            _insert(connection, (number << _POSITIONS) + expected, sealed(seal, texts))
        self._numbers[run_id] = number
        self._carry_over(handle, sum(map(len, texts)) + 1024 * (len(texts) + 1))

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The events from number ``start`` on.

        Raises:
            UsageError: there is no such run.
            StoreError: the file cannot be read, or a newer nbagent has written these events.
        """
        first, rows = self._patiently(lambda: self._rows(run_id, start))
        return [
            self._parsed(run_id, key, first + i, data, version)
            for i, (key, data, version, _seal) in enumerate(rows)
        ]

    def _rows(self, run_id: str, start: int) -> tuple[int, list[tuple[int, Any, Any, Any]]]:
        with self._there() as handle:
            number = None if handle is None else self._number(handle.connection, run_id)
            if handle is None or number is None:
                nothing = None if handle is not None else self._nothing_there()
                why = f": {nothing}. Is the path right?" if nothing else ""
                raise UsageError(f"{self!r} has no run {run_id!r}{why}")
            if start == 0:
                self._numbers[run_id] = number
            first = number << _POSITIONS
            return first + start, handle.connection.execute(
                "select key, data, version, seal from events where key >= ? and key < ? order by key",
                (first + start, first + (1 << _POSITIONS)),
            ).fetchall()

    def run_ids(self) -> list[str]:
        """The runs it holds, oldest first."""
        return [run_id.decode(errors="replace") for (run_id,) in self._patiently(self._ids)]

    def _ids(self) -> list[tuple[bytes]]:
        with self._there() as handle:
            if handle is None:
                return []
            return handle.connection.execute("select id from runs order by number").fetchall()

    def heads(self, prefix: str = "") -> list[Head]:
        """Where each journal ends whose run's id begins so, oldest run first; a row's damage is no matter of the others."""
        return [
            Head(
                run_id.decode(errors="replace"),
                key - (number << _POSITIONS) + 1,
                last_of(data) if isinstance(data, bytes) else None,
            )
            for number, run_id, key, data in self._patiently(lambda: self._heads(prefix))
        ]

    def ends(self, prefix: str) -> list[End]:
        """The last event of each run whose id begins so, oldest run first."""
        return [
            End(
                run_id.decode(errors="replace"),
                key - (number << _POSITIONS) + 1,
                data.decode(errors="replace") if isinstance(data, bytes) else None,
            )
            for number, run_id, key, data in self._patiently(lambda: self._heads(prefix))
        ]

    def _heads(self, prefix: str) -> list[tuple[int, bytes, int, Any]]:
        with self._there() as handle:
            if handle is None:
                return []
            return handle.connection.execute(HEADS, (prefix,)).fetchall()

    def search(self, text: str) -> list[str]:
        """The runs in which an event's JSON has this text, oldest first."""
        found = self._patiently(lambda: self._search(text))
        return [run_id.decode(errors="replace") for (run_id,) in found]

    def _search(self, text: str) -> list[tuple[bytes]]:
        with self._there() as handle:
            return [] if handle is None else handle.connection.execute(SEARCH, (text,)).fetchall()

    def stamp(self) -> object:
        """A value that is equal as long as nobody writes to any journal, other processes included."""
        with self._there() as handle:
            if handle is None:
                return None
            return _pragma(handle.connection, "data_version"), handle.connection.total_changes

    def rows(self, run_id: str) -> list[Row]:
        """A whole journal as it is kept.

        Raises:
            UsageError: there is no such run.
            StoreError: the file cannot be read, or a row is no text.
        """
        _, rows = self._patiently(lambda: self._rows(run_id, 0))
        return [_row(version, data, seal) for _, data, version, seal in rows]

    def put(self, run_id: str, rows: Sequence[Row]) -> None:
        """Bring in a journal as it was kept elsewhere, seals included, in one transaction.

        Raises:
            Conflict: there is a run of this id; nothing was added.
            LostReference: a run that it refers to is not there; nothing was added.
            StoreError: the file could not be written; nothing was added.
        """
        before = referred_by_rows(run_id, rows)
        self._patiently(lambda: self._put(run_id, rows, before))

    def _put(self, run_id: str, rows: Sequence[Row], before: set[str]) -> None:
        with self._made() as handle, _transaction(handle.connection) as connection:
            if self._number(connection, run_id) is not None:
                raise Conflict(f"{self!r} already has a run {run_id!r}")
            self._check_there(connection, run_id, before)
            number = _new_number(connection, run_id)
            _insert(connection, number << _POSITIONS, rows)
        self._numbers[run_id] = number
        self._carry_over(handle, sum(len(row.data) for row in rows))

    def delete(self, *run_ids: str, known: Collection[str] | None = None) -> None:
        """Delete journals, all or none; their place in the file is used again, and overwritten at once.

        Raises:
            UsageError: one of them is not there.
            Conflict: there is a run that is not among the known ones.
            StoreError: the file could not be written.
        """
        self._patiently(lambda: self._delete(run_ids, known))

    def _delete(self, run_ids: Sequence[str], known: Collection[str] | None) -> None:
        with self._made() as handle, _transaction(handle.connection) as connection:
            there = connection.execute("select id from runs") if known is not None else ()
            check_known((run_id.decode(errors="replace") for (run_id,) in there), known)
            for run_id in run_ids:
                number = self._number(connection, run_id)
                if number is None:
                    raise UsageError(f"{self!r} has no run {run_id!r}")
                _delete_one(connection, number)
        with suppress(StoreError):  # somebody reads: what is left in the log goes with the next one
            self._patiently(self._empty_log)

    def _empty_log(self) -> None:
        """Carry the log over to the file, and make it empty: it has what was deleted."""
        with self._there() as handle:
            if handle is None:
                return
            busy, *_ = handle.connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            if busy:
                raise Busy("another process is reading or writing")
            handle.logged = 0

    def beat(self, process: str) -> None:
        """Count one more beat of this process."""
        self._patiently(lambda: self._beat(process))

    def _beat(self, process: str) -> None:
        with self._made() as handle, _transaction(handle.connection) as connection:
            mine = "update beats set count = count + 1 where process = ?"
            if connection.execute(mine, (process,)).rowcount:
                return
            connection.execute("insert into beats values (?, 1)", (process,))
            connection.execute(FORGET_BEATS, (BEATING,))

    def beats(self, process: str) -> int:
        """How many beats this process has left."""
        with self._there() as handle:
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
        """The file that it has open, or would open, by device and number; None where there is none."""
        handle = self._handle
        if handle is not None:
            return handle.file
        with suppress(OSError):
            found = self.path.stat()
            return found.st_dev, found.st_ino
        return None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, and takes nothing any more."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SQLiteStore({self._given!r})"

    # --- reading the tables

    def _number(self, connection: sqlite3.Connection, run_id: str) -> int | None:
        row = connection.execute("select number from runs where id = ?", (run_id,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], int):  # as only damage can make it
            raise self._damaged()
        return int(row[0])

    def _check_there(
        self, connection: sqlite3.Connection, run_id: str, before: Collection[str]
    ) -> None:
        """Refuse what refers to a run that is gone, within the transaction that writes it.

        Raises:
            LostReference: naming it.
        """
        for each in before:
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
        with suppress(StoreError):  # whoever reads the run is told
            return self._parsed("", 0, 0, *row)
        return None

    def _parsed(self, run_id: str, key: int, expected: int, data: Any, version: Any) -> StoredEvent:
        """The event in a row.

        Raises:
            StoreError: it is damaged, an earlier one is missing, or a newer nbagent has written it.
        """
        if key != expected:
            raise self._unreadable(run_id, expected, "the event before it is missing")
        if not isinstance(version, int) or version < 1 or not isinstance(data, bytes):
            why = f"it is not an event, but {data!r:.80} of version {version!r:.80}"
            raise self._unreadable(run_id, expected, why)
        try:
            return parse(data, version)
        except StoreError as error:
            raise self._unreadable(run_id, expected, str(error)) from error

    def _unreadable(self, run_id: str, key: int, why: str) -> StoreError:
        return StoreError(
            f"Event {key & ((1 << _POSITIONS) - 1)} of run {run_id!r} in the store at {str(self.path)!r} cannot be "
            f"read (other runs can): {why}"
        )

    # --- the connection

    def _patiently(self, act: Callable[[], T]) -> T:
        """Act, again while another process holds the file locked; others may act in between."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return act()
            except Busy:
                if self._at_once or time.monotonic() >= until:
                    raise
            time.sleep(PAUSE)

    @contextmanager
    def _there(self) -> Iterator[_Handle | None]:
        """This process's connection, to read; None where there is nothing to read."""
        if self._handle is None and not self._closed and self._nothing_there() is not None:
            yield None
            return
        with self._held() as handle:
            yield handle

    @contextmanager
    def _made(self) -> Iterator[_Handle]:
        """This process's connection, to write: to a file that is made if it is missing, and private."""
        with self._held() as handle:
            if not handle.is_private:
                _make_private(self.path)
                handle.is_private = True
            yield handle

    @contextmanager
    def _held(self) -> Iterator[_Handle]:
        """This process's connection, for this thread alone; a file that is missing is made."""
        handle = self._handle
        if self._closed:
            raise StoreError(f"{self!r} is closed")
        if handle is not None and handle.pid != os.getpid():
            _abandoned.append(handle)
            handle = None
        if handle is None:
            handle = self._handle = self._opened()
        with handle.lock:
            try:
                yield handle
            except _BROKEN as error:
                raise self._failure(error) from error

    def _damaged(self) -> StoreError:
        return StoreError(f"The store at {str(self.path)!r} cannot be used: {_DAMAGED}")

    def _failure(self, error: Exception) -> StoreError:
        known = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = known & 0xFF  # the rest tells kinds of one error
        reason = _REASONS.get(code)
        told = f"{reason} ({error})" if reason else str(error)
        kind = Busy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        return kind(f"The store at {str(self.path)!r} cannot be used: {told}")

    def _nothing_there(self) -> str | None:
        """Why there is nothing to read, in words; None where there is a file with something in it.

        Raises:
            StoreError: it is no file, or could not be made.
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
            f"The store at {str(self.path)!r} cannot be created or used: {error.strerror}. Give a path in a folder "
            "where you can write"
        )

    def _opened(self) -> _Handle:
        try:
            _make_file(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        found = self.path.stat()
        file = (found.st_dev, found.st_ino)
        with _opening:
            handle = _shared.get((*file, os.getpid()))
            if handle is None:
                handle = _shared[*file, os.getpid()] = self._connected(file)
        return handle

    def _connected(self, file: tuple[int, int]) -> _Handle:
        try:
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            self._set_up(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, _BROKEN):
                raise self._failure(error) from error
            raise
        handle = _Handle(connection, file, os.getpid(), _size_of_log(self.path))
        weakref.finalize(handle, _close, connection, os.getpid())
        return handle

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = bytes  # what is no text is told of with the run it is in
        connection.execute("pragma page_size = 1024")  # counts for a new file alone
        connection.execute("pragma cell_size_check = on")
        connection.execute("pragma trusted_schema = off")
        patiently(lambda: self._check_kind(connection), self._timeout)
        patiently(lambda: connection.execute("pragma journal_mode = wal"), self._timeout)
        connection.execute("pragma synchronous = normal")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute("pragma secure_delete = on")
        if _pragma(connection, "user_version") == 0:
            patiently(lambda: self._create(connection), self._timeout)
        if _pragma(connection, "user_version") < SCHEMA_VERSION:
            patiently(lambda: self._upgrade(connection), self._timeout)
        patiently(lambda: connection.execute(BEATS), self._timeout)

    def _check_kind(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "deferred"):  # another process may be making it
            version = _pragma(connection, "user_version")
            kind = _pragma(connection, "application_id")
            tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if kind != APPLICATION_ID and (kind or version or tables):
            raise StoreError(
                f"The file {str(self.path)!r} is the SQLite database of another program. Give the store a file of its own"
            )
        if kind and not version:
            raise self._damaged()
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"The store at {str(self.path)!r} was made by a newer nbagent: its version is {version}, and this nbagent "
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
        """Make an older file one of this version; its rows stay as they are."""
        with _transaction(connection):
            for version in range(_pragma(connection, "user_version"), SCHEMA_VERSION):
                for statement in UPGRADES[version]:
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {version + 1}")

    def _carry_over(self, handle: _Handle, written: int) -> None:
        """Now and then, move the log's pages to the file: it waits for the disk, so in a thread."""
        handle.logged += written
        if handle.logged < CHECKPOINT:
            return
        handle.logged = 0
        thread = threading.Thread(
            target=_checkpoint, args=(self.path,), name="nbagent-checkpoint", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system gives no thread, as in a web page
            _checkpoint(self.path)


_shared: weakref.WeakValueDictionary[tuple[int, int, int], _Handle] = weakref.WeakValueDictionary()
"""By file and process: the connection that is open."""
_opening = threading.Lock()
_abandoned: list[_Handle] = []
"""Connections of a parent process: closing one here would break the parent's."""


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if pid == os.getpid():
        connection.close()


def _check_folder(path: Path) -> None:
    """Refuse a path at which no file could be made.

    Raises:
        OSError: saying why.
    """
    folder = next(one for one in path.parents if one.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _make_file(path: Path) -> None:
    """Make the file, and folders that are missing, for their owner alone; what is there stays as it is.

    Raises:
        OSError: it cannot be made, or looked at.
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
    """Refuse what is no file, or what others may read and is not yours to change. Nothing is changed.

    It is not opened: closing it would drop SQLite's locks.

    Raises:
        OSError: it cannot be looked at.
        StoreError: saying why.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"The store at {str(path)!r} is not a file. Give a path of its own")
    if _is_open_to_others(status) and os.geteuid() not in (0, status.st_uid):
        raise StoreError(
            f"The store at {str(path)!r} may be readable by others and belongs to another user. Use a file of your own"
        )


def _is_open_to_others(status: os.stat_result) -> bool:
    return os.name != "nt" and bool(status.st_mode & 0o077)


def _make_private(path: Path) -> None:
    """Take the rights of others from a store's file, and from what SQLite keeps beside it."""
    changed = False
    for suffix in ("", "-wal", "-shm"):
        each = path.with_name(path.name + suffix)
        with suppress(OSError):  # it is not there, or is on a disk that keeps no rights
            status = each.lstat()
            if _is_open_to_others(status):
                each.chmod(status.st_mode & 0o700)
                changed = True
    if changed:
        logger.warning(
            "the store at %r was readable by others; it is now private to you", str(path)
        )


def _size_of_log(path: Path) -> int:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def _checkpoint(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("pragma wal_checkpoint(passive)")
    except sqlite3.Error:
        return  # the log stays as it is, complete, and is carried over the next time
    finally:
        connection.close()


@contextmanager
def _transaction(
    connection: sqlite3.Connection, kind: Literal["immediate", "deferred"] = "immediate"
) -> Iterator[sqlite3.Connection]:
    """All or nothing, and (``immediate``) no other process writes meanwhile, or one state is read."""
    connection.execute(f"begin {kind}")
    try:
        yield connection
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def patiently(act: Callable[[], T], timeout: float) -> T:
    """Act, again while the file is locked: SQLite itself does not wait where files are being made."""
    until = time.monotonic() + timeout
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"pragma {name}").fetchone()[0])


def _end(connection: sqlite3.Connection, number: int | None, run_id: str) -> tuple[int, str]:
    """How many events a run has, and what the next one is sealed to."""
    if number is None:
        return 0, run_id
    first = number << _POSITIONS
    row = connection.execute(
        "select key, seal from events where key >= ? and key < ? order by key desc limit 1",
        (first, first + (1 << _POSITIONS)),
    ).fetchone()
    if row is None:
        return 0, run_id
    there = int(row[0]) - first + 1
    if isinstance(row[1], bytes):
        return there, row[1].decode(errors="replace")
    rows = connection.execute(
        "select version, data, seal from events where key >= ? and key < ? order by key",
        (first, first + (1 << _POSITIONS)),
    )
    return there, last_seal(run_id, [_row(*row) for row in rows])


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


def _delete_one(connection: sqlite3.Connection, number: int) -> None:
    first = number << _POSITIONS
    connection.execute(
        "delete from events where key >= ? and key < ?", (first, first + (1 << _POSITIONS))
    )
    connection.execute("delete from runs where number = ?", (number,))
    connection.execute("delete from taken where number < ?", (number,))
    connection.execute(
        "insert into taken select ? where not exists (select * from taken)", (number,)
    )


def _row(version: Any, data: Any, seal: Any) -> Row:
    """A row as it stands in the file; what is no text there is broken wherever it is looked at."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else f"{data!r:.80}"
    kept = seal.decode(errors="replace") if isinstance(seal, bytes) else None
    return Row(version if isinstance(version, int) else 0, text, kept)
