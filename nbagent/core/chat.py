"""A chat: a thread of runs, each of which goes on with the conversation of the one before.

A thread is found by the ids of its runs, ``ID.1``, ``ID.2`` and so on: its newest run and, from
``after`` to ``after``, those before it. A message that is said anew begins another branch, which is
the newest then; nothing else is stored of it. What is asked on after a run that is shown by itself
is the thread of that run's id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Never

from nbagent.core.base.awaited import awaited

from .base.controls import escaped
from .base.errors import Conflict, StoreError, UsageError
from .base.events import RunQueued, RunStarted, StoredEvent
from .base.messages import Message
from .call.threads import is_private
from .journal.journal import Journal, Store
from .journal.memory import MemoryStore
from .run.host import current_host
from .run.named import checked_id
from .run.result import Result
from .run.run import Run, document, session_of
from .run.scripted_answers import Answers
from .run.start import Options, launch_apart, take_up
from .tools.files import Prompt
from .tools.spec import RunSpec, new_id

logger = logging.getLogger("nbagent")

MAX_RUNS = 1_000
"""Runs of a thread that are opened again: the newest."""


@dataclass(frozen=True, slots=True)
class Runs:
    """What a thread asks of its agent."""

    spec: Callable[[], RunSpec]
    start: Callable[[Prompt, Options, bool], Run]
    """Starts a run; the flag says that the caller's thread waits for it."""
    take_up: Callable[[Journal, Options], Run]


class Thread:
    """The runs of a chat, and who is told when there is another one. Safe to use from several threads."""

    def __init__(self, runs: Runs, options: Options, store: Store, thread_id: str | None) -> None:
        self.agent = runs
        self.options = options
        self.store = store
        self.id = new_id() if thread_id is None else checked_id(thread_id, "a chat's")
        self.is_named = thread_id is not None
        self._count = 0
        """How many runs were begun under this id, in all branches."""
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self.runs: tuple[Run, ...] = () if options.after is None else (options.after,)
        if self.is_named:
            self.reopen()

    @property
    def open_run(self) -> Run | None:
        """The run that still works or waits: only the newest can."""
        last = self.runs[-1] if self.runs else None
        return last if last is not None and goes_on(last) else None

    def send(self, prompt: Prompt, answers: Answers = None, *, blocking: bool = False) -> Run:
        """Say something at the end; while a run works or waits, in that run."""
        with self._lock:
            last = self.runs[-1] if self.runs else None
            return self._begin(self.runs, last, prompt, answers, blocking=blocking)

    def edit(self, run: Run, prompt: Prompt, answers: Answers = None) -> Run:
        """Say something else in the place of a run's prompt.

        Raises:
            UsageError: it is no run of this thread as it stands now.
        """
        with self._lock:
            if run not in self.runs:
                raise UsageError(f"{run!r} is not a run of this chat. See chat.runs for its runs")
            before, last = self.runs[: self.runs.index(run)], self.open_run
            begun = self._begin(before, before[-1] if before else None, prompt, answers)
            if last is not None:
                session_of(last).stop(by="code")
            return begun

    def listen(self, listener: Callable[[], None]) -> None:
        """Be told, on any thread, when the runs have changed."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Be told no more."""
        with self._lock:
            self._listeners.remove(listener)

    def _begin(
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
            id=f"{self.id}.{self._count + 1}",
            is_new=True,
            answers=self.options.answers if answers is None else answers,
        )
        try:
            run = self.agent.start(prompt, options, blocking)
        except Conflict as error:
            raise Conflict(
                f"The chat {self.id!r} was continued elsewhere, as {options.id!r}. Open it again with agent.chat(id=…)"
            ) from error
        if run is not after:
            self._count += 1
            self.runs = (*before, run)
        for listener in tuple(self._listeners):
            listener()
        return run

    def reopen(self) -> None:
        """Take up what the store has of this thread, from a run on that it begins with."""
        given = {run.id: run for run in self.runs}
        there = set(self.store.run_ids())
        while f"{self.id}.{self._count + 1}" in there:
            self._count += 1
        run_id: str | None = f"{self.id}.{self._count}" if self._count else None
        found: list[str] = []
        while run_id in there and run_id not in found and len(found) < MAX_RUNS:
            found.append(run_id)
            if run_id in given:
                break
            run_id = _after(self.store.read(run_id)[0])
        options = replace(self.options, store=self.store, after=None)
        runs: list[Run] = []
        for each in reversed(found):  # oldest first: each history goes on with the one before
            if each in given:
                runs.append(given[each])
                continue
            journal = Journal(each, self.store)
            journal.catch_up()
            runs.append(self.agent.take_up(journal, options))
        self.runs = tuple(runs) or self.runs


class Chat:
    """A conversation with an agent that goes on: a thread of runs, shown as one card with a box to write in.

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
        """What the thread is found by in its store."""
        return self._thread.id

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first; what a message that was said anew has replaced is not among them."""
        return self._thread.runs

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return self.runs[-1].messages if self.runs else ()

    def send(self, prompt: Prompt, *, answers: Answers = None) -> Run:
        """Say something, as the box of the card does; await the run for its result.

        While a run works or waits for an answer the message goes into that run, after the results of its
        open calls, and that run is given back.

        Args:
            prompt: as in ``agent.run``.
            answers: as in ``agent.run``; the chat's own by default.
        """
        return self._thread.send(prompt, answers)

    def send_sync(self, prompt: Prompt, *, answers: Answers = None) -> Result:
        """Say something and wait for the result, in synchronous code."""
        return self._thread.send(prompt, answers, blocking=True).wait()

    def edit(self, run: Run, prompt: Prompt, *, answers: Answers = None) -> Run:
        """Say something else in the place of a run's prompt: the thread goes on from there.

        That run and those after it leave the thread, and stop where they still go on; their journals stay
        in the store.

        Args:
            run: one of ``chat.runs``.
            prompt: as in ``agent.run``.
            answers: as in ``agent.run``; the chat's own by default.

        Raises:
            UsageError: it is no run of this chat.
        """
        return self._thread.edit(run, prompt, answers)

    @awaited("chat.stop")
    async def stop(self) -> None:
        """Cancel the run that works or waits, if there is one; the chat goes on."""
        run = self._thread.open_run
        if run is not None:
            await run.cancel()

    def to_html(self, path: str | Path | None = None) -> str:
        """The chat as it stands as one page, as ``run.to_html`` makes it of a run.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "html", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The chat as it stands as Markdown, as ``run.to_markdown`` makes it of a run.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "markdown", path)

    def to_notebook(self, path: str | Path | None = None) -> str:
        """The chat as it stands as a notebook, as ``run.to_notebook`` makes it of a run.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "notebook", path)

    def view(self) -> None:
        """Show the chat here."""
        current_host().show_chat(self)

    def __repr__(self) -> str:
        runs = self.runs
        said = "1 message" if len(runs) == 1 else f"{len(runs)} messages"
        status = f", {runs[-1].status}" if runs else ""
        return escaped(f"<Chat with {self._thread.agent.spec().agent}: {said}{status}>")

    def _ipython_display_(self) -> None:
        self.view()


def _not_awaitable(_chat: Chat) -> Never:
    """Say what is awaited instead of a chat."""
    raise TypeError("A chat cannot be awaited. Use `run = chat.send(…)`, then `await run`")


Chat.__await__ = _not_awaitable  # type: ignore[attr-defined]  # type checkers know that it is none


def thread_of(chat: Chat) -> Thread:
    """What the engine and the notebook hold of a chat."""
    return chat._thread  # noqa: SLF001 - the one door to it, so that `dir(chat)` is for people


def thread_after(run: Run) -> Thread:
    """The thread that begins with this run, and asks its agent as the run knew it; for an agent's run.

    It has the run's id, and what was asked on under that before, in another process too.
    """
    session = session_of(run)
    runs = Runs(
        lambda: session.spec,
        lambda prompt, options, blocking: launch_apart(
            session.spec, prompt, options, blocking=blocking
        ),
        lambda journal, options: take_up(session.spec, journal, options),
    )
    is_apart = session.attended and is_private(session.loop)
    options = Options(after=run, attended=session.attended, show=False, background=is_apart)
    thread = Thread(runs, options, session.journal.store or MemoryStore(), None)
    if goes_on(run):
        thread.id = run.id
        return thread
    try:
        first = thread.store.read(f"{run.id}.1")[0]
    except UsageError:  # nothing was asked on yet
        thread.id = run.id
    except StoreError as error:
        logger.warning("the follow-up messages of run %s could not be loaded: %s", run.id, error)
    else:
        if _after(first) == run.id:  # else a chat has that name
            thread.id = run.id
            thread.reopen()
    return thread


def _after(first: StoredEvent) -> str | None:
    """The run whose conversation the one that begins so goes on with."""
    return first.after if isinstance(first, RunStarted | RunQueued) else None


def goes_on(run: Run) -> bool:
    """Whether the run has not ended."""
    return run.status not in ("completed", "failed", "cancelled")


def named_tools(thread: Thread) -> Sequence[tuple[str, str]]:
    """The tools that the agent has now: their names, and what they are for in one line."""
    tools = thread.agent.spec().tools
    return [(name, _line(tool.description)) for name, tool in list(tools.items())]


def _line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
