"""Sample inputs fit their schemas: generated schemas, and schemas of real tools and forms."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.models.demo.sample import NoSample, fits, sample
from tests.shared import published

TEXT = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 30),
        "maxLength": st.integers(30, 60),
        "title": st.text(max_size=5),
    },
)
FORMATTED = st.sampled_from(
    ["date", "time", "date-time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"]
).map(lambda name: {"type": "string", "format": name})
PATTERNS = st.sampled_from(
    [
        r"^[A-Z]{2}\d{4}$",
        r"^#[0-9a-f]{6}$",
        r"^(\d{3}-)?\d{4}$",
        r"^v\d+\.\d+$",
        "^(foo|bar)$",
        "x?y+",
    ]
).map(lambda pattern: {"type": "string", "pattern": pattern})
NUMBERS = st.builds(
    lambda kind, low, span, step: {
        "type": kind,
        "minimum": low,
        "maximum": low + span + 2 * step,
        "multipleOf": step,
    },
    st.sampled_from(["integer", "number"]),
    st.integers(-1000, 1000),
    st.integers(0, 50),
    st.integers(1, 9),
)
OPEN = st.builds(
    lambda low, span: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + span},
    st.integers(-50, 50),
    st.floats(0.25, 9),
)
VALUES = st.lists(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4), min_size=1, max_size=3
)
ENUMS = st.builds(lambda values: {"enum": values}, VALUES)
CONSTS = st.builds(lambda values: {"const": values[0]}, VALUES)
PLAIN = st.sampled_from(
    [{}, True, {"type": "boolean"}, {"type": "null"}, {"type": ["null", "integer"]}]
)
LEAVES = TEXT | FORMATTED | PATTERNS | NUMBERS | OPEN | ENUMS | CONSTS | PLAIN


def nested(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text("abcdefgh_", min_size=1, max_size=6)
    objects = st.dictionaries(names, parts, max_size=4).flatmap(
        lambda properties: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(properties),
                "required": st.lists(st.sampled_from(sorted(properties)), unique=True)
                if properties
                else st.just([]),
                "additionalProperties": st.booleans(),
            }
        )
    )
    arrays = st.builds(
        lambda items, low, span: {
            "type": "array",
            "items": items,
            "minItems": low,
            "maxItems": low + span,
        },
        parts,
        st.integers(0, 3),
        st.integers(0, 3),
    )
    unions = st.builds(lambda options: {"anyOf": options}, st.lists(parts, min_size=1, max_size=3))
    referred = st.builds(lambda part: {"allOf": [{"title": "x"}, part]}, parts)
    return objects | arrays | unions | referred


SCHEMAS = st.recursive(LEAVES, nested, max_leaves=8)


def validate(schema: Any, value: Any) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)


@given(SCHEMAS)
def test_a_sample_fits_its_schema(schema: Any) -> None:
    """Every generated schema can be satisfied, so each has a valid sample."""
    value = sample(schema)
    validate(schema, value)
    json.dumps(value, allow_nan=False)


ANYWHERE = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "array", "object", "boolean"]),
        "minLength": st.integers(0, 9),
        "pattern": st.sampled_from(["^a", "b$", "(", "[0-9]+"]),
        "minimum": st.floats(-9, 9),
        "items": PLAIN,
        "minItems": st.integers(0, 3),
        "contains": PLAIN,
        "uniqueItems": st.booleans(),
        "required": st.lists(st.text(max_size=3), max_size=3, unique=True),
        "minProperties": st.integers(0, 3),
        "propertyNames": PATTERNS,
        "$ref": st.sampled_from(["#", "#/nowhere", "http://127.0.0.1:9/x", "#/$defs/a"]),
        "$defs": st.sampled_from([{"a": {"type": "integer"}}, {"a": {"$ref": "#/$defs/a"}}]),
        "not": LEAVES,
        "if": LEAVES,
        "then": LEAVES,
        "else": LEAVES,
        "allOf": st.lists(LEAVES, min_size=1, max_size=2),
        "oneOf": st.lists(LEAVES, min_size=1, max_size=2),
    },
)


@given(ANYWHERE)
def test_any_foreign_schema_gives_a_valid_sample_or_none(schema: dict[str, Any]) -> None:
    """Broken patterns, loops and foreign references raise NoSample, and never give a wrong value."""
    try:
        value = sample(schema)
    except NoSample:
        return
    validate(schema, value)


SUGGESTED = {
    "an example": ({"type": "string", "examples": ["Lima"]}, "Lima"),
    "a default": ({"type": "integer", "default": 7}, 7),
    "a default that does not fit": ({"type": "integer", "default": None, "minimum": 3}, 3),
    "only what is required": (
        {"properties": {"city": {"type": "string"}, "x": {}}, "required": ["city"]},
        {"city": "Paris"},
    ),
    "a reference": (
        {
            "$defs": {"mail": {"type": "string", "format": "email"}},
            "properties": {"to": {"$ref": "#/$defs/mail"}},
            "required": ["to"],
        },
        {"to": "ada@example.com"},
    ),
    "a list": ({"type": "array", "items": {"type": "string"}}, ["example", "sample"]),
}


@pytest.mark.parametrize("kind", SUGGESTED)
def test_a_sample_follows_the_suggestions_of_the_schema(kind: str) -> None:
    """Examples and defaults come first; names suggest readable values."""
    schema, expected = SUGGESTED[kind]
    assert sample(schema) == expected


@pytest.mark.parametrize("schema", [False, {"enum": []}, {"type": "integer", "enum": ["a"]}])
def test_an_unsatisfiable_schema_has_no_sample(schema: Any) -> None:
    """No value is invented."""
    with pytest.raises(NoSample):
        sample(schema)


def test_fits_checks_formats_and_refuses_broken_schemas() -> None:
    """The demo checks inputs as strictly as a form does."""
    assert fits({"format": "ipv4"}, "192.0.2.1")
    assert not fits({"format": "ipv4"}, "999.0.2.1")
    assert not fits({"pattern": "("}, "a")


@pytest.mark.parametrize("corpus", ["github-mcp-tools", "mcp", "bfcl-simple", "rjsf-playground-v3"])
def test_real_tools_get_samples(corpus: str) -> None:
    """Each schema has a sample, except one that no value satisfies."""
    without = []
    for case in published(corpus):
        try:
            assert fits(case["schema"], sample(case["schema"]))
        except NoSample:
            without.append(case["id"])
    # an array that must equal one of several strings
    assert without == (["live_simple_71-35-0"] if corpus == "bfcl-simple" else [])
