"""Malformed keywords of a schema, put right or left out, so that validation can go on.

A keyword that is well formed is never touched. Unknown types and references that lead out of the
document mean nothing that could be checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .refs import Refs
from .values import Json, is_number

_TYPES = {"null", "boolean", "integer", "number", "string", "array", "object"}
_ONE = ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties",
        "unevaluatedItems", "unevaluatedProperties", "items", "contentSchema")  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


def _count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_WELL: dict[str, Callable[[Json], bool]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    "multipleOf": lambda value: is_number(value) and value > 0,
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
         "minContains", "maxContains"),
        _count,
    ),
    "required": _names,
    "enum": lambda value: isinstance(value, list),
    "uniqueItems": lambda value: isinstance(value, bool),
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_names, value.values())),
    "format": lambda value: isinstance(value, str),
}  # fmt: skip


def repaired(schema: Json) -> Json:
    """A schema that a 2020-12 validator can work with."""
    return _repair(schema, Refs(schema))


def _repair(schema: Json, refs: Refs) -> Json:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return True
    words = dict(schema)
    _tuples(words)
    for word in list(words):
        kept = _keyword(word, words[word], refs)
        if kept is None:
            del words[word]
        else:
            words[word] = kept[0]
    return words


def _tuples(words: dict[str, Any]) -> None:
    """Draft 7 wrote the parts of a tuple as a list of ``items``."""
    parts = words.get("items")
    if isinstance(parts, list):
        del words["items"]
        words.setdefault("prefixItems", parts)
        if "additionalItems" in words:
            words["items"] = words["additionalItems"]


def _keyword(word: str, value: Json, refs: Refs) -> tuple[Json] | None:
    """The keyword's value in a tuple, or None to leave it out."""
    if word in _ONE:
        return (_repair(value, refs),) if isinstance(value, dict | bool) else None
    if word in _MANY:
        usable = isinstance(value, list) and bool(value)
        return ([_repair(each, refs) for each in value],) if usable else None
    if word in _NAMED:
        usable = isinstance(value, dict)
        return ({name: _repair(each, refs) for name, each in value.items()},) if usable else None
    return _plain(word, value, refs)


def _plain(word: str, value: Json, refs: Refs) -> tuple[Json] | None:
    if word == "type":
        listed = value if isinstance(value, list) else [value]
        known = all(isinstance(each, str) and each in _TYPES for each in listed)
        return (value,) if listed and known else None
    if word == "$ref":
        return (value,) if isinstance(value, str) and _ends(value, refs) else None
    if word == "pattern":
        return (value,) if _compiles(value) else None
    if word in ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$schema"):
        return (value,) if isinstance(value, str) else None
    check = _WELL.get(word)
    return (value,) if check is None or check(value) else None


def _ends(ref: str, refs: Refs) -> bool:
    """Whether a reference leads to a schema in this document, and not in a circle of references."""
    seen: set[str] = set()
    while ref not in seen:
        seen.add(ref)
        target = refs.target(ref)
        if not isinstance(target, dict):
            return target is not None
        following = target.get("$ref")
        if not isinstance(following, str):
            return True
        ref = following
    return False


def _compiles(pattern: Json) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True
