"""The calls that a retry runs again: unfinished calls, unless another process may have completed them."""

from __future__ import annotations

from dataclasses import replace

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import Interrupted, RunFailed
from nbagent.core.base.process import describe_process, this_process

from .state import Calls, CallState, RunState, evolve, running_calls, waiting_or


def ready_again(call: CallState, at: float) -> CallState:
    """The call after a retry: ready again if its body was running, or if the run inside failed."""
    child = call.child
    failed = child is not None and isinstance(child.outcome, RunFailed)
    if call.status == "done" and not failed:
        return call
    if call.status in ("done", "running"):  # an open call has no result
        call = evolve(call, status="ready", result=None, answer=None)
    if child is not None:
        inner = Calls(ready_again(c, at) for c in child.calls.values())
        child = evolve(
            child,
            calls=inner,
            **({"outcome": None, "limit_declined": False, "misfits": ()} if failed else {}),
        )
        call = waiting_or(evolve(call, child=child), at)
    asked = {i: _more_time(e, at) for i, e in call.asked.items()}
    pause = call.pause if call.pause is None else _more_time(call.pause, at)
    return evolve(call, asked=asked, pause=pause)


def _more_time(event: Interrupted, at: float) -> Interrupted:
    """The question. If its deadline has passed, the time to answer starts again at ``at``."""
    if event.expires_at is None or not event.is_late(at):
        return event
    return replace(event, at=at, expires_at=at + event.expires_at - event.at)


def check_known(state: RunState, failed: RunFailed) -> None:
    """Check that no body was running in another process than the run's, or in another one that failed to store results.

    Raises:
        UsageError: such bodies exist, and may have taken effect; the message names their tools.
    """
    running = running_calls(state)
    elsewhere = [call for call in running if failed.owner and call.owner != failed.owner]
    if elsewhere:
        names = ", ".join(
            f"{call.name!r} (by {describe_process(call.owner)})" for call in elsewhere
        )
        raise UsageError(
            f"These calls were running in another process when the run failed: {names}. They may "
            "or may not have taken effect, so they are not run again. Start a new run; after= continues the "
            "conversation"
        )
    if running and failed.error == StoreError.__name__ and failed.owner not in ("", this_process()):
        names = ", ".join(repr(call.name) for call in running)
        raise UsageError(
            f"The store failed while {describe_process(failed.owner)} was running these calls: {names}. They may "
            "or may not have taken effect, so they are not run again here. Retry there, or start a new run; "
            "after= continues the conversation"
        )
