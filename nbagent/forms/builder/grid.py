"""The columns and cells of a grid: a list of similar objects, sent to a page in a compact form.

The cells are a list for each column, with a text, the index of an option or a truth value for each row; null is null,
and an empty list is a value that the row does not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from nbagent.forms.nodes import Choice, Const, Leaf, Node
from nbagent.forms.schema.shape import SchemaOption, label_of
from nbagent.forms.texts import text_for
from nbagent.forms.values import ABSENT, Json, dumps, equality_key, is_number, same

FEW = 10
"""Plain rows that read well with a control for each value."""
MANY = 50
"""Rows with nested values from which on a grid reads better, with these values as JSON."""
MAX_COLUMNS = 60
MAX_CELLS = 100_000
MAX_TEXT = 4 * 2**20
"""Characters of the cells of all grids of a form."""
MAX_CELL = 10_000
"""Characters of one cell: nobody reads more of them there."""
MAX_UNKNOWN = 50
"""Different values of a column that are not among its options."""
_PLAIN = ("text", "code", "int", "num", "decimal", "duration", "bool", "choice", "const", "json")
_LEFT_OUT: list[Json] = []
"""The cell of a value that its row does not have."""


class _Unfit(Exception):
    """A value that the control of its column cannot show."""


def is_plain(node: Node) -> bool:
    """Whether the values of a field fit in cells."""
    return node.kind in _PLAIN


def grid_columns(
    nodes: Iterable[Node], rows: list[dict[str, Json]]
) -> tuple[tuple[Node, ...], str] | None:
    """The columns for the fields of a row, and the cells as JSON; None if that is too much to send.

    A column with a value that its control cannot show has JSON in its cells.
    """
    columns, cells = [], []
    for node in nodes:
        column, drawn = _column(node, [row.get(node.key, ABSENT) for row in rows])
        columns.append(column)
        cells.append(drawn)
    if any(isinstance(cell, str) and len(cell) > MAX_CELL for each in cells for cell in each):
        return None
    text = json.dumps(cells, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (tuple(columns), text) if len(text) <= MAX_TEXT else None


def implied_schema(values: Iterable[Json]) -> Json:
    """A schema for the values of a column about which nothing else is known."""
    kinds = {_kind_of(each) for each in values if each is not None}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    return {"type": [*kinds, "null"]} if len(kinds) == 1 and "" not in kinds else {}


def _kind_of(value: Json) -> str:
    if isinstance(value, bool | str):
        return "boolean" if isinstance(value, bool) else "string"
    return ("number" if isinstance(value, float) else "integer") if is_number(value) else ""


def _column(node: Node, values: list[Json]) -> tuple[Node, list[Json]]:
    if is_plain(node) and node.kind != "json":
        try:
            known = _with_unknown(node, values) if isinstance(node, Choice) else node
            write = _writer(known)
            return known, [
                _LEFT_OUT if v is ABSENT else None if v is None else write(v) for v in values
            ]
        except _Unfit:
            pass
    common = {each.name: getattr(node, each.name) for each in fields(Node)}
    box = Leaf(**{**common, "kind": "json", "nullable": False, "limits": {}})
    return box, [_LEFT_OUT if v is ABSENT else dumps(v) for v in values]


def _writer(node: Node) -> Callable[[Any], Json]:
    """A function that writes the cell of a value; raises ``_Unfit`` for a value that the column cannot show."""
    match node:
        case Choice():
            return _choice_writer(node)
        case Const():
            return lambda value: label_of(value) if same(value, node.const) else _unfit()
        case Leaf(kind="bool"):
            return lambda value: value if isinstance(value, bool) else _unfit()
        case Leaf(kind="int" | "num"):
            return lambda value: repr(value) if is_number(value) else _unfit()
        case Leaf(kind="decimal"):
            return lambda value: repr(value) if is_number(value) else _digits(value)
        case _:
            return lambda value: value if isinstance(value, str) else _unfit()


def _unfit() -> Json:
    raise _Unfit


def _digits(value: Json) -> Json:
    fits = isinstance(value, str) and value.strip() and set(value.lower()) <= set("0123456789.+-e_")
    return value if fits else _unfit()


def _choice_writer(node: Choice) -> Callable[[Any], Json]:
    indices = {equality_key(each.value): index for index, each in enumerate(node.options)}

    def write(value: Json) -> Json:
        index = indices.get(equality_key(value))
        if index is not None:
            return index
        return value if node.other is not None and isinstance(value, str) else _unfit()

    return write


def _with_unknown(node: Choice, values: list[Json]) -> Choice:
    """The column with an option for each value that is none of its options and cannot be typed."""
    if node.other is not None:
        return node
    known = {equality_key(each.value) for each in node.options}
    present = {equality_key(v): v for v in values if v is not ABSENT and v is not None}
    unknown = [value for key, value in present.items() if key not in known]
    if len(unknown) > MAX_UNKNOWN:
        raise _Unfit
    note = text_for("not_an_option")
    more = (SchemaOption(each, f"{label_of(each)} ({note})", note) for each in unknown)
    return replace(node, options=(*node.options, *more))
