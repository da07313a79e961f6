"""Questions that differ only in their values, which the page may draw as one table."""

from typing import Annotated

import ipywidgets
import pytest
from pydantic import BaseModel, TypeAdapter

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    Resolved,
    RunStarted,
)
from nbagent.core.base.interrupts import Reject, to_json
from nbagent.core.base.messages import user
from nbagent.core.base.metadata import Choose, Confirm, expected
from nbagent.forms.hints import FormHint
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.view import SingleRunView


class Transfer(BaseModel):
    to: str
    amount: int = 1
    lines: list[str] = []


class Tuned(BaseModel):
    size: Annotated[int, FormHint(widget=ipywidgets.IntSlider)]


TYPES = {
    "pay": Types(input=Transfer),
    "drop": Types(input=Transfer),
    "ask": Types(output=TypeAdapter(str)),
    "tune": Types(input=Tuned),
    "hidden": Types(input={"type": "object", "writeOnly": True, "additionalProperties": {}}),
}
FIRST = {"to": "A"}


def question_fields(tool="pay", kind="approval", metadata=None, **more):
    more = {"input": {"to": "B", "amount": 2}, **more}
    editable, external = more.get("editable", False), "external" in more
    more["expects"] = expected(kind, metadata, editable=editable, external=external)
    return {"tool_name": tool, "kind": kind, "metadata": to_json(metadata), **more}


def forms(*questions, turns=1):
    """The form items of these questions, one call each, spread over ``turns`` turns."""
    view = SingleRunView("r", types_of=TYPES.get)
    view.apply(RunStarted(at=1.0, agent="a", model="m", messages=[user("go")], max_turns=5))
    turn = -(-len(questions) // turns)
    for number, question in enumerate(questions):
        if number % turn == 0:
            here = range(number, min(number + turn, len(questions)))
            calls = tuple(
                CallRequested(id=f"c{n}", name=questions[n]["tool_name"], input={}) for n in here
            )
            view.apply(ModelResponded(at=2.0, calls=calls))
        fields = {"at": 3.0, "id": f"i{number}", "call_id": f"c{number}", **question}
        view.apply(Interrupted(**fields))
    return [item for item in view.snapshot().items if item.type == "form"]


ALIKE = {
    "other values": (question_fields(), question_fields(input=FIRST)),
    "other values in a list": (
        question_fields(editable=True, input={"to": "A", "lines": ["x", "y"]}),
        question_fields(editable=True, input={"to": "B", "lines": []}),
    ),
    "a long text": (
        question_fields(editable=True, input={"to": "A"}),
        question_fields(editable=True, input={"to": "A\n" * 40}),
    ),
    "other metadata": (
        question_fields(metadata={"why": "a"}),
        question_fields(metadata={"why": "b"}),
    ),
    "one is dangerous": (
        question_fields(kind="tool", metadata=Confirm(message="a", danger=True)),
        question_fields(kind="tool", metadata=Confirm(message="b")),
    ),
    "questions with an answer": (
        question_fields("ask", kind="question"),
        question_fields("ask", kind="question"),
    ),
}
DIFFERENT = {
    "another tool": (question_fields(), question_fields("drop")),
    "one is editable": (question_fields(), question_fields(editable=True)),
    "other fields are editable": (
        question_fields(editable=("to",)),
        question_fields(editable=("amount",)),
    ),
    "one can be remembered": (question_fields(), question_fields(kind="tool")),
    "one is asked again for a reason": (
        question_fields(),
        question_fields(note="its schema changed"),
    ),
    "other choices": (
        question_fields("ask", kind="tool", metadata=Choose(message="?", choices=["a", "b"])),
        question_fields("ask", kind="tool", metadata=Choose(message="?", choices=["a", "c"])),
    ),
    "an approval and a question": (
        question_fields("ask", kind="question"),
        question_fields("ask", kind="approval"),
    ),
}


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE)
def test_calls_that_differ_only_in_values_are_one_group(pair):
    """Both forms have the same group, and each has its exact input as facts."""
    one, other = forms(*pair)
    assert one.group == other.group != ""
    assert {fact.label: fact.value for fact in other.input}["to"] == pair[1]["input"]["to"]


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_questions_that_ask_for_something_else_are_not_one_group(pair):
    """Only questions with the same words, form and buttons can be answered together."""
    one, other = forms(*pair)
    assert one.group != other.group


ALONE = {
    "an outside system": question_fields(external="0" * 64),
    "a question about the run": question_fields(kind="budget", budget="turns", call_id=""),
    "an ipywidget beside the card": question_fields("tune", editable=True, input={"size": 3}),
    "an input that is a secret as a whole": question_fields("hidden", editable=True),
}


@pytest.mark.parametrize("question", ALONE.values(), ids=ALONE)
def test_a_question_that_does_not_fit_a_table_is_shown_separately(question):
    """Such a question has no buttons, no call, or controls outside the card."""
    assert [(form.group, form.input) for form in forms(question, question)] == [("", [])] * 2


def test_calls_of_two_turns_are_two_groups():
    """The model requested the second turn's calls with the first turn's results."""
    one, other = forms(question_fields(), question_fields(), turns=2)
    assert one.group != other.group


def paying(*amounts):
    """The forms of these payments, in one turn."""
    return forms(*(question_fields(input={"to": f"A{n}", "amount": n}) for n in amounts))


def test_the_first_question_of_a_table_has_the_values_of_those_that_are_not_odd():
    """Few questions are seen at a glance."""
    *others, odd = paying(1, 2, 3, 4, 5, 987_654_321)
    assert [item.look for item in others] == [[]] * 5
    assert odd.look == ["amount: far from the others"]
    assert [item.covers is None for item in (*others, odd)] == [False, *[True] * 5]
    assert others[0].covers.n == 5
    assert [(one.name, len(one.values)) for one in others[0].covers.inputs] == [
        ("to", 5),
        ("amount", 5),
    ]
    assert all(not item.look and item.covers is None for item in paying(1, 2, 3, 987_654_321))


def test_after_an_answer_the_table_shows_the_values_of_those_that_are_left():
    """The next question then has the summary."""
    view = SingleRunView("r", types_of=TYPES.get)
    view.apply(RunStarted(at=1.0, agent="a", model="m", messages=[user("go")], max_turns=5))
    calls = tuple(CallRequested(id=f"c{n}", name="pay", input={}) for n in range(6))
    view.apply(ModelResponded(at=2.0, calls=calls))
    for n in range(6):
        asked = question_fields(input={"to": f"A{n}", "amount": n})
        view.apply(Interrupted(at=3.0, id=f"i{n}", call_id=f"c{n}", **asked))
    view.apply(Resolved(at=4.0, id="i0", call_id="c0", resolution=Reject(), by="form"))
    first, *others = [item for item in view.snapshot().items if item.type == "form"]
    assert (first.interrupt, first.covers.n) == ("i1", 5)
    assert [item.covers for item in others] == [None] * 4
