"""Descriptions of parameters in a tool's docstring: sent to the model, and shown in forms."""

# ruff: noqa: A002, D416, D417 - docstrings of three styles are what is tested

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from nbagent.forms.form import Form


def google(to: str, days: int = 3, ctx: Any = None) -> str:
    """Book a trip: what fits best.

    It takes a while.

    Args:
        to: where to,
            as a city.
        days (int): how many nights.
        ctx: the context.

    Returns:
        The booking.

    Raises:
        ValueError: no such city.
    """


def numpy(to: str, days: int = 3) -> str:
    """Book a trip: what fits best.

    It takes a while.

    Parameters
    ----------
    to : str
        where to,
        as a city.
    days : int, optional
        how many nights.

    Returns
    -------
    str
        The booking.
    """


def sphinx(to: str, days: int = 3) -> str:
    """Book a trip: what fits best.

    It takes a while.

    :param to: where to,
        as a city.
    :param int days: how many nights.
    :returns: The booking.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_parameters_are_described_from_the_docstring(function):
    """In three styles; the part before describes the tool."""
    spec = nb.tool(function).spec
    assert spec.description == "Book a trip: what fits best.\n\nIt takes a while."
    assert spec.input_schema["properties"]["to"] == {
        "title": "To",
        "type": "string",
        "description": "where to, as a city.",
    }
    assert spec.input_schema["properties"]["days"]["description"] == "how many nights."


def test_the_description_in_the_annotation_wins():
    """Also in a default."""

    def book(
        a: Annotated[str, Field(description="own")],
        b: Annotated[int, Field(ge=1)],
        c: str = Field("x", description="own too"),
    ) -> None:
        """Book.

        Args:
            a: docstring.
            b: docstring.
            c: docstring.
        """

    properties = nb.tool(book).spec.input_schema["properties"]
    assert [properties[name]["description"] for name in "abc"] == ["own", "docstring.", "own too"]
    assert properties["b"]["minimum"] == 1


def colon(x: int) -> None:
    """Do it. Note: args: are many.

    Example:
        x: 5
    """


def others(x: int) -> None:
    """Do it.

    Args:
        y: another one's.
    """


class Input(BaseModel):
    """A whole."""

    x: int


def whole(input: Input) -> None:
    """Do it.

    Args:
        input: all of it.
    """


@pytest.mark.parametrize("function", [colon, others, whole])
def test_a_docstring_without_a_parameter_section_is_used_whole(function):
    """Nothing is lost, and nothing is added."""
    tool = nb.tool(function)
    assert tool.spec.description == inspect.getdoc(function)
    assert "description" not in tool.input_schema["properties"]["x"]


def test_with_an_explicit_description_parameters_are_still_described():
    """``description=`` is about the tool."""
    spec = nb.tool(description="Mine")(google).spec
    assert spec.description == "Mine"
    assert spec.input_schema["properties"]["days"]["description"] == "how many nights."


def test_a_form_shows_the_description_as_help():
    """A person may edit the input there."""
    assert "how many nights." in str(Form(nb.tool(google).input_type).spec())


def test_the_parser_is_loaded_only_for_a_docstring_with_such_a_section():
    code = (
        "import sys, nbagent as nb\n"
        "def f(x: int): 'Do it.'\n"
        "nb.tool(f).spec; assert 'docstring_parser' not in sys.modules\n"
        "def g(x: int): 'Do it.\\n\\nArgs:\\n    x: a number.'\n"
        "nb.tool(g).spec; assert 'docstring_parser' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
