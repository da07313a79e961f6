"""The effect of each kind of event on the view, by table; messages, retries, stops and folds."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from nbagent.core.base.events import (
    BodyCalled,
    CallRequested,
    Interrupted,
    MessageQueued,
    ModelPartial,
    ModelResponded,
    OutputRefused,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunImported,
    RunQueued,
    RunRetried,
    RunStarted,
    RunTaken,
    StepFinished,
    StoredEvent,
    TextWritten,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Restart
from nbagent.core.base.messages import user
from nbagent.core.base.model import TextDelta
from nbagent.core.tools.call_output import MAX_PRINTED, Printed
from nbagent.notebook.render import amounts, facts, plain, static
from nbagent.notebook.view.view import SingleRunView

STARTED = RunStarted(at=100.0, agent="bank", model="m", messages=[user("pay")], max_turns=5)
CALL = CallRequested(id="c", name="pay", input={"amount": 200})
RESPONDED = ModelResponded(at=101.0, calls=(CALL,))
ASKED = Interrupted(
    at=102.0,
    id="i",
    call_id="c",
    tool_name="pay",
    kind="approval",
    expects="approval",
    input=CALL.input,
)
RUNS = ToolStarted(at=103.0, call_id="c", attempt=1, owner="o", input=CALL.input)
INSIDE = BodyCalled(at=104.0, scope=("c",), call_id="r", name="banker", input={"prompt": "pay"})
FAILED = RunFailed(at=104.0, error="ToolFailed", message="x")

DRAWN: dict[type[Any], tuple[list[StoredEvent], str, list[str]]] = {
    RunQueued: ([RunQueued(at=99.0, agent="a", model="m", after="r0", text="go")], "queued", []),
    RunStarted: ([STARTED], "running", []),
    ModelResponded: ([STARTED, RESPONDED], "running", ["call preparing"]),
    ModelPartial: ([STARTED, ModelPartial(at=102.0, text="so far")], "running", []),
    OutputRefused: (
        [
            STARTED,
            ModelResponded(at=102.0, text="soup"),
            OutputRefused(at=102.5, errors="not JSON"),
        ],
        "running",
        ["text", "notice"],
    ),
    ToolStarted: ([STARTED, RESPONDED, RUNS], "running", ["call running"]),
    BodyCalled: (
        [STARTED, RESPONDED, RUNS, INSIDE],
        "running",
        ["call running", "call preparing"],
    ),
    StepFinished: (
        [STARTED, RESPONDED, RUNS, StepFinished(at=104.0, call_id="c", name="s", value=1)],
        "running",
        ["call running", "call done"],
    ),
    TextWritten: (
        [STARTED, RESPONDED, RUNS, TextWritten(at=104.0, call_id="c", text="soup")],
        "running",
        ["call running", "text"],
    ),
    ToolFinished: (
        [STARTED, RESPONDED, RUNS, ToolFinished(at=104.0, call_id="c", output="ok")],
        "running",
        ["call done"],
    ),
    Interrupted: ([STARTED, RESPONDED, ASKED], "interrupted", ["form"]),
    MessageQueued: (
        [STARTED, RESPONDED, ASKED, MessageQueued(at=103.0, text="hurry", by="code")],
        "interrupted",
        ["form", "message"],
    ),
    Resolved: (
        [
            STARTED,
            RESPONDED,
            ASKED,
            Resolved(at=103.0, id="i", call_id="c", resolution=Restart(), by="form"),
        ],
        "running",
        ["call preparing"],
    ),
    RunCompleted: ([STARTED, RunCompleted(at=104.0, text="fin")], "completed", ["text"]),
    RunFailed: ([STARTED, RESPONDED, RUNS, FAILED], "failed", ["call failed", "notice"]),
    RunRetried: (
        [STARTED, RESPONDED, RUNS, FAILED, RunRetried(at=105.0, by="code")],
        "running",
        ["call preparing"],
    ),
    RunImported: (
        [STARTED, RESPONDED, ASKED, RunImported(at=105.0, by="code")],
        "interrupted",
        ["form"],
    ),
    RunTaken: (
        [STARTED, RESPONDED, ASKED, RunTaken(at=105.0, by="take over", owner="m:7:1:host")],
        "interrupted",
        ["form", "notice"],
    ),
    RunCancelled: (
        [STARTED, RESPONDED, RunCancelled(at=104.0, by="form")],
        "cancelled",
        ["call cancelled", "notice"],
    ),
}
"""By type: events that end with that type, then the status and the items."""


def view_of(*events: Any) -> SingleRunView:
    view = SingleRunView("r")
    for event in events:
        view.apply(event)
    return view


def drawn(view: SingleRunView) -> list[str]:
    items = view.snapshot().items
    return [f"call {i.state}" if i.type == "call" else i.type for i in items]


@pytest.mark.parametrize("kind", get_args(StoredEvent), ids=lambda kind: kind.__name__)
def test_every_stored_event_has_a_handler(kind: type[Any]) -> None:
    """A new kind of event without a line in the table fails."""
    events, status, items = DRAWN[kind]
    assert isinstance(events[-1], kind)
    view = view_of(*events)
    assert (view.status, drawn(view)) == (status, items)


def test_a_message_waits_below_its_turn_and_is_sent_with_the_results() -> None:
    """The message has a note while it waits; then the note is removed, and the turns start again."""
    hurry = MessageQueued(at=103.0, text="and **hurry**\u202e", by="code")
    view = view_of(STARTED, RESPONDED, ASKED, hurry)
    message = view.snapshot().items[-1]
    assert message.type == "message"
    assert (message.text, message.note) == ("and **hurry**⟨U+202E⟩", "will be sent after this turn")
    yes = Resolved(at=104.0, id="i", call_id="c", resolution=Restart(), by="form")
    for event in (yes, RUNS, ToolFinished(at=105.0, call_id="c", output="ok")):
        view.apply(event)
    snapshot = view.snapshot()
    assert [i.type for i in snapshot.items] == ["call", "message"]
    assert snapshot.items[-1].note == ""  # type: ignore[union-attr]
    assert (snapshot.head.turns, snapshot.head.max_turns) == (2, 6)
    view.apply(ModelResponded(at=106.0, text="Hurrying."))
    assert drawn(view)[-2:] == ["message", "text"]
    assert "nba-message" in static.render(view.snapshot(), style=False)
    assert "> and **hurry**" in plain.render(view.snapshot())


def test_a_message_that_was_never_sent_says_so() -> None:
    """A message that the model never got is not shown as sent; after a retry it waits again."""
    view = view_of(STARTED, RESPONDED, ASKED, MessageQueued(at=103.0, text="hurry", by="code"))
    view.apply(FAILED)
    assert [i.note for i in view.snapshot().items if i.type == "message"] == ["not sent"]
    view.apply(RunRetried(at=105.0, by="code"))
    assert [i.note for i in view.snapshot().items if i.type == "message"] == [
        "will be sent after this turn"
    ]


def test_an_expired_question_has_more_time_after_a_retry() -> None:
    """The form counts down to the engine's new deadline, not to a past time."""
    short = ASKED.model_copy(update={"expires_at": 103.0, "on_expire": "fail"})
    view = view_of(STARTED, RESPONDED, short, FAILED, RunRetried(at=110.0, by="code"))
    (form,) = [i for i in view.snapshot().items if i.type == "form"]
    assert form.expires_at == 111.0


def test_a_message_during_an_answer_follows_it_and_is_answered() -> None:
    """Live and replayed: the answer in progress, the message, then the message's own answer."""
    hurry = MessageQueued(at=100.5, text="hurry", by="code")
    first = ModelResponded(at=101.0, text="First.")
    live = view_of(STARTED, TextDelta("Fir"), hurry, TextDelta("st."), first, TextDelta("Sec"))
    assert (live.status, drawn(live)) == ("running", ["text", "message", "text"])
    ends = ModelResponded(at=102.0, text="Second.")
    live.apply(ends)
    assert live.snapshot() == view_of(STARTED, hurry, first, ends).snapshot()


def test_a_retry_of_an_inner_run_leaves_the_others_unchanged() -> None:
    """``RunRetried`` belongs to the run of its scope: only that run continues."""
    two = ModelResponded(at=101.0, calls=(CALL, CallRequested(id="d", name="pay", input={})))
    inner = [STARTED.model_copy(update={"scope": (id_,), "agent": "clerk"}) for id_ in "cd"]
    failed = [FAILED.model_copy(update={"scope": (id_,)}) for id_ in "cd"]
    view = view_of(STARTED, two, *inner, *failed)
    assert lanes(view) == []
    view.apply(RunRetried(at=110.0, scope=("c",), by="middleware"))
    assert lanes(view) == [("inner", 10.0)]


def test_the_remaining_turns_are_those_of_the_engine() -> None:
    """An open turn in the history counts against the limit, but is not a turn of this run."""
    done = {"type": "tool_result", "id": "c", "name": "pay", "output": "ok"}
    call = {"type": "tool_call", "id": "c", "name": "pay", "input": {"amount": 200}}
    call["nbagent"] = {"status": "done", "result": done}
    left = {"type": "tool_call", "id": "d", "name": "pay", "input": {"amount": 300}}
    messages = [user("pay"), {"role": "assistant", "content": [call, left]}]
    view = view_of(STARTED.model_copy(update={"messages": messages}))
    assert (view.snapshot().head.turns, view.snapshot().head.max_turns) == (0, 4)


def test_the_first_answer_in_progress_is_the_first_turn() -> None:
    """A turn counts while its model answers; a turn without a response does not count after the end."""
    view = view_of(STARTED)
    assert view.snapshot().head.turns == 1
    view.apply(RESPONDED)
    assert view.snapshot().head.turns == 1
    assert view_of(STARTED, FAILED).snapshot().head.turns == 0


def lanes(view: SingleRunView) -> list[tuple[str, float]]:
    return [(s.lane, s.start) for s in view.snapshot().head.spans if s.end is None]


def test_a_run_stopped_by_the_button_was_stopped_by_you() -> None:
    """The text does not contain our own word for the button."""
    view = view_of(STARTED, RunCancelled(at=104.0, by="form"))
    assert plain.render(view.snapshot()).endswith("! Stopped by you.")


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("input_in_run", "approved · always with this input in this run"),
        ("tool_in_run", "approved · always in this run"),
        ("input", "approved · always with this input for this agent"),
        ("tool", "approved · always for this agent"),
    ],
)
def test_the_record_of_a_lasting_approval_shows_its_scope(scope: Any, said: str) -> None:
    """Live, static and as text, so that the scope can be read later."""
    yes = Resolved(at=103.0, id="i", call_id="c", resolution=Restart(remember=scope), by="form")
    snapshot = view_of(STARTED, RESPONDED, ASKED, yes).snapshot()
    row = snapshot.items[-1]
    assert row.type == "call"
    assert [record.decision for record in row.decisions] == [said]
    assert said in static.render(snapshot, style=False)
    assert said in plain.render(snapshot)


@pytest.mark.parametrize(
    ("by", "said"), [("form", True), ("command line", None), ("code", False), ("expiry", False)]
)
def test_only_an_answer_in_a_form_is_a_decision_by_you(by: str, said: bool | None) -> None:
    """An answer from a shell is a decision, but not by you; one from code or a deadline is none."""
    yes = Resolved(at=103.0, id="i", call_id="c", resolution=Restart(), by=by)
    snapshot = view_of(STARTED, RESPONDED, ASKED, yes).snapshot()
    assert snapshot.head.decisions_by_you == bool(said)
    assert snapshot.head.decisions == (said is not False)
    footer = static.render(snapshot, style=False).partition("<footer")[2]
    assert ("1 decision by you" in footer, "1 decision" in footer) == (
        bool(said),
        said is not False,
    )
    both = snapshot.head.model_copy(update={"decisions": 2})
    if said:
        assert amounts.decided(both) == "2 decisions, 1 by you"
    assert "by you" not in plain.render(snapshot)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"command": "ls"}, 'command="ls"'),
        ({"command": "rm -r x"}, 'command="rm -r x"'),
        ({"code": "a = 1\n  b =  2\n", "n": 3}, 'code="a = 1⏎ b = 2", n=3'),
        ({"x": '1", y="2'}, 'x="1\\", y=\\"2"'),
    ],
)
def test_an_input_on_one_line_quotes_every_text_and_marks_line_breaks(
    values: dict[str, Any], line: str
) -> None:
    """No two words are joined at a line break, and no value looks like two."""
    assert facts.brief(values) == line


def test_a_stop_in_progress_is_shown_until_the_end() -> None:
    """Every page shows the stop; a run that has ended is not stopping."""
    view = view_of(STARTED, RESPONDED)
    view.flush(0.0)
    view.set_stopping()
    ops = view.flush(1.0)
    assert ops is not None
    assert [op.head.stopping for op in ops if op.op == "head"] == [True]
    view.apply(RunCancelled(at=104.0, by="form"))
    assert not view.snapshot().head.stopping
    view.set_stopping()
    assert not view.snapshot().head.stopping


def test_omitted_lines_of_endless_printing_are_counted_once_a_second() -> None:
    """The row stays bounded and counts what it hides, without sending it all again."""
    view = view_of(STARTED, RESPONDED, RUNS)
    view.apply(Printed("c", "stdout", "x" * MAX_PRINTED))
    view.flush(0.0)
    sent = 0
    for step in range(1, 41):
        view.apply(Printed("c", "stdout", "y" * 1_000))
        sent += view.flush(step * 0.05) is not None
    assert sent == 2
    (row,) = view.snapshot().items
    assert row.type == "call"
    assert row.printed.endswith("\n… 40,000 more characters, not shown while the tool runs …\n")
    assert len(row.printed) < MAX_PRINTED + 100


@pytest.mark.parametrize(("lines", "folded"), [(12, None), (13, "3 more lines"), (400, "390 more")])
def test_long_printed_text_is_folded_in_the_static_view(lines: int, folded: str | None) -> None:
    """Folded as in the live card, and open if the live card was open."""
    text = "".join(f"line {n}\n" for n in range(lines))
    ends = ToolFinished(at=104.0, call_id="c", output="ok", printed=text)
    snapshot = view_of(STARTED, RESPONDED, RUNS, ends).snapshot()
    page = static.render(snapshot, style=False)
    assert (folded or "nba-rest") in page or folded is None
    assert ("nba-rest" in page) == (folded is not None)
    assert all(f"line {n}\n" in page or f"line {n}<" in page for n in range(lines))
    opened = static.render(snapshot, opened=["0.c0", "0.c0:printed"], style=False)
    assert opened.count(' open=""') == (2 if folded else 1)
