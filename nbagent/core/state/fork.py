"""The events a forked run starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nbagent.core.base.errors import NotPending, UsageError
from nbagent.core.base.events import (
    Interrupted,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    StoredEvent,
)
from nbagent.core.base.interrupts import new_token, token_digest
from nbagent.core.base.process import this_process

from .fold import apply
from .state import RunState, running_calls

Path: TypeAlias = tuple[str, ...]
"""Call ids from the outermost run down to a call."""


def forked(
    events: Sequence[StoredEvent], at: str | None, new_id: Callable[[], str], now: float
) -> list[StoredEvent]:
    """The events up to a question, or all of them, with new ids for what is still asked.

    An answer with which a body is about to run is the original's, which runs it: the fork asks again.
    With ``at``, what other calls did before the next turn is kept too: it was done, and a fork must
    not do it again.

    Args:
        events: a whole journal.
        at: the interrupt at which the fork stands; None for the end.
        new_id: makes random ids.
        now: when it is forked, in Unix seconds.

    Raises:
        NotPending: no event asked ``at``.
        UsageError: a call was started whose end is not known.
    """
    kept = list(events) if at is None else _until(events, at)
    if kept and isinstance(kept[-1], RunCompleted | RunCancelled):
        kept.pop()
    if kept and isinstance(kept[-1], RunFailed):
        kept.append(RunRetried(at=now, by="fork", owner=this_process()))
    kept = _without_taken(kept, _known(kept))
    answered = {event.id for event in kept if isinstance(event, Resolved)}
    return [
        _asked_anew(event, new_id())
        if isinstance(event, Interrupted) and event.id not in answered
        else event
        for event in kept
    ]


def _asked_anew(event: Interrupted, new_id: str) -> Interrupted:
    """The question of a fork: the token that answers the original does not answer this one."""
    external = None if event.external is None else token_digest(new_token())
    return event.model_copy(update={"id": new_id, "external": external})


def _without_taken(events: list[StoredEvent], state: RunState) -> list[StoredEvent]:
    """The events without the answers that the original acts on, as nothing has come of them yet."""
    last: dict[Path, StoredEvent] = {}
    for event in events:
        call_id = getattr(event, "call_id", "")
        if call_id:
            last[*event.scope, call_id] = event
    taken = {
        event.id
        for path, event in last.items()
        if isinstance(event, Resolved) and _is_ready(state, path)
    }
    return [e for e in events if not (isinstance(e, Resolved) and e.id in taken)]


def _is_ready(state: RunState, path: Path) -> bool:
    """Whether the call at ``path`` goes on by itself."""
    inside: RunState | None = state
    for call_id in path[:-1]:
        around = None if inside is None else inside.calls.get(call_id)
        inside = None if around is None else around.child
    call = None if inside is None else inside.calls.get(path[-1])
    return call is not None and call.status == "ready"


def _known(events: Sequence[StoredEvent]) -> RunState:
    """The state of the fork; refused where a call's end is not known."""
    state = RunState()
    for event in events:
        state = apply(state, event)
    running = [call.name for call in running_calls(state)]
    if running:
        raise UsageError(
            f"the calls of {', '.join(map(repr, running))} are running, or never ended: a fork could "
            "neither take their results nor run them again; wait with `await run.settled()`"
        )
    return state


def _until(events: Sequence[StoredEvent], at: str) -> list[StoredEvent]:
    """What happened up to the question, and what happened then that does not depend on its answer."""
    for index, event in enumerate(events):
        if isinstance(event, Interrupted) and event.id == at:
            if event.kind == "later":  # the run went on with the interim result
                rest = events[index + 1 :]
                settled = [n for n, e in enumerate(rest) if isinstance(e, Resolved) and e.id == at]
                return [*events[: index + 1], *rest[: settled[0] if settled else len(rest)]]
            after = _Independent((*event.scope, event.call_id))
            rest = [later for later in events[index + 1 :] if after.keeps(later)]
            return [*events[: index + 1], *rest]
    raise NotPending(f"this run has no interrupt {at!r} to fork at")


class _Independent:
    """Tells which later events would have happened whatever the answer of the call at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over: list[Path] = []
        """Runs that went on with the answer, so that all they did since depends on it."""
        self._failed: list[Path] = []
        """Runs that failed, until they are retried: whose bodies then run again is no matter of the answer."""

    def keeps(self, event: StoredEvent) -> bool:
        """Whether the event does not depend on the answer; to be asked in the events' order."""
        scope = event.scope
        if isinstance(event, RunRetried):
            self._failed.clear()
        if any(_is_under(scope, run) for run in (*self._over, *self._failed)):
            return False
        if isinstance(event, RunRetried):
            return True
        call_id = getattr(event, "call_id", "")
        if call_id:
            where = (*scope, call_id)
            return not (_is_under(where, self._path) or _is_under(self._path, where))
        around = _is_under(self._path[:-1], scope)
        if around and isinstance(event, RunFailed):
            self._failed.append(scope)
        elif around and isinstance(event, ModelResponded | RunCompleted | RunCancelled):
            self._over.append(scope)
        return not (around or _is_under(scope, self._path))


def _is_under(path: Path, root: Path) -> bool:
    return path[: len(root)] == root
