"""Threads, pools and processes that a tool starts: their output belongs to the tool's call too.

A thread, and work that is submitted to a pool, gets the call of the code that started it, and nothing else of its
context. A process gets a pipe for each stream that it would inherit.
"""

from __future__ import annotations

import codecs
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal
from weakref import WeakKeyDictionary

from nbagent.core.tools.call_output import CallOutput, current_call

from .libraries import Undo, replaced

DRAIN_SECONDS = 1.0
"""Maximum seconds that ``wait`` waits for the output of a process that has ended; its own children may go on."""
_POSITIONS = ("args", "bufsize", "executable", "stdin", "stdout", "stderr")
_STREAMS: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")

Take = Callable[[CallOutput, Literal["stdout", "stderr"], str], object]
"""Adds text of a stream to a call, or to the usual place if the call has ended."""


def adapt(take: Take) -> list[Undo]:
    """Start capturing; returns the functions that undo it."""
    return [_adapt_threads(), _adapt_pools(), *_adapt_processes(take)]


def _within(output: CallOutput, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    token = current_call.set(output)
    try:
        return function(*args, **kwargs)
    finally:
        current_call.reset(token)


def _adapt_threads() -> Undo:
    start = threading.Thread.start

    def start_in_call(thread: threading.Thread) -> None:
        output = current_call.get()
        # nbagent's own threads have a context; a pool's threads outlive the call that happened to start them
        is_own = thread.name.startswith(("nbagent", "ThreadPoolExecutor-"))
        if output is not None and not is_own:
            run = thread.run
            thread.run = lambda: _within(output, run)  # type: ignore[method-assign]  # of this thread alone
        start(thread)

    return replaced(threading.Thread, "start", start_in_call)


def _adapt_pools() -> Undo:
    submit = ThreadPoolExecutor.submit

    def submit_in_call(
        pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        output = current_call.get()
        if output is None:
            return submit(pool, fn, *args, **kwargs)
        return submit(pool, _within, output, fn, *args, **kwargs)

    return replaced(ThreadPoolExecutor, "submit", submit_in_call)


def _adapt_processes(take: Take) -> list[Undo]:
    start, wait = subprocess.Popen.__init__, subprocess.Popen.wait
    readers: WeakKeyDictionary[subprocess.Popen[Any], list[threading.Thread]] = WeakKeyDictionary()

    def started(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        output = current_call.get()
        given = {**dict(zip(_POSITIONS, args, strict=False)), **kwargs}
        inherited = [name for name in _STREAMS if given.get(name) is None]
        if (
            output is None
            or not output.takes_prints
            or not inherited
            or len(args) > len(_POSITIONS)
        ):
            start(process, *args, **kwargs)
            return
        pipes = {name: os.pipe() for name in inherited}
        try:
            start(process, **given | {name: write for name, (_, write) in pipes.items()})
        except BaseException:
            for read, _ in pipes.values():
                os.close(read)
            raise
        finally:
            for _, write in pipes.values():
                os.close(write)
        readers[process] = [_reader(take, output, name, pipes[name][0]) for name in inherited]

    def waited(process: subprocess.Popen[Any], timeout: float | None = None) -> int:
        code = wait(process, timeout)
        for reader in readers.pop(process, ()):
            reader.join(DRAIN_SECONDS)
        return code

    return [
        replaced(subprocess.Popen, "__init__", started),
        replaced(subprocess.Popen, "wait", waited),
    ]


def _reader(
    take: Take, output: CallOutput, name: Literal["stdout", "stderr"], pipe: int
) -> threading.Thread:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        with open(pipe, "rb", buffering=0) as stream:
            while data := stream.read(65_536):
                take(output, name, decoder.decode(data))

    thread = threading.Thread(target=read, name=f"nbagent-{name}", daemon=True)
    thread.start()
    return thread
