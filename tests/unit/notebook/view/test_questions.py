"""An interrupt's question, form and buttons, and the resolution that an answer produces."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, TypeAdapter

import nbagent as nb
from nbagent.core.base.events import Interrupted, Resolved
from nbagent.core.base.interrupts import (
    ASKED_AGAIN,
    SECRET_GONE,
    PendingInterrupt,
    Reject,
    Respond,
    Restart,
    to_json,
)
from nbagent.core.base.metadata import (
    Ask,
    Choose,
    Confirm,
    Edit,
    Option,
    asking_inputs,
    expected,
    is_bare,
)
from nbagent.core.base.secrets import SecretPlaces
from nbagent.core.tools.tool import Origin
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.questions import Question

INPUT = {"to": "ABC", "amount": 200, "note": None}


class Transfer(BaseModel):
    to: str
    amount: int
    note: str | None = None


class ConfirmTransfer(Confirm):
    to: str
    reason: str


def waiting(kind="tool", metadata=None, **more):
    more = {"input": INPUT, "digest": "d1", **more}
    said = more["input"] if kind == "question" and metadata is None else metadata
    schema, editable = more.get("reply_schema"), more.get("editable", False)
    bare = kind == "tool" and is_bare(metadata) and not editable
    declared = dict.fromkeys(more["input"], True)
    asking = asking_inputs(more["input"], declared, schema) if bare else None
    expects = expected(kind, said, reply_schema=schema, editable=editable, asking=asking)
    more = {"expects": expects, "asking": asking or None, **more}
    return PendingInterrupt(
        id="i1", tool_name="transfer", call_id="c1", kind=kind, metadata=to_json(metadata), **more
    )


def names(question):
    return [action.name for action in question.actions]


def facts(question):
    return {fact.label: fact.value for fact in question.facts}


def test_c136_the_form_of_a_lost_call_runs_it_again_sets_its_result_or_fails_it():
    """One form has all three buttons; typed text counts only for its own button; nothing is remembered."""
    asked = waiting("lost", {"message": "Gone."}, reply_schema={"type": "integer"})
    question = Question.of(asked, Types(output=TypeAdapter(int)))
    assert question.title == "Did transfer take effect?"
    assert question.warning.startswith("Gone. Check the system that it changes.")
    assert names(question) == ["submit", "approve", "reject"]
    assert facts(question) == EXACT
    assert question.form is not None
    assert question.approval  # Enter presses nothing
    typed = {"text": "7"}
    assert question.resolve("approve", typed) == Restart()
    assert question.resolve("reject", typed, " no ") == Reject("no")
    assert question.resolve("submit", typed) == Respond(7)
    for refused in (("submit", None), ("approve", None, None, "tool"), ("junk", None)):
        assert isinstance(question.resolve(*refused), list)


EXACT = {"to": "ABC", "amount": "200", "note": "null"}
CHOICES = {"choices": ["a", "b"]}
WHY = {"reason": "why", **EXACT}
OTHER_WAY = {
    # by kind and main button: the button that answers instead of running, or the reverse
    ("tool", "submit"): ["approve"],
    ("tool", "approve"): ["answer"],
    ("approval", "approve"): ["answer"],
}

TABLE = [
    # kind, metadata, interrupt's other fields, buttons, title, facts, whether there is a form
    ("question", Choose(message="Which?", choices=["a", "b"]), {}, "submit", "Which?", {}, True),
    ("tool", Choose(message="Which?", choices=["a", "b"]), {}, "submit", "Which?", EXACT, True),
    ("question", {"question": "Which?", **CHOICES}, {}, "submit", "Which?", {}, True),
    ("tool", {"reason": "why", **CHOICES}, {}, "submit", "transfer asks", WHY, True),
    ("question", None, {"input": {"question": "Q", **CHOICES}}, "submit", "Q", {}, True),
    (
        "approval",
        CHOICES,
        {},
        "approve",
        "Run transfer?",
        {"choices": '["a", "b"]', **EXACT},
        False,
    ),
    ("approval", None, {}, "approve", "Run transfer?", EXACT, False),
    ("tool", None, {}, "submit", "transfer asks", EXACT, True),
    ("tool", None, {"input": {"question": "Q", **CHOICES}}, "submit", "Q", {}, True),
    ("tool", None, {"input": {"question": "Q", "why": "w"}}, "submit", "Q", {"why": "w"}, True),
    ("tool", {"question": "Q", "why": "w"}, {}, "submit", "Q", {"why": "w", **EXACT}, True),
    ("tool", Confirm(message="Sure?"), {}, "approve", "Sure?", EXACT, False),
    ("tool", "Sure?", {}, "approve", "Sure?", EXACT, False),
    ("tool", {"limit": 5}, {}, "approve", "Run transfer?", {"limit": "5", **EXACT}, False),
    ("tool", ["x"], {}, "approve", "Run transfer?", {"value": '["x"]', **EXACT}, False),
    (
        "tool",
        ConfirmTransfer(message="Large", to="ABC", reason="limit"),
        {},
        "approve",
        "Large",
        {"reason": "limit", **EXACT},
        False,
    ),
    ("tool", Edit(message="Look"), {"editable": True}, "approve", "Look", {}, True),
    ("tool", {"limit": 5}, {"editable": ("to",)}, "approve", "Run transfer?", {"limit": "5"}, True),
    ("approval", None, {"editable": True}, "approve", "Run transfer?", {}, True),
    ("question", Ask(message="How many?"), {}, "submit", "How many?", {}, True),
    ("question", {"message": "M", "hint": "h"}, {}, "submit", "M", {"hint": "h"}, True),
    ("question", None, {"input": {}}, "submit", "transfer asks", {}, True),
    ("budget", {"message": "Go on?"}, {}, "submit", "Go on?", {}, True),
]


@pytest.mark.parametrize("row", TABLE)
def test_each_kind_of_interrupt_asks_its_own_question(row):
    """Answers are submitted, calls are approved, and both can be rejected."""
    kind, metadata, more, main, title, shown, form = row
    pending = waiting(kind, metadata, **more)
    question = Question.of(pending)
    assert names(question) == [main, "reject", *OTHER_WAY.get((kind, main), [])]
    assert question.title == title
    assert facts(question) == shown
    assert (question.form is not None) == form
    assert question.approval == (main == "approve")
    assert question.digest == "d1"
    question.item("q", "c", "")


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("https://good.example/in?a=1", 'href="https://good.example/in?a=1"'),
        ("https://g\u043e\u043ed.example/", "Open xn--gd-fmca.example ↗"),
        ("javascript:alert(1)", ""),
        ("https://good.example\\\\@evil.example", ""),
        ('https://good.example/"onclick="x', "%22onclick"),
    ],
)
def test_a_page_to_open_is_a_link_with_its_host_or_a_text(link, shown):
    """Metadata may come from a server: only a plain web address becomes a link."""
    question = Question.of(waiting(metadata={"message": "Sign in", "link": link}))
    (fact,) = (fact for fact in question.facts if fact.label.lower() == "link")
    assert ("<a " in fact.html) is bool(shown)
    assert shown in fact.html.replace("&#34;", "%22").replace("&quot;", "%22")
    assert 'onclick="x' not in fact.html


def test_a_stored_interrupt_asks_the_same_question_as_the_pending_one():
    """A replayed journal shows the form that was shown live."""
    event = Interrupted(
        at=1.0,
        id="i1",
        call_id="c1",
        tool_name="transfer",
        kind="tool",
        expects="approval",
        input=INPUT,
        metadata={"message": "Sure?"},
        digest="d1",
    )
    pending = waiting("tool", {"message": "Sure?"})
    assert Question.of(event).item("q", "c", "") == Question.of(pending).item("q", "c", "")


def test_a_choice_answers_with_the_typed_value_and_its_record_with_the_label():
    """The page sends the option's number, the answer is its value, and the record shows its label."""
    choose = Choose(message="When?", choices=[Option(value=1, label="Today"), Option(value=2)])
    question = Question.of(waiting("question", choose), Types(output=TypeAdapter(int)))
    assert question.resolve("submit", {"option": 0}) == Respond(output=1)
    assert decided(question, Respond(output=1)).decision == "you chose Today"
    assert decided(question, Respond(output=9)).decision == "you chose 9"


def test_a_write_in_and_several_choices_are_answered():
    """``allow_other`` and ``multiple`` also work in the user's own metadata."""
    own = {"message": "Who?", "choices": ["a", "b"], "allow_other": True}
    assert Question.of(waiting("tool", own)).resolve("submit", {"other": "me"}) == Respond(
        output="me"
    )
    many = Question.of(waiting("tool", {**own, "multiple": True, "allow_other": False}))
    assert many.resolve("submit", {"options": [1, 0]}) in (
        Respond(output=["a", "b"]),
        Respond(output=["b", "a"]),
    )
    assert decided(many, Respond(output=["a", "b"])).decision == "you chose a, b"


def test_a_model_cannot_choose_for_the_person():
    """``selected`` counts if code sets it, never if the model wrote the metadata."""
    values = {"question": "Which?", "choices": ["a", "b"], "selected": ["b"]}
    by_model = Question.of(waiting("question", values, input=values))
    assert isinstance(by_model.resolve("submit", None), list)
    by_code = Question.of(waiting("question", values))
    assert by_code.resolve("submit", None) == Respond(output="b")


def test_approving_without_edits_runs_the_original_input():
    """A plain ``Restart``: no value of the form replaces the model's input."""
    for asked in (waiting("tool"), waiting("tool", "Sure?"), waiting("approval")):
        assert Question.of(asked).resolve("approve") == Restart()
    question = Question.of(waiting("tool", editable=True), Types(input=Transfer))
    assert question.resolve("approve", None) == Restart()
    same = {"fields": {"amount": {"text": "200"}}}
    assert question.resolve("approve", same) == Restart()


def test_approving_with_changes_runs_the_changed_input_and_records_the_changes():
    """The restart has the whole input; the record names only the changed fields."""
    question = Question.of(waiting("tool", editable=True), Types(input=Transfer))
    drafts = {"fields": {"amount": {"text": "50"}}}
    changed = Restart(input={"to": "ABC", "amount": 50, "note": None})
    assert question.resolve("approve", drafts) == changed
    record = decided(question, changed)
    assert record.decision == "approved with changes"
    assert [(f.label, f.changed_from, f.value) for f in record.details] == [("amount", "200", "50")]


def test_an_editable_input_works_without_the_tool():
    """A process without the tool can still show and answer the question."""
    question = Question.of(waiting("tool", editable=True))
    drafts = {"fields": {"amount": {"text": "50"}}}
    assert question.resolve("approve", drafts) == Restart(
        input={"to": "ABC", "amount": 50, "note": None}
    )


def test_a_form_never_replaces_input_that_is_not_editable():
    """C93: ``editable`` decides, not the page; a draft for any other field is an error."""
    fixed = Question.of(waiting("tool", "Sure?"))
    part = Question.of(waiting("tool", editable=("amount",)), Types(input=Transfer))
    drafts = {"fields": {"to": {"text": "EVIL"}}}
    for question in (fixed, part):
        assert isinstance(question.resolve("approve", drafts), list)
    assert isinstance(fixed.resolve("approve", {"fields": {}}), list)
    assert isinstance(part.resolve("approve", {"fields": {"amount": {"text": "5"}}}), Restart)


def test_a_wrong_answer_is_an_error_at_its_field():
    """C28, C89: the error names the field, and no resolution is returned."""
    question = Question.of(waiting("question", Ask(message="?")), Types(output=TypeAdapter(int)))
    for drafts in (None, {"text": "many"}, {"text": ""}):
        (error,) = question.resolve("submit", drafts)
        assert error.field == ""
        assert error.message
    edit = Question.of(waiting("tool", editable=True), Types(input=Transfer))
    (error,) = edit.resolve("approve", {"fields": {"amount": {"text": "x"}}})
    assert error.field == "/amount"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["fields", "text", "option", "bool", "amount", "to", "null", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
QUESTIONS = [
    (Question.of(waiting("tool", "Sure?")), "approve"),
    (Question.of(waiting("tool")), "submit"),
    (Question.of(waiting("approval", editable=("amount",)), Types(input=Transfer)), "approve"),
    (Question.of(waiting("tool", Choose(message="?", choices=["a"]))), "submit"),
    (Question.of(waiting("question", Ask(message="?")), Types(output=Transfer)), "submit"),
    (Question.of(waiting("budget", input={})), "submit"),
]


@settings(max_examples=300)
@given(
    st.sampled_from(QUESTIONS),
    JUNK | st.sampled_from(["approve", "submit", "answer", "reject"]),
    JUNK,
    JUNK,
)
def test_junk_never_approves_and_never_raises(asked, action, drafts, reason):
    """C80: an unknown action or wrongly typed drafts are errors; fixed input never changes."""
    question, main = asked
    outcome = question.resolve(action, drafts, reason)
    if isinstance(outcome, Restart):
        assert action == "approve"
        assert main == "approve" or drafts is None
        assert reason is None or isinstance(reason, str)
        assert drafts is None or isinstance(drafts, dict)
        if outcome.input is not None:
            fixed = {k: v for k, v in outcome.input.items() if k != "amount"}
            assert fixed == {"to": "ABC", "note": None}
    elif isinstance(outcome, Respond):
        assert action == ("answer" if main == "approve" else "submit")
        assert isinstance(drafts, dict)
    elif isinstance(outcome, Reject):
        assert action == "reject"
    else:
        assert outcome
        assert all(error.message for error in outcome)


def test_c139_a_call_is_answered_in_its_place_by_a_form_of_its_type():
    """The answer's form validates the answer; approving rejects values typed for the answer, and the reverse."""
    known = Types(input=Transfer, output=TypeAdapter(int))
    for asked in (waiting("approval"), waiting("tool", Confirm("Sure?"), editable=True)):
        question = Question.of(asked, known)
        assert question.resolve("answer", {"text": "7"}) == Respond(7)
        for wrong in (None, {"text": "many"}, {"fields": {"amount": {"text": "7"}}}, True):
            (error,) = question.resolve("answer", wrong)
            assert error.message
        assert isinstance(question.resolve("answer", None, None, "tool"), list)
        assert isinstance(question.resolve("approve", {"text": "7"}), list)
        record = decided(question, Respond(7))
        assert (record.title, record.decision) == ("transfer", "you answered 7")
        (menu,) = [action for action in question.actions if action.menu]
        assert (menu.name, menu.label) == ("answer", "Answer instead…")


def test_c139_a_question_repeated_after_a_restart_is_answered_without_a_menu():
    """A restart led to the same question, so the answer button is outside the menu."""
    question = Question.of(waiting("tool", "Sure?", note=ASKED_AGAIN))
    assert [action.name for action in question.actions if not action.menu] == [
        "approve",
        "reject",
        "answer",
    ]


def test_c138_a_bare_pause_runs_its_call_from_the_menu_and_shows_all_that_runs():
    """The main button answers; the menu runs the call with its own input, never with typed text."""
    many = {"choices": [{"value": "rm", "label": "Look"}, "b"], "allowOther": True, "path": "/"}
    question = Question.of(waiting("tool", input=many), Types(output=TypeAdapter(str)))
    assert question.resolve("submit", {"option": 0}) == Respond("rm")
    assert question.resolve("submit", {"other": "me"}) == Respond("me")
    assert question.resolve("approve") == Restart()
    assert isinstance(question.resolve("approve", {"option": 0}), list)
    assert isinstance(question.resolve("approve", None, None, "tool"), list)
    assert {"choices", "path"} <= set(facts(question))  # shown because a label hides the real value
    assert [(a.name, a.label) for a in question.actions if a.menu] == [("approve", "Run transfer")]
    assert decided(question, Restart()).decision == "you ran it anyway"


@pytest.mark.parametrize(
    "action", [None, "", {}, [], True, "true", "false", "APPROVE", "submit", "answer", 1]
)
def test_only_the_approve_button_approves(action):
    """C80: any other action is an error, and the call stays waiting."""
    for drafts in (None, {}, "false"):
        assert isinstance(Question.of(waiting("approval")).resolve(action, drafts), list)
    assert isinstance(Question.of(waiting("question", CHOICES)).resolve("approve"), list)


def test_a_rejection_has_its_reason_and_blank_means_none():
    """C78, C79: an empty reason is no reason; a reason that is not a string is an error."""
    question = Question.of(waiting("tool"))
    assert question.resolve("reject", None, " not now ") == Reject(reason="not now")
    assert question.resolve("reject", None, "  ") == Reject(reason=None)
    assert isinstance(question.resolve("reject", None, {"a": 1}), list)


def test_the_budget_question_is_answered_with_a_number_of_turns():
    """C69: at least 1 more turn."""
    question = Question.of(waiting("budget", {"message": "Go on?"}, input={}))
    assert question.resolve("submit", {"text": "5"}) == Respond(output=5)
    for text in ("0", "-1", "1.5", "many"):
        assert isinstance(question.resolve("submit", {"text": text}), list)


def test_a_question_of_a_body_has_its_own_type_and_prefill():
    """``ctx.ask(..., reply=, value=)`` sets type and prefill; the tool's return type is not used."""
    event = Interrupted(
        at=1.0,
        id="i1",
        call_id="c1",
        tool_name="transfer",
        kind="ask",
        expects="value",
        input=INPUT,
        metadata={"message": "How many?"},
        reply_schema={"type": "integer"},
        prefill=7,
        ask=0,
    )
    question = Question.of(event, Types(output=TypeAdapter(str)))
    assert question.resolve("submit", None) == Respond(output=7)
    assert question.resolve("submit", {"text": "8"}) == Respond(output=8)
    choices = event.model_copy(
        update={
            "metadata": {"message": "?", "choices": ["a", "b"]},
            "expects": "choice",
            "prefill": "b",
        }
    )
    plain = Question.of(choices.model_copy(update={"reply_schema": {"type": "string"}}))
    assert plain.resolve("submit", None) == Respond(output="b")


def test_without_a_type_a_person_writes_text_and_not_json():
    """A tool without a return type receives the typed text as it is."""
    for types in (None, Types(output=TypeAdapter(Any)), Types(output={})):
        question = Question.of(waiting("question", Ask(message="?")), types)
        assert question.resolve("submit", {"text": "hello"}) == Respond(output="hello")


def test_a_dangerous_approval_has_a_danger_button():
    """``danger=True`` marks the button; the string ``'false'`` does not."""
    question = Question.of(waiting("tool", Confirm(message="Drop?", danger=True)))
    assert question.actions[0].danger
    assert "danger" not in facts(question)
    assert not Question.of(waiting("tool", {"danger": "false"})).actions[0].danger


def test_typed_secrets_are_in_no_record():
    """A password that answers a question is neither in the record nor in its details."""

    class Login(BaseModel):
        user: str
        password: SecretStr

    question = Question.of(waiting("question", Ask(message="?")), Types(output=Login))
    given = {"user": "ann", "password": "hunter2"}
    assert "hunter2" not in decided(question, Respond(output=given)).model_dump_json()
    assert question.public(given)["user"] == "ann"
    alone = Question.of(waiting("question", Ask(message="?")), Types(output=TypeAdapter(SecretStr)))
    assert "hunter2" not in decided(alone, Respond(output="hunter2")).model_dump_json()


class Paid(BaseModel):
    user: str
    pin: SecretStr = Field(max_length=4)


@pytest.mark.parametrize("editable", [False, ("user",), True])
def test_a_lost_secret_is_a_field_to_fill(editable):
    """If the process lacks the secret, approving asks for it and says why; fixed fields do not change."""
    places = SecretPlaces.of(Paid.model_json_schema())
    types = Types(input=Paid, secrets=places)
    here = places.seal({"user": "ann", "pin": "1234"})
    question = Question.of(waiting("approval", input=here, editable=editable), types)
    assert question.resolve("approve") == Restart()
    assert question.item("k", "", "").note is None
    gone = json.loads(json.dumps(here))
    question = Question.of(waiting("approval", input=gone, editable=editable), types)
    item = question.item("k", "", "")
    assert (item.note, question.expects) == (SECRET_GONE, "edit")
    assert "1234" not in item.model_dump_json()
    assert [e.message for e in question.resolve("approve")] == ["Please answer."]
    typed = {"pin": {"text": "4321"}}
    assert question.resolve("approve", {"fields": typed}) == Restart({"user": "ann", "pin": "4321"})
    other = question.resolve("approve", {"fields": {**typed, "user": {"text": "eve"}}})
    assert isinstance(other, Restart) is bool(editable)


@pytest.mark.parametrize(
    "metadata",
    [
        {"choices": []},
        {"choices": "abc"},
        {"choices": [None, {}, {"value": []}], "multiple": "yes", "selected": 5},
        {"message": 5, "choices": {"a": 1}},
        {"message": "x" * 5_000},
        [],
        0,
        "",
        {"": None},
        {"choices": ["a"] * 300},
    ],
)
def test_odd_metadata_still_gets_a_question(metadata):
    """Whatever its metadata, every interrupt has a question to answer."""
    for kind in ("tool", "question", "approval", "budget"):
        question = Question.of(waiting(kind, metadata))
        assert len(question.title) <= 300
        assert names(question)[1] == "reject"
        question.item("q", "c", "").model_dump_json()


def decided(question, resolution):
    event = Resolved(at=5.0, id="i1", call_id="c1", resolution=resolution, by="form")
    return question.record("a", event, 2.0)


def test_c842_the_record_of_a_question_without_a_text_shows_its_values():
    """After the answer nothing else does; a question with a text has the text as its title."""
    raw = {"pause": {"action": "pay", "amount": 5}}
    asked = waiting("ask", raw, reply_schema={"type": "string"})
    given = Resolved(at=1.0, id="i1", call_id="c1", resolution=Respond(output="ok"), by="form")
    record = Question.of(asked).record("k", given, 0.0)
    assert [(f.label, f.value) for f in record.details] == [
        ("pause", '{"action": "pay", "amount": 5}')
    ]
    titled = Question.of(
        waiting("ask", {"message": "Pay?", **raw}, reply_schema={"type": "string"})
    )
    assert titled.record("k", given, 0.0).details == []


def test_c853_a_record_shows_an_answer_in_words_and_rows_below_it():
    """Yes and No, a moment as day and time; rows are a detail, not JSON in the line. What is sent stays as it is."""
    question = Question.of(waiting("ask", {"message": "Well?"}, reply_schema={}))
    told = {True: "Yes", False: "No", "2026-07-01T09:30:00Z": "2026-07-01 09:30:00 UTC", "T": "T"}
    for value, words in told.items():
        assert decided(question, Respond(output=value)).decision == f"you answered {words}"
    named = decided(question, Respond(output={"ok": True, "at": "2026-07-01T09:30+02:00"}))
    assert [fact.value for fact in named.details] == ["Yes", "2026-07-01 09:30+02:00"]
    rows = decided(question, Respond(output=[{"age": 3}]))
    assert rows.decision == "you answered"
    assert rows.details[0].nested_value == [{"age": 3}]


def test_c681_only_an_answer_in_the_form_is_shown_as_yours():
    """The record names code, another person or another system in words if one of them answered."""
    ask = {"at": 1.0, "id": "i", "call_id": "c", "tool_name": "pay", "input": {}, "kind": "tool"}
    choose = Interrupted(**ask, expects="choice", metadata={"question": "Who?", "choices": ["Ann"]})
    value = Interrupted(**ask, expects="value", metadata={"question": "Who?"})
    told = [
        (choose, Respond(output="Ann"), "you chose Ann", "chosen: Ann"),
        (value, Respond(output="Ann"), "you answered Ann", "answered Ann"),
        (value, Respond(output={"a": 1}), "you answered", "answered"),
        (value, Restart(), "you ran it anyway", "run anyway"),
        (value, Reject(), "declined", "declined"),
    ]
    by = {"form": "", "code": " · by code", "ann": " · by ann", "external": " · by another system"}
    by |= {"answers=": " · by code", "expiry": " · time ran out"}
    by |= {"idempotent=True": " · the tool is idempotent"}
    for who, suffix in by.items():
        for waiting, resolution, *words in told:
            event = Resolved(at=5.0, id="i", call_id="c", resolution=resolution, by=who)
            record = Question.of(waiting).record("a", event, 2.0)
            assert record.decision == words[who != "form"] + suffix


def test_an_external_question_shows_no_warning_about_buttons():
    """``danger`` describes the approve button, which an external question lacks."""
    ask = {"at": 1.0, "id": "i", "call_id": "c", "tool_name": "pay", "input": {}, "kind": "tool"}
    metadata = {"message": "The bank tells.", "danger": False}
    told = Question.of(Interrupted(**ask, expects="external", metadata=metadata))
    assert (told.title, told.facts, told.actions) == ("The bank tells.", [], ())


def test_words_of_the_question_are_not_repeated_as_facts():
    """Input that equals the question or its choices is hidden; all other input is shown."""
    input_ = {"question": "Which?", "choices": ["a", "b"], "limit": 3}
    ask = {"at": 1.0, "id": "i", "call_id": "c", "tool_name": "pick", "kind": "tool"}
    asked = {"message": "Which?", "choices": ["a", "b"]}
    for metadata, shown in [
        (asked, ["limit"]),
        (asked | {"message": "Which one?"}, ["question", "limit"]),
        (asked | {"choices": ["b", "a"]}, ["choices", "limit"]),
        (asked | {"choices": [{"value": "a", "label": "A"}, "b"]}, ["choices", "limit"]),
    ]:
        waiting = Interrupted(**ask, expects="choice", metadata=metadata, input=input_)
        assert [fact.label for fact in Question.of(waiting).facts] == shown
    odd = ask | {"input": {"question": "p\u0430y?"}, "metadata": {"question": "p\u0430y?"}}
    (fact,) = Question.of(Interrupted(**odd, expects="value")).facts
    assert fact.remark


def test_only_an_unchanged_approval_of_a_rule_can_be_remembered():
    """Only a rule's question can be remembered: no changed input, no tool's own interrupt."""
    base = {
        "at": 1.0,
        "id": "i",
        "call_id": "c",
        "tool_name": "pay",
        "input": {"amount": 5},
        "expects": "edit",
        "editable": True,
    }
    asked = Question.of(Interrupted(kind="approval", **base))
    assert [m.id for m in asked.item("k", "", "").remember] == [
        "input_in_run",
        "tool_in_run",
        "input",
        "tool",
    ]
    assert asked.resolve("approve", None, None, "tool") == Restart(remember="tool")
    changed = {"fields": {"amount": {"text": "6"}}}
    for drafts, wish in [(changed, "tool"), (None, "everything"), (None, 5), (None, ["tool"])]:
        assert isinstance(asked.resolve("approve", drafts, None, wish), list)
    own = Question.of(Interrupted(kind="tool", **base))
    assert own.item("k", "", "").remember == []
    assert isinstance(own.resolve("approve", None, None, "tool"), list)


def test_a_foreign_schema_that_asks_for_a_secret_has_a_note():
    """The user's own types and a call without types have no such note."""
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}}}
    asked = Question.of(waiting("question"), Types(output=schema))
    assert "Api key" in asked.item("k", "", "").note
    edited = Question.of(waiting("approval", editable=True), Types(input=schema))
    assert "Api key" in edited.item("k", "", "").note

    class Login(BaseModel):
        token: SecretStr

    assert Question.of(waiting("question"), Types(output=Login)).item("k", "", "").note is None
    own = waiting("approval", editable=True, input={"token": "t"})
    assert Question.of(own).item("k", "", "").note is None


def delete_buckets(names: list[str]) -> str:
    """Delete buckets.

    With all that is in them.
    """
    return "deleted"


async def _renewed():
    return None


def bare(names: list[str]) -> str:
    return "deleted"


@pytest.mark.parametrize(
    ("tool", "rule", "title", "label", "changed"),
    [
        (nb.tool(bare), {}, "Run bare?", "Approve", "Approve with changes"),
        (nb.tool(delete_buckets), {}, "Delete buckets", "Approve", "Approve with changes"),
        (
            nb.tool(approve_label="Empty the shelf")(delete_buckets),
            {"message": "Two of them?"},
            "Two of them?",
            "Empty the shelf",
            "Empty the shelf with changes",
        ),
        (
            nb.tool(delete_buckets),
            {"danger": True},
            "Delete buckets",
            "Delete buckets",
            "Delete buckets with changes",
        ),
        (nb.tool(bare), {"danger": True}, "Run bare?", "Approve", "Approve with changes"),
    ],
)
async def test_c793_an_approval_reads_like_a_sentence(tool, rule, title, label, changed):
    """The docstring's first line is the title, and the button of a call that cannot be undone; a rule can set danger."""
    agent = nb.Agent(
        nb.ScriptedModel([nb.ScriptedModel.call(tool.name, names=["a"]), "Done."]),
        tools=[tool],
        policy=[nb.review(editable=True, **rule)],
    )
    run = agent.run("Clean up", answers=None)
    await run.settled()
    question = Question.of(run.interrupts[0], Types.of(tool))
    approve = question.actions[0]
    assert (question.title, approve.label, approve.changed_label) == (title, label, changed)
    assert approve.danger is rule.get("danger", False)
    assert "danger" not in facts(question)
    server = copy.copy(tool)
    server.options = tool.options._replace(origin=Origin("", {}, None, None, _renewed))
    assert Types.of(server).title == "", "a server could call a deletion a reading"
    run.approve(run.interrupts[0])
    assert (await run).text == "Done."


@pytest.mark.parametrize("label", ["", " ", 3, "x" * 41])
def test_c793_a_label_that_is_no_label_is_refused(label):
    """The error names the argument."""
    with pytest.raises(
        nb.errors.ToolError, match="approve_label must be a text of at most 40 characters"
    ):
        nb.tool(approve_label=label)(bare)
