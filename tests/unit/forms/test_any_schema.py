"""Properties of forms for random JSON Schemas, well-formed or not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nbagent.forms.form import Form
from tests.unit.forms.drawn import drawn
from tests.unit.forms.judging import broken_versions, ids, offered, oracle, scalars, verdict
from tests.unit.forms.test_properties import RELAXED, nested
from tests.unit.forms.test_properties import scalars as any_scalar

NAMES = ("a", "b", "a/b", "~", "%25", "", "$ref", "kind", "type", "properties", "ü", "0")
REFS = (
    "#", "#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/a", "#anchor", "#/$defs/a~1b", "#/$defs/~0",
    "#/$defs/%2525", "other", "other#/$defs/a", "https://example.org/else", "#/allOf/0", "#/items",
    "https://json-schema.org/draft/2020-12/schema", "#/$defs", "#/nowhere",
)  # fmt: skip
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#", "http://x/y",
)  # fmt: skip
values = nested(any_scalar | st.sampled_from(NAMES), st.sampled_from(NAMES))
counts = st.integers(0, 3)
types = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
names = st.sampled_from(NAMES)


def plain() -> dict[str, st.SearchStrategy[Any]]:
    """Keywords without schemas in their value."""
    numbers = st.integers(-3, 9) | st.sampled_from([0.5, 1.0, 1e300])
    return {
        "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
        "enum": st.lists(values, min_size=1, max_size=4, unique_by=json.dumps),
        "const": values,
        "default": values,
        "examples": st.lists(values, max_size=2),
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": counts,
        "maxLength": counts,
        "pattern": st.sampled_from(["^a", "b$", r"\d+", "[^/]", r"^\p{L}+$", "(?=a)"]),
        "format": st.sampled_from(["date", "email", "password", "uuid", "binary", "strange"]),
        "minItems": counts,
        "maxItems": counts,
        "uniqueItems": st.booleans(),
        "required": st.lists(names, max_size=2, unique=True),
        "minProperties": counts,
        "maxProperties": counts,
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=1),
        "readOnly": st.booleans(),
        "writeOnly": st.booleans(),
        "deprecated": st.booleans(),
        "nullable": st.booleans(),
        "title": st.sampled_from(["A title", "", "<b>"]),
        "description": st.text(max_size=5),
        "discriminator": st.just({"propertyName": "kind"}),
        "$ref": st.sampled_from(REFS),
        "$dynamicRef": st.sampled_from(["#anchor", "#"]),
        "$comment": st.just("x"),
        "x-nbagent": st.just({"kind": "decimal", "reason": "x"}),
        "nbagent": st.just({"widget": "slider", "order": 1}),
    }  # fmt: skip


def holding(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Keywords with schemas in their value."""
    fields = st.dictionaries(names, inner, max_size=3)
    listed = st.lists(inner, min_size=1, max_size=3)
    patterns = st.dictionaries(st.sampled_from(["^a", "b", ""]), inner, max_size=2)
    one = {"not", "if", "then", "else", "contains", "propertyNames", "additionalProperties",
           "unevaluatedProperties", "unevaluatedItems", "items"}  # fmt: skip
    return {
        **dict.fromkeys(sorted(one), inner),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), listed),
        **dict.fromkeys(("properties", "dependentSchemas"), fields),
        "patternProperties": patterns,
    }


def bodies(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A schema of one to five random keywords."""
    every = plain() | holding(inner)
    some = st.lists(st.sampled_from(sorted(every)), min_size=1, max_size=5, unique=True)
    return some.flatmap(lambda words: st.fixed_dictionaries({word: every[word] for word in words}))


parts = st.recursive(
    st.booleans() | st.sampled_from([{"type": "string"}, {"type": "integer"}, {"const": "x"}]),
    bodies,
    max_leaves=8,
)
roots = st.builds(
    lambda body, defs, draft: {
        **({"$schema": draft} if draft else {}),
        **(body if isinstance(body, dict) else {}),
        "$defs": {
            **defs,
            "a/b": {"$anchor": "anchor", "type": "integer"},
            "c": {"$id": "other", "type": "string"},
        },
    },
    parts,
    st.fixed_dictionaries({"a": parts, "b": parts}),
    st.none() | st.sampled_from(DRAFTS),
)


def _wrong(schema: Any, word: str, value: Any) -> Any:
    """The schema with this value for one keyword."""
    return {**schema, word: value}


@RELAXED
@given(schema=roots, document=values)
def test_any_schema_accepts_exactly_what_its_validator_accepts(schema: Any, document: Any) -> None:
    """Documents are kept and validated exactly; errors are at existing fields or in the summary."""
    validator = oracle(schema)
    for each in [document, *list(broken_versions(document))[:4]]:
        form = Form(schema, value=each)
        json.dumps(form.spec(), allow_nan=False)
        answer = form.submit(None)
        assert answer.json_text is not None
        assert json.dumps(json.loads(answer.json_text)) == json.dumps(each)
        assert answer.ok is not bool(answer.errors)
        assert {field for field, _, _ in answer.errors} <= ids(form.fields) | {None}
        expected = None if validator is None else verdict(validator, each)
        assert expected is None or answer.ok is expected, answer.errors
        drawn(form, each)


@RELAXED
@given(schema=roots)
def test_an_untouched_form_of_any_schema_invents_no_answer(schema: Any) -> None:
    """Every value comes from the schema's defaults and constants."""
    answer = Form(schema).submit(None)
    if answer.json_text is not None:
        assert scalars(answer.document) <= offered(schema)


@RELAXED
@given(
    schema=roots,
    word=st.sampled_from(sorted(plain() | holding(st.none()))),
    value=values,
    document=values,
)
def test_a_keyword_can_have_any_value(schema: Any, word: str, value: Any, document: Any) -> None:
    """``"minimum": "5"`` and ``"required": true`` are in real schemas."""
    form = Form(_wrong(schema, word, value), value=document)
    json.dumps(form.spec(), allow_nan=False)
    answer = form.submit(None)
    assert json.dumps(json.loads(answer.json_text or "")) == json.dumps(document)
    told = [message for _, _, message in answer.errors if "could not be checked" in message]
    assert not [message for message in told if "nested too deeply" not in message], answer
