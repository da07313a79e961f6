"""``$ref`` and ``allOf``, merged into one plain set of keywords; references to other documents are not followed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from nbagent.forms.texts import text_for
from nbagent.forms.values import Json, children, equality_key

Keywords = dict[str, Any]
"""A schema as an object: its keywords."""

NOTES = "x-nbagent"
"""The keyword for notes to the builder, by the form's schema generator and by ``Refs``."""
SHAPE_TITLE = "x-nbagent-name"
"""The keyword for the title of a ``$ref`` target, which names the shape and not the field."""
MAX_STEPS = 200
"""Schemas merged into one; more is an attack or a mistake, and only the validator sees the rest."""
MAX_INDEXED = 200_000
"""Parts of a document that are searched for addresses."""
MAX_INDEX = 9
"""Digits of a list index in a reference."""
REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_FOLDED = (*REFS, "allOf")
DATA = ("enum", "const", "default", "examples")
"""Keywords that hold values, in which nothing is a schema."""
_OLD = ("draft-03", "draft-04")
"""Drafts that write ``id`` for ``$id``."""


@dataclass(frozen=True)
class Flat:
    """A schema's keywords with references followed, and the names of the followed references."""

    keywords: Keywords
    refs: frozenset[str]


class Refs:
    """Looks up references inside one schema document."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._steps = 0
        self._flat: dict[int, tuple[Json, Flat]] = {}

    def flatten(self, schema: Json) -> Flat:
        """Merge ``$ref``, its siblings and ``allOf`` into one set of keywords."""
        known = self._flat.get(id(schema))
        if known is None:
            self._steps = MAX_STEPS
            known = (schema, Flat(*self._fold(schema, frozenset())))
            self._flat[id(schema)] = known  # with the schema, whose id must stay in use
        return known[1]

    def _fold(self, schema: Json, seen: frozenset[str]) -> tuple[Keywords, frozenset[str]]:
        self._steps -= 1
        if not isinstance(schema, dict) or self._steps < 0:
            return ({"not": {}} if schema is False else {}), seen
        keywords = {key: value for key, value in schema.items() if key not in _FOLDED}
        ref = self.ref_of(schema)
        if ref and ref not in seen:
            base, seen = self._follow(ref, seen)
            keywords = merge(base, keywords)
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            piece, seen = self._fold(part, seen)
            keywords = merge(piece, keywords)
        return keywords, seen

    def ref_of(self, schema: Keywords) -> str:
        """The name of the target that a schema refers to, equal for all references to the target; else empty."""
        refs = (schema.get(keyword) for keyword in REFS)
        ref = next((each for each in refs if isinstance(each, str)), None)
        return (
            ""
            if ref is None
            else self._name_of(ref, self._index.bases.get(id(schema), self._index.root))
        )

    def target(self, name: str) -> Json | None:
        """The schema that a name of ``ref_of`` refers to inside this document, or None."""
        index = self._index
        base, _, fragment = self._name_of(name, index.root).partition("#")
        start = self._root if base in ("", index.root) else index.addressed.get(base)
        if start is None or not fragment:
            return start
        if fragment.startswith("/"):
            return _pointed(start, fragment)
        return index.addressed.get(f"{base or index.root}#{fragment}")

    def _name_of(self, ref: str, base: str) -> str:
        """The name of a reference in a schema with this base address."""
        return ref if ref.startswith("#") and base == self._index.root else _joined(base, ref)

    @cached_property
    def _index(self) -> _Index:
        return _indexed(self._root)

    def _follow(self, ref: str, seen: frozenset[str]) -> tuple[Keywords, frozenset[str]]:
        target = self.target(ref)
        if target is None:
            return {NOTES: {"reason": text_for("not_loaded", ref=ref)}}, seen
        keywords, seen = self._fold(target, seen | {ref})
        keywords = dict(keywords)
        title = keywords.pop("title", None)
        if isinstance(title, str):
            keywords.setdefault(SHAPE_TITLE, title)
        return keywords, seen


@dataclass
class _Index:
    """Schemas by address; ``bases`` has the base address, by ``id()``, of schemas whose base is not the root's."""

    root: str = ""
    addressed: dict[str, Json] = field(default_factory=dict)
    bases: dict[int, str] = field(default_factory=dict)


def _joined(base: str, ref: str) -> str:
    try:
        return base + ref if ref.startswith("#") else urljoin(base, ref)
    except ValueError:  # not a valid address
        return ref


def _pointed(root: Json, pointer: str) -> Json | None:
    here = root
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        is_index = name.isascii() and name.isdecimal() and len(name) <= MAX_INDEX
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and is_index and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return here if isinstance(here, dict | bool) else None


def _indexed(root: Json) -> _Index:
    """An index of every address in a document; the first schema of an address wins."""
    index = _Index()
    draft = root.get("$schema") if isinstance(root, dict) else ""
    keyword = "id" if any(old in str(draft) for old in _OLD) else "$id"
    todo: list[tuple[Json, str]] = [(root, "")]
    for _ in range(MAX_INDEXED):
        if not todo:
            break
        item, base = todo.pop()
        if isinstance(item, dict):
            base = _addressed(index, item, base, keyword)
            if item is root:
                index.root = base
            elif base != index.root:
                index.bases[id(item)] = base
            item = [each for key, each in item.items() if key not in DATA]
        todo.extend((each, base) for each in children(item))
    return index


def _addressed(index: _Index, schema: dict[str, Json], base: str, keyword: str) -> str:
    """Record the address and the anchors of a schema, and return its base address."""
    name = schema.get(keyword)
    if isinstance(name, str) and name.startswith("#"):
        index.addressed.setdefault(base + name, schema)
    elif isinstance(name, str):
        base = urldefrag(_joined(base, name))[0]
        index.addressed.setdefault(base, schema)
    for anchor in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := schema.get(anchor), str):
            index.addressed.setdefault(f"{base}#{name}", schema)
    return base


def merge(base: Keywords, over: Keywords) -> Keywords:
    """Two sets of keywords as one: the tighter constraint wins; for texts and the rest, ``over`` wins."""
    if not base or not over:
        return dict(base or over)
    merged = {**base, **over}
    for keyword, join in _JOIN.items():
        if keyword in base and keyword in over:
            merged[keyword] = join(base[keyword], over[keyword])
    return merged


def _join_fields(one: Json, other: Json) -> Json:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other if isinstance(other, dict) else one
    both = dict(one)
    for key, schema in other.items():
        both[key] = {"allOf": [both[key], schema]} if key in both else schema
    return both


def _join_names(one: Json, other: Json) -> Json:
    if not isinstance(one, list) or not isinstance(other, list):
        return other if isinstance(other, list) else one
    known = set(map(equality_key, one))
    return [*one, *(name for name in other if equality_key(name) not in known)]


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _join_types(one: Json, other: Json) -> Json:
    allowed = _as_list(other)
    if "number" in allowed:
        allowed = [*allowed, "integer"]
    both = [name for name in _as_list(one) if name in allowed]
    if not both and "number" in _as_list(one) and "integer" in allowed:
        both = ["integer"]
    return (both[0] if len(both) == 1 else both) or other


def _join_enums(one: Json, other: Json) -> Json:
    if not isinstance(one, list) or not isinstance(other, list):
        return other if isinstance(other, list) else one
    allowed = set(map(equality_key, other))
    return [value for value in one if equality_key(value) in allowed] or other


def _if_both(kind: Any, join: Callable[[Any, Any], Any]) -> Callable[[Json, Json], Json]:
    """Join two values of a kind; if one of them is of another kind, the later one stays."""

    def joined(one: Json, other: Json) -> Json:
        return join(one, other) if isinstance(one, kind) and isinstance(other, kind) else other

    return joined


_JOIN: dict[str, Callable[[Json, Json], Json]] = {
    "properties": _join_fields,
    "patternProperties": _join_fields,
    "required": _join_names,
    "type": _join_types,
    "enum": _join_enums,
    "items": _if_both(dict, lambda one, other: {"allOf": [one, other]}),
    **dict.fromkeys((NOTES, "nbagent"), _if_both(dict, operator.or_)),
    **dict.fromkeys(
        ("minimum", "exclusiveMinimum", "minLength", "minItems"), _if_both(int | float, max)
    ),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxLength", "maxItems"), _if_both(int | float, min)
    ),
}
