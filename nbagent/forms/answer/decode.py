"""Conversion of drafts to a JSON document: untouched fields return their exact prefill, typed text becomes JSON.

Any JSON is accepted as drafts; a draft that cannot be read is a problem at its field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from nbagent.forms.nodes import (
    MAX_LEVELS,
    Choice,
    Const,
    Draft,
    Grid,
    Lazy,
    Leaf,
    Map,
    Node,
    Object,
    Parts,
    Rows,
    Union,
)
from nbagent.forms.schema.fields import escaped
from nbagent.forms.secrets import Expand, may_hold_secret
from nbagent.forms.texts import text_for
from nbagent.forms.values import ABSENT, dict_or_empty, has_lone_surrogates

from .controls import Refused, read_choice, read_json, read_leaf, read_multi
from .grid import edited_rows
from .parts import Part, Path, Problem, Segment


@dataclass(frozen=True)
class _Spot:
    """The place of a value in the form and in the document."""

    id: str
    path: Path
    level: int = 0

    def down(self, step: str, segment: Segment) -> _Spot:
        return _Spot(f"{self.id}/{step}", (*self.path, segment), self.level + 1)


class Decoder:
    """Reads one submission; ``problems`` are the drafts that could not be read."""

    def __init__(self, expand: Expand) -> None:
        self._expand = expand
        self.problems: list[Problem] = []

    def decode(self, root: Node, drafts: Draft) -> Part:
        """The answered tree; a root without a value has ``value`` ABSENT and a problem."""
        part = self._decode(root, drafts, _Spot(root.id, ()))
        return self._must(part)

    def _must(self, part: Part) -> Part:
        """The part, with a problem if it has no value."""
        if part.value is ABSENT and not part.failed:
            self._fail(part, text_for("answer"))
        return part

    def _fail(self, part: Part, message: str) -> Part:
        part.failed = True
        self.problems.append(Problem(part.id, part.path, message))
        return part

    def _decode(self, node: Node, draft: Draft, spot: _Spot) -> Part:
        if _is_untouched(draft) and (draft is None or node.value is not None):
            return self._untouched(node, spot)
        part = Part(node, spot.id, spot.path)
        if not isinstance(draft, dict) or spot.level > MAX_LEVELS:
            deep = isinstance(draft, dict)
            return self._fail(part, text_for("too_deep" if deep else "unreadable"))
        has_fields = isinstance(node, Object) and "fields" in draft
        if node.read_only and not has_fields:
            part = self._untouched(node, spot)
            keeps_rows = isinstance(node, Rows) and draft.get("rows") == [
                {"from": index, "draft": None} for index in range(len(node.rows))
            ]
            return part if keeps_rows else self._fail(part, text_for("read_only"))
        if draft.get("null") is True:
            part.value = None
            return part if node.nullable else self._fail(part, text_for("not_null"))
        is_emptied = isinstance(node, Leaf) and draft.get("text") == "" and node.shows != ""
        if draft.get("cleared") is True or is_emptied:
            return part  # left out; the validator or the container decides whether that is allowed
        reader = None if "json" in draft else self._readers.get(type(node))
        return (reader or Decoder._control)(self, node, draft, spot)

    def _control(self, node: Node, draft: dict[str, Any], spot: _Spot) -> Part:
        """The part of one control, or of a node whose whole value was typed as one JSON text."""
        part = Part(node, spot.id, spot.path, typed="json" in draft)
        try:
            match node:
                case _ if part.typed:
                    part.value = read_json(dict_or_empty(draft["json"]).get("text"))
                case Leaf():
                    part.value = read_leaf(node, draft)
                case Choice(kind="multi"):
                    part.value = read_multi(node, draft)
                case Choice():
                    part.value = read_choice(node, draft)
                case _:
                    key = "read_only" if isinstance(node, Const) else "unreadable"
                    return self._fail(part, text_for(key))
        except Refused as problem:
            return self._fail(part, str(problem))
        return part

    def _untouched(self, node: Node, spot: _Spot) -> Part:
        """The part with the unchanged prefill; without a prefill, with the form's answer for an untouched field."""
        part = Part(node, spot.id, spot.path, value=node.value)
        if isinstance(node, Const) and node.value is ABSENT and (node.required or node.always):
            part.value = node.const
        elif node.value is ABSENT and node.sends_default:
            part.value = node.default
        composed = part.value is ABSENT and node.required
        if composed and isinstance(node, Object):
            return self._object(node, {"fields": {}}, spot)
        if composed and isinstance(node, Parts):
            return self._parts(node, {"parts": []}, spot)
        if part.value is not ABSENT:
            self._add_children(part, spot)
        return part

    def _add_children(self, part: Part, spot: _Spot) -> None:
        """Add the children of an untouched container, so that errors can be placed at their fields."""
        if isinstance(part.node, Union):
            index = part.node.branch
            if index is not None:
                branch = part.node.branches[index]
                inner = replace(spot, id=f"{spot.id}|{index}")
                part.branch = self._untouched(branch.node, inner)
                part.index, part.raw = index, branch.raw
            return
        if not isinstance(part.value, dict | list):
            return
        located: list[tuple[Segment, str, Node]] = []
        match part.node:
            case Object(fields=fields):
                located = [(each.key, escaped(each.key), each) for each in fields]
            case Rows(rows=rows):
                located = [(i, str(i), each) for i, each in enumerate(rows)]
            case Map(entries=entries):
                located = [(key, str(i), each) for i, (key, each) in enumerate(entries.items())]
            case Parts(parts=parts):
                located = [(i, str(i), each) for i, each in enumerate(parts[: len(part.value)])]
            case _:
                pass
        for segment, step, node in located:
            down = spot.down(step, segment)
            absent = node.value is ABSENT
            # an absent child stays absent: no value is composed, and no answer is required
            child = Part(node, down.id, down.path) if absent else self._untouched(node, down)
            part.children[segment] = child

    def _object(self, node: Object, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path, value={})
        drafts = draft.get("fields")
        if not isinstance(drafts, dict):
            return self._fail(part, text_for("unreadable"))
        for key in drafts.keys() - {each.key for each in node.fields}:
            self._fail(part, text_for("unknown", name=key))
        for each in node.fields:
            down = spot.down(escaped(each.key), each.key)
            part.children[each.key] = self._decode(each, drafts.get(each.key), down)
        before = node.shows if isinstance(node.shows, dict) else {}
        names = [*before, *(key for key in part.children if key not in before)]
        for key in names:
            if key in part.children and part.children[key].value is not ABSENT:
                part.value[key] = part.children[key].value
        if node.more is not None and not _is_untouched(draft.get("more")):
            self._more(part, node.more, draft["more"], spot)
        return part

    def _more(self, part: Part, more: Map, draft: Any, spot: _Spot) -> None:
        start = replace(spot, id=f"{spot.id}/+")
        extra = self._map(more, draft if isinstance(draft, dict) else {}, start)
        for key, child in extra.children.items():
            if key in part.children:
                self._fail(child, text_for("same_key", name=key))
            else:
                part.children[key] = child
                part.value[key] = child.value

    def _rows(self, node: Rows, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path, value=[])
        rows = draft.get("rows")
        if not isinstance(rows, list):
            return self._fail(part, text_for("unreadable"))
        for index, row in enumerate(rows):
            down = spot.down(str(index), index)
            template = node.template(row.get("from")) if isinstance(row, dict) else None
            if template is None:
                return self._fail(part, text_for("unreadable"))
            child = self._must(self._decode(template, row.get("draft"), down))
            part.children[index] = child
            part.value.append(None if child.value is ABSENT else child.value)
        return part

    def _grid(self, node: Grid, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path)
        new = {each.key: self._untouched(each, spot).value for each in node.item.fields}
        try:
            part.value, refused = edited_rows(node, draft.get("grid"), new)
        except Refused as problem:
            return self._fail(part, str(problem))
        for (row, key), message in refused.items():
            path = (*spot.path, row, key)
            self.problems.append(Problem(part.id, path, message, cell=(row, key)))
        return part

    def _map(self, node: Map, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path, value={})
        entries = draft.get("entries")
        if not isinstance(entries, list):
            return self._fail(part, text_for("unreadable"))
        for index, entry in enumerate(entries):
            given = entry if isinstance(entry, dict) else {}
            source = given.get("from")
            template, key = node.template(source), given.get("key", source)
            if template is None or not isinstance(key, str):
                return self._fail(part, text_for("unreadable"))
            child = self._decode(template, given.get("draft"), spot.down(str(index), key))
            if key in part.children:
                self._fail(child, text_for("same_key", name=key))
            elif has_lone_surrogates(key):
                self._fail(child, text_for("broken_text"))
            elif not key and all(node.entries):  # unless the prefill has an empty name
                self._fail(child, text_for("no_key"))
            part.children.setdefault(key, self._must(child))
            part.value.setdefault(key, None if child.value is ABSENT else child.value)
        return part

    def _parts(self, node: Parts, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path, value=[])
        drafts = draft.get("parts")
        if not isinstance(drafts, list) or len(drafts) > len(node.parts):
            return self._fail(part, text_for("unreadable"))
        drafts = [*drafts, *[None] * (len(node.parts) - len(drafts))]
        found = [
            self._decode(each, drafts[index], spot.down(str(index), index))
            for index, each in enumerate(node.parts)
        ]
        while len(found) > node.least and found[-1].value is ABSENT and not found[-1].failed:
            found.pop()
        for index, child in enumerate(found):
            part.children[index] = self._must(child)
            part.value.append(None if child.value is ABSENT else child.value)
        return part

    def _union(self, node: Union, draft: dict[str, Any], spot: _Spot) -> Part:
        part = Part(node, spot.id, spot.path)
        index = draft.get("branch", node.branch)
        branch = node.branch_at(index)
        if branch is None:
            return self._fail(part, text_for("no_branch"))
        inner = _Spot(f"{spot.id}|{index}", spot.path, spot.level + 1)
        child = self._must(self._decode(branch.node, draft.get("draft"), inner))
        part.branch, part.index, part.raw = child, index, branch.raw
        part.value, part.failed = child.value, child.failed
        return part

    def _lazy(self, node: Lazy, draft: dict[str, Any], spot: _Spot) -> Part:
        if draft.get("open") is not True:
            return self._fail(Part(node, spot.id, spot.path), text_for("unreadable"))
        shape = self._expand(node)
        inner = draft.get("draft")
        typed = inner.get("text") if isinstance(inner, dict) else None
        if isinstance(typed, str) and not isinstance(shape, Leaf):
            secret = may_hold_secret(shape)
            shape = Leaf(id=node.id, key=node.key, kind="json", label=node.label, secret=secret)
        return self._decode(shape, inner, replace(spot, level=spot.level + 1))

    _readers: ClassVar[dict[type[Node], Callable[..., Part]]] = {
        Object: _object,
        Rows: _rows,
        Grid: _grid,
        Map: _map,
        Parts: _parts,
        Union: _union,
        Lazy: _lazy,
    }
    """Methods by the kind of node; all others are one control."""


def _is_untouched(draft: Draft) -> bool:
    """Whether a draft is null, or consists of fields and further names that are all untouched."""
    if (
        not isinstance(draft, dict)
        or set(draft) - {"fields", "more"}
        or draft.get("more") is not None
    ):
        return draft is None
    todo = [draft.get("fields", {})]
    while todo:
        drafts = todo.pop()
        if not isinstance(drafts, dict):
            return False
        for inner in filter(lambda each: each is not None, drafts.values()):
            if not isinstance(inner, dict) or set(inner) != {"fields"}:
                return False
            todo.append(inner["fields"])
    return True
