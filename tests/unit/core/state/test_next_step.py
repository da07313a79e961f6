"""``next_step`` and the fold, in a table of cases."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from nbagent.core.base import events as ev
from nbagent.core.base.errors import MessagesError
from nbagent.core.base.interrupts import Reject, Respond, Restart, Resumed
from nbagent.core.base.messages import check, load, message, text_part, user
from nbagent.core.state.fold import apply
from nbagent.core.state.next_step import (
    CallModel,
    Done,
    Finish,
    LimitReached,
    RunCalls,
    Wait,
    next_step,
)
from nbagent.core.state.pause_record import closed_messages, paused_messages, restore
from nbagent.core.state.state import CallState, RunState, evolve

START = ev.RunStarted(at=0, agent="a", model="m", messages=[user("go")], max_turns=2)


def calls_response(*names: str, text: str = "") -> ev.ModelResponded:
    """A response that calls these tools, with ids c0, c1 and so on."""
    calls = tuple(
        ev.CallRequested(id=f"c{n}", name=name, input={"n": n}) for n, name in enumerate(names)
    )
    return ev.ModelResponded(at=1, text=text, calls=calls, input_tokens=10, output_tokens=1)


def started(n: int, attempt: int = 1) -> ev.ToolStarted:
    """A body of call n starts."""
    return ev.ToolStarted(at=2, call_id=f"c{n}", attempt=attempt, owner="me", input={"n": n})


def finished(n: int, output: Any = "ok") -> ev.ToolFinished:
    """Call n has its result."""
    return ev.ToolFinished(at=3, call_id=f"c{n}", output=output)


def paused(n: int, **more: Any) -> ev.Interrupted:
    """Call n waits."""
    fields = {
        "tool_name": "abc"[n],
        "kind": "tool",
        "input": {"n": n},
        "metadata": {"m": n},
        **more,
    }
    return ev.Interrupted(at=4, id=f"i{n}", call_id=f"c{n}", expects="approval", **fields)


def settled(n: int, resolution: Any) -> ev.Resolved:
    """The interrupt of call n is answered."""
    return ev.Resolved(at=5, id=f"i{n}", call_id=f"c{n}", resolution=resolution, by="me")


LIMIT = ev.Interrupted(
    at=4, id="b", call_id="", tool_name="", kind="budget", expects="budget", input={}
)


def limit_answered(resolution: Any) -> ev.Resolved:
    """The question whether to continue is answered."""
    return ev.Resolved(at=5, id="b", call_id="", resolution=resolution, by="me")


def fold(*events: Any) -> RunState:
    """The state after these events."""
    state = RunState()
    for event in events:
        state = apply(state, event)
    return state


TABLE: list[tuple[str, list[Any], Any, str]] = [
    ("a prompt", [], CallModel(), "running"),
    ("a text", [calls_response(text="hi")], Finish("hi"), "running"),
    ("calls", [calls_response("a", "b")], RunCalls(("c0", "c1")), "running"),
    ("one runs", [calls_response("a", "b"), started(0)], RunCalls(("c1",)), "running"),
    ("both run", [calls_response("a", "b"), started(0), started(1)], Wait(), "running"),
    (
        "one is done",
        [calls_response("a", "b"), started(0), finished(0), started(1)],
        Wait(),
        "running",
    ),
    ("all are done", [calls_response("a"), started(0), finished(0)], CallModel(), "running"),
    ("one waits", [calls_response("a"), started(0), paused(0)], Wait(), "interrupted"),
    (
        "one waits, one runs",
        [calls_response("a", "b"), started(0), paused(0), started(1)],
        Wait(),
        "running",
    ),
    (
        "one waits, one is done",
        [calls_response("a", "b"), started(1), finished(1), paused(0)],
        Wait(),
        "interrupted",
    ),
    (
        "answered",
        [calls_response("a"), paused(0), settled(0, Respond(output=1))],
        CallModel(),
        "running",
    ),
    ("refused", [calls_response("a"), paused(0), settled(0, Reject())], CallModel(), "running"),
    (
        "restarted",
        [calls_response("a"), paused(0), settled(0, Restart())],
        RunCalls(("c0",)),
        "running",
    ),
    (
        "restarted, one waits",
        [calls_response("a", "b"), paused(0), paused(1), settled(1, Restart())],
        RunCalls(("c1",)),
        "running",
    ),
    (
        "answered, one waits",
        [calls_response("a", "b"), paused(0), paused(1), settled(1, Respond(output=1))],
        Wait(),
        "interrupted",
    ),
    (
        "the limit",
        [
            calls_response("a"),
            finished(0),
            calls_response("b"),
            ev.ToolFinished(at=3, call_id="c0", output=1),
        ],
        LimitReached(),
        "running",
    ),
    (
        "a text at the limit",
        [calls_response("a"), finished(0), calls_response(text="x")],
        Finish("x"),
        "running",
    ),
    (
        "the limit is asked about",
        [calls_response("a"), finished(0), calls_response("b"), finished(0), LIMIT],
        Wait(),
        "interrupted",
    ),
    (
        "more turns",
        [
            calls_response("a"),
            finished(0),
            calls_response("b"),
            finished(0),
            LIMIT,
            limit_answered(Respond(output=1)),
        ],
        CallModel(),
        "running",
    ),
    (
        "no more turns",
        [
            calls_response("a"),
            finished(0),
            calls_response("b"),
            finished(0),
            LIMIT,
            limit_answered(Reject()),
        ],
        LimitReached(),
        "running",
    ),
    ("completed", [ev.RunCompleted(at=9, text="x")], Done(), "completed"),
    ("failed", [calls_response("a"), ev.RunFailed(at=9, error="E", message="m")], Done(), "failed"),
    (
        "cancelled",
        [calls_response("a"), started(0), ev.RunCancelled(at=9, by="me")],
        Done(),
        "cancelled",
    ),
]


@pytest.mark.parametrize(
    ("events", "step", "status"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE]
)
def test_the_next_step_and_the_status_follow_from_the_journal(events, step, status):
    """Both are functions of the journal alone; a closed turn is a well-formed history."""
    state = fold(START, *events)
    assert next_step(state) == step
    assert state.status == status
    assert state.position == len(events) + 1
    load(paused_messages(state))
    check(load(closed_messages(state)))


@pytest.mark.parametrize("events", [t[1] for t in TABLE[:16]], ids=[t[0] for t in TABLE[:16]])
def test_an_open_turn_is_part_of_the_messages(events):
    """A round trip through JSON keeps the turn; a stopped body is ready to run again."""
    state = fold(START, *events)
    back = restore(load(json.loads(json.dumps(paused_messages(state, stopped=True)))))
    assert json.dumps(back.messages) == json.dumps(state.messages)
    assert (back.turns, back.used_ids) == (state.turns, state.used_ids)
    for call_id, call in state.calls.items():
        other = back.calls[call_id]
        assert other.status == ("ready" if call.status == "running" else call.status)
        for name in ("id", "name", "proposed", "raw", "pause", "resumed", "result"):
            if call.result is None or name == "result":
                assert getattr(other, name) == getattr(call, name), name


def test_a_restart_keeps_the_displayed_input_and_reports_the_change():
    """Input, proposed input, record and note."""
    state = fold(
        START,
        calls_response("a"),
        started(0),
        paused(0),
        settled(0, Restart(input={"n": 9}, data=1)),
    )
    call = state.calls["c0"]
    assert (call.status, call.input, call.proposed, call.replaced) == (
        "ready",
        {"n": 9},
        {"n": 0},
        True,
    )
    assert call.resumed == Resumed(1)
    done = apply(apply(state, started(0, 2)), finished(0, {"k": 1}))
    (result,) = done.messages[-1]["content"]
    assert result["output"] == ('A person changed the arguments of this call to {"n":9}.\n{"k":1}')
    assert result["nbagent"][0]["resolution"] == {"type": "restart", "input": {"n": 9}, "data": 1}


def test_an_input_returned_in_another_order_is_not_a_change():
    """A form may send the fields in its own order."""
    first = ev.CallRequested(id="c0", name="gate", input={"a": 1, "b": [2]})
    state = fold(
        START,
        ev.ModelResponded(at=1, calls=(first,)),
        paused(0, input={"a": 1, "b": [2]}),
        settled(0, Restart(input={"b": [2], "a": 1})),
    )
    assert not state.calls["c0"].replaced


def test_the_results_of_a_turn_are_in_call_order():
    """Whatever finished first."""
    state = fold(
        START, calls_response("a", "b", "c"), finished(2, "z"), finished(0, "x"), finished(1, "y")
    )
    assert [p["output"] for p in state.messages[-1]["content"]] == ["x", "y", "z"]
    assert state.calls == {}


def test_usage_and_turns_add_up():
    """Over the whole run."""
    state = fold(START, calls_response("a"), finished(0), calls_response(text="x"))
    assert (state.usage.input_tokens, state.usage.output_tokens, state.turns) == (20, 2, 2)


def test_a_run_that_was_stopped_leaves_no_call_open():
    """Results are kept; other calls say how they ended."""
    state = fold(
        START,
        calls_response("a", "b", "c", "d"),
        started(0),
        finished(0, "x"),
        started(1),
        paused(2),
        ev.RunCancelled(at=9, by="me"),
    )
    closed = closed_messages(state)
    check(closed)
    outputs = [p["output"] for p in closed[-1]["content"]]
    assert outputs[0] == "x"
    assert "may or may not" in outputs[1]
    assert "before this call started" in outputs[2]
    assert "before this call started" in outputs[3]


def test_restoring_counts_turns_since_the_last_user_message():
    """The messages carry the turn count."""
    history = [
        user("a"),
        message("assistant", text_part("x")),
        user("b"),
        message("assistant", text_part("y")),
    ]
    assert restore(history).turns == 1


@pytest.mark.parametrize("status", ["running", "waiting", "done", "no", 5])
def test_a_record_that_lacks_fields_of_its_status_is_refused(status):
    """Otherwise the run would wait for nobody."""
    part = {"type": "tool_call", "id": "c", "name": "a", "input": {}, "nbagent": {"status": status}}
    with pytest.raises(MessagesError, match="record of the open call 'c'"):
        restore([user("go"), message("assistant", part)])


def test_but_works_like_replace():
    """``evolve`` makes the same copy."""
    call = CallState("i", "n", {}, {})
    assert evolve(call, status="done") == dataclasses.replace(call, status="done")
    assert call.status == "ready"
    state = RunState(turns=3)
    assert evolve(state, position=4) == dataclasses.replace(state, position=4)


JOURNAL: list[Any] = [
    START,
    calls_response("a", text="t"),
    ev.ModelResponded(
        at=1.5, calls=(ev.CallRequested(id="", name="", input={}, raw="{"),), cost=0.1
    ),
    started(0),
    finished(0, {"type": "x", "a": None}),
    paused(0, state=[1], editable=("n",), note="n", reply_schema={"type": "string"}),
    settled(0, Respond()),
    settled(0, Respond(output={"a": None, "type": "restart"})),
    settled(0, Restart()),
    settled(0, Restart(input={}, data={"x": None})),
    settled(0, Reject()),
    settled(0, Reject(reason="r")),
    ev.RunCompleted(at=9, text="x", output=[1]),
    ev.RunFailed(at=9, error="E", message="m"),
    ev.RunCancelled(at=9, by="me", still_running=("c0",)),
]


@pytest.mark.parametrize("event", JOURNAL, ids=lambda e: e.type)
def test_an_event_survives_json(event):
    """No field is lost, also with defaults; the JSON has the type and the version."""
    text = ev.dump(event)
    assert ev.parse(text) == event
    assert json.loads(text)["type"] == event.type
    if event.type == "run_started":
        assert json.loads(text)["version"] == ev.FORMAT_VERSION


def test_a_new_message_starts_the_count_of_turns_again():
    """A run whose turns are used up continues with a person's message."""
    said = message("assistant", {"type": "text", "text": "a"})
    answered = RunState(position=3, messages=(user("go"), said), turns=5, limit=5)
    again = apply(answered, ev.MessageQueued(at=1.0, text="more", by="code"))
    assert (again.turns, next_step(again)) == (0, CallModel())
