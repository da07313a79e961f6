"""What can be read off a run: its journal, and what that comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from .answers import check_open, id_of, reply_types
from .errors import Conflict, NotPending
from .events import Interrupted, RunFailed, StoredEvent
from .interrupts import PendingInterrupt
from .journal import Heard, Journal
from .memory import MemoryStore
from .messages import Message
from .model import Usage
from .pending import interrupts_of
from .result import Call, calls_by_name
from .spec import RunSpec
from .state import Status, closed_messages, paused_messages, status_of
from .tools import Tool
from .wording import asks, bounded


class Record:
    """A run as its journal tells it: nothing here changes anything."""

    def __init__(self, spec: RunSpec, journal: Journal) -> None:
        self.id = journal.run_id
        self._spec = spec
        self._journal = journal
        self._values: dict[str, Any] = {}
        """The tools' own Python objects by call id: in memory only."""

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._spec.agent

    @property
    def status(self) -> Status:
        """``running``, ``interrupted``, ``completed``, ``failed`` or ``cancelled``."""
        return status_of(self._journal.state)

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer, in call order; also while other calls still run."""
        state = self._journal.state
        return [] if state.outcome else interrupts_of(state, self._spec.tools, self.agent)

    @property
    def open_events(self) -> list[Interrupted]:
        """What waits for an answer, as it was stored."""
        return self._journal.state.open

    def reply_type(self, interrupt: PendingInterrupt | str) -> TypeAdapter[Any] | None:
        """The type of the answer that a body in this process waits for; None where none does.

        It knows more than the stored JSON Schema does, such as how a form should ask.
        """
        return reply_types.get(id_of(interrupt))

    def why_not_pending(self, interrupt_id: str) -> str:
        """What became of an interrupt that takes no answer (any more): who answered, and when."""
        try:
            check_open(self._journal.state, interrupt_id)
        except (NotPending, Conflict) as error:
            return str(error)
        return f"interrupt {interrupt_id!r} waits for an answer"

    @property
    def stored(self) -> bool:
        """Whether its journal outlives this process."""
        return not isinstance(self._journal.store, MemoryStore)

    def tool(self, name: str) -> Tool[..., Any] | None:
        """The registered tool of this name, as it is defined now."""
        return self._spec.tools.get(name)

    @property
    def executing(self) -> list[str]:
        """The names of the tools whose bodies run now."""
        calls = self._journal.state.calls.values()
        return [c.name for c in calls if c.status == "running"]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history; calls that are open carry the record of where they stand."""
        return paused_messages(self._journal.state)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages to go on from after the end: each call that was left open has a result."""
        return closed_messages(self._journal.state)

    @property
    def usage(self) -> Usage:
        """Tokens and cost so far."""
        return self._journal.state.usage

    @property
    def journal(self) -> list[StoredEvent]:
        """The run's events so far."""
        return self._journal.read()

    def subscribe(self, listener: Callable[[Heard], None]) -> list[StoredEvent]:
        """Hear what comes from now on, on whatever thread it happens; gives back what came before."""
        return self._journal.subscribe(listener)

    def unsubscribe(self, listener: Callable[[Heard], None]) -> None:
        """Hear no more."""
        self._journal.unsubscribe(listener)

    @property
    def calls(self) -> dict[str, list[Call]]:
        """The tool calls by tool name, in order."""
        return calls_by_name(self._journal.state, self._values)

    def __repr__(self) -> str:
        return f"<Run of {self.agent}: {self.status}{self._detail()}>"

    def _detail(self) -> str:
        """What it asks, or why it failed, in few words."""
        failure = self._journal.state.outcome
        if isinstance(failure, RunFailed):
            return bounded(f", {failure.error}: {' '.join(failure.message.split())}")
        told = [f"{i.tool_name or 'the limit'} {asks(i)}" for i in self.interrupts]
        if not told:
            return ""
        return f", {told[0]}" + (f" and {len(told) - 1} more" if told[1:] else "")
