"""Tables of pandas, polars and Arrow: recognizing them, reading their rows, and their summary for a model.

These libraries are never imported to check a value: only a library that is already imported can have made the
value. The content of a table is not trusted: names and values are bounded, and invisible characters are escaped.
"""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from nbagent.core.base.amounts import counted
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError
from nbagent.core.base.table import is_missing

FEW = 5
"""Rows of a table in a prompt; a table with up to twice as many is shown whole."""
MANY = 60
"""Rows of a table that a tool returns: the number that pandas prints by default."""
MAX_SUMMARY = 8_000
"""Maximum characters of a summary."""
MAX_COLUMNS = 60
"""Maximum number of columns that a summary names."""
MAX_COUNTED = 20_000_000
"""Maximum number of values that are checked for missing ones; of a larger table, only the first rows are checked."""
MAX_NAME = 60
MAX_CELL = 80
"""Maximum characters of a value."""


class Facts(NamedTuple):
    """Facts about a column. A fact is None if the values are of several types, or have no order."""

    filled: int
    distinct: int | None
    smallest: Any
    largest: Any


class Frame:
    """A table of any of the libraries, read column by column, because names of columns can repeat.

    An index counts as columns, unless it is a plain row number.

    Args:
        value: the person's table.
        kind: the kind of the value, in words, such as ``table``.
        table: the value as a DataFrame or an Arrow table.
    """

    def __init__(self, value: Any, kind: str, table: Any) -> None:
        self.kind = (
            f"{kind} ({type(value).__module__.partition('.')[0]}.{type(value).__qualname__})"
        )
        self.is_column = kind == "column"
        self.table = table

    @property
    def height(self) -> int:
        """Number of rows."""
        return len(self.table)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self._names())

    @property
    def size(self) -> str:
        """The numbers of rows and columns, in words."""
        if self.is_column:
            return counted(self.height, "value")
        return f"{counted(self.height, 'row')} \u00d7 {counted(self.table.shape[1], 'column')}"

    def names(self) -> list[str]:
        """The names of all columns."""
        return ["_".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in self._names()]

    def types(self, most: int) -> list[str]:
        """The types of the first columns, in their library's words."""
        natives = (self._native(at) for at in range(min(most, self.width)))
        return [str(n.dtype if hasattr(n, "dtype") else n.type) for n in natives]  # type: Arrow's

    def column(self, at: int) -> Any:
        """One column as narwhals' ``Series``, which reads the columns of all libraries."""
        return import_module("narwhals").from_native(self._native(at), series_only=True)

    def missing(self, columns: int, rows: int) -> list[int]:
        """Number of missing values in each of the first columns, in the first rows."""
        return [int(each.head(rows).null_count()) for each in self._first(columns)]

    def rows(self, rows: int, columns: int) -> Iterator[Sequence[Any]]:
        """The first rows, with the first columns."""
        return zip(*(each.head(rows).to_list() for each in self._first(columns)), strict=True)

    def facts(self, at: int) -> Facts:
        """Facts about the values of one column."""
        filled = self.column(at).drop_nulls()
        try:
            return Facts(len(filled), int(filled.n_unique()), filled.min(), filled.max())
        except Exception:  # each library has errors of its own for values without an order
            return Facts(len(filled), None, None, None)

    def _first(self, most: int) -> Iterator[Any]:
        return map(self.column, range(min(most, self.width)))

    def _names(self) -> Any:
        return self.table.columns

    def _native(self, at: int) -> Any:
        """One column as its library has it."""
        return self.table.to_series(at)


class _Pandas(Frame):
    def _names(self) -> Sequence[Any]:
        return [*self._levels(), *self.table.columns]

    def _levels(self) -> list[Any]:
        """The names of the index's levels; none if it is a plain row number."""
        index = self.table.index
        if type(index).__name__ == "RangeIndex" and index.name is None:
            return []
        unnamed = ["index"] if index.nlevels == 1 else [f"level_{n}" for n in range(index.nlevels)]
        return [u if name is None else name for u, name in zip(unnamed, index.names, strict=True)]

    def _native(self, at: int) -> Any:
        levels = len(self._levels())
        if at < levels:
            return self.table.index.get_level_values(at).to_series()
        return self.table.iloc[:, at - levels]


class _Arrow(Frame):
    def _names(self) -> Any:
        return self.table.column_names

    def _native(self, at: int) -> Any:
        return self.table.column(at)


class _Plan(Frame):
    """A polars ``LazyFrame``, which is not computed yet: only its columns are known."""

    @property
    def height(self) -> int:
        return 0

    def types(self, most: int) -> list[str]:
        return [*map(str, self.table.collect_schema().values())][:most]

    def _names(self) -> Any:
        return self.table.collect_schema().names()


def is_of(value: Any, module: str, name: str) -> bool:
    """Whether a value is of this class, if the class's module is imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def frame_of(value: Any) -> Frame | None:
    """The frame of a table, or of a single column; None for any other value."""
    if isinstance(value, type):
        return None
    root = type(value).__module__.partition(".")[0]
    return {"polars": _of_polars, "pyarrow": _of_arrow}.get(root, _of_pandas)(value)


def _of_polars(value: Any) -> Frame | None:
    polars = sys.modules["polars"]
    if isinstance(value, polars.DataFrame):
        return Frame(value, "table", value)
    if isinstance(value, polars.Series):
        return Frame(value, "column", value.to_frame())
    is_plan = isinstance(value, polars.LazyFrame)
    return _Plan(value, "table that is not computed yet", value) if is_plan else None


def _of_arrow(value: Any) -> Frame | None:
    arrow = sys.modules["pyarrow"]
    if isinstance(value, arrow.Table | arrow.RecordBatch):
        is_batch = isinstance(value, arrow.RecordBatch)
        return _Arrow(value, "table", arrow.Table.from_batches([value]) if is_batch else value)
    is_column = isinstance(value, arrow.ChunkedArray | arrow.Array)
    return _Arrow(value, "column", arrow.table({"value": value})) if is_column else None


def _of_pandas(value: Any) -> Frame | None:
    """The frame of a pandas value, or of a value that works like a pandas table."""
    if is_of(value, "pandas", "Series"):
        return _Pandas(value, "column", value.to_frame())
    names = ("columns", "itertuples", "dtypes", "iloc", "index")
    is_table = all(hasattr(type(value), name) for name in names)  # evaluates no property
    return _Pandas(value, "table", value) if is_table else None


def is_plan(frame: Frame) -> bool:
    """Whether a frame is a query that is not computed yet."""
    return isinstance(frame, _Plan)


def table_summary(value: Any, rows: int = FEW) -> str | None:
    """The summary of a table: shape, types, missing values, first rows. None if ``value`` is not a table."""
    frame = frame_of(value)
    return None if frame is None else summary(frame, rows)


def summary(frame: Frame, rows: int = FEW) -> str:
    """The description of a table for a model: its shape in the first line, then its columns and first rows."""
    columns = [
        (_line(name[: 2 * MAX_NAME], MAX_NAME), _line(kind[: 2 * MAX_NAME], MAX_NAME))
        for name, kind in zip(frame.names(), frame.types(MAX_COLUMNS), strict=False)
    ]
    height, width = frame.height, frame.width
    if is_plan(frame):
        lines = [
            f"{frame.kind} of {counted(width, 'column')}",
            *_described(columns, width, None, ""),
        ]
        return _bounded([*lines, "Its rows are unknown until .collect() computes them"])
    rows = rows if height > 2 * rows else height
    looked = min(height, MAX_COUNTED // max(1, len(columns)))
    where = "" if looked == height else f" in the first {looked:,} rows"
    lines = [f"{frame.kind} of {frame.size}"]
    lines += _described(columns, width, frame.missing(len(columns), looked), where)
    shown = ["\t".join(cell(value) for value in row) for row in frame.rows(rows, len(columns))]
    names = "\t".join(name for name, _ in columns)
    rows_heading = f"First {len(shown)} of {height:,} rows:" if height > rows else "All its rows:"
    return _bounded([*lines, rows_heading, names, *shown] if shown else [*lines, "It has no rows"])


def _described(
    columns: Sequence[tuple[str, str]], width: int, missing: Sequence[int] | None, where: str
) -> list[str]:
    counts = [0] * len(columns) if missing is None else missing
    column_lines = [
        f"  {name}: {kind}" + (f", {count:,} missing{where}" if count else "")
        for (name, kind), count in zip(columns, counts, strict=True)
    ]
    more = [f"  … {counted(width - len(columns), 'more column')}"] if width > len(columns) else []
    none_missing = missing is not None and not any(counts) and bool(columns)
    head = f"Columns (no value is missing{where}):" if none_missing else "Columns:"
    return [head, *column_lines, *more]


def _bounded(lines: Sequence[str]) -> str:
    """The lines that fit into ``MAX_SUMMARY``, with a note of how many lines do not."""
    kept: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > MAX_SUMMARY:
            return "\n".join(
                [*kept, f"… {len(lines) - number} more lines, which are too long to show"]
            )
        kept.append(line)
    return "\n".join(kept)


def cell(value: Any, most: int = MAX_CELL) -> str:
    """A value in one bounded line; empty for a missing value."""
    if is_missing(value):
        return ""
    if isinstance(value, str):
        text = value[: 2 * most]
        # quoted, to show that a text is empty, or has other space than single ones between words
        if not value or value[-1].isspace() or text.rstrip() != escaped(" ".join(text.split())):
            kept = value if len(value) <= most else f"{value[: most - 1]}…"
            return escaped(json.dumps(kept, ensure_ascii=False))
    elif isinstance(value, bytes | bytearray | memoryview):
        return counted(len(value), "byte")
    elif isinstance(value, list | tuple | dict | set | frozenset):
        text = _SHORT.repr(value)
    elif is_of(value, "numpy", "ndarray"):  # whose str() rounds numbers
        made = import_module("numpy").array2string
        text = made(value, floatmode="unique", threshold=_SHORT.maxlist)
    else:
        try:
            text = str(value)[: 2 * most]
        except ValueError:  # an integer with more digits than Python writes
            text = f"a {type(value).__name__} without text"
    return _line(text, most)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, MAX_CELL, MAX_CELL


def _line(text: str, most: int) -> str:
    line = " ".join(escaped(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def as_csv(value: Any) -> bytes | None:
    """All rows of a table as CSV, after a line of names; None if ``value`` is not a table.

    Raises:
        UsageError: the table is too large, is not computed yet, or has values that CSV cannot represent.
    """
    frame = frame_of(value)
    if frame is None:
        return None
    if is_plan(frame):
        raise UsageError("A LazyFrame has no rows until it is computed. Call its .collect()")
    if frame.height * frame.width > MAX_VALUES:
        raise UsageError(
            f"A table of {frame.height:,} \u00d7 {frame.width:,} values is too large to send as CSV. Send a part of it, "
            "such as its first 100 rows, or set the agent's tools=nb.notebook_tools(df), so that the model can query "
            "it"
        )
    if isinstance(frame, _Pandas):
        return str(value.to_csv()).encode()
    try:
        if not isinstance(frame, _Arrow):
            return str(frame.table.write_csv()).encode()
        sink = import_module("pyarrow").BufferOutputStream()
        import_module("pyarrow.csv").write_csv(frame.table, sink)
        return bytes(sink.getvalue())
    except Exception as error:  # raised by the library, such as for nested columns
        raise UsageError(f"The table cannot be written as CSV: {error!s:.200}") from error


MAX_VALUES = 1_000_000
"""Maximum number of values of a table that is sent as CSV."""
