"""Malformed keywords of a schema, repaired or left out, so that validation can continue.

Well-formed keywords are never changed. Types with unknown names are left out, because they cannot be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from nbagent.forms.schema.match import TYPES
from nbagent.forms.values import ABSENT, Json, is_number

_SCHEMA = ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties",
        "unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema")  # fmt: skip
_SCHEMA_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAP = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_EXPLAINED_PREFIXES = ("additional", "unevaluated")
"""Beginnings of keywords with their own message about values that a plain ``false`` forbids."""
_OLD = ("draft-03", "draft-04")
"""Drafts in which ``exclusiveMinimum`` is a truth value; schemas of draft 3 are not repaired at all."""


def _are_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_address(value: Json) -> bool:
    try:
        return isinstance(value, str) and urlsplit(value) is not None
    except ValueError:
        return False


_WELL_FORMED: dict[str, Callable[[Json], bool]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    **dict.fromkeys(("multipleOf", "divisibleBy"), lambda value: is_number(value) and value > 0),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
         "minContains", "maxContains"),
        lambda value: is_number(value) and value >= 0 and value == value // 1,
    ),
    **dict.fromkeys(("$id", "$ref", "$dynamicRef", "$recursiveRef"), _is_address),
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "format"), lambda value: isinstance(value, str)),
    "required": _are_names,
    "enum": lambda value: isinstance(value, list),
    "uniqueItems": lambda value: isinstance(value, bool),
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
    "pattern": lambda value: isinstance(value, str),
}  # fmt: skip


def repaired(schema: Json) -> Json:
    """A schema that a validator of its draft can use.

    The result names no draft, because jsonschema would switch to its own validator of a named draft.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    draft = next((each for each in _OLD if isinstance(named, str) and each in named), "")
    if draft == "draft-03":
        return {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    return _repair(schema, draft)


def _repair(schema: Json, draft: str) -> Json:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}  # jsonschema reports no place for a plain ``false``
    if not isinstance(schema, dict):
        return True
    keywords = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    if draft != "draft-04":
        _limits(keywords)
    kept = {keyword: _keyword(keyword, value, draft) for keyword, value in keywords.items()}
    return {keyword: value for keyword, value in kept.items() if value is not ABSENT}


def _limits(keywords: dict[str, Any]) -> None:
    """Rewrite exclusive limits of draft 4, which are a truth value beside the limit."""
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if keywords.get(exclusive) is True and is_number(keywords.get(limit)):
            keywords[exclusive] = keywords.pop(limit)


def _keyword(keyword: str, value: Json, draft: str) -> Json:
    """The keyword's value, or ``ABSENT`` to leave it out."""
    if keyword in _SCHEMA_LIST or (keyword == "items" and isinstance(value, list)):
        is_list = value and isinstance(value, list)
        return [_repair(each, draft) for each in value] if is_list else ABSENT
    if keyword in _SCHEMA or keyword == "items":
        return _single(keyword, value, draft)
    if keyword in _SCHEMA_MAP or keyword == "dependencies":
        if not isinstance(value, dict):
            return ABSENT
        may_name = keyword == "dependencies"
        return {
            name: each if may_name and _are_names(each) else _repair(each, draft)
            for name, each in value.items()
        }
    return value if _is_usable(keyword, value, draft) else ABSENT


def _single(keyword: str, value: Json, draft: str) -> Json:
    if isinstance(value, bool) and (
        keyword.startswith(_EXPLAINED_PREFIXES) or (keyword == "items" and not draft)
    ):
        return value
    return _repair(value, draft) if isinstance(value, dict | bool) else ABSENT


def _is_usable(keyword: str, value: Json, draft: str) -> bool:
    if keyword == "type":
        listed = value if isinstance(value, list) else [value]
        return bool(listed) and all(isinstance(each, str) and each in TYPES for each in listed)
    if draft == "draft-04" and keyword.startswith("exclusive"):
        return isinstance(value, bool)
    check = _WELL_FORMED.get(keyword)
    return check is None or check(value)
