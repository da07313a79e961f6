"""The kind of answer that a question expects, from its tool, kind and metadata."""

from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.interrupts import Expects, InterruptKind
from nbagent.core.base.metadata import asking_inputs, expected


class Offer(BaseModel):
    why: str = "cheap"
    choices: list[str] = ["a", "b"]


YES_OR_NO = {"type": "boolean"}
CHOOSE = nb.Choose("Which?", ["a", "b"])
WRITE = nb.Choose("Which?", [], allow_other=True)

TABLE: list[tuple[InterruptKind, Any, dict[str, Any], Expects]] = [
    # kind, metadata, other arguments, expected answer
    ("tool", None, {}, "approval"),  # from middleware, which has no answer type
    ("tool", None, {"asking": {}}, "value"),
    ("tool", {}, {"asking": {"question": "Q"}}, "value"),
    ("tool", None, {"asking": {"question": "Q", "choices": ["a"]}}, "choice"),
    ("tool", {"question": "Coal or gas?"}, {}, "value"),
    ("tool", {"question": "Wipe it?", "danger": True}, {}, "approval"),
    ("tool", {"question": "Coal or gas?"}, {"editable": True}, "edit"),
    ("tool", "Sure?", {}, "approval"),
    ("tool", nb.Confirm("Sure?"), {}, "approval"),
    ("tool", {"message": "Sure?", "danger": True}, {}, "approval"),
    ("tool", {"choices": "of a text"}, {}, "approval"),
    ("tool", nb.Edit("Look"), {"editable": True}, "edit"),
    ("tool", None, {"editable": ("to",)}, "edit"),
    ("tool", nb.Ask("How many?"), {}, "value"),
    ("tool", nb.Ask("How many?"), {"editable": True}, "value"),
    ("tool", CHOOSE, {}, "choice"),
    ("tool", Offer(), {}, "choice"),
    ("tool", {"choices": ["a"]}, {}, "choice"),
    ("tool", WRITE, {}, "value"),
    ("tool", nb.Ask("How many?"), {"external": True}, "external"),
    ("tool", None, {"external": True}, "external"),
    ("approval", None, {}, "approval"),
    ("approval", {"choices": ["a"]}, {}, "approval"),
    ("approval", None, {"editable": True}, "edit"),
    ("question", None, {}, "value"),
    ("question", nb.Confirm("Sure?"), {"reply_schema": YES_OR_NO}, "value"),
    ("question", {"question": "Which?", "choices": ["a", "b"]}, {}, "choice"),
    ("question", {"question": "Which?", "choices": []}, {}, "value"),
    ("ask", nb.Ask("To whom?"), {}, "value"),
    ("ask", nb.Ask("Really?"), {"reply_schema": YES_OR_NO}, "value"),
    ("ask", {"message": "Really?", "danger": True}, {"reply_schema": YES_OR_NO}, "value"),
    ("ask", nb.Confirm("Sure?"), {"reply_schema": YES_OR_NO}, "confirmation"),
    ("ask", nb.Confirm("Sure?"), {"reply_schema": {"type": "string"}}, "value"),
    ("ask", CHOOSE, {}, "choice"),
    ("ask", WRITE, {}, "value"),
    ("budget", {"message": "Go on?"}, {}, "budget"),
]


@pytest.mark.parametrize("row", TABLE)
def test_the_expected_answer_follows_from_the_tool_and_its_metadata(
    row: tuple[InterruptKind, Any, dict[str, Any], Expects],
) -> None:
    """A choice, a value, a yes or no: later code reads the kind from the event."""
    kind, metadata, more, answer = row
    assert expected(kind, metadata, **more) == answer


TEXT, TEXTS, NUMBER = (
    {"type": "string"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "integer"},
)
ASK = {"question": "Which?", "choices": ["a", "b"]}
MANY = {**ASK, "multiple": True, "allowOther": True}
ONE = {**ASK, "multiple": False}
USUAL = {"allow_other": {"type": "boolean", "default": True}}

INPUTS: list[tuple[dict[str, Any], set[str] | dict[str, Any], Any, dict[str, Any]]] = [
    # input, declared fields, schema of the answer, asking fields
    (ASK, {"question", "choices"}, TEXT, ONE),
    (ASK, {"question", "choices"}, None, ONE),
    (ASK, {"question", "choices"}, TEXTS, {**ONE, "multiple": True}),
    (ASK, {"question", "choices"}, NUMBER, {"question": "Which?"}),
    (ASK, {"question"}, TEXT, {"question": "Which?"}),
    (ASK, {"path"}, TEXT, {}),
    (MANY, set(MANY), TEXTS, MANY),
    (MANY, set(MANY), TEXT, {**MANY, "multiple": False}),
    ({**ASK, "selected": ["a"]}, {"question", "choices", "selected"}, TEXT, ONE),
    (ASK, {"question": {}, "choices": {}, **USUAL}, TEXT, {**ONE, "allow_other": True}),
    ({"choices": "ab", "question": " "}, {"choices", "question"}, TEXT, {}),
    ({"choices": []}, {"choices"}, TEXT, {}),
    ({"message": "Well?"}, {"message"}, TEXT, {"message": "Well?"}),
    ({"message": "Hi", "to": "ada"}, {"message", "to"}, TEXT, {}),
    ({"message": "Hi", "question": "Q"}, {"message", "question"}, TEXT, {"question": "Q"}),
]


@pytest.mark.parametrize("row", INPUTS)
def test_an_input_asks_only_with_fields_that_the_tool_declares_and_may_return(
    row: tuple[dict[str, Any], set[str] | dict[str, Any], Any, dict[str, Any]],
) -> None:
    """Undeclared fields ask nothing, and choices that are no valid answer are left out."""
    input_, declared, schema, asking = row
    names = declared if isinstance(declared, dict) else {name: {} for name in declared}
    assert asking_inputs(input_, names, schema) == asking
