"""What drawings as text share: the words of a call, and an open form as its title and nested facts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from nbagent.notebook.render import facts
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CallItem, Fact, FormItem

from .reveal import reveal

NAMED = ("failed", "rejected", "cancelled")
"""Call states that a call's row shows in words; the question of a call that waits is below the row."""


def state_word(item: CallItem) -> str:
    """The row's word for the state of the call, if its mark and its decision do not show it."""
    is_state_shown = item.decisions and item.decisions[-1].tone != "good"
    return TEXTS[f"state_{item.state}"] if item.state in NAMED and not is_state_shown else ""


def call_words(item: CallItem) -> list[str]:
    """The words of a call's row: its name, the last decision, and its state if it needs a word."""
    name = f"{item.path} ▸ {item.name}" if item.path else item.name
    decided = [record.decision for record in item.decisions[-1:]]
    return [name, *decided, *filter(None, [state_word(item)])]


def form_title(item: FormItem) -> str:
    """The title, after the agents' path, and after the tool if the title does not name it."""
    path = f"{item.path} ▸ " if item.path else ""
    tool = f"{item.tool}: " if item.tool and item.tool not in item.title else ""
    return f"{path}{tool}{item.title}"


def form_facts(item: FormItem) -> list[Fact]:
    """The fields of a form: each label with its prefill, or with its options."""
    if item.spec is None:
        return []
    root = item.spec["root"]
    value = _outline(root)
    if isinstance(value, dict):
        return [_fact(label, part) for label, part in value.items() if label or part]
    label = str(root.get("label", ""))
    return [_fact(label, value)] if label or value else []


def _fact(label: str, value: Any) -> Fact:
    """A fact with revealed characters. Nested names are revealed only when drawn, as two of them could become equal."""
    if isinstance(value, _FirstRows):
        return facts.some_rows(reveal(label), value.rows, value.total)
    if isinstance(value, str):
        return Fact(label=reveal(label), value=reveal(value), code=False)
    return facts.nested(reveal(label), value)


def _outline(node: dict[str, Any]) -> Any:
    """A node as a string, or as a dict or list of its parts."""
    if node.get("secret"):
        return ""
    if "fields" in node:
        return _named(node["fields"])
    if "parts" in node:
        return _named(node["parts"])
    if node.get("rows") or "cells" in node:
        return _first_rows(node) if "cells" in node else [_outline(row) for row in node["rows"]]
    if node.get("entries"):
        return {entry["key"]: _outline(entry["node"]) for entry in node["entries"]}
    if "branches" not in node:
        return _value(node)
    branches, index = node["branches"], node.get("branch")
    if isinstance(index, int):
        return _outline(branches[index]["node"])
    return " / ".join(str(branch["label"]) for branch in branches)


class _FirstRows(NamedTuple):
    """Some rows of a grid, and their number."""

    rows: list[dict[str, Any]]
    total: int


def _first_rows(node: dict[str, Any]) -> _FirstRows:
    """The first rows of a grid, as texts."""
    fields = node["item"]["fields"]
    cells = json.loads(node["cells"])
    columns = [each[: facts.SOME_ROWS] for each in cells]
    named = [
        {each["label"]: _cell(each, cell) for each, cell in zip(fields, row, strict=True)}
        for row in zip(*columns, strict=True)
    ]
    return _FirstRows(named, len(cells[0]))


def _cell(column: dict[str, Any], cell: Any) -> str:
    if isinstance(cell, bool):
        return TEXTS["yes" if cell else "no"]
    if isinstance(cell, int):
        return str(column["options"][cell]["label"])
    return cell if isinstance(cell, str) else ""


def _named(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The nodes by label; a label that repeats is followed by the node's key."""
    found: dict[str, Any] = {}
    for node in nodes:
        label = str(node.get("label", ""))
        found[f"{label} ({node['key']})" if label in found else label] = _outline(node)
    return found


def _value(node: dict[str, Any]) -> str:
    """The text that an untouched field shows, else its options."""
    initial = node.get("initial") or {}
    labels = [str(option.get("label", "")) for option in node.get("options", ())]
    if "bool" in initial:
        return TEXTS["yes" if initial["bool"] else "no"]
    picked = [*initial.get("options", ()), *([initial["option"]] if "option" in initial else ())]
    written = [labels[i] for i in picked if 0 <= i < len(labels)]
    written += [*initial.get("others", ()), *([initial["other"]] if "other" in initial else ())]
    return ", ".join(map(str, written)) or str(initial.get("text", "")) or " / ".join(labels)
