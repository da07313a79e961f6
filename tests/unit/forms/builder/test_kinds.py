"""The kind of field for each pydantic type, and the details that matter."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import pytest
from pydantic import (
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    FilePath,
    Json,
    JsonValue,
    RootModel,
    SecretStr,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    create_model,
)
from typing_extensions import TypedDict

from nbagent.forms.form import Form
from nbagent.forms.hints import FormHint


class Color(Enum):
    RED = "r"
    GREEN = "g"


class One(Enum):
    ONLY = "x"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    NUMBER = 1
    TEXT = "two"
    NOTHING = None


class Address(BaseModel):
    street: str
    zip: str = Field(min_length=5)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Plain(BaseModel):
    a: int


class Other(BaseModel):
    b: int


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Point(NamedTuple):
    x: int
    y: int


class Typed(TypedDict, total=False):
    a: int


@dataclass
class Data:
    a: int
    b: str = "x"
    c: list[int] = dataclass_field(default_factory=list)


class Arbitrary:
    pass


ONE_OF = {"oneOf": [{"const": "a", "title": "Apple"}, {"const": "b", "title": "Banana"}]}
CONSTRUCTS = [
    (str, "text"),
    (Annotated[str, Field(json_schema_extra={"format": "multi-line"})], "text"),
    (Annotated[str, Field(min_length=2, max_length=10, pattern="^[a-z]+$")], "text"),
    (int, "int"),
    (Annotated[int, Field(ge=0, le=10)], "int"),
    (float, "num"),
    (int | float, "num"),
    (bool, "bool"),
    (Literal["a", "b"], "choice"),
    (Literal["a"], "const"),
    (Literal["a", 1, True, None], "choice"),
    (Color, "choice"),
    (One, "const"),
    (Level, "choice"),
    (Mixed, "choice"),
    (Color | None, "choice"),
    (Literal["a", "b"] | None, "choice"),
    (Annotated[str, WithJsonSchema(ONE_OF)], "choice"),
    (set[Literal["a", "b"]], "multi"),
    (list[Literal["a", "b"]], "multi"),
    (set[Color], "multi"),
    (Literal["a", "b"] | str, "choice"),
    (date, "text"),
    (datetime, "text"),
    (time, "text"),
    (timedelta, "duration"),
    (AwareDatetime, "text"),
    (AnyUrl, "text"),
    (UUID, "text"),
    (Decimal, "decimal"),
    (Annotated[Decimal, Field(ge=0, max_digits=5, decimal_places=2)], "decimal"),
    (bytes, "text"),
    (Base64Bytes, "file"),
    (ByteSize, "union"),
    (SecretStr, "text"),
    (Path, "text"),
    (FilePath, "text"),
    (re.Pattern, "text"),
    (Any, "json"),
    (object, "json"),
    (JsonValue, "json"),
    (Json[list[int]], "code"),
    (None, "const"),
    (int | None, "int"),
    (int | str, "union"),
    (str | int | float | bool, "union"),
    (int | list[int], "union"),
    (Address, "object"),
    (Address | None, "object"),
    (list[str], "list"),
    (list[Address], "table"),
    (set[int], "list"),
    (frozenset[str], "list"),
    (list, "list"),
    (list[list[int]], "list"),
    (tuple[int, str], "tuple"),
    (tuple[int, ...], "list"),
    (Point, "tuple"),
    (dict[str, int], "map"),
    (dict[int, str], "map"),
    (dict[Literal["a", "b"], int], "map"),
    (dict[str, Address], "map"),
    (dict, "map"),
    (dict[Annotated[str, Field(pattern="^x-")], int], "map"),
    (Annotated[Mapping[str, int], Field(min_length=1, max_length=3)], "map"),
    (Plain | Other, "union"),
    (Annotated[Cat | Dog, Field(discriminator="kind")], "union"),
    (Annotated[Cat | Dog, Field(discriminator="kind")] | None, "union"),
    (list[Annotated[Cat | Dog, Field(discriminator="kind")]], "list"),
    (Typed, "object"),
    (Data, "object"),
    (RootModel[list[int]], "list"),
    (RootModel[str], "text"),
    (Callable, "json"),
    (Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1)], "union"),
]


def _names(case):
    return str(case).replace("typing.", "")[:60] if not isinstance(case, str) else case


@pytest.mark.parametrize(("type_", "kind"), CONSTRUCTS, ids=_names)
def test_a_type_has_the_same_kind_as_a_field_and_as_a_root(type_, kind):
    """Every kind works as a root, and a type gives the same field everywhere; a table as a root may get many rows."""
    model = create_model("M", f=(type_, ...))
    field = Form(model).fields.fields[0]
    assert (field.kind, field.id, field.label) == (kind, "/f", "F")
    assert Form(type_).fields.kind == ("grid" if kind == "table" else kind)


@pytest.mark.parametrize(("type_", "kind"), CONSTRUCTS, ids=_names)
def test_an_untouched_required_field_is_an_error_or_has_nothing_to_ask(type_, kind):
    """An unanswered field stays unanswered, whatever its type."""
    answer = Form(create_model("M", f=(type_, ...))).submit(None)
    nothing_to_ask = kind == "const" or type_ is Typed
    assert answer.ok is nothing_to_ask
    assert nothing_to_ask or all(field.startswith("/f") for field, _, _ in answer.errors)


def only(type_, **more):
    """The one field of a model."""
    return Form(create_model("M", f=(type_, ...), **more)).fields.fields[0]


def test_optional_is_a_flag_on_one_control():
    """``X | None`` never becomes a choice between X and null."""
    field = only(Annotated[int, Field(ge=0)] | None)
    assert (field.kind, field.nullable, field.limits["minimum"]) == ("int", True, 0)
    assert only(int | str | None).nullable
    assert only(Annotated[Cat | Dog, Field(discriminator="kind")] | None).nullable


def test_options_carry_typed_values_and_titles():
    """An option's value keeps its type; member names and titles are labels."""
    mixed = only(Literal["a", 1, True, None])
    assert [option.value for option in mixed.options] == ["a", 1, True, None]
    assert [option.label for option in only(Color).options] == ["Red", "Green"]
    titled = only(Annotated[str, WithJsonSchema(ONE_OF)])
    assert [option.label for option in titled.options] == ["Apple", "Banana"]


def test_literal_or_text_is_a_choice_with_a_write_in():
    """``Literal[...] | str`` is one list with "other"."""
    assert only(Literal["a", "b"] | str).other is not None
    assert only(Literal["a", "b"]).other is None


def test_a_nested_model_is_labelled_by_its_field_and_not_by_its_class():
    """A class title does not describe the field's role."""
    home = Form(
        create_model("M", home=(Address, Field(description="Where it goes")))
    ).fields.fields[0]
    assert (home.label, home.help) == ("Home", "Where it goes")


def test_the_tag_of_a_union_is_hidden_and_always_sent():
    """Pydantic's tags are optional constants, but the branch needs them."""
    form = Form(create_model("M", f=(Annotated[Cat | Dog, Field(discriminator="kind")], ...)))
    union = form.fields.fields[0]
    assert [branch.label for branch in union.branches] == ["Cat", "Dog"]
    tag = union.branches[1].node.fields[0]
    assert (tag.kind, tag.hint["tag"]) == ("const", True)
    draft = {"fields": {"f": {"branch": 1, "draft": {"fields": {"name": {"text": "Rex"}}}}}}
    answer = form.submit(draft)
    assert answer.json_text == '{"f": {"kind": "dog", "name": "Rex"}}'
    assert answer.value.f == Dog(name="Rex")


def test_a_recursive_model_opens_level_by_level():
    """Recursion is lazy; levels in the prefill are already open."""
    form = Form(Node, value={"name": "top", "children": [{"name": "kid"}]})
    rows = form.fields.fields[1]
    assert (rows.item.kind, rows.item.of) == ("lazy", "")
    assert rows.rows[0].kind == "object"
    new = {"open": True, "draft": {"fields": {"name": {"text": "new"}}}}
    inner = {"rows": [{"from": 0, "draft": None}, {"from": None, "draft": new}]}
    answer = form.submit({"fields": {"children": inner}})
    assert [child.name for child in answer.value.children] == ["kid", "new"]


def test_a_function_becomes_a_form_of_its_parameters_and_is_never_called():
    """Defaults come from the signature; the value is the arguments by name."""

    def forecast(
        city: str, days: Annotated[int, Field(ge=1, le=7)] = 3, *, units: Color = Color.RED
    ):
        raise AssertionError("a form called the tool")

    form = Form(forecast)
    assert [field.kind for field in form.fields.fields] == ["text", "int", "choice"]
    answer = form.submit({"fields": {"city": {"text": "Rome"}}})
    assert answer.value == {"city": "Rome", "days": 3, "units": Color.RED}
    assert form.submit({"fields": {}}).errors == [("/city", ("city",), "Please answer.")]


@pytest.mark.parametrize(
    "target",
    [
        Callable[[int], int],
        Arbitrary,
        create_model("M", __config__=ConfigDict(arbitrary_types_allowed=True), a=(int, 1), f=(Arbitrary, ...)),
        lambda *args, a: (args, a),
        lambda a, /, *, b: (a, b),
        Annotated[
            Annotated[Plain, Tag("p")] | Annotated[Other, Tag("o")], Discriminator(lambda _: "p")
        ],
        Optional["Nowhere"],  # noqa: F821 - a name that is not there
        TypeAdapter(list[int]),
    ],
)  # fmt: skip
def test_a_target_without_a_schema_still_has_a_form(target):
    """A part that pydantic cannot describe is a JSON box, not an exception."""
    form = Form(target)
    assert form.spec()["root"]["kind"] in ("json", "object", "union", "list")
    form.submit({"fields": {"f": {"text": "{"}}})
    form.submit({"text": "1"})


def test_hints_reach_the_form_and_not_the_model():
    """The form uses ``FormHint``; the schema for the model does not contain it."""
    model = create_model(
        "M", q=(Annotated[str, FormHint(widget="code:sql", order=2)], ...), a=(int, ...)
    )
    assert "nbagent" not in str(model.model_json_schema())
    first, second = sorted(Form(model).fields.fields, key=lambda field: field.key)
    assert (first.kind, second.kind, second.hint["code"]) == ("int", "code", "sql")
