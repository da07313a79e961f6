"""Whether a schema is one that OpenAI can hold a model to, exactly as it stands.

Format: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = frozenset(
    (
        *("title", "description", "$defs", "definitions", "$ref", "type", "enum", "const", "anyOf"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("pattern", "format"),
    )
)
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_MAX_PROPERTIES = 5_000
_MAX_LEVELS = 10
_MAX_TEXT = 120_000
"""Characters of all names, definitions and values of enums."""
_MAX_VALUES = 1_000
"""Values of all enums."""


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether the schema satisfies the rules of strict mode as it is; it is never changed to.

    All properties are required, nothing else is allowed, nothing has a default, and only keywords are used
    that the mode has.
    """
    counted = _Counted()
    is_object = schema.get("type") == "object" and "anyOf" not in schema
    return is_object and _fits(schema, 1, counted) and counted.within()


class _Counted:
    """What the mode limits over a whole schema."""

    def __init__(self) -> None:
        self.properties = 0
        self.values = 0
        self.text = 0

    def within(self) -> bool:
        return (
            self.properties <= _MAX_PROPERTIES
            and self.values <= _MAX_VALUES
            and self.text <= _MAX_TEXT
        )


def _fits(schema: Any, level: int, counted: _Counted) -> bool:
    if not isinstance(schema, Mapping) or level > _MAX_LEVELS or not schema.keys() <= _WORDS:
        return False
    if not {"type", "$ref", "anyOf", "enum", "const"} & schema.keys():
        return False  # anything goes
    if "$ref" in schema and schema.keys() - {"$ref", "description", "title"}:
        return False
    if schema.get("format", "uuid") not in _FORMATS:
        return False
    values = schema.get("enum", ())
    counted.values += len(values)
    counted.text += sum(len(str(value)) for value in values)
    if not _object_fits(schema, level, counted):
        return False
    inside = [*schema.get("anyOf", ())]
    if "array" in _types(schema):
        inside.append(schema.get("items"))
    for name in ("$defs", "definitions"):
        counted.text += sum(map(len, schema.get(name, {})))
        inside += schema.get(name, {}).values()
    return all(_fits(each, level + 1, counted) for each in inside)


def _object_fits(schema: Mapping[str, Any], level: int, counted: _Counted) -> bool:
    if "object" not in _types(schema):
        return not {"properties", "required", "additionalProperties"} & schema.keys()
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return False
    if sorted(schema.get("required", ())) != sorted(properties):
        return False
    counted.properties += len(properties)
    counted.text += sum(map(len, properties))
    return all(_fits(each, level + 1, counted) for each in properties.values())


def _types(schema: Mapping[str, Any]) -> list[Any]:
    said = schema.get("type", ())
    return [said] if isinstance(said, str) else [*said]
