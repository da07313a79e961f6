"""What attempts need of their run, and the signals that end an attempt without a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .events import Interrupted
from .middleware import Middleware
from .policy import Rule
from .standing import CallState
from .tools import Presenter, Tool


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


class Surroundings(NamedTuple):
    """What attempts need of their run."""

    tools: Mapping[str, Tool[..., Any]]
    """The registry itself, so that a tool defined again takes effect at once."""
    raise_errors: bool
    present: Presenter
    clock: Callable[[], float]
    new_id: Callable[[], str]
    inside: Callable[[CallState, Tool[..., Any], Any], Awaitable[Any]]
    """Drives the run inside a call whose tool is an agent; gives its answer, or raises ``Waits``."""
    policy: Sequence[Rule] = ()
    remembered: Sequence[Rule] = ()
    middleware: Sequence[Middleware] = ()
    scope: tuple[str, ...] = ()
    live: Callable[[], bool] = bool
    """Whether bodies wait at the line where they ask."""
    paused: Callable[[Interrupted], None] = _nobody
    """Told of every pause once it is stored."""


class Waits(BaseException):
    """The run inside a call waits for an answer, and so does the call."""


class Overtaken(BaseException):
    """The attempt is over while its body runs on: another process took the call, or it was stopped."""


class Denied(BaseException):
    """A rule refuses the call; no ``Exception``, so that no middleware takes it for a failure."""
