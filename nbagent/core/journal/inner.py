"""The journal of a run inside a call: a view of the outer run's journal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from nbagent.core.base.events import RunCancelled, StoredEvent, ToolStarted
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Message
from nbagent.core.base.model import ModelDelta
from nbagent.core.base.process import this_process
from nbagent.core.state.state import RunState, evolve
from nbagent.core.tools.call_output import (
    Chunk,
    Displayed,
    OutputDelta,
    Printed,
    Progressed,
    StepStarted,
)

from .journal import CutOff, Decide, Journal, Listener


class InnerJournal:
    """The journal of a run inside a call: a view of the outer journal, which does the writing.

    The code that makes the events sets their scope. Deltas of the inner model are not passed on: the call's
    row shows the output of the inner tools and the stored responses.

    Args:
        outer: the outer journal.
        call_id: the call.
        started: the start of the body that writes, if a body starts the inner runs itself. Once another body runs the
            call, this one's inner runs have ended, at every depth.
    """

    def __init__(
        self, outer: Journal | InnerJournal, call_id: str, started: ToolStarted | None = None
    ) -> None:
        self.run_id: str = outer.run_id
        self._outer = outer
        self._call_id = call_id
        self._body = None if started is None else (started.owner, started.attempt)

    @property
    def state(self) -> RunState:
        """The inner run's state, which has ended if an outer run has."""
        return self._inner(self._outer.state)

    @property
    def remembered(self) -> Sequence[Remembered]:
        """Remembered approvals of the outermost run."""
        return self._outer.remembered

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the inner run; for calls that a body makes, the messages of the run around the body."""
        state = self.state
        return self._outer.history if state.of_body else state.messages

    @property
    def root(self) -> Journal:
        """The journal of the outermost run."""
        return self._outer.root

    @property
    def may_drive(self) -> bool:
        """As in ``Journal``; but the process that runs a body drives the runs and calls that the body starts."""
        call = self._outer.state.calls.get(self._call_id)
        if call is not None and call.child is not None and call.child.of_body:
            return call.owner == this_process()
        return self._outer.may_drive

    @property
    def is_outer_over(self) -> bool:
        """Whether an outer run has ended, so that the inner run's end is not its own."""
        return self._outer.state.outcome is not None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners of the outermost run."""
        return self._outer.listeners

    def append(self, *events: StoredEvent) -> None:
        """Add these events in any state."""
        self._outer.append(*events)

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """Add the events that ``decide`` returns for the inner state; see ``Journal.commit``."""
        return self._outer.commit(lambda state: decide(self._inner(state)))

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """``commit`` on an event loop; see ``Journal.write``."""
        return await self._outer.write(lambda state: decide(self._inner(state)))

    def submit_end(self, event: StoredEvent, before: CutOff = tuple) -> Future[Any]:
        """Add what ``before()`` returns, then the event that ends the inner run."""
        return self.submit(lambda state: [*before(), event] if state.outcome is None else [])

    def submit(self, decide: Decide) -> Future[Sequence[StoredEvent]]:
        """See ``Journal.submit``."""
        return self._outer.submit(lambda state: decide(self._inner(state)))

    def emit(self, delta: ModelDelta | OutputDelta) -> None:
        """Pass the output of an inner tool to the listeners."""
        if isinstance(delta, Printed | Displayed | Progressed | Chunk | StepStarted):
            self._outer.emit(delta)

    def _inner(self, outer: RunState) -> RunState:
        call = outer.calls.get(self._call_id)
        if (
            call is None
            or call.status == "done"  # which ends the inner run, as another body of the call does
            or (self._body is not None and self._body != (call.owner, call.attempt))
        ):
            return RunState(outcome=outer.outcome or RunCancelled(at=0.0, by="the end of its call"))
        inner = call.child if call.child is not None else RunState()
        if outer.outcome is not None and inner.outcome is None:
            return evolve(inner, outcome=outer.outcome)
        return inner


AnyJournal: TypeAlias = Journal | InnerJournal
