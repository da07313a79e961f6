"""SQLite databases of a person: read through a connection of our own, which cannot write.

A connection of the person's is asked once where its file is, and left alone from then on. One that
is in memory only is copied for each query.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.core.base.errors import UsageError

from .reading import QueryError, Source, read
from .table import Table


@dataclass(frozen=True)
class Open:
    """How a database is read: never through the person's own connection."""

    connect: Callable[[], sqlite3.Connection]
    """Opens it anew, for reading."""
    address: str | None = None
    """The URI of its file; None where it is in memory."""

    def source(self) -> Source:
        """The database as another process can open it."""
        if self.address is not None:
            return Source(self.address)
        return Source.of(self.connect())


_WAIT_S, _LOOK_S = 1.0, 0.05
"""How long a copy waits for a transaction that is open, and between two looks."""
_MAX_SCHEMA = 500
"""Tables and columns that are told."""
_TABLES = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
_COLUMNS = """SELECT m.name AS "table", c.name AS "column", c.type AS "type"
FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type IN ('table', 'view') ORDER BY m.name, c.cid"""


def opener(value: Any, name: str) -> Open | None:
    """How a database is opened for reading; None where the value is none.

    Raises:
        UsageError: it is a database, but nothing makes sure that it is only read.
    """
    if isinstance(value, sqlite3.Connection):
        return _of_connection(value, name)
    url = getattr(getattr(value, "engine", value), "url", None)
    if url is not None and hasattr(url, "get_backend_name"):
        return _of_engine(value, url, name)
    if hasattr(value, "cursor") and hasattr(value, "commit"):
        raise UsageError(_unknown(name, type(value).__module__.split(".")[0]))
    return None


def _of_engine(value: Any, url: Any, name: str) -> Open:
    if url.get_backend_name() != "sqlite":
        raise UsageError(_unknown(name, url.get_backend_name()))
    if url.database and url.database != ":memory:":
        return _of_file(url.database)
    raw = getattr(value, "engine", value).raw_connection()
    connection = getattr(raw, "driver_connection", None)
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(_unknown(name, "this driver of SQLite"))
    return _of_connection(connection, name)


def _unknown(name: str, what: str) -> str:
    return (
        f"{name} is a database of {what}, and nbagent has no way to make sure that it is only read: "
        "give a DataFrame of what is needed, a sqlite3 connection, or write a tool of your own"
    )


def _of_file(path: str) -> Open:
    address = f"{Path(path).absolute().as_uri()}?mode=ro"  # as SQLite reads it, with a drive, too
    return Open(
        lambda: sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None),
        address,
    )


def _of_connection(connection: sqlite3.Connection, name: str) -> Open:
    files = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
    if files and files[0]:
        return _of_file(files[0])
    if not _shared(connection):
        raise UsageError(
            f"{name} is in memory, and only the thread that opened it may use it: open it with "
            "sqlite3.connect(':memory:', check_same_thread=False)"
        )
    return Open(lambda: _copy(connection, name))


def _shared(connection: sqlite3.Connection) -> bool:
    """Whether other threads may use it; the connection itself does not say."""
    refused: list[Exception] = []

    def ask() -> None:
        try:
            connection.execute("SELECT 1").close()
        except sqlite3.ProgrammingError as error:
            refused.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return not refused


def _copy(connection: sqlite3.Connection, name: str) -> sqlite3.Connection:
    """The database as it is; ``backup`` alone waits without end for a transaction that is open.

    Raises:
        QueryError: it has changes that are not committed.
    """
    ends_at = time.monotonic() + _WAIT_S

    def look(status: int, _remaining: int, _total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > ends_at:
            raise QueryError(
                f"{name} has changes that are not committed yet, and cannot be read before they are: "
                f"call {name}.commit() in the notebook"
            )

    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        connection.backup(copy, progress=look, sleep=_LOOK_S)
    except BaseException:
        copy.close()
        raise
    return copy


def tables(open_: Open) -> list[str]:
    """The names of its tables and views."""
    connection = open_.connect()
    try:
        return [row[0] for row in connection.execute(_TABLES).fetchmany(_MAX_SCHEMA)]
    finally:
        connection.close()


def described(open_: Open) -> Table:
    """A row for each column of its tables."""
    connection = open_.connect()
    try:
        found = connection.execute(_COLUMNS).fetchmany(_MAX_SCHEMA + 1)
    except sqlite3.Error as error:
        raise QueryError(f"the database cannot be read: {error}") from error
    finally:
        connection.close()
    note = f"the first {_MAX_SCHEMA} columns; there are more" if len(found) > _MAX_SCHEMA else ""
    return Table(["table", "column", "type"], found[:_MAX_SCHEMA], note)


def query(open_: Open, sql: str, *, rows: int, seconds: float) -> Table:
    """What one statement gives that does nothing but read."""
    return read(open_.source(), sql, rows=rows, seconds=seconds)
