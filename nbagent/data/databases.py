"""The user's databases. A SQLite file is read through a separate connection, which cannot write.

The user's own connection is used once, to find the file; or, for a database in memory, to copy the database
for each query.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nbagent.core.base.errors import UsageError

from . import duck, servers
from .reading import QueryError, run_worker
from .table import MAX_SCHEMA, Table, columns_table
from .worker import quoted

_WAIT_S, _LOOK_S = 1.0, 0.05
"""Seconds that a copy waits for an open transaction, and seconds between two checks."""
_TABLES = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
_COLUMNS = "SELECT ?1, name, type FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid"


def database_of(value: Any, name: str, *, reads_only: bool) -> Database | None:
    """A connection or SQLAlchemy engine as a database that is only read; None if the value is neither.

    With ``reads_only``, the person confirms that the engine's user may only read.

    Raises:
        UsageError: the value is a database, but nothing guarantees that it is only read.
    """
    if isinstance(value, sqlite3.Connection):
        return _of_connection(value, name)
    duckdb = sys.modules.get("duckdb")
    if duckdb is not None and isinstance(value, duckdb.DuckDBPyConnection):
        return duck.Duck(value, name)
    if hasattr(value, "sync_engine"):
        raise UsageError(
            f"{name} is an async SQLAlchemy engine. Pass an engine from sqlalchemy.create_engine(…)"
        )
    engine = getattr(value, "engine", value)
    url = getattr(engine, "url", None)
    if url is not None and hasattr(url, "get_backend_name"):
        return _of_engine(engine, url, name, reads_only=reads_only)
    if hasattr(value, "cursor") and hasattr(value, "commit"):
        raise UsageError(_unknown(name, type(value).__module__.split(".")[0]))
    return None


def _of_engine(engine: Any, url: Any, name: str, *, reads_only: bool) -> Database:
    backend = url.get_backend_name()
    if backend == "postgresql":
        return servers.Postgres(engine, name)
    if backend != "sqlite":
        if not reads_only:
            raise UsageError(_unknown(name, backend))
        return servers.Server(engine, name)
    if url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        return _of_file(url.database)
    raw = engine.raw_connection()
    connection = getattr(raw, "driver_connection", None)
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(_unknown(name, "this driver of SQLite"))
    return _of_connection(connection, name)


def _unknown(name: str, backend: str) -> str:
    return (
        f"nbagent cannot guarantee that {name} (a database of {backend}) is only read. Pass a SQLAlchemy engine "
        "whose user can only read, and confirm this with nb.notebook_tools(engine, reads_only=True). PostgreSQL, "
        "SQLite and DuckDB do not need this"
    )


def _of_file(path: str) -> Sqlite:
    address = f"{Path(path).absolute().as_uri()}?mode=ro"  # SQLite's form, also with a drive
    return Sqlite(
        lambda: sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None),
        address,
    )


def _of_connection(connection: sqlite3.Connection, name: str) -> Sqlite:
    files = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
    if files and files[0]:
        return _of_file(files[0])
    if not _shared(connection):
        raise UsageError(
            f"{name} is in memory, and only the thread that opened it can use it. Open it with "
            "sqlite3.connect(':memory:', check_same_thread=False)"
        )
    return Sqlite(lambda: _copy(connection, name))


def _shared(connection: sqlite3.Connection) -> bool:
    """Whether other threads may use the connection, which has no attribute for that."""
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
    """A copy of the database; ``backup`` alone would wait forever for an open transaction.

    Raises:
        QueryError: the database has changes that are not committed.
    """
    ends_at = time.monotonic() + _WAIT_S

    def look(status: int, _remaining: int, _total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > ends_at:
            raise QueryError(
                f"{name} has uncommitted changes, and cannot be read before they are committed. Call {name}.commit() in "
                "the notebook"
            )

    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        connection.backup(copy, progress=look, sleep=_LOOK_S)
    except BaseException:
        copy.close()
        raise
    return copy


@dataclass(frozen=True)
class Sqlite:
    """A SQLite database; it is never read through the user's own connection."""

    connect: Callable[[], sqlite3.Connection]
    """A function that opens another connection for reading."""
    address: str | None = None
    """The URI of the database's file; None if the database is in memory."""
    dialect: str = "SQLite"

    def tables(self) -> list[str]:
        """The names of the database's tables and views."""
        with self._opened() as connection:
            return [row[0] for row in connection.execute(_TABLES).fetchmany(MAX_SCHEMA)]

    def described(self) -> Table:
        """A row for each column of the database's tables."""
        rows: list[Any] = []
        with self._opened() as connection:
            for name in self.tables():
                with suppress(sqlite3.OperationalError):  # a view whose table is gone
                    rows += connection.execute(_COLUMNS, [name]).fetchmany(MAX_SCHEMA + 1)
        return columns_table(rows)

    def head(self, table: str, *, rows: int, seconds: float) -> Table:
        """The first rows of a table."""
        return self.query(f"SELECT * FROM {quoted(table)}", rows=rows, seconds=seconds)

    def query(self, sql: str, *, rows: int, seconds: float) -> Table:
        """The result of one statement that only reads."""
        image = b""
        if self.address is None:
            with self._opened() as copy:
                (pages,) = copy.execute("PRAGMA page_count").fetchone()
                image = copy.serialize() if pages else b""  # an empty database cannot be serialized
        asked = {"address": self.address, "sql": sql, "rows": rows, "seconds": seconds}
        return run_worker(asked, image)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Another connection for reading; its errors are those of a query."""
        try:
            with closing(self.connect()) as connection:
                yield connection
        except sqlite3.Error as error:
            raise QueryError(f"The database cannot be read: {error}") from error


Database: TypeAlias = Sqlite | duck.Duck | servers.Server
"""A database that is only read."""
