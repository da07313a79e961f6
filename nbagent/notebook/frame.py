"""What the card's frame tells: whose run it is, what it has cost so far, and when what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.events import ModelResponded
from nbagent.core.messages import text_of

from .sanitize import encodable
from .strip import Strip
from .texts import TEXTS
from .tree import Agent
from .wire import Head, RunStatus


class Frame:
    """Counts for the header and the footer."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.strip = Strip()
        self.note = ""
        self.stopping = False
        """Whether Stop was pressed and the run has not ended yet."""
        self.decisions = 0
        self._prompt = ""
        self._started_at = 0.0
        self._tokens = 0
        self._cost: float | None = None

    def started(self, at: float, messages: list[Any]) -> None:
        """The run began with this history."""
        self._started_at, self._prompt = at, _prompt(messages)

    def spent(self, event: ModelResponded) -> None:
        """A model has answered."""
        self._tokens += event.input_tokens + event.output_tokens
        if event.cost is not None:
            self._cost = (self._cost or 0.0) + event.cost

    def head(self, root: Agent, status: RunStatus, questions: int) -> Head:
        """All of it."""
        return Head(
            run=self._run,
            agent=root.name,
            prompt=self._prompt,
            status=status,
            status_text=TEXTS[f"status_{status}"],
            started_at=self._started_at,
            turns=root.turns_taken,
            max_turns=root.max_turns,
            tokens=self._tokens,
            cost=self._cost,
            questions=questions,
            decisions=self.decisions,
            stopping=self.stopping,
            note=self.note,
            spans=self.strip.spans(self._started_at),
        )


def _prompt(messages: list[Any]) -> str:
    """The text of the last thing the person said."""
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return encodable(text_of(message))
    return ""
