"""Validation errors for a person: plain words, not pydantic's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter

from nbagent.forms.answer.check import pydantic_checker
from nbagent.forms.answer.parts import Part
from nbagent.forms.form import Form


@pytest.mark.parametrize(
    ("type_", "text", "told"),
    [
        (int, '"x"', "Please enter a whole number, such as 12."),
        (float, '"12,5"', "Please enter a number, such as 12.5."),
        (bool, '"perhaps"', "Please answer yes or no."),
        (str, "1", "Please enter text."),
        (dt.date, '"soon"', "Please enter a date, such as 2026-11-30."),
        (Annotated[int, Field(ge=3)], "1", "Must be at least 3."),
        (Annotated[int, Field(lt=3)], "3", "Must be less than 3."),
        (Annotated[str, Field(min_length=1)], '""', "Must have at least 1 character."),
        (Annotated[list[int], Field(max_length=1)], "[1, 2]", "Must have at most 1 item."),
        (
            Annotated[Decimal, Field(decimal_places=2)],
            '"1.234"',
            "Must have at most 2 digits after the point.",
        ),
        (Annotated[str, Field(pattern="^a$")], '"b"', "Must match ^a$."),
        (Literal["a", "b"], '"c"', "Must be one of 'a' or 'b'."),
    ],
)
def test_a_validation_error_is_in_plain_words(type_: Any, text: str, told: str) -> None:
    """The common errors of pydantic have sentences of our own."""
    checked = pydantic_checker(TypeAdapter(type_))(text, None, Part(Form(type_).fields, "", ()))
    assert [problem.message for problem in checked.problems] == [told]
