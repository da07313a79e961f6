"""Every error is at its field, at its group or in the summary (docs/forms.md)."""

import json
import re
from typing import Annotated, Literal

import pytest
from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    create_model,
    field_validator,
)

from nbagent.forms.form import Form


class Inner(BaseModel):
    street: str
    zip: int

    @field_validator("street")
    @classmethod
    def capital(cls, value):
        """Wants a capital."""
        if value.islower():
            raise ValueError("no capital")
        return value


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


class A(BaseModel):
    x: int
    y: int


class B(BaseModel):
    x: str
    z: int


class Lives(BaseModel):
    lives: int


TAGGED = Annotated[
    Annotated[Lives, Tag("many")] | Annotated[Dog, Tag("one")],
    Discriminator(lambda value: "many" if "lives" in value else "one"),
]
POSITIVE = Annotated[int, Field(gt=0)]
SMALL = Annotated[int, Field(gt=100)]


def named(value):
    """A test id that is equal in every process: sets sorted, functions without address."""
    if isinstance(value, set):
        return ", ".join(sorted(map(str, value)))
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


PLACES = [
    (Inner, {"street": "X", "zip": "?"}, {"/f/zip"}),
    (Inner, {"street": "x", "zip": 1}, {"/f/street"}),
    (Inner, {}, {"/f/street", "/f/zip"}),
    (Inner | None, {"street": "X", "zip": "?"}, {"/f/zip"}),
    (list[Inner], [{"street": "X", "zip": 1}, {"street": "X", "zip": "?"}], {"/f/1/zip"}),
    (dict[str, Inner], {"a/b": {"street": "X", "zip": "?"}}, {"/f/0/zip"}),
    (dict[int, str], {"1": "x", "y": "z"}, {"/f/1"}),
    (tuple[int, int], [1, "y"], {"/f/1"}),
    (int | list[int], [1, "y"], {"/f|1/1"}),
    (A | B, {"x": 1, "y": "?"}, {"/f|0/y"}),
    (A | B, {"x": "t", "z": "?"}, {"/f|1/z"}),
    (A | B | None, {"x": "t", "z": "?"}, {"/f|1/z"}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "lives": "?"}, {"/f|0/lives"}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cow"}, {"/f"}),
    (TAGGED, {"lives": "?"}, {"/f|0/lives"}),
    (list[A | B], [{"x": "t", "z": "?"}], {"/f/0|1/z"}),
    (POSITIVE | SMALL, -5, {"/f"}),
    (int, "?", {"/f"}),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "fields"), PLACES, ids=named)
def test_an_error_of_pydantic_is_at_its_field(type_, value, fields):
    """Pydantic adds private union labels to locations; the form skips them."""
    form = Form(create_model("M", f=(type_, ...)), value={"f": value})
    answer = form.submit(None)
    assert {field for field, _, _ in answer.errors} == fields, answer.errors


@pytest.mark.parametrize(
    ("type_", "value", "fields"),
    [place for place in PLACES if place[0] not in (TAGGED, dict[int, str], POSITIVE | SMALL)],
    ids=named,
)
def test_an_error_of_a_bare_schema_is_at_the_same_field(type_, value, fields):
    """Both validators report an error at the same field."""
    schema = create_model("M", f=(type_, ...)).model_json_schema()
    answer = Form(schema, value={"f": value}).submit(None)
    if answer.ok:
        assert fields == {"/f/street"}, "only a validator in Python knows of capitals"
    else:
        assert {field for field, _, _ in answer.errors} == fields, answer.errors


def test_only_errors_of_the_chosen_branch_are_shown():
    """Pydantic reports errors of all branches; the person answered one."""
    form = Form(A | B)
    draft = {"branch": 1, "draft": {"fields": {"z": {"text": "1"}}}}
    assert form.submit(draft).errors == [("|1/x", ("x",), "Please answer.")]


def test_an_error_without_a_field_is_in_the_summary():
    """A required name without a field still has an error."""
    schema = {"type": "object", "properties": {}, "minProperties": 1, "required": ["ghost"]}
    errors = Form(schema).submit(None).errors
    assert [field for field, _, _ in errors] == [None, None]
    assert "ghost" in str(errors)


def test_rows_are_named_by_their_position_in_the_answer():
    """The error of a moved row has the row's new position."""
    form = Form(list[int], value=[1, 2, 3])
    rows = [{"from": 2, "draft": None}, {"from": None, "draft": {"text": "x"}}]
    assert form.submit({"rows": rows}).errors[0][:2] == ("/1", (1,))


def test_a_key_of_a_map_is_unique_and_not_empty():
    """A repeated or empty key is an error, and no entry is dropped silently."""
    entries = [{"from": None, "key": "a", "draft": {"text": "1"}}] * 2
    entries.append({"from": None, "key": "", "draft": {"text": "1"}})
    answer = Form(dict[str, int]).submit({"entries": entries})
    assert [field for field, _, _ in answer.errors] == ["/1", "/2"]


def test_changes_outside_of_editable_fields_are_refused():
    """The kernel enforces ``editable``, whatever a page sends."""
    form = Form(Inner, value={"street": "X", "zip": 1}, editable=["zip"])
    street, zip_ = form.fields.fields
    assert (street.read_only, zip_.read_only) == (True, False)
    both = {"fields": {"street": {"text": "Y"}, "zip": {"text": "2"}}}
    assert form.submit(both).errors[0][0] == "/street"
    allowed = form.submit({"fields": {"street": None, "zip": {"text": "2"}}})
    assert allowed.document == {"street": "X", "zip": 2}


@pytest.mark.parametrize("size", [10, 1_000, 20_000])
def test_a_document_of_any_size_has_a_form_of_bounded_size(size):
    """Parts beyond the limits are JSON boxes; the document's values are sent whole, once."""
    document = {"names": [f"name {index}" for index in range(size)], "long": "x" * size * 50}
    form = Form(
        {"type": "object", "properties": {"names": {"items": {"type": "string"}}}}, value=document
    )
    assert len(json.dumps(form.spec())) < 300_000 + 1.5 * len(json.dumps(document))
    assert json.loads(form.submit(None).json_text) == document


def test_an_exponential_pattern_is_matched_in_linear_time():
    """``(a+)+$`` takes exponential time in Python's ``re``; a server's schema can contain it."""
    text = "a" * 200 + "!"
    assert not Form({"type": "string", "pattern": "^(a+)+$"}, value=text).submit(None).ok
    names = {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    assert not Form(names, value={text: 1}).submit(None).ok


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}},
        {"anyOf": [{"$ref": "#"}] * 2},
        {"anyOf": [{"$ref": "#"}] * 60},
        {"$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}, "$ref": "#/$defs/d0"},
        {"$ref": "http://127.0.0.1:9/never"},
        {"type": "object", "properties": "no", "required": True, "enum": 3, "items": 4, "allOf": {}},
    ],
)  # fmt: skip
def test_a_hostile_schema_has_a_form(schema):
    """Cycles, exponential references and nonsense become a JSON box."""
    form = Form(schema, value={"a": {"a": {}}})
    json.dumps(form.spec())
    assert json.loads(form.submit(None).json_text) == {"a": {"a": {}}}


def test_a_missing_required_tuple_is_not_made_up_from_its_parts():
    """An untouched prefill is returned unchanged, and the error is at the tuple."""
    answer = Form(create_model("M", pair=(tuple[str, str], ...)), value={}).submit(None)
    assert (answer.json_text, [each[0] for each in answer.errors]) == ("{}", ["/pair"])


@pytest.mark.parametrize(
    "target", [A | B, TypeAdapter(A | B).json_schema()], ids=["type", "schema"]
)
def test_errors_of_the_other_shapes_are_summarized_beside_the_error(target):
    """The chosen shape's errors are at its fields; another shape's are one line beside them."""
    answer = Form(target, value={"x": 1, "y": "?"}).submit(None)
    assert [each[0] for each in answer.errors] == ["|0/y"]
    assert list(answer.why) == [0]
    assert answer.why[0].startswith("B: ")
    assert "text" in answer.why[0] or "string" in answer.why[0]
