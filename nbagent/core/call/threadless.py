"""A replacement for threads in a web page, where Python has none: tools' bodies run on the page's loop.

Only ``threads`` uses this module, and only on that platform.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Never, TypeVar

from nbagent.core.base.errors import UsageError
from nbagent.core.tools.call_output import current_call
from nbagent.core.tools.middleware import Next, Timeout, ToolCall

T = TypeVar("T")

_timed: ContextVar[str] = ContextVar("nbagent_timed", default="")
"""The id of the call that a ``Timeout`` surrounds."""
_usual = Timeout.__call__


async def run_in_thread(
    fn: Callable[[], T], on_start: Callable[[asyncio.Future[T]], object] = lambda _: None
) -> T:
    """Run ``fn`` on this loop, with a copy of this task's context, and return its result.

    Raises:
        UsageError: ``fn`` is the body of a call with a ``Timeout``, which could not stop ``fn``.
    """
    output = current_call.get(None)
    if output is not None and output.call_id == _timed.get():
        raise UsageError(
            "Timeout cannot stop a `def` tool in a web page, because Python has no threads there. Write the tool with "
            "`async def`"
        )
    await asyncio.sleep(0)  # a card can show that the body starts
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    on_start(future)
    try:
        future.set_result(contextvars.copy_context().run(fn))
    except Exception as error:
        future.set_exception(error)
    except BaseException:
        future.cancel()
        raise
    return future.result()


def private_loop() -> Never:
    """Raise, because a private event loop needs a thread.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "background=True, run_sync(…) and run.wait() need threads, and Python in a web page has none. "
        "Use `await agent.run(…)`"
    )


async def timed(self: Timeout, call: ToolCall, next: Next) -> Any:  # noqa: A002 - the usual word
    """``Timeout.__call__``, which also stores the id of the call that it surrounds."""
    token = _timed.set(call.id)
    try:
        return await _usual(self, call, next)
    finally:
        _timed.reset(token)
