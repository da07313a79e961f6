"""Whose turn it is to go on with a run that several processes, or handles of one, may hold.

Who answers, drives. Everybody else follows, and goes on itself only where nobody does; what was started
is never run again.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from nbagent.core.base.errors import RunError
from nbagent.core.base.events import Resolved
from nbagent.core.base.process import has_ended, this_process
from nbagent.core.state.next_step import Wait, next_step
from nbagent.core.state.retry import named_with_owner
from nbagent.core.state.state import CallState, RunState, running_calls

POLL = 0.25
"""Seconds between looks at a store that tells nobody what is written to it."""
UNHEARD = 300.0
"""Seconds without news after which a process that should go on with a run is not waited for."""

Turn: TypeAlias = Literal["ended", "nobody's", "ours", "theirs", "lost"]
"""Who makes the run go on: nobody before an answer comes, we, somebody else, or nobody ever again."""


def whose_turn(state: RunState, driver: str, *, is_driven_here: bool, silent: float) -> Turn:
    """Who makes the run go on, seen from a handle that does not drive it.

    Args:
        state: where the run stands.
        driver: the process that took the run on last.
        is_driven_here: whether any handle's driver in this process is at work.
        silent: seconds since the journal was last seen to move.
    """
    if state.outcome is not None:
        return "ended"
    if isinstance(next_step(state), Wait):
        started = running_calls(state)
        if not started:
            return "nobody's"
        is_lost = lost_calls(state, is_driven_here=is_driven_here, silent=silent)
        return "lost" if is_lost else "theirs"
    if driver == this_process():
        return "theirs" if is_driven_here or silent < POLL else "ours"
    if not driver or has_ended(driver):
        return "ours"
    return "theirs" if silent < UNHEARD else "ours"


def lost_calls(state: RunState, *, is_driven_here: bool, silent: float) -> list[CallState]:
    """The calls that were started by somebody who is gone; see ``whose_turn``."""

    def is_lost(call: CallState) -> bool:
        if call.owner == this_process():
            return not is_driven_here and silent >= POLL
        return bool(has_ended(call.owner))

    return [call for call in running_calls(state) if is_lost(call)]


def loss(state: RunState, lost: list[CallState]) -> RunError:
    """The error of a run that cannot go on, as nobody knows what these calls came to."""
    return RunError(
        f"these calls were started and never ended, and who ran them is gone: {named_with_owner(lost)}. Whether "
        "they took effect is not known, so they are not run again",
        messages=state.messages,
    )


def next_driver(state: RunState, answer: Resolved) -> str:
    """Who goes on after an answer: who takes it, or the process whose body waits at its line."""
    for call_id in answer.scope:
        state = state.calls[call_id].child or RunState()
    call = state.calls.get(answer.call_id)
    if call is None or answer.id not in call.asked or has_ended(call.owner) is not False:
        return this_process()
    return call.owner
