"""The kernel of a web page (JupyterLite's, in Pyodide): replacements for the functions in ``kernel``.

This kernel has one thread with one event loop. While a cell runs, the page delays widget messages.
Therefore each card's comm also receives messages over a ``BroadcastChannel``, whose name nobody can guess.
Pyodide turns None into ``undefined``, and ``null`` into a special object. Therefore the comm sends JSON.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic_core import from_json

from nbagent.core.base.errors import UsageError
from nbagent.core.base.incoming_json import within_parts

from .wire import MAX_TEXT

T = TypeVar("T")


def found() -> Any | None:
    """The kernel, or None without a kernel, as in a script that Pyodide runs."""
    module = sys.modules.get("pyodide_kernel")
    return getattr(module, "kernel_instance", None)


def request() -> dict[str, Any]:
    """The message of the page that is handled now, or an empty dict."""
    kernel = found()
    parent: dict[str, Any] | None = None if kernel is None else kernel.get_parent()
    return parent or {}


def attended() -> bool:
    """Whether a front end can answer: a page's kernel always has its page."""
    return found() is not None


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The page's loop, or None outside of kernels."""
    return None if found() is None else asyncio.get_running_loop()


async def wait(
    future: asyncio.Future[T] | concurrent.futures.Future[T],
    *,
    on_kernel_interrupt: Callable[[], concurrent.futures.Future[None] | None] | None,  # noqa: ARG001 - a page cannot
) -> T:
    """Await a future in a cell; cancelling the cell does not cancel the future.

    Raises:
        BaseException: whatever the future raises.
    """
    if isinstance(future, concurrent.futures.Future):
        future = asyncio.wrap_future(future)
    return await asyncio.shield(future)


def pump(
    future: concurrent.futures.Future[T],
    *,
    on_kernel_interrupt: Callable[[], object] | None = None,  # noqa: ARG001 - as above
) -> T:
    """The result of a future.

    Raises:
        UsageError: the future is not done, and waiting would block the only thread.
    """
    if not future.done():
        raise UsageError(
            "A cell cannot block until a run ends here, because Python in a web page has no threads. Use `await run`"
        )
    return future.result()


@contextlib.contextmanager
def comms_pass() -> Iterator[None]:
    """Do nothing, because each card receives messages over its own channel."""
    yield


def show(parent: Mapping[str, Any], bundle: dict[str, Any]) -> None:
    """Add an output to the cell that sent this request, even if another cell runs now."""
    kernel = found()
    if kernel is None or not parent:
        return
    now, kernel._parent_header = kernel._parent_header, parent  # noqa: SLF001 - where it is kept
    try:
        kernel.interpreter.display_pub.publish(bundle, {}, transient={})
    finally:
        kernel._parent_header = now  # noqa: SLF001


def create_comm(**options: Any) -> Any:
    """A comm that also receives messages over a ``BroadcastChannel``."""
    import comm  # noqa: PLC0415 - a kernel has it

    original: Any = comm.create_comm
    if found() is None:
        return original(**options)
    if original not in _classes:
        _classes[original] = type("PageComm", (_PageComm, original), {})
    return _classes[original](**options)


_classes: dict[type, type] = {}
"""The classes that ``create_comm`` has made, by the kernel's comm class."""


class _PageComm:
    """Methods that override those of the kernel's comm class."""

    _channel: Any = None
    _receiver: Any = None

    def publish_msg(
        self: Any,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Send a message, in which None becomes ``null``."""
        from js import JSON  # noqa: PLC0415 - Pyodide's

        data = dict(data or {})
        if msg_type == "comm_close":
            if self._channel is not None:
                self._channel.close()
                self._receiver.destroy()
                self._channel = self._receiver = None
        elif "state" in data:
            data["state"] = {**data["state"], "channel": self._opened()}
        content = {"data": data, "comm_id": self.comm_id, **keys}
        shell = sys.modules["IPython"].get_ipython()
        parsed = JSON.parse(json.dumps(content))
        shell.send_comm(msg_type, parsed, metadata or {}, self.topic, buffers)

    def handle_msg(self: Any, msg: Any) -> None:
        """Receive a message of the page, in which ``null`` becomes None."""
        super().handle_msg(_with_none(msg))  # type: ignore[misc]

    def _opened(self: Any) -> str:
        """The name of the comm's channel, which is opened if necessary."""
        if self._channel is None:
            from js import BroadcastChannel  # noqa: PLC0415 - Pyodide's
            from pyodide.ffi import create_proxy  # noqa: PLC0415

            self._channel = BroadcastChannel.new(f"nbagent-{secrets.token_hex(16)}")
            self._receiver = create_proxy(self._on_channel_message)
            self._channel.onmessage = self._receiver
        name: str = self._channel.name
        return name

    def _on_channel_message(self: Any, event: Any) -> None:
        """Receive a message from the channel like a comm message of the page."""
        text = event.data
        if not isinstance(text, str) or len(text) > MAX_TEXT:  # not a message of nbagent's pages
            return
        try:
            # the recursion of the json module would crash Pyodide
            message = from_json(within_parts(text))
        except ValueError:
            return
        content = {"comm_id": self.comm_id, "data": {"method": "custom", "content": message}}
        super().handle_msg({"content": content, "buffers": []})  # type: ignore[misc]


def _with_none(value: Any) -> Any:
    """The value with None for each ``null``, which Pyodide passes as a JavaScript object."""
    from pyodide.ffi import jsnull  # noqa: PLC0415 - Pyodide's

    if value is jsnull:
        return None
    if isinstance(value, dict):
        return {key: _with_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_none(each) for each in value]
    return value
