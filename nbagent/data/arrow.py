"""Columns of any library as Arrow columns that DuckDB reads exactly; a value without such a type becomes text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any

from nbagent.core.base.table import is_missing
from nbagent.core.tools.tables import Frame

_UNFIT = (TypeError, ValueError, OverflowError, NotImplementedError)
"""What Arrow raises for values that it has no type for; its own errors are subclasses of these."""
_UNREAD = re.compile(
    r"halffloat|decimal256|extension<(?!arrow\.uuid>)|union<|run_end|month_day|\[ns|struct<>"
)
"""In an Arrow type: what DuckDB cannot read, or returns as another value."""
_SIMPLE = {str, bytes, bool, int, float, Decimal}
_NUMBERS = "?bBhHiIlLqQfd"
"""The characters of numpy's types of numbers that Arrow has."""


def arrow_table(frame: Frame, names: Sequence[str]) -> Any:
    """The table as an Arrow table with these column names."""
    columns = [arrow_column(frame, at)[0] for at in range(frame.width)]
    return import_module("pyarrow").Table.from_arrays(columns, list(names))


def arrow_column(frame: Frame, at: int) -> tuple[Any, bool]:
    """A column as an Arrow array, and whether its values became text."""
    arrow, column = import_module("pyarrow"), frame.column(at)
    typed = None
    try:
        typed = column.to_arrow() if _is_of_one_type(column) else None
        if typed is not None:
            return _readable(arrow, typed), False
    except _UNFIT:  # a sparse column, half-floats, categories that are intervals
        times = None if typed is None else _times_as_text(arrow, typed)
        if times is not None:
            return times, True
    values = [None if is_missing(each) else _plain(each) for each in column.to_list()]
    for kind in (None, arrow.decimal128(38, 0)):  # the second for integers beyond 64 bits
        try:
            made = _readable(arrow, arrow.array(values, kind, from_pandas=True))
            if all(map(_is_same, values, made.to_pylist())):
                return made, False
        except _UNFIT:
            continue
    return arrow.array([None if each is None else _text(each) for each in values]), True


def _is_of_one_type(column: Any) -> bool:
    """Whether Arrow can convert the column as a whole; among objects it would merge ``b"a"`` and ``"a"``."""
    kind = str(getattr(column.to_native(), "dtype", ""))
    if kind == "object":  # of pandas; that of polars is an address in memory for Arrow
        kinds = {getattr(each, "dtype", type(each)) for each in column.drop_nulls().to_list()}
        return len(kinds) == 1 and all(
            kind in _SIMPLE or getattr(kind, "char", "O") in _NUMBERS for kind in kinds
        )
    return kind != "Object"


def _readable(arrow: Any, array: Any) -> Any:
    """The array in a type of DuckDB, whose Python interface returns times in microseconds."""
    kind, types = array.type, arrow.types
    if types.is_timestamp(kind):
        array = array.cast(arrow.timestamp("us", kind.tz))
    elif types.is_duration(kind):
        array = array.cast(arrow.duration("us"))
    elif types.is_time64(kind):
        array = array.cast(arrow.time64("us"))
    if _UNREAD.search(str(array.type)):
        raise TypeError(f"DuckDB does not read {kind}")
    return array


def _times_as_text(arrow: Any, array: Any) -> Any:
    """Times that are finer than microseconds, as text; None for other values."""
    if getattr(array.type, "unit", "") != "ns":
        return None
    if not arrow.types.is_duration(array.type):
        return array.cast(arrow.string())
    counts = array.cast(arrow.int64()).to_pylist()
    return arrow.array([None if n is None else f"{n} ns" for n in counts])


def _plain(value: Any) -> Any:
    """A value with lists in place of arrays and tuples, and numbers in place of numpy's."""
    kind = getattr(getattr(value, "dtype", None), "char", "")
    if kind and kind not in "mMgG":  # of times, numpy makes integers
        return _plain(value.tolist())
    if type(value) in (list, tuple) or (kind and value.ndim):  # a named tuple stays what it is
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _is_same(value: Any, read: Any) -> bool:
    """Whether Arrow has this value; a record can lack fields that another one has."""
    if value == read:
        return True
    if isinstance(value, dict) and isinstance(read, dict):
        return all(_is_same(each, read.get(name)) for name, each in value.items())
    if isinstance(value, list) and isinstance(read, list):
        return len(value) == len(read) and all(map(_is_same, value, read))
    return is_missing(value) and is_missing(read)


def _text(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # an integer with more digits than Python writes, or one inside a list
        text = hex(value) if isinstance(value, int) else f"a {type(value).__name__} without text"
    return text.encode(errors="backslashreplace").decode()
