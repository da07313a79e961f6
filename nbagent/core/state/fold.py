"""A run's state as a pure fold over its events: ``apply(state, event)`` returns the next state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbagent.core.base.events import (
    BodyCalled,
    Interrupted,
    MessageQueued,
    ModelPartial,
    ModelResponded,
    OutputRefused,
    Resolved,
    RowOfCall,
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
    question_digest,
)
from nbagent.core.base.file_parts import Content
from nbagent.core.base.interrupts import (
    EXPIRY,
    SCHEMA_CHANGED,
    TOOL_CHANGED,
    Reject,
    Respond,
    Restart,
    Resumed,
    digest_of,
)
from nbagent.core.base.memory import with_memory
from nbagent.core.base.messages import (
    Json,
    Message,
    Part,
    canonical,
    correction,
    cut_off,
    dumps,
    freeze,
    load,
    message,
    user,
    without_cut_off,
)
from nbagent.core.base.model import Usage
from nbagent.core.base.user import is_person_or_program

from .imported import without_approvals
from .pause_record import restore
from .retried_calls import ready_again
from .state import (
    NO_CALLS,
    Calls,
    CallState,
    CallStatus,
    RunEnd,
    RunState,
    evolve,
    stamped,
    waiting_or,
)


def interrupted(call: CallState, event: Interrupted) -> CallState:
    """The call, waiting for an answer."""
    if event.kind == "lost":
        call = evolve(call, lost=event, owner="")  # from now on, what its body returns is ignored
    elif event.ask is not None:
        call = evolve(call, asked={**call.asked, event.id: event})
    else:
        call = evolve(
            call,
            pause=event,
            resumed=None,
            judged_input=_judged_input(call, event),
            earlier=call.answered,
        )
    return waiting_or(call, event.at)


def _judged_input(call: CallState, event: Interrupted) -> dict[str, Any] | None:
    """The input that the rules have judged; a rule's question sets the judged input.

    None if the rules must judge again: no rule asked for this approval, or the question is about a changed tool.
    """
    is_changed = (event.note or "").startswith((SCHEMA_CHANGED, TOOL_CHANGED))
    if event.kind != "approval" and not is_changed:
        return call.judged_input
    return None if event.verdict is None else _shared_input(call, event.input)


def resolved(call: CallState, event: Resolved) -> CallState:
    """Fold the answer to the call's interrupt."""
    lost = call.lost if call.lost is not None and call.lost.id == event.id else None
    pause = lost or call.asked.get(event.id, call.pause)
    call = evolve(call, record=(*call.record, _record(pause, event)))
    if event.id in call.asked:
        return _question_answered(call, event)
    match event.resolution:
        case Respond(error=str() as error):
            return finished_call(call, error, error=True)
        case Respond(output=output):
            return finished_call(call, output)
        case Reject(reason=reason):
            text = (
                loss_text(call.name, reason)
                if lost
                else rejection_text(call.name, reason, event.by)
            )
            return finished_call(call, text, error=True)
        case Restart() if lost:  # earlier approvals and answers still count
            shown = (
                _shared_input(call, lost.input)
                if is_person_or_program(event.by)
                else call.seen_input
            )
            return waiting_or(evolve(call, lost=None, seen_input=shown), event.at)
        case Restart() as restart:
            return waiting_or(_restarted(call, restart), event.at)


def _restarted(call: CallState, restart: Restart) -> CallState:
    """The call with its input as the person left it.

    This input counts as approved only if the call had passed the gate, or the question was the approval.
    """
    shown = entered = call.input
    if call.pause is not None:
        shown = call.pause.input
        entered = shown if call.pause.entered is None else call.pause.entered
    if restart.input is not None:
        shown = entered = freeze(restart.input)
    approved = call.passed_input is not None or (
        call.pause is not None and call.pause.kind == "approval"
    )
    # middleware that asked before the body may still change the input that the person saw
    is_final = call.pause is None or not call.pause.around or call.pause.entered is not None
    return evolve(
        call,
        input=_shared_input(call, entered),
        passed_input=_shared_input(call, shown) if approved else None,
        seen_input=_shared_input(call, shown) if is_final else None,
        resumed=Resumed(restart.data),
    )


def _question_answered(call: CallState, event: Resolved) -> CallState:
    """Fold the answer to a question of ``ctx.ask``; the body continues once no question is open."""
    asked_for = call.asked[event.id]
    number = asked_for.ask or 0
    answer: dict[str, Any] = (
        {"output": event.resolution.output}
        if isinstance(event.resolution, Respond)
        else {"rejected": getattr(event.resolution, "reason", None), "by": event.by}
    )
    asked = {i: e for i, e in call.asked.items() if i != event.id}
    changed = evolve(
        call,
        asked=asked,
        seen_input=_shared_input(call, asked_for.input)
        if is_person_or_program(event.by)
        else call.seen_input,
        answers={**call.answers, number: {**answer, "question": question_digest(asked_for)}},
    )
    return waiting_or(
        changed, event.at, otherwise="running" if call.status == "running" else "ready"
    )


def finished_call(
    call: CallState, output: Json, *, error: bool = False, files: Sequence[Part] = ()
) -> CallState:
    """The call with its result."""
    answer = output if call.final and not error else None
    if call.replaced and call.attempt:
        text = output if isinstance(output, str) else dumps(output)
        output = f"{edit_note(call.input)}\n{text}"
    part = call.result_part(output, error=error)
    ran = call.body_input
    if _shared_input(call, ran) is not call.proposed:
        part["input"] = ran
    if files:
        part["files"] = list(files)
    if call.record:
        part["nbagent"] = list(call.record)
    return evolve(
        call,
        status="done",
        result=freeze(part),
        answer=freeze(answer),
        child=None,
        asked={},
        lost=None,
    )


def rejection_text(tool_name: str, reason: str | None, by: str = "") -> str:
    """The text for the model about a rejected call; ``by`` is the source of the answer."""
    if by == EXPIRY:
        return f"Nobody answered in time, so this call of {tool_name} was rejected. It was not run."
    why = f" Reason: {reason}" if reason else ""
    return f"A person rejected this call of {tool_name}. It was not run.{why}"


def loss_text(tool_name: str, reason: str | None) -> str:
    """The text for the model about a call that a person marked as failed after its process ended."""
    why = f" A person says: {reason}" if reason else ""
    return (
        f"The process that ran this call of {tool_name} stopped during the call. It may or may not have taken "
        f"effect, and it is not run again.{why}"
    )


def misfit_text(event: OutputRefused) -> str:
    """The text for the model about an answer that does not match the type."""
    return (
        f"The answer didn't match the type that was asked for: {event.errors}. Answer again, with JSON that "
        "matches the schema and nothing else."
    )


def later_text(asked: Interrupted, resolution: Respond | Restart | Reject) -> str:
    """The text for the model about the final result of a call with an interim result."""
    call = f"the call {asked.call_id} of {asked.tool_name}"
    match resolution:
        case Respond(error=str() as error):
            return f"T{call[1:]} failed: {error}"
        case Respond(output=output):
            text = output if isinstance(output, str) else dumps(output)
            return f"The final result of {call}: {text}"
        case Reject(reason=reason):
            why = f" Reason: {reason}" if reason else ""
            return f"T{call[1:]} has no final result.{why}"
        case Restart():
            raise AssertionError(f"{call} cannot be run again")


def edit_note(input_: Json) -> str:
    """The line for the model about the arguments that a person edited."""
    return f"A person changed the arguments of this call to {dumps(input_)}."


def _shared_input(call: CallState, input_: dict[str, Any]) -> dict[str, Any]:
    """``input_``, frozen; or the model's own input object if both are equal, to save memory."""
    if input_ is call.proposed or canonical(input_) == canonical(call.proposed):
        return call.proposed
    frozen: dict[str, Any] = freeze(input_)
    return frozen


def _record(pause: Interrupted | None, event: Resolved) -> dict[str, Any]:
    record: dict[str, Any] = {
        "interrupt": event.id,
        "resolution": event.resolution.model_dump(mode="json", exclude_none=True),
        "by": event.by,
        "at": event.at,
    }
    if pause is not None and pause.metadata is not None:
        record["metadata"] = pause.metadata
    return record


def apply(state: RunState, event: StoredEvent, depth: int = 0) -> RunState:
    """The state after one more event; the first ``depth`` ids of the event's scope lead to ``state``."""
    passed = max(0.0, event.at - state.at) if state.status == "running" else 0.0
    if len(event.scope) > depth:
        folded = _fold_inner(state, event, depth)
    else:
        folded = _FOLDS[type(event)](state, event)
    if depth == 0 and isinstance(event, Resolved) and event.for_this_run is not None:
        # the outermost run has the remembered approvals
        folded = evolve(folded, remembered=with_memory(folded.remembered, event.for_this_run))
    active = folded.active + (passed if state.position else 0.0)
    return stamped(folded, state.position + 1, event.at, active)


def _fold_inner(state: RunState, event: StoredEvent, depth: int) -> RunState:
    """Fold an event of the run inside a call."""
    call = state.calls[event.scope[depth]]
    child = apply(call.child or RunState(agent=call.name), event, depth + 1)
    changes: dict[str, Any] = {}
    if isinstance(event, RunRetried) and call.status == "done":  # its result is withdrawn
        call = evolve(call, result=None, answer=None)
    if isinstance(event, ModelResponded):
        changes["usage"] = state.usage + _usage(event)
    if isinstance(event, Resolved):
        changes["settled"] = {**state.settled, event.id: event}
    otherwise: CallStatus = "running" if child.of_body and call.status == "running" else "ready"
    return _with_call(
        state, waiting_or(evolve(call, child=child), event.at, otherwise=otherwise), **changes
    )


def _usage(event: ModelResponded) -> Usage:
    return Usage(
        event.input_tokens,
        event.output_tokens,
        event.cost,
        event.cached_tokens,
        event.reasoning_tokens,
        partial=event.cost is None and not (event.input_tokens or event.output_tokens),
    )


def _run_queued(state: RunState, event: RunQueued) -> RunState:
    return evolve(state, agent=event.agent, messages=(user(event.prompt),), queue_event=event)


def _run_started(state: RunState, event: RunStarted) -> RunState:
    first = event.messages[0] if len(event.messages) == 1 else None
    if isinstance(first, Message) and first["role"] == "user":  # as usual: no call is open
        started = RunState(messages=(first,))
    else:
        started = restore(load(event.messages))
    return evolve(
        started,
        queued=(*started.queued, *state.queued),
        limit=event.max_turns,
        agent=event.agent,
        flow=event.flow,
        row=event.row,
    )


def _model_responded(state: RunState, event: ModelResponded) -> RunState:
    if event.cut is not None:
        return _cut_off(state, event)
    parts: list[Part] = []
    if event.reasoning:
        parts.append({"type": "reasoning", "text": event.reasoning})
    if event.text:
        parts.append({"type": "text", "text": event.text})
    calls: list[CallState] = []
    for call in event.calls:
        frozen = freeze(call.input)
        part = {"type": "tool_call", "id": call.id, "name": call.name, "input": frozen}
        if call.raw is not None:
            part["raw"] = call.raw
        if call.server_id is not None:
            part["server_id"] = call.server_id
        if call.provider is not None:
            part["provider"] = freeze(call.provider)
        parts.append(part)
        calls.append(
            CallState(
                call.id, call.name, frozen, frozen, call.raw, call.server_id, final=call.final
            )
        )
    messages = (
        *without_cut_off(state.messages),
        message("assistant", *parts, provider=event.provider),
    )
    changes = {"misfits": ()} if calls else _queue_sent(state)
    return evolve(
        state,
        messages=messages + changes.pop("messages", ()),
        calls=Calls(calls),
        finish_reason=event.finish_reason,
        partial=_NO_PARTIAL,
        usage=state.usage + _usage(event),
        used_ids=(*state.used_ids, *(call.id for call in calls)),
        **({"turns": state.turns + 1} | changes),
    )


def _model_partial(state: RunState, event: ModelPartial) -> RunState:
    text, reasoning = ("", "") if event.anew else state.partial
    partial = (text + event.text, reasoning + event.reasoning)
    return evolve(state, partial=partial)


def _cut_off(state: RunState, event: ModelResponded) -> RunState:
    messages = without_cut_off(state.messages)
    if event.text.strip():
        messages = (*messages, cut_off(event.text, event.reasoning, event.cut or ""))
    usage = state.usage + _usage(event)
    return evolve(state, messages=messages, usage=usage, partial=_NO_PARTIAL)


_NO_PARTIAL = ("", "")


def _output_refused(state: RunState, event: OutputRefused) -> RunState:
    """Add the correction to the history, so that the model is asked again from there."""
    return evolve(
        state,
        messages=(*state.messages, correction(misfit_text(event))),
        misfits=(*state.misfits, event),
    )


def _queue_sent(state: RunState) -> dict[str, Any]:
    """The changes that add the person's queued messages to the history."""
    if not state.queued:
        return {}
    sent = tuple(user(prompt) for prompt in state.queued)
    return {"messages": sent, "queued": (), "turns": 0, "misfits": ()}


def _message_queued(state: RunState, event: MessageQueued) -> RunState:
    if event.replaces is not None:
        queued = [*state.queued]
        queued[event.replaces] = event.prompt
        return evolve(state, queued=tuple(queued))
    return _message_added(state, event.prompt)


def _message_added(state: RunState, prompt: Content) -> RunState:
    """Add a message from outside: after the open turn, or at once if no turn is open."""
    queued = evolve(state, queued=(*state.queued, prompt))
    if not state.is_answered:
        return queued
    changes = _queue_sent(queued)
    messages = state.messages + changes.pop("messages")
    return evolve(queued, messages=messages, final=None, **changes)


def _tool_started(state: RunState, event: ToolStarted) -> RunState:
    """Fold the start or continuation of a body."""
    call = state.calls[event.call_id]
    passed = _shared_input(call, event.input)
    running = evolve(
        call,
        status="running",
        attempt=event.attempt,
        owner=event.owner,
        passed_input=passed,
        judged_input=passed,
    )
    return _with_call(state, running)


def _body_called(state: RunState, event: BodyCalled) -> RunState:
    """Add a call that a body started. Its full result goes to the body, not to a model."""
    input_, own_id = freeze(event.input), event.server_id
    # `final` makes `finished_call` store the result in `answer`; the result ends no run
    call = CallState(event.call_id, event.name, input_, input_, server_id=own_id, final=True)
    return evolve(state, calls=state.calls.with_new(call))


def _step_finished(state: RunState, event: StepFinished) -> RunState:
    call = state.calls[event.call_id]
    if event.row is not None:
        row = {row_digest(event.name, event.row): (event.name, len(call.steps))}
        return _with_call(state, evolve(call, rows={**call.rows, **row}))
    done = {} if event.error is not None else {event.name: event.value}
    return _with_call(state, evolve(call, steps={**call.steps, **done}))


def row_digest(name: str, row: RowOfCall) -> str:
    """The digest by which a call is known, so that it is not shown twice."""
    return digest_of(row.id, name, row.approved or row.input)


def _text_written(state: RunState, event: TextWritten) -> RunState:
    call, own = state.calls[event.call_id], event.text if event.own is None else event.own
    texts = (*call.texts, own) if own else call.texts
    written = call.written + len(event.text)
    return _with_call(state, evolve(call, texts=texts, written=written))


def _tool_finished(state: RunState, event: ToolFinished) -> RunState:
    call = state.calls[event.call_id]
    return _with_call(
        state, finished_call(call, event.output, error=event.error, files=event.files)
    )


def _interrupted(state: RunState, event: Interrupted) -> RunState:
    if event.kind == "budget":
        return evolve(state, limit_question=event)
    if event.kind == "later":
        later = {**state.later, event.id: event}
        return evolve(state, later=later)
    return _with_call(state, interrupted(state.calls[event.call_id], event))


def _resolved(state: RunState, event: Resolved) -> RunState:
    settled = {**state.settled, event.id: event}
    if state.limit_question is not None and state.limit_question.id == event.id:
        return _resolved_budget(state, event, settled)
    if event.id in state.later:
        left = {i: e for i, e in state.later.items() if i != event.id}
        changed = _message_added(state, later_text(state.later[event.id], event.resolution))
        return evolve(changed, later=left, settled=settled)
    return _with_call(state, resolved(state.calls[event.call_id], event), settled=settled)


def _resolved_budget(state: RunState, event: Resolved, settled: dict[str, Resolved]) -> RunState:
    more = event.resolution.output if isinstance(event.resolution, Respond) else None
    name = (state.limit_question.budget if state.limit_question is not None else None) or "turns"
    granted = state.granted
    if more is not None and name != "turns":
        granted = {**granted, name: granted.get(name, 0) + more}
    return evolve(
        state,
        settled=settled,
        limit_question=None,
        limit_declined=more is None,
        granted=granted,
        limit=state.limit + (more if more is not None and name == "turns" else 0),
    )


def _ended(state: RunState, event: RunEnd) -> RunState:
    return evolve(state, outcome=event)


def _retried(state: RunState, event: RunRetried) -> RunState:
    """Fold a retry: calls without a result and failed inner runs run again. Other results stay, also errors."""
    calls = Calls(ready_again(c, event.at) for c in state.calls.values())
    return evolve(state, outcome=None, limit_declined=False, calls=calls, misfits=())


def _taken(state: RunState, event: RunTaken) -> RunState:
    """Make the process that took the run the owner of open calls, so that earlier attempts no longer count.

    If the event has ``gone``, only calls of that process and calls without an owner change.
    """
    calls = [*state.calls.values()]
    for place, call in enumerate(calls):
        if call.status != "done":
            child = call.child and _taken(call.child, event)
            is_taken = not event.gone or call.owner in ("", event.gone)
            owner = event.owner if is_taken else call.owner
            calls[place] = evolve(call, owner=owner, child=child)
    return evolve(state, calls=Calls(calls))


def _imported(state: RunState, event: RunImported) -> RunState:
    # no batch of this store has started the run
    return evolve(without_approvals(state, event.at), row=None)


_FOLDS: dict[type[Any], Callable[[RunState, Any], RunState]] = {
    RunQueued: _run_queued,
    RunStarted: _run_started,
    ModelResponded: _model_responded,
    ModelPartial: _model_partial,
    OutputRefused: _output_refused,
    ToolStarted: _tool_started,
    BodyCalled: _body_called,
    StepFinished: _step_finished,
    TextWritten: _text_written,
    ToolFinished: _tool_finished,
    Interrupted: _interrupted,
    MessageQueued: _message_queued,
    Resolved: _resolved,
    RunCompleted: _ended,
    RunFailed: _ended,
    RunRetried: _retried,
    RunTaken: _taken,
    RunImported: _imported,
    RunCancelled: _ended,
}


def _with_call(state: RunState, call: CallState, **changes: Any) -> RunState:
    of_body = state.of_body
    # keep the inner run: if the body runs again, it receives the run's result
    if of_body and call.status == "done":
        call = evolve(call, child=state.calls[call.id].child)
    calls = state.calls.with_call(call)
    if calls.left or of_body:
        return evolve(state, calls=calls, **changes)
    results = [c.result for c in calls.values() if c.result is not None]
    sent = _queue_sent(state)
    messages = (*state.messages, message("tool", *results), *sent.pop("messages", ()))
    ends = [c.answer for c in calls.values() if c.final and c.result and "error" not in c.result]
    final = {"output": ends[0]} if ends and not sent else None
    return evolve(state, messages=messages, calls=NO_CALLS, final=final, **changes, **sent)
