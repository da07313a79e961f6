"""nbagent's threads: one for each running sync tool, and one with an event loop for runs that have no other loop.

``asyncio.to_thread`` is not used: its pool is small, shared with all code, and joined at exit, so that one tool that
hangs would block the exit of the process.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import inspect
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize, ref

from nbagent.core.base.process import fork_safe

T = TypeVar("T")
logger = logging.getLogger("nbagent")

MAX_THREADS = 64
"""Maximum number of sync tools that run at the same time for one loop; further ones wait."""
CLOSING_SECONDS = 1.0
"""Maximum seconds that the exit of the process waits for connections to close; a blocked loop never closes them."""
REACTION = 0.5
"""Seconds after which a loop that does nothing counts as blocked."""
INTERRUPT_CHECK = 0.1
"""Seconds between two looks at whether Ctrl+C was pressed while ``asyncio.run`` handles it."""

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
in_slot: ContextVar[bool] = ContextVar("nbagent_in_slot", default=False)
"""Whether the current code is a sync tool in one of these threads, which uses one of ``MAX_THREADS`` slots."""
_numbers = itertools.count(1)
_runners: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[asyncio.Runner]] = WeakKeyDictionary()
"""The ``asyncio.Runner`` of each loop, once it was found."""
_private: list[asyncio.AbstractEventLoop] = []
_private_lock = fork_safe(threading.Lock())


async def run_in_thread(
    fn: Callable[[], T], on_start: Callable[[asyncio.Future[T]], object] = lambda _: None
) -> T:
    """Run ``fn`` in its own thread, with a copy of this task's context, and return its value.

    If the task is cancelled, the thread continues. Its result is in the future that ``on_start`` received.
    """
    loop = asyncio.get_running_loop()
    async with _slots.setdefault(loop, asyncio.Semaphore(MAX_THREADS)):
        future: asyncio.Future[T] = loop.create_future()
        # else Python warns about an error that nobody awaits
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        on_start(future)
        context = contextvars.copy_context()
        context.run(in_slot.set, True)  # noqa: FBT003 - a ContextVar's own
        work = partial(_work, partial(context.run, fn), loop, future)
        thread = threading.Thread(target=work, name=f"nbagent-tool-{next(_numbers)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system cannot start more threads
            future.cancel()
            raise
        await asyncio.wait([future])  # if cancelled, this does not cancel the future
        return future.result()


@asynccontextmanager
async def without_slot(loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
    """Release the slot of a thread that waits for a person, so that another thread can run."""
    slot = _slots[loop]
    slot.release()
    try:
        yield
    finally:
        await slot.acquire()


def _work(fn: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        deliver = partial(_set, future.set_result, fn())
    except BaseException as error:
        deliver = partial(_set, future.set_exception, raisable(error))
    try:
        loop.call_soon_threadsafe(deliver, future)
    except RuntimeError:  # the loop is closed, so nothing waits for the value
        return


def _set(put: Callable[[Any], None], value: Any, future: asyncio.Future[Any]) -> None:
    if not future.done():
        put(value)


class ThreadStopped(RuntimeError):
    """A tool in a thread raised ``StopIteration``, ``SystemExit`` or a similar error that a future cannot hold."""


def raisable(error: BaseException) -> BaseException:
    """The error; a ``ThreadStopped`` if a future cannot hold the error."""
    if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        stopped = ThreadStopped(f"The tool raised {type(error).__name__}: {error}")
        stopped.__cause__ = error
        return stopped
    return error


def private_loop() -> asyncio.AbstractEventLoop:
    """The event loop for runs that have no other loop, on a daemon thread; started when first used."""
    with _private_lock:
        if not _private:
            loop = asyncio.new_event_loop()
            work = partial(_run_for_ever, loop)
            thread = threading.Thread(target=work, name="nbagent-loop", daemon=True)
            _private.append(loop)
            thread.start()
            # the loop ends before the stores are closed: functions registered last are called first
            finalize(loop, bool).atexit = False
            atexit.register(_end_private_loop, loop, thread)
        return _private[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_private.clear)  # its thread does not exist in a fork


def is_private(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the private loop."""
    return loop in _private


def is_blocked(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop of another thread does not react, because a body keeps its thread; later runs use another loop."""
    reacted: concurrent.futures.Future[None] = concurrent.futures.Future()
    loop.call_soon_threadsafe(reacted.set_result, None)
    has_reacted = bool(concurrent.futures.wait([reacted], REACTION).done)
    if not has_reacted and is_private(loop):
        _private.clear()
    return not has_reacted


def _end_private_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stop the loop, after its async generators and so the connections of models are closed.

    If a task is still running, the generators stay open: for its run, the process ends as if it was killed. Nothing
    is stopped in a forked process, which has the loop but not its thread.
    """
    ended: concurrent.futures.Future[None] = concurrent.futures.Future()
    held: list[asyncio.Task[None]] = []  # a loop has only weak references to its tasks

    async def close() -> None:
        try:
            if asyncio.all_tasks() == {asyncio.current_task()}:
                await loop.shutdown_asyncgens()
        finally:
            ended.set_result(None)

    if thread.is_alive() and not is_blocked(loop):
        loop.call_soon_threadsafe(lambda: held.append(loop.create_task(close())))
        concurrent.futures.wait([ended], CLOSING_SECONDS)
        _private.clear()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSING_SECONDS)
        if not thread.is_alive():
            for task in asyncio.all_tasks(loop):  # else asyncio prints that each was destroyed
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio's own waits do
                coroutine: Any = task.get_coro()
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                    coroutine.close()  # else Python prints that it was never awaited
            loop.close()


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop, also after a task's error has stopped it, because other runs use the loop too."""
    while is_private(loop):
        try:
            loop.run_forever()
        except BaseException:
            logger.exception(
                "A task on nbagent's event loop raised an error that would have stopped the loop"
            )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wait_for_one(
    futures: Sequence[concurrent.futures.Future[Any]], or_when: Callable[[], bool] = bool
) -> None:
    """Block this thread until one of the futures is done, or ``or_when()`` is true.

    Raises:
        KeyboardInterrupt: Ctrl+C has ended the main thread's ``asyncio.run``, which may wait for this thread.
    """
    is_stopped = keyboard_interrupt_check()
    only_futures_count = is_stopped is bool and or_when is bool
    pause = None if only_futures_count else INTERRUPT_CHECK
    while not is_stopped():
        done = concurrent.futures.wait(futures, pause, concurrent.futures.FIRST_COMPLETED).done
        if done or or_when():
            return
    raise KeyboardInterrupt


def keyboard_interrupt_check() -> Callable[[], bool]:
    """Return a function that checks whether Ctrl+C has ended the ``asyncio.run`` of this thread's loop.

    A thread without a loop checks that of the main thread. ``asyncio.run`` cancels all tasks at Ctrl+C, as at any
    other end. Only a private attribute shows the reason.
    """
    loop = running_loop()
    known = None if loop is None else _runners.get(loop)
    runner: Any = None if known is None else known()
    if runner is None:
        # slow: it formats the handler, and so the main task
        handler = signal.getsignal(signal.SIGINT)
        runner = getattr(getattr(handler, "func", None), "__self__", None)
        if not isinstance(runner, asyncio.Runner) or loop not in (None, runner.get_loop()):
            return bool
        _runners[runner.get_loop()] = ref(runner)
    return lambda: getattr(runner, "_interrupt_count", 0) > 0


if sys.platform == "emscripten":  # a web page: Python has no threads there
    from . import threadless

    run_in_thread, private_loop = threadless.run_in_thread, threadless.private_loop
    threadless.Timeout.__call__ = threadless.timed
