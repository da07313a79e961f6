"""The parts of a form that reach the page."""

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from nbagent.forms.form import Form
from nbagent.forms.hints import FormHint
from nbagent.forms.values import as_text

LONG = "x" * 100_000


@pytest.mark.parametrize("value", [LONG, [LONG], {"a": LONG}, ["y"] * 450])
@pytest.mark.parametrize("editable", [True, []])
def test_a_value_of_the_document_is_sent_whole_however_long(value, editable):
    """A value that was not sent would be approved unseen."""
    spec = Form({"type": "object", "properties": {"v": {}}}, value={"v": value}, editable=editable)
    told = json.dumps(spec.spec())
    assert LONG in told or told.count('\\"y\\"') == 450


def test_a_slider_has_its_limits_and_its_step():
    """A slider is drawn only if both ends are known."""

    class Model(BaseModel):
        a: Annotated[int, Field(ge=0, le=10), FormHint(widget="slider")]
        b: Annotated[float, Field(ge=0, le=1, multiple_of=0.25), FormHint(widget="slider")]
        c: Annotated[int, Field(ge=0), FormHint(widget="slider")]
        d: Annotated[int, Field(ge=0, le=10)]

    found = {field["key"]: field.get("range") for field in Form(Model).spec()["root"]["fields"]}
    assert found == {
        "a": {"min": 0, "max": 10, "step": 1},
        "b": {"min": 0.0, "max": 1.0, "step": 0.25},
        "c": None,
        "d": None,
    }


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"type": "array", "minItems": 1}, "at least 1 item"),
        ({"type": "array", "minItems": 2, "maxItems": 2}, "2 items"),
        ({"type": "string", "minLength": 1, "maxLength": 2}, "1 \u2013 2 characters"),
        ({"type": "string", "maxLength": 1.0}, "at most 1.0 character"),
        ({"type": "object", "maxProperties": 1}, "at most 1 name"),
        ({"type": "integer", "minimum": 1}, "at least 1"),
    ],
)
def test_one_item_is_written_in_the_singular(limits, told):
    """Limits are shown below the control and in errors."""
    assert Form(limits).spec()["root"]["limits"] == told


def test_the_parts_of_a_tuple_have_readable_names():
    """On the page and in errors: the part's title, or its position."""
    schema = {"prefixItems": [{"type": "integer"}, {"title": "Unit", "type": "string"}]}
    form = Form(schema, value=[1, "m"])
    assert [part.label for part in form.fields.parts] == ["Part 1", "Unit"]


def test_a_value_without_text_is_named_as_such():
    """The text of an option or a limit never fails to be made."""
    assert [as_text(value) for value in ("a", [1], float("nan"), {1})] == [
        *("a", "[1]"),
        *["(cannot be shown)"] * 2,
    ]
