"""Keywords that are safe on any schema: patterns in linear time, references that may lead nowhere.

Everything else is jsonschema's own, of the draft that a schema names. Loads ``jsonschema``; import it
where a bare schema is validated and not before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable

from .patterns import found
from .values import Json, children, key_of

_Errors = Iterator[ValidationError]
_Keyword = Callable[[Any, Any, Json, Json], _Errors]
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")


def validator_class(schema: Json) -> Any:
    """A validator class for the draft that a schema names, else for the one it is written as."""
    kind: Any = Draft201909Validator if _writes_old_tuples(schema) else Draft202012Validator
    if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
        kind = validator_for(schema, default=kind)
    keywords: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    if kind is Draft202012Validator:
        keywords |= {"items": _items, "additionalItems": _additional_items}
    for word in _REFS:
        if word in kind.VALIDATORS:
            keywords[word] = _follows(kind.VALIDATORS[word])
    return extend(kind, keywords)  # type: ignore[no-untyped-call]


def _writes_old_tuples(schema: Json) -> bool:
    """Whether tuples are lists of ``items``, as before 2020-12, and none is written as today."""
    todo, old = [schema], False
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if "prefixItems" in item or "$dynamicRef" in item:
                return False
            old = old or isinstance(item.get("items"), list)
        todo.extend(children(item))
    return old


def _follows(follow: _Keyword) -> _Keyword:
    """A reference keyword: one that leads out of the document, or in a circle, says nothing."""
    going: set[tuple[int, int, int]] = set()

    def keyword(validator: Any, ref: Any, document: Json, schema: Json) -> _Errors:
        here = (threading.get_ident(), id(schema), id(document))
        if here in going:
            return
        going.add(here)
        try:
            yield from follow(validator, ref, document, schema)
        except Unresolvable:
            return
        finally:
            going.discard(here)

    return keyword


def _items(validator: Any, items: Any, document: Json, schema: Json) -> _Errors:
    """As in 2020-12; a list of items, as older drafts write tuples, as they have it."""
    kind: Any = Draft201909Validator if isinstance(items, list) else Draft202012Validator
    yield from kind.VALIDATORS["items"](validator, items, document, schema)


def _additional_items(validator: Any, rule: Json, document: Json, schema: Json) -> _Errors:
    if isinstance(schema.get("items"), list):
        kind: Any = Draft201909Validator
        yield from kind.VALIDATORS["additionalItems"](validator, rule, document, schema)


def _unique_items(validator: Any, unique: Json, items: Json, schema: Json) -> _Errors:
    """The keyword of jsonschema compares each item with each."""
    del validator, schema
    if unique is True and isinstance(items, list) and len(set(map(key_of, items))) < len(items):
        yield ValidationError("has an item twice")


def _pattern(validator: Any, pattern: str, text: Json, schema: Json) -> _Errors:
    del validator, schema
    if isinstance(text, str) and found(pattern, text) is not True:
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Any, rules: dict[str, Json], document: Json, schema: Json
) -> _Errors:
    del schema
    for pattern, rule in rules.items():
        for key, value in document.items() if isinstance(document, dict) else ():
            if found(pattern, key):
                yield from validator.descend(value, rule, path=key, schema_path=pattern)


def _additional_properties(validator: Any, rule: Json, document: Json, schema: Json) -> _Errors:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in document.items() if isinstance(document, dict) else ():
        if key in known or any(found(pattern, key) for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError("not expected", path=(key,))
        else:
            yield from validator.descend(value, rule, path=key)
