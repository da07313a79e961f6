"""What bodies came to while the store failed: kept in this process, to be written by a retry.

A body that ended has done its work. Where that could not be stored, a retry that ran the body again
would do the work twice; so the retry writes its result instead.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from .errors import StoreError, UsageError
from .events import RunFailed, StepFinished, StoredEvent, ToolFinished
from .owner import described, owner
from .standing import CallState, RunState, running_calls

Outcome: TypeAlias = ToolFinished | StepFinished


class _Kept(NamedTuple):
    event: Outcome
    attempt: int
    """The body that it is the outcome of."""


def keep(run_id: str, state: RunState, events: Sequence[StoredEvent]) -> None:
    """Keep those of the events that tell what a body of this process came to."""
    for event in events:
        if not isinstance(event, Outcome):
            continue
        call = _call_of(state, event)
        if call is not None and call.attempt and call.owner == owner():
            with _lock:
                _kept.setdefault(run_id, {})[_key(event)] = _Kept(event, call.attempt)


def kept(run_id: str, state: RunState) -> list[Outcome]:
    """What was kept of a run and still holds, oldest first: no other body was started since."""
    with _lock:
        found = tuple(_kept.get(run_id, {}).values())
    return [event for event, attempt in found if _still_holds(state, event, attempt)]


def forget(run_id: str) -> None:
    """It is written, or of no use any more."""
    with _lock:
        _kept.pop(run_id, None)


def check_known(state: RunState, failed: RunFailed) -> None:
    """Refuse to run bodies again whose results another process may have failed to store.

    Raises:
        UsageError: naming the tools, as they may have done their work.
    """
    if failed.error != StoreError.__name__ or failed.owner in ("", owner()):
        return
    unknown = running_calls(state)
    if unknown:
        told = ", ".join(repr(call.name) for call in unknown)
        raise UsageError(
            f"the store failed while {described(failed.owner)} ran these calls: {told}. Whether they "
            "took effect is known there alone, so they are not run again here: retry there, or "
            "start a new run; after= goes on with what was said"
        )


def _call_of(state: RunState, event: Outcome) -> CallState | None:
    for call_id in event.scope:
        call = state.calls.get(call_id)
        if call is None or call.child is None:
            return None
        state = call.child
    return state.calls.get(event.call_id)


def _still_holds(state: RunState, event: Outcome, attempt: int) -> bool:
    call = _call_of(state, event)
    if call is None or call.status == "done" or call.owner != owner():
        return False
    return call.attempt == attempt


def _key(event: Outcome) -> tuple[object, ...]:
    """The same for an outcome that could not be stored by a retry either."""
    return event.type, event.scope, event.call_id, getattr(event, "name", None)


_kept: dict[str, dict[tuple[object, ...], _Kept]] = {}
"""By run, so that any handle of this process can retry."""
_lock = threading.Lock()
