"""The run inside a call whose tool is an agent: how it begins, and what it gives the call."""

from __future__ import annotations

import asyncio
from typing import Any

from .errors import ToolFailed
from .events import RunCompleted, RunFailed, RunRetried, RunStarted, StoredEvent
from .journal import InnerJournal
from .messages import user
from .owner import owner
from .spec import RunSpec
from .standing import RunState
from .surroundings import Waits


def begin(journal: InnerJournal, spec: RunSpec, scope: tuple[str, ...], prompt: str) -> None:
    """Start the run inside; one that failed goes on from its last good state."""
    now = spec.clock()
    started = RunStarted(
        at=now,
        scope=scope,
        agent=spec.agent,
        model=spec.model.name,
        messages=[user(prompt)],
        max_turns=spec.max_turns,
        owner=owner(),
    )
    again = RunRetried(at=now, scope=scope, by="middleware", owner=owner())

    def decide(state: RunState) -> list[StoredEvent]:
        if not state.messages and state.outcome is None:
            return [started]
        return [again] if isinstance(state.outcome, RunFailed) else []

    journal.commit(decide)


def answer_of(state: RunState) -> Any:
    """What the run inside a call gives as the call's result."""
    match state.outcome:
        case RunCompleted(text=text, output=output):
            return text if output is None else output
        case RunFailed(error=name, message=message):
            raise ToolFailed(f"{name}: {message}")
        case None:
            raise Waits
        case _:
            raise asyncio.CancelledError
