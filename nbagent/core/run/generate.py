"""The step-by-step API: the preparation of a ``generate`` call, and its response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nbagent.core.base.controls import escaped_repr
from nbagent.core.base.errors import (
    Expired,
    InvalidAnswer,
    MessagesError,
    NotPending,
    ToolError,
    UnansweredInterrupts,
    UsageError,
)
from nbagent.core.base.events import (
    Interrupted,
    MessageQueued,
    Resolved,
    RunCompleted,
    StoredEvent,
    ToolFinished,
)
from nbagent.core.base.file_parts import Content, check_room, in_words
from nbagent.core.base.interrupts import (
    EXPIRY,
    PendingInterrupt,
    Reject,
    Remember,
    Respond,
    Restart,
)
from nbagent.core.base.messages import Message, Part, calls_of, freeze, load, text_of, user
from nbagent.core.base.model import Usage
from nbagent.core.base.user import user_behind
from nbagent.core.journal.journal import Journal
from nbagent.core.state.fold import apply
from nbagent.core.state.pause_record import paused_messages, restore
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec, new_id

from .answers import (
    TIME_IS_OVER,
    AnyResolution,
    Stamp,
    answer,
    interrupts_of,
    is_of_other_process,
    named_by,
    rejection_of_replaced,
    remember,
    tool_at,
)


def tool_response(interrupt: PendingInterrupt, value: Any) -> Respond:
    """Make the answer ``value`` to an interrupt, for ``generate(tool_responses=[…])`` or ``run.resolve``.

    Raises:
        TypeError: ``interrupt`` is not an interrupt.
        InvalidAnswer: the value does not match the tool's return type.
    """
    return _pending("tool_response", interrupt).respond(value)


def tool_restart(
    interrupt: PendingInterrupt,
    *,
    new_input: Any = None,
    data: Any = None,
    remember: Remember | None = None,
) -> Restart:
    """Make an answer that runs the tool (again), for ``generate(tool_restarts=[…])`` or ``run.resolve``.

    Args:
        interrupt: one of ``response.interrupts``.
        new_input: the whole input to use instead; None keeps the current input.
        data: the value of ``ctx.resumed`` in the tool.
        remember: for an approval: the scope in which not to ask again.

    Raises:
        TypeError: ``interrupt`` is not an interrupt.
        InvalidAnswer: the tool has no body, or the input is not valid.
    """
    pending = _pending("tool_restart", interrupt)
    return pending.restart(new_input=new_input, data=data, remember=remember)


def tool_rejection(interrupt: PendingInterrupt, reason: str | None = None) -> Reject:
    """Make an answer that rejects the call, for ``generate(tool_rejections=[…])`` or ``run.resolve``.

    Raises:
        TypeError: ``interrupt`` is not an interrupt.
    """
    return _pending("tool_rejection", interrupt).reject(reason)


def _pending(helper: str, value: Any) -> PendingInterrupt:
    if not isinstance(value, PendingInterrupt):
        raise TypeError(
            f"{helper} takes one of response.interrupts, got {type(value).__name__} {value!r:.80}"
        )
    return value


def replies_of(
    responses: Sequence[Any], restarts: Sequence[Any], rejections: Sequence[Any]
) -> list[AnyResolution]:
    """Check the answers of a ``generate`` call: each has the type of its list and names an interrupt.

    Raises:
        InvalidAnswer: an item is not an answer, is in the wrong list, or names no interrupt.
    """
    wanted: list[tuple[str, Sequence[Any], type[Any]]] = [
        ("tool_responses", responses, Respond),
        ("tool_restarts", restarts, Restart),
        ("tool_rejections", rejections, Reject),
    ]
    for name, given, kind in wanted:
        for one in given:
            if not isinstance(one, kind):
                raise InvalidAnswer(
                    f"{name} takes what nb.{name.removesuffix('s')} returns, got a value of type {type(one).__name__}"
                )
            named_by(one)
    return [*responses, *restarts, *rejections]


Pending: TypeAlias = Literal["raise", "reject", "queue"]
"""The effect of a new message if questions are open: an error, rejected questions, or a wait for the results."""
RunPending: TypeAlias = Literal["wait", "raise", "reject", "queue"]
"""``Pending`` for a run, which can also wait until the previous run has ended."""
NEW_MESSAGE = "The person wrote a new message instead."


@escaped_repr
@dataclass(frozen=True, slots=True)
class Response:
    """The outcome of one ``generate``: an answer, or a pause."""

    text: str
    messages: tuple[Message, ...]
    """The whole history, plain data: save it as JSON, continue it later, elsewhere, or twice."""
    interrupts: list[PendingInterrupt]
    finish_reason: str
    """``stop``, ``interrupted``, ``tool_calls`` (not executed, as requested), or the model's own reason."""
    usage: Usage
    """Usage of the whole run so far, including earlier pauses."""
    output: Any = None
    """The final answer as ``output_type``; None without ``output_type``."""

    @property
    def tool_calls(self) -> list[Part]:
        """The calls in the last model message."""
        return calls_of(self.messages[-1]) if self.messages else []


def response_of(state: RunState, spec: RunSpec) -> Response:
    """The response of ``generate`` for a state."""
    done = state.outcome if isinstance(state.outcome, RunCompleted) else None
    if state.pending:
        reason = "interrupted"
    elif state.calls:
        reason = "tool_calls"
    else:
        reason = state.why_finished
    return Response(
        text=state.text if done is None else done.text,
        messages=paused_messages(state),
        interrupts=interrupts_of(state, spec.tools, spec.agent),
        finish_reason=reason,
        usage=state.usage,
        output=spec.answer.typed(None if done is None else done.output),
    )


def beginning(
    spec: RunSpec, messages: Sequence[Any], prompt: Content | None, pending: Pending
) -> tuple[Message, ...]:
    """The history with which a live run starts. Its open calls are recorded, so that the run can continue them.

    Args:
        spec: the agent's settings.
        messages: the history.
        prompt: a new message of the person; None continues the open calls.
        pending: the effect of the message on open questions.

    Raises:
        MessagesError: ``messages`` is not a history, or the record of an open call is malformed.
        UnansweredInterrupts: questions are open, and ``pending`` is "raise".
        UsageError: there is nothing to do.
    """
    if not messages and prompt is not None:  # the most frequent case, made fast
        check_room((), prompt)
        return (user(prompt),)
    journal = Journal(new_id(), None, replace(restore(load(messages)), at=spec.clock()))
    if prompt is None:
        _check_something_to_do(journal.state, [])
    else:
        add_message(journal, spec, prompt, pending)
    return paused_messages(journal.state)


def add_message(journal: Journal, spec: RunSpec, prompt: Content, pending: Pending) -> None:
    """Add a new message of the person.

    Raises:
        UnansweredInterrupts: questions are open, and ``pending`` is "raise".
        UsageError: the message's files are too large.
    """
    state, now = journal.state, spec.clock()
    check_room(state.messages, prompt)
    if state.calls and pending == "queue":
        journal.commit(lambda _: [message_queued(now, prompt, by="code")])
        return
    if state.calls and pending != "reject":
        open_ = interrupts_of(state, spec.tools, spec.agent)
        names = ", ".join(f"{i.tool_name!r} (interrupt {i.id})" for i in open_) or "tool calls"
        raise UnansweredInterrupts(
            f"Cannot send a new message while {names} are waiting. Answer first, or pass pending='reject' or 'queue'",
            interrupts=open_,
        )
    if pending == "reject":
        journal.commit(lambda state: rejected(state, spec, ("code", now)))
    if journal.state.calls:
        raise MessagesError(
            "The last tool calls of the history have not run yet. Continue without a prompt"
        )
    messages = (*journal.state.messages, user(prompt))
    journal.state = replace(  # a new run, as with after=
        journal.state,
        messages=messages,
        turns=0,
        outcome=None,
        active=0.0,
        usage=Usage(),
        remembered=(),
    )


def message_queued(
    at: float, prompt: Content, *, by: str, replaces: int | None = None
) -> MessageQueued:
    """The event of a queued message."""
    content = None if isinstance(prompt, str) else tuple(map(freeze, prompt))
    return MessageQueued(
        at=at,
        text=in_words(prompt),
        by=by,
        content=content,
        user=user_behind(by),
        replaces=replaces,
    )


def rejected(state: RunState, spec: RunSpec, stamp: tuple[str, float]) -> list[StoredEvent]:
    """The events that reject all open questions, and end the calls whose bodies asked while running."""
    events: list[StoredEvent] = []
    asking = [call.id for call in state.calls.values() if call.pending]
    for event in state.pending:
        events.append(rejection_of_replaced(state, event, NEW_MESSAGE, spec.tools, stamp))
        state = apply(state, events[-1])
    for call_id in asking:
        call = state.calls.get(call_id)
        if call is not None and call.status != "done":
            text = f"This call of {call.name} was stopped while it was running. {NEW_MESSAGE}"
            events.append(ToolFinished(at=stamp[1], call_id=call_id, output=text, error=True))
            state = apply(state, events[-1])
    return events


def settle(journal: Journal, spec: RunSpec, replies: list[AnyResolution], *, partial: bool) -> None:
    """Check all answers, then store them: all or none.

    Raises:
        UsageError: there is nothing to do, or an answer is not valid; nothing was changed.
        Expired: a question expired, and its tool set ``on_expire="fail"``.
    """
    state, now = journal.state, spec.clock()
    _check_something_to_do(state, replies)
    stamp = Stamp.of("code", now) if replies else Stamp("code", now)
    events = [answer(state, named_by(reply), reply, spec.tools, stamp) for reply in replies]
    ids = [event.id for event in events]
    if len(set(ids)) != len(ids):
        raise InvalidAnswer("An interrupt has two answers in this call. Pass only one")
    left = [e for e in state.pending if e.id not in ids]
    late = [e for e in left if e.is_late(now)]
    left = [e for e in left if not e.is_late(now)]
    _check_left(state, spec, left, partial=partial)
    for event in events:
        remember(state, event, spec.tools, spec.remembered)
    journal.commit(lambda _: [*events, *(_expired(state, spec, event, now) for event in late)])


def _expired(state: RunState, spec: RunSpec, event: Interrupted, now: float) -> Resolved:
    if event.on_expire == "fail":
        raise Expired(
            f"{event.tool_name!r} was not answered in time", messages=paused_messages(state)
        )
    return answer(state, event.id, TIME_IS_OVER, spec.tools, Stamp(EXPIRY, now))


def _check_left(state: RunState, spec: RunSpec, left: list[Interrupted], *, partial: bool) -> None:
    for event in left:
        known = tool_at(state, event.scope, event, spec.tools)
        if event.call_id and known is None and not is_of_other_process(state, event.scope):
            raise ToolError(f"The tool {event.tool_name!r} of an open interrupt is not registered")
    if left and not partial:
        names = ", ".join(f"{e.tool_name!r} (interrupt {e.id})" for e in left)
        raise UnansweredInterrupts(
            f"These interrupts have no answer: {names}. Answer all of them, or pass partial=True",
            interrupts=interrupts_of(state, spec.tools, spec.agent),
        )


def _check_something_to_do(state: RunState, replies: list[AnyResolution]) -> None:
    if not state.messages:
        raise UsageError("Nothing to do. Pass a prompt or messages")
    if replies and not state.pending:
        raise NotPending("No interrupt in these messages is waiting for an answer")
    last = state.messages[-1]
    if not replies and not state.pending and state.is_answered:
        raise NotPending(
            f"Nothing is pending in these messages: the model has answered ({text_of(last)!r:.60}). Pass a prompt to "
            "continue"
        )
