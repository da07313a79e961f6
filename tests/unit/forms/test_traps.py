"""Oddities of pydantic, JSON and browsers that a form must survive, one test each."""

import json
import sys
import time
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import (
    AliasPath,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    EmailStr,
    Field,
    Json,
    SecretStr,
    computed_field,
    field_validator,
    model_validator,
)

from nbagent.forms.answer.json_schema import errors_of, misfit
from nbagent.forms.form import Form
from tests.unit.forms.drawn import drawn


def fields(**drafts):
    """A draft of an object."""
    return {"fields": drafts}


def text(value):
    """A draft of a text control."""
    return {"text": value}


class Account(BaseModel):
    user: str
    token: SecretStr = SecretStr("real")

    @field_validator("token")
    @classmethod
    def long_enough(cls, value):
        """Repeats the secret, as careless validators do."""
        if len(value.get_secret_value()) < 8:
            raise ValueError(f"{value.get_secret_value()} is too short")
        return value


def test_a_secret_default_is_neither_shown_nor_sent_back():
    """Pydantic writes ten asterisks in place of a secret; they are not the secret."""
    form = Form(Account)
    assert "*" not in json.dumps(form.spec())
    answer = form.submit(fields(user=text("ada")))
    assert answer.json_text == '{"user": "ada"}'
    assert answer.value.token.get_secret_value() == "real"


def test_a_prefilled_mask_is_left_out_and_a_prefilled_secret_is_kept_unseen():
    """The person never sees a secret; the tool gets the real one."""
    masked = Form(Account, value=Account(user="ada", token="hushhush").model_dump(mode="json"))
    assert masked.submit(None).value.token.get_secret_value() == "real"
    known = Form(Account, value={"user": "ada", "token": "hushhush"})
    assert "hushhush" not in json.dumps(known.spec()) + drawn(known)
    assert known.submit(None).value.token.get_secret_value() == "hushhush"


def test_a_secret_is_not_in_errors_or_records():
    """Also if a validator's message repeats the secret."""
    form = Form(Account, value={"user": "ada"})
    refused = form.submit(fields(token=text("hush")))
    assert refused.errors[0][0] == "/token"
    assert "hush" not in str(refused.errors)
    taken = form.submit(fields(token=text("hushhush")))
    assert "hushhush" not in drawn(form, taken.document)
    assert "provided" in drawn(form, taken.document)


def test_secrets_inside_a_json_box_do_not_reach_the_page():
    """A list of accounts may be one JSON box, whose text would contain the tokens."""
    form = Form(list[Account], value=[{"user": "ada", "token": "hushhush"}])
    assert "hushhush" not in json.dumps(form.spec())
    refused = form.submit({"json": text('[{"user": "ada", "token": "hush"}]')})
    assert not refused.ok
    assert "hush" not in str(refused.errors)


class Total(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=False)
    price: float = Field(alias="Price", multiple_of=0.01)
    numbers: Json[list[int]] = "[]"  # type: ignore[assignment]

    @computed_field
    @property
    def double(self) -> float:
        """Twice the price."""
        return 2 * self.price


def test_a_prefilled_instance_is_returned_equal():
    """Without its computed fields, with its JSON as text, by the names that the type validates."""
    value = Total(price=19.99, numbers="[1]")
    assert Form(Total, value=value.model_dump(round_trip=True)).submit(None).value == value
    form = Form(Total, value=value)
    assert form.submit(None).value == value
    assert form.submit(fields(price=text("0.07"))).value.price == 0.07


def test_decimal_fractions_are_multiples_as_people_write_them():
    """In floats, 19.99 / 0.01 is no whole number."""
    form = Form({"type": "number", "multipleOf": 0.01})
    taken = [
        number
        for number in ("19.99", "0.07", "-1.1", "1e30", "0.005")
        if form.submit(text(number)).ok
    ]
    assert taken == ["19.99", "0.07", "-1.1", "1e30"]


class Infinite(BaseModel):
    a: float = float("inf")
    b: list[float] = [float("nan")]


def test_infinity_never_reaches_the_wire_and_cannot_be_typed():
    """``Infinity`` is not JSON, in the schema or from the keyboard."""
    form = Form(Infinite)
    json.dumps(form.spec(), allow_nan=False)
    for typed in ("inf", "nan", "Infinity", "1e999"):
        assert not form.submit(fields(a=text(typed))).ok
    assert not Form({}).submit({"text": "NaN"}).ok


class Made(BaseModel):
    tags: list[str] = Field(default_factory=lambda: ["new"])
    key: str = Field(default_factory=lambda: str(uuid4()))
    broken: int = Field(default_factory=lambda: 1 // 0)


def test_a_constant_default_factory_is_shown_and_a_failing_one_leaves_the_form_open():
    """A random default is described as such; a failing factory does not break the form."""
    tags, key, broken = Form(Made).fields.fields
    assert (tags.default, tags.has_default) == (["new"], True)
    assert (key.has_default, key.default_text) == (True, "generated when you send")
    assert broken.has_default


class Wrong(BaseModel):
    a: int = "x"  # type: ignore[assignment]
    b: Literal["p"] = "q"  # type: ignore[assignment]


def test_a_default_of_the_wrong_type_is_tolerated():
    """Defaults are not validated by pydantic."""
    form = Form(Wrong)
    assert form.submit(None).ok
    json.dumps(form.spec())


def test_patterns_are_checked_in_the_kernel_and_not_sent():
    """Regular expressions of browsers and of pydantic differ."""
    form = Form(Annotated[str, Field(pattern=r"^(?P<x>[\w.-]+)$")])
    assert "pattern" not in json.dumps(form.spec())
    assert form.submit(text("a-b")).ok
    assert not form.submit(text("a b")).ok


@pytest.mark.parametrize(
    ("type_", "typed", "value"),
    [
        (int, " 12 ", 12),
        (int, "-0", 0),
        (int, "12.0", 12),
        (int, "1_000", None),
        (int, "1,5", None),
        (int, "0x10", None),
        (int, "1e3", None),
        (int, "true", None),
        (int, "", None),
        (int, "9007199254740993", 9007199254740993),
        (float, "1e3", 1000.0),
        (float, ".5", 0.5),
        (float, "1,5", None),
        (date, "2024-01-31", date(2024, 1, 31)),
        (date, "0x1", None),
        (Decimal, "12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal, "ten", None),
    ],
)
def test_typed_text_is_parsed_exactly(type_, typed, value):
    """Numbers are exact to the last digit, and nothing is guessed."""
    answer = Form(type_).submit(text(typed))
    assert answer.ok is (value is not None)
    assert answer.value == value
    assert str(answer.value) == str(value)


@pytest.mark.parametrize(
    ("branch", "value"), [(0, 12), (1, "12")], ids=["as a number", "as a text"]
)
def test_the_branch_of_a_union_decides_the_type_of_the_typed_text(branch, value):
    """``int | str`` with the text "12" has the type of the chosen branch."""
    answer = Form(int | str).submit({"branch": branch, "draft": text("12")})
    assert answer.value == value


class Kind(Enum):
    A = "a"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    key: UUID
    names: set[str]
    pair: tuple[int, str]
    price: Decimal
    kind: Kind


def test_a_strict_model_accepts_the_values_of_a_form():
    """JSON text is validated, never Python values made from it."""
    answer = Form(Strict).submit(
        fields(
            day=text("2024-01-31"),
            key=text("12345678-1234-5678-1234-567812345678"),
            names={"rows": [{"from": None, "draft": text("x")}]},
            pair={"parts": [text("1"), text("y")]},
            price=text("1.10"),
        )
    )
    assert answer.value.price == Decimal("1.10")
    assert answer.value.names == {"x"}


def test_a_time_zone_is_asked_for_where_one_is_needed():
    """A time without an offset is refused at its field, not converted."""
    form = Form(AwareDatetime)
    assert form.fields.limits["zone"] == "aware"
    assert form.submit(text("2024-01-01T12:00:00")).errors[0][0] == ""
    assert form.submit(text("2024-01-01T12:00:00+02:00")).ok


class Checked(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self):
        """Raises on the model, not on a field."""
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Outer(BaseModel):
    part: Checked


def test_an_error_of_a_whole_model_belongs_to_its_group_or_the_summary():
    """The error has no field of its own but is still shown."""
    drafts = fields(low=text("2"), high=text("1"))
    answer = Form(Checked).submit(drafts)
    assert answer.errors == [(None, (), "low is above high")]
    assert Form(Outer).submit(fields(part=drafts)).errors[0][:2] == ("/part", ("part",))


class Pathed(BaseModel):
    first: int = Field(validation_alias=AliasPath("x", "y", 0))


def test_a_field_found_by_a_path_is_asked_by_its_name():
    """Pydantic's schema has a name that its validator does not accept as an alias."""
    form = Form(Pathed)
    assert form.submit(fields(first=text("3"))).value.first == 3
    assert Form(Pathed, value={"x": {"y": [4]}}).submit(None).value.first == 4


def test_json_in_a_string_stays_text():
    """The wire value of ``Json[T]`` is JSON text; a parsed list would be refused."""
    answer = Form(Json[list[int]]).submit(text("[1, 2]"))
    assert (answer.json_text, answer.value) == ('"[1, 2]"', [1, 2])


class Rude(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def raises(cls, value):
        """Raises what pydantic does not catch."""
        raise KeyError(value)


def test_a_validator_that_raises_anything_refuses_the_answer():
    """The exception is shown in the summary."""
    answer = Form(Rude).submit(fields(a=text("1")))
    assert not answer.ok
    assert answer.errors[0][0] is None
    assert "KeyError" in answer.errors[0][2]


def test_a_document_too_deep_for_the_validator_is_refused_and_never_raises():
    """A stack overflow in a dependency of jsonschema is a panic, not an ``Exception``."""
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": ["array", "null"], "items": {"$ref": "#/$defs/n"}}},
    }
    value = None
    for _ in range(900):
        value = [value]
    for form in (Form(schema, value=value), Form(True, value=value)):
        answer = form.submit(None)
        assert answer.ok is not bool(answer.errors)
        drawn(form, value)


@pytest.mark.parametrize(
    ("form", "drafts", "ok"),
    [
        (Form(list[int]), {"rows": [{"from": None, "draft": {"text": "x"}}] * 5_000}, False),
        (Form.choose([(i, None, None) for i in range(2_000)], multiple=True), {"options": [*range(2_000)] * 9}, True),
        (Form({"uniqueItems": True, "type": "array"}), {"json": {"text": json.dumps([{"a": i} for i in range(4_000)])}}, True),
        (Form({"items": {"anyOf": [{"enum": [*range(2_000)]}, {"type": "string"}]}}), {"json": {"text": json.dumps(["x"] * 9_000)}}, True),
        (Form(str), {"text": "x" * 3_000_000}, True),
    ],
    ids=["bad rows", "options", "unique objects", "other texts", "long text"],
)  # fmt: skip
def test_the_time_for_many_answers_grows_in_proportion(form, drafts, ok):
    """No step is quadratic; two seconds are fifty times the usual duration."""
    start = time.thread_time()
    assert form.submit(drafts).ok is ok
    assert time.thread_time() - start < 2


def test_the_time_to_build_a_large_schema_grows_in_proportion():
    """Union constants, options that are objects, ten thousand names, selected choices, and lists that are joined."""
    numbers, names = [*range(8_000)], [f"n{i}" for i in range(20_000)]
    start = time.thread_time()
    Form.choose([(i, None, None) for i in numbers], multiple=True, selected=numbers).spec()
    Form({"allOf": [{"enum": numbers}, {"enum": numbers[::-1]}]}, value=5)
    Form({"allOf": [{"required": names[::2]}, {"required": names[1::2]}]})
    Form({"anyOf": [{"const": i} for i in range(5_000)]})
    Form({"enum": [{"k": i} for i in range(2_000)]}, value={"k": 5})
    Form({"properties": {f"p{i}": {"type": "string"} for i in range(10_000)}})
    assert time.thread_time() - start < 2


class Plan(BaseModel):
    """Kinds whose errors are found at different times."""

    size: int = Field(ge=5)
    extra: Any
    start: int
    name: str

    @field_validator("name")
    @classmethod
    def reject(cls, name):
        """Refuse any."""
        raise ValueError("taken")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"allOf": [{"$ref": "#"}] * 80}, "too many rules"),
        ({"properties": {str(n): {} for n in range(60_000)}}, "over 50,000 parts"),
        ({"patternProperties": {f"^{n}": {} for n in range(101)}}, "patterns are too many"),
    ],
)
def test_a_schema_that_takes_long_to_check_is_refused(schema, why):
    """References in a circle are followed once, so that few of them take no time."""
    assert why in misfit(schema)
    assert errors_of({"allOf": [{"$ref": "#"}] * 9 + [{"type": "object"}]}, {"x": 1}) == []


def test_a_long_document_under_a_wide_union_is_refused_as_one_that_takes_long():
    """Every item would be compared with every shape; any number of optional fields is checked."""
    wide = {"items": {"anyOf": [{"required": [f"n{i}"]} for i in range(1_000)]}}
    assert "too many parts" in errors_of(wide, [{}] * 1_000)[0]["msg"]
    assert errors_of({"items": {"anyOf": [{"type": "string"}] * 2}}, ["x"] * 12_000) == []


@pytest.mark.parametrize(
    "rule", [{"required": ["a", "b"]}, {"dependentRequired": {"x": ["a", "b"]}}]
)
def test_each_missing_property_is_one_error(rule):
    """Jsonschema has an error for each of them, and each error has all of them."""
    schema = {"type": "object", **rule}
    for whole, document in ((schema, {"x": 1}), ({"items": schema}, [{"x": 1}, {"x": 1}])):
        places = [error["loc"][-1] for error in errors_of(whole, document)]
        assert places == ["a", "b"] * (len(document) if isinstance(document, list) else 1)
    assert len(Form({"anyOf": [schema, {"type": "null"}]}, value={"x": 1}).submit(None).errors) == 2


def test_errors_are_in_the_order_of_the_fields():
    """Unreadable drafts and refused values are in one order."""
    drafts = fields(size=text("1"), extra=text("{"), start=text("x"), name=text("Ada"))
    errors = Form(Plan).submit(drafts).errors
    assert [field for field, _, _ in errors] == ["/size", "/extra", "/start", "/name"]
    assert errors[-1][2] == "taken"


def test_a_type_with_a_missing_package_says_which_to_install(monkeypatch):
    """EmailStr needs email-validator, which the error's type does not say."""
    monkeypatch.setitem(sys.modules, "email_validator", None)
    monkeypatch.setattr("pydantic.networks.email_validator", None, raising=False)
    assert "install email-validator" in Form(EmailStr).spec()["root"]["help"]


def test_a_duration_field_shows_accepted_examples():
    """Pydantic's formats for its own types, the standard's for a JSON Schema."""
    ways = {timedelta: "1:30:00, 2 days, PT1H30M", None: "PT1H30M, P2D"}
    for target, said in ways.items():
        form = Form(target or {"type": "string", "format": "duration"})
        for way in said.split(", "):
            assert way in form.spec()["root"]["help"]
            assert form.submit(text(way)).ok, way


def test_an_option_with_a_blank_label_shows_its_value():
    """A label of spaces, and a value of spaces without a label: nothing is nameless."""
    form = Form.choose([(4, " ", None), (" ", " ", None), ("", None, None)])
    assert [one["label"] for one in form.spec()["root"]["options"]] == ["4", '" "', "empty text"]
