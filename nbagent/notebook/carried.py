"""A history that ends in open calls, as the events of the first turn that a run starts with."""

from __future__ import annotations

from collections.abc import Iterator

from nbagent.core.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    RunStarted,
    StoredEvent,
    ToolFinished,
)
from nbagent.core.messages import calls_of, text_of


def carried(event: RunStarted) -> Iterator[StoredEvent]:
    """What had happened in the last turn of the history: its calls, their questions and results."""
    last = event.messages[-1] if event.messages else {}
    calls = calls_of(last) if last.get("role") == "assistant" else []
    if not calls:
        return
    asked = tuple(
        CallRequested(id=c["id"], name=c["name"], input=c["input"], raw=c.get("raw")) for c in calls
    )
    yield ModelResponded(at=event.at, scope=event.scope, text=text_of(last), calls=asked)
    for call in calls:
        known = call.get("nbagent") or {}
        if known.get("status") == "waiting" and known.get("pause"):
            yield Interrupted.model_validate(known["pause"])
        elif known.get("result") is not None:
            yield ToolFinished(
                at=event.at,
                scope=event.scope,
                call_id=call["id"],
                output=known["result"]["output"],
                error=bool(known["result"].get("error")),
            )
