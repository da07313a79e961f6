"""A live run: the handle to wait for it, answer it, watch it and stop it."""

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
    LIMIT_LABEL,
    PendingInterrupt,
    Remember,
    Respond,
    reject_of,
    restart_of,
)
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Message
from nbagent.core.base.model import TextDelta, Usage
from nbagent.core.base.private import write_private
from nbagent.core.hooks import hooks
from nbagent.core.journal.journal import RunEvent
from nbagent.core.journal.verification import verify_run
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import Status
from nbagent.core.tools.kept_history import History, checked_history

from .answers import AnyResolution, id_and_resolution, id_of, interrupts_of
from .describe import asks, bounded, result_of, unanswered
from .host import started
from .result import Call, Events, Receipt, Result, calls_by_name
from .scripted_answers import approval_of
from .session import Session


class OpenQuestions(list[PendingInterrupt]):
    """The open questions of a run. An index error names the run's status if there is no such question."""

    def __init__(self, interrupts: Iterable[PendingInterrupt], status: Status) -> None:
        super().__init__(interrupts)
        self._status = status

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError:
            is_unsettled = self._status in ("running", "queued")
            first = (
                ". First use await run.settled(), which returns when the run asks"
                if is_unsettled
                else ""
            )
            count = "No other question is waiting" if self else "No question is waiting"
            raise IndexError(f"{count} in this run, which is {self._status}{first}") from None


MAX_PROMPT = 60
"""Characters of a prompt in a run's ``repr``."""


class Run:
    """A run in progress, paused, or ended. Await it for its result."""

    __slots__ = ("__weakref__", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        session.handle = weakref.ref(self)

    # --- attributes

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
        """The open questions, in call order; also while other calls are still running."""
        session = self._session
        return OpenQuestions(session.interrupts, session.status)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history, with a record of the state of each open call."""
        return paused_messages(self._session.state)

    @property
    def remembered(self) -> tuple[Remembered, ...]:
        """The approvals that a person chose to remember in this run; ``agent.remembered`` has those for all runs."""
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
        """The run's events so far: a list that prints one line for each, and is a table in a notebook."""
        journal = self._session.journal
        verify = partial(verify_run, journal.run_id, store=journal.store)
        return Events(journal.read(), verify)

    @property
    def result(self) -> Result:
        """The result of a completed run.

        Raises:
            RunNotFinished: the run has not ended.
            RunError: the run failed or was cancelled.
        """
        session = self._session
        if session.state.outcome is not None:
            started.runs.pop(session.run_id, None)
        return result_of(session.state, session.spec, session.error, session.values)

    def __repr__(self) -> str:
        return escaped(f"<Run of {self.agent}{self._prompt()}: {self.status}{self._detail()}>")

    def _prompt(self) -> str:
        """The text of the last message of the person, in a few words; empty for a flow."""
        for message in reversed(self._session.state.messages):
            if message["role"] == "user":
                texts = (part.get("text", "") for part in message["content"])
                words = " ".join(" ".join(texts).split())
                return (
                    f" on {words if len(words) <= MAX_PROMPT else words[: MAX_PROMPT - 1] + '…'!r}"
                )
        return ""

    def _detail(self) -> str:
        """The run's question, error or reason for waiting, in a few words."""
        failure = self._session.state.outcome
        if isinstance(failure, RunFailed):
            return bounded(f", {failure.error}: {' '.join(failure.message.split())}")
        first = self._session.first_in_queue()
        if first is not None:
            return f", queued behind the previous run, which is {first.state.status}"
        if self._session.awaited:
            return bounded(f", waiting for {self._session.awaited}")
        questions = [f"{i.tool_name or LIMIT_LABEL} {asks(i)}" for i in self.interrupts]
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
            while True:  # an answer may have arrived as the wait ended
                over = session.when_over()
                await session.host.wait(self, over)
                self._raise_unstored_answer(over.result())
                if session.is_over():
                    return (
                        self._outcome() if session.moved_on is None else await session.moved_run()
                    )

    @awaited("run.settled")
    async def settled(self) -> Run:
        """Wait until the run has ended or needs an answer, and return the run.

        Raises:
            StoreError, Conflict: the store does not have the run: it could not be started, or was deleted.
        """
        with self._session.stopped_by_keyboard():
            await self._session.host.wait(self, self._session.when_settled())
        if self._session.missing_error is not None:
            raise self._session.missing_error
        return self

    def wait(self) -> Result:
        """Wait for the result in synchronous code, outside of the run's own loop.

        Raises:
            UsageError: this thread's event loop is used by the run, or by a run before it in the queue.
        """
        session = self._session
        if not session.move_off_this_loop():
            raise UsageError(
                "`run.wait()` would block the event loop that the run needs. Use `await run`"
            )
        with session.stopped_by_keyboard():
            while True:  # an answer may have arrived as the wait ended
                over = session.when_over()
                session.host.wait_sync(self, over, attended=session.attended)
                self._raise_unstored_answer(over.result())
                if session.is_over():
                    return (
                        self._outcome() if session.moved_on is None else session.moved_run().wait()
                    )

    def _raise_unstored_answer(self, error: BaseException | None) -> None:
        """Raise the error of an answer that could not be stored, even if the store works again by now."""
        if error is not None and self._session.state.outcome is None:
            raise error

    def _outcome(self) -> Result:
        session = self._session
        if session.missing_error is not None:
            raise session.missing_error
        if session.error is not None and session.state.outcome is None:
            raise session.error
        first = session.first_in_queue()
        if first is not None and first.session is not None:
            if first.session.error is not None:
                raise first.session.error
            raise unanswered_of(first.session)
        if first is not None:
            asked = interrupts_of(first.state, session.spec.tools, session.spec.agent)
            raise unanswered(asked, {}, first.journal, "")
        if session.status == "interrupted":
            raise unanswered_of(session)
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
        """Approve an interrupt, like the form's button.

        Args:
            interrupt: an interrupt that asks for approval, or its id.
            remember: the scope in which not to ask again: ``"input_in_run"``, ``"tool_in_run"``, or, for every
                run of this agent object, ``"input"``, ``"tool"``.

        Raises:
            InvalidAnswer: the interrupt asks for something else; nothing was changed.
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
        """Run the interrupted tool (again), with the input replaced if there is a new one.

        Args:
            interrupt: an interrupt whose tool has a body, or its id.
            new_input: the whole input to use instead; None keeps the current input.
            data: the value of ``ctx.resumed`` in the tool.
            remember: for an approval: as in ``approve``.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, restart_of(new_input, data, remember=remember))

    def reject(self, interrupt: PendingInterrupt | str, reason: str | None = None) -> Receipt:
        """Reject an interrupt: the tool does not run, and the model receives the reason.

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
        """Answer an interrupt with a resolution. If the resolution names its interrupt, pass only the resolution.

        Raises:
            InvalidAnswer: the resolution is not valid, or names another interrupt; nothing was changed.
            NotPending: there is no such interrupt.
            Conflict: the interrupt was already answered, and the message says by whom and when; or the run has
                ended or is being cancelled.
            TypeError: ``interrupt`` is neither an interrupt nor an id.
        """
        interrupt_id, resolution = id_and_resolution(interrupt, resolution)
        return Receipt(self._session.resolve(interrupt_id, resolution, by=by))

    # --- stopping and continuing

    @awaited("run.cancel")
    async def cancel(self, *, by: str = "code") -> None:
        """Cancel the run. Finished results stay stored; the result of a tool that cannot be stopped is ignored."""
        await asyncio.shield(asyncio.wrap_future(self._session.stop(by=by)))

    @checks_keywords("run.retry")
    def retry(self, *, history: History = None) -> Run:
        """Continue a failed run from its last good state. Finished calls and answers are not repeated.

        Results that could not be stored are stored now. Of two concurrent retries only one takes effect. The
        other raises an error, which is only logged if the store is slow.

        Args:
            history: what the model receives of the conversation from now on, as in ``nb.Agent``: after
                ``nb.errors.HistoryTooLong``, pass ``nb.keep()``. By default nothing changes.

        Raises:
            UsageError: the run has not failed; ``history`` is not valid; or another process was running a tool at that time, which may or
                may not have taken effect.
            StoreError: the store still fails; nothing was changed.
        """
        self._session.retry(history if history is None else checked_history(history))
        return self

    @awaited("run.take_over")
    async def take_over(self) -> None:
        """Continue the run in this process, if the process that runs it is stuck or asleep.

        The other process notices the takeover before its next step. A person is asked about calls that were
        running there; tools with ``idempotent=True`` run again. Does nothing if the run is already running in this
        process, is queued, or has ended.

        Raises:
            StoreError: the takeover could not be stored.
        """
        await asyncio.shield(asyncio.wrap_future(self._session.follower.take_over()))

    @awaited("run.release")
    async def release(self) -> None:
        """Release this waiting run, so that any process, also this one, can continue it after an answer.

        A body that waits in ``ctx.ask`` ends, and runs again from its last step when the run continues. This handle
        follows the run. Does nothing if the run has ended, or another process is running the run.

        Raises:
            UsageError: a call or the model is still working.
            StoreError: the release could not be stored; nothing was changed.
        """
        await asyncio.shield(asyncio.wrap_future(self._session.follower.release()))

    def fork(self, *, at: PendingInterrupt | StoredEvent | str | None = None) -> Run:
        """Start an independent run from the current state, from the question ``at``, or from the end of a turn.

        Finished calls are reused, not repeated. The questions get new ids.

        Args:
            at: an interrupt or its id: the fork asks it again. Or an event of ``run.journal``: the fork has
                all calls of the event's turn, and continues with the next turn.

        Raises:
            NotPending: this run never asked ``at``.
            UsageError: the result of a call that was running at that point is unknown, or ``at`` is not an event of
                this run.
        """
        at = at if at is None or isinstance(at, Event) else id_of(at)
        return Run(self._session.fork(at))

    # --- watching

    async def events(self) -> AsyncIterator[RunEvent]:
        """Yield all events, past and new, until the run has ended.

        The run's first event comes first. Text deltas that were not read yet are joined.
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
        """Yield the growing answer each time it changes; the last value is complete.

        With ``output_type=`` the answer is plain JSON, whose last string may be incomplete. Otherwise it is the
        text so far. ``(await run).output`` is the typed answer.

        Raises:
            RunError: the run failed, or was cancelled.
        """
        from .partial_answer import PartialAnswer  # noqa: PLC0415 - few ask for partial answers

        answer = PartialAnswer(self._session.spec.answer.form)
        async for event in self.events():
            for value in answer.after(event):
                yield value
            if isinstance(event, RunFailed | RunCancelled) and not event.scope:
                await self

    def subscribe(self, listener: Callable[[RunEvent], None]) -> list[StoredEvent]:
        """Call ``listener`` with each new event, on the thread where it happens. Returns the earlier events."""
        return self._session.journal.subscribe(listener)

    def unsubscribe(self, listener: Callable[[RunEvent], None]) -> None:
        """Stop calling ``listener``."""
        self._session.journal.unsubscribe(listener)

    # --- exporting and showing

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the run in its current state as one HTML page, light and dark, without scripts or downloads.

        Args:
            path: a file to write the text to as well, as UTF-8.
        """
        return document(self, "html", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the run in its current state as Markdown. The model's text is in it as HTML, as in the card.

        Args:
            path: a file to write the text to as well, as UTF-8.
        """
        return document(self, "markdown", path)

    def to_notebook(self, path: str | Path | None = None) -> str:
        """Return the run in its current state as a notebook (JSON). The model's Python is in code cells, not executed.

        Args:
            path: a file to write the text to as well, as UTF-8.
        """
        return document(self, "notebook", path)

    def view(self) -> None:
        """Show the live run in the output of the current code."""
        self._session.host.show(self)

    def _ipython_display_(self) -> None:
        self._session.host.display(self)

    def _display_(self) -> Any:  # called by marimo
        return self._session.host.value(self)


def session_of(run: Run) -> Session:
    """The session of a run, for the engine and the notebook."""
    return run._session  # noqa: SLF001 - the one door to it, so that `dir(run)` is for people


class Document(str):
    """The text of an exported document. Its ``repr`` is one line with the format and size."""

    def __new__(cls, text: str, name: str = "") -> Document:
        """Make a document of this text; ``name`` is its path or its format."""
        made = super().__new__(cls, text)
        made._name = name
        return made

    _name: str

    def __repr__(self) -> str:
        size = len(self.encode("utf-8", "replace"))
        return escaped(f"<{self._name}, {max(1, round(size / 1000)):,} kB>")


def document(
    shown: Any, form: str, path: str | Path | None, make: Callable[[Any, str], str] | None = None
) -> Document:
    """Return what ``make`` does, by default a run or a chat as one document; also write it to ``path``, private.

    Raises:
        UsageError: the folder does not exist, or the path is a folder.
        OSError: the file cannot be written, or the path is a link.
    """
    make = make or hooks.exported
    if path is None:
        return Document(make(shown, form), form)
    file = Path(path).expanduser()
    if not file.parent.is_dir():
        raise UsageError(f"The folder {str(file.parent)!r} does not exist. Create it first")
    if file.is_dir():
        raise UsageError(f"{str(file)!r} is a folder. Pass the path of a file in it")
    text = Document(make(shown, form), str(path))
    write_private(file, text)
    return text


def unanswered_of(asks: Session) -> Exception:
    """The exception for a run with open questions that nobody answers."""
    return unanswered(asks.interrupts, asks.wrong_answers, asks.journal, asks.missing_answer_hint)


class _Feed:
    """A queue of events, from any thread, for a reader on ``loop``. Unread text deltas are joined."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unread: deque[RunEvent] = deque()
        self._texts: list[str] = []
        """The unread text deltas after the other unread events."""
        self._there = asyncio.Event()
        self._lock = threading.Lock()

    def begin(self, past: Iterable[RunEvent]) -> None:
        """Add the earlier events, before those that were added meanwhile."""
        with self._lock:
            self._unread.extendleft(reversed(list(past)))
        self._there.set()

    def put(self, event: RunEvent) -> None:
        """Add one event."""
        with self._lock:
            if type(event) is TextDelta:
                self._texts.append(event.text)
                if len(self._texts) > 1:
                    return  # the first has woken the reader
            else:
                self._unread.extend(self._joined())
                self._unread.append(event)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._there.set)

    async def get(self) -> RunEvent:
        """The next event."""
        while True:
            self._there.clear()
            with self._lock:
                if not self._unread:
                    self._unread.extend(self._joined())
                if self._unread:
                    return self._unread.popleft()
            await self._there.wait()

    def _joined(self) -> list[TextDelta]:
        texts, self._texts = self._texts, []
        return [TextDelta("".join(texts))] if texts else []


def _absent(one: Run | Result, name: str) -> Never:
    """Raise an error that says where to find an attribute of a run's result, or of a result's run."""
    if isinstance(one, Result) and not name.startswith("_") and hasattr(Run, name):
        why = f"A result has no {name!r}, but its run does. Use `run = agent.run(…)`, `await run`, then `run.{name}`"
    elif isinstance(one, Run) and name in Result.__dataclass_fields__:
        why = (
            f"A run has no {name!r}, but its result does. Use `result = await run`, then `result.{name}` (in a script "
            f"without an event loop: `agent.run_sync(…).{name}`)"
        )
    else:
        why = f"{type(one).__name__!r} object has no attribute {name!r}"
    raise AttributeError(why, name=name, obj=one)


def _raise_not_text(_run: Run, _other: object) -> Never:
    """Raise an error that says where to find the text of a run."""
    raise TypeError(
        "A run is not text. Use `result = await run`, then `result.text` (in a script without an event loop: "
        "`agent.run_sync(…).text`)"
    )


Run.__getattr__ = Result.__getattr__ = _absent  # type: ignore[attr-defined]  # type checkers know what they have
Run.__add__ = _raise_not_text  # type: ignore[operator]
Run.__radd__ = _raise_not_text  # type: ignore[attr-defined]
