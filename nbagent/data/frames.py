"""DataFrames as tables of a DuckDB database that exists for one query, in a folder that only the user can read."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.base.table import is_missing
from nbagent.core.tools.tables import Frame, cell, frame_of, is_plan

from . import duck
from .arrow import arrow_column, arrow_table
from .reading import QueryError
from .table import MAX_CELL, Table
from .table import MAX_COLUMNS as SHOWN_COLUMNS
from .worker import quoted, shown

DIALECT = "DuckDB"
"""The SQL dialect of queries over frames."""
MAX_COLUMNS = 1_000


def table_of(value: Any) -> Frame | None:
    """The value as a table in memory; None for other values, such as a single column or a polars LazyFrame."""
    frame = frame_of(value)
    return None if frame is None or frame.is_column or is_plan(frame) else frame


def check_installed() -> None:
    """Raise if a library is missing that a query needs; only a query loads them.

    Raises:
        UsageError: it is. The message says how to install it.
    """
    if not all(map(importlib.util.find_spec, ("duckdb", "pyarrow"))):
        raise UsageError(
            'SQL over DataFrames needs DuckDB and pyarrow: pip install "jupyter-nbagent[duckdb]"'
        )


def query(frames: Mapping[str, Frame], sql: str, *, rows: int, seconds: float) -> Table:
    """The result of one SELECT over the frames that it names.

    Raises:
        QueryError: the query is not allowed, fails, or exceeds a limit.
    """
    with tempfile.TemporaryDirectory(prefix="nbagent-") as folder:

        def written(names: set[str]) -> str:
            named = {name: each for name, each in frames.items() if name.lower() in names}
            _check(named)
            path = str(Path(folder) / "frames.duckdb")
            with importlib.import_module("duckdb").connect(path) as database:
                for name, frame in named.items():
                    try:
                        table = arrow_table(frame, column_names(frame))
                        database.from_arrow(table).create(quoted(name))
                    except Exception as error:  # the table's own library may raise anything
                        raise QueryError(
                            f"{name} cannot be read by DuckDB: {error!s:.300}. Use describe_data or head_data"
                        ) from error
            return path

        return duck.ask_worker(sql, written, rows=rows, seconds=seconds)


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
    following: dict[str, int] = {}
    for name in frame.names():
        plain = name.replace("\0", "") or "column"
        unique, number = plain, following.get(plain.lower(), 2)
        while unique.lower() in seen:
            unique, number = f"{plain}_{number}", number + 1
        following[plain.lower()] = number
        seen.add(unique.lower())
        names.append(unique)
    return names


def head(frame: Frame, rows: int) -> Table:
    """The first rows of a frame."""
    first = [[_shown(each) for each in row] for row in frame.rows(rows, SHOWN_COLUMNS)]
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
    text = shown(value) if isinstance(value, str) else cell(value, MAX_CELL)
    return None if is_missing(value) else str(text)
