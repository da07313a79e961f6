"""A chat: a thread of runs, each of which continues the conversation of the previous one.

The runs of a thread have the ids ``ID.1``, ``ID.2`` and so on. The thread is its newest run and the earlier runs that
are found by following ``after``. An edited message starts a new branch, whose run has the next id and so is the newest.
Nothing else about a branch is stored. The follow-up messages of a single run are a thread with the id of the run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Never

from nbagent.core.base.awaited import awaited

from .base.controls import escaped
from .base.errors import Conflict, StoreError, UsageError
from .base.events import RunQueued, RunStarted, StoredEvent
from .base.messages import Message
from .call.threads import is_private
from .journal.journal import Journal
from .journal.memory import MemoryStore
from .journal.store import Store
from .run.host import current_host
from .run.result import Result
from .run.run import Run, document, session_of
from .run.run_ids import MAX_ID, checked_id
from .run.scripted_answers import Answers
from .run.start import Options, follow_stored, launch_apart
from .tools.attachments import Prompt
from .tools.kept_history import keep
from .tools.spec import RunSpec, new_id

logger = logging.getLogger("nbagent")

MAX_RUNS = 1_000
"""Maximum number of stored runs that are loaded when a thread is opened: the newest ones."""

MAX_CHAT_ID = MAX_ID - 10
"""Maximum characters of a chat's id; its runs' ids have a number too."""
MAX_GAP = 100
"""Maximum number of deleted runs in a row; a run with a higher number is not of the thread, such as ``march.2026``."""


class Thread:
    """The runs of a chat, and the listeners for new ones. Safe to use from several threads."""

    def __init__(
        self, spec: Callable[[], RunSpec], options: Options, store: Store, thread_id: str | None
    ) -> None:
        self.spec = spec
        """The agent's current settings."""
        self.options = options
        self.store = store
        self.id = new_id() if thread_id is None else checked_id(thread_id, "a chat's", MAX_CHAT_ID)
        self.is_named = thread_id is not None
        self.starters: tuple[str, ...] = ()
        """First messages that the empty card offers."""
        self.count = 0
        """The number of the newest run under this id, in all branches."""
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self.runs: tuple[Run, ...] = () if options.after is None else (options.after,)
        if self.is_named:
            self.reopen()

    @property
    def open_run(self) -> Run | None:
        """The newest run, if it is running or waiting; None if it has ended."""
        last = self.runs[-1] if self.runs else None
        return last if last is not None and is_active(last) else None

    def send(self, prompt: Prompt, answers: Answers = None, *, blocking: bool = False) -> Run:
        """Send a message: in the newest run if it has not ended, otherwise in a new run."""
        with self._lock:
            last = self.runs[-1] if self.runs else None
            return self._start_run(self.runs, last, prompt, answers, blocking=blocking)

    def edit(self, run: Run, prompt: Prompt, answers: Answers = None) -> Run:
        """Replace the prompt of a run.

        Raises:
            UsageError: the run is not one of this thread's current runs.
        """
        with self._lock:
            if run not in self.runs:
                raise UsageError(f"{run!r} is not a run of this chat. See chat.runs for its runs")
            before, last = self.runs[: self.runs.index(run)], self.open_run
            new_run = self._start_run(before, before[-1] if before else None, prompt, answers)
            if last is not None:
                session, started = session_of(last), session_of(new_run).when_started

                def stop(stored: Future[Any] | None = None) -> None:
                    if stored is None or stored.exception() is None:
                        session.stop(by="code")

                if started is None:
                    stop()
                else:  # a new run that cannot be stored replaces nothing
                    started.add_done_callback(stop)
            return new_run

    def shorten(self) -> None:
        """Send the newest run, which failed, again with a shorter history; later runs begin with what it could send.

        Raises:
            UsageError, StoreError: as ``Run.retry``.
        """
        with self._lock:
            spec, history = self.spec, keep()
            self.runs[-1].retry(history=history)
            self.spec = lambda: replace(spec(), history=history)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener``, on any thread, after the runs have changed."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling ``listener``."""
        with self._lock:
            self._listeners.remove(listener)

    def _start_run(
        self,
        before: tuple[Run, ...],
        after: Run | None,
        prompt: Prompt,
        answers: Answers,
        *,
        blocking: bool = False,
    ) -> Run:
        options = replace(
            self.options,
            after=after,
            pending="queue",
            store=self.store,
            id=f"{self.id}.{self.count + 1}",
            is_new=True,
            answers=self.options.answers if answers is None else answers,
            send_again=partial(self.send, prompt, answers, blocking=blocking),
            # a cell that runs again continues a named chat
            on_rerun="keep" if self.is_named else "cancel",
        )
        try:
            run = launch_apart(self.spec(), prompt, options, blocking=blocking)
        except Conflict as error:
            raise Conflict(
                f"The chat {self.id!r} was continued elsewhere (run {options.id!r}). Open it again with agent.chat(id={self.id!r})"
            ) from error
        if run is not after:
            earlier, self.runs = self.runs, (*before, run)
            self.count += 1
            session = session_of(run)
            if session.when_started is not None:
                undo = partial(session.call_soon, partial(self._undo, self.runs, earlier))
                session.when_started.add_done_callback(lambda done: done.exception() and undo())
        self._notify()
        return run

    def _undo(self, runs: tuple[Run, ...], earlier: tuple[Run, ...]) -> None:
        """Replace these runs by the earlier ones, because the first event of the last run could not be stored."""
        with self._lock:
            if self.runs == runs:
                self.runs = earlier
                self.count -= 1
        logger.warning(
            "a message of the chat %r was not stored; its run raises the reason", self.id
        )
        self._notify()

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def reopen(self) -> None:
        """Load the stored runs of this thread: the newest run and those that it continues."""
        known_runs = {run.id: run for run in self.runs}
        existing_ids = set(self.store.run_ids())
        for number in sorted(_number(each, self.id) for each in existing_ids):
            if number > self.count + MAX_GAP:
                break
            self.count = max(self.count, number)
        run_id: str | None = f"{self.id}.{self.count}" if self.count else None
        found: list[str] = []
        while run_id in existing_ids and run_id not in found and len(found) < MAX_RUNS:
            found.append(run_id)
            if run_id in known_runs:
                break
            run_id = _after(self.store.read(run_id)[0])
        options = replace(self.options, store=self.store, after=None)
        runs: list[Run] = []
        for each in reversed(found):  # oldest first: each history continues the previous one
            if each in known_runs:
                runs.append(known_runs[each])
                continue
            journal = Journal(each, self.store)
            journal.catch_up()
            runs.append(follow_stored(self.spec(), journal, options))
        self.runs = tuple(runs) or self.runs


class Chat:
    """A conversation with an agent: a sequence of runs in one card with a message box.

    Made by ``agent.chat``.
    """

    __slots__ = ("__weakref__", "_thread")

    def __init__(self, thread: Thread | None = None, **_options: object) -> None:
        if not isinstance(thread, Thread):
            raise UsageError(
                "Only an agent can create a chat: use agent.chat(), or agent.chat(id=…) to open an existing one"
            )
        self._thread = thread

    @property
    def id(self) -> str:
        """The name of the chat in its store."""
        return self._thread.id

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first, without those that an edited message replaced."""
        return self._thread.runs

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return self.runs[-1].messages if self.runs else ()

    def send(self, prompt: Prompt, *, answers: Answers = None) -> Run:
        """Send a message, like the card's box. Await the run for its result.

        If a run is running or waiting for an answer, the message is sent in that run after the results of its
        open calls, and that run is returned.

        Args:
            prompt: as in ``agent.run``.
            answers: as in ``agent.run``; those of ``agent.chat`` by default.
        """
        return self._thread.send(prompt, answers)

    def send_sync(self, prompt: Prompt, *, answers: Answers = None) -> Result:
        """Send a message and wait for the result, in synchronous code."""
        return self._thread.send(prompt, answers, blocking=True).wait()

    def edit(self, run: Run, prompt: Prompt, *, answers: Answers = None) -> Run:
        """Replace the prompt of a run and continue from there.

        The run and all later runs leave the chat, and are stopped if they have not ended. They stay in the
        store.

        Args:
            run: one of ``chat.runs``.
            prompt: as in ``agent.run``.
            answers: as in ``agent.run``; those of ``agent.chat`` by default.

        Raises:
            UsageError: the run is not one of this chat.
        """
        return self._thread.edit(run, prompt, answers)

    @awaited("chat.stop")
    async def stop(self) -> None:
        """Cancel the current run, if any. The chat can continue."""
        run = self._thread.open_run
        if run is not None:
            await run.cancel()

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the chat in its current state as one page, like ``run.to_html``.

        Args:
            path: a file where the returned text is also written, as UTF-8.
        """
        return document(self, "html", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the chat in its current state as Markdown, like ``run.to_markdown``.

        Args:
            path: a file where the returned text is also written, as UTF-8.
        """
        return document(self, "markdown", path)

    def to_notebook(self, path: str | Path | None = None) -> str:
        """Return the chat in its current state as a notebook, like ``run.to_notebook``.

        Args:
            path: a file where the returned text is also written, as UTF-8.
        """
        return document(self, "notebook", path)

    def view(self) -> None:
        """Show the chat in the output of the current cell; in a script's terminal, hold it there until an empty line."""
        current_host().show_chat(self, talks=True)

    def __repr__(self) -> str:
        runs = self.runs
        count = "1 message" if len(runs) == 1 else f"{len(runs)} messages"
        status = f", {runs[-1].status}" if runs else ""
        return escaped(f"<Chat with {self._thread.spec().agent}: {count}{status}>")

    def _ipython_display_(self) -> None:
        current_host().show_chat(self)


def _not_awaitable(_chat: Chat) -> Never:
    """Raise an error that says what to await instead."""
    raise TypeError("A chat cannot be awaited. Use `run = chat.send(…)`, then `await run`")


Chat.__await__ = _not_awaitable  # type: ignore[attr-defined]  # type checkers know that it is not awaitable


def thread_of(chat: Chat) -> Thread:
    """The thread of a chat, for the engine and the notebook."""
    return chat._thread  # noqa: SLF001 - the only access to it, so that `dir(chat)` is for people


def thread_after(run: Run) -> Thread:
    """The thread of follow-up messages after a run of an agent. It uses the settings of the run.

    The thread has the run's id, unless a chat already has that id. It includes earlier follow-up messages, also those
    that other processes sent.
    """
    session = session_of(run)
    is_apart = session.attended and is_private(session.loop)
    options = Options(after=run, attended=session.attended, show=False, background=is_apart)
    thread = Thread(lambda: session.spec, options, session.journal.store or MemoryStore(), None)
    if is_active(run):
        thread.id = run.id
        return thread
    try:
        first = thread.store.read(f"{run.id}.1")[0]
    except UsageError:  # there is no follow-up message yet
        thread.id = run.id
    except StoreError as error:
        logger.warning("the follow-up messages of run %s could not be loaded: %s", run.id, error)
    else:
        if _after(first) == run.id:  # otherwise a chat has that id
            thread.id = run.id
            thread.reopen()
    return thread


def _number(run_id: str, thread_id: str) -> int:
    """The number of a run in a thread; 0 for another run."""
    number = run_id[len(thread_id) + 1 :] if run_id.startswith(f"{thread_id}.") else ""
    is_number = number.isascii() and number.isdecimal() and not number.startswith("0")
    return int(number) if is_number else 0


def _after(first: StoredEvent) -> str | None:
    """The id of the run that a run with this first event continues."""
    return first.after if isinstance(first, RunStarted | RunQueued) else None


def is_active(run: Run) -> bool:
    """Whether the run has not ended."""
    return run.status not in ("completed", "failed", "cancelled")


def checked_starters(starters: object) -> tuple[str, ...]:
    """The ``starters=`` of a chat.

    Raises:
        UsageError: they are not a list of strings with text.
    """
    given = starters if isinstance(starters, list | tuple) else [None]
    if not all(isinstance(each, str) and each.strip() for each in given):
        raise UsageError(f"starters must be a list of first messages, got {starters!r:.80}")
    return tuple(given)


def named_tools(thread: Thread) -> Sequence[tuple[str, str]]:
    """The agent's current tools: name and one-line description."""
    tools = thread.spec().tools
    return [
        (name, next(iter(tool.description.strip().splitlines()), ""))
        for name, tool in list(tools.items())
    ]
