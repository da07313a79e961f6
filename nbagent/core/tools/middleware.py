"""Middleware around tool calls, and the ready-made ones.

A middleware is an async callable ``(call, next)``. It may read the call, change its input, skip ``next``, or
replace the result. An interrupt passes through middleware, because it is not an ``Exception``. Even if a
middleware catches the interrupt, the call stays paused. The gate comes after all middleware, right before the
body, so no middleware can run a denied call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Never, Protocol, TypeAlias, TypeVar

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import Rejected, as_shown
from nbagent.core.base.interrupts import Interrupt, Resumed, value_as
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import Json

T = TypeVar("T")
logger = logging.getLogger("nbagent")


@dataclass(slots=True)
class ToolCall:
    """A call, as middleware receives it. ``input`` may be replaced by a value of the same type."""

    id: str
    tool_name: str
    input: Any
    """The validated input: attributes by name."""
    resumed: Resumed | None = None
    """The data of a restart after a pause of middleware, or, without one, of the tool. None the first time."""
    approved: Resumed | None = None
    """The data of a person's approval, if a rule or ``approval=`` asked for one."""
    original_input: Json = None
    state: Json = None
    context: Any = None
    """The ``context=`` of the run."""
    waited: Callable[[], float] = float
    """Seconds that the call has waited for a person, up to now."""
    may_repeat: Callable[[], bool] = bool
    """True if calling ``next`` again is safe: the tool is declared idempotent, or no body has started."""
    still_runs: Callable[[], bool] = bool
    """True if an abandoned body still runs in its thread; another ``next`` then returns its result."""

    def interrupt(
        self,
        metadata: Any = None,
        *,
        state: Any = None,
        editable: bool | Sequence[str] | None = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Never:
        """Pause the call, as the tool itself could; see ``ToolContext.interrupt``."""
        raise Interrupt(
            metadata, state=state, editable=editable, expires_in=expires_in, on_expire=on_expire
        )

    def resumed_as(self, type_: type[T]) -> T | None:
        """The data of a restart, as ``type_``; None if there is none or it has another shape."""
        return None if self.resumed is None else value_as(self.resumed.data, type_)


Next: TypeAlias = Callable[[ToolCall], Awaitable[Any]]


class Middleware(Protocol):
    """The type of a middleware: an async callable around tool calls."""

    async def __call__(self, call: ToolCall, next: Next, /) -> Any:  # noqa: A002 - the usual word
        """Return the call's result: the result of ``next``, or another value."""


def chain(middleware: Sequence[Middleware], innermost: Next) -> Next:
    """The middleware around ``innermost``, the first one outermost."""
    wrapped = innermost
    for one in reversed(middleware):
        wrapped = _around(one, wrapped)
    return wrapped


def _around(one: Middleware, inner: Next) -> Next:
    async def call(call: ToolCall) -> Any:
        return await one(call, inner)

    return call


class ToolErrorsToText:
    """Returns a failing tool's error to the model as text, whatever ``on_tool_error`` is."""

    async def __call__(self, call: ToolCall, next: Next) -> Any:  # noqa: A002 - the usual word
        """Return the result, or the error as text."""
        try:
            return await next(call)
        except Exception as error:
            return f"The tool {call.tool_name} failed: {as_shown(error)}"


class Retry:
    """Runs a failed tool again, if that is safe. A pause or a rejection is not a failure.

    A body that has started may have had an effect. Such a body runs again only if its tool is declared with
    ``@agent.tool(idempotent=True)``. A failure before the body starts is retried for any tool.

    Args:
        times: maximum number of tries, including the first.
        on: the exceptions that are worth another try.
        delay: seconds before the second try; doubled for each further one.
    """

    @checks_keywords("nb.Retry")
    def __init__(
        self,
        times: int = 3,
        *,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
        delay: float = 0.0,
    ) -> None:
        if isinstance(times, bool) or not hasattr(times, "__index__") or times < 1:
            raise ValueError(f"Retry(times=…) must be an integer of at least 1, got {times!r:.80}")
        kinds: tuple[Any, ...] = on if isinstance(on, tuple) else (on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise ValueError(
                f"Retry(on=…) must be an exception class or a tuple of them, such as OSError, got {on!r:.80}"
            )
        self._times, self._on = times, on
        self._delay = checked_amount("Retry(delay=…)", delay)
        self._noted_tools: set[str] = set()
        """The names of tools for which a warning was logged, because they do not run again."""

    async def __call__(self, call: ToolCall, next: Next) -> Any:  # noqa: A002 - the usual word
        """Return the result of the first try without an error."""
        delay = self._delay
        for tries_left in range(self._times - 1, -1, -1):
            try:
                return await next(call)
            except Rejected:
                raise
            except self._on as error:
                if not tries_left:
                    raise
                if not call.may_repeat():
                    self._note_not_repeated(call.tool_name, error)
                    raise
            await asyncio.sleep(delay)
            delay *= 2
        raise AssertionError  # the last try returned or raised

    def _note_not_repeated(self, name: str, error: Exception) -> None:
        note = (
            f"Retry does not run the tool {name!r} again, because it had started and may have had an effect. If a "
            "second run is safe, declare the tool with @agent.tool(idempotent=True)"
        )
        error.add_note(note)
        if name not in self._noted_tools:
            self._noted_tools.add(name)
            logger.warning(note)


class Timeout:
    """Stops waiting for a tool that takes too long. The tool's thread may continue; a late result is ignored.

    Args:
        seconds: the maximum duration. Waiting for a person does not count.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = checked_amount("Timeout(seconds)", seconds)

    async def __call__(self, call: ToolCall, next: Next) -> Any:  # noqa: A002 - the usual word
        """Return the result.

        Raises:
            TimeoutError: the call took longer than ``seconds``.
        """
        timer = asyncio.timeout(None)
        try:
            async with timer:
                watch = _Watch(timer, call, self._seconds)
                try:
                    return await next(call)
                finally:
                    watch.stop()
        except TimeoutError as error:
            if not timer.expired():
                raise
            message = f"The tool {call.tool_name!r} took longer than {self._seconds} s"
            if call.still_runs():
                message += (
                    ". It cannot be stopped and is still running. It may or may not take effect"
                )
            elif not call.may_repeat():
                message += (
                    ". It was stopped after it had started. It may or may not have taken effect"
                )
            raise TimeoutError(message) from error


class _Watch:
    """Expires a timer after ``seconds``. Time that the call waited for a person does not count."""

    def __init__(self, timer: asyncio.Timeout, call: ToolCall, seconds: float) -> None:
        self._timer, self._call, self._seconds = timer, call, seconds
        self._loop = asyncio.get_running_loop()
        self._began, self._waited = self._loop.time(), call.waited()
        self._handle = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        left = self._seconds - (now - self._began) + self._call.waited() - self._waited
        if left <= 0:
            self._timer.reschedule(now)
        else:  # at most 20 checks a second, even if very little time is left
            self._handle = self._loop.call_later(max(left, 0.05), self._look)

    def stop(self) -> None:
        self._handle.cancel()
