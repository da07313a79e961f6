"""The execution of a tool's function: in its thread or task, with its output captured."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from nbagent.core.base.controls import escaped
from nbagent.core.base.interrupts import Interrupt
from nbagent.core.base.messages import dumps
from nbagent.core.hooks import hooks
from nbagent.core.tools.call_output import CallOutput, current_call
from nbagent.core.tools.result_text import for_model
from nbagent.core.tools.tool import Tool, ToolResult

from .setup import CallTakenOver, OnMain
from .threads import run_in_thread

MAX_FRAMES = 8
"""Maximum number of traceback frames for an error, and for each of its causes."""
MAX_TEXT = 4_000
"""Maximum characters of a traceback; only the end of a longer traceback is stored."""
LOOK = 0.02
"""Seconds between checks whether an abandoned body has ended."""

_CORE = str(Path(__file__).parents[1])


class Raised(NamedTuple):
    """The value of a call whose tool raised an error: the traceback."""

    traceback: str

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """Make the traceback of an exception, without the engine's frames before the tool's."""
        first = error.__traceback__
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_CORE):
            first = first.tb_next
        formatted = traceback.TracebackException(
            type(error), error, first or error.__traceback__, limit=-MAX_FRAMES
        )
        text = escaped("".join(formatted.format()).strip())
        return cls(text if len(text) <= MAX_TEXT else f"…{text[-MAX_TEXT:]}")


logger = logging.getLogger("nbagent")


Place: TypeAlias = tuple[str, ...]
"""Run id, and the ids of the calls that lead to a call."""

_threads: WeakValueDictionary[Place, Body] = WeakValueDictionary()
"""The last body that each call ran in a thread, as long as something references the body, such as its thread."""


async def wait_for_earlier_body(place: Place) -> None:
    """Wait until an abandoned body of an earlier attempt at this call has ended."""
    earlier = _threads.get(place)
    while earlier is not None and earlier.is_running:  # noqa: ASYNC110 - it may be of another loop
        await asyncio.sleep(LOOK)


class Body:
    """One execution of a tool's function."""

    def __init__(
        self,
        tool: Tool[..., Any],
        output: CallOutput,
        place: Place,
        on_main: OnMain | None = None,
    ) -> None:
        self.is_running = False
        """Whether the function is still executing, also after the call has abandoned it."""
        self._tool = tool
        self._output = output
        self._place = place
        self._on_main = on_main
        self._thread: asyncio.Future[Any] | None = None
        """The future of the function's thread, until the result is read."""

    @property
    def has_unread_result(self) -> bool:
        """Whether the function started in a thread whose result has not been read; also while the thread runs."""
        return self._thread is not None

    async def wait_for_abandoned(self) -> Any:
        """Wait until an abandoned body has ended, and return or raise its outcome."""
        thread = self._thread
        assert thread is not None
        await asyncio.wait([thread])
        self._thread = None
        try:
            return await _awaited(thread.result())
        except CallTakenOver as error:
            raise RuntimeError(
                f"{self._tool.name!r} used ctx after its first try was cancelled"
            ) from error

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Run the function and return its value. The pieces of a generator are joined."""
        tool, fn = self._tool, self._tool.fn
        token = current_call.set(self._output)
        try:
            if tool.is_async or inspect.isasyncgenfunction(fn):
                return await self._async(fn, arguments)
            body = partial(self._sync, fn, arguments)
            if not tool.options.thread:
                return await _awaited(
                    body() if self._on_main is None else await self._on_main(body)
                )

            def keep_thread(thread: asyncio.Future[Any]) -> None:
                self.is_running, self._thread = True, thread
                _threads[self._place] = self

            try:
                value = await run_in_thread(body, keep_thread)
            except BaseException as error:
                thread = self._thread
                # if this task was cancelled, an outcome that has just arrived was not read
                if thread is not None and thread.done():
                    is_read = thread.cancelled() or thread.exception() is error
                    self.is_running, self._thread = False, None if is_read else thread
                raise
            self.is_running, self._thread = False, None
            return await _awaited(value)
        finally:
            current_call.reset(token)
            hooks.call_ended(self._output)

    async def _async(self, fn: Any, arguments: dict[str, Any]) -> Any:
        self.is_running = True
        try:
            if not inspect.isasyncgenfunction(fn):
                return await fn(**arguments)
            pieces = _Pieces(self._output)
            async with aclosing(fn(**arguments)) as stream:
                async for piece in stream:
                    pieces.add(piece)
            return pieces.whole()
        finally:
            self.is_running = False

    def _sync(self, fn: Any, arguments: dict[str, Any]) -> Any:
        self.is_running = True
        try:
            value = fn(**arguments)
            if not inspect.isgenerator(value):
                return value
            pieces = _Pieces(self._output)
            with closing(value):
                for piece in value:
                    pieces.add(piece)
            return pieces.whole()
        finally:
            self.is_running = False
            if self._output.closed:
                log_late(self._tool.name)


async def _awaited(value: Any) -> Any:
    """Return the value; an awaitable, which a plain function may return, is awaited first."""
    return await value if inspect.isawaitable(value) else value


class _Pieces:
    """The pieces of a streaming tool: each piece is reported when it arrives, and ``whole`` joins them at the end."""

    def __init__(self, output: CallOutput) -> None:
        self._output = output
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(value)
        if not isinstance(value, ToolResult):
            self._output.chunk(value if isinstance(value, str) else dumps(for_model(value)))

    def whole(self) -> Any:
        if self._values and isinstance(self._values[-1], ToolResult):
            return self._values[-1]
        if all(isinstance(v, str) for v in self._values):
            return "".join(self._values)
        return self._values


def log_late(tool_name: str) -> None:
    """Log that the result of a call came too late."""
    logger.warning("%r finished after its call had ended; its result was ignored", tool_name)


def log_failed(tool_name: str, traceback: str) -> None:
    """Log the traceback of a tool, but not in a call's output, which is stored and may be shared."""
    token = current_call.set(None)
    try:
        logger.info("the tool %r failed\n%s", tool_name, traceback)
    finally:
        current_call.reset(token)


def interrupt_in(error: BaseException) -> Interrupt | None:
    """The interrupt in an exception, its causes and contexts, or an exception group; None if there is none."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        current = stack.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Interrupt):
            return current
        stack += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            stack += current.exceptions
    return None
