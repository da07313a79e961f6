"""Outcomes of bodies that could not be stored yet, for a later try by any object of the run in this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeAlias

from nbagent.core.base.events import StepFinished, StoredEvent, ToolFinished
from nbagent.core.base.process import fork_safe, this_process
from nbagent.core.state.state import RunState, call_at

CallOutcome: TypeAlias = ToolFinished | StepFinished


def keep_unwritten(run_id: str, state: RunState, events: Sequence[StoredEvent]) -> None:
    """Remember those of the events that are outcomes of this process's bodies."""
    for event in events:
        if not isinstance(event, CallOutcome):
            continue
        call = call_at(state, event.scope, event.call_id)
        if call is not None and call.attempt and call.owner == this_process():
            with _lock:
                _kept.setdefault(run_id, {})[_key(event)] = event, call.attempt


def unwritten_of(run_id: str, state: RunState) -> list[CallOutcome]:
    """The remembered outcomes of a run, oldest first, of calls that are not done and were not started again."""
    with _lock:
        found = tuple(_kept.get(run_id, {}).values())
    holds = []
    for event, attempt in found:
        call = call_at(state, event.scope, event.call_id)
        if call is None or call.status == "done":
            continue
        if (call.owner, call.attempt) == (this_process(), attempt):
            holds.append(event)
    return holds


def forget_unwritten(run_id: str) -> None:
    """Forget the outcomes of a run: they are stored, or not needed."""
    with _lock:
        _kept.pop(run_id, None)


def _key(event: CallOutcome) -> tuple[object, ...]:
    """A key that is the same if a retry fails too, so that each outcome is remembered once."""
    return event.type, event.scope, event.call_id, getattr(event, "name", None)


_kept: dict[str, dict[tuple[object, ...], tuple[CallOutcome, int]]] = {}
"""The outcomes by run id, and by ``_key``; each with the attempt of its call."""
_lock = fork_safe(threading.Lock())
