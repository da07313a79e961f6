"""Small questions about drafts and nodes: what is untouched, what is emptied, what a draft means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .fields import escaped
from .masks import masked
from .nodes import Const, Leaf, Map, Node, Object, Parts, Rows
from .parts import Segment
from .spec import holds_secret
from .values import ABSENT, Json


def unasked(node: Node) -> Json:
    """What an untouched field without a prefill answers: nothing, unless there is nothing to ask."""
    if isinstance(node, Const) and (node.required or node.always):
        return node.const
    if not node.sends_default or (masked(node.default) and holds_secret(node)):
        return ABSENT
    return node.default


def emptied(node: Node, draft: dict[str, Any]) -> bool:
    """A control whose text is gone; an empty text that was there before is a text."""
    return isinstance(node, Leaf) and draft.get("text") == "" and node.shows != ""


def places(node: Node, value: Json) -> Iterator[tuple[Segment, str, Node]]:
    """Segment, id step and node of each child of an untouched container."""
    if not isinstance(value, dict | list):
        return
    match node:
        case Object():
            yield from ((each.key, escaped(each.key), each) for each in node.fields)
        case Rows():
            yield from ((i, str(i), each) for i, each in enumerate(node.rows))
        case Map():
            yield from ((key, str(i), each) for i, (key, each) in enumerate(node.entries))
        case Parts():
            yield from ((i, str(i), each) for i, each in enumerate(node.parts[: len(value)]))
        case _:
            return


def blank(draft: Any) -> bool:
    """Whether nothing was touched: null, or fields of which none was."""
    if draft is None:
        return True
    if isinstance(draft, dict) and set(draft) <= {"fields", "more"}:
        inner = draft.get("fields", {})
        return isinstance(inner, dict) and _all_blank(inner) and draft.get("more") is None
    return False


def _all_blank(drafts: dict[str, Any]) -> bool:
    todo: list[Any] = list(drafts.values())
    while todo:
        draft = todo.pop()
        if draft is None:
            continue
        inner = (
            draft.get("fields") if isinstance(draft, dict) and set(draft) == {"fields"} else None
        )
        if not isinstance(inner, dict):
            return False
        todo.extend(inner.values())
    return True


def moves_nothing(node: Node, draft: dict[str, Any]) -> bool:
    """Whether rows or entries were sent just as they are."""
    if isinstance(node, Rows) and isinstance(rows := draft.get("rows"), list):
        return rows == [{"from": index, "draft": None} for index in range(len(node.rows))]
    return False


def picked(items: tuple[Any, ...], index: Any) -> Any:
    """The item at an index from a draft, or None where that is no index of these."""
    usable = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(items)
    return items[index] if usable else None


def entry_named(known: dict[str, Node], source: Any) -> Node | None:
    """The entry that a draft says it came from, or None where there is none."""
    return known.get(source) if isinstance(source, str) else None
