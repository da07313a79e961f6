"""The branch of a union that a document takes: a quick comparison of shapes, not a validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from nbagent.forms.values import Json, dict_or_empty, is_number, list_or_empty, same

from .fields import required_names
from .refs import Keywords, Refs

MAX_DEPTH = 6
"""Levels that are compared; deeper parts count as fitting."""
MAX_ITEMS = 20
MAX_COMPARED = 5_000
"""Parts that are compared for one union, all its branches together; further parts count as fitting."""

_Fit: TypeAlias = Callable[[Json, Json], float | None]
"""The score of a part for its schema."""

TYPES: dict[str, Callable[[Json], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and value == value // 1,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def best_branch(refs: Refs, schemas: list[Json], value: Json) -> int | None:
    """The index of the schema that fits best, the first of equals; None if none fits."""
    share = MAX_COMPARED // max(1, len(schemas)) + MAX_ITEMS
    scores = [fit(refs, schema, value, iter(range(share))) for schema in schemas]
    fitting = [index for index, score in enumerate(scores) if score is not None]
    return max(fitting, key=lambda index: (scores[index] or 0.0, -index), default=None)


def fit(
    refs: Refs, schema: Json, value: Json, turns: Iterator[int], depth: int = 0
) -> float | None:
    """The score of a value for a schema, higher is better; None if the value cannot be meant for the schema.

    Each comparison takes one of the ``turns``; without one, the value counts as fitting.
    """
    if schema is False:
        return None
    if next(turns, None) is None or depth > MAX_DEPTH:
        return 0.0
    keywords = refs.flatten(schema).keywords
    own, branched = _own_fit(keywords, value), 0.0
    if own is None:
        return None

    def inside(schema: Json, part: Json) -> float | None:
        return fit(refs, schema, part, turns, depth + 1)

    for keyword in ("anyOf", "oneOf"):
        branches = list_or_empty(keywords.get(keyword))
        scores = [inside(branch, value) for branch in branches]
        fitting = [each for each in scores if each is not None]
        if branches and not fitting:
            return None
        branched += max(fitting, default=0.0)
    if isinstance(value, dict):
        return _object_fit(refs, keywords, value, inside, own + branched)
    if isinstance(value, list):
        return _list_fit(keywords, value, inside, own + branched)
    return own + branched


def _own_fit(keywords: Keywords, value: Json) -> float | None:
    """The score by const, enum and type only."""
    score = 0.0
    if "const" in keywords:
        if not same(keywords["const"], value):
            return None
        score += 10
    options = keywords.get("enum")
    if isinstance(options, list):
        if not any(same(option, value) for option in options):
            return None
        score += 10
    types = keywords.get("type")
    if types is None:
        return score
    names = types if isinstance(types, list) else [types]
    known = (TYPES[name] for name in names if isinstance(name, str) and name in TYPES)
    if not any(fits(value) for fits in known):
        return None
    return score + (2 if "integer" in names and isinstance(value, int) else 1)


def _object_fit(
    refs: Refs, keywords: Keywords, value: dict[str, Any], inside: _Fit, score: float
) -> float | None:
    fields = dict_or_empty(keywords.get("properties"))
    score -= 5.0 * len(required_names(keywords) - value.keys())
    for key, part in list(value.items())[:MAX_ITEMS]:
        rest = keywords.get("additionalProperties", True)
        schema = fields.get(key, rest)
        inner = inside(schema, part)
        is_known = key in fields and isinstance(schema, dict)
        if inner is None and is_known and "const" in refs.flatten(schema).keywords:
            return None  # the tag of another branch
        known = 1.0 if key in fields else 0.0
        score += -5.0 if inner is None else known + min(inner, 10.0) / 10
    return score


def _list_fit(keywords: Keywords, value: list[Any], inside: _Fit, score: float) -> float:
    first = list_or_empty(keywords.get("prefixItems"))
    rest = keywords.get("items", True)
    if isinstance(rest, list):
        first, rest = rest, keywords.get("additionalItems", True)
    for index, part in enumerate(value[:MAX_ITEMS]):
        schema = first[index] if index < len(first) else rest
        inner = inside(schema, part)
        score += -5.0 if inner is None else min(inner, 10.0) / 100
    return score
