"""The state of a run and its calls, with the values derived from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from nbagent.core.base.events import (
    Interrupted,
    OutputRefused,
    Resolved,
    RowOf,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
)
from nbagent.core.base.file_parts import Content
from nbagent.core.base.interrupts import Asker, Resumed
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import EMPTY, Json, Message, Part, canonical, is_cut_off, text_of
from nbagent.core.base.model import NOTHING as NO_USAGE
from nbagent.core.base.model import Usage

Status = Literal["queued", "running", "interrupted", "completed", "failed", "cancelled"]
CallStatus = Literal["ready", "running", "waiting", "done"]
RunEnd: TypeAlias = RunCompleted | RunFailed | RunCancelled
S = TypeVar("S")


class Answered(NamedTuple):
    """A pause, and the restart that answered it."""

    pause: Interrupted
    resumed: Resumed


@dataclass(frozen=True, slots=True)
class CallState:
    """One tool call of the open turn."""

    id: str
    name: str
    proposed: dict[str, Any]
    """The model's input."""
    input: dict[str, Any]
    """The body's input: ``proposed``, or a person's edit of it."""
    raw: str | None = None
    server_id: str | None = None
    """The model's own id of the call, if it differs from ``id``."""
    status: CallStatus = "ready"
    attempt: int = 0
    """The number of times that the body was started."""
    pause: Interrupted | None = None
    """The interrupt that the call waits for; after a restart, the interrupt that was answered."""
    resumed: Resumed | None = None
    """The restart that answered ``pause``; None while ``pause`` is open."""
    earlier: dict[Asker, Answered] = EMPTY
    """Earlier pauses that a restart answered: the last pause of each asker."""
    passed_input: dict[str, Any] | None = None
    """The input that last passed the gate. Any other input must pass the gate first."""
    judged_input: dict[str, Any] | None = None
    """The input that the rules judged last in this run and did not deny."""
    seen_input: dict[str, Any] | None = None
    """The input that a person last saw or edited and approved; a body gets another input only after a new
    question."""
    owner: str = ""
    """The process that started the body or took the call over; results of other processes are ignored."""
    waits_since: float | None = None
    """The start of the call's current wait for an answer, in Unix seconds."""
    waited: float = 0.0
    """Seconds of the call's earlier waits for answers."""
    asked: dict[str, Interrupted] = EMPTY
    """The open questions of ``ctx.ask``, by interrupt id."""
    answers: dict[int, dict[str, Any]] = EMPTY
    """Answers for ``ctx.ask`` by the question's number: ``{"output": …}`` or ``{"rejected": reason, "by": source}``."""
    lost: Interrupted | None = None
    """The open question about the outcome of a body whose process has ended."""
    steps: dict[str, Any] = EMPTY
    """Values of ``ctx.step`` by name."""
    rows: dict[str, tuple[str, int]] = EMPTY
    """The calls that ``ctx.row`` has shown, by a digest of their id, name and input: the name, and the number of steps
    that had finished before."""
    written: int = 0
    """Characters of ``ctx.write``."""
    texts: tuple[str, ...] = ()
    """The text of ``ctx.write`` outside of steps, which a body writes again if it runs again."""
    child: RunState | None = None
    """The inner run if the tool is an agent; otherwise the calls that the body started, as a run."""
    final: bool = False
    """Whether the tool's answer ends the run."""
    record: tuple[dict[str, Any], ...] = ()
    """The answers to the call's interrupts, for the history."""
    result: Part | None = None
    answer: Json = None
    """The result without the note about changed input, if the result ends the run."""

    def result_part(self, output: Json, *, error: bool = False) -> Part:
        """The message part with the call's result."""
        part: Part = {"type": "tool_result", "id": self.id, "name": self.name, "output": output}
        if self.server_id is not None:
            part["server_id"] = self.server_id
        if error:
            part["error"] = True
        return part

    @property
    def is_paused(self) -> bool:
        """Whether ``pause`` is open."""
        return self.status == "waiting" and self.pause is not None and self.resumed is None

    @property
    def answered(self) -> dict[Asker, Answered]:
        """The last restarted pause of each asker; a later question of another asker does not remove it."""
        if self.pause is None or self.resumed is None:
            return self.earlier
        return {**self.earlier, self.pause.asker: Answered(self.pause, self.resumed)}

    @property
    def questions(self) -> int:
        """The number of open questions in this call and its inner run."""
        if self.status == "done":
            return 0
        own = len(self.asked) + (self.lost is not None)
        if self.status == "waiting" and self.pause is not None and self.resumed is None:
            own += 1
        return own if self.child is None else own + self.child.questions

    @property
    def pending(self) -> list[Interrupted]:
        """The open questions of this call and its inner run."""
        if self.status == "done":
            return []
        return self.own_pending if self.child is None else self.child.pending + self.own_pending

    @property
    def own_pending(self) -> list[Interrupted]:
        """The open questions of this call itself."""
        if self.status == "done":
            return []
        own = [self.pause] if self.is_paused and self.pause is not None else []
        own += [self.lost] if self.lost is not None else []
        return [*self.asked.values(), *own]

    @property
    def body_input(self) -> dict[str, Any]:
        """The input that the body received; before the first start, the input that it will receive."""
        return self.input if self.passed_input is None or not self.attempt else self.passed_input

    @property
    def replaced(self) -> bool:
        """Whether a person changed the input."""
        if self.input is self.proposed:
            return False
        return canonical(self.input) != canonical(self.proposed)  # == takes 1 and True as equal


ROW = 64
"""The maximum number of calls in one row of ``Calls``; a change of a call copies only its row."""
FEW = 8
"""The maximum number of calls that are found by a search; more calls have a dict of their places."""


class Calls(Mapping[str, CallState]):
    """The calls of the open turn by id, in order, with counts for ``RunState``.

    Immutable: ``with_call`` returns a copy that shares all rows but one.
    """

    __slots__ = ("left", "places", "questions", "ready", "ready_in", "rows", "running")

    def __init__(self, calls: Iterable[CallState] = ()) -> None:
        listed = tuple({call.id: call for call in calls}.values())
        self.places = _places(listed)
        self.rows = tuple(listed[at : at + ROW] for at in range(0, len(listed), ROW))
        self.ready_in = bytes(sum(call.status == "ready" for call in row) for row in self.rows)
        """The number of ready calls in each row."""
        self.ready = self.running = self.left = self.questions = 0
        for call in listed:
            _count(self, call, 1)

    def __getitem__(self, call_id: str) -> CallState:
        if self.places is not None:
            row, at = divmod(self.places[call_id], ROW)
            return self.rows[row][at]
        for calls in self.rows:
            for call in calls:
                if call.id == call_id:
                    return call
        raise KeyError(call_id)

    def __iter__(self) -> Iterator[str]:
        return (call.id for call in self.values())

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    __hash__ = object.__hash__  # a dataclass needs a hashable default; states are never hashed

    def values(self) -> Sequence[CallState]:  # type: ignore[override]
        """The calls, in order."""
        return self.rows[0] if len(self.rows) == 1 else list(chain.from_iterable(self.rows))

    def ready_calls(self) -> Iterator[CallState]:
        """The ready calls, in order; rows without a ready call are skipped."""
        for calls, ready in zip(self.rows, self.ready_in, strict=True):
            if ready:
                yield from (call for call in calls if call.status == "ready")

    def place(self, call_id: str) -> int:
        """The call's position in its turn, counted from 0."""
        if self.places is not None:
            return self.places[call_id]
        for calls in self.rows:  # at most one
            for at, call in enumerate(calls):
                if call.id == call_id:
                    return at
        raise KeyError(call_id)

    def with_new(self, call: CallState) -> Calls:
        """A copy with this call: it replaces a call of the same id, or is appended."""
        if call.id in self:
            return self.with_call(call)
        more = Calls.__new__(Calls)
        more.ready, more.running = self.ready, self.running
        more.left, more.questions = self.left, self.questions
        is_full = not self.rows or len(self.rows[-1]) == ROW
        more.rows = (*self.rows, (call,)) if is_full else (*self.rows[:-1], (*self.rows[-1], call))
        if self.places is None:
            more.places = _places(more.values())
        else:
            more.places = {**self.places, call.id: len(self.places)}
        ready_in = self.ready_in + b"\0" if is_full else self.ready_in
        more.ready_in = _changed(ready_in, len(more.rows) - 1, call.status == "ready")
        _count(more, call, 1)
        return more

    def with_call(self, call: CallState) -> Calls:
        """A copy in which this call replaces the call of the same id."""
        changed = Calls.__new__(Calls)
        changed.places = self.places
        changed.ready, changed.running = self.ready, self.running
        changed.left, changed.questions = self.left, self.questions
        row, at = divmod(self.place(call.id), ROW)
        calls, rows = list(self.rows[row]), list(self.rows)
        before, calls[at] = calls[at], call
        rows[row] = tuple(calls)
        changed.rows = tuple(rows)
        by = (call.status == "ready") - (before.status == "ready")
        changed.ready_in = _changed(self.ready_in, row, by) if by else self.ready_in
        _count(changed, before, -1)
        _count(changed, call, 1)
        return changed


def _places(calls: Sequence[CallState]) -> dict[str, int] | None:
    """The place of each call by id; None for a few calls, to save memory."""
    return {call.id: at for at, call in enumerate(calls)} if len(calls) > FEW else None


def _changed(numbers: bytes, at: int, by: int) -> bytes:
    """Numbers of at most ``ROW``, as bytes, with one of them changed."""
    number = numbers[at] + by
    return numbers[:at] + _NUMBERS[number : number + 1] + numbers[at + 1 :]


_NUMBERS = bytes(range(ROW + 1))
"""A slice of length one takes no memory: Python has each such value once."""


NO_CALLS = Calls()
"""The calls of a state without an open turn."""


def _count(calls: Calls, call: CallState, by: int) -> None:
    if call.status == "done":
        return
    calls.ready += by * (call.status == "ready")
    calls.running += by * (call.status == "running")
    calls.left += by
    calls.questions += by * call.questions


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run."""

    position: int = 0
    """The number of folded events, which is the next event's number."""
    agent: str = ""
    at: float = 0.0
    """Time of the last event."""
    active: float = 0.0
    """Seconds that the run was active until ``at``, without waits for answers."""
    messages: tuple[Message, ...] = ()
    """The history; while a turn is open, its last message has the calls of ``calls``."""
    calls: Calls = NO_CALLS
    turns: int = 0
    """Model responses since the last user message."""
    limit: int = 20
    """Turns allowed; grows when a person adds some."""
    granted: dict[str, float] = EMPTY
    """Amounts that a person added to other budgets, by the budget's name."""
    used_ids: tuple[str, ...] = ()
    """Every call id in the history."""
    limit_question: Interrupted | None = None
    """The open question whether to continue past a limit."""
    limit_declined: bool = False
    """Whether a person declined to continue past a limit."""
    settled: dict[str, Resolved] = EMPTY
    """Answers by interrupt id."""
    remembered: tuple[Remembered, ...] = ()
    """Approvals that a person chose to remember in this run; the outermost run has those of its inner runs."""
    finish_reason: str = "stop"
    """The reason why the last model response ended."""
    usage: Usage = NO_USAGE
    """Tokens and cost of the model responses folded in."""
    queued: tuple[Content, ...] = ()
    """Messages of the person that are sent after the open turn's results."""
    later: dict[str, Interrupted] = EMPTY
    """Calls with an interim result that wait for an outside system, by interrupt id."""
    misfits: tuple[OutputRefused, ...] = ()
    """Consecutive answers that did not match the type, since the last message from a person or tool."""
    final: Part | None = None
    """The result of the tool that ends the run, as ``{"output": …}``."""
    outcome: RunEnd | None = None
    partial: tuple[str, str] = ("", "")
    """Text and reasoning of the response in progress, as far as they were stored."""
    flow: bool = False
    """Whether the run is a flow: one call and no model."""
    queue_event: RunQueued | None = None
    """The prompt of a queued run, which starts once the previous run has ended."""
    row: RowOf | None = None
    """The batch row that the run belongs to; None for an imported run."""
    questions: int = field(default=0, init=False, compare=False, repr=False)
    """The number of open questions; derived from the other fields, like ``status``."""
    status: Status = field(default="running", init=False, compare=False, repr=False)
    """``interrupted`` if the run continues only after an answer."""

    def __post_init__(self) -> None:
        _derive(self)

    @property
    def of_body(self) -> bool:
        """Whether a tool's body started the calls, so that the run has no model and no history."""
        return not self.messages and bool(self.calls.rows)

    @property
    def pending(self) -> list[Interrupted]:
        """The open interrupts in call order, with those of inner runs."""
        if not self.questions:
            return []
        waiting = [event for call in self.calls.values() for event in call.pending]
        return [
            *waiting,
            *self.later.values(),
            *([self.limit_question] if self.limit_question else []),
        ]

    @property
    def is_answered(self) -> bool:
        """Whether the model or a final tool has answered, so that no model or tool is called next."""
        if self.calls.rows:
            return False
        return self.final is not None or (
            bool(self.messages)
            and self.messages[-1]["role"] == "assistant"
            and not is_cut_off(self.messages[-1])
        )

    @property
    def open(self) -> list[Interrupted]:
        """The interrupts that can be answered; empty once the run has ended."""
        return [] if self.outcome else self.pending

    @property
    def why_finished(self) -> str:
        """The reason why the model stopped: ``stop``, or the finish reason of its last response."""
        return "stop" if self.final is not None else self.finish_reason

    @property
    def text(self) -> str:
        """The text of the last model message."""
        for item in reversed(self.messages):
            if item["role"] == "assistant":
                return text_of(item)
        return ""


def running_calls(state: RunState) -> list[CallState]:
    """The calls whose bodies run, with those of inner runs."""
    found = []
    for call in state.calls.values():
        found += [call] if call.status == "running" else []
        is_open = call.child is not None and call.status != "done"
        found += running_calls(call.child) if call.child is not None and is_open else []
    return found


def call_at(state: RunState, scope: Sequence[str], call_id: str) -> CallState | None:
    """The call of this id in the run of this scope; None if the state does not have it."""
    for outer_id in scope:
        outer = state.calls.get(outer_id)
        if outer is None or outer.child is None:
            return None
        state = outer.child
    return state.calls.get(call_id)


def waits_in_body(state: RunState) -> bool:
    """Whether a body may be waiting inside its code: for an answer, or for a run that it started."""
    for call in state.calls.values():
        if call.status == "done":
            continue
        child = call.child
        if call.asked or (child is not None and (child.of_body or waits_in_body(child))):
            return True
    return False


def _derive(state: RunState) -> None:
    """Set the derived fields of a new state; attributes are faster to read than properties."""
    questions = state.calls.questions + len(state.later) + (state.limit_question is not None)
    status: Status
    match state.outcome:
        case None if state.queue_event is not None:
            status = "queued"
        case None:
            status = "interrupted" if questions and not _is_busy(state) else "running"
        case RunCompleted():
            status = "completed"
        case RunFailed():
            status = "failed"
        case RunCancelled():
            status = "cancelled"
    _set(state, "questions", questions)
    _set(state, "status", status)


def waiting_or(call: CallState, at: float, *, otherwise: CallStatus = "ready") -> CallState:
    """The call with the status ``waiting`` if a question in it is open, else ``otherwise``."""
    inner_asks = call.child is not None and call.child.status == "interrupted"
    if inner_asks or call.asked or call.lost or (call.pause is not None and call.resumed is None):
        since = at if call.waits_since is None else call.waits_since
        return evolve(call, status="waiting", waits_since=since)
    waited = 0.0 if call.waits_since is None else max(0.0, at - call.waits_since)
    return evolve(call, status=otherwise, waits_since=None, waited=call.waited + waited)


def _is_busy(state: RunState) -> bool:
    """Whether work continues without an answer.

    While a budget question is open, only running bodies count that do not wait for runs that they started.
    """
    if state.limit_question is not None:
        children = (call.child for call in running_calls(state))
        return any(child is None or not (child.of_body and child.calls.left) for child in children)
    if not state.calls.rows:
        return not state.is_answered
    return state.calls.ready + state.calls.running > 0


def evolve(value: S, **changes: Any) -> S:
    """A copy of a state with these fields changed: ``dataclasses.replace`` at a fifth of its cost."""
    made: S = _copies[type(value)](value)
    for name, change in changes.items():
        _set(made, name, change)
    if isinstance(made, RunState):
        _derive(made)
    return made


def stamped(made: RunState, position: int, at: float, active: float) -> RunState:
    """Set the position and the times of a state that was just made, in place, and return the state."""
    _set(made, "position", position)
    _set(made, "at", at)
    _set(made, "active", active)
    return made


_set = object.__setattr__


def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that copies a state slot by slot; generated code, because a loop is slower."""
    slots = [f"    set_{name}(made, value.{name})" for name in kind.__slots__]
    lines = ["def copy(value):", "    made = new(kind)", *slots, "    return made"]
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    names |= {f"set_{name}": getattr(kind, name).__set__ for name in kind.__slots__}
    exec("\n".join(lines), names)
    copy: Callable[[Any], Any] = names["copy"]
    return copy


_copies: dict[type[Any], Callable[[Any], Any]] = {
    kind: _copier(kind) for kind in (CallState, RunState)
}


EMPTY_STATE = RunState()
"""The state of an empty journal."""
