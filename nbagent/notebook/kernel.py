"""The kernel this code runs in: its loop, its cells, and waiting in a cell while forms still work.

The only module that touches a kernel's event loop or private names of ipykernel. Importing it
imports neither IPython nor ipykernel nor zmq.

How a form is answered while its cell runs: shell messages reach the main thread through one
``ZMQStream`` (the shell stream on ipykernel 6, the pair behind the shell channel thread on 7).
While a cell waits, a gate takes the place of that stream's callback: comm messages are handled at
once, in the context of the waiting cell, and all others are passed on in their order.
``wait`` leaves the reading to the loop; ``pump`` blocks the loop and reads by itself.

ipykernel 7.0 to 7.3 may stop receiving a front end's messages for good, and 7.0 refuses messages of threads;
the first access to the kernel here repairs that (``_patch_lost_requests``, ``_patch_thread_sends``).
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
from nbagent.core.call.threads import private_loop, raisable

T = TypeVar("T")

TICK = 0.2
"""Seconds between looks at whether the kernel was interrupted: a cell that awaits needs them."""

_COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})
_NATIVE = (7, 4)
"""The first ipykernel version in which comm messages pass a cell that awaits without help, if necessary.

The gate is used there too: messages that pass natively publish no busy and idle (7.4.0), so ipywidgets
holds back every change after a person's first.
"""


def in_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    return _kernel() is not None


def attended() -> bool:
    """Whether a front end that can answer is attached.

    False outside of kernels, and under nbclient, nbval and papermill, which cannot type either.
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


begun_in: set[str] = set()
"""The ids of the cells whose code has started a run in this kernel."""


def execution_key() -> str | None:
    """The key of one execution of a cell, or None if no cell started this code.

    Code that runs in a task or thread gets the key of the cell that started it, as far as
    ipykernel knows.
    """
    header = _request().get("header") or {}
    return header["msg_id"] if header.get("msg_type") == "execute_request" else None


class Cell:
    """The execution that the calling code belongs to, to show something in its output later."""

    def __init__(self) -> None:
        self._request = _request()

    def show(self, bundle: dict[str, Any]) -> None:
        """Add an output to it, whatever executes now; safe from any thread."""
        kernel = _kernel()
        if kernel is not None and self._request:
            content = {"data": bundle, "metadata": {}, "transient": {}}
            socket = _need(kernel, "iopub_socket")
            kernel.session.send(socket, "display_data", content, self._request, b"display_data")


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


unattended_loop: Callable[[], asyncio.AbstractEventLoop | None] = private_loop
"""The loop of runs that are not attended, so that cells may block."""


async def wait(
    future: asyncio.Future[T] | concurrent.futures.Future[T],
    *,
    on_kernel_interrupt: Callable[[], concurrent.futures.Future[None] | None] | None,
) -> T:
    """Await a future in a cell, with widget messages handled meanwhile.

    The future itself is never cancelled. When the cell is (the Stop button of Jupyter),
    ``on_kernel_interrupt`` is called, and the ``CancelledError`` is raised again when the future that it may
    return is done; None only stops waiting.
    An asyncio future must belong to the running loop; for one that doesn't, pass a concurrent one.

    Raises:
        UsageError: this ipykernel can't be waited in; the message names what is missing.
        BaseException: whatever the future raises.
    """
    if isinstance(future, concurrent.futures.Future):
        inner = asyncio.wrap_future(future)
        inner.add_done_callback(_retrieve)
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

    Off the kernel's main thread, and outside of kernels, this only blocks. On
    ``KeyboardInterrupt``, ``on_kernel_interrupt`` is called and the exception is raised again. The main
    loop is blocked meanwhile, so the future must not need it.

    Raises:
        UsageError: this ipykernel can't be waited in; the message names what is missing.
        BaseException: whatever the future raises.
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
    """Do this on the thread of the kernel's loop, between cells, or while one waits there; from any thread.

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
    """Take a comm's messages on the thread that the page sends them to, however busy the main thread is.

    From ipykernel 7.4 on they would go to the thread from which the comm last sent, which is the main thread.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, default: default  # noqa: SLF001 - where it is decided


@contextlib.contextmanager
def comms_pass() -> Iterator[None]:
    """Let comm messages pass the cell that is running, as far as it awaits or pumps.

    ``wait`` and ``pump`` do this by themselves. Hold it longer (while a form is open) and an answer
    also gets through while a cell awaits something else; without that, on ipykernel 7.0 to 7.3 with a
    front end that has no subshells, it would stay behind that cell even if the cell waits later.
    May be nested and overlap. Does nothing outside of kernels and off the kernel's main thread,
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
        if not _passes_natively():
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
    """The gate in the place of the callback of the stream that brings shell messages to the main thread.

    Used on that thread only, so it needs no lock.
    """

    _current: _Gate | None = None

    def __init__(self, kernel: Any, stream: Any) -> None:
        self._kernel = kernel
        self.stream = stream
        self._original: Callable[[list[Any]], object] | None = None
        self._contexts: list[Context] = []

    @classmethod
    def of(cls, kernel: Any) -> _Gate:
        """The one gate of a kernel."""
        stream = _shell_stream(kernel)
        if cls._current is None or cls._current.stream is not stream:
            cls._current = cls(kernel, stream)
        return cls._current

    def open(self, context: Context) -> None:
        """Let comm messages through, to be handled in the context of the waiting code."""
        self._contexts.append(context)
        if self._original is None:
            original = _need(self.stream, "_recv_callback")
            if original is None:
                raise _missing("the callback of the shell stream")
            self._original = original
            self.stream.on_recv(self._receive, copy=False)
        self._take_queued()

    def close(self, context: Context) -> None:
        """Stop, unless other code still waits."""
        self._contexts.remove(context)
        if not self._contexts and _need(self.stream, "_recv_callback") == self._receive:
            self.stream.on_recv(self._original, copy=False)
            self._original = None

    def _receive(self, frames: list[Any]) -> object:
        if self._contexts and self._is_comm(frames):
            self._contexts[-1].copy().run(self._handle, frames)
            return None
        assert self._original is not None  # set by open, before the stream knows this method
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
        """Run one comm handler; the cell stays the parent, so the handler's prints are shown."""
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
            # ipywidgets holds back further changes until it sees this idle.
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
        # The stream handles the last messages itself, and watches its socket again.
        stream.flush(zmq.POLLIN)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGINT raise here: in a cell that awaits, ipykernel leaves it to the loop we block."""
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
    """Keep ipykernel 7.0 to 7.3 from missing requests; done once, from any thread.

    They send replies on the very socket that a stream reads. Such a send uses up the wake-up of a
    request that arrives meanwhile, and neither that one nor any later one of that client is ever read.
    So the stream looks again after each; from 7.4 on replies go through the stream, which does.
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
    """Let threads send widget messages and displays on ipykernel 7.0; done once, from any thread.

    It has the current request only in context variables, so that every send of a thread
    that was started without the context of a cell (for example one that writes to a store) raises a
    ``LookupError``. From 7.1 on such a thread gets the request that was set last.
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
    """A context variable that has a value if its context has none: the one that was set last, in any context."""

    def __init__(self, variable: ContextVar[Any], default: Any) -> None:
        self._variable = variable
        self._last = variable.get(default)

    def get(self) -> Any:
        """This context's value, or the one that was set last."""
        return self._variable.get(self._last)

    def set(self, value: Any) -> Token[Any]:
        """Set it for this context, and for those without a value."""
        self._last = value
        return self._variable.set(value)


def _request() -> dict[str, Any]:
    """The shell request that is handled now, or an empty dict."""
    kernel = _kernel()
    found: dict[str, Any] | None = None if kernel is None else kernel.get_parent("shell")
    return found or {}


def _on_shell_thread(kernel: Any) -> bool:
    channel = getattr(kernel, "shell_channel_thread", None)
    # Named since ipykernel 7.1; before, it was always the main thread.
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


def _passes_natively() -> bool:
    ipykernel = sys.modules["ipykernel"]
    return tuple(ipykernel.version_info[:2]) >= _NATIVE


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


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve the outcome, so that asyncio doesn't complain when no code waits any longer."""
    if not future.cancelled():
        future.exception()


if sys.platform == "emscripten":  # a web page, whose kernel is another
    from . import page_kernel

    _kernel, _request, attended = page_kernel.found, page_kernel.request, page_kernel.attended
    kernel_loop = unattended_loop = page_kernel.kernel_loop
    wait, pump, comms_pass = page_kernel.wait, page_kernel.pump, page_kernel.comms_pass
    create_comm = page_kernel.create_comm
    Cell.show = lambda self, bundle: page_kernel.show(self._request, bundle)
