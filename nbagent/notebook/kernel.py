"""The kernel of this process: its event loop, its cells, and waiting in a cell while forms still work.

This is the only module that uses a kernel's event loop or private names of ipykernel. Importing it
imports neither IPython nor ipykernel nor zmq.

A form can be answered while its cell runs. Shell messages reach the main thread through one
``ZMQStream`` (ipykernel 6: the shell stream; 7: the socket pair behind the shell channel thread).
While a cell waits, a gate replaces that stream's callback. The gate handles comm messages at
once, in the context of the waiting cell, and passes all other messages on in their order.
In ``wait``, the event loop reads the stream; ``pump`` blocks the loop and reads the stream itself.

ipykernel 7.0 to 7.3 may stop reading a front end's messages for good, and 7.0 cannot send messages from threads.
The first access to the kernel repairs both (``_patch_lost_requests``, ``_patch_thread_sends``).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, Token, copy_context
from typing import Any, TypeVar

from nbagent.core.base.errors import UsageError
from nbagent.core.base.origin import of_person
from nbagent.core.call.threads import private_loop, raisable

T = TypeVar("T")

TICK = 0.2
"""Seconds between checks for a kernel interrupt, without which a waiting cell would not notice it."""

_COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})
_NATIVE = (7, 4)
"""The first ipykernel version that handles comm messages during a cell's ``await`` without the gate.

The gate is used in this version too, if possible. Without the gate, 7.4.0 publishes no busy and idle status for these
messages, so ipywidgets delays every change after a person's first change.
"""


def in_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    return _kernel() is not None


def attended() -> bool:
    """Whether a front end that can answer is attached.

    False outside of kernels, and under nbclient, nbval and papermill, where nobody can type.
    """
    kernel = _kernel()
    return kernel is not None and bool(_need(kernel, "_allow_stdin"))


def variables() -> dict[str, Any]:
    """The variables of the notebook, by name; empty outside of kernels."""
    if _kernel() is None:
        return {}
    shell = sys.modules["IPython"].get_ipython()
    hidden = shell.user_ns_hidden
    return {
        name: value
        for name, value in list(shell.user_ns.items())
        if not name.startswith("_") and name not in hidden
    }


def cell_id() -> str | None:
    """The id of the cell that is executing, if the front end sends it."""
    found = _request().get("metadata", {}).get("cellId")
    return found if isinstance(found, str) else None


cells_with_runs: set[str] = set()
"""The ids of the cells whose code has started a run in this kernel."""


def execution_key() -> str | None:
    """The key of one execution of a cell, or None if no cell started this code.

    Code in a task or thread gets the key of the cell that started the task or thread, if
    ipykernel provides it.
    """
    header = _request().get("header") or {}
    return header["msg_id"] if header.get("msg_type") == "execute_request" else None


class Cell:
    """The cell execution of the calling code, to which outputs can be added later."""

    def __init__(self) -> None:
        self._request = _request()

    def show(self, bundle: dict[str, Any]) -> None:
        """Add an output to the execution, even if another cell runs now; safe from any thread."""
        self._publish("display_data", bundle, {})

    def update(self, display_id: str, bundle: dict[str, Any]) -> None:
        """Replace the content of a display of the execution; safe from any thread.

        VS Code ignores updates that name another cell, or a message of a page, as their cause. A kernel in a web
        page has no socket, and names none.
        """
        if self._request and sys.platform != "emscripten":
            self._publish("update_display_data", bundle, {"display_id": display_id})
        else:
            from IPython.display import update_display  # noqa: PLC0415 - a kernel has it by now

            update_display(bundle, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]

    def _publish(self, kind: str, bundle: dict[str, Any], transient: dict[str, str]) -> None:
        kernel = _kernel()
        if kernel is not None and self._request:
            content = {"data": bundle, "metadata": {}, "transient": transient}
            socket = _need(kernel, "iopub_socket")
            kernel.session.send(socket, kind, content, self._request, kind.encode())


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that cells await on, or None outside of kernels.

    From any other thread (a subshell, a tool) use only its ``call_soon_threadsafe``.

    Raises:
        UsageError: this ipykernel has its loop in an unknown place.
    """
    kernel = _kernel()
    if kernel is None:
        return None
    loop: asyncio.AbstractEventLoop = _need(_need(kernel, "io_loop"), "asyncio_loop")
    return loop


def mark_requests() -> bool:
    """Mark cells and widget messages as the person's code from now on; returns False if this kernel has another form."""
    handlers = getattr(_kernel(), "shell_handlers", None)
    if not isinstance(handlers, dict):
        return False
    for kind in ("execute_request", *_COMMS):
        handlers[kind] = of_person(handlers[kind])
    return True


unattended_loop: Callable[[], asyncio.AbstractEventLoop | None] = private_loop
"""The loop of runs that are not attended, so that cells may block."""


async def wait(
    future: asyncio.Future[T] | concurrent.futures.Future[T],
    *,
    on_kernel_interrupt: Callable[[], concurrent.futures.Future[None] | None] | None,
) -> T:
    """Await a future in a cell, with widget messages handled meanwhile.

    The future itself is never cancelled. If the cell is cancelled (Jupyter's stop button),
    ``on_kernel_interrupt`` is called. If the call returns a future, that future is awaited. Then the
    ``CancelledError`` is raised again. Without ``on_kernel_interrupt``, only the wait ends.
    An asyncio future must belong to the running loop; for a future of another loop, pass a concurrent future.

    Raises:
        UsageError: this ipykernel does not support waiting in a cell; the message names the missing part.
    """
    if isinstance(future, concurrent.futures.Future):
        inner = asyncio.wrap_future(future)
        # retrieve the outcome, so that asyncio logs no warning if no code waits for it any longer
        inner.add_done_callback(lambda done: done.cancelled() or done.exception())
    else:
        inner = future
    with comms_pass():
        try:
            while not inner.done():
                await asyncio.wait((inner,), timeout=TICK)
        except (asyncio.CancelledError, KeyboardInterrupt):
            stopped = on_kernel_interrupt() if on_kernel_interrupt is not None else None
            if stopped is not None:
                await asyncio.wait((asyncio.wrap_future(stopped),))
            raise
    return inner.result()


def pump(
    future: concurrent.futures.Future[T], *, on_kernel_interrupt: Callable[[], object] | None = None
) -> T:
    """Block until a future of another thread is done, with widget messages handled meanwhile.

    Off the kernel's main thread, and outside of kernels, this function only blocks. On
    ``KeyboardInterrupt``, ``on_kernel_interrupt`` is called and the exception is raised again. The main
    loop is blocked meanwhile, so the future must not need that loop.

    Raises:
        UsageError: this ipykernel does not support waiting in a cell; the message names the missing part.
    """
    kernel = _kernel()
    try:
        if kernel is not None and _on_shell_thread(kernel):
            _pump(kernel, future)
        while not future.done():
            concurrent.futures.wait((future,), timeout=TICK)
    except KeyboardInterrupt:
        if on_kernel_interrupt is not None:
            on_kernel_interrupt()
        raise
    return future.result()


def create_comm(**options: Any) -> Any:
    """A comm of one of nbagent's widgets."""
    import comm  # noqa: PLC0415 - a kernel has it

    return comm.create_comm(**options)


def on_main(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Run ``work`` on the thread of the kernel's loop, between cells or while a cell waits; callable on any thread.

    Raises:
        UsageError: this is not a kernel.
    """
    loop = kernel_loop()
    if loop is None:
        raise UsageError(
            "Only a Jupyter kernel can run a function on the main thread, and this process is not a kernel"
        )
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    _errands.append((future, work))
    loop.call_soon_threadsafe(_run_errands)
    return future


_errands: deque[tuple[concurrent.futures.Future[Any], Callable[[], Any]]] = deque()
"""Work for the main thread, in order."""


def _run_errands() -> None:
    while _errands:
        future, work = _errands.popleft()
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = work()
        except BaseException as error:  # the stop button, too, ends only this work
            future.set_exception(raisable(error))
        else:
            future.set_result(result)


def receive_off_main(comm: Any) -> None:
    """Receive a comm's messages on the subshell that the page uses, even if the main thread is busy.

    From ipykernel 7.4 on, they would otherwise go to the thread that last sent with the comm: the main thread.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, default: default  # noqa: SLF001 - where it is decided


@contextlib.contextmanager
def comms_pass() -> Iterator[None]:
    """Handle comm messages before the end of the running cell, whenever the cell awaits or pumps.

    ``wait`` and ``pump`` enter this context by themselves. Code that enters this context for as long as a form
    is open also receives answers while a cell awaits something else. Otherwise, on ipykernel 7.0 to 7.3 with a front
    end without subshells, an answer would stay queued behind that cell, even if the cell later calls ``wait``.
    Contexts may be nested and overlap. They do nothing outside of kernels and off the kernel's main thread,
    where nothing blocks messages.

    Raises:
        UsageError: this ipykernel has its messages in an unknown place.
    """
    kernel = _kernel()
    if kernel is None or not _on_shell_thread(kernel):
        yield
        return
    try:
        gate = _Gate.of(kernel)
    except UsageError:
        if tuple(sys.modules["ipykernel"].version_info[:2]) < _NATIVE:
            raise
        yield
        return
    context = copy_context()
    gate.open(context)
    try:
        yield
    finally:
        gate.close(context)


class _Gate:
    """The replacement for the callback of the stream that brings shell messages to the main thread.

    The gate is used on the main thread only, so it needs no lock.
    """

    _current: _Gate | None = None

    def __init__(self, kernel: Any, stream: Any) -> None:
        self._kernel = kernel
        self.stream = stream
        self._original: Callable[[list[Any]], object] | None = None
        self._contexts: list[Context] = []

    @classmethod
    def of(cls, kernel: Any) -> _Gate:
        """The only gate of a kernel."""
        stream = _shell_stream(kernel)
        if cls._current is None or cls._current.stream is not stream:
            cls._current = cls(kernel, stream)
        return cls._current

    def open(self, context: Context) -> None:
        """Handle comm messages from now on, in the context of the waiting code."""
        self._contexts.append(context)
        if self._original is None:
            original = _need(self.stream, "_recv_callback")
            if original is None:
                raise _missing("the callback of the shell stream")
            self._original = original
            self.stream.on_recv(self._receive, copy=False)
        self._take_queued()

    def close(self, context: Context) -> None:
        """Restore the stream's own callback, unless other code still waits."""
        self._contexts.remove(context)
        if not self._contexts and _need(self.stream, "_recv_callback") == self._receive:
            self.stream.on_recv(self._original, copy=False)
            self._original = None

    def _receive(self, frames: list[Any]) -> object:
        if self._contexts and self._is_comm(frames):
            self._contexts[-1].copy().run(self._handle, frames)
            return None
        assert self._original is not None  # set by open, before the stream calls this method
        return self._original(frames)

    def _take_queued(self) -> None:
        """Handle the messages that ipykernel 6 had already queued behind the cell when the gate opened."""
        queue = getattr(self._kernel, "msg_queue", None)
        if queue is None:
            return
        items = [queue.get_nowait() for _ in range(queue.qsize())]
        comm_items = [item for item in items if item[2] and self._is_comm(item[2][0])]
        for item in items:
            if item not in comm_items:
                queue.put_nowait(item)
        for item in comm_items:
            self._receive(item[2][0])

    def _is_comm(self, frames: Any) -> bool:
        if not isinstance(frames, list) or len(frames) < 2:
            return False
        session = self._kernel.session
        try:
            _, rest = session.feed_identities(frames, copy=False)
            header = session.deserialize(rest, content=False, copy=False)["header"]
        except (ValueError, TypeError, KeyError):
            return False  # ipykernel itself reports a malformed message
        return header.get("msg_type") in _COMMS

    def _handle(self, frames: list[Any]) -> None:
        """Run one comm handler; the cell's request stays the parent, so the handler's prints are shown."""
        kernel = self._kernel
        idents, rest = kernel.session.feed_identities(frames, copy=False)
        message = kernel.session.deserialize(rest, content=True, copy=False)
        handler = kernel.shell_handlers[message["header"]["msg_type"]]
        publish = _need(kernel, "_publish_status")
        publish("busy", "shell", parent=message)
        try:
            handler(self.stream, idents, message)
        except Exception:  # as ipykernel does: one widget's mistake must not end the cell
            kernel.log.exception("Exception in message handler:")
        finally:
            # ipywidgets delays further changes until it receives this idle status.
            publish("idle", "shell", parent=message)


def _pump(kernel: Any, future: concurrent.futures.Future[Any]) -> None:
    import zmq  # noqa: PLC0415  only a kernel has it

    stream = _shell_stream(kernel)
    try:
        with comms_pass(), _interruptible(), _bell(future) as bell:
            poller = zmq.Poller()
            poller.register(stream.socket, zmq.POLLIN)
            poller.register(bell, zmq.POLLIN)
            while not future.done():
                _run_errands()
                poller.poll(int(TICK * 1000))
                stream.flush(zmq.POLLIN)
    finally:
        # Let the stream handle the last messages itself, and watch its socket again.
        stream.flush(zmq.POLLIN)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGINT raise ``KeyboardInterrupt``; in an awaiting cell, ipykernel uses the loop, which is blocked here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


@contextlib.contextmanager
def _bell(future: concurrent.futures.Future[Any]) -> Iterator[socket.socket]:
    """A socket that becomes readable when the future is done."""
    ours, theirs = socket.socketpair()

    def ring(_: object) -> None:
        with contextlib.suppress(OSError):  # closed: nobody polls any more
            theirs.send(b"!")

    with ours, theirs:
        future.add_done_callback(ring)
        yield ours


def _kernel() -> Any | None:
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    kernel = getattr(ipython.get_ipython(), "kernel", None)
    if kernel is not None:
        _patch_lost_requests(kernel)
        _patch_thread_sends(kernel)
    return kernel


def _patch_lost_requests(kernel: Any) -> None:
    """Patch ipykernel 7.0 to 7.3 so that it misses no requests; done once, from any thread.

    These versions send replies on the very socket that a stream reads. Such a send uses up the wake-up of a
    request that arrives meanwhile. Neither that request nor any later request of that client is then read.
    With the patch, the stream checks the socket after each send. From 7.4 on, replies go through the stream, which
    checks by itself.
    """
    stream: Any = getattr(kernel, "shell_stream", None)
    channel: Any = getattr(kernel, "shell_channel_thread", None)
    manager: Any = getattr(channel, "manager", None)
    parts = ("_shell_socket", "_send_on_shell_channel", "_main_to_shell_channel", "_cache")
    if stream is None or not all(hasattr(manager, each) for each in parts):
        return
    if "_send_on_shell_channel" in vars(manager):
        return
    original = manager._send_on_shell_channel  # noqa: SLF001 - where ipykernel keeps it

    def send(frames: list[Any]) -> None:
        original(frames)
        stream._update_handler(stream._state)  # noqa: SLF001 - pyzmq's own way to look again

    def replace() -> None:
        subshells = (each.subshell_to_shell_channel for each in manager._cache.values())  # noqa: SLF001
        for pair in (manager._main_to_shell_channel, *subshells):  # noqa: SLF001
            pair.on_recv(channel.io_loop, send)

    manager._send_on_shell_channel = send  # noqa: SLF001 - for the subshells to come
    channel.io_loop.add_callback(replace)  # streams belong to the thread of their loop


def _patch_thread_sends(kernel: Any) -> None:
    """Patch ipykernel 7.0 so that threads can send widget messages and displays; done once, from any thread.

    ipykernel 7.0 has the current request only in context variables. In a thread without the context of a cell
    (such as a thread that writes to a store), every send raises a ``LookupError``. From 7.1 on, such a thread gets
    the request that was set last.
    """
    shell = getattr(kernel, "shell", None)
    parts = ((kernel, "_shell_parent"), (kernel, "_shell_parent_ident"))
    if hasattr(kernel, "_get_shell_context_var"):
        return
    displays = (getattr(shell, name, None) for name in ("display_pub", "displayhook"))
    for owner, name in (*parts, *((display, "_parent_header") for display in displays)):
        variable = getattr(owner, name, None)
        if isinstance(variable, ContextVar):
            setattr(owner, name, _LastKnown(variable, b"" if name.endswith("ident") else {}))


class _LastKnown:
    """A context variable whose fallback is the value that was set last, in any context."""

    def __init__(self, variable: ContextVar[Any], default: Any) -> None:
        self._variable = variable
        self._last = variable.get(default)

    def get(self) -> Any:
        """This context's value, or the value that was set last in any context."""
        return self._variable.get(self._last)

    def set(self, value: Any) -> Token[Any]:
        """Set the value for this context, and for all contexts without a value."""
        self._last = value
        return self._variable.set(value)


def _request() -> dict[str, Any]:
    """The shell request that is handled now, or an empty dict."""
    kernel = _kernel()
    found: dict[str, Any] | None = None if kernel is None else kernel.get_parent("shell")
    return found or {}


def _on_shell_thread(kernel: Any) -> bool:
    channel = getattr(kernel, "shell_channel_thread", None)
    # parent_thread exists since ipykernel 7.1; before, it was always the main thread.
    return threading.current_thread() is getattr(channel, "parent_thread", threading.main_thread())


def _shell_stream(kernel: Any) -> Any:
    channel = getattr(kernel, "shell_channel_thread", None)
    if channel is None:
        stream = _need(kernel, "shell_stream")
    else:
        stream = _need(_need(_need(channel, "manager"), "_shell_channel_to_main"), "to_stream")
    if stream is None:
        raise _missing("a shell stream")
    return stream


def _need(owner: Any, name: str) -> Any:
    """An attribute that ipykernel, tornado or pyzmq may rename."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _missing(f"{type(owner).__name__}.{name}") from None


def _missing(name: str) -> UsageError:
    version = getattr(sys.modules.get("ipykernel"), "__version__", "?")
    return UsageError(
        f"ipykernel {version} has no {name}, which is needed to wait inside a cell. Start the run with `run = "
        "agent.run(...)` and let the cell end, or install ipykernel 7.4."
    )


if sys.platform == "emscripten":  # in a web page, page_kernel is used
    from . import page_kernel

    _kernel, _request, attended = page_kernel.found, page_kernel.request, page_kernel.attended
    kernel_loop = unattended_loop = page_kernel.kernel_loop
    wait, pump, comms_pass = page_kernel.wait, page_kernel.pump, page_kernel.comms_pass
    create_comm = page_kernel.create_comm
    Cell.show = lambda self, bundle: page_kernel.show(self._request, bundle)
