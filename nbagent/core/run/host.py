"""The environment of runs: the only connection between the engine and a notebook or script."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from nbagent.core.base.errors import HumanInputRequired
from nbagent.core.call.threads import wait_for_one
from nbagent.core.hooks import hooks


class Host(Protocol):
    """The environment of a run: a script, or a notebook kernel."""

    def attended(self) -> bool:
        """Whether a person is there who can answer."""

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:
        """The event loop for a new run; None for the caller's running loop or the private loop."""

    def cell(self) -> tuple[str, str] | None:
        """The ids of the current cell and of its current execution; None if unknown."""

    def started(
        self, run: Any, *, on_rerun: str, is_opened: bool = False, only_looks: bool = False
    ) -> None:
        """Register a run that the current code has started, or opened from its store; ``only_looks`` by ``open_run``."""

    def show(self, run: Any) -> None:
        """Show a run in the output of the current code."""

    def display(self, run: Any) -> None:
        """Display a run that is the value of a cell's last line."""

    def value(self, run: Any) -> Any:
        """The object that represents a run in an environment that displays values itself."""

    def show_chat(self, chat: Any, *, talks: bool = False) -> None:
        """Show a chat in the output of the current code, once for each execution; ``talks``: a person asked for it."""

    def show_runs(self, listed: Any) -> bool:
        """Show a live list of a store's runs in the output of the current code.

        Returns False if that is not possible. Then the list displays itself without updates.
        """

    def show_batch(self, batch: Any) -> None:
        """Show a batch in the output of the current code."""

    def display_batch(self, batch: Any) -> None:
        """Display a batch that is the value of a cell's last line."""

    async def wait(self, run: Any, future: Future[Any]) -> None:
        """Wait inside a cell; forms can be used meanwhile. If the person stops the cell, the run is cancelled."""

    def wait_sync(self, run: Any, future: Future[Any], *, attended: bool) -> None:
        """Wait in synchronous code. If Ctrl+C stops the wait, ``Run.wait`` cancels the run."""

    def ask_rows(self, batch: Any, *, attended: bool) -> bool:
        """Ask the questions of a batch's rows at once; returns False if they are asked elsewhere, or stay open."""

    async def on_main(self, work: Callable[[], Any]) -> Any:
        """Call ``work`` on the main thread, for objects of the person's code, in the caller's context."""

    def marks_person(self) -> bool:
        """Mark the person's code from now on, because a model's code may run. Returns False if that is not possible."""

    def present(self, value: Any, /) -> dict[str, Any] | None:
        """A MIME bundle of a value that has a richer display than its JSON; None for other values."""

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:
        """Ask a person outside of any call, in a form in the output of the current code.

        Args:
            reply: the type of the answer.
            message: the question.
            link: a page that the person is asked to open.

        Raises:
            Rejected: the person cancels the form.
            HumanInputRequired: no person can answer here.
        """

    def signing_in(self) -> AbstractContextManager[object]:
        """Show meanwhile that the run of the current task waits until a person has signed in."""


class Place(NamedTuple):
    """The host and loop of a run, and whether a person is there."""

    host: Host
    attended: bool
    loop: asyncio.AbstractEventLoop | None = None
    """None for the caller's running loop, or for the private loop if no loop is running."""


class ScriptHost:
    """The host without a notebook: no person can answer, and a run uses its caller's event loop."""

    def attended(self) -> bool:
        """False: no person is there."""
        return False

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:  # noqa: ARG002 - Host
        """None: a run uses its caller's loop."""
        return None

    def cell(self) -> tuple[str, str] | None:
        """None: a script has no cells."""
        return None

    def started(
        self,
        run: Any,
        *,
        on_rerun: str,  # noqa: ARG002 - Host
        is_opened: bool = False,  # noqa: ARG002 - Host
        only_looks: bool = False,
    ) -> None:
        """Keep the run until it has ended, as the script may end before; in an interactive shell, follow it.

        A run that waits is not kept if the script only looks at it, nor a batch's own run.
        """
        if run.id not in started.of_batches and not (only_looks and run.status == "interrupted"):
            started.runs[run.id] = run
        started.threads.add(threading.current_thread())
        if len(started.runs) >= started.tidy_at:
            started.tidy()
        if (hasattr(sys, "ps1") or sys.flags.interactive) and is_interactive():
            hooks.follows_in_terminal(run)

    def show(self, run: Any) -> None:
        """Do nothing: a script shows no runs."""

    def display(self, run: Any) -> None:
        """Print the run."""
        print(repr(run))  # noqa: T201 - displayed outside of a notebook

    def value(self, run: Any) -> Any:
        """The run's text."""
        return repr(run)

    def show_chat(self, chat: Any, *, talks: bool = False) -> None:
        """Print the chat; if a script's person asked for it in a terminal, hold it there."""
        if talks and has_terminal() and not is_interactive():
            hooks.talks_in_terminal(chat)
        else:
            print(repr(chat))  # noqa: T201 - displayed outside of a notebook

    def show_runs(self, listed: Any) -> bool:  # noqa: ARG002 - Host
        """False: a script has no live display."""
        return False

    def show_batch(self, batch: Any) -> None:
        """Do nothing: a script shows no batches."""

    def display_batch(self, batch: Any) -> None:
        """Print the batch."""
        print(repr(batch))  # noqa: T201 - displayed outside of a notebook

    async def wait(self, run: Any, future: Future[Any]) -> None:
        """Wait for the future. If a person attends the run in this terminal, ask the questions that arise."""
        if run._session.attended and has_terminal():  # noqa: SLF001 - session_of imports this module
            await hooks.awaits_in_terminal(run, future)
        else:
            await asyncio.wrap_future(future)

    def wait_sync(self, run: Any, future: Future[Any], *, attended: bool) -> None:
        """Wait for the future. If a person is there, ask the questions that arise in the terminal."""
        if attended or is_interactive():
            hooks.asks_in_terminal(run, future)
        else:
            wait_for_one([future])

    def ask_rows(self, batch: Any, *, attended: bool) -> bool:
        """Ask the questions of a batch's rows in the terminal; returns False if there is none, or one stays open."""
        is_here = (attended or is_interactive()) and has_terminal()
        return is_here and bool(hooks.asks_rows_in_terminal(batch))

    async def on_main(self, work: Callable[[], Any]) -> Any:
        """Call ``work`` on the current thread, because a script's main thread accepts no work."""
        return work()

    def marks_person(self) -> bool:
        """True: the code that first used nbagent is marked."""
        return True

    def present(self, value: Any, /) -> dict[str, Any] | None:  # noqa: ARG002 - Host
        """None: a script displays only text."""
        return None

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:
        """Ask in the terminal; raises an error if there is none."""
        if not _is_terminal():
            raise HumanInputRequired("No person can answer here")
        return await hooks.asks_outside_in_terminal(reply, message, link)

    def signing_in(self) -> AbstractContextManager[object]:
        """Do nothing: a script shows no runs."""
        return nullcontext()


class Started:
    """The runs that this script started or opened, and that nothing has waited for; see ``nbagent.cli.script``."""

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        """The runs by id, in the order of their start: the unfinished ones, and the last that have ended."""
        self.threads: WeakSet[threading.Thread] = WeakSet()
        """The threads that started runs, and may still wait for them."""
        self.batches: dict[Any, None] = {}
        """The batches of this script that nothing has waited for: the unfinished ones, and the last that have ended."""
        self.of_batches: set[str] = set()
        """The ids of the batches' own runs, for which the batches stand."""
        self.alone: WeakSet[Any] = WeakSet()
        """The runs and batches that nobody is asked about, because ``attended=False`` was passed."""
        self.tidy_at = 2 * MAX_ENDED
        """The number of runs at which the older ended ones are forgotten."""

    def tidy(self) -> None:
        """Forget older runs that have ended."""
        ended = [one.id for one in list(self.runs.values()) if one.status not in UNFINISHED]
        for run_id in (*ended[:-MAX_ENDED], *list(self.runs)[:-MAX_KEPT]):
            self.runs.pop(run_id, None)
        self.tidy_at = 2 * max(MAX_ENDED, len(self.runs))

    def keep_batch(self, batch: Any) -> None:
        """Keep a batch, and forget older ones that have ended."""
        ended = [one for one in list(self.batches) if one.status not in UNFINISHED]
        for one in ended[:-MAX_ENDED]:
            self.batches.pop(one, None)
        self.batches[batch] = None

    def forget(self) -> None:
        """Forget everything, as it is named, or belongs to the parent of this fork."""
        self.runs.clear()
        self.threads.clear()
        self.batches.clear()


MAX_KEPT, MAX_ENDED = 1_000, 8
"""The latest runs that are kept for the script's end, and those among them that have ended."""
UNFINISHED = ("queued", "running", "interrupted", "starting", "waiting", "paused")
"""The status of a run or a batch that has not ended."""
started = Started()


def script_error() -> BaseException | None:
    """The error that has ended the script, or is ending this process of ``multiprocessing``."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None) or sys.exc_info()[1]
    return None if isinstance(error, SystemExit) else error


def _ended(*, is_last: bool) -> None:
    left = [*started.runs.values(), *started.batches]
    # to load more may change the exit code of Ctrl+C
    if (left and script_error() is None) or any(one.status in UNFINISHED for one in left):
        hooks.script_ended(is_last=is_last)


def _end_child(_: Any = None) -> None:
    """Have a process of ``multiprocessing`` end like a script, also if it calls no functions of ``atexit``."""
    if (util := sys.modules.get("multiprocessing.util")) is None:
        return
    util.register_after_fork(started, _end_child)  # a fork forgets what its parent has registered
    if util.process.parent_process() or hasattr(util.process.current_process(), "_inheriting"):
        util.Finalize(None, _ended, kwargs={"is_last": False}, exitpriority=sys.maxsize)


_end_child()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=started.forget)
    os.register_at_fork(after_in_child=_end_child)
with suppress(RuntimeError):  # the main module has ended already
    import concurrent.futures.thread  # noqa: F401 - what was registered first is called last

    # a function of atexit is called too late: by then no executor takes work, and so no client looks up a host
    getattr(threading, "_register_atexit", atexit.register)(partial(_ended, is_last=False))
atexit.register(_ended, is_last=True)  # what the threads of pools have started meanwhile


def has_terminal() -> bool:
    """Whether this thread can ask a person in a terminal: only the main thread, so that no two ask at once."""
    return threading.current_thread() is threading.main_thread() and _is_terminal()


def _is_terminal() -> bool:
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


def is_interactive() -> bool:
    """Whether a person types Python in a terminal, as in ``python -i`` or IPython, but not ``ipython script.py``."""
    is_typed = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    ipython = getattr(sys.modules.get("IPython.terminal.ipapp"), "TerminalIPythonApp", None)
    if ipython is not None and ipython.initialized():
        is_typed = ipython.instance().interact
    return is_typed and has_terminal()


_script = ScriptHost()


def current_host() -> Host:
    """The host of the current code."""
    found: Host | None = hooks.find_host()
    return _script if found is None else found


def is_there(host: Host, *, attended: bool | None) -> bool:
    """Whether a person is there, as passed or as the host detects."""
    return host.attended() if attended is None else attended


def is_attended(host: Host, *, attended: bool | None, answers: object, show: bool) -> bool:
    """Whether a person can answer. Unless ``attended`` was passed, nobody can if there are answers and no card."""
    is_headless = attended is None and answers is not None and not show
    return not is_headless and is_there(host, attended=attended)
