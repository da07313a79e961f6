"""What attempts need of their run, and the signals that end an attempt without a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nbagent.core.base.errors import StoreError
from nbagent.core.base.events import Interrupted, StoredEvent
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.middleware import Middleware
from nbagent.core.tools.policy import Rule
from nbagent.core.tools.tool import Presenter, Tool


class Writes:
    """Keeps that a write failed, whatever the tool's own ``except`` makes of that.

    A ``StoreError`` that the tool got elsewhere, such as from a run of its own, is its own failure.
    """

    def __init__(self, journal: AnyJournal) -> None:
        self.failure: StoreError | None = None
        """Why this attempt cannot be gone on with."""
        self._journal = journal

    @property
    def state(self) -> RunState:
        """The journal's."""
        return self._journal.state

    def commit(self, decide: Callable[[RunState], Sequence[StoredEvent]]) -> Sequence[StoredEvent]:
        """See ``Journal.commit``."""
        try:
            return self._journal.commit(decide)
        except StoreError as error:
            self.failure = error
            raise


def _nobody(*_told: Any) -> None:
    return None


class Hooks(NamedTuple):
    """Who is told how a run stands, and shows what it gives."""

    paused: Callable[[Interrupted], None] = _nobody
    """Of every pause once it is stored."""
    idle: Callable[[], None] = _nobody
    """When nothing can go on without an answer, while a body waits at its line."""
    present: Presenter = _nobody
    """Makes of a result what is shown of it, where that is richer than text."""


class CallSetup(NamedTuple):
    """What attempts need of their run."""

    tools: Mapping[str, Tool[..., Any]]
    """The registry itself, so that a tool defined again takes effect at once."""
    raise_errors: bool
    present: Presenter
    clock: Callable[[], float]
    new_id: Callable[[], str]
    inside: Callable[[CallState, Tool[..., Any], Any], Awaitable[Any]]
    """Drives the run inside a call whose tool is an agent; gives its answer, or raises ``SubrunWaits``."""
    policy: Sequence[Rule] = ()
    remembered: Sequence[Rule] = ()
    middleware: Sequence[Middleware] = ()
    scope: tuple[str, ...] = ()
    live: Callable[[], bool] = bool
    """Whether bodies wait at the line where they ask."""
    paused: Callable[[Interrupted], None] = _nobody
    """Told of every pause once it is stored."""


class SubrunWaits(BaseException):
    """The run inside a call waits for an answer, and so does the call."""


class CallTakenOver(BaseException):
    """The attempt is over while its body runs on: another process took the call, or it was stopped."""


class CallDenied(BaseException):
    """A rule refuses the call; no ``Exception``, so that no middleware takes it for a failure."""
