"""The rows of a grid after a person's changes; rows without a change stay the same objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nbagent.forms.nodes import Choice, Const, Grid, Leaf, Node
from nbagent.forms.texts import text_for
from nbagent.forms.values import ABSENT, Json, dict_or_empty, list_or_empty

from .controls import Refused, read_choice, read_text

MAX_ADDED = 100_000
"""Rows that a person can add."""
Cell = tuple[int, str]
"""A row in the answer, and the key of a column."""


def edited_rows(
    grid: Grid, changes: Any, new: Mapping[str, Json]
) -> tuple[list[Json], dict[Cell, str]]:
    """The rows with the changes of a page, and the messages about cells that could not be read.

    ``changes`` has the number of ``added`` rows, the indices of ``deleted`` rows, and for the key of each changed
    column a list of rows and a list of what was typed; added rows have the indices after the prefilled ones.
    ``new`` are the values of an added row in which nothing was typed.

    Raises:
        Refused: the changes are malformed.
    """
    rows: list[Json] = list(grid.rows)
    added, deleted, typed = _parts(changes, len(rows))
    columns = {each.key: each for each in grid.item.fields}
    rows += ({} for _ in range(added))
    edited: dict[int, dict[str, Json]] = {}
    refused: dict[Cell, str] = {}
    for key, index, cell in typed:
        if key not in columns or index not in range(len(rows)):
            raise Refused("unreadable")
        if index in deleted:
            continue
        row = edited.setdefault(index, dict(rows[index]))
        try:
            value = _read(columns[key], cell, row.get(key, ABSENT))
        except Refused as problem:
            refused[index, key] = str(problem)
            continue
        row.pop(key, None) if value is ABSENT else row.update({key: value})
    for index, row in edited.items():
        rows[index] = row
    for index in range(len(rows) - added, len(rows)):
        rows[index] = _completed(rows[index], columns, new)
    kept = [index for index in range(len(rows)) if index not in deleted]
    places = {index: place for place, index in enumerate(kept)} if refused else {}
    messages = {(places[index], key): text for (index, key), text in sorted(refused.items())}
    return [rows[index] for index in kept], messages


def _parts(changes: Any, rows: int) -> tuple[int, set[int], Iterator[tuple[str, int, Any]]]:
    """The number of added rows, the deleted rows, and each key, row and text that was typed; raises Refused."""
    given = dict_or_empty(changes)
    added, deleted, typed = given.get("added", 0), given.get("deleted", []), given.get("cells", {})
    if not given or not _is_index(added) or added > MAX_ADDED or not isinstance(typed, dict):
        raise Refused("unreadable")
    if not isinstance(deleted, list) or not all(map(_is_index, deleted)):
        raise Refused("unreadable")
    if any(index >= rows + added for index in deleted):
        raise Refused("unreadable")
    return added, set(deleted), _typed(typed)


def _typed(typed: dict[str, Any]) -> Iterator[tuple[str, int, Any]]:
    for key, pair in typed.items():
        is_pair = isinstance(pair, list) and len(pair) == 2
        indices, cells = map(list_or_empty, pair) if is_pair else ((), (None,))
        if len(indices) != len(cells) or not all(map(_is_index, indices)):
            raise Refused("unreadable")
        for index, cell in zip(indices, cells, strict=True):
            yield key, index, cell


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read(column: Node, cell: Any, before: Json) -> Json:
    """The value of what was typed: a text, the index of an option, or a truth value; null is an emptied cell."""
    if column.read_only or isinstance(column, Const):
        raise Refused("read_only")
    if cell is None:
        return _emptied(column)
    if isinstance(column, Choice):
        by_option = isinstance(cell, int)
        if not by_option and column.other is None:
            raise Refused("no_option")
        return read_choice(column, {"option": cell} if by_option else {"other": cell})
    if column.kind == "bool":
        if isinstance(cell, bool):
            return cell
        raise Refused("not_bool")
    if not isinstance(column, Leaf) or not isinstance(cell, str):
        raise Refused("unreadable")
    # an exact number stays a number or a text, as it was
    return read_text(replace(column, value=before) if column.kind == "decimal" else column, cell)


def _emptied(column: Node) -> Json:
    """The value of an emptied cell: null where that is allowed, else empty text or no value; raises Refused."""
    if column.nullable:
        return None
    if column.kind in ("text", "code") and (column.required or column.has_default):
        return ""
    if column.required:
        raise Refused("answer")
    return ABSENT


def _completed(
    row: Mapping[str, Json], columns: Mapping[str, Node], new: Mapping[str, Json]
) -> dict[str, Json]:
    """An added row in the order of the columns; an empty cell that must have a value and may be null is null."""
    complete = {}
    for key, column in columns.items():
        value = row.get(key, new[key])
        if value is ABSENT and column.required and column.nullable:
            value = None
        if value is not ABSENT:
            complete[key] = value
    return complete


def cell_name(grid: Grid, cell: Cell) -> str:
    """A cell in words: its row, and the label of its column."""
    row, key = cell
    label = next((each.label for each in grid.item.fields if each.key == key), key)
    return text_for("cell" if key else "row", row=f"{row + 1:,}", name=label)
