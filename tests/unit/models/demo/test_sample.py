"""Sample inputs fit their schemas: generated schemas, and schemas of real tools and forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.models.demo.sample import NoSample, fits, sample
from tests.shared import published

PLAIN = st.sampled_from(
    [{}, True, {"type": "boolean"}, {"type": "null"}, {"type": ["null", "integer"]}]
)
VALUES = st.lists(st.none() | st.booleans() | st.integers() | st.text(max_size=4), min_size=1)
LEAVES = PLAIN | VALUES.map(lambda values: {"enum": values})


def validate(schema: Any, value: Any) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)


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
        "propertyNames": st.just({"pattern": "^[A-Z]{2}$"}),
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


def test_a_full_stack_in_the_library_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own panic, which a schema can cause, is no ``Exception``; other such errors pass."""

    def raising(error: BaseException) -> Callable[[Any], Any]:
        def raise_it(_schema: Any) -> Any:
            raise error

        return raise_it

    panic = type("PanicException", (BaseException,), {})
    monkeypatch.setattr("nbagent.models.demo.sample._validator", raising(panic()))
    assert not fits({}, 1)
    with pytest.raises(NoSample):
        sample({})
    monkeypatch.setattr("nbagent.models.demo.sample._validator", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sample({})


SAMPLES = {
    "an example": ({"type": "string", "examples": ["Lima"]}, "Lima"),
    "a default": ({"type": "integer", "default": 7}, 7),
    "a default that does not fit": ({"type": "integer", "default": None, "minimum": 3}, 3),
    "a step": ({"type": "integer", "exclusiveMinimum": 7, "maximum": 12, "multipleOf": 5}, 10),
    "only what is required": (
        {"properties": {"city": {"type": "string"}, "x": {}}, "required": ["city"]},
        {"city": "example"},
    ),
    "a reference": (
        {
            "$defs": {"mail": {"type": "string", "format": "email"}},
            "properties": {"to": {"$ref": "#/$defs/mail"}},
            "required": ["to"],
        },
        {"to": "ada@example.com"},
    ),
    "parts that all hold": (
        {"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}], "type": "object"},
        {"a": 1},
    ),
    "one of several": ({"anyOf": [False, {"type": "boolean"}]}, True),
    "a length": ({"type": "string", "minLength": 9, "maxLength": 10}, "exampleexa"),
    "a list": ({"type": "array", "items": {"type": "null"}, "minItems": 2}, [None, None]),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_sample_is_small_and_follows_the_schema(kind: str) -> None:
    """Examples and defaults come first; else the value is minimal."""
    schema, expected = SAMPLES[kind]
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
