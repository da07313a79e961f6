"""An open turn carried through messages, so that step by step, live and saved histories are one thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from nbagent.core.base.errors import MessagesError, StoreError
from nbagent.core.base.events import Interrupted, RunFailed
from nbagent.core.base.interrupts import Resumed
from nbagent.core.base.messages import FrozenDict, Message, Part, calls_of, canonical, load, message
from nbagent.core.base.model import Usage

from .state import Calls, CallState, RunState, evolve


def paused_messages(state: RunState, *, stopped: bool = False) -> tuple[Message, ...]:
    """The history, with each call of an open turn carrying the record of where it stands.

    ``stopped`` says that no body runs any more, so that one which had begun may be run again.
    """
    if not state.calls:
        return state.messages
    failed = state.outcome if isinstance(state.outcome, RunFailed) else None
    if failed is not None:  # where the store failed, a body may have ended, and its result be lost
        stopped = stopped or failed.error != StoreError.__name__
    last = state.messages[-1]
    first, whole = next(iter(state.calls)), _carry_run(state)
    parts = [
        {
            **part,
            "nbagent": _carry(state.calls[part["id"]], stopped=stopped)
            | (whole if part["id"] == first else {}),
        }
        if part["type"] == "tool_call"
        else part
        for part in last["content"]
    ]
    return (*state.messages[:-1], message("assistant", *parts))


def _carry_run(state: RunState) -> dict[str, Any]:
    """What belongs to the run and not to a call: what it has used, and what is still to be sent."""
    usage = state.usage
    run: dict[str, Any] = {}
    if usage != Usage():
        run["usage"] = [usage.input_tokens, usage.output_tokens, usage.cost]
    if state.active:
        run["seconds"] = state.active
    if state.granted:
        run["granted"] = dict(state.granted)
    if state.queued:
        run["queued"] = list(state.queued)
    return {"run": run} if run else {}


def _carry(call: CallState, *, stopped: bool) -> dict[str, Any]:
    again = stopped and call.status == "running"
    carried: dict[str, Any] = {"status": "ready" if again else call.status}
    if call.result is not None:
        answer = {"final": True, "answer": call.answer} if call.final else {}
        return {**carried, "result": call.result, **answer}
    if call.attempt:
        carried["attempt"] = call.attempt
    if call.replaced:
        carried["input"] = call.input
    if call.pause is not None:
        carried["pause"] = _dumped(call.pause)
    if call.resumed is not None:
        carried["resumed"] = {"data": call.resumed.data}
    if call.record:
        carried["record"] = list(call.record)
    return carried | _carry_more(call, stopped=stopped)


def _carry_more(call: CallState, *, stopped: bool) -> dict[str, Any]:
    """What few calls have: open questions and answers of a body, the run inside, the end."""
    carried: dict[str, Any] = {}
    if call.cleared is not None and (
        not call.attempt or canonical(call.cleared) != canonical(call.input)
    ):
        carried["cleared"] = call.cleared
    if call.asked:
        carried["asked"] = [_dumped(event) for event in call.asked.values()]
    if call.answers:
        carried["answers"] = [[number, answer] for number, answer in call.answers.items()]
    if call.steps:
        carried["steps"] = call.steps
    if call.final:
        carried["final"] = True
    if call.child is not None:
        carried["child"] = _carry_child(call.child, stopped=stopped)
    return carried


def _carry_child(child: RunState, *, stopped: bool) -> dict[str, Any]:
    carried: dict[str, Any] = {
        "agent": child.agent,
        "limit": child.limit,
        "messages": list(paused_messages(child, stopped=stopped)),
    }
    if child.budget is not None:
        carried["budget"] = _dumped(child.budget)
    if not child.calls:  # else its first call carries them
        carried |= _carry_run(child)
    return carried


def _dumped(event: Interrupted) -> dict[str, Any]:
    return event.model_dump(mode="json", exclude_defaults=True)


def closed_messages(state: RunState) -> tuple[Message, ...]:
    """The history of a run that has ended, with a result for each call that its end left open.

    What was done is kept, so that a model that goes on from here does not do it again.
    """
    if not state.calls:
        return state.messages
    results = [call.result or _left_open(call) for call in state.calls.values()]
    return (*state.messages, message("tool", *results))


def _left_open(call: CallState) -> Part:
    if call.status == "running":
        told = "The run ended while this call was running: whether it took effect is not known."
    elif call.attempt:
        told = "The run ended while this call waited for a person: it was begun, and not finished."
    else:
        told = "The run ended before this call was run."
    return {
        "type": "tool_result",
        "id": call.id,
        "name": call.name,
        "output": told,
        "error": True,
    }


def restore(messages: Sequence[Message]) -> RunState:
    """The state that a history stands for, its open turn included.

    Raises:
        MessagesError: the record of an open call is malformed.
    """
    history = tuple(messages)
    calls: dict[str, CallState] = {}
    run: dict[str, Any] = {}
    if history and history[-1]["role"] == "assistant":
        open_ = calls_of(history[-1])
        calls = {p["id"]: _carried(p) for p in open_}
        if calls:
            run = open_[0].get("nbagent", FrozenDict()).get("run", {})
            history = (*history[:-1], _without_records(history[-1]))
    turns = 0
    for item in reversed(history):
        if item["role"] == "user":
            break
        turns += item["role"] == "assistant"
    ids = tuple(p["id"] for m in history if m["role"] == "assistant" for p in calls_of(m))
    state = RunState(messages=history, calls=Calls(calls.values()), turns=turns, used_ids=ids)
    return _with_run(state, run) if run else state


def _with_run(state: RunState, carried: dict[str, Any]) -> RunState:
    try:
        tokens_in, tokens_out, cost = carried.get("usage", (0, 0, None))
        return evolve(
            state,
            usage=Usage(int(tokens_in), int(tokens_out), None if cost is None else float(cost)),
            active=float(carried.get("seconds", 0.0)),
            granted=dict(carried.get("granted", {})),
            queued=tuple(carried.get("queued", ())),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise MessagesError(f"the record of the run is malformed: {error}") from error


def _without_records(item: Message) -> Message:
    bare = [{k: v for k, v in part.items() if k != "nbagent"} for part in item["content"]]
    return message("assistant", *bare)


def _carried(part: Part) -> CallState:
    carried = part.get("nbagent", FrozenDict())
    try:
        return _call_of(part, carried)
    except (ValidationError, TypeError, KeyError, AttributeError) as error:
        raise MessagesError(
            f"the record of the open call {part['id']!r} ({part['name']!r}) is malformed: {error}"
        ) from error


_ASKED = {"pause", "asked", "answers", "resumed", "child"}
"""What the record of a call has that a person was asked about; the rules had judged it by then."""


def _judged(carried: dict[str, Any], cleared: dict[str, Any] | None) -> dict[str, Any] | None:
    """The input that the rules let pass or asked about, so that they are not asked again."""
    pause = carried.get("pause")
    if pause is not None and pause.get("verdict"):
        shown: dict[str, Any] = pause["input"]
        return shown
    return cleared if _ASKED & set(carried) else None


def _call_of(part: Part, carried: dict[str, Any]) -> CallState:
    pause, resumed = carried.get("pause"), carried.get("resumed")
    if carried.get("status") == "running":
        raise MessagesError(
            f"the record of the open call {part['id']!r} says that {part['name']!r} was running when "
            "these messages were taken; whether it took effect is not known, so it is not run again: "
            "wait for that run to end, or put a tool message with the call's result behind them"
        )
    input_: dict[str, Any] = carried["input"] if "input" in carried else part["input"]
    cleared = carried.get("cleared", input_ if carried.get("attempt") else None)
    call = CallState(
        id=part["id"],
        name=part["name"],
        proposed=part["input"],
        input=input_,
        raw=part.get("raw"),
        status=carried.get("status", "ready"),
        attempt=carried.get("attempt", 0),
        pause=None if pause is None else Interrupted.model_validate(pause),
        resumed=None if resumed is None else Resumed(resumed["data"]),
        cleared=cleared,
        judged=_judged(carried, cleared),
        asked={e["id"]: Interrupted.model_validate(e) for e in carried.get("asked", ())},
        answers=dict(carried.get("answers", ())),
        steps=carried.get("steps", {}),
        child=_child_of(carried["child"]) if "child" in carried else None,
        final=bool(carried.get("final", False)),
        record=tuple(carried.get("record", ())),
        result=carried.get("result"),
        answer=carried.get("answer"),
    )
    waits_for = [*call.asked.values(), *([call.pause] if call.pause is not None else [])]
    whole = {
        "waiting": call.child is not None or any(e.call_id == call.id for e in waits_for),
        "done": call.result is not None and call.result["id"] == call.id,
        "ready": call.resumed is None or call.pause is not None,
    }
    if not whole.get(call.status):
        raise TypeError(f"its status is {call.status!r}, but what belongs to that is missing")
    return call


def _child_of(carried: dict[str, Any]) -> RunState:
    child = restore(load(carried["messages"]))
    if "run" in carried:
        child = _with_run(child, carried["run"])
    budget = carried.get("budget")
    return evolve(
        child,
        agent=carried["agent"],
        limit=carried["limit"],
        budget=None if budget is None else Interrupted.model_validate(budget),
    )
