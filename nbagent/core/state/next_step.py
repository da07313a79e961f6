"""Where a run stands and what comes next: ``next_step`` is the pure decision of what a driver does.

The state is a fold over the run's events (``fold.py``) or what a history says (``pause_record.py``).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from nbagent.core.base.messages import Json, dumps, text_of

from .state import CallState, RunState


class _Bare:
    """A step that says no more than its class."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CallModel(_Bare):
    """Ask the model for its next message."""


class RunCalls(NamedTuple):
    """Attempt these calls, each on its own."""

    ids: tuple[str, ...]


class Wait(_Bare):
    """Nothing to start: calls run, or a person is asked."""


class LimitReached(_Bare):
    """The turns are used up."""


class Finish(NamedTuple):
    """The run has its final answer."""

    text: str
    output: Json = None
    """The output of the tool that ended the run, where one did."""
    by_tool: bool = False


class Done(_Bare):
    """The run has ended."""


Step: TypeAlias = CallModel | RunCalls | Wait | LimitReached | Finish | Done


def next_step(state: RunState) -> Step:
    """What a driver does next; a function of the state and of nothing else."""
    if state.outcome is not None:
        return Done()
    if state.budget is not None:
        return Wait()
    if state.calls:
        if not state.calls.ready:
            return Wait()
        ready = tuple(c.id for c in state.calls.values() if _can_go_on(c))
        return RunCalls(ready) if ready else Wait()
    if state.final is not None:
        output = state.final["output"]
        return Finish(output if isinstance(output, str) else dumps(output), output, by_tool=True)
    last = state.messages[-1]
    if last["role"] == "assistant":
        return Finish(text_of(last))
    return CallModel() if state.turns < state.limit else LimitReached()


def _can_go_on(call: CallState) -> bool:
    """Whether a driver can do something for the call; not where all in it runs already."""
    if call.status != "ready":
        return False
    return call.child is None or not isinstance(next_step(call.child), Wait)
