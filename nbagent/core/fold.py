"""A run's state as a pure fold over its events: ``apply(state, event)`` folds one more in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .callfold import answered, interrupted, ready_again, resolved, standing, started
from .carry import restore
from .events import (
    Interrupted,
    MessageQueued,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    StepFinished,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from .interrupts import Respond
from .messages import Part, freeze, load, message, user
from .model import Usage
from .standing import CallState, Outcome, RunState, but, stamped, status_of


def apply(state: RunState, event: StoredEvent, depth: int = 0) -> RunState:
    """The state after one more event; ``depth`` is how much of the event's scope is walked already."""
    passed = max(0.0, event.at - state.at) if status_of(state) == "running" else 0.0
    if len(event.scope) > depth:
        folded = _inside(state, event, depth)
    else:
        folded = _FOLDS[type(event)](state, event)
    active = folded.active + (passed if state.position else 0.0)
    return stamped(folded, event.at, active)


def _inside(state: RunState, event: StoredEvent, depth: int) -> RunState:
    """Fold an event of the run inside a call."""
    call = state.calls[event.scope[depth]]
    child = apply(call.child or RunState(), event, depth + 1)
    changes: dict[str, Any] = {}
    if isinstance(event, ModelResponded):
        changes["usage"] = state.usage + _usage(event)
    if isinstance(event, Resolved):
        changes["settled"] = {**state.settled, event.id: event}
    return _with_call(state, standing(but(call, child=child), event.at), **changes)


def _usage(event: ModelResponded) -> Usage:
    return Usage(event.input_tokens, event.output_tokens, event.cost)


def _run_started(state: RunState, event: RunStarted) -> RunState:
    begun = restore(load(event.messages))
    return but(
        begun,
        limit=event.max_turns,
        position=state.position + 1,
        agent=event.agent,
    )


def _model_responded(state: RunState, event: ModelResponded) -> RunState:
    parts: list[Part] = []
    if event.reasoning:
        parts.append({"type": "reasoning", "text": event.reasoning})
    if event.text:
        parts.append({"type": "text", "text": event.text})
    calls: dict[str, CallState] = {}
    for call in event.calls:
        frozen = freeze(call.input)
        part = {"type": "tool_call", "id": call.id, "name": call.name, "input": frozen}
        if call.raw is not None:
            part["raw"] = call.raw
        parts.append(part)
        calls[call.id] = CallState(call.id, call.name, frozen, frozen, call.raw, final=call.final)
    said = (*state.messages, message("assistant", *parts))
    told = {} if calls else _queue_sent(state)
    return but(
        state,
        position=state.position + 1,
        messages=said + told.pop("messages", ()),
        calls=calls,
        finish_reason=event.finish_reason,
        usage=state.usage + _usage(event),
        used_ids=(*state.used_ids, *calls),
        **({"turns": state.turns + 1} | told),
    )


def _queue_sent(state: RunState) -> dict[str, Any]:
    """What changes where the person's queued messages find their place in the history."""
    if not state.queued:
        return {}
    return {"messages": tuple(user(text) for text in state.queued), "queued": (), "turns": 0}


def _message_queued(state: RunState, event: MessageQueued) -> RunState:
    return but(state, position=state.position + 1, queued=(*state.queued, event.text))


def _tool_started(state: RunState, event: ToolStarted) -> RunState:
    return _with_call(state, started(state.calls[event.call_id], event))


def _step_finished(state: RunState, event: StepFinished) -> RunState:
    call = state.calls[event.call_id]
    return _with_call(state, but(call, steps={**call.steps, event.name: event.value}))


def _tool_finished(state: RunState, event: ToolFinished) -> RunState:
    call = state.calls[event.call_id]
    return _with_call(state, answered(call, event.output, error=event.error))


def _interrupted(state: RunState, event: Interrupted) -> RunState:
    if event.kind == "budget":
        return but(state, position=state.position + 1, budget=event)
    return _with_call(state, interrupted(state.calls[event.call_id], event))


def _resolved(state: RunState, event: Resolved) -> RunState:
    settled = {**state.settled, event.id: event}
    if state.budget is not None and state.budget.id == event.id:
        return _resolved_budget(state, event, settled)
    return _with_call(state, resolved(state.calls[event.call_id], event), settled=settled)


def _resolved_budget(state: RunState, event: Resolved, settled: dict[str, Resolved]) -> RunState:
    more = event.resolution.output if isinstance(event.resolution, Respond) else None
    name = (state.budget.budget if state.budget is not None else None) or "turns"
    granted = state.granted
    if more is not None and name != "turns":
        granted = {**granted, name: granted.get(name, 0) + more}
    return but(
        state,
        position=state.position + 1,
        settled=settled,
        budget=None,
        refused=more is None,
        granted=granted,
        limit=state.limit + (more if more is not None and name == "turns" else 0),
    )


def _ended(state: RunState, event: Outcome) -> RunState:
    return but(state, position=state.position + 1, outcome=event)


def _retried(state: RunState, event: RunRetried) -> RunState:
    """Go on: calls whose bodies failed are run again, what has a result is kept."""
    calls = {i: ready_again(c, event.at) for i, c in state.calls.items()}
    return but(state, position=state.position + 1, outcome=None, refused=False, calls=calls)


_FOLDS: dict[type[Any], Callable[[RunState, Any], RunState]] = {
    RunStarted: _run_started,
    ModelResponded: _model_responded,
    ToolStarted: _tool_started,
    StepFinished: _step_finished,
    ToolFinished: _tool_finished,
    Interrupted: _interrupted,
    MessageQueued: _message_queued,
    Resolved: _resolved,
    RunCompleted: _ended,
    RunFailed: _ended,
    RunRetried: _retried,
    RunCancelled: _ended,
}


def _with_call(state: RunState, call: CallState, **changes: Any) -> RunState:
    calls = {**state.calls, call.id: call}
    position = state.position + 1
    if call.status != "done" or any(c.status != "done" for c in calls.values()):
        return but(state, position=position, calls=calls, **changes)
    results = [c.result for c in calls.values() if c.result is not None]
    told = _queue_sent(state)
    messages = (*state.messages, message("tool", *results), *told.pop("messages", ()))
    ends = [c.answer for c in calls.values() if c.final and c.result and "error" not in c.result]
    final = {"output": ends[0]} if ends and not told else None
    return but(
        state, position=position, messages=messages, calls={}, final=final, **changes, **told
    )
