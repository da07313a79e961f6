"""DataFrames as the tables of a database in memory, made for one query and gone after it."""

from __future__ import annotations

import datetime as dt
import math
import numbers
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbagent.core.base.errors import UsageError

from .reading import QueryError, Source
from .table import Table

MAX_CELLS = 3_000_000
"""Values of the frames that one query reads."""
MAX_COLUMNS = 1_000
MAX_TEXT = 100_000
"""Characters of a value that is kept as text."""
_INT = 2**63


def is_frame(value: Any) -> bool:
    """Whether it is a table in memory: a pandas DataFrame, or what is used like one."""
    is_table = all(hasattr(value, name) for name in ("columns", "itertuples", "dtypes", "head"))
    return is_table and not isinstance(value, type)


def database(frames: Mapping[str, Any], sql: str) -> Source:
    """A database with the frames that the query names.

    Raises:
        QueryError: they are too large.
    """
    named = {name: each for name, each in frames.items() if name.lower() in sql.lower()}
    for name, frame in named.items():
        if len(frame.columns) > MAX_COLUMNS:
            raise QueryError(
                f"{name} has {len(frame.columns):,} columns: {MAX_COLUMNS:,} can be read"
            )
        if not column_names(frame):
            raise QueryError(f"{name} has no columns: there is nothing to read in it")
    cells = sum(len(frame) * len(frame.columns) for frame in named.values())
    if cells > MAX_CELLS:
        raise QueryError(
            f"{' and '.join(named)} have {cells:,} values: a query can read {MAX_CELLS:,}; use describe_data or head_data"
        )
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        for name, frame in named.items():
            _fill(connection, name, frame)
    except BaseException:
        connection.close()
        raise
    return Source.of(connection)


def _fill(connection: sqlite3.Connection, name: str, frame: Any) -> None:
    indexed = _has_index(frame)
    columns = column_names(frame)
    names = ", ".join(map(_quoted, columns))
    connection.execute(f"CREATE TABLE {_quoted(name)} ({names})")
    marks = ", ".join("?" * len(columns))
    rows = ([_value(each) for each in row] for row in frame.itertuples(index=indexed, name=None))
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", rows)
    connection.execute("COMMIT")


def column_names(frame: Any) -> list[str]:
    """The columns as a query names them: text, each once; a named or unusual index comes first."""
    index = [str(frame.index.name or "index")] if _has_index(frame) else []
    return list(_told_apart([*index, *map(_name, frame.columns)]))


def head(frame: Any, rows: int) -> Table:
    """The first rows."""
    indexed = _has_index(frame)
    first = frame.head(rows).itertuples(index=indexed, name=None)
    note = f"the first {rows:,} of {len(frame):,} rows" if len(frame) > rows else ""
    return Table(column_names(frame), [[_value(each) for each in row] for row in first], note)


def described(frame: Any) -> Table:
    """A row for each column: its type, how many values are there, how many differ, the smallest and largest."""
    if len(frame.columns) > MAX_COLUMNS:
        raise UsageError(f"it has {len(frame.columns):,} columns: {MAX_COLUMNS:,} can be described")
    names = column_names(frame)[int(_has_index(frame)) :]
    rows = [_told(name, frame.iloc[:, at]) for at, name in enumerate(names)]
    columns = ["column", "type", "filled", "distinct", "smallest", "largest"]
    return Table(columns, rows, f"{len(frame):,} rows")


def _told(name: str, column: Any) -> list[Any]:
    filled = column.dropna()
    try:
        distinct: Any = int(filled.nunique())
        ends = [_value(filled.min()), _value(filled.max())] if len(filled) else [None, None]
    except (TypeError, ValueError):  # values of several types, or that have no order
        distinct, ends = None, [None, None]
    return [name, str(column.dtype), len(filled), distinct, *ends]


def _has_index(frame: Any) -> bool:
    """Whether the index says something: a count of the rows does not, and several levels are left out."""
    index = frame.index
    return getattr(index, "nlevels", 1) == 1 and not (
        type(index).__name__ == "RangeIndex" and index.name is None
    )


def _name(column: Any) -> str:
    return "_".join(map(str, column)) if isinstance(column, tuple) else str(column)


def _told_apart(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        plain = name.replace("\0", "") or "column"
        unique, number = plain, 2
        while unique.lower() in seen:
            unique, number = f"{plain}_{number}", number + 1
        seen.add(unique.lower())
        yield unique


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    """A value as SQLite keeps it: a number, bytes, text, or nothing."""
    value = value.item() if hasattr(value, "item") else value  # numpy's own numbers and times
    if value is None or isinstance(value, str):
        return value if value is None else _text(value)
    if isinstance(value, bool | numbers.Integral):
        return int(value) if -_INT <= int(value) < _INT else str(int(value))
    if isinstance(value, numbers.Real):
        return None if math.isnan(float(value)) else float(value)
    if isinstance(value, bytes):
        return value
    if value != value:  # noqa: PLR0124 - what is missing differs from itself, such as NaT
        return None
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    text = _text(str(value))
    return None if text in ("NaT", "<NA>") else text


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()[:MAX_TEXT]
