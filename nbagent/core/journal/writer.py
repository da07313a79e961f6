"""The threads in which writes wait for a store, and the futures of such writes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
LINGER = 0.1
"""Seconds that a thread waits for another write, since starting a thread costs more than many writes."""


class Written:
    """The outcome of a write, for a coroutine that waits on its event loop: a future with a tenth of the cost."""

    __slots__ = ("_error", "_loop", "_value", "ended")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done after the write. Cancelling it, as the end of its task does, does not cancel the write."""
        self._value: Any = None
        self._error: BaseException | None = None

    def outcome(self) -> Any:
        """Return what the write returned, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any) -> None:
        """Note what the write returned; on any thread."""
        self._value = value
        if here.wakes is None:
            _wake(self._loop, [self.ended])
        else:
            here.wakes.append((self._loop, self.ended))

    def set_exception(self, error: BaseException) -> None:
        """Note the error of the write; on any thread."""
        self._error = error
        self.set_result(None)


class _Here(threading.local):
    """What a thread does after its part of a group's writes."""

    wakes: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] | None = None
    """The futures to set together, with their loops, because each wake of a loop costs a system call. None outside of
    a group."""
    postponed: tuple[Callable[[], None], ...] = ()
    """Work for which the system had no thread. It is done after the group, in which no work may wait for a turn."""


here = _Here()


def do_postponed() -> None:
    """Do what this thread could not start in others, after a group."""
    postponed, here.postponed = here.postponed, ()
    for work in postponed:
        work()


@contextmanager
def in_group() -> Iterator[None]:
    """Join the wakes of this block, in which this thread must not wait."""
    here.wakes = []
    try:
        yield
    finally:
        joined, here.wakes = here.wakes, None
        for loop, ended in groupby(joined, itemgetter(0)):
            _wake(loop, [each for _, each in ended])


def _wake(loop: asyncio.AbstractEventLoop, ended: Sequence[asyncio.Future[None]]) -> None:
    def set_all() -> None:
        for each in ended:
            if not each.done():
                each.set_result(None)

    with suppress(RuntimeError):  # the loop is closed, and its tasks ended with it
        loop.call_soon_threadsafe(set_all)


def in_thread(work: Callable[[], None]) -> None:
    """Do the work in a thread, if possible one that has just written. The interpreter ends only after that thread."""
    try:
        idle = _idle.pop()
    except IndexError:
        own: SimpleQueue[Callable[[], None]] = SimpleQueue()
        own.put(work)  # an argument would stay in memory with its thread
        try:
            threading.Thread(target=_write, args=(own,), name="nbagent-write").start()
        except RuntimeError:  # threads are not available, as in a web page
            if here.wakes is not None:
                here.postponed += (work,)
            else:
                try:
                    loop = asyncio.get_running_loop()
                except RuntimeError:
                    work()
                else:
                    loop.call_soon(work)
    else:
        idle.put(work)


def _write(own: SimpleQueue[Callable[[], None]]) -> None:
    """Do the writes of one journal, then of other journals if they come within ``LINGER``."""
    work = own.get()
    while True:
        work()
        del work  # else the journal stays in memory
        _idle.append(own)
        try:
            work = own.get(timeout=LINGER)
        except Empty:
            try:
                _idle.remove(own)
            except ValueError:  # in_thread took the queue and puts work into it
                work = own.get()
            else:
                return


_idle: list[SimpleQueue[Callable[[], None]]] = []
"""The queues of the threads that have just written and wait for more work."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
