"""DataFrames as tables of a DuckDB database that exists for one query, in a folder that only the user can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.tools.tables import Frame, cell, frame_of, is_missing, is_plan

from . import duck
from .arrow import arrow_column
from .reading import QueryError
from .table import MAX_CELL, Table

DIALECT = "DuckDB"
"""The SQL dialect of queries over frames."""
MAX_COLUMNS = 1_000


def table_of(value: Any) -> Frame | None:
    """The value as a table in memory; None for other values, such as a single column or a polars LazyFrame."""
    frame = frame_of(value)
    return None if frame is None or frame.is_column or is_plan(frame) else frame


def query(frames: Mapping[str, Frame], sql: str, *, rows: int, seconds: float) -> Table:
    """The result of one SELECT over the frames that it names.

    Raises:
        QueryError: the query is not allowed, fails, or exceeds a limit.
    """

    def used(names: set[str]) -> dict[str, tuple[Frame, list[str]]]:
        found = {name: each for name, each in frames.items() if name.lower() in names}
        _check(found)
        return {name: (frame, column_names(frame)) for name, frame in found.items()}

    return duck.query_frames(used, sql, rows=rows, seconds=seconds)


def _check(named: Mapping[str, Frame]) -> None:
    """Raise if a frame is too large for a query, or cannot be an SQL table."""
    for name, frame in named.items():
        if frame.width > MAX_COLUMNS:
            raise QueryError(f"{name} has {frame.width:,} columns. The limit is {MAX_COLUMNS:,}")
        if not frame.width:
            raise QueryError(f"{name} has no columns, so there is nothing to read")
    cells = sum(frame.height * frame.width for frame in named.values())
    if cells > duck.MAX_CELLS:
        raise QueryError(
            f"{' and '.join(named)} have {cells:,} values. The limit for a query is {duck.MAX_CELLS:,}. Use "
            "describe_data or head_data"
        )


def column_names(frame: Frame) -> list[str]:
    """The frame's unique column names for a query; an index with names or labels comes first."""
    names: list[str] = []
    seen: set[str] = set()
    for name in frame.names():
        plain = name.replace("\0", "") or "column"
        unique, number = plain, 2
        while unique.lower() in seen:
            unique, number = f"{plain}_{number}", number + 1
        seen.add(unique.lower())
        names.append(unique)
    return names


def head(frame: Frame, rows: int) -> Table:
    """The first rows of a frame."""
    first = [[_shown(each) for each in row] for row in frame.rows(rows, frame.width)]
    note = f"the first {rows:,} of {frame.height:,} rows" if frame.height > rows else ""
    return Table(column_names(frame), first, note)


def described(frame: Frame) -> Table:
    """A row for each column: type, count of values, count of distinct values, smallest and largest."""
    if frame.width > MAX_COLUMNS:
        raise UsageError(
            f"The table has {frame.width:,} columns. The limit for a description is {MAX_COLUMNS:,}"
        )
    rows = []
    named = zip(column_names(frame), frame.types(frame.width), strict=True)
    for at, (name, kind) in enumerate(named):
        filled, distinct, *ends = frame.facts(at)
        _, is_text = arrow_column(frame, at)
        shown = f"{kind} (text in SQL)" if is_text else kind
        rows.append([name, shown, filled, distinct, *map(_shown, ends)])
    columns = ["column", "type", "filled", "distinct", "smallest", "largest"]
    return Table(columns, rows, f"{frame.height:,} rows")


def _shown(value: Any) -> str | None:
    return None if is_missing(value) else cell(value, MAX_CELL)
