"""The next step of a run: ``next_step`` is a pure function that returns what the driver does.

The state comes from the run's events (``fold.py``) or from a history (``pause_record.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nbagent.core.base.messages import Json, dumps, is_cut_off, results_of, text_of

from .state import RunState, running_calls


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for its next message."""


class RunCalls:
    """Attempt these calls, independently of each other; the ids are computed when they are read."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = ids

    @property
    def ids(self) -> tuple[str, ...]:
        """The calls, in order."""
        self._ids = ids = tuple(self._ids)
        return ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunCalls) and other.ids == self.ids

    def __hash__(self) -> int:
        return hash(self.ids)

    def __repr__(self) -> str:
        return f"RunCalls({self.ids!r})"


@dataclass(frozen=True, slots=True)
class Wait:
    """Start nothing: calls run, a question is open, the previous run has not ended, or the run ``is_stuck``."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The turns are used up."""


class Finish(NamedTuple):
    """The run has its final answer."""

    text: str
    output: Json = None
    """The output of the tool that ended the run, if a tool did."""
    by_tool: bool = False


class Fail(NamedTuple):
    """The one call of a flow failed, and there is no model to report it to."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The run has ended."""


Step: TypeAlias = CallModel | RunCalls | Wait | LimitReached | Finish | Fail | Done


def next_step(state: RunState) -> Step:
    """The driver's next step; depends only on the state."""
    if state.outcome is not None:
        return Done()
    if (
        state.queue_event is not None
        or state.limit_question is not None
        or (state.later and state.is_answered)
    ):
        return Wait()
    if state.calls.rows:
        ready, calls = state.calls.ready, state.calls.ready_calls
        is_due = ready and any(c.child is None or _can_continue(c.child) for c in calls())
        return (
            RunCalls(c.id for c in calls() if c.child is None or _can_continue(c.child))
            if is_due
            else Wait()
        )
    if state.final is not None:
        output = state.final["output"]
        text = "" if output is None else output if isinstance(output, str) else dumps(output)
        return Finish(text, output, by_tool=True)
    if not state.messages:
        return Wait()
    last = state.messages[-1]
    if last["role"] == "assistant" and not is_cut_off(last):
        return Finish(text_of(last))
    if state.flow:
        return Fail(str(results_of(last)[0]["output"])) if last["role"] == "tool" else Wait()
    return CallModel() if state.turns < state.limit else LimitReached()


def is_stuck(state: RunState) -> bool:
    """Whether a run cannot continue: no step is due, no question is open, and no body runs.

    This happens only if somebody has changed the run's document, history or journal.
    """
    children = (call.child for call in state.calls.values() if call.status != "done")
    if any(child is not None and is_stuck(child) for child in children):
        return True
    is_idle = state.status == "running" and isinstance(next_step(state), Wait)
    return is_idle and not state.of_body and not running_calls(state)


def _can_continue(child: RunState) -> bool:
    """Whether a driver can continue a ready call with this inner run; False if the run only waits."""
    return child.of_body or not isinstance(next_step(child), Wait)
