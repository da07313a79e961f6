"""Rows as people and pandas read them: aligned text, an HTML table, a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from .controls import escaped
from .errors import UsageError


def is_missing(value: Any) -> bool:
    """Whether a table has no value here: None, NaN, or pandas' NA or NaT."""
    if value is None:
        return True
    if isinstance(value, str | int | list | dict):
        return False
    try:
        return bool(value != value)  # noqa: PLR0124 - what is missing differs from itself
    except (
        ArithmeticError,
        TypeError,
        ValueError,
    ):  # NA cannot be compared; an array is not a single value
        return type(value).__name__ == "NAType"


def dataframe_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame with these columns, also without rows.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise UsageError("to_frame() needs pandas: pip install pandas") from error
    return pandas.DataFrame([dict(row) for row in rows], columns=list(columns))


def as_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines of text with aligned columns; control characters are escaped."""
    lines = [tuple(head), *(tuple(escaped(" ".join(cell.split())) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def as_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as an HTML table; control characters are escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        drawn = (f"<{tag} style='text-align:left'>{escape(escaped(c))}</{tag}>" for c in cells)
        return f"<tr>{''.join(drawn)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"
