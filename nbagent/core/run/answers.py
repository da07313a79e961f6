"""The check of all answers, and the ``Resolved`` event with which an answer settles an interrupt.

Forms, code, ``generate``, ``answer_external`` and expiry all use ``answer``. Only this module
makes the ``Resolved`` events of a run. The module reads no store, and raises before anything is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import Conflict, InvalidAnswer, NotPending, ToolError
from nbagent.core.base.events import Interrupted, Resolved
from nbagent.core.base.interrupts import (
    EXPIRY,
    PendingInterrupt,
    Reject,
    Respond,
    Restart,
    digest_of,
    restart_of,
)
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Json, canonical
from nbagent.core.base.origin import PERSON, check_person, marked
from nbagent.core.base.process import has_ended, this_process
from nbagent.core.base.secrets import SecretPlaces, has_secret, plain_json, without_secrets
from nbagent.core.base.user import named, user_behind
from nbagent.core.call.questions import reply_types
from nbagent.core.call.setup import started_by_bodies
from nbagent.core.hooks import hooks
from nbagent.core.journal.store import moment
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.result_text import checked_value
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.toolbox import is_complete


def interrupts_of(
    state: RunState, tools: Mapping[str, Tool[..., Any]], agent: str, path: tuple[str, ...] = ()
) -> list[PendingInterrupt]:
    """The open interrupts of a run and of its inner runs, in call order, each with its path."""
    names = path if state.flow else (*path, agent)  # a flow's only call has the flow's name
    found: list[PendingInterrupt] = []
    for call in state.calls.values():
        if call.child is not None and call.status != "done":
            inner_tools = tools_of(tool_of(call, tools))
            found += interrupts_of(call.child, inner_tools, call.child.agent, names)
        original = call.proposed if call.replaced else None
        started = started_by_bodies.get(call.id)
        known = tools if started is None else {call.name: started}
        found += [pending_of(e, known, names, original) for e in call.own_pending]
    found += [pending_of(event, tools, names) for event in state.later.values()]
    if state.limit_question is not None:
        found.append(pending_of(state.limit_question, tools, names))
    return found


def pending_of(
    event: Interrupted,
    tools: Mapping[str, Tool[..., Any]],
    path: tuple[str, ...],
    original_input: dict[str, Any] | None = None,
) -> PendingInterrupt:
    """An open interrupt as people and code see it, bound to its tool if the tool is registered."""
    return PendingInterrupt(
        id=event.id,
        tool_name=event.tool_name,
        call_id=event.call_id,
        input=event.input,
        metadata=event.metadata,
        kind=event.kind,
        expects=event.expects,
        path=tuple(p for p in (*path, event.tool_name) if p),
        editable=event.editable,
        expires_at=event.expires_at,
        digest=event.digest,
        note=event.note,
        original_input=original_input,
        state=event.state,
        reply_schema=event.reply_schema,
        input_schema=event.input_schema,
        asking=event.asking,
        _tool=tools.get(event.tool_name),
    )


def tools_of(tool: Tool[..., Any] | None) -> Mapping[str, Tool[..., Any]]:
    """The tools of an agent that is used as a tool; empty for other tools."""
    inner = None if tool is None else tool.options.inner
    return {} if inner is None else inner.tools


def tool_of(call: CallState, tools: Mapping[str, Tool[..., Any]]) -> Tool[..., Any] | None:
    """The tool of a call; None if the tool is not registered and no body in this process started the call."""
    started, known = started_by_bodies.get(call.id), tools.get(call.name)
    if started is None and known is not None and known.options.asks is not None:
        return None  # only a name for rules; the question has the schema of the call
    return started or known


def tool_at(
    state: RunState,
    scope: tuple[str, ...],
    call: CallState | Interrupted,
    tools: Mapping[str, Tool[..., Any]],
) -> Tool[..., Any] | None:
    """The tool of a call, or of an interrupt's call, in the run of this scope; see ``tool_of``."""
    for call_id in scope:
        outer = state.calls[call_id]
        tools = tools_of(tool_of(outer, tools))
        state = outer.child or RunState()
    if isinstance(call, CallState):
        return tool_of(call, tools)
    open_ = state.calls.get(call.call_id)
    return tools.get(call.tool_name) if open_ is None else tool_of(open_, tools)


def is_of_other_process(state: RunState, scope: tuple[str, ...]) -> bool:
    """Whether events of this scope belong to a call or run that a body in another process started."""
    for call_id in scope:
        call = state.calls[call_id]
        if state.of_body and call_id not in started_by_bodies:
            return True
        state = call.child or RunState()
    return state.of_body and not all(i in started_by_bodies for i in state.calls)


def remember(
    state: RunState,
    answer: Resolved,
    tools: Mapping[str, Tool[..., Any]],
    remembered: list[Remembered],
) -> None:
    """Add an approval for all runs to the list of the agent whose run asked for it.

    Args:
        state: the state of the outermost run, with the call still open.
        answer: the approval.
        tools: the outermost agent's tools.
        remembered: the outermost agent's list.
    """
    if answer.remembers is None or answer.for_this_run is not None:
        return
    for call_id in answer.scope:
        call = state.calls[call_id]
        tool = tool_of(call, tools)
        inner = None if tool is None else tool.options.inner
        if inner is not None:
            remembered = inner.remembered
        tools, state = tools_of(tool), call.child or RunState()
    with marked(PERSON):  # whose answer was checked, perhaps in another thread
        for known in (remembered, *getattr(remembered, "originals", ())):
            kept = [one for one in known if not answer.remembers.is_repeat_of(one)]
            known[:] = [*kept, answer.remembers]


AnyResolution: TypeAlias = Respond | Restart | Reject


class TimeIsOver:
    """The answer to an expired question: its tool's ``on_expire`` applies."""


TIME_IS_OVER: Final = TimeIsOver()
IDEMPOTENT = "idempotent=True"
"""The source of an answer that runs a lost call again, because its tool is declared idempotent."""


class Stamp(NamedTuple):
    """The source of an answer, and its time."""

    by: str
    at: float
    """Unix seconds."""

    @classmethod
    def of(cls, by: str, at: float, resolution: AnyResolution | TimeIsOver | None = None) -> Stamp:
        """Make the stamp where the answer is given, because the answer may be written in another thread.

        Raises:
            UsageError: the answer comes from code that a model wrote, or may have written.
        """
        if not isinstance(resolution, TimeIsOver):
            check_person("Code that a model wrote cannot answer questions", "A person must answer")
        return cls(by, at)


def answer(
    state: RunState,
    interrupt: PendingInterrupt | str,
    resolution: AnyResolution | TimeIsOver,
    tools: Mapping[str, Tool[..., Any]] | None,
    stamp: Stamp,
    *,
    owner: Callable[[RunState, Interrupted], str] | None = None,
    scope: tuple[str, ...] = (),
    is_stopping: bool = False,
) -> Resolved:
    """Check an answer to an interrupt, and return the event that settles the interrupt.

    Args:
        state: the state of the run.
        interrupt: the interrupt, or its id.
        resolution: the answer.
        tools: the registered tools; None to check the answer against the journal's record of the question.
        stamp: the source of the answer, and its time; see ``Stamp.of``.
        owner: returns the process that continues the run; None to name no process.
        scope: as in ``check_open``.
        is_stopping: True if the run is being cancelled.

    Raises:
        Conflict: the interrupt was already answered, and the message says by whom and when; it has expired; or its
            run takes no answers.
        NotPending: the interrupt does not exist.
        InvalidAnswer: the answer is not valid.
        ToolError: the tool is not registered.
        TypeError: ``interrupt`` is neither an interrupt nor an id.
    """
    _, at = stamp
    if isinstance(resolution, TimeIsOver):
        event = check_open(state, id_of(interrupt), scope=scope, is_stopping=is_stopping)
        answered = _settled_by_expiry(state, event, tools, at)
    else:
        interrupt_id, resolution = id_and_resolution(interrupt, resolution)
        event = check_open(state, interrupt_id, scope=scope, is_stopping=is_stopping)
        if event.is_late(at):
            raise Conflict(f"Interrupt {interrupt_id!r} has expired and can no longer be answered")
        answered = _settled(state, event, resolution, tools, stamp)
    return answered if owner is None else replace(answered, owner=owner(state, event))


def _settled_by_expiry(
    state: RunState, event: Interrupted, tools: Mapping[str, Tool[..., Any]] | None, at: float
) -> Resolved:
    """Apply ``on_expire`` to a question; ``"fail"`` is handled before ``answer`` is called."""
    if not event.is_late(at):
        raise Conflict(f"Interrupt {event.id!r} has not expired yet")
    if event.on_expire != "answer":
        given = Reject(reason="Nobody answered in time.")
        return _settled(state, event, given, tools, (EXPIRY, at))
    try:
        return _settled(state, event, Respond(output=event.expire_output), tools, (EXPIRY, at))
    except InvalidAnswer as error:
        instead = Reject(
            reason=f"Nobody answered in time, and the on_expire= answer is invalid: {error}"
        )
        return _settled(state, event, instead, tools, (EXPIRY, at))


def rejection_of_replaced(
    state: RunState,
    event: Interrupted,
    reason: str,
    tools: Mapping[str, Tool[..., Any]],
    stamp: tuple[str, float],
) -> Resolved:
    """The event that rejects an open interrupt, even an expired one, because a new message replaces it.

    Raises:
        ToolError: the tool is not registered.
    """
    return _settled(state, event, Reject(reason=reason), tools, stamp)


def run_again(event: Interrupted) -> Resolved:
    """The event that runs a lost call again without asking, because ``lost_call_events`` found this safe."""
    return Resolved(
        at=event.at,
        scope=event.scope,
        id=event.id,
        call_id=event.call_id,
        resolution=Restart(),
        by=IDEMPOTENT,
        owner=this_process(),
    )


def _settled(
    state: RunState,
    event: Interrupted,
    resolution: AnyResolution,
    known: Mapping[str, Tool[..., Any]] | None,
    stamp: tuple[str, float],
) -> Resolved:
    """Check an answer, and make its event."""
    by, at = stamp
    by_record, tools = known is None, known or {}
    checked = _checked(event, resolution, state, tools, by_record=by_record)
    values = [getattr(checked, name, None) for name in ("output", "input", "data")]
    if by_record and has_secret(values):
        raise InvalidAnswer(
            f"This answer to {event.tool_name!r} contains a secret. Secrets are never stored, so the tool would not "
            "receive it. Answer where the run is open, or pass `agent=`"
        )
    return Resolved(
        at=at,
        scope=event.scope,
        id=event.id,
        call_id=event.call_id,
        resolution=checked,
        by=by,
        remembers=_remembers(event, checked, tool_at(state, event.scope, event, tools)),
        user=user_behind(by),
    )


def next_driver(state: RunState, event: Interrupted) -> str:
    """The process that continues after an answer: the process whose body waits for the answer, or this process."""
    level = state
    for depth, call_id in enumerate((*event.scope, event.call_id)):
        call = level.calls.get(call_id)
        if call is None:
            break
        is_in_body_run = depth < len(event.scope) and call.child is not None and call.child.of_body
        if (event.id in call.asked or is_in_body_run) and has_ended(call.owner) is False:
            return call.owner
        level = call.child or RunState()
    return this_process()


def id_of(interrupt: Any) -> str:
    """The id of an interrupt that is passed as an object or by its id.

    Raises:
        TypeError: ``interrupt`` is neither.
    """
    if isinstance(interrupt, PendingInterrupt):
        return interrupt.id
    if isinstance(interrupt, str):
        return interrupt
    raise TypeError(
        f"Expected an interrupt or its id, got {type(interrupt).__name__} {interrupt!r:.80}"
    )


def id_and_resolution(interrupt: Any, resolution: Any) -> tuple[str, AnyResolution]:
    """The id of the interrupt, and the resolution; a resolution that names its interrupt can be passed alone.

    Raises:
        InvalidAnswer: ``resolution`` is not a resolution, names no interrupt, or names another interrupt.
        TypeError: ``interrupt`` is neither an interrupt nor an id.
    """
    if resolution is None and isinstance(interrupt, AnyResolution):
        interrupt, resolution = named_by(interrupt), interrupt
    if not isinstance(resolution, AnyResolution):
        raise InvalidAnswer(
            "An answer must be nb.Respond(…), nb.Restart(…) or nb.Reject(…), got a value of type "
            f"{type(resolution).__name__}"
        )
    interrupt_id = id_of(interrupt)
    if resolution.interrupt is None:
        return interrupt_id, resolution
    if resolution.interrupt != interrupt_id:
        raise InvalidAnswer(
            f"This answer belongs to the interrupt {resolution.interrupt!r}, not to {interrupt_id!r}"
        )
    return interrupt_id, resolution.model_copy(update={"interrupt": None})


def named_by(resolution: AnyResolution) -> str:
    """The id of the interrupt that a resolution names.

    Raises:
        InvalidAnswer: the resolution names no interrupt.
    """
    if resolution.interrupt is None:
        kind = type(resolution).__name__
        raise InvalidAnswer(
            f"This {kind} has no interrupt. Use interrupt.{resolution.type}(…), or nb.{kind}(…, interrupt=interrupt)"
        )
    return resolution.interrupt


def check_open(
    state: RunState,
    interrupt_id: str,
    *,
    scope: tuple[str, ...] = (),
    is_stopping: bool = False,
) -> Interrupted:
    """The open interrupt of this id, if its run takes answers.

    Args:
        state: the state of the outermost run.
        interrupt_id: the id.
        scope: the scope of the run that asked, or of one around it; by default any run is accepted.
        is_stopping: True if the run is being cancelled.

    Raises:
        Conflict: the interrupt was already answered, and the message says by whom and when; or its run takes no
            answers.
        NotPending: the interrupt does not exist.
    """
    for event in state.pending:
        if event.id != interrupt_id:
            continue
        if event.scope[: len(scope)] != scope:
            raise NotPending(f"This run has no interrupt {interrupt_id!r}")
        ended = state.outcome is not None
        if ended or is_stopping:
            now = state.status if ended else "being cancelled"
            raise Conflict(f"The run is {now}, so its questions can no longer be answered")
        return event
    earlier = state.settled.get(interrupt_id)
    if earlier is not None:
        raise Conflict(
            f"Interrupt {interrupt_id!r} is already answered ({earlier.resolution.type}), by {named(earlier.by, earlier.user)} "
            f"at {moment(earlier.at)}"
        )
    waiting = ", ".join(f"{e.id!r} ({e.tool_name})" for e in state.pending) or "none"
    raise NotPending(f"Interrupt {interrupt_id!r} is not waiting for an answer. Waiting: {waiting}")


def _checked(
    event: Interrupted,
    resolution: AnyResolution,
    state: RunState,
    tools: Mapping[str, Tool[..., Any]],
    *,
    by_record: bool,
) -> AnyResolution:
    if event.kind == "budget":
        return _checked_budget(event, resolution)
    if event.kind == "later":
        return _checked_later(event, resolution)
    if event.kind == "lost" and isinstance(resolution, Restart) and resolution != Restart():
        raise InvalidAnswer(
            f"A lost call of {event.tool_name!r} cannot run again with new input or data. Restart it unchanged"
        )
    tool = tool_at(state, event.scope, event, tools)
    if tool is None and not (by_record or is_of_other_process(state, event.scope)):
        fetching = "" if is_complete(tools) else ", or await run.settled() while it is fetched"
        raise ToolError(
            f"The tool {event.tool_name!r} of this interrupt is not registered. Add it to the agent, or pass it in "
            f"tools={fetching}, and answer again"
        )
    if event.kind == "ask":
        return _checked_reply(event, resolution)
    if tool is None:
        return _checked_without_tool(event, resolution)
    checked = tool.check(pending_of(event, {tool.name: tool}, ()), resolution)
    if isinstance(checked, Restart) and checked.remember is not None:
        _check_memorable(event, checked, tool)
    return checked


def _checked_without_tool(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    """Check an answer against the stored question, because this process does not know the tool."""
    match resolution:
        case Respond(error=str()):  # as if the tool had failed
            return resolution
        case Respond():
            return _checked_reply(event, resolution)
        case Restart(input=input_, remember=remembered):
            if event.kind == "question":
                raise InvalidAnswer(
                    f"{event.tool_name!r} has no function to restart. Answer it with respond(value)"
                )
            if remembered is not None:
                raise InvalidAnswer(
                    f"This process does not know the tool {event.tool_name!r}, so the approval cannot be remembered. Approve "
                    "only this call"
                )
            changed = None if input_ is None else _changed_without_tool(event, input_)
            return restart_of(changed, resolution.data)
        case Reject():
            return resolution
        case never:
            assert_never(never)


def _changed_without_tool(event: Interrupted, changed: dict[str, Any]) -> dict[str, Any]:
    """A changed input for an unknown tool, if the question allows the changes."""
    tool = repr(event.tool_name)
    names = [
        name
        for name in dict.fromkeys([*event.input, *changed])
        if canonical([event.input.get(name), name in event.input])
        != canonical([changed.get(name), name in changed])
    ]
    may = set(names) if event.editable is True else set(event.editable or ())
    fixed = [name for name in names if name not in may]
    if fixed:
        offered = ", ".join(sorted(may)) or "none"
        raise InvalidAnswer(
            f"{tool} does not allow new values of {', '.join(fixed)}. Editable: {offered}",
            errors=[{"loc": (name,), "msg": "This field cannot be changed."} for name in fixed],
        )
    if event.input_schema is None:
        raise InvalidAnswer(
            f"This process does not know the parameters of {tool}, so its input cannot be changed here. Approve the call unchanged, reject it, enter a "
            "result, or pass `agent=`"
        )
    places = SecretPlaces.of(event.input_schema)
    if places is None:
        _check_schema(event.input_schema, changed, f"new input of {tool}")
        return changed
    sealed: dict[str, Any] = places.seal(changed, like=event.input)
    try:
        _check_schema(event.input_schema, changed, f"new input of {tool}")
    except InvalidAnswer as error:
        problems = [{**each, "msg": without_secrets(each["msg"], sealed)} for each in error.errors]
        raise InvalidAnswer(without_secrets(str(error), sealed), errors=problems) from None
    return sealed


def _check_memorable(event: Interrupted, restart: Restart, tool: Tool[..., Any]) -> None:
    if event.kind != "approval":
        raise InvalidAnswer(
            f"{event.tool_name!r} asks a question. Only an approval can be remembered"
        )
    if restart.input is not None:
        raise InvalidAnswer(
            "An approval with changed input cannot be remembered. Approve it unchanged"
        )
    if tool.options.always_needs_approval and restart.remember in ("input", "tool"):
        raise InvalidAnswer(
            f"An approval of {tool.name!r} can only be remembered within its run: remember='{restart.remember}_in_run'"
        )
    if restart.remember in ("input", "input_in_run") and has_secret(event.input):
        raise InvalidAnswer(
            f"The input of {event.tool_name!r} contains a secret, and secrets are never stored. Approve only this "
            "call, or remember the tool"
        )


def _remembers(
    event: Interrupted, resolution: AnyResolution, tool: Tool[..., Any] | None
) -> Remembered | None:
    """The approval to remember, if the answer asks for it."""
    if tool is None or not isinstance(resolution, Restart) or resolution.remember is None:
        return None
    return Remembered(
        tool=tool.name,
        parameters=digest_of(tool.name, None, tool.input_schema),
        code=tool.code_digest,
        input=event.input if resolution.remember in ("input", "input_in_run") else None,
    )


def _checked_budget(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    match resolution:
        case Respond(error=str()):
            raise InvalidAnswer(
                f"To continue the run, answer with a number: the additional {event.budget or 'turns'}"
            )
        case Respond(output=more):
            number = int if event.budget in (None, "turns", "tokens") else int | float
            if not isinstance(more, number) or not amount(more):
                raise InvalidAnswer(
                    f"The additional {event.budget or 'turns'} must be a number greater than 0, got {more!r}"
                )
        case Restart():
            raise InvalidAnswer(
                f"To continue the run, use respond(additional {event.budget or 'turns'})"
            )
        case Reject():
            pass
        case never:
            assert_never(never)
    return resolution


def _checked_later(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    """The final result of a call with an interim result; the tool need not be registered."""
    match resolution:
        case Respond(error=None, output=output):
            return Respond(output=_reply(event, output, f"final result of {event.tool_name!r}"))
        case Restart():
            raise InvalidAnswer(
                f"The call of {event.tool_name!r} already returned an interim result. Pass the final result with "
                "respond(value), or nb.answer_external(token, value)"
            )
        case _:
            return resolution


def _checked_reply(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    """Check the answer to a question, with the body's answer type if this process knows the type."""
    match resolution:
        case Respond(error=str()):
            raise InvalidAnswer(
                f"{event.tool_name!r} is asking a question, so do not pass error=. Use reject"
            )
        case Respond(output=output):
            return Respond(output=_reply(event, output, f"answer for {event.tool_name!r}"))
        case Restart():
            raise InvalidAnswer(
                f"{event.tool_name!r} is asking a question. Answer it with respond(value)"
            )
        case Reject():
            return resolution
        case never:
            assert_never(never)


def _reply(event: Interrupted, output: Any, what: str) -> Json:
    """Check an answer against the wanted type, if this process knows the type, and mask the secrets."""
    places = SecretPlaces.of(event.reply_schema)
    if places is not None:
        return _sealed_reply(event, output, places, what)
    adapter = reply_types.get(event.id)
    checked = checked_value(output, adapter, what)
    if adapter is None and event.reply_schema is not None:
        _check_schema(event.reply_schema, checked, what)
    return checked


def _sealed_reply(event: Interrupted, output: Any, places: SecretPlaces, what: str) -> Json:
    """Check an answer that has secrets, and mask the secrets."""
    try:
        plain = plain_json(output)
    except (ValueError, TypeError):  # the error's text would show the secret
        raise InvalidAnswer(f"The {what} is not JSON") from None
    sealed, wrong = places.seal(plain), None
    try:
        adapter = reply_types.get(event.id)
        if adapter is None:
            _check_schema(event.reply_schema, plain, what)
        else:
            checked_value(plain, adapter, what)
    except InvalidAnswer as error:
        problems = [{**each, "msg": without_secrets(each["msg"], sealed)} for each in error.errors]
        wrong = InvalidAnswer(without_secrets(str(error), sealed), errors=problems)
    if wrong is None and places.missing(sealed):
        wrong = InvalidAnswer(f"The {what} has a masked value in place of a secret")
    if wrong is not None:
        raise wrong
    return sealed


def _check_schema(schema: Json, value: Json, what: str) -> None:
    errors = hooks.schema_errors(schema, value, formats=True)
    if errors:
        shown = ((".".join(map(str, error["loc"])), error["msg"]) for error in errors[:5])
        reasons = "; ".join(f"{place}: {why}" if place else str(why) for place, why in shown)
        raise InvalidAnswer(f"The {what} does not match its schema: {reasons}", errors=errors)
