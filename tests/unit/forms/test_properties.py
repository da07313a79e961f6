"""Properties over random schemas, documents and drafts."""

import json
from datetime import date
from decimal import Decimal
from typing import Literal

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, SecretStr

from nbagent.forms.form import Form
from tests.unit.forms.drawn import drawn

RELAXED = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)


def nested(leaf, keys):
    """JSON with these leaves and these keys."""
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=14,
    )


documents = nested(scalars, st.text(max_size=5))

WORDS = (
    "type", "properties", "items", "prefixItems", "additionalProperties", "patternProperties",
    "required", "enum", "const", "default", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
    "$ref", "$defs", "$id", "$anchor", "title", "description", "format", "minimum", "maximum",
    "exclusiveMinimum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems",
    "uniqueItems", "dependencies", "dependentRequired", "propertyNames", "discriminator", "nbagent",
    "x-nbagent", "examples", "readOnly", "writeOnly", "enumNames", "contentEncoding", "a", "b",
)  # fmt: skip
NAMES = (
    "string", "integer", "number", "boolean", "object", "array", "null", "any", "#", "#/$defs/a",
    "#/properties/a", "http://127.0.0.1:9/x", "date", "password", "base64", "(", "^a", "a", "",
)  # fmt: skip
rough_schemas = st.dictionaries(
    st.sampled_from(WORDS),
    nested(scalars | st.sampled_from(NAMES), st.sampled_from(WORDS)),
    max_size=8,
)


@RELAXED
@given(schema=rough_schemas | st.booleans(), document=documents)
def test_any_json_as_a_schema_gives_a_form_that_keeps_any_document(schema, document):
    """Even for a malformed schema, building and submitting never raise, and nothing changes."""
    form = Form(schema, value=document)
    json.dumps(form.spec(), allow_nan=False)
    answer = form.submit(None)
    assert answer.json_text is not None
    assert json.dumps(json.loads(answer.json_text)) == json.dumps(document)
    assert answer.ok is not bool(answer.errors)
    empty = Form(schema)
    empty.submit(None)
    drawn(form, document)


def good_schemas():
    """Well-formed schemas of the kinds that tools have."""
    plain = st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "minLength": 1, "maxLength": 5},
            {"type": "string", "format": "date"},
            {"type": "integer", "minimum": 0, "maximum": 9},
            {"type": "number"},
            {"type": "boolean"},
            {"enum": ["a", "b", "c"]},
            {"enum": [1, "two", None, True]},
            {"const": "only"},
            {"type": ["string", "null"]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"anyOf": [{"enum": ["x", "y"]}, {"type": "string"}]},
            {"anyOf": [{"type": "number"}, {"type": "string"}]},
            {"type": "array", "items": {"enum": ["p", "q"]}, "uniqueItems": True},
            {},
        ]
    )

    def wider(inner):
        names = st.sampled_from(["a", "b/c", "d|0", "", "e*"])
        fields = st.dictionaries(names, inner, max_size=3)
        objects = st.builds(
            lambda fields, need, rest: {
                "type": "object",
                "properties": fields,
                "required": [key for key, wanted in zip(fields, need, strict=False) if wanted],
                "additionalProperties": rest,
            },
            fields,
            st.lists(st.booleans(), min_size=3, max_size=3),
            st.booleans() | inner,
        )
        lists = st.builds(lambda item: {"type": "array", "items": item, "maxItems": 4}, inner)
        maps = st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner)
        unions = st.builds(
            lambda one, other, word: {word: [one, other, {"type": "null"}]},
            inner,
            inner,
            st.sampled_from(["anyOf", "oneOf"]),
        )
        pairs = st.builds(
            lambda one, two: {"type": "array", "prefixItems": [one, two], "items": False},
            inner,
            inner,
        )
        return objects | lists | maps | unions | pairs

    return st.recursive(plain, wider, max_leaves=6)


def fitting(schema):
    """Documents for one of ``good_schemas``; hypothesis-jsonschema makes the parts without fields."""
    if "properties" in schema:
        parts = {key: fitting(part) for key, part in schema["properties"].items()}
        needed = {key: parts.pop(key) for key in schema["required"]}
        return st.fixed_dictionaries(needed, optional=parts)
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.text(max_size=3), fitting(schema["additionalProperties"]), max_size=3
        )
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return st.one_of(*map(fitting, schema[word]))
    if "prefixItems" in schema:
        return st.tuples(*map(fitting, schema["prefixItems"])).map(list)
    if "maxItems" in schema:
        return st.lists(fitting(schema["items"]), max_size=4)
    return from_schema(schema)


@RELAXED
@given(data=st.data(), schema=good_schemas())
def test_a_valid_document_is_kept_and_accepted(data, schema):
    """A prefilled document is returned unchanged and accepted."""
    document = data.draw(fitting(schema))
    assume(Draft202012Validator(schema).is_valid(document))
    form = Form(schema, value=document)
    answer = form.submit(None)
    assert json.dumps(json.loads(answer.json_text)) == json.dumps(document)
    assert answer.ok, answer.errors


@RELAXED
@given(schema=good_schemas(), document=documents)
def test_the_form_accepts_exactly_what_the_validator_accepts(schema, document):
    """A form accepts a document exactly if the schema does; otherwise it has errors."""
    answer = Form(schema, value=document).submit(None)
    assert answer.ok is Draft202012Validator(schema).is_valid(document)
    assert answer.ok is not bool(answer.errors)


class Part(BaseModel):
    """A little of everything, inside."""

    name: str
    inner: "Part | None" = None


class Everything(BaseModel):
    """A field of every kind."""

    text: str
    number: int
    price: Decimal = Decimal("1.0")
    day: date
    flag: bool
    pick: Literal["a", "b"]
    open_pick: Literal["a", "b"] | str = "a"
    many: set[Literal["a", "b"]] = set()
    either: int | list[str] = 1
    part: Part
    parts: list[Part] = []
    table: dict[str, Part] = {}
    pair: tuple[int, str] = (1, "x")
    token: SecretStr = SecretStr("x")
    limited: int = Field(default=1, ge=0, le=9)


DRAFT_WORDS = (
    "text", "cleared", "empty", "null", "bool", "option", "other", "options", "others", "fields",
    "parts", "rows", "from", "draft", "entries", "key", "branch", "open", "file", "json", "more",
    *Everything.model_fields, "name", "inner",
)  # fmt: skip
drafts = nested(
    scalars | st.sampled_from([True, 0, 1, "1", "x", "[]", '{"a": 1}', "\ud800"]),
    st.sampled_from(DRAFT_WORDS),
)
shaped = st.fixed_dictionaries(
    {
        "fields": st.dictionaries(
            st.sampled_from([*Everything.model_fields, "none"]), drafts, max_size=6
        )
    }
)
FORMS = [
    Form(Everything),
    Form(Everything, value={"text": "t", "parts": [{"name": "n"}], "table": {"k": {"name": "m"}}}),
    Form(Everything, value={"number": "x"}, editable=["text"]),
    Form(int | Part),
    Form({"type": "object", "properties": {"text": {"default": 1}}, "additionalProperties": {}}),
    Form.choose([("a", None, None), (2, "two", "help")], multiple=True, allow_other=True),
]


@RELAXED
@given(draft=drafts | shaped | documents, which=st.sampled_from(range(len(FORMS))))
def test_any_json_as_drafts_is_an_answer_or_errors_at_fields(draft, which):
    """Whatever a page sends, submitting never raises, and a refusal has errors."""
    form = FORMS[which]
    answer = form.submit(draft)
    assert answer.ok is not bool(answer.errors)
    for field, path, message in answer.errors:
        assert field is None or isinstance(field, str)
        assert isinstance(path, tuple)
        assert message
    if answer.json_text is not None:
        json.loads(answer.json_text)


@RELAXED
@given(draft=drafts | shaped)
def test_a_read_only_form_returns_its_document_or_refuses(draft):
    """No draft changes a read-only value."""
    document = {"text": "t", "parts": [{"name": "n"}], "extra": [1.0, {"k": None}]}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    answer = Form(schema, value=document, editable=False).submit(draft)
    if answer.ok:
        assert json.dumps(json.loads(answer.json_text)) == json.dumps(document)
