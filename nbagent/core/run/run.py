"""A live run: the public handle to wait for it, answer it, watch it and stop it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Never

from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import Event, RunCancelled, RunCompleted, RunFailed, StoredEvent
from nbagent.core.base.interrupts import (
    PendingInterrupt,
    Remember,
    Respond,
    reject_of,
    restart_of,
)
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Message
from nbagent.core.base.model import TextDelta, Usage
from nbagent.core.base.private import write_private
from nbagent.core.hooks import hooks
from nbagent.core.journal.journal import RunEvent
from nbagent.core.journal.verification import verify_run
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import Status

from .answers import AnyResolution, id_of, interrupts_of, settles
from .describe import asks, bounded, result_of, unanswered
from .growing import Growing
from .result import Call, Events, Receipt, Result, calls_by_name
from .scripted_answers import approval_of
from .session import Session


class Waiting(list[PendingInterrupt]):
    """The open interrupts of a run; if there are none, indexing raises an error that says why."""

    def __init__(self, interrupts: Iterable[PendingInterrupt], status: Status) -> None:
        super().__init__(interrupts)
        self._status = status

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError:
            goes_on = self._status in ("running", "queued")
            first = (
                ". First use await run.settled(), which returns when the run asks"
                if goes_on
                else ""
            )
            count = "No other question is waiting" if self else "No question is waiting"
            raise IndexError(f"{count} in this run, which is {self._status}{first}") from None


class Run:
    """A run in progress, paused, or ended. Await it for its result."""

    __slots__ = ("__weakref__", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        session.handle = weakref.ref(self)

    # --- what can be read off it

    @property
    def id(self) -> str:
        """The run's id in its store."""
        return self._session.run_id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._session.spec.agent

    @property
    def status(self) -> Status:
        """``queued``, ``running``, ``interrupted``, ``completed``, ``failed`` or ``cancelled``."""
        return self._session.status

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open interrupts in call order, also while other calls still run."""
        session = self._session
        return Waiting(session.interrupts, session.status)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history; open calls carry the record of their pause."""
        return paused_messages(self._session.state)

    @property
    def remembered(self) -> tuple[Remembered, ...]:
        """Approvals that a person chose to remember in this run; ``agent.remembered`` has the others."""
        return self._session.state.remembered

    @property
    def usage(self) -> Usage:
        """Tokens and cost so far."""
        return self._session.state.usage

    @property
    def calls(self) -> dict[str, list[Call]]:
        """The tool calls by tool name, in order."""
        return calls_by_name(self._session.state, self._session.values)

    @property
    def journal(self) -> Events:
        """The run's events so far: a list that prints a line each, and is a table in a notebook."""
        journal = self._session.journal
        verify = partial(verify_run, journal.run_id, store=journal.store)
        return Events(journal.read(), verify)

    @property
    def result(self) -> Result:
        """The result of a run that has ended well.

        Raises:
            RunNotFinished: it has not ended.
            RunError: it failed or was cancelled.
        """
        session = self._session
        return result_of(session.state, session.spec, session.error, session.values)

    def __repr__(self) -> str:
        return escaped(f"<Run of {self.agent}: {self.status}{self._detail()}>")

    def _detail(self) -> str:
        """A short text: the open questions, or why the run failed."""
        failure = self._session.state.outcome
        if isinstance(failure, RunFailed):
            return bounded(f", {failure.error}: {' '.join(failure.message.split())}")
        first = self._session.first_in_line()
        if first is not None:
            return f", queued behind the previous run, which is {first.state.status}"
        if self._session.awaited:
            return bounded(f", waiting for {self._session.awaited}")
        questions = [f"{i.tool_name or 'the limit'} {asks(i)}" for i in self.interrupts]
        if not questions:
            return ""
        more = f" and {len(questions) - 1} more" if questions[1:] else ""
        return f", {questions[0]}{more}"

    # --- waiting

    def __await__(self) -> Generator[Any, None, Result]:
        return self._wait().__await__()

    async def _wait(self) -> Result:
        session = self._session
        with session.stopped_by_keyboard():
            while True:  # an answer may have come as the wait ended
                over = session.when_over()
                await session.host.wait(self, over)
                self._check_taken(over.result())
                if session.is_over():
                    return self._outcome()

    @awaited("run.settled")
    async def settled(self) -> Run:
        """Wait until the run has ended or only an answer can continue it; returns the run."""
        with self._session.stopped_by_keyboard():
            await self._session.host.wait(self, self._session.when_settled())
        return self

    def wait(self) -> Result:
        """Wait for the result in synchronous code, outside of the run's own loop.

        Raises:
            UsageError: called on a loop where the run, or one that it waits for, is at work.
        """
        session = self._session
        if not session.leave_loop():
            raise UsageError("This run uses the event loop of this code. Use `await run`")
        with session.stopped_by_keyboard():
            while True:  # an answer may have come as the wait ended
                over = session.when_over()
                session.host.wait_sync(self, over)
                self._check_taken(over.result())
                if session.is_over():
                    return self._outcome()

    def _check_taken(self, error: BaseException | None) -> None:
        """Raise why an answer could not be stored: the store may be read again by now."""
        if error is not None and self._session.state.outcome is None:
            raise error

    def _outcome(self) -> Result:
        session = self._session
        if session.error is not None and session.state.outcome is None:
            raise session.error
        first = session.first_in_line()
        if first is not None and first.held is not None:
            if first.held.error is not None:
                raise first.held.error
            raise _unanswered(first.held)
        if first is not None:
            asked = interrupts_of(first.state, session.spec.tools, session.spec.agent)
            raise unanswered(asked, {}, first.journal, "")
        if session.status == "interrupted":
            raise _unanswered(session)
        return self.result

    # --- answering

    def respond(self, interrupt: PendingInterrupt | str, value: Any) -> Receipt:
        """Answer an interrupt with ``value``, as if the tool had returned it.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, Respond(output=value))

    def approve(
        self, interrupt: PendingInterrupt | str, *, remember: Remember | None = None
    ) -> Receipt:
        """Approve an interrupt, as the form's button does.

        Args:
            interrupt: one that asks for approval, or its id.
            remember: what not to ask about again: ``"input_in_run"``, ``"tool_in_run"``, or in every run
                of this agent object ``"input"``, ``"tool"``.

        Raises:
            InvalidAnswer: it asks for something else; nothing was changed.
            NotPending, Conflict: nothing was changed.
        """
        interrupt_id = id_of(interrupt)
        asked = next((i for i in self.interrupts if i.id == interrupt_id), None)
        return self.resolve(interrupt_id, approval_of(asked, remember))

    def restart(
        self,
        interrupt: PendingInterrupt | str,
        *,
        new_input: Any = None,
        data: Any = None,
        remember: Remember | None = None,
    ) -> Receipt:
        """Run the interrupted tool (again), with the input replaced where one is given.

        Args:
            interrupt: one whose tool has a body, or its id.
            new_input: the whole input to use instead; None keeps it.
            data: what the tool gets as ``ctx.resumed``.
            remember: for an approval: as in ``approve``.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, restart_of(new_input, data, remember=remember))

    def reject(self, interrupt: PendingInterrupt | str, reason: str | None = None) -> Receipt:
        """Reject an interrupt: the tool does not run, and the model is informed.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, reject_of(reason))

    def resolve(
        self,
        interrupt: PendingInterrupt | str | AnyResolution,
        resolution: AnyResolution | None = None,
        *,
        by: str = "code",
    ) -> Receipt:
        """Settle an interrupt; a resolution that knows which may come alone. Safe from any thread.

        Raises:
            InvalidAnswer: it does not fit, or is another interrupt's; nothing was changed.
            NotPending: there is no such interrupt.
            Conflict: it was answered already, and the message says by whom and when; or the run
                has ended or is being cancelled.
            TypeError: ``interrupt`` is neither an interrupt nor an id.
        """
        interrupt_id, resolution = settles(interrupt, resolution)
        return Receipt(self._session.resolve(interrupt_id, resolution, by=by))

    # --- stopping, and going on

    @awaited("run.cancel")
    async def cancel(self, *, by: str = "code") -> None:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        await asyncio.shield(asyncio.wrap_future(self._session.stop(by=by)))

    def retry(self) -> Run:
        """Go on after a failure, from the last good state: finished calls are kept, answers too.

        What tools came to while the store failed is stored now; they are not run again. Of two retries
        one counts; where the store must be waited for, that comes out later, and the other is logged.

        Raises:
            UsageError: the run has not failed; or another process ran a tool when it did, which may
                have done its work.
            StoreError: the store still fails; nothing was changed.
        """
        self._session.retry()
        return self

    @awaited("run.take_over")
    async def take_over(self) -> None:
        """Drive the run here from now on, whichever process does: for one that is stuck, or asleep.

        The other one notices before it runs anything more. What it was running is asked about as a call of a
        process that is gone; a tool with ``idempotent=True`` runs again. Does nothing where the run is
        driven here already, is queued, or has ended.

        Raises:
            StoreError: it could not be stored.
        """
        await asyncio.shield(asyncio.wrap_future(self._session.follower.take_over()))

    @awaited("run.release")
    async def release(self) -> None:
        """Leave a run that waits for an answer to whichever process answers it, this one included.

        Nothing of it is held here any more: a body that waits in ``ctx.ask`` ends, and runs again from its last
        step where the run continues. This handle follows the run. Does nothing where the run has ended, or another
        process drives it.

        Raises:
            UsageError: a call or the model still works.
            StoreError: it could not be stored; nothing has changed.
        """
        await asyncio.shield(asyncio.wrap_future(self._session.follower.release()))

    def fork(self, *, at: PendingInterrupt | StoredEvent | str | None = None) -> Run:
        """An independent run that continues from here, from when ``at`` was asked, or from the end of its turn.

        What was done is taken over and not repeated; questions get ids of their own.

        Args:
            at: an interrupt or its id: the fork asks it again. Or an event of ``run.journal``: the fork
                has all that was done in its turn, and goes on with the next one.

        Raises:
            NotPending: this run never asked ``at``.
            UsageError: calls were running then of which no result is known, or ``at`` is no event of this run.
        """
        at = at if at is None or isinstance(at, Event) else id_of(at)
        return Run(self._session.fork(at))

    # --- watching

    async def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happened and happens, until the run has ended.

        Stored events come from the first on; text that nobody read yet comes joined.
        """
        session = self._session
        feed = _Feed(asyncio.get_running_loop())
        feed.begin(session.journal.subscribe(feed.put))
        if session.loop.is_closed() and session.error is None:
            session.follow()
        try:
            while True:
                event = await feed.get()
                yield event
                if isinstance(event, RunCompleted | RunFailed | RunCancelled) and not event.scope:
                    return
        finally:
            session.journal.unsubscribe(feed.put)

    async def partials(self) -> AsyncIterator[Any]:
        """The answer as far as it has come, each time there is more of it; the last one is whole.

        Of an agent with ``output_type=`` it is plain JSON, whose last text may be half of one; of others
        the text so far. ``(await run).output`` is the typed answer.

        Raises:
            RunError: the run failed, or was cancelled.
        """
        answer = Growing(self._session.spec.answer.form)
        async for event in self.events():
            for value in answer.after(event):
                yield value
            if isinstance(event, RunFailed | RunCancelled) and not event.scope:
                await self

    def subscribe(self, listener: Callable[[RunEvent], None]) -> list[StoredEvent]:
        """Call a listener with each new event, on the thread that writes it; returns the earlier events."""
        return self._session.journal.subscribe(listener)

    def unsubscribe(self, listener: Callable[[RunEvent], None]) -> None:
        """Stop calling the listener."""
        self._session.journal.unsubscribe(listener)

    # --- sending

    def to_html(self, path: str | Path | None = None) -> str:
        """The run as one HTML page: light and dark, without scripts, and it loads nothing.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "html", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The run as Markdown.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "markdown", path)

    def to_notebook(self, path: str | Path | None = None) -> str:
        """The run as a notebook in JSON. Python code of the model is in code cells and was not run.

        Args:
            path: also written there, as UTF-8.
        """
        return document(self, "notebook", path)

    def view(self) -> None:
        """Show the run here, live."""
        self._session.host.show(self)

    def _ipython_display_(self) -> None:
        self._session.host.display(self)

    def _display_(self) -> Any:  # marimo's
        return self._session.host.value(self)


def session_of(run: Run) -> Session:
    """The session of a run, for the engine and the notebook."""
    return run._session  # noqa: SLF001 - the one door to it, so that `dir(run)` is for people


class Document(str):
    """The text of a document, which as a value of a cell is one line: what it is, and how large."""

    def __new__(cls, text: str, name: str = "") -> Document:
        """Of this text, and the name of its file or its form."""
        made = super().__new__(cls, text)
        made._name = name
        return made

    _name: str

    def __repr__(self) -> str:
        size = len(self.encode("utf-8", "replace"))
        return escaped(f"<{self._name}, {max(1, round(size / 1000)):,} kB>")


def document(shown: Any, form: str, path: str | Path | None) -> Document:
    """A run, or a chat of runs, as one document: its text, also written to ``path``, for its owner alone.

    Raises:
        UsageError: there is no such folder, or the path is one.
        OSError: it cannot be written, or the path is that of a link.
    """
    if path is None:
        return Document(hooks.exported(shown, form), form)
    file = Path(path).expanduser()
    if not file.parent.is_dir():
        raise UsageError(f"The folder {str(file.parent)!r} does not exist. Create it first")
    if file.is_dir():
        raise UsageError(f"{str(file)!r} is a folder. Give the path of a file in it")
    text = Document(hooks.exported(shown, form), str(path))
    write_private(file, text)
    return text


def _unanswered(asks: Session) -> Exception:
    return unanswered(asks.interrupts, asks.wrong_answers, asks.journal, asks.answers_told)


class _Feed:
    """A queue of events for a reader on ``loop``, filled from any thread; unread text is joined."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unread: deque[RunEvent] = deque()
        self._there = asyncio.Event()
        self._lock = threading.Lock()

    def begin(self, past: Iterable[RunEvent]) -> None:
        """Put in what happened before; it comes before what was put in meanwhile."""
        with self._lock:
            self._unread.extendleft(reversed(list(past)))
        self._there.set()

    def put(self, heard: RunEvent) -> None:
        """Take one more."""
        with self._lock:
            last = self._unread[-1] if self._unread else None
            if isinstance(heard, TextDelta) and isinstance(last, TextDelta):
                self._unread[-1] = TextDelta(last.text + heard.text)
                return
            self._unread.append(heard)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._there.set)

    async def get(self) -> RunEvent:
        """The next one."""
        while True:
            self._there.clear()
            with self._lock:
                if self._unread:
                    return self._unread.popleft()
            await self._there.wait()


def _absent(run: Run, name: str) -> Never:
    """Say where it is, of what a run's result has."""
    if name in Result.__dataclass_fields__:
        why = (
            f"A run has no {name!r}, but its result does. Use `result = await run`, then `result.{name}` (in a script "
            f"without an event loop: `agent.run_sync(…).{name}`)"
        )
    else:
        why = f"'Run' object has no attribute {name!r}"
    raise AttributeError(why, name=name, obj=run)


def _is_no_text(_run: Run, _other: object) -> Never:
    """Say where the text is, of a run that is added to one."""
    raise TypeError(
        "A run is not text. Use `result = await run`, then `result.text` (in a script without an event loop: "
        "`agent.run_sync(…).text`)"
    )


Run.__getattr__ = _absent  # type: ignore[attr-defined]  # type checkers know what a run has
Run.__add__ = _is_no_text  # type: ignore[operator]
Run.__radd__ = _is_no_text  # type: ignore[attr-defined]
