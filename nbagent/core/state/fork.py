"""The events from which a forked run starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from nbagent.core.base.errors import NotPending, UsageError
from nbagent.core.base.events import (
    BodyCalled,
    Interrupted,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunImported,
    RunRetried,
    RunStarted,
    StoredEvent,
)
from nbagent.core.base.interrupts import new_token, token_digest
from nbagent.core.base.messages import load
from nbagent.core.base.process import this_process

from .fold import apply
from .pause_record import paused_messages, restore
from .state import Calls, CallState, RunState, call_at, evolve, running_calls

Path: TypeAlias = tuple[str, ...]
"""Call ids from the outermost run down to a call."""


def forked(
    events: Sequence[StoredEvent],
    at: str | StoredEvent | None,
    new_id: Callable[[], str],
    now: float,
) -> list[StoredEvent]:
    """The events up to ``at``, with new ids for open questions.

    An answer that no body has used yet belongs to the original run, and the fork asks again. With ``at``,
    results of other calls before the next turn are included, because a fork must not repeat these calls.
    So if ``at`` is not a question, the fork has the whole turn of ``at``, with all results.

    Args:
        events: a whole journal.
        at: the question or event to fork at; None for the end of the journal.
        new_id: a function that returns a random id.
        now: the time of the fork, in Unix seconds.

    Raises:
        NotPending: the run has no question ``at``.
        UsageError: the result of a started call is unknown, or ``at`` is not an event of this journal.
    """
    kept = list(events) if at is None else _until(events, at)
    kept += [e for e in events if isinstance(e, RunImported) and e not in kept]
    if kept and isinstance(kept[-1], RunCompleted | RunCancelled):
        kept.pop()
    if kept and isinstance(kept[-1], RunFailed):
        kept.append(RunRetried(at=now, by="fork", owner=this_process()))
    kept = _without_taken(kept, _known(kept))
    answered = {event.id for event in kept if isinstance(event, Resolved)}

    def anew(event: Interrupted) -> Interrupted:
        if event.id in answered:
            return event
        # a new token, so that the original's token does not answer the fork's question
        external = None if event.external is None else token_digest(new_token())
        return replace(event, id=new_id(), external=external)

    return [_with_questions(event, anew) for event in kept]


Anew: TypeAlias = Callable[[Interrupted], Interrupted]
"""A function that returns the fork's version of a question; an answered question stays the same."""


def _with_questions(event: StoredEvent, anew: Anew) -> StoredEvent:
    """The event with the fork's questions; a ``RunStarted`` may have questions in its history."""
    if isinstance(event, Interrupted):
        return anew(event)
    if isinstance(event, RunStarted):
        state = restore(load(event.messages))
        if state.questions:
            messages = list(paused_messages(_state_anew(state, anew)))
            return replace(event, messages=messages)
    return event


def _state_anew(state: RunState, anew: Anew) -> RunState:
    calls = Calls(_call_anew(call, anew) for call in state.calls.values())
    later = [anew(event) for event in state.later.values()]
    return evolve(
        state,
        calls=calls,
        later={event.id: event for event in later},
        limit_question=None if state.limit_question is None else anew(state.limit_question),
    )


def _call_anew(call: CallState, anew: Anew) -> CallState:
    asked = [anew(event) for event in call.asked.values()]
    return evolve(
        call,
        asked={event.id: event for event in asked},
        lost=None if call.lost is None else anew(call.lost),
        pause=anew(call.pause) if call.is_paused and call.pause is not None else call.pause,
        child=None if call.child is None else _state_anew(call.child, anew),
    )


def _without_taken(events: list[StoredEvent], state: RunState) -> list[StoredEvent]:
    """The events without the answers that the original run has not used yet."""
    last: dict[Path, StoredEvent] = {}
    for event in events:
        call_id = getattr(event, "call_id", "")
        if call_id:
            last[*event.scope, call_id] = event
    taken = set()
    for (*scope, call_id), event in last.items():
        call = call_at(state, scope, call_id)
        if isinstance(event, Resolved) and call is not None and call.status == "ready":
            taken.add(event.id)
    return [e for e in events if not (isinstance(e, Resolved) and e.id in taken)]


def _known(events: Sequence[StoredEvent]) -> RunState:
    """The state of the fork; raises if a call's result is unknown."""
    state = RunState()
    for event in events:
        state = apply(state, event)
    running = [call.name for call in running_calls(state)]
    if running:
        raise UsageError(
            f"Calls of {', '.join(map(repr, running))} have no result: they are still running, or their process ended. A fork "
            "must not run them again. Wait with `await run.settled()`, and answer the run's questions about lost calls"
        )
    return state


def _until(events: Sequence[StoredEvent], at: str | StoredEvent) -> list[StoredEvent]:
    """The events up to ``at``, and later events that do not depend on its answer."""
    if isinstance(at, Interrupted):
        at = at.id
    index, path = _question(events, at) if isinstance(at, str) else _turn_end(events, at)
    end = index + 1
    asked = events[index]
    is_later = isinstance(asked, Interrupted) and asked.kind == "later" and asked.id == at
    if is_later:  # until the answer, the run continued with the interim result
        answers = (n for n, e in enumerate(events) if isinstance(e, Resolved) and e.id == at)
        end = next(answers, len(events))
    after = _Independent(path)
    return [*events[:end], *(e for e in events[end:] if after.keeps(e))]


def _question(events: Sequence[StoredEvent], interrupt_id: str) -> tuple[int, Path]:
    """The place of a question: the number of its event, and the path to the call."""
    for index, event in enumerate(events):
        asked = [event] if isinstance(event, Interrupted) else []
        if isinstance(event, RunStarted):
            asked = restore(load(event.messages)).pending
        for each in asked:
            if each.id == interrupt_id:
                return index, (*each.scope, each.call_id)
    raise NotPending(f"This run has no interrupt {interrupt_id!r} to fork at")


def _turn_end(events: Sequence[StoredEvent], at: StoredEvent) -> tuple[int, Path]:
    """The end of an event's turn: the number of the last event of its calls, and the path to its run."""
    place = next((n for n, event in enumerate(events) if event is at or event == at), None)
    if place is None:
        raise UsageError(
            f"This run has no such event to fork at: {at.type!r} at {at.at}. Use one of run.journal"
        )
    scope = at.scope
    for index in range(place + 1, len(events)):
        event = events[index]
        ends = isinstance(event, ModelResponded | RunCompleted | RunCancelled)
        is_around = len(event.scope) <= len(scope) and _is_under(scope, event.scope)
        if ends and is_around:
            return index - 1, scope
    return len(events) - 1, scope


class _Independent:
    """Decides which later events do not depend on the answer of the call at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over: list[Path] = []
        """Runs, and calls of bodies, that continued with the answer: their later events depend on it."""
        self._failed: list[Path] = []
        """Failed runs that are not retried yet; a retry does not depend on the answer."""

    def keeps(self, event: StoredEvent) -> bool:
        """Whether the event does not depend on the answer; call it in the events' order."""
        scope, call_id = event.scope, getattr(event, "call_id", "")
        where = (*scope, call_id) if call_id else scope
        if isinstance(event, RunRetried):
            self._failed.clear()
        if any(_is_under(where, over) for over in (*self._over, *self._failed)):
            return False
        if isinstance(event, RunRetried):
            return True
        if isinstance(event, BodyCalled) and _is_under(self._path, scope):
            self._over.append(where)  # in the fork, the body runs again and starts this call again
            return False
        if call_id:
            return not (_is_under(where, self._path) or _is_under(self._path, where))
        around = _is_under(self._path[:-1], scope)
        if around and isinstance(event, RunFailed):
            self._failed.append(scope)
        elif around and isinstance(event, ModelResponded | RunCompleted | RunCancelled):
            self._over.append(scope)
        return not (around or _is_under(scope, self._path))


def _is_under(path: Path, root: Path) -> bool:
    return path[: len(root)] == root
