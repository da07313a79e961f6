"""The order of events: an imported journal is valid only if nbagent can have written it.

In a forged document each event may be valid by itself, but not their sequence: an answer without a question,
or a model response in an ended run. Such a run could never continue and would wait forever. A journal that was
not imported is valid by construction, and is not checked.
"""

from __future__ import annotations

from typing import assert_never

from nbagent.core.base.events import (
    BodyCalled,
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

from .state import EMPTY_STATE, CallState, RunState

_NOTHING_BEGAN = "its run has not started"
_ENDED = "the run has ended"
_NO_CALL = "no such call is open"
_NO_ANSWER = "the model has not answered"


class Grammar:
    """A check that follows one run from its first event, and rejects events that cannot come next."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        """The ids of all questions of the run; each id must be unique."""
        self._is_brought_in = False
        """True directly after an import, while the document's open questions are asked again."""

    def unfit(self, state: RunState, event: StoredEvent) -> str | None:
        """The reason why this event cannot come next in a run of this state; None if it can."""
        level, outer_call, of_body = state, None, False
        # an import asks the document's questions again, also in a failed run
        is_asked_anew = self._is_brought_in and isinstance(event, Interrupted)
        for call_id in event.scope:
            if level.outcome is not None and not is_asked_anew:
                return _ENDED
            outer_call, of_body = level.calls.get(call_id), level.of_body
            # the retry of a run that a body started reopens the finished call
            if outer_call is None or (
                outer_call.status == "done" and not isinstance(event, RunRetried)
            ):
                return _NO_CALL
            level = outer_call.child or EMPTY_STATE
        if outer_call is not None and not (outer_call.attempt or of_body):
            return "its call has not started"
        if isinstance(event, Interrupted):
            if event.id in self._asked:
                return "another question has the same id"
            if self._is_brought_in:
                call = level.calls.get(event.call_id)
                return _NO_CALL if call is None else _unfit_for_call(call, event)
        return _unfit_in_run(level, event, is_inner=outer_call is not None)

    def folded(self, state: RunState, event: StoredEvent) -> None:
        """Record that the event was applied; ``state`` is the state after the event."""
        if isinstance(event, Interrupted):
            self._asked.add(event.id)
        else:
            self._is_brought_in = isinstance(event, RunImported)
        if isinstance(event, RunStarted):  # its history may have open questions
            self._asked |= {asked.id for asked in state.pending}


def _unfit_in_run(  # noqa: PLR0911 - one for each kind of event
    run: RunState, event: StoredEvent, *, is_inner: bool
) -> str | None:
    """The reason why an event cannot come next in its run."""
    has_begun = bool(run.position or run.messages or run.calls)
    match event:
        case RunImported() | RunTaken() | RunQueued() if is_inner:
            return "it belongs to a whole run, not to one inside a call"
        case RunQueued():
            return "the run has already started" if has_begun else None
        case RunStarted():
            return "the run has already started" if has_begun and run.queue_event is None else None
        case RunImported():
            return None if has_begun else _NOTHING_BEGAN
        case RunRetried():
            # a fork may have the retry without the failure before it
            may_go_on = run.outcome is None or isinstance(run.outcome, RunFailed)
            return None if has_begun and may_go_on else "the run has not failed"
        case BodyCalled() if is_inner and not run.messages:
            return None if run.outcome is None else _ENDED
    if run.outcome is not None:
        return _ENDED
    if not has_begun:
        return _NOTHING_BEGAN
    if run.queue_event is not None and isinstance(
        event, ModelResponded | ModelPartial | OutputRefused | RunCompleted | Interrupted
    ):
        return "the run is queued behind another one and has not started"
    return _unfit_in_turn(run, event)


def _unfit_in_turn(  # noqa: C901, PLR0911 - one for each kind of event
    run: RunState, event: StoredEvent
) -> str | None:
    """The reason why an event cannot come next in a running run."""
    match event:
        case ModelResponded() | ModelPartial() if (
            run.flow or run.of_body or run.calls or run.is_answered
        ):
            return "the model was not called"
        case ModelResponded(calls=calls):
            if event.cut is not None and calls:
                return "a response that was cut off has no complete call"
            ids = [call.id for call in calls]
            is_new = len(set(ids)) == len(ids) and set(ids).isdisjoint(run.used_ids)
            return None if is_new else "two of its calls have the same id"
        case OutputRefused() | RunCompleted():
            return None if run.is_answered and not run.later else _NO_ANSWER
        case MessageQueued(replaces=number):
            is_gone = number is not None and not 0 <= number < len(run.queued)
            in_flow = "a flow cannot receive messages" if run.flow or run.of_body else None
            return "the message that it replaces is not waiting" if is_gone else in_flow
        case RunFailed() | RunCancelled():
            return (
                "a run that a tool body starts cannot end before the body" if run.of_body else None
            )
        case ToolStarted(call_id=call_id, attempt=attempt):
            call = run.calls.get(call_id)
            is_next = (
                call is not None
                and call.status in ("ready", "running")
                and attempt in (max(1, call.attempt), call.attempt + 1)
            )
            return None if is_next else "its call cannot be started"
        case StepFinished(call_id=i) | TextWritten(call_id=i) | ToolFinished(call_id=i):
            call = run.calls.get(i)
            if call is None or call.status == "done":
                return _NO_CALL
            needs_body = not isinstance(event, ToolFinished)
            return "its body has not started" if needs_body and not call.attempt else None
        case Interrupted():
            return _unfit_question(run, event)
        case Resolved():
            return None if _is_open(run, event) else "its question is not open"
        case ModelPartial() | RunTaken():
            return None
        case RunQueued() | RunStarted() | RunImported() | RunRetried() | BodyCalled():
            return _NOTHING_BEGAN
        case never:
            assert_never(never)


def _unfit_question(run: RunState, event: Interrupted) -> str | None:
    """The reason why this question cannot be asked in a running run."""
    if event.kind == "budget":
        return "its budget question is already open" if run.limit_question is not None else None
    call = run.calls.get(event.call_id)
    if call is None:
        return _NO_CALL
    why = _unfit_for_call(call, event)
    if why is not None:
        return why
    match event.kind:
        case "later":
            return "no model would receive the result later" if run.of_body else None
        case "ask":
            return None if call.attempt else "its body has not started"
        case "lost":
            return None if call.lost is None else "it is already asked"
        case _:
            return "its call is already asking" if call.is_paused else None


def _unfit_for_call(call: CallState, event: Interrupted) -> str | None:
    """The reason why this question does not belong to the call."""
    if call.status == "done":
        return _NO_CALL
    if event.tool_name != call.name:
        return "its tool is not the tool of its call"
    return (
        None
        if (event.kind == "ask") == (event.ask is not None)
        else "it does not have the form of a ctx.ask question"
    )


def _is_open(run: RunState, event: Resolved) -> bool:
    if run.limit_question is not None and run.limit_question.id == event.id:
        return True
    if event.id in run.later:
        return run.later[event.id].call_id == event.call_id
    call = run.calls.get(event.call_id)
    return call is not None and any(asked.id == event.id for asked in call.own_pending)
