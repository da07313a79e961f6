"""The run before a queued one: what is known of it here, and what comes of the queued run with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.events import RunCancelled, RunCompleted, RunFailed, RunStarted, StoredEvent
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Message
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.state.pause_record import closed_messages
from nbagent.core.state.state import RunState, status_of
from nbagent.core.tools.spec import RunSpec

from .generate import beginning

FAILED = "the run before it failed: "


class Held(Protocol):
    """The session of a run, where this process has one."""

    error: BaseException | None

    @property
    def run_id(self) -> str:
        """The run's id."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer."""

    @property
    def wrong_answers(self) -> Mapping[str, Exception]:
        """What was wrong with answers that were given, by interrupt id."""

    @property
    def answers_told(self) -> str:
        """What is to be known of them where one is missing."""

    def is_settled(self) -> bool:
        """Whether nothing can go on without an answer."""

    def is_over(self) -> bool:
        """Whether awaiting it has something to say."""


class Before:
    """The run before, by its session; or by its journal alone, where another process has the run."""

    def __init__(self, journal: Journal, held: Held | None = None) -> None:
        self.journal = journal
        self.held = held

    @property
    def state(self) -> RunState:
        """Where it stands, as far as is known here."""
        return self.journal.state

    @property
    def error(self) -> BaseException | None:
        """Why it cannot go on here."""
        return None if self.held is None else self.held.error

    def stands(self) -> bool:
        """Whether it cannot go on without an answer."""
        if self.state.outcome is not None:
            return False
        return (
            status_of(self.state) == "interrupted" if self.held is None else self.held.is_settled()
        )

    def is_over(self, *, attended: bool) -> bool:
        """Whether nobody here makes it end: it failed to go on, or asks a person and nobody is there."""
        if self.state.outcome is not None:
            return False
        return self.held.is_over() if self.held is not None else not attended and self.stands()


def run_started(
    spec: RunSpec, messages: Sequence[Message], now: float, after: str | None
) -> RunStarted:
    """The event that begins a run on a history."""
    return RunStarted(
        at=now,
        agent=spec.agent,
        model=spec.model_name,
        messages=list(messages),
        max_turns=spec.max_turns,
        after=after,
        owner=this_process(),
        flow=spec.model is None,
        answer=spec.answer.form,
    )


def come_of(state: RunState, before: RunState, spec: RunSpec) -> list[StoredEvent]:
    """What is written of a queued run, now that the run before stands so; nothing as long as it goes on.

    It begins where that one has ended well, and ends with it where it has not.
    """
    queued, now = state.behind, spec.clock()
    if queued is None or state.outcome is not None:
        return []
    match before.outcome:
        case None:
            return []
        case RunCompleted():
            try:
                begun = beginning(spec, closed_messages(before), queued.said, "refuse")
            except NbagentError as error:
                return [RunFailed(at=now, error=type(error).__name__, message=str(error))]
            return [run_started(spec, begun, now, queued.after)]
        case RunFailed(error=error, message=message):
            first = message if message.startswith(FAILED) else f"{FAILED}{error}: {message}"
            return [RunFailed(at=now, error="RunError", message=first)]
        case RunCancelled():
            return [RunCancelled(at=now, by="the run before it, which was cancelled")]
