"""What a page needs to draw a grid, beside its spec: code, texts and marks; and the errors in its cells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nbagent.forms.answer.grid import cell_name
from nbagent.forms.form import Submission
from nbagent.forms.nodes import Grid, Node, below
from nbagent.notebook.render import facts, lookalikes
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import GRID_TEXTS, TEXTS
from nbagent.notebook.wire import FieldError

MAX_SENT = 1_000
"""Marks and errors of one grid that a page receives."""
_ODD = re.compile(r'[^\x00-\x7e]|\\u00|\\r|"(?: |\\t)|(?: |\\[nt])"')
"""In the JSON of a grid's cells, what is in every text with something to mark."""


@cache
def _code() -> str:
    """The module that draws a grid; only a question with a grid has it."""
    return (Path(__file__).parents[2] / "static" / "grid.js").read_text(encoding="utf-8")


def add_code(spec: dict[str, Any], *, approval: bool) -> dict[str, Any]:
    """The spec of a form, in which each grid has the code and the texts that draw it; an approval also has marks."""
    if not spec.pop("grid", False):
        return spec
    todo: list[Any] = [spec["root"]]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            if node.get("kind") == "grid":
                node["module"] = {"code": _code(), "texts": dict(GRID_TEXTS)}
                node["marks"] = marks(node["cells"])[:MAX_SENT] if approval else []
            else:
                todo += (each for each in node.values() if isinstance(each, dict | list))
    return spec


def marks(cells: str) -> list[tuple[int, int, str]]:
    """The cells with characters that are hidden or look like others: the row, the column, and a description."""
    if not _ODD.search(cells):
        return []
    columns = json.loads(cells)
    found = [
        (row, at, what)
        for at, column in enumerate(columns)
        for row, cell in enumerate(column)
        if isinstance(cell, str) and (what := _mark(cell))
    ]
    return sorted(found)


def _mark(text: str) -> str:
    """What a person must check in a text: hidden characters, and such that look like others."""
    seen = reveal(text)
    hidden = [TEXTS["odd_hidden"]] if seen != text else []
    return ", ".join(
        dict.fromkeys([*hidden, *(each.description for each in lookalikes.found(seen))])
    )


def remark(grid: Grid) -> str:
    """A description of the marked cells; empty if there are none."""
    found = marks(grid.cells)
    if not found:
        return ""
    row, at, what = found[0]
    cell = cell_name(grid, (row, grid.item.fields[at].key))
    more = len(found) - 1
    rest = f" {GRID_TEXTS['grid_more'].format(n=f'{more:,}')}" if more else ""
    return f"{facts.shown(cell, facts.MAX_SHORT)}: {what}{rest}"


def cell_errors(root: Node, submission: Submission) -> list[FieldError]:
    """The errors in cells, as one error for each grid: its message names the first cell, for where no grid is."""
    wrong: dict[str, list[tuple[int, str, str]]] = {}
    for index, (row, key) in submission.cells.items():
        id_, _, message = submission.errors[index]
        wrong.setdefault(str(id_), []).append((row, key, message))
    grids = _grids(root) if wrong else {}
    errors = []
    for id_, cells in wrong.items():
        row, key, message = min(cells)
        more = len(cells) - 1
        rest = f" {GRID_TEXTS['grid_more'].format(n=f'{more:,}')}" if more else ""
        text = f"{reveal(cell_name(grids[id_], (row, key)))}: {message}{rest}"
        errors.append(FieldError(field=id_, message=text, cells=sorted(cells)[:MAX_SENT]))
    return errors


def _grids(root: Node) -> Mapping[str, Grid]:
    found, todo = {}, [root]
    while todo:
        node = todo.pop()
        if isinstance(node, Grid):
            found[node.id] = node
        todo += below(node)
    return found
