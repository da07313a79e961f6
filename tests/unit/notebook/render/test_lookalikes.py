"""Look-alikes in an approval are marked and named."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from nbagent.core.base.events import CallRequested, Interrupted, ModelResponded, RunStarted
from nbagent.core.base.messages import user
from nbagent.notebook.render import facts, lookalikes, plain, static
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.view import SingleRunView
from tests.unit.notebook.render.test_bounds import grows

CYRILLIC_A = "\u0430"
ODD = {
    f"payp{CYRILLIC_A}l": f"Cyrillic {CYRILLIC_A}",
    "pay to \u0440\u0430\u0443\u0440\u0430\u04cf.com": "Cyrillic \u0440",
    "G\u039fOGLE": "Greek \u039f",
    "\uff50aypal": "Fullwidth \uff50",
    "\U0001d429aypal": "mathematical bold small p \U0001d429",
    "\uff11\uff12": "fullwidth digit one \uff11",
    "10\u00a0000": "no-break space",
    "a\u2003b": "em space",
    "a\u2215b": "division slash \u2215",
    "rm\u2011rf": "non-breaking hyphen \u2011",
    " x": "starts with a space",
    "x  ": "ends with 2 spaces",
    "rm -rf /tmp\n": "ends with a line break",
}
PLAIN = [
    "paypal",
    "na\u00efve caf\u00e9 \u00df",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043a\u0430\u043a \u0434\u0435\u043b\u0430?",
    "Hello \u041c\u043e\u0441\u043a\u0432\u0430 and \u0410\u043d\u043d\u0430",
    "\u0394t = 3 \u03bcm, \u03c3\u00b2",
    "\u6f22\u5b57 kana \u3042 \ud55c\uad6d\uc5b4",
    "\u05e2\u05d1\u05e8\u05d9\u05ea abc",
    "a \u2013 b \u2014 c\u2026 \u201cq\u201d m\u00b2 \u20ac",
    "line one\n    line two\n",
    "e\u0301\u0302 Vi\u1ec7t",
    "user_\u6f22",
]


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_a_text_that_looks_like_something_else_is_named(text):
    """Letters of another script, unusual spaces and signs, blanks at the ends."""
    (fact,) = facts.facts_of({"to": text}, approved=True)
    assert ODD[text] in fact.remark.split(", ")
    assert "".join(fact.parts) == fact.value == text
    assert len(fact.parts) >= 3


@pytest.mark.parametrize("text", PLAIN, ids=ascii)
def test_ordinary_text_of_any_language_is_unchanged(text):
    (fact,) = facts.facts_of({"to": text}, approved=True)
    assert (fact.value, fact.parts, fact.remark) == (text, [], "")


TYPES = [
    (1, "1"),
    ("1", '"1"'),
    (True, "true"),
    ("true", '"true"'),
    (None, "null"),
    ("null", '"null"'),
    ("", '""'),
    ("  ", '"  "'),
    ('"1"', '"\\"1\\""'),
    ("-1.5e3", '"-1.5e3"'),
    ("one", "one"),
    ("1 apple", "1 apple"),
    ("2026-01-02", "2026-01-02"),
]


@pytest.mark.parametrize(("value", "shown"), TYPES, ids=repr)
def test_a_text_is_not_mistaken_for_a_number_or_null(value, shown):
    """A string that reads as another JSON value is in quotes."""
    (fact,) = facts.facts_of({"a": value}, approved=True)
    assert fact.value == shown


def test_a_string_of_json_is_marked_as_a_string():
    """The string is shown unchanged."""
    (fact,) = facts.facts_of({"body": '{"a": 1}'}, approved=True)
    assert (fact.value, fact.remark) == ('{"a": 1}', "a string that looks like JSON")
    (fact,) = facts.facts_of({"body": {"a": 1}}, approved=True)
    assert fact.remark == ""


def test_no_two_values_of_different_types_are_shown_alike():
    """Including strings made of what is shown for other values."""
    values: list[object] = [1, 1.5, True, False, None, "", " ", "a", '"', [], {}, [1], {"a": 1}]
    for _ in range(3):
        shown = [facts.facts_of({"a": value}, approved=True)[0] for value in values]
        values += [fact.value for fact in shown]
    seen: dict[tuple[str, bool], str] = {}
    for value in values:
        (fact,) = facts.facts_of({"a": value}, approved=True)
        key = (fact.value, "a string that looks like JSON" in fact.remark)
        assert seen.setdefault(key, repr(value)) == repr(value)


def test_combining_marks_beyond_the_third_are_counted():
    """A tower of marks would cover the lines around it."""
    assert reveal("e" + "\u0301" * 3) == "e" + "\u0301" * 3
    assert reveal("e" + "\u0301" * 40 + "x") == "e" + "\u0301" * 3 + "⟨37 more combining marks⟩x"


class Transfer(BaseModel):
    """What a tool takes."""

    to: str
    amount: int = 9_999
    memo: str | None = None


def run_with_question(editable):
    """A run with a question about a call that leaves out some input."""
    view = SingleRunView("r", types_of=lambda _name: Types(input=Transfer))
    call = CallRequested(id="c", name="pay", input={"to": f"p{CYRILLIC_A}ul "})
    view.apply(RunStarted(at=0, agent="a", model="m", messages=[user("hi")], max_turns=3))
    view.apply(ModelResponded(at=1, text="", calls=(call,)))
    view.apply(
        Interrupted(
            at=2, id="i", call_id="c", tool_name="pay", kind="approval",
            expects="edit" if editable else "approval", editable=editable, input=call.input,
        )
    )  # fmt: skip
    return view.snapshot()


def test_every_form_of_an_approval_marks_and_names_lookalikes():
    """The form also shows the tool's defaults for input that the model left out."""
    snapshot = run_with_question(editable=False)
    form = snapshot.items[-1]
    assert [(f.label, f.value, f.remark) for f in form.facts][1:] == [("amount", "9999", "default")]
    html = static.render(snapshot, style=False)
    remark = f"Cyrillic {CYRILLIC_A}, ends with a space"
    assert f'p<mark title="{remark}">{CYRILLIC_A}</mark>ul<mark title="{remark}"> </mark>' in html
    assert f'<small class="nba-odd" dir="auto">{remark}</small>' in html
    assert f"to: p{CYRILLIC_A}ul  ({remark})" in plain.render(snapshot)


def test_a_form_of_the_input_names_lookalikes_above_the_fields():
    """A field cannot mark a part of its text."""
    note = run_with_question(editable=True).items[-1].note
    assert f"Check to: Cyrillic {CYRILLIC_A}, ends with a space." in note


@pytest.mark.parametrize(
    "unit", [" ", "\u00a0", CYRILLIC_A, f"a{CYRILLIC_A} ", "\uff50", "\u0301", "\n", "[", "1"]
)
def test_searching_lookalikes_takes_linear_time(unit):
    """For a value of any size and content."""
    assert grows(lambda text: facts.facts_of({"a": text}, approved=True), unit, 20_000) < 11
    assert len(lookalikes.found(unit * 1_000)) <= lookalikes.MAX_FOUND
