"""DataFrames as tables of a database that exists for one query.

If DuckDB is installed, the tables are Parquet files in a folder that only the user can read. Otherwise they are
tables of a SQLite database in memory.
"""

from __future__ import annotations

import datetime as dt
import numbers
import sqlite3
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.base.table import is_missing
from nbagent.core.tools.tables import Frame, frame_of, is_plan

from . import duck
from .reading import QueryError, Source, run_query
from .table import Table

MAX_CELLS = 3_000_000
"""The maximum number of values that one SQLite query reads."""
MAX_COLUMNS = 1_000
MAX_TEXT = 100_000
"""Characters of a value that is stored as text."""
_INT = 2**63


def table_of(value: Any) -> Frame | None:
    """The value as a table in memory; None for other values, such as a single column or a polars LazyFrame."""
    frame = frame_of(value)
    return None if frame is None or frame.is_column or is_plan(frame) else frame


def dialect() -> str:
    """The SQL dialect of queries over frames."""
    return "DuckDB" if duck.is_there() else "SQLite"


def query(frames: Mapping[str, Frame], sql: str, *, rows: int, seconds: float) -> Table:
    """The result of one SELECT over the frames that it names.

    Raises:
        QueryError: the query is not allowed, fails, or exceeds a limit.
    """
    if duck.is_there():

        def used(names: set[str]) -> dict[str, tuple[Frame, list[str]]]:
            found = {name: each for name, each in frames.items() if name.lower() in names}
            _check(found, duck.MAX_CELLS)
            return {name: (frame, column_names(frame)) for name, frame in found.items()}

        return duck.query_frames(used, sql, rows=rows, seconds=seconds)
    return run_query(database(frames, sql), sql, rows=rows, seconds=seconds)


def database(frames: Mapping[str, Frame], sql: str) -> Source:
    """A SQLite database with the frames that the query names.

    Raises:
        QueryError: the frames are too large, or a frame has no columns.
    """
    named = {name: each for name, each in frames.items() if name.lower() in sql.lower()}
    _check(named, MAX_CELLS)
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        for name, frame in named.items():
            _fill(connection, name, frame)
    except BaseException:
        connection.close()
        raise
    return Source.of(connection)


def _check(named: Mapping[str, Frame], most: int) -> None:
    """Raise if a frame is too large for a query, or cannot be an SQL table."""
    for name, frame in named.items():
        if frame.width > MAX_COLUMNS:
            raise QueryError(f"{name} has {frame.width:,} columns. The limit is {MAX_COLUMNS:,}")
        if not frame.width:
            raise QueryError(f"{name} has no columns, so there is nothing to read")
    cells = sum(frame.height * frame.width for frame in named.values())
    if cells > most:
        raise QueryError(
            f"{' and '.join(named)} have {cells:,} values. The limit for a query is {most:,}. Use describe_data or "
            "head_data"
        )


def _fill(connection: sqlite3.Connection, name: str, frame: Frame) -> None:
    columns = column_names(frame)
    names = ", ".join(map(_quoted, columns))
    connection.execute(f"CREATE TABLE {_quoted(name)} ({names})")
    marks = ", ".join("?" * len(columns))
    rows = ([_value(each) for each in row] for row in frame.rows())
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", rows)
    connection.execute("COMMIT")


def column_names(frame: Frame) -> list[str]:
    """The frame's unique column names for a query; an index with names or labels comes first."""
    names: list[str] = []
    seen: set[str] = set()
    for column in frame.columns(frame.width):
        plain = column.name.replace("\0", "") or "column"
        unique, number = plain, 2
        while unique.lower() in seen:
            unique, number = f"{plain}_{number}", number + 1
        seen.add(unique.lower())
        names.append(unique)
    return names


def head(frame: Frame, rows: int) -> Table:
    """The first rows of a frame."""
    first = [[_value(each) for each in row] for row in frame.rows(rows)]
    note = f"the first {rows:,} of {frame.height:,} rows" if frame.height > rows else ""
    return Table(column_names(frame), first, note)


def described(frame: Frame) -> Table:
    """A row for each column: type, count of values, count of distinct values, smallest and largest."""
    if frame.width > MAX_COLUMNS:
        raise UsageError(
            f"The table has {frame.width:,} columns. The limit for a description is {MAX_COLUMNS:,}"
        )
    kinds = (column.type for column in frame.columns(frame.width))
    rows = []
    for at, (name, kind) in enumerate(zip(column_names(frame), kinds, strict=True)):
        filled, distinct, *ends = frame.facts(at)
        rows.append([name, kind, filled, distinct, *map(_value, ends)])
    columns = ["column", "type", "filled", "distinct", "smallest", "largest"]
    return Table(columns, rows, f"{frame.height:,} rows")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    """A value in SQLite's types: a number (of a timedelta: its seconds), bytes, text, or None."""
    value = value.item() if hasattr(value, "item") else value  # converts numpy's numbers and times
    if isinstance(value, Decimal):  # SQLite would compare its text, not its value
        value = float(value)
    elif isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if is_missing(value):
        return None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | numbers.Integral):
        return int(value) if -_INT <= int(value) < _INT else str(int(value))
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return _text(str(value))


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()[:MAX_TEXT]
