"""The run's part of a call, and the reasons that can stop a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

from nbagent.core.base.errors import Misuse, StoreError
from nbagent.core.base.events import Interrupted, StoredEvent, ToolStarted
from nbagent.core.base.interrupts import Asker, Interrupt
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Message
from nbagent.core.journal.journal import AnyJournal, Decide
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Presenter, Tool


def _nobody(*_told: Any) -> None:
    return None


OnMain: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


class Hooks(NamedTuple):
    """Callbacks about a run's state and for its display."""

    paused: Callable[[Interrupted], None] = _nobody
    """Of every pause once it is stored."""
    idle: Callable[[], None] = _nobody
    """Called when only an answer can continue the run, while a body waits inside its code."""
    present: Presenter = _nobody
    """Makes of a result what is shown of it, where that is richer than text."""
    on_main: OnMain | None = None
    """Does the work of bodies with ``thread=False`` where it belongs; None does it on the run's loop."""


class BodyRuns(Protocol):
    """The agent runs and tool calls that one body starts; they belong to its call."""

    async def call(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """The result of a tool that the body calls."""

    def call_sync(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """``call`` in a thread."""

    async def end(self) -> None:
        """The body has returned: wait for what it started and did not wait for."""

    def close(self) -> None:
        """The body is over, and so is what it started."""


current_runs: ContextVar[Any] = ContextVar("nbagent_current_runs", default=None)
"""The ``BodyRuns`` of the body that runs now, in its thread or task; None outside of one."""


class CallSetup(NamedTuple):
    """The setup that all calls of one run share."""

    spec: RunSpec
    scope: tuple[str, ...]
    """The calls that lead to the run."""
    bodies_wait: Callable[[], bool]
    """Whether bodies wait at the line where they ask."""
    run_inner: Callable[[CallState, Tool[..., Any], Any], Awaitable[Any]]
    """Drives the inner run of an agent tool; returns its answer or raises ``SubrunWaits``."""
    runs: Callable[[ToolStarted, Tool[..., Any], Stop, bool], BodyRuns]
    """Makes the ``BodyRuns`` of a call; the last argument says whether middleware retries it."""
    has_room: Callable[[int], bool]
    """Whether the run and its outer runs may have so many more open questions."""
    file_room: Callable[[], int]
    """Bytes of files that may still be added to the run's history."""
    hooks: Hooks = Hooks()


started_by_bodies: WeakValueDictionary[str, Tool[..., Any]] = WeakValueDictionary()
"""The tools of what bodies in this process have started, by call id: agents as tools, among them."""


class SubrunWaits(BaseException):
    """The run inside a call waits for an answer, and so does the call."""


class CallTakenOver(BaseException):
    """The attempt is over while its body runs on: another process took the call, or it was stopped."""


class CallDenied(BaseException):
    """A rule refuses the call; no ``Exception``, so that no middleware takes it for a failure."""


class Pause(NamedTuple):
    """The call waits for an answer."""

    asker: Asker
    interrupt: Interrupt


StopReason: TypeAlias = Pause | Misuse | StoreError | SubrunWaits | CallTakenOver | CallDenied


class Stop:
    """The reason that stopped a call: the first one counts, whatever the tool or middleware does."""

    __slots__ = ("asked", "reason")

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.asked: list[Interrupted] = []
        """The questions of ``ctx.ask`` that are written down with a pause."""

    def because(self, reason: StopReason) -> None:
        """Stop, unless something else has stopped the call before."""
        if self.reason is None:
            self.reason = reason

    def check(self) -> None:
        """Raise what stopped the call, if something has."""
        if self.reason is not None:
            raise self.reason.interrupt if isinstance(self.reason, Pause) else self.reason


def is_mine(state: RunState, started: ToolStarted) -> bool:
    """Whether the body that was started so still is the one that runs its call."""
    call = state.calls.get(started.call_id)
    if call is None or call.status == "done" or state.outcome is not None:
        return False
    return (call.owner, call.attempt) == (started.owner, started.attempt)


def going_on(state: RunState, started: ToolStarted, now: float) -> list[ToolStarted]:
    """The event of a body that continues after its call waited for an answer.

    Raises:
        CallTakenOver: another process has taken the call over.
    """
    if not is_mine(state, started):
        raise CallTakenOver
    is_ready = state.calls[started.call_id].status == "ready"
    return [replace(started, at=now)] if is_ready else []


class CallJournal:
    """The run's journal as one call writes to it: a write that fails stops the call.

    A ``StoreError`` that the tool got elsewhere, such as from a run of its own, is its own failure.
    """

    __slots__ = ("_journal", "_stop", "run_id")

    def __init__(self, journal: AnyJournal, stop: Stop) -> None:
        self.run_id = journal.run_id
        self._journal = journal
        self._stop = stop

    @property
    def state(self) -> RunState:
        """The run's state."""
        return self._journal.state

    @property
    def is_driven_here(self) -> bool:
        """Whether the run's next step is this process's to take."""
        return self._journal.is_driven_here

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages up to the call."""
        return self._journal.history

    @property
    def remembered(self) -> Sequence[Remembered]:
        """Remembered approvals of the outermost run, which apply to inner runs too."""
        return self._journal.remembered

    async def write(self, decide: Decide) -> Sequence[StoredEvent]:
        """See ``Journal.write``."""
        try:
            return await self._journal.write(decide)
        except StoreError as error:
            self._stop.because(error)
            raise

    def commit(self, decide: Decide) -> Sequence[StoredEvent]:
        """The same for a thread."""
        try:
            return self._journal.commit(decide)
        except StoreError as error:
            self._stop.because(error)
            raise
