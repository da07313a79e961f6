"""The events that start a run, and the events that start or end a queued run after the previous run."""

from __future__ import annotations

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    StoredEvent,
)
from nbagent.core.engine.driver import run_started
from nbagent.core.state.pause_record import closed_messages
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from .generate import beginning

FAILED = "The previous run failed: "


def queued_run_events(state: RunState, before: RunState, spec: RunSpec) -> list[StoredEvent]:
    """The events that start or end a queued run, from the state of the previous run; none until that has ended.

    The queued run starts if the previous run has completed. If the previous run failed or was cancelled, the queued
    run ends in the same way.
    """
    queued, now = state.queue_event, spec.clock()
    if queued is None or state.outcome is not None:
        return []
    match before.outcome:
        case None:
            return []
        case RunCompleted():
            try:
                messages = beginning(spec, closed_messages(before), queued.prompt, "raise")
            except NbagentError as error:
                return [RunFailed(at=now, error=type(error).__name__, message=str(error))]
            return [run_started(spec, messages, now, after=queued.after)]
        case RunFailed(error=error, message=message):
            first = message if message.startswith(FAILED) else f"{FAILED}{error}: {message}"
            return [RunFailed(at=now, error="RunError", message=first)]
        case RunCancelled():
            return [RunCancelled(at=now, by="the previous run, which was cancelled")]
