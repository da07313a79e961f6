"""The rules for an imported run: approvals in the document do not count.

Seals prove that the events of a document belong together, not who wrote them. So approvals, remembered
approvals and answers to bodies are dropped, and rules decide again. A person is asked about calls that were
running or about to run. An open question keeps its text, but loses its deadline, default answer and token.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import replace

from nbagent.core.base.events import Interrupted, RunFailed

from .state import Calls, CallState, RunState, evolve, waiting_or

TOLD = (
    "This run was imported from a document, where this call had already started. It does not run here until "
    "you decide. It may or may not have taken effect."
)


def without_approvals(state: RunState, at: float) -> RunState:
    """The state without the decisions that people and processes made before the import."""
    return evolve(
        state,
        calls=Calls(_call_without_approvals(call, at) for call in state.calls.values()),
        later={event.id: _without_deadline_and_token(event) for event in state.later.values()},
        limit_question=state.limit_question and _without_deadline_and_token(state.limit_question),
        remembered=(),
        granted={},
    )


def _call_without_approvals(call: CallState, at: float) -> CallState:
    if call.status == "done":
        return call
    child = None if call.child is None else without_approvals(call.child, at)
    bare = evolve(
        call,
        status="ready",
        child=child,
        pause=None if call.pause is None else _without_deadline_and_token(call.pause),
        asked={event.id: _without_deadline_and_token(event) for event in call.asked.values()},
        lost=None if call.lost is None else _without_deadline_and_token(call.lost),
        record=(),
        passed_input=None,
        judged_input=None,
        seen_input=None,
        earlier={},
        resumed=None,
        answers={},
        owner="",
    )
    return waiting_or(bare, at)


def _without_deadline_and_token(event: Interrupted) -> Interrupted:
    """The question without the fields that can answer it: deadline, default answer and token."""
    return replace(event, expires_at=None, on_expire="reject", expire_output=None, external=None)


def questions_again(
    before: RunState,
    new_id: Callable[[], str],
    now: float,
    scope: tuple[str, ...] = (),
    settled: Container[str] | None = None,
) -> list[Interrupted]:
    """The questions that an imported run asks again, including questions that were answered elsewhere.

    Args:
        before: the run's state in the document.
        new_id: a function that returns a random id.
        now: the time of the import, in Unix seconds.
        scope: the ids of the calls that lead to the run.
        settled: the ids of questions that were answered; by default those of the run.
    """
    settled = before.settled if settled is None else settled
    if before.outcome is not None and not isinstance(before.outcome, RunFailed):
        return []
    return [
        event
        for call in before.calls.values()
        if call.status != "done"
        for event in _of_call(call, new_id, now, scope, settled, is_flow=before.flow)
    ]


def _of_call(
    call: CallState,
    new_id: Callable[[], str],
    now: float,
    scope: tuple[str, ...],
    settled: Container[str],
    *,
    is_flow: bool,
) -> Iterator[Interrupted]:
    """The questions of one call; a flow's call is always asked about, because no rule applies to it."""
    if call.child is not None:
        yield from questions_again(call.child, new_id, now, (*scope, call.id), settled)
    is_run = call.child is not None and not call.child.of_body
    was_started = call.status in ("ready", "running") and call.attempt and not is_run
    if call.pause is not None and (call.resumed is not None or call.pause.id in settled):
        yield replace(_without_deadline_and_token(call.pause), at=now, id=new_id())
    elif was_started or (is_flow and not call.own_pending):
        yield Interrupted(
            at=now,
            scope=scope,
            id=new_id(),
            call_id=call.id,
            tool_name=call.name,
            kind="lost",
            expects="outcome",
            input=call.input if call.passed_input is None else call.passed_input,
            metadata={"message": TOLD},
        )
