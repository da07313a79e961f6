"""Answer types of any shape: requested as an object, read back as the type."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, TypeAdapter
from typing_extensions import TypedDict

import nbagent as nb
from nbagent.core.base.messages import dumps
from nbagent.core.tools.answer_type import AnswerType, Misfit

T = TypeVar("T")


class City(BaseModel):
    name: str
    people: int = 0


class Node(BaseModel):
    label: str
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str]


class Box(BaseModel, Generic[T]):
    content: T


class Value(BaseModel):
    """One whose own shape is that of what others are wrapped in."""

    value: int


class Renamed(BaseModel):
    full_name: str = Field(alias="fullName")


class TwoNames(BaseModel):
    full_name: str = Field(validation_alias="in", serialization_alias="out")


class Trip(TypedDict):
    to: str
    days: int


@dataclass
class Point:
    x: float
    y: float


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


TYPES: list[tuple[Any, Any, str]] = [
    (City, City(name="Rome", people=3), "json"),
    (Trip, {"to": "Rome", "days": 2}, "json"),
    (Point, Point(1.0, 2.5), "json"),
    (Box[City], Box[City](content=City(name="Rome")), "json"),
    (Node, Node(label="a", children=[Node(label="b")]), "json"),
    (dict[str, int], {"a": 1}, "json"),
    (Renamed, Renamed(fullName="Ada"), "json"),
    (TwoNames, TwoNames.model_validate({"in": "Ada"}), "json"),
    (Value, Value(value=3), "json"),
    (list[City], [City(name="Rome")], "value"),
    (list[int], [1, 2], "value"),
    (list[Node], [Node(label="a")], "value"),
    (RootModel[list[int]], RootModel[list[int]]([1]), "value"),
    (tuple[int, str], (1, "a"), "value"),
    (set[int], {1, 2}, "value"),
    (Literal["yes", "no"], "yes", "value"),
    (Color, Color.BLUE, "value"),
    (int, 7, "value"),
    (bool, True, "value"),
    (float, 0.5, "value"),
    (Decimal, Decimal("0.10"), "value"),
    (datetime, datetime(2026, 1, 2, tzinfo=UTC), "value"),
    (City | None, None, "value"),
    (City | None, City(name="Rome"), "value"),
    (Value | None, Value(value=3), "value"),
    (Cat | Dog, Dog(tricks=["sit"]), "value"),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Cat(lives=9), "value"),
    (Annotated[str, Field(pattern="^[a-z]+$")], "abc", "value"),
    (Any, {"a": [1]}, "value"),
    ({"type": "object", "properties": {"to": {"type": "string"}}}, {"to": "Rome"}, "json"),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2], "value"),
    ({"enum": ["a", "b"]}, "b", "value"),
    (
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}, {"$ref": "#/$defs/s"}]},
            "$defs": {"s": {"type": "string"}},
        },
        [1, [2, "x"]],
        "value",
    ),
]


def written(type_: Any, value: Any) -> Any:
    """The JSON that a model would write of a value."""
    if isinstance(type_, dict):
        return value
    if type_ is TwoNames:
        return {"in": value.full_name}
    return TypeAdapter(type_).dump_python(value, mode="json", by_alias=True)


@pytest.mark.parametrize(("type_", "value", "form"), TYPES, ids=lambda case: str(case)[:40])
async def test_a_type_of_any_shape_is_requested_as_an_object_and_unwrapped(type_, value, form):
    """The schema is that of an object; wrapped and plain answers are both accepted."""
    plain = written(type_, value)
    wire = plain if form == "json" else {"value": plain}
    for text in {dumps(wire), dumps(plain)}:
        model = nb.ScriptedModel([text])
        agent = nb.Agent(model, output_type=type_)
        run = agent.run("go")
        result = await run
        assert (result.output, type(result.output)) == (value, type(value))
        assert json.loads(result.text) == plain
        assert (await agent_again(type_, text)).output == value
        schema = model.requests[0].output_schema
        assert schema is not None
        assert (schema["type"], run.journal[0].answer) == ("object", form)
        AnswerType(schema).parse(dumps(wire))  # the answer fits the schema, references included


async def agent_again(type_: Any, text: str) -> Any:
    """The same answer step by step."""
    return await nb.Agent(nb.ScriptedModel([text]), output_type=type_).generate("go")


@pytest.mark.parametrize("type_", [str, None, {"type": "string"}])
async def test_a_text_answer_is_unchanged(type_):
    """The text is not parsed, whatever it looks like; no schema is sent."""
    model = nb.ScriptedModel(['{"value": "x"}, he said'])
    result = await nb.Agent(model, output_type=type_).run("go")
    assert result.text == '{"value": "x"}, he said'
    assert result.output == (None if type_ is None else result.text)
    assert model.requests[0].output_schema is None


AROUND = [
    '```json\n{"name": "Rome", "people": 3}\n```',
    'Here it is:\n```\n{"name": "Rome", "people": 3}\n```\nAnything else?',
    'Sure! {"name": "Rome", "people": 3}. That is it.',
    '\ufeff {"name": "Rome", "people": 3}\n',
]


@pytest.mark.parametrize("text", AROUND)
def test_the_only_value_in_an_answer_is_extracted(text):
    """Models without a JSON mode add words; the answer's text is the value alone."""
    found = AnswerType(City).parse(text)
    assert json.loads(found.text) == found.output == {"name": "Rome", "people": 3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "Rome"} or {"name": "Milan"}', "got 2"),
        ('```json\n{"name": "Rome"}\n```\n```json\n{"name": "Rome"}\n```', "got 2"),
        ("soup", "not JSON"),
        ("", "not JSON"),
        ('{"name": "Rome"', "not JSON"),
        ("{" * 1_000_000, "cannot be read"),
        ("[" * 40_000, "too many brackets"),
        ("[" * 100_000, "more than 50,000 values"),
        ('{"name": NaN}', "not JSON"),
        ('{"name": 5}', "name: Input should be a valid string"),
        ('{"name": "Rome", "people": 1e999}', "people"),
        ('{"value": {"name": "Rome"}}', "name: Field required"),
    ],
)
def test_an_answer_without_one_value_is_refused_with_the_reason(text, why):
    """Of two values none is chosen. The refusal is fast, also for huge texts."""
    with pytest.raises(Misfit, match=why):
        AnswerType(City).parse(text)


def test_a_type_without_a_schema_is_refused_by_name():
    """Nothing runs."""
    with pytest.raises(nb.errors.UsageError, match=r"output_type= .*Thing.*list\[Row\]") as caught:
        nb.Agent("demo", output_type=Thing).run("go")
    assert "\n" not in str(caught.value)


class Thing:
    """No data."""


@given(st.text(max_size=60) | st.recursive(st.integers(), st.lists).map(dumps))
@settings(max_examples=200)
def test_any_text_is_a_valid_or_a_refused_answer(text):
    """No other error is raised for any text; an answer can be stored and read again."""
    for type_ in (City, list[int], Literal["a"], Any):
        kind = AnswerType(type_)
        try:
            found = kind.parse(text)
        except Misfit:
            continue
        kind.typed(json.loads(json.dumps(found.output)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_any_json_value_survives_its_wrapper(value):
    """Also a value that looks like a wrapper."""
    found = AnswerType(Any).parse(dumps({"value": value}))
    assert (found.output, json.loads(found.text)) == (value, value)
