"""The data for the front end: each node as strict JSON, with the draft that shows its prefill."""

from __future__ import annotations

from collections.abc import Hashable

from .nodes import Choice, Const, Draft, Grid, Lazy, Leaf, Map, Node, Object, Parts, Rows, Union
from .schema.fields import describe_limits
from .schema.shape import label_of
from .secrets import may_hold_secret
from .values import ABSENT, Json, as_text, dumps, equality_key, is_number, list_or_empty

MAX_SHOWN = 64_000
"""Characters of a default that are sent to the page. A document's own values are sent whole, because
a person must see the values that they approve."""


def spec(node: Node) -> dict[str, Json]:
    """A node and all below it; keys without a value are left out."""
    found: dict[str, Json] = {
        "id": node.id,
        "key": node.key,
        "kind": node.kind,
        "label": node.label,
        **_non_empty(
            help=node.help,
            required=node.required,
            nullable=node.nullable,
            has_default=node.has_default,
            default_text=node.default_text,
            read_only=node.read_only,
            secret=node.secret,
            deprecated=node.deprecated,
            limits=describe_limits(node.limits),
            hint=dict(node.hint),
            examples=list(node.examples),
        ),
        **_own(node),
    }
    draft = initial(node)
    if draft is not None:
        found["initial"] = draft
    elif (text := _json_text(node)) is not None:
        found["initial_json"] = {"text": text}
    if node.prefilled and draft is not None:
        found["prefilled"] = True
    if node.secret and node.value is not ABSENT:
        found["provided"] = True
    return found


def _non_empty(**words: Json) -> dict[str, Json]:
    """The keys that have a value."""
    return {name: word for name, word in words.items() if word}


def _own(node: Node) -> dict[str, Json]:
    """The keys of one kind of node."""
    own: dict[str, Json] = {}
    match node:
        case Leaf():
            own = _non_empty(format=node.format, multiline=node.multiline, range=_range(node))
        case Const():
            own = {"shown": label_of(node.const)}
        case Choice():
            own = {
                "options": [
                    {"label": each.label, **_non_empty(help=each.help)} for each in node.options
                ],
                "other": bool(node.other),
            }
        case Object():
            more = {"more": spec(node.more)} if node.more else {}
            own = {"fields": [spec(each) for each in node.fields], **more}
        case Rows():
            own = {"item": spec(node.item), "rows": [spec(row) for row in node.rows]}
        case Grid():
            own = {"item": spec(node.item), "cells": node.cells}
        case Map():
            entries = [{"key": key, "node": spec(each)} for key, each in node.entries.items()]
            options = _non_empty(key_options=list(node.key_options))
            own = {"item": spec(node.item), "entries": entries, **options}
        case Parts():
            own = {"parts": [spec(each) for each in node.parts]}
        case Union():
            branches = [{"label": each.label, "node": spec(each.node)} for each in node.branches]
            own = {"branches": branches, "branch": node.branch}
        case Lazy():
            own = {"of": node.of}
        case _:
            pass
    return own


def _range(node: Leaf) -> dict[str, Json]:
    """The ends and the step of a slider, if one is wanted and both ends are known."""
    low = node.limits.get("minimum")
    high = node.limits.get("maximum")
    wanted = node.kind in ("int", "num") and node.hint.get("widget") == "slider"
    if not wanted or not is_number(low) or not is_number(high):
        return {}
    step = node.limits.get("multipleOf") or (1 if node.kind == "int" else None)
    return {"min": low, "max": high, **_non_empty(step=step)}


def initial(node: Node) -> Draft:
    """The draft that shows the node's value, or None if there is nothing to show."""
    value = node.shows
    if value is ABSENT or node.secret:
        return None
    if value is None and node.kind != "json":
        options = node.options if isinstance(node, Choice) and node.kind == "choice" else ()
        if not any(each.value is None for each in options):
            return {"null": True} if node.value is None else None
    match node:
        case Leaf():
            return _leaf_draft(node, value)
        case Choice(kind="multi"):
            known = _indices(node)
            values = [(each, known.get(equality_key(each))) for each in list_or_empty(value)]
            others = [as_text(each) for each, index in values if index is None]
            return {"options": [i for _, i in values if i is not None], "others": others}
        case Choice():
            index = _indices(node).get(equality_key(value))
            if index is not None:
                return {"option": index}
            return {"other": as_text(value)} if node.other else None
        case _:
            return None


def _leaf_draft(node: Leaf, value: Json) -> Draft:
    if node.kind == "bool":
        return {"bool": value}
    if value == "" and node.kind != "json":
        return {"empty": True}
    text = as_text(value) if node.kind != "json" else dumps(value, indent=2)
    return {"text": text} if _may_be_sent(node, text) else None


def _indices(node: Choice) -> dict[Hashable, int]:
    """The index of each option, of equal ones the first, by the ``equality_key`` of its value."""
    return {equality_key(each.value): i for i, each in reversed([*enumerate(node.options)])}


def _json_text(node: Node) -> str | None:
    """The JSON of a node that may be drawn as one JSON box; None if that would reveal a secret or send too much."""
    if isinstance(node, Leaf | Const | Choice | Object | Grid) and node.kind != "file":
        return None
    if node.shows in (ABSENT, None) or may_hold_secret(node):
        return None
    text = dumps(node.shows, indent=2)
    return text if _may_be_sent(node, text) else None


def _may_be_sent(node: Node, text: str) -> bool:
    return node.value is not ABSENT or len(text) <= MAX_SHOWN
