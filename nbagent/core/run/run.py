"""A live run: the doors to wait for it, answer it, watch it and stop it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any
from weakref import WeakSet

from pydantic import TypeAdapter

from nbagent.core.base.errors import Conflict, NotPending, StoreError, UsageError
from nbagent.core.base.events import (
    Interrupted,
    MessageQueued,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    StoredEvent,
)
from nbagent.core.base.interrupts import PendingInterrupt, Respond, reject_of, restart_of
from nbagent.core.base.messages import Message
from nbagent.core.base.model import TextDelta, Usage
from nbagent.core.base.process import this_process
from nbagent.core.call.questions import reply_types
from nbagent.core.call.threads import running_loop
from nbagent.core.engine.spec import RunSpec
from nbagent.core.journal.journal import (
    Journal,
    RunEvent,
    check_known,
    forget_unwritten,
    unwritten_of,
)
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.state.fork import forked
from nbagent.core.state.history import closed_messages, paused_messages
from nbagent.core.state.state import RunState, Status, status_of
from nbagent.core.tools.tool import Tool

from .answers import (
    AnyResolution,
    check_in_time,
    check_open,
    id_of,
    interrupts_of,
    remember,
    remembered_at,
    resolved,
    settles,
)
from .describe import asks, bounded, result_of, unanswered
from .follow import check_none_ran_elsewhere, next_driver
from .generate import rejected
from .host import Place
from .result import Call, Receipt, Result, calls_by_name
from .scripted_answers import Answers
from .session import Deadlines, Drive, Unattended, Waiters


class Feed:
    """Events on their way to a reader on ``loop``, from any thread; unread text is held joined."""

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


class Record:
    """A run as its journal tells it: nothing here changes anything."""

    def __init__(self, spec: RunSpec, journal: Journal) -> None:
        self.id = journal.run_id
        self._spec = spec
        self._journal = journal
        self._values: dict[str, Any] = {}
        """The tools' own Python objects by call id: in memory only."""

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._spec.agent

    @property
    def status(self) -> Status:
        """``running``, ``interrupted``, ``completed``, ``failed`` or ``cancelled``."""
        return status_of(self._journal.state)

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer, in call order; also while other calls still run."""
        state = self._journal.state
        return [] if state.outcome else interrupts_of(state, self._spec.tools, self.agent)

    @property
    def open_events(self) -> list[Interrupted]:
        """What waits for an answer, as it was stored."""
        return self._journal.state.open

    def reply_type(self, interrupt: PendingInterrupt | str) -> TypeAdapter[Any] | None:
        """The type of the answer that a body in this process waits for; None where none does.

        It knows more than the stored JSON Schema does, such as how a form should ask.
        """
        return reply_types.get(id_of(interrupt))

    def why_not_pending(self, interrupt_id: str) -> str:
        """What became of an interrupt that takes no answer (any more): who answered, and when."""
        try:
            check_open(self._journal.state, interrupt_id)
        except (NotPending, Conflict) as error:
            return str(error)
        return f"interrupt {interrupt_id!r} waits for an answer"

    @property
    def stored(self) -> bool:
        """Whether its journal outlives this process."""
        return not isinstance(self._journal.store, MemoryStore)

    def tool(self, name: str) -> Tool[..., Any] | None:
        """The registered tool of this name, as it is defined now."""
        return self._spec.tools.get(name)

    @property
    def executing(self) -> list[str]:
        """The names of the tools whose bodies run now."""
        calls = self._journal.state.calls.values()
        return [c.name for c in calls if c.status == "running"]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history; calls that are open carry the record of where they stand."""
        return paused_messages(self._journal.state)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages to go on from after the end: each call that was left open has a result."""
        return closed_messages(self._journal.state)

    @property
    def usage(self) -> Usage:
        """Tokens and cost so far."""
        return self._journal.state.usage

    @property
    def journal(self) -> list[StoredEvent]:
        """The run's events so far."""
        return self._journal.read()

    def subscribe(self, listener: Callable[[RunEvent], None]) -> list[StoredEvent]:
        """Hear what comes from now on, on whatever thread it happens; gives back what came before."""
        return self._journal.subscribe(listener)

    def unsubscribe(self, listener: Callable[[RunEvent], None]) -> None:
        """Hear no more."""
        self._journal.unsubscribe(listener)

    @property
    def calls(self) -> dict[str, list[Call]]:
        """The tool calls by tool name, in order."""
        return calls_by_name(self._journal.state, self._values)

    def __repr__(self) -> str:
        return f"<Run of {self.agent}: {self.status}{self._detail()}>"

    def _detail(self) -> str:
        """What it asks, or why it failed, in few words."""
        failure = self._journal.state.outcome
        if isinstance(failure, RunFailed):
            return bounded(f", {failure.error}: {' '.join(failure.message.split())}")
        told = [f"{i.tool_name or 'the limit'} {asks(i)}" for i in self.interrupts]
        if not told:
            return ""
        return f", {told[0]}" + (f" and {len(told) - 1} more" if told[1:] else "")


class Run(Record):
    """A run in progress, paused, or ended. Await it for its result."""

    def __init__(
        self, spec: RunSpec, journal: Journal, place: Place, *, answers: Answers = None
    ) -> None:
        super().__init__(spec, journal)
        self.attended = place.attended
        self._host = place.host
        self._waiters = Waiters()
        self._drive = Drive(spec, journal, place, values=self._values, run=self)
        self._deadlines = Deadlines(journal, spec.clock, self._drive, self)
        self._unattended: Unattended | None = None
        _handles.add(self)
        if not place.attended and answers is not None:
            self._unattended = Unattended(answers, self, self._drive, self._waiters)
            journal.subscribe(self._unattended.hear)

    def on_progress(self, asked: Sequence[Interrupted]) -> None:
        """For its drive: watch the time of new questions, and tell who waits how it stands."""
        for event in asked:
            self._deadlines.watch(event)
        self._deadlines.apply()
        self._waiters.notify()

    # --- waiting

    def __await__(self) -> Generator[Any, None, Result]:
        return self._wait().__await__()

    async def settled(self) -> Run:
        """Wait until nothing can go on without an answer, or until the end; gives back the run."""
        await self._host.wait(self, self.settling())
        return self

    def settling(self) -> Future[None]:
        """Done when nothing can go on without an answer, or at the end; for any thread."""
        return self._when(self._is_settled)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop the run lives on."""
        return self._drive.loop

    def wait(self) -> Result:
        """Wait for the result in synchronous code, outside of the run's own loop.

        Raises:
            UsageError: called on the loop that the run needs to go on.
        """
        if running_loop() is self._drive.loop:
            raise UsageError("this run lives on the loop that runs here: use `await run`")
        try:
            while True:  # an answer may have come as the wait ended
                self._host.wait_sync(self, self._when(self._over))
                if self._over():
                    return self._outcome()
        except KeyboardInterrupt:  # wherever it comes: the host knows of it only while it waits
            self.stop(by="keyboard")
            raise

    async def _wait(self) -> Result:
        while True:  # an answer may have come as the wait ended
            await self._host.wait(self, self._when(self._over))
            if self._over():
                return self._outcome()

    def _over(self) -> bool:
        """Whether awaiting has something to say: the end, or that nobody is there to answer."""
        ended = self._journal.state.outcome is not None or self._drive.error is not None
        return self._is_settled() and (ended or not self.attended)

    def _is_settled(self) -> bool:
        if self._unattended is not None and self._unattended.undecided:
            return False
        if self._drive.active:  # a body that waits at the line where it asks keeps its driver
            asks = any(event.kind == "ask" for event in self._journal.state.pending)
            return asks and self.status == "interrupted"
        return self.status != "running" or self._drive.error is not None

    def _outcome(self) -> Result:
        if self._drive.error is not None and self._journal.state.outcome is None:
            raise self._drive.error
        if self.status == "interrupted":
            wrong = self._unattended.wrong if self._unattended is not None else {}
            raise unanswered(self.interrupts, wrong, self.id)
        return self.result

    @property
    def result(self) -> Result:
        """The result of a run that has ended well.

        Raises:
            RunNotFinished: it has not ended.
            RunError: it failed or was cancelled.
        """
        return result_of(self._journal.state, self._spec, self._drive.error, self._values)

    def _when(self, holds: Callable[[], bool]) -> Future[None]:
        self._deadlines.apply()
        self._drive.revive()
        return self._waiters.when(holds)

    # --- going on

    def start(self, messages: list[Message], *, after: str | None = None) -> Run:
        """Begin: write the first event and let the driver go."""
        started = RunStarted(
            at=self._spec.clock(),
            agent=self.agent,
            model=self._spec.model.name,
            messages=list(messages),
            max_turns=self._spec.max_turns,
            after=after,
            owner=this_process(),
        )
        self._journal.append(started)
        self._drive.go_on()
        return self

    def follow(self) -> Run:
        """Keep up with what others write to this run, and go on with it where nobody else does."""
        self._drive.follow()
        return self

    def take_up(self) -> Run:
        """Follow a run that was read from its store, and watch over what waits in it already."""
        for event in self._journal.state.pending:
            self._drive.call_soon(partial(self._deadlines.watch, event))
            if self._unattended is not None:
                self._unattended.look_at(event.id)
        return self.follow()

    def queue(self, text: str, *, by: str = "code") -> bool:
        """Send a message after the open calls' results; False where the run has ended."""
        event = MessageQueued(at=self._spec.clock(), text=text, by=by)
        return bool(self._journal.commit(lambda state: [] if state.outcome else [event]))

    def dismiss(self, *, by: str = "code") -> None:
        """Refuse all that is asked, and stop: the person wants something else.

        Does nothing where a call or the model is at work, or where the run has ended.
        """
        stamp = (by, self._spec.clock())
        stopped = RunCancelled(at=stamp[1], by=by)

        def decide(state: RunState) -> list[StoredEvent]:
            if status_of(state) != "interrupted":
                return []
            return [*rejected(state, self._spec, stamp), stopped]

        if self._journal.commit(decide):
            self._drive.abandon()

    def retry(self) -> Run:
        """Go on after a failure, from the last good state: finished calls are kept, answers too.

        What tools came to while the store failed is stored now; they are not run again.

        Raises:
            UsageError: the run has not failed; or another process ran a tool when it did, which may
                have done its work.
            StoreError: the store still fails; nothing was changed.
        """
        event = RunRetried(at=self._spec.clock(), by="code", owner=this_process())

        def decide(state: RunState) -> list[StoredEvent]:
            if not isinstance(state.outcome, RunFailed):
                raise UsageError(f"only a failed run is retried; this one is {status_of(state)}")
            return [event, *self._unwritten(state, state.outcome)]

        self._journal.commit(decide)
        forget_unwritten(self.id)
        self._drive.error = None
        for waiting in self._journal.state.pending:
            self._drive.call_soon(partial(self._deadlines.watch, waiting))
        self._drive.go_on()
        return self

    def _unwritten(self, state: RunState, failed: RunFailed) -> Sequence[StoredEvent]:
        """What tools came to that could not be stored; refuses where that cannot be known."""
        check_none_ran_elsewhere(state, failed)
        check_known(state, failed)
        return unwritten_of(self.id, state)

    def fork(self, *, at: PendingInterrupt | str | None = None) -> Run:
        """An independent run that goes on from here, or from when ``at`` was asked.

        What was done is taken over and not repeated; questions get ids of their own.

        Raises:
            NotPending: this run never asked ``at``.
            UsageError: calls were running then of which no result is known.
        """
        now = self._spec.clock()
        at_id = None if at is None else id_of(at)
        events, state = self._journal.read(), self._journal.state
        events = forked(events, at_id, self._spec.new_id, now)
        if at is None and isinstance(state.outcome, RunFailed):
            events += self._unwritten(state, state.outcome)
        journal = Journal(self._spec.new_id(), self._journal.store)
        journal.append(*events)
        run = Run(self._spec, journal, Place(self._host, self.attended, self.loop))
        run._values.update(self._values)
        return run.take_up()

    # --- answering

    def respond(self, interrupt: PendingInterrupt | str, value: Any) -> Receipt:
        """Answer an interrupt with ``value``, as if the tool had returned it.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, Respond(output=value))

    def restart(
        self, interrupt: PendingInterrupt | str, *, new_input: Any = None, data: Any = None
    ) -> Receipt:
        """Run the interrupted tool (again), with the input replaced where one is given.

        Raises:
            InvalidAnswer, NotPending, Conflict: nothing was changed.
        """
        return self.resolve(interrupt, restart_of(new_input, data))

    def reject(self, interrupt: PendingInterrupt | str, reason: str | None = None) -> Receipt:
        """Refuse: the tool does not run, and the model is told.

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
        if by != "expiry":
            self._deadlines.apply()
        stamp = (by, self._spec.clock())

        def decide(state: RunState) -> list[StoredEvent]:
            self._check_takes_answers(state, interrupt_id)
            check_in_time(state, interrupt_id, stamp)
            event = resolved(state, interrupt_id, resolution, self._spec.tools, stamp)
            return [event.model_copy(update={"owner": next_driver(state, event)})]

        asked = {event.id: event for event in self._journal.state.pending}
        try:
            written = self._journal.commit(decide)
        except (Conflict, StoreError):  # somebody's answer may have been stored all the same
            self._drive.follow()
            raise
        self._remember(asked, written[0])
        if self._journal.driver == this_process():
            self._drive.go_on()
        else:
            self._drive.follow()
        return Receipt(written[0])

    def _remember(self, asked: Mapping[str, Interrupted], answer: StoredEvent) -> None:
        if isinstance(answer, Resolved) and answer.id in asked:
            state, spec = self._journal.state, self._spec
            memory = remembered_at(state, answer.scope, spec.tools, spec.remembered)
            remember(asked[answer.id], answer.resolution, memory, self.id)

    def _check_takes_answers(self, state: RunState, interrupt_id: str) -> None:
        ended = state.outcome is not None
        if (ended or self._drive.stopping) and any(e.id == interrupt_id for e in state.pending):
            now = status_of(state) if ended else "being cancelled"
            raise Conflict(f"the run is {now}: it takes no answers any more")

    # --- stopping

    async def cancel(self, *, by: str = "code") -> None:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        await asyncio.shield(asyncio.wrap_future(self.stop(by=by)))

    def stop(self, *, by: str = "code") -> Future[None]:
        """``cancel`` without waiting for it; from any thread."""
        return self._drive.stop(by=by)

    # --- watching

    async def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happened and happens, until the run has ended.

        Stored events come from the first on; text that nobody read yet comes joined.
        """
        feed = Feed(asyncio.get_running_loop())
        feed.begin(self._journal.subscribe(feed.put))
        if self.loop.is_closed() and self._drive.error is None:
            self._drive.follow()
        try:
            while True:
                heard = await feed.get()
                yield heard
                if isinstance(heard, RunCompleted | RunFailed | RunCancelled):
                    return
        finally:
            self._journal.unsubscribe(feed.put)

    def view(self) -> None:
        """Show the run here, live."""
        self._host.show(self)

    def _ipython_display_(self) -> None:
        self._host.display(self)


_handles: WeakSet[Run] = WeakSet()
"""The runs that this process holds."""


def open_handles() -> list[Run]:
    """The runs that this process holds."""
    return list(_handles)
