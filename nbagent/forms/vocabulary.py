"""The 2020-12 keywords that search patterns, in linear time; everything else is jsonschema's own.

Loads ``jsonschema``; import it where a bare schema is validated and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from .patterns import found
from .values import Json


def _pattern(validator: Any, pattern: str, text: Json, schema: Json) -> Iterator[ValidationError]:
    del validator, schema
    if isinstance(text, str) and found(pattern, text) is not True:
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Any, rules: dict[str, Json], document: Json, schema: Json
) -> Iterator[ValidationError]:
    del schema
    for pattern, rule in rules.items():
        for key, value in document.items() if isinstance(document, dict) else ():
            if found(pattern, key):
                yield from validator.descend(value, rule, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, rule: Json, document: Json, schema: Json
) -> Iterator[ValidationError]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in document.items() if isinstance(document, dict) else ():
        if key in known or any(found(pattern, key) for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError("not expected", path=(key,))
        else:
            yield from validator.descend(value, rule, path=key)


Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
"""Draft 2020-12, safe against patterns that explode."""
