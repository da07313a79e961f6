"""From an answer to the ``Resolved`` event that settles an interrupt: the one door for all answers.

Forms, code, ``answers=`` and step-by-step replies all come through ``resolved``. It decides from the
state alone and refuses before anything is written.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from .errors import Conflict, InvalidAnswer, NotPending, ToolError, UsageError
from .events import Interrupted, Resolved
from .interrupts import PendingInterrupt, Reject, Respond, Restart
from .messages import Json
from .policy import Rule
from .state import RunState
from .tools import Tool, checked_value

AnyResolution: TypeAlias = Respond | Restart | Reject
Answers: TypeAlias = Sequence[Any] | Mapping[str, Any] | Callable[[PendingInterrupt], Any] | None
"""Answers for runs that nobody watches: in order, by tool name, or computed."""


def pending_of(
    event: Interrupted,
    tools: Mapping[str, Tool[..., Any]],
    path: tuple[str, ...],
    original_input: dict[str, Any] | None = None,
) -> PendingInterrupt:
    """An open interrupt as people and code see it, bound to its tool where that is registered."""
    return PendingInterrupt(
        id=event.id,
        tool_name=event.tool_name,
        call_id=event.call_id,
        input=event.input,
        metadata=event.metadata,
        kind=event.kind,
        path=tuple(p for p in (*path, event.tool_name) if p),
        editable=event.editable,
        expires_at=event.expires_at,
        external=event.external is not None,
        digest=event.digest,
        note=event.note,
        original_input=original_input,
        state=event.state,
        reply_schema=event.reply_schema,
        tool=tools.get(event.tool_name),
    )


schema_checkers: list[Callable[[Json, Json], list[dict[str, Any]]]] = []
"""What is wrong with an answer, by its JSON Schema, as ``InvalidAnswer.errors`` has it; the package's
root puts one in. Asked where no type is known here."""

reply_types: WeakValueDictionary[str, TypeAdapter[Any]] = WeakValueDictionary()
"""Types of the answers that bodies wait for in this process, by interrupt id."""


def interrupts_of(
    state: RunState, tools: Mapping[str, Tool[..., Any]], agent: str, path: tuple[str, ...] = ()
) -> list[PendingInterrupt]:
    """The open interrupts, in call order, those of runs inside included, each with its path."""
    names = (*path, agent)
    found: list[PendingInterrupt] = []
    for call in state.calls.values():
        if call.child is not None and call.status != "done":
            found += interrupts_of(
                call.child, tools_inside(tools, call.name), call.child.agent, names
            )
        original = call.proposed if call.replaced else None
        found += [pending_of(e, tools, names, original) for e in call.own_pending]
    if state.budget is not None:
        found.append(pending_of(state.budget, tools, names))
    return found


def tools_inside(tools: Mapping[str, Tool[..., Any]], name: str) -> Mapping[str, Tool[..., Any]]:
    """The tools of the agent that a tool is; none where it is not registered, or no agent."""
    tool = tools.get(name)
    inner = None if tool is None else tool.options.inner
    return {} if inner is None else inner.tools


def resolved(
    state: RunState,
    interrupt: PendingInterrupt | str,
    resolution: AnyResolution,
    tools: Mapping[str, Tool[..., Any]],
    stamp: tuple[str, float],
) -> Resolved:
    """The event that settles an interrupt.

    Args:
        state: where the run stands.
        interrupt: the interrupt, or its id.
        resolution: what settles it.
        tools: the registered tools.
        stamp: who answers, and when (Unix seconds).

    Raises:
        Conflict: it was answered already; the message says by whom and when.
        NotPending: there is no such interrupt.
        InvalidAnswer: the answer does not fit, or is none.
        ToolError: the tool is not registered.
        TypeError: ``interrupt`` is neither an interrupt nor an id.
    """
    interrupt_id = id_of(interrupt)
    resolution = as_given(resolution)
    event = check_open(state, interrupt_id)
    by, at = stamp
    return Resolved(
        at=at,
        scope=event.scope,
        id=interrupt_id,
        call_id=event.call_id,
        resolution=_checked(event, resolution, tools_at(state, event.scope, tools)),
        by=by,
    )


def tools_at(
    state: RunState, scope: tuple[str, ...], tools: Mapping[str, Tool[..., Any]]
) -> Mapping[str, Tool[..., Any]]:
    """The tools of the run that an event of this scope belongs to."""
    for call_id in scope:
        call = state.calls[call_id]
        tools = tools_inside(tools, call.name)
        state = call.child or RunState()
    return tools


def id_of(interrupt: Any) -> str:
    """The id of an interrupt that is given as such or by its id.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(interrupt, PendingInterrupt):
        return interrupt.id
    if isinstance(interrupt, str):
        return interrupt
    raise TypeError(
        f"expected an interrupt or its id, not {type(interrupt).__name__} {interrupt!r:.80}"
    )


def as_given(resolution: Any) -> AnyResolution:
    """The resolution, if it is one.

    Raises:
        InvalidAnswer: it is something else.
    """
    if isinstance(resolution, Respond | Restart | Reject):
        return resolution
    raise InvalidAnswer(
        f"an answer is nb.Respond(…), nb.Restart(…) or nb.Reject(…), not {resolution!r:.80}"
    )


def check_open(state: RunState, interrupt_id: str) -> Interrupted:
    """The open interrupt of this id.

    Raises:
        Conflict: it was answered already; the message says by whom and when.
        NotPending: there is no such interrupt.
    """
    for event in state.pending:
        if event.id == interrupt_id:
            return event
    earlier = state.settled.get(interrupt_id)
    if earlier is not None:
        when = datetime.datetime.fromtimestamp(earlier.at, tz=datetime.UTC).isoformat(
            "T", "seconds"
        )
        raise Conflict(
            f"interrupt {interrupt_id!r} was answered already ({earlier.resolution.type}), "
            f"by {earlier.by} at {when}"
        )
    waiting = ", ".join(f"{e.id!r} ({e.tool_name})" for e in state.pending) or "none"
    raise NotPending(f"no interrupt {interrupt_id!r} waits for an answer; waiting: {waiting}")


def _checked(
    event: Interrupted, resolution: AnyResolution, tools: Mapping[str, Tool[..., Any]]
) -> AnyResolution:
    if event.kind == "budget":
        return _checked_budget(event, resolution)
    if event.kind == "ask":
        return _checked_reply(event, resolution)
    tool = tools.get(event.tool_name)
    if tool is None:
        raise ToolError(
            f"the tool {event.tool_name!r} of this interrupt is not registered: add it to the agent, "
            "or give it in tools=, and answer again"
        )
    checked = tool.check(pending_of(event, tools, ()), resolution)
    if isinstance(checked, Restart) and checked.remember is not None:
        _check_memorable(event, checked)
    return checked


def _check_memorable(event: Interrupted, restart: Restart) -> None:
    if event.kind != "approval":
        raise InvalidAnswer(f"{event.tool_name!r} asks by itself: only an approval is remembered")
    if restart.input is not None:
        raise InvalidAnswer("an approval of changed input is not remembered: approve it as shown")


def remember(
    event: Interrupted, resolution: AnyResolution, remembered: list[Rule], run_id: str
) -> None:
    """Note an approval that a person said to remember, in the agent's list."""
    if not isinstance(resolution, Restart) or resolution.remember is None:
        return
    rule = Rule(
        "allow",
        event.tool_name,
        input=event.input if resolution.remember.startswith("input") else None,
        run=run_id if resolution.remember.endswith("in_run") else None,
    )
    if rule not in remembered:
        remembered.append(rule)


def remembered_at(
    state: RunState,
    scope: tuple[str, ...],
    tools: Mapping[str, Tool[..., Any]],
    remembered: list[Rule],
) -> list[Rule]:
    """The list of the agent whose run an event of this scope belongs to."""
    for call_id in scope:
        call = state.calls[call_id]
        remembered = tools[call.name].options.inner.remembered
        tools, state = tools_inside(tools, call.name), call.child or RunState()
    return remembered


def _checked_budget(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    match resolution:
        case Respond(output=more):
            number = int if event.budget in (None, "turns", "tokens") else int | float
            if not isinstance(more, number) or isinstance(more, bool) or more <= 0:
                raise InvalidAnswer(
                    f"answer with how many more {event.budget or 'turns'}, a number above 0, "
                    f"not {more!r}"
                )
        case Restart():
            raise InvalidAnswer("the question whether to go on is answered with respond(number)")
        case Reject():
            pass
        case never:
            assert_never(never)
    return resolution


def _checked_reply(event: Interrupted, resolution: AnyResolution) -> AnyResolution:
    """An answer to ``ctx.ask``, of the type its body waits for where that is known here."""
    match resolution:
        case Respond(output=output):
            adapter = reply_types.get(event.id)
            what = f"answer for {event.tool_name!r}"
            checked = checked_value(output, adapter, what)
            if adapter is None and event.reply_schema is not None:
                _check_schema(event.reply_schema, checked, what)
            return Respond(output=checked)
        case Restart():
            raise InvalidAnswer(
                f"{event.tool_name!r} asks a question in its middle: answer it with respond(value)"
            )
        case Reject():
            return resolution
        case never:
            assert_never(never)


def _check_schema(schema: Json, value: Json, what: str) -> None:
    for check in schema_checkers:
        errors = check(schema, value)
        if errors:
            told = "; ".join(e["msg"] for e in errors[:5])
            raise InvalidAnswer(f"the {what} does not fit: {told}", errors=errors)


def expiry_of(event: Interrupted) -> AnyResolution:
    """What the end of its time does to an interrupt that does not fail the run."""
    if event.on_expire == "answer":
        return Respond(output=event.expire_output)
    return Reject(reason="Nobody answered in time.")


def check_in_time(state: RunState, interrupt_id: str, stamp: tuple[str, float]) -> None:
    """Refuse an answer that comes after its interrupt's time, unless it is the expiry's own.

    Raises:
        Conflict: it is too late.
    """
    by, at = stamp
    for event in state.pending:
        late = event.expires_at is not None and at > event.expires_at
        if event.id == interrupt_id and late and by != "expiry":
            raise Conflict(f"interrupt {interrupt_id!r} has expired: it takes no answer any more")


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer for ``generate``: made by ``tool_response`` and its like, or by hand."""

    interrupt: PendingInterrupt | str
    resolution: AnyResolution


def tool_response(interrupt: PendingInterrupt, value: Any) -> Reply:
    """Answer an interrupt with ``value``, for ``generate(tool_responses=[…])``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
        InvalidAnswer: the value does not fit the tool's return type.
    """
    return Reply(*_pending("tool_response", interrupt).respond(value))


def tool_restart(interrupt: PendingInterrupt, *, new_input: Any = None, data: Any = None) -> Reply:
    """Run the interrupted tool (again), for ``generate(tool_restarts=[…])``.

    Args:
        interrupt: one of ``response.interrupts``.
        new_input: the whole input to use instead; None keeps it.
        data: what the tool gets as ``ctx.resumed``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
        InvalidAnswer: the tool has no body, or the input does not fit it.
    """
    pending = _pending("tool_restart", interrupt)
    return Reply(*pending.restart(new_input=new_input, data=data))


def tool_rejection(interrupt: PendingInterrupt, reason: str | None = None) -> Reply:
    """Refuse the interrupted call, for ``generate(tool_rejections=[…])``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
    """
    return Reply(*_pending("tool_rejection", interrupt).reject(reason))


def _pending(helper: str, value: Any) -> PendingInterrupt:
    if not isinstance(value, PendingInterrupt):
        raise TypeError(
            f"{helper} takes one of response.interrupts, not {type(value).__name__} {value!r:.80}"
        )
    return value


def as_resolution(value: Any, interrupt: PendingInterrupt) -> AnyResolution:
    """What a value given in ``answers=`` means for this interrupt.

    A resolution is itself. For an approval (metadata without choices on a tool with a body) True
    runs the tool and False refuses, and nothing else will do. Otherwise it is the tool's answer.

    Raises:
        InvalidAnswer: an approval is given something else.
    """
    if isinstance(value, Respond | Restart | Reject):
        return value
    if not is_approval(interrupt):
        return Respond(output=value)
    if not isinstance(value, bool):
        raise InvalidAnswer(
            f"{interrupt.tool_name!r} asks for approval, and answers= has {value!r:.80} for it: give "
            "True to run it, False to refuse, or nb.Respond(value) to answer in its place"
        )
    return Restart() if value else Reject()


def is_approval(interrupt: PendingInterrupt) -> bool:
    """Whether the question is if a tool may run, and not what to answer."""
    asks_for_value = isinstance(interrupt.metadata, dict) and "choices" in interrupt.metadata
    return interrupt.restartable and not asks_for_value


def check_answers(answers: Answers, tools: Mapping[str, Tool[..., Any]]) -> None:
    """Refuse ``answers=`` that can answer nothing: of no known form, or for tools nobody has.

    Raises:
        UsageError: saying what is wrong with them.
    """
    if answers is None or callable(answers):
        return
    if isinstance(answers, str) or not isinstance(answers, Mapping | Sequence):
        raise UsageError(
            "answers= is a list in the order of the questions, a dict by tool name, or a function of "
            f"the interrupt, not {answers!r:.80}"
        )
    known = _names(tools) | {""}
    unknown = (
        [name for name in answers if name not in known] if isinstance(answers, Mapping) else []
    )
    if unknown:
        raise UsageError(
            f"answers= names {unknown[0]!r}, which is no tool of this agent: "
            f"{', '.join(sorted(known - {''})) or 'it has none'}"
        )


def _names(tools: Mapping[str, Tool[..., Any]]) -> set[str]:
    """The names of the tools, and of those of the agents among them."""
    inside = (_names(tools_inside(tools, name)) for name in tools)
    return set(tools).union(*inside)


class Script:
    """``answers=`` as an iterator-like thing: the next answer for an interrupt, or nothing."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._used: dict[str, int] = {}

    def next(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """The answer for this interrupt, or None where there is none."""
        found = self._find(interrupt)
        return None if found is _NONE else as_resolution(found, interrupt)

    def _find(self, interrupt: PendingInterrupt) -> Any:
        answers = self._answers
        if answers is None:
            return _NONE
        if isinstance(answers, Mapping):
            if interrupt.tool_name not in answers:
                return _NONE
            given = answers[interrupt.tool_name]
            if callable(given):
                return _or_none(given(interrupt))
            return self._take(interrupt.tool_name, given) if isinstance(given, list) else given
        if callable(answers):
            return _or_none(answers(interrupt))
        return self._take("", answers)

    def _take(self, key: str, answers: Iterable[Any]) -> Any:
        taken = self._used.get(key, 0)
        given = list(answers)
        if taken >= len(given):
            return _NONE
        self._used[key] = taken + 1
        return given[taken]


_NONE: Any = object()


def _or_none(value: Any) -> Any:
    return _NONE if value is None else value
