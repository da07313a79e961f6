"""The rules for which of several processes, or handles, continues a run.

The process that answers also drives the run. The other processes follow. If no process drives the run, they may
take it over: they first store a takeover, and only one takeover counts. A call that was started runs again only
if its tool is idempotent or a person decides so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from nbagent.core.base.errors import RunError
from nbagent.core.base.events import (
    Interrupted,
    ModelResponded,
    RunTaken,
    StoredEvent,
    ToolFinished,
)
from nbagent.core.base.interrupts import ASKS_OUTSIDE
from nbagent.core.base.process import describe_process, has_ended, this_process
from nbagent.core.base.user import this_user
from nbagent.core.journal.store import moment
from nbagent.core.state.next_step import CallModel, Wait, next_step
from nbagent.core.state.state import CallState, RunState, call_at
from nbagent.core.tools.spec import RunSpec

from .answers import run_again, tool_at
from .heartbeat import OtherProcesses
from .polling import POLL

MOMENT = 2.0
"""Seconds in which the last process of a run may take the run again, before others do."""

MAX_REPORTED = 12
"""Names of finished calls that a question lists."""

Turn: TypeAlias = Literal["ended", "nobody's", "ours", "theirs", "lost"]
"""The side that continues a run. With ``nobody's`` the run needs an answer; with ``lost``, a call's process ended."""

RELEASE = "release"
"""The reason in the event of a release, after which any process may continue the run."""
TakenBy: TypeAlias = Literal["take over", "silence", "vacancy"]
"""The reason of a takeover: a person's request, the end of the earlier process, or no process at all."""

_WITHDRAWN = (
    "{tool} asked this question in {process}, which has ended. The question was withdrawn, because "
    "an answer can no longer reach it. The call may or may not have taken effect, and it is not sent again."
)

ScopedCall: TypeAlias = tuple[tuple[str, ...], CallState]
"""The scope of a call, and the call."""


def whose_turn(
    state: RunState,
    driver: str,
    others: OtherProcesses,
    *,
    is_driven_here: bool,
    is_vacant: bool = False,
) -> Turn:
    """The side that continues the run, if the handle itself has no running driver.

    Args:
        state: the state of the run.
        driver: the last process that drove the run.
        others: the liveness of other processes.
        is_driven_here: True if a driver of any handle in this process is running.
        is_vacant: True if certainly no process is driving the run.
    """
    if state.outcome is not None:
        return "ended"
    if isinstance(next_step(state), Wait):
        if next(_with_lives(state), None) is None:
            return "nobody's"
        return "lost" if lost_calls(state, others, is_driven_here=is_driven_here) else "theirs"
    if driver == this_process():
        is_here = is_driven_here or (others.silent < POLL and not is_vacant)
        return "theirs" if is_here else "ours"
    if is_vacant:
        is_late = not driver or others.silent >= MOMENT or others.has_ended(driver)
        return "ours" if is_late else "theirs"
    return "ours" if others.drives_nothing(driver) else "theirs"


def lost_calls(
    state: RunState, others: OtherProcesses, *, is_driven_here: bool
) -> list[ScopedCall]:
    """The calls of ended processes, with their scopes; see ``whose_turn``."""

    def is_lost(call: CallState) -> bool:
        if call.owner == this_process():
            return not is_driven_here and others.silent >= POLL
        return others.has_ended(call.owner)

    return [(scope, call) for scope, call in _with_lives(state) if is_lost(call)]


def _with_lives(state: RunState, scope: tuple[str, ...] = ()) -> Iterator[ScopedCall]:
    """The calls that end with their process: a body is running, or an outside program waits for an answer."""
    for call in state.calls.values():
        if call.status == "running" or (call.asked and ASKS_OUTSIDE in call.steps):
            yield scope, call
        if call.child is not None and call.status != "done":
            yield from _with_lives(call.child, (*scope, call.id))


def lost_call_events(
    state: RunState, lost: Sequence[ScopedCall], spec: RunSpec
) -> list[StoredEvent]:
    """The events for calls whose process has ended: a question, with its answer if that is safe; or a failure.

    A body may have done its work, so a person decides about the call. A call of an idempotent tool runs again
    without a person, and so does a call of an agent in which nothing had started. A question of an outside program
    is withdrawn and its call fails, because an answer can no longer reach that program.
    """
    events: list[StoredEvent] = []
    if state.outcome is not None:  # somebody ended the run meanwhile
        return events
    for scope, call in lost:
        current = call_at(state, scope, call.id)
        if current is None or (current.status, current.attempt) != (call.status, call.attempt):
            continue  # another handle has already stored these events
        now, input_ = spec.clock(), call.input if call.passed_input is None else call.passed_input
        if call.status != "running":
            why = _WITHDRAWN.format(process=describe_process(call.owner), tool=call.name)
            events.append(
                ToolFinished(at=now, scope=scope, call_id=call.id, output=why, error=True)
            )
            continue
        tool = tool_at(state, scope, call, spec.tools)
        asked = Interrupted(
            at=now,
            scope=scope,
            id=spec.new_id(),
            call_id=call.id,
            tool_name=call.name,
            kind="lost",
            expects="outcome",
            input=input_,
            metadata={
                "message": f"{call.name} was running in {describe_process(call.owner)}, which {'no longer drives this run' if has_ended(call.owner) is False else 'has ended'}. "
                f"It may or may not have taken effect.{_reported(call)}"
            },
            digest="" if tool is None else tool.digest(input_),
            reply_schema=None if tool is None else tool.output_schema,
        )
        events.append(asked)
        is_run = call.child is not None and not call.child.of_body
        if is_run or (
            tool is not None and (tool.options.idempotent or tool.options.inner is not None)
        ):
            events.append(run_again(asked))
    return events


def _reported(call: CallState) -> str:
    """The calls that the body has shown since its last step, as sentences; running it again may repeat them."""
    names = [name for name, steps in call.rows.values() if steps == len(call.steps)]
    if not names:
        return ""
    more = f" and {len(names) - MAX_REPORTED} more" if len(names) > MAX_REPORTED else ""
    shown = ", ".join(names[:MAX_REPORTED]) + more
    return (
        f" Since its last step, it reported these calls: {shown}. Running it again may repeat them."
    )


def takeover_events(
    state: RunState, spec: RunSpec, by: TakenBy = "take over", gone: str = ""
) -> list[StoredEvent]:
    """The events for a takeover of the run by this process.

    Args:
        state: the state of the run.
        spec: this process's spec of the run.
        by: the reason.
        gone: the process that drove the run last; empty to take the run from all processes.
    """
    user = this_user() if by == "take over" else ""
    taken = RunTaken(at=spec.clock(), by=by, owner=this_process(), gone=gone, user=user)
    return [
        taken,
        *partial_response_events(state, spec, "failed"),
        *lost_call_events(state, _runs_of_others(state, gone), spec),
    ]


def partial_response_events(
    state: RunState, spec: RunSpec, why: Literal["stopped", "failed"]
) -> list[StoredEvent]:
    """The event for another process's incomplete response, as far as stored; no process continues that response."""
    text, reasoning = state.partial
    if not (text or reasoning) or not isinstance(next_step(state), CallModel):
        return []
    return [ModelResponded(at=spec.clock(), text=text, reasoning=reasoning, cut=why)]


def runs_elsewhere(state: RunState) -> bool:
    """Whether a call runs in another process. The store shows its events, but nothing reports the process's end."""
    return state.outcome is None and bool(_runs_of_others(state))


def owners_elsewhere(state: RunState) -> list[str]:
    """The other processes that run bodies of this run; they may have ended."""
    return [call.owner for _, call in _runs_of_others(state)]


def _runs_of_others(state: RunState, process: str = "") -> list[ScopedCall]:
    """The calls whose bodies run in ``process`` (if empty: in any other process), even if that process has ended."""
    return [
        (scope, call)
        for scope, call in _with_lives(state)
        if call.owner != this_process() and process in ("", call.owner)
    ]


def taken_over_error(run_id: str, taken: RunTaken) -> RunError:
    """The error for a process whose run another process has taken over."""
    who = describe_process(taken.owner) + (f" ({taken.user})" if taken.user else "")
    return RunError(
        f"{who} took over run {run_id!r} at {moment(taken.at)}. The run continues there. Results of calls that are "
        f"still running here are ignored. run.status shows its progress. To take it back: nb.open_run({run_id!r}, "
        "take_over=True)"
    )


def is_idle(state: RunState) -> bool:
    """Whether no other process can be running the run: no step is due, and all others with bodies have ended."""
    elsewhere = {call.owner for call in _with_bodies(state)} - {this_process()}
    return isinstance(next_step(state), Wait) and all(map(has_ended, elsewhere))


def _with_bodies(state: RunState) -> Iterator[CallState]:
    """The calls whose bodies run, or may wait for an answer in the middle of their code."""
    for call in state.calls.values():
        if call.status == "done":
            continue
        child = call.child
        if call.status == "running" or call.asked or (child is not None and child.of_body):
            yield call
        if child is not None:
            yield from _with_bodies(child)
