"""Where a run and its calls stand: plain values, and what can be read off them."""

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
from nbagent.core.base.files import Said
from nbagent.core.base.interrupts import RESTARTED, Asker, Resumed
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import EMPTY, Json, Message, Part, canonical, is_cut_off, text_of
from nbagent.core.base.model import NOTHING as NO_USAGE
from nbagent.core.base.model import Usage

Status = Literal["queued", "running", "interrupted", "completed", "failed", "cancelled"]
CallStatus = Literal["ready", "running", "waiting", "done"]
RunEnd: TypeAlias = RunCompleted | RunFailed | RunCancelled
S = TypeVar("S")


def _nothing() -> dict[Any, Any]:
    return EMPTY


def _no_calls() -> Calls:
    return NO_CALLS


def _no_usage() -> Usage:
    return NO_USAGE


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
    """What a body gets: ``proposed``, or what a person made of it."""
    raw: str | None = None
    server_id: str | None = None
    """The model's own id, where that is not ``id``."""
    status: CallStatus = "ready"
    attempt: int = 0
    """How many bodies were started."""
    pause: Interrupted | None = None
    """What it waits for; after a restart, what that restart answered."""
    resumed: Resumed | None = None
    """The restart that answered ``pause``; None while that waits."""
    earlier: dict[Asker, Answered] = field(default_factory=_nothing)
    """The pauses before ``pause`` that were restarted, the last of each who asked."""
    cleared: dict[str, Any] | None = None
    """The input that the gate let pass last: exactly that one passes again."""
    judged: dict[str, Any] | None = None
    """The input that the rules judged last in this run, and did not refuse."""
    shown: dict[str, Any] | None = None
    """The input that a person saw, or put in its place, when they last let the call go on: no body gets another
    before they were asked about that."""
    owner: str = ""
    """Who runs the body, while one runs."""
    waits_since: float | None = None
    """Since when only an answer can make it go on."""
    waited: float = 0.0
    """Seconds it has waited for answers before."""
    asked: dict[str, Interrupted] = field(default_factory=_nothing)
    """The open questions of ``ctx.ask``, by interrupt id."""
    answers: dict[int, dict[str, Any]] = field(default_factory=_nothing)
    """What ``ctx.ask`` gets, by the question's number: ``{"output": …}`` or ``{"rejected": reason}``."""
    lost: Interrupted | None = None
    """The question what a body came to whose process is gone, while it is open."""
    steps: dict[str, Any] = field(default_factory=_nothing)
    """Values of ``ctx.step`` by name."""
    child: RunState | None = None
    """The run inside, where the tool is an agent; or what its body started, as the calls of a run."""
    final: bool = False
    """Whether the tool's answer ends the run."""
    record: tuple[dict[str, Any], ...] = ()
    """How its interrupts were settled, for the history."""
    result: Part | None = None
    answer: Json = None
    """The result without a note of changed input, where it ends the run."""

    def result_part(self, output: Json, *, error: bool = False) -> Part:
        """The part of a message that answers it."""
        part: Part = {"type": "tool_result", "id": self.id, "name": self.name, "output": output}
        if self.server_id is not None:
            part["server_id"] = self.server_id
        if error:
            part["error"] = True
        return part

    @property
    def is_paused(self) -> bool:
        """Whether its own pause is open, whatever else in it is asked."""
        return self.status == "waiting" and self.pause is not None and self.resumed is None

    def answered(self, *askers: Asker) -> Answered | None:
        """The last pause that was restarted, of the first of these who has one."""
        for asker in askers:
            if self.pause is not None and self.pause.asker == asker and self.resumed is not None:
                return Answered(self.pause, self.resumed)
            if asker in self.earlier:
                return self.earlier[asker]
        return None

    @property
    def all_answered(self) -> list[Answered]:
        """The last pause that was restarted, of each who asked."""
        found = [self.answered(asker) for asker in RESTARTED]
        return [one for one in found if one is not None]

    @property
    def asks(self) -> bool:
        """Whether something waits in this call, or in the run inside it."""
        return self.questions > 0

    @property
    def questions(self) -> int:
        """How many questions wait in this call, and in the run inside it."""
        if self.status == "done":
            return 0
        own = len(self.asked) + (self.lost is not None)
        if self.status == "waiting" and self.pause is not None and self.resumed is None:
            own += 1
        return own if self.child is None else own + self.child.questions

    @property
    def pending(self) -> list[Interrupted]:
        """What waits in this call, or in the run inside it."""
        if self.status == "done":
            return []
        inside = self.child.pending if self.child is not None else []
        return [*inside, *self.own_pending]

    @property
    def own_pending(self) -> list[Interrupted]:
        """What waits in this call itself."""
        if self.status == "done":
            return []
        own = [self.pause] if self.is_paused and self.pause is not None else []
        own += [self.lost] if self.lost is not None else []
        return [*self.asked.values(), *own]

    @property
    def ran(self) -> dict[str, Any]:
        """What its body got; where none was started, what it would get."""
        return self.input if self.cleared is None or not self.attempt else self.cleared

    @property
    def replaced(self) -> bool:
        """Whether a person changed the input."""
        if self.input is self.proposed:
            return False
        return canonical(self.input) != canonical(self.proposed)  # to Python, 1 is True


ROW = 64
"""Calls that are copied where one of them changes."""


class Calls(Mapping[str, CallState]):
    """The calls of the open turn by id, in order, and what is asked of them at every event, counted.

    Never changed once made: ``with_call`` gives another, which shares all but one row with it.
    """

    __slots__ = ("left", "places", "questions", "ready", "ready_in", "rows", "running")

    def __init__(self, calls: Iterable[CallState] = ()) -> None:
        listed = list({call.id: call for call in calls}.values())
        self.places = {call.id: place for place, call in enumerate(listed)}
        self.rows = [listed[at : at + ROW] for at in range(0, len(listed), ROW)]
        self.ready_in = [0] * len(self.rows)
        self.ready = self.running = self.left = self.questions = 0
        for place, call in enumerate(listed):
            _count(self, call, place // ROW, 1)

    def __getitem__(self, call_id: str) -> CallState:
        row, at = divmod(self.places[call_id], ROW)
        return self.rows[row][at]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def values(self) -> Sequence[CallState]:  # type: ignore[override]
        """The calls, in order."""
        return self.rows[0] if len(self.rows) == 1 else list(chain.from_iterable(self.rows))

    def waiting_to_run(self) -> Iterator[CallState]:
        """Those that are ready, in order, without a look at all others."""
        for calls, ready in zip(self.rows, self.ready_in, strict=True):
            if ready:
                yield from (call for call in calls if call.status == "ready")

    def place(self, call_id: str) -> int:
        """Which one it is in its turn, counted from 0."""
        return self.places[call_id]

    def with_new(self, call: CallState) -> Calls:
        """These calls and one more; at the end, unless it has its place already."""
        if call.id in self.places:
            return self.with_call(call)
        more = Calls.__new__(Calls)
        more.places = {**self.places, call.id: len(self.places)}
        more.ready, more.running = self.ready, self.running
        more.left, more.questions = self.left, self.questions
        is_full = not self.rows or len(self.rows[-1]) == ROW
        more.rows = [*self.rows, [call]] if is_full else [*self.rows[:-1], [*self.rows[-1], call]]
        more.ready_in = [*self.ready_in, 0] if is_full else self.ready_in.copy()
        _count(more, call, len(more.rows) - 1, 1)
        return more

    def with_call(self, call: CallState) -> Calls:
        """These calls with one of them in the place of what it was."""
        changed = Calls.__new__(Calls)
        changed.places = self.places
        changed.ready, changed.running = self.ready, self.running
        changed.left, changed.questions = self.left, self.questions
        row, at = divmod(self.places[call.id], ROW)
        rows = changed.rows = self.rows.copy()
        calls = rows[row] = rows[row].copy()
        changed.ready_in = self.ready_in.copy()
        _count(changed, calls[at], row, -1)
        _count(changed, call, row, 1)
        calls[at] = call
        return changed


NO_CALLS = Calls()
"""Of all states without an open turn."""


def _count(calls: Calls, call: CallState, row: int, by: int) -> None:
    if call.status == "done":
        return
    if call.status == "ready":
        calls.ready += by
        calls.ready_in[row] += by
    calls.running += by * (call.status == "running")
    calls.left += by
    calls.questions += by * call.questions


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run stands."""

    position: int = 0
    """How many events are folded in: the number the next one gets."""
    agent: str = ""
    at: float = 0.0
    """When the last event happened."""
    active: float = 0.0
    """Seconds it had run by then; waiting for answers does not count."""
    messages: tuple[Message, ...] = ()
    """The history; the last message's calls are those in ``calls`` while a turn is open."""
    calls: Calls = field(default_factory=_no_calls)
    turns: int = 0
    """Model responses since the last user message."""
    limit: int = 20
    """Turns allowed; grows when a person says to go on."""
    granted: dict[str, float] = field(default_factory=_nothing)
    """What a person added to other budgets, by name."""
    used_ids: tuple[str, ...] = ()
    """Every call id in the history."""
    budget: Interrupted | None = None
    """The question whether to go on past the limit, while it is open."""
    refused: bool = False
    """Whether a person said not to go on past the limit."""
    settled: dict[str, Resolved] = field(default_factory=_nothing)
    """Answers by interrupt id."""
    remembered: tuple[Remembered, ...] = ()
    """Approvals that a person said to remember in this run; the outermost has those of all inside."""
    finish_reason: str = "stop"
    """Why the last model response ended."""
    usage: Usage = field(default_factory=_no_usage)
    """Tokens and cost of the model responses folded in."""
    queued: tuple[Said, ...] = ()
    """Messages of the person that wait for the open turn's results."""
    later: dict[str, Interrupted] = field(default_factory=_nothing)
    """What an outside system is to give of calls that have an interim result, by interrupt id."""
    misfits: tuple[OutputRefused, ...] = ()
    """The answers in a row that did not fit, since a person or a tool had the last word."""
    final: Part | None = None
    """The answer of the tool that ends the run, as ``{"output": …}``."""
    outcome: RunEnd | None = None
    partial: tuple[str, str] = ("", "")
    """Text and reasoning of the response under way, as far as they were kept."""
    flow: bool = False
    """Whether it has no model, so that its one call is all of it."""
    behind: RunQueued | None = None
    """What it is to begin with once the run before has ended, as long as it has not begun."""
    row: RowOf | None = None
    """The row of a batch that it is of."""
    questions: int = field(default=0, init=False, compare=False, repr=False)
    """How many questions wait for an answer; like ``status`` it follows from the rest, and is set with it."""
    status: Status = field(default="running", init=False, compare=False, repr=False)
    """``interrupted`` when only an answer can make it go on."""

    def __post_init__(self) -> None:
        _stand(self)

    @property
    def of_body(self) -> bool:
        """Whether its calls are what a body started, in that order: there is no model, and no history."""
        return not self.messages and bool(self.calls.places)

    @property
    def asks(self) -> bool:
        """Whether something waits for an answer."""
        return self.questions > 0

    @property
    def pending(self) -> list[Interrupted]:
        """The interrupts that wait, in call order, those of runs inside included."""
        if not self.questions:
            return []
        waiting = [event for call in self.calls.values() for event in call.pending]
        return [*waiting, *self.later.values(), *([self.budget] if self.budget else [])]

    @property
    def is_answered(self) -> bool:
        """Whether the model or a final tool has answered, so that nothing is left but to end."""
        if self.calls.places:
            return False
        return self.final is not None or (
            bool(self.messages)
            and self.messages[-1]["role"] == "assistant"
            and not is_cut_off(self.messages[-1])
        )

    @property
    def open(self) -> list[Interrupted]:
        """The interrupts that take an answer: none once the run has ended."""
        return [] if self.outcome else self.pending

    @property
    def why_finished(self) -> str:
        """Why there is an answer: ``stop``, or what the model said of its last response."""
        return "stop" if self.final is not None else self.finish_reason

    @property
    def text(self) -> str:
        """The text of the last model message."""
        for item in reversed(self.messages):
            if item["role"] == "assistant":
                return text_of(item)
        return ""


def running_calls(state: RunState) -> list[CallState]:
    """The calls whose bodies run, those of runs inside included."""
    found = []
    for call in state.calls.values():
        found += [call] if call.status == "running" else []
        is_open = call.child is not None and call.status != "done"
        found += running_calls(call.child) if call.child is not None and is_open else []
    return found


def waits_in_body(state: RunState) -> bool:
    """Whether a body may wait at its line: for an answer, or for a run that it started."""
    for call in state.calls.values():
        if call.status == "done":
            continue
        child = call.child
        if call.asked or (child is not None and (child.of_body or waits_in_body(child))):
            return True
    return False


def _stand(state: RunState) -> None:
    """Set what follows from the rest of a state that nobody has seen yet, so that whoever asks only looks."""
    questions = state.calls.questions + len(state.later) + (state.budget is not None)
    status: Status
    match state.outcome:
        case None if state.behind is not None:
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


def asked_or(call: CallState, at: float, *, busy: CallStatus = "ready") -> CallState:
    """The call, waiting as long as something in it is asked, else ``busy``."""
    inside = call.child is not None and call.child.status == "interrupted"
    if inside or call.asked or call.lost or (call.pause is not None and call.resumed is None):
        since = at if call.waits_since is None else call.waits_since
        return evolve(call, status="waiting", waits_since=since)
    waited = 0.0 if call.waits_since is None else max(0.0, at - call.waits_since)
    return evolve(call, status=busy, waits_since=None, waited=call.waited + waited)


def _awaits_runs(call: CallState) -> bool:
    """Whether the body has started runs that have not ended."""
    return call.child is not None and call.child.of_body and call.child.calls.left > 0


def _is_busy(state: RunState) -> bool:
    """Whether calls go on; past a budget that is used up, only bodies that run already do."""
    if state.budget is not None:
        return any(not _awaits_runs(call) for call in running_calls(state))
    if not state.calls.places:
        return not state.is_answered
    return state.calls.ready + state.calls.running > 0


def evolve(value: S, **changes: Any) -> S:
    """A copy of a state with these fields changed: ``dataclasses.replace`` at a fifth of its cost."""
    made: S = _copies[type(value)](value)
    for name, change in changes.items():
        _set(made, name, change)
    if isinstance(made, RunState):
        _stand(made)
    return made


def stamped(made: RunState, at: float, active: float) -> RunState:
    """A state that was just made, and that nobody has seen yet, with its time set."""
    _set(made, "at", at)
    _set(made, "active", active)
    return made


_set = object.__setattr__


def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that copies a state slot by slot, written out as no loop is as fast."""
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


BEGINNING = RunState()
"""Of a run whose journal is empty."""
