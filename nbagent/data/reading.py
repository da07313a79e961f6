"""SQL that can only read: SQLite says what a statement would do before it does it.

An authorizer allows reading, and calling functions; all else is refused by SQLite itself while it
prepares the statement, whatever the text looks like. So no words are searched for in it.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from concurrent.futures import Future, wait
from typing import Any

from nbagent.core.base.errors import UsageError

from .table import Table

MAX_VALUE = 1_000_000
"""Bytes of one value, on its way too."""
MAX_READ = 50_000_000
"""Characters and bytes of all values that are given."""
GRACE = 0.5
"""Seconds after its time in which a query still ends by itself."""
MOST_LEFT = 2
"""Queries that were given up and have not ended; with so many no other begins."""
_left: list[threading.Thread] = []
"""Their threads."""
_STEPS = 500
"""Steps of SQLite's machine between two looks at the clock."""
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer"})
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}
_MISSING = re.compile(r"no such (?P<kind>table|column): (?:[^ .]*\.)?(?P<name>.+)")
_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
    }
)


class QueryError(UsageError):
    """A query that was refused, failed, or took too long; it changed nothing."""


class MissingName(QueryError):
    """A query that names a table or a column that is not there.

    Args:
        message: what SQLite says.
        kind: which of the two.
        name: as the query has it, without the table in front.
    """

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


def read(connection: sqlite3.Connection, sql: str, *, rows: int, seconds: float) -> Table:
    """What one statement gives that does nothing but read.

    SQLite looks at the clock between its steps, and one function over long texts is one step. What is not done in
    time is given up: it ends by itself in its thread, and a few such are left to themselves at most.

    Args:
        connection: one of our own, which nobody else uses; it is closed once that is done.
        sql: of others.
        rows: how many are given at most.
        seconds: how long it may take.

    Raises:
        QueryError: it would do more than read, is no SQL, took longer, or others are left that have not ended.
    """
    _left[:] = [thread for thread in _left if thread.is_alive()]
    if len(_left) >= MOST_LEFT:
        connection.close()
        raise QueryError(
            f"{MOST_LEFT} queries before still run, in functions that cannot be stopped: try again in a minute"
        )
    found: Future[Table] = Future()

    def work() -> None:
        try:
            result = _read(connection, sql, rows, seconds)
        except BaseException as error:
            found.set_exception(error)
        else:
            found.set_result(result)
        finally:
            connection.close()

    thread = threading.Thread(target=work, name="nbagent-query", daemon=True)
    thread.start()
    if not wait((found,), seconds + GRACE).done:
        _left.append(thread)
        raise QueryError(
            f"the query took longer than {seconds:g} seconds, in a function that cannot be stopped (such as instr, "
            "replace or trim over long texts): it was given up; search with LIKE, or ask for less"
        )
    return found.result()


def _read(connection: sqlite3.Connection, sql: str, rows: int, seconds: float) -> Table:
    guard(connection)
    ends_at = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)
    try:
        return _fetched(connection, sql, rows)
    except sqlite3.DatabaseError as error:
        raise _why(error, seconds) from error
    except (sqlite3.Warning, sqlite3.Error, ValueError, OverflowError) as error:
        raise QueryError(f"the query failed: {error}") from error


def guard(connection: sqlite3.Connection) -> None:
    """Refuse everything but reading, from now on."""
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.set_authorizer(_allowed)


def _allowed(action: int, _first: str | None, second: str | None, *_: Any) -> int:
    if action in _READS:
        return sqlite3.SQLITE_OK
    is_function = action == sqlite3.SQLITE_FUNCTION
    if is_function and (second or "").lower() not in _FORBIDDEN:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _fetched(connection: sqlite3.Connection, sql: str, rows: int) -> Table:
    cursor = connection.execute(sql)
    columns = [name for name, *_ in cursor.description or ()]
    if not columns:
        raise QueryError("the query gives no rows: write one SELECT")
    found: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(found) == rows or size > MAX_READ:
            return Table(columns, found, f"the first {len(found):,} rows; there are more")
        found.append(row)
    return Table(columns, found)


def _why(error: sqlite3.DatabaseError, seconds: float) -> QueryError:
    text = str(error)
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return QueryError(f"only reading is allowed here, and this is more: {text}")
    if "interrupted" in text:
        return QueryError(
            f"the query took longer than {seconds:g} seconds and was stopped: ask for less"
        )
    if "too big" in text:
        return QueryError(
            f"a value has more than {MAX_VALUE:,} bytes: leave its column out, or ask for length(column)"
        )
    missing = _MISSING.match(text)
    if missing is not None:
        return MissingName(f"the query failed: {text}", missing["kind"], missing["name"])
    return QueryError(f"the query failed: {text}")
