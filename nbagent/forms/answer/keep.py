"""Drafts as they may be kept: without what was typed into secret fields, whoever sent it."""

from __future__ import annotations

from typing import Any

from nbagent.forms.nodes.nodes import Lazy, Map, Node, Object, Parts, Rows, Union
from nbagent.forms.nodes.spec import Draft, below

from .decode import Opens, entry_named, picked

MAX_LEVELS = 40
"""Levels of drafts that are kept."""
_PLAIN = ("null", "cleared", "empty")


def keepable(tree: Opens, node: Node, draft: Draft, level: int = 0) -> Draft:
    """The draft of a node, with null for every secret; what its tree does not know is left out."""
    if node.secret or not isinstance(draft, dict) or level > MAX_LEVELS:
        return None
    if not _may_hide(node):
        return draft
    if "json" in draft:  # the whole as one text, its secrets among it
        return None
    plain = {name: True for name in _PLAIN if draft.get(name) is True}
    return plain or _inside(tree, node, draft, level + 1) or None


def _may_hide(node: Node) -> bool:
    """Whether a secret is below, or something that only opening it tells."""
    return node.secret or isinstance(node, Lazy) or any(map(_may_hide, below(node)))


def _inside(tree: Opens, node: Node, draft: dict[str, Any], level: int) -> dict[str, Any]:
    match node:
        case Object():
            return _fields(tree, node, draft, level)
        case Rows():
            return {"rows": [_row(tree, node, each, level) for each in _list(draft, "rows")]}
        case Map():
            entries = [_entry(tree, node, each, level) for each in _list(draft, "entries")]
            return {"entries": entries}
        case Parts():
            pairs = zip(node.parts, _list(draft, "parts"), strict=False)
            return {"parts": [keepable(tree, part, each, level) for part, each in pairs]}
        case _:
            return _chosen(tree, node, draft, level)


def _chosen(tree: Opens, node: Node, draft: dict[str, Any], level: int) -> dict[str, Any]:
    match node:
        case Union():
            index = draft.get("branch", node.branch)
            branch = picked(node.branches, index)
            inner = branch and keepable(tree, branch.node, draft.get("draft"), level)
            return {} if branch is None else {"branch": index, "draft": inner}
        case Lazy() if draft.get("open") is True:
            return {"open": True, "draft": _opened(tree, node, draft.get("draft"), level)}
        case _:
            return {}


def _fields(tree: Opens, node: Object, draft: dict[str, Any], level: int) -> dict[str, Any]:
    fields = draft.get("fields")
    given = fields if isinstance(fields, dict) else {}
    known = {each.key: each for each in node.fields if each.key in given}
    kept = {key: keepable(tree, each, given[key], level) for key, each in known.items()}
    if node.more is None or "more" not in draft:
        return {"fields": kept}
    return {"fields": kept, "more": keepable(tree, node.more, draft["more"], level)}


def _row(tree: Opens, node: Rows, row: Any, level: int) -> dict[str, Any]:
    source = row.get("from") if isinstance(row, dict) else None
    template = node.item if source is None else picked(node.rows, source)
    if template is None or not isinstance(row, dict):
        return {"from": None, "draft": None}
    return {"from": source, "draft": keepable(tree, template, row.get("draft"), level)}


def _entry(tree: Opens, node: Map, entry: Any, level: int) -> dict[str, Any]:
    given = entry if isinstance(entry, dict) else {}
    source, key = given.get("from"), given.get("key", given.get("from"))
    template = node.item if source is None else entry_named(dict(node.entries), source)
    inner = None if template is None else keepable(tree, template, given.get("draft"), level)
    return {"from": source, "key": key if isinstance(key, str) else "", "draft": inner}


def _opened(tree: Opens, node: Lazy, draft: Draft, level: int) -> Draft:
    shape = tree.expand(node)
    typed = isinstance(draft, dict) and isinstance(draft.get("text"), str)
    if typed and any(map(_may_hide, below(shape))):  # drawn as one JSON box
        return None
    return draft if typed and not shape.secret else keepable(tree, shape, draft, level)


def _list(draft: dict[str, Any], name: str) -> list[Any]:
    found = draft.get(name)
    return found if isinstance(found, list) else []
