"""The settings and functions of a run that its calls share, and the reasons that can stop a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

from nbagent.core.base.errors import Misuse, StoreError
from nbagent.core.base.events import Interrupted, StoredEvent, ToolStarted
from nbagent.core.base.interrupts import Asker, Interrupt
from nbagent.core.base.messages import Message
from nbagent.core.journal.journal import AnyJournal, Decide
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.policy import Rule
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Presenter, Tool


def _nobody(*_told: Any) -> None:
    return None


OnMain: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


class RunHooks(NamedTuple):
    """Callbacks about a run's state and for its display."""

    paused: Callable[[Interrupted], None] = _nobody
    """Called for each pause after it is stored."""
    may_be_idle: Callable[[], None] = _nobody
    """Called when the run may have begun to wait for an answer; the function checks whether it does."""
    present: Presenter = _nobody
    """Makes the mime bundle of a result, if it can be shown richer than as text."""
    on_main: OnMain | None = None
    """Runs bodies with ``thread=False`` on the thread of the cells; if None, they run on the run's loop."""


class BodyRuns(Protocol):
    """The agent runs and tool calls that one body starts; they belong to its call."""

    is_abandoned: bool
    """Whether the body was cancelled. Its code may still run, for example in a thread, and starts nothing more."""

    async def call(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """Return the result of a tool that the body calls."""

    def call_sync(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """``call`` in a thread."""

    async def approve(
        self, tool: Tool[..., Any], input_: Mapping[str, Any], id_: str | None
    ) -> dict[str, Any]:
        """Return the input of a call, as approved."""

    def approve_sync(
        self, tool: Tool[..., Any], input_: Mapping[str, Any], id_: str | None
    ) -> dict[str, Any]:
        """``approve`` in a thread."""

    def rule_on(self, name: str) -> Rule | None:
        """The first rule that denies or reviews calls of this name; None if there is none."""

    async def end(self) -> None:
        """Wait for the runs and calls that the body did not wait for; called after the body has returned."""

    def close(self) -> None:
        """Stop everything that the body started, because the body has ended."""


current_runs: ContextVar[Any] = ContextVar("nbagent_current_runs", default=None)
"""The ``BodyRuns`` of the current body, in its thread or task; None outside of bodies."""


class CallSetup(NamedTuple):
    """The setup that all calls of one run share."""

    spec: RunSpec
    scope: tuple[str, ...]
    """The ids of the calls that lead to the run."""
    bodies_wait: Callable[[], bool]
    """Whether bodies wait for answers at the lines of their questions."""
    run_inner: Callable[[CallState, Tool[..., Any], Any], Awaitable[Any]]
    """Drives the inner run of an agent tool; returns its answer or raises ``SubrunWaits``."""
    runs: Callable[[ToolStarted, Tool[..., Any], BodyStop, bool], BodyRuns]
    """Makes the ``BodyRuns`` of a call; the last argument is True if middleware retries the call."""
    has_room: Callable[[int], bool]
    """Whether the run and its outer runs may have this number of further open questions."""
    file_room: Callable[[], int]
    """Bytes of files that may still be added to the run's history."""
    hooks: RunHooks = RunHooks()


started_by_bodies: WeakValueDictionary[str, Tool[..., Any]] = WeakValueDictionary()
"""The tools of all calls and runs that bodies in this process have started, by call id."""


class SubrunWaits(BaseException):
    """The inner run of a call waits for an answer, so the call waits too."""


class CallTakenOver(BaseException):
    """The attempt has ended before its body: another process has taken the call over, or the call was stopped."""


class CallDenied(BaseException):
    """A rule denies the call. Not an ``Exception``, so that middleware does not handle it as a failure."""


class Pause(NamedTuple):
    """The call waits for an answer."""

    asker: Asker
    interrupt: Interrupt


StopReason: TypeAlias = Pause | Misuse | StoreError | SubrunWaits | CallTakenOver | CallDenied


class BodyStop:
    """The reason that stopped a call: the first one counts, whatever the tool or middleware does."""

    __slots__ = ("asked", "before", "reason")

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.asked: list[Interrupted] = []
        """The questions of ``ctx.ask`` that are stored with a pause."""
        self.before: Callable[[Decide], Decide] | None = None
        """Adds the text of ``ctx.write`` that is not stored yet to the body's next event."""

    def because(self, reason: StopReason) -> None:
        """Set the reason, unless another reason has stopped the call before."""
        if self.reason is None:
            self.reason = reason

    def check(self) -> None:
        """Raise the reason, if the call was stopped."""
        if self.reason is not None:
            raise self.reason.interrupt if isinstance(self.reason, Pause) else self.reason


def is_mine(state: RunState, started: ToolStarted) -> bool:
    """Whether the body of this start still runs its call, and no other process has taken the call over."""
    call = state.calls.get(started.call_id)
    if call is None or call.status == "done" or state.outcome is not None:
        return False
    return (call.owner, call.attempt) == (started.owner, started.attempt)


def continue_event(state: RunState, started: ToolStarted, now: float) -> list[ToolStarted]:
    """The event of a body that continues after an answer; empty if no event is needed.

    Raises:
        CallTakenOver: another process has taken the call over.
    """
    if not is_mine(state, started):
        raise CallTakenOver
    is_ready = state.calls[started.call_id].status == "ready"
    return [replace(started, at=now)] if is_ready else []


class CallJournal:
    """The run's journal, for one call. A failed write stops the call.

    If the tool gets a ``StoreError`` elsewhere, such as from a separate run, only the tool fails.
    """

    __slots__ = ("_journal", "_stop", "run_id")

    def __init__(self, journal: AnyJournal, stop: BodyStop) -> None:
        self.run_id = journal.run_id
        self._journal = journal
        self._stop = stop

    @property
    def state(self) -> RunState:
        """The run's state."""
        return self._journal.state

    @property
    def may_drive(self) -> bool:
        """Whether this process takes the run's next step."""
        return self._journal.may_drive

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages up to the call."""
        return self._journal.history

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """See ``Journal.write``."""
        before = self._stop.before
        try:
            return await self._journal.write(decide if before is None else before(decide))
        except StoreError as error:
            self._stop.because(error)
            raise

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """``write`` for a thread."""
        before = self._stop.before
        try:
            return self._journal.commit(decide if before is None else before(decide))
        except StoreError as error:
            self._stop.because(error)
            raise
