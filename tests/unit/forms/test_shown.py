"""What of a form reaches the page."""

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from nbagent.forms import Form
from nbagent.forms.hints import FormHint

LONG = "x" * 100_000


@pytest.mark.parametrize("value", [LONG, [LONG], {"a": LONG}, ["y"] * 450])
@pytest.mark.parametrize("editable", [True, []])
def test_a_documents_own_value_is_sent_whole_however_long(value, editable):
    """What is approved must have been seen: an unsent value would run unseen."""
    spec = Form({"type": "object", "properties": {"v": {}}}, value={"v": value}, editable=editable)
    told = json.dumps(spec.spec())
    assert LONG in told or told.count('\\"y\\"') == 450


def test_the_slider_knows_its_ends_and_its_step():
    """A slider is drawn only where both ends are known."""

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
