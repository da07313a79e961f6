"""Schema patterns take time in proportion to their weight, and never reach Python's ``re``."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import SchemaError, SchemaValidator, core_schema

from nbagent.core.base.secrets import MASK, SecretPlaces
from nbagent.forms.answer.json_schema import errors_of, misfit
from nbagent.forms.schema.patterns import (
    MAX_STEPS,
    MAX_TOTAL,
    MAX_WEIGHT,
    _ready,
    _weight,
    is_balanced,
    matches,
    unsearched,
)

LOOKS = "(?=a)(a+)+$"
NESTED = "(a+)+$"
"""A pattern that the engine supports; ``re`` needs exponential time for it."""
KEY = "a" * 26 + "!"


@pytest.fixture
def re_patterns(monkeypatch):
    """Patterns passed to Python's ``re``: none should be, since ``re`` might not return."""
    found: list[str] = []
    real = re._compile

    def compiled(pattern, flags):
        if isinstance(pattern, str) and "a+" in pattern:
            found.append(pattern)
            pattern = "never"
        return real(pattern, flags)

    monkeypatch.setattr(re, "_compile", compiled)
    return found


def places(pattern):
    """Schemas with the pattern in every possible place."""
    named = {"type": "object", "patternProperties": {pattern: {"type": "string"}}}
    old = "https://json-schema.org/draft/2019-09/schema"
    return [
        {"type": "object", "properties": {KEY: {"pattern": pattern}}},
        named,
        {**named, "additionalProperties": False},
        {**named, "unevaluatedProperties": False},
        {**named, "$schema": old, "unevaluatedProperties": False},
        {"allOf": [named], "unevaluatedProperties": False},
        {"$schema": old, "allOf": [named], "unevaluatedProperties": False},
        {"type": "object", "propertyNames": {"pattern": pattern}},
        {"$schema": "http://json-schema.org/draft-04/schema#", **named},
        {"$schema": "http://json-schema.org/draft-07/schema#", **named, "additionalProperties": False},
    ]  # fmt: skip


@pytest.mark.parametrize("pattern", [LOOKS, NESTED, r"(a+)+\1$", "(?<!b)(a+)+$"])
def test_no_pattern_of_a_schema_is_passed_to_re(pattern, re_patterns):
    """Neither to search nor to check that the pattern is valid."""
    for schema in places(pattern):
        assert misfit(schema) == ""
        errors = errors_of(schema, {KEY: KEY})
        if pattern != NESTED:
            assert errors == [], schema
    assert re_patterns == []


@pytest.mark.parametrize(
    ("pattern", "refused"), [("^a", True), ("^b", False), ("(?=b)b", False), (r"(b)\1", False)]
)
def test_names_that_may_match_an_unsearched_pattern_are_not_refused_as_unevaluated(
    pattern, refused
):
    """An unsearched pattern may match any name, so no name is refused."""
    for old in ({}, {"$schema": "https://json-schema.org/draft/2019-09/schema"}):
        schema = {
            **old,
            "allOf": [{"patternProperties": {pattern: {}}}],
            "unevaluatedProperties": False,
        }
        assert bool(errors_of(schema, {"bb": 1})) == refused


def test_a_name_that_may_match_an_unsearched_secret_pattern_is_secret(re_patterns):
    """If it is unknown whether a name is secret, its value is masked."""
    for pattern in (LOOKS, NESTED, "^b"):
        schema = {
            "type": "object",
            "patternProperties": {pattern: {"type": "string", "writeOnly": True}},
            "additionalProperties": {"type": "string"},
        }
        shown = SecretPlaces(schema).masked({KEY: "pencil", "plain": "stone"})
        assert shown[KEY] == (MASK if pattern == LOOKS else "pencil")
    assert re_patterns == []


def test_many_patterns_beside_a_secret_are_not_all_searched():
    """Beyond a hundred patterns of one object, any name may be secret."""
    rules = {f"^x{n}": {"type": "string"} for n in range(100)}
    rules["^y"] = {"type": "string", "writeOnly": True}
    assert SecretPlaces({"type": "object", "patternProperties": rules}).masked({"z": "pencil"}) == {"z": MASK}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("^[a-zA-Z0-9_-]{1,128}$", MAX_WEIGHT),
        (r"^[\w.-]{1,64}$", MAX_WEIGHT),
        (r"^\d{4}-\d{2}-\d{2}$", 700),
        ("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", 700),
    ],
)
def test_ordinary_patterns_are_searched(pattern, weight):
    """Patterns of real schemas are within the limit."""
    assert _weight(pattern) <= weight
    assert matches(pattern, "?") is False


@pytest.mark.parametrize(
    "pattern",
    [r"\w{1000}", "((a{100}){100}){100}", r"(?x)\w {1000}", "x" * 2_001, "[a-z]{1,9999}", r"\p{L}{200}"],
)  # fmt: skip
def test_a_heavy_pattern_is_not_searched(pattern):
    """Compiling the pattern would take too long."""
    assert matches(pattern, "a") is None
    assert unsearched({"properties": {"a": {"pattern": pattern}}}) == [pattern]


def test_the_allowed_text_length_depends_on_the_weight_of_the_pattern():
    """A light pattern is searched in a megabyte, a heavy one is not."""
    assert matches("b$", "a" * 1_000_000) is False
    heavy = ".{900}b$"
    assert matches(heavy, "a" * (MAX_STEPS // _weight(heavy))) is False
    assert matches(heavy, "a" * (MAX_STEPS // _weight(heavy) + 1)) is None


def test_a_schema_with_too_many_patterns_is_refused_as_a_whole():
    """Each pattern is light enough, but their sum is not."""
    several = {f"p{n}": {"pattern": rf"^x{n}\w{{90}}"} for n in range(20)}
    assert sum(_weight(each["pattern"]) for each in several.values()) > MAX_TOTAL
    assert "patterns are too many" in misfit({"type": "object", "properties": several})


@pytest.mark.parametrize(
    ("pattern", "balanced"),
    [("(", False), ("a)", False), ("[a", False), ("a\\", False), ("[)]", True), (r"\(", True),
     ("[]a]", True), ("[^]]", True), ("(?<n>a)", True), ("[[]", True), ("", True), (7, True)],
)  # fmt: skip
def test_a_pattern_with_unbalanced_brackets_is_refused(pattern, balanced):
    """Only the brackets are checked."""
    assert is_balanced(pattern) == balanced


atoms = st.sampled_from(
    ["a", ".", r"\w", r"\S", r"\pL", r"\p{Greek}", "[a-z]", r"[^\d_]", "[[:alpha:]-]", r"\x{41}", "é", r"\b", "$", "(?i)"]
)  # fmt: skip
times = st.sampled_from(["", "", "*", "+?", "{3}", "{2,}", "{,7}", "{1,40}", "{90}", "{1000}"])
patterns = st.recursive(
    st.tuples(atoms, times).map("".join),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(st.sampled_from(["(", "(?:", "(?P<n>", "(?i:"]), inner, times).map(
            lambda parts: f"{parts[0]}{parts[1]}){parts[2]}"
        ),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
    ),
    max_leaves=12,
)


@given(patterns)
@example(r"(?:\w{9}){9}")
def test_the_computed_weight_of_a_pattern_is_at_least_that_of_the_engine(pattern):
    """A pattern that is light enough never exceeds the engine's size limit."""
    if _weight(pattern) <= MAX_WEIGHT:
        try:
            SchemaValidator(core_schema.str_schema(pattern=pattern))
        except SchemaError as error:
            assert "size limit" not in str(error)  # noqa: PT017 - it may be no pattern


@given(st.text(max_size=60) | patterns, st.text(max_size=60))
@example("a{4294967296}", "a")
@example("{1}", "a")
@example("[" * 50, "a")
@example("\ud800", "a")
@example("a", "\ud800")
@example(r"\p{", "a")
def test_any_pattern_matches_or_does_not_match_or_is_not_searched(pattern, text):
    """No pattern raises, in any place of a schema."""
    assert matches(pattern, text) in (True, False, None)
    assert (matches(pattern, text) is None) or _ready(pattern) is not None
    is_balanced(pattern)
    for schema in places(pattern):
        if not misfit(schema):
            errors_of(schema, {text: text})
