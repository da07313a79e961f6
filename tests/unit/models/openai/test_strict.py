"""Tests which schemas are strict without changes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from nbagent.models.openai.encoding import as_strict, is_strict

NUMBER = {"type": "integer"}


def closed_object(**properties: Any) -> dict[str, Any]:
    """An object with only these properties, all required."""
    names = list(properties)
    own = {"properties": properties, "required": names, "additionalProperties": False}
    return {"type": "object", **own}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = dict(NUMBER)
    for _ in range(levels - 1):
        schema = closed_object(a=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        closed_object(),
        closed_object(a=NUMBER, b={"type": "string", "description": "Some", "title": "B"}),
        closed_object(a={"type": ["string", "null"]}),
        closed_object(a={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        closed_object(a={"enum": ["x", "y"]}, b={"const": 3}),
        closed_object(a={"type": "array", "items": closed_object(b=NUMBER), "minItems": 1}),
        closed_object(a={"type": "string", "format": "date", "pattern": "^2"}),
        {**closed_object(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed_object(b=NUMBER)}},
        nested(10),
    ],
)
def test_a_schema_that_satisfies_the_rules_is_strict(schema: dict[str, Any]) -> None:
    """All properties required, no others allowed, only supported keywords."""
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": NUMBER}, "required": ["a"]},
        {**closed_object(a=NUMBER), "required": []},
        {**closed_object(a=NUMBER), "additionalProperties": True},
        {**closed_object(a=NUMBER), "additionalProperties": {"type": "string"}},
        closed_object(a={"type": "integer", "default": 3}),
        closed_object(a={"type": "object", "additionalProperties": NUMBER}),
        closed_object(a={"type": "array"}),
        closed_object(a={"type": "array", "prefixItems": [NUMBER], "items": NUMBER}),
        closed_object(a={"type": "string", "minLength": 1}),
        closed_object(a={"type": "string", "format": "uri"}),
        closed_object(a={"oneOf": [NUMBER]}),
        closed_object(a={"allOf": [NUMBER]}),
        closed_object(a={"$ref": "#/$defs/A", "default": 1}),
        {
            **closed_object(a={"$ref": "#/$defs/A"}),
            "$defs": {"A": {"type": "object", "properties": {}}},
        },
        closed_object(a={}),
        closed_object(a=True),
        {"anyOf": [closed_object(a=NUMBER)]},
        {"type": "array", "items": NUMBER},
        closed_object(**{f"p{n}": NUMBER for n in range(5_001)}),
        closed_object(a={"enum": list(range(1_001))}),
        nested(11),
    ],
)
def test_a_schema_that_breaks_a_rule_is_not_strict(schema: dict[str, Any]) -> None:
    """Such a schema is sent as not strict."""
    assert not is_strict(schema)


class Place(BaseModel):
    """Where."""

    name: str
    note: str | None


class Trip(BaseModel):
    """From a plain model, as people write them."""

    places: list[Place]
    home: Place


def test_the_schema_of_a_plain_model_is_sent_strict() -> None:
    """Objects are closed in a copy; a schema with a default or with free keys is sent unchanged."""
    plain = Trip.model_json_schema()
    sent = as_strict(plain)
    assert sent is not None
    assert is_strict(sent)
    assert not is_strict(plain)
    assert sent["$defs"]["Place"] == {**plain["$defs"]["Place"], "additionalProperties": False}
    assert plain == Trip.model_json_schema()
    for loose in (
        {"type": "object", "properties": {"a": {**NUMBER, "default": 3}}},
        closed_object(a={"type": "object", "additionalProperties": NUMBER}),
        {"type": "object", "properties": {"a": NUMBER}, "additionalProperties": True},
    ):
        assert as_strict(loose) is None
