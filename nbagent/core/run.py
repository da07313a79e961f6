"""A live run: a journal, the driver that goes on with it, and the doors to wait for it and answer it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

from .answers import (
    Answers,
    AnyResolution,
    Script,
    check_in_time,
    check_open,
    expiry_of,
    id_of,
    interrupts_of,
    is_approval,
    remember,
    remembered_at,
    resolved,
)
from .errors import (
    Cancelled,
    Conflict,
    Expired,
    HumanInputRequired,
    NotPending,
    RunError,
    RunNotFinished,
    UsageError,
)
from .events import (
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
from .feed import Feed
from .follow import Follower
from .fork import forked
from .host import Host
from .interrupts import PendingInterrupt, Respond, reject_of, restart_of
from .journal import Heard, Journal, MemoryStore
from .loop import Driver
from .messages import Json, Message
from .model import Usage
from .owner import is_gone, owner
from .result import Call, Receipt, Result, calls_by_name
from .spec import RunSpec
from .state import RunState, Status, closed_messages, paused_messages, status_of
from .steps import rejected
from .surroundings import Hooks
from .threads import private_loop
from .tools import Tool

GRACE = 2.0
"""Seconds that a cancelled tool gets to stop."""
TICK = 0.02
"""Seconds between looks at whether it has."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run lives and who is there."""

    host: Host
    attended: bool
    loop: asyncio.AbstractEventLoop | None = None
    """None for the caller's running loop, or the private one where none runs."""


class Run:
    """A run in progress, paused, or ended. Await it for its result."""

    def __init__(
        self, spec: RunSpec, journal: Journal, place: Place, *, answers: Answers = None
    ) -> None:
        self.id = journal.run_id
        self.attended = place.attended
        self._spec = spec
        self._journal = journal
        self._host = place.host
        self._loop = place.loop or _running_loop() or private_loop()
        self._driver: Driver | None = None
        self._task: asyncio.Task[None] | None = None
        self._active = False
        """Whether a driver is at work, or on its way to the loop."""
        self._again = False
        """Whether to drive again once the driver that was stopped has ended."""
        self._stopping = False
        self._error: BaseException | None = None
        self._deciding: set[str] = set()
        """Interrupts that ``answers=`` may answer, but has not looked at yet."""
        self._bad_answers: dict[str, Exception] = {}
        """What was wrong with an answer from ``answers=``, by interrupt id."""
        self._values: dict[str, Any] = {}
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []
        self._lock = threading.RLock()
        self._follower: Follower | None = None
        self._script: Script | None = None
        _handles.add(self)
        if not place.attended and answers is not None:
            self._script = Script(answers)
            journal.subscribe(self._answer)

    # --- what it is

    @property
    def open_events(self) -> list[Interrupted]:
        """What waits for an answer, as it was stored."""
        state = self._journal.state
        return [] if state.outcome else state.pending

    @property
    def stored(self) -> bool:
        """Whether its journal outlives this process."""
        return not isinstance(self._journal.store, MemoryStore)

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

    @property
    def calls(self) -> dict[str, list[Call]]:
        """The tool calls by tool name, in order."""
        return calls_by_name(self._journal.state, self._values)

    @property
    def result(self) -> Result:
        """The result of a run that has ended well.

        Raises:
            RunNotFinished: it has not ended.
            RunError: it failed or was cancelled.
        """
        state = self._journal.state
        match state.outcome:
            case RunCompleted() as done:
                output = self._spec.typed_output(done.output)
                return Result(done.text, output, state.messages, state.usage)
            case None:
                raise RunNotFinished(
                    f"the run is {self.status}, so there is no result yet: `await run` waits for it"
                )
            case _:
                raise self._failure()

    def __repr__(self) -> str:
        return f"<Run of {self.agent}: {self.status}>"

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
        return self._loop

    def wait(self) -> Result:
        """Wait for the result in synchronous code, outside of the run's own loop.

        Raises:
            UsageError: called on the loop that the run needs to go on.
        """
        if _running_loop() is self._loop:
            raise UsageError("this run lives on the loop that runs here: use `await run`")
        while True:  # an answer may have come as the wait ended
            self._host.wait_sync(self, self._when(self._over))
            if self._over():
                return self._outcome()

    async def _wait(self) -> Result:
        while True:  # an answer may have come as the wait ended
            await self._host.wait(self, self._when(self._over))
            if self._over():
                return self._outcome()

    def _over(self) -> bool:
        """Whether awaiting has something to say: the end, or that nobody is there to answer."""
        ended = self._journal.state.outcome is not None or self._error is not None
        return self._is_settled() and (ended or not self.attended)

    def _is_settled(self) -> bool:
        if self._deciding:
            return False
        if self._active:  # a body that waits at the line where it asks keeps its driver
            asks = any(event.kind == "ask" for event in self._journal.state.pending)
            return asks and self.status == "interrupted"
        return self.status != "running" or self._error is not None

    def _outcome(self) -> Result:
        if self._error is not None and self._journal.state.outcome is None:
            raise self._error
        if self.status == "interrupted":
            for interrupt in self.interrupts:
                if interrupt.id in self._bad_answers:
                    raise self._bad_answers[interrupt.id]
            raise HumanInputRequired(
                _needed(self.interrupts, self.open_events),
                interrupts=self.interrupts,
                run_id=self.id,
            )
        return self.result

    def _failure(self) -> BaseException:
        outcome = self._journal.state.outcome
        if isinstance(outcome, RunFailed):
            return self._error or RunError(
                f"{outcome.error}: {outcome.message}", messages=self.messages
            )
        by = outcome.by if isinstance(outcome, RunCancelled) else "somebody"
        return Cancelled(f"the run was cancelled (by {by})", messages=self.messages)

    def _when(self, holds: Callable[[], bool]) -> Future[None]:
        future: Future[None] = Future()
        self._expire_due()
        if self._loop.is_closed():
            if self._active or self._was_cut_off():  # it closed before the driver got there
                self._go_on()
            elif self._error is None:
                self.follow()
        with self._lock:
            if holds():
                future.set_result(None)
            else:
                self._waiting.append((holds, future))
        return future

    def _was_cut_off(self) -> bool:
        """Whether its loop stopped while it went on, but while no body ran, so that it can go on."""
        return self._error is not None and self.status == "running" and not self.executing

    def _notify(self) -> None:
        with self._lock:
            ready = [(h, f) for h, f in self._waiting if h()]
            self._waiting = [w for w in self._waiting if w not in ready]
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

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
            owner=owner(),
        )
        self._journal.append(started)
        self._go_on()
        return self

    def _go_on(self) -> None:
        """Let the driver look at the state again; from any thread."""
        self._active = True
        while True:
            loop = self._home()
            if _running_loop() is loop:
                self._drive()
                return
            try:
                loop.call_soon_threadsafe(self._drive)
            except RuntimeError:
                if not loop.is_closed():
                    raise
            else:
                return

    def _home(self) -> asyncio.AbstractEventLoop:
        """The loop the run lives on; another one once that is closed."""
        with self._lock:
            if self._loop.is_closed():
                self._loop = _running_loop() or private_loop()
                self._driver = self._task = None
                for interrupt_id in self._deciding:
                    self._loop.call_soon_threadsafe(self._answer_now, interrupt_id)
            return self._loop

    def _drive(self) -> None:
        """Start a driver, or wake the one at work. Only ever called on the run's loop."""
        if self._task is not None and not self._task.done() and self._driver is not None:
            self._again |= self._driver.stopped  # a retry came while it was still ending
            self._driver.wake()
            return
        if self._stopping:
            return
        self._active, self._error = True, None
        self._driver = Driver(
            self._spec, self._journal, live=True, hooks=Hooks(self._paused, self._idle)
        )
        self._driver.values = self._values
        self._task = self._loop.create_task(self._driver.drive(), name=f"nbagent run {self.id}")
        _driven.add(self)
        self._task.add_done_callback(self._drive_ended)

    def _drive_ended(self, task: asyncio.Task[None]) -> None:
        error = _error_of(task)
        ended = self._journal.state.outcome is not None
        if error is not None and not (task.cancelled() and (self._stopping or ended)):
            self._error = error
        if task is not self._task:  # an answer came as it ended, and another is at work by now
            return
        self._driver = self._task = None  # a paused run is data
        self._active = False
        _driven.discard(self)
        if self._again:
            self._again, self._error = False, None
            self._drive()
            return
        self._expire_due()
        self._notify()
        if error is None:
            self.follow()

    # --- keeping up with others

    def follow(self) -> Run:
        """Keep up with what others write to this run, and go on with it where nobody else does."""
        if self._journal.store is None or self._journal.state.outcome is not None:
            return self
        with self._lock:
            if self._follower is None:
                self._follower = Follower(self._journal, self)
        self._follower.follow()
        return self

    def take_up(self) -> Run:
        """Follow a run that was read from its store, and watch over what waits in it already."""
        loop = self._home()
        for event in self._journal.state.pending:
            loop.call_soon_threadsafe(self._watch, event)
            if self._script is not None:
                loop.call_soon_threadsafe(self._answer_now, event.id)
        return self.follow()

    def home(self) -> asyncio.AbstractEventLoop:
        """For the follower: the loop the run lives on."""
        return self._home()

    def is_driving(self) -> bool:
        """For the follower: whether this handle's driver is at work, or on its way to the loop."""
        return self._active or self._stopping

    def is_driven_here(self) -> bool:
        """For the follower: whether a driver of this process is at work."""
        return any(run.id == self.id for run in set(_driven))

    def go_on(self) -> None:
        """For the follower: drive, or wake the driver."""
        self._go_on()

    def moved(self, lost: BaseException | None) -> None:
        """For the follower: the state is another, or ``lost`` says why the run cannot go on."""
        self._error = lost
        for event in self._journal.state.pending:
            self._watch(event)
        self._notify()

    def _paused(self, event: Interrupted) -> None:
        """A pause is stored: watch its time, and tell who waits for the run to settle."""
        self._watch(event)
        self._idle()
        self.follow()

    def _idle(self) -> None:
        self._expire_due()
        self._notify()

    def _watch(self, event: Interrupted) -> None:
        if event.expires_at is not None:
            delay = max(0.0, event.expires_at - self._spec.clock())
            self._loop.call_later(delay, self._expire_due)

    def _expire_due(self) -> None:
        """Apply the end of their time to questions, once each, whoever else does it too."""
        now = self._spec.clock()
        for event in [] if self._journal.state.outcome else self._journal.state.pending:
            if event.expires_at is None or event.expires_at > now:
                continue
            if event.on_expire == "fail":
                self._fail_expired(event)
            else:
                with suppress(Conflict, NotPending):
                    self.resolve(event.id, expiry_of(event), by="expiry")

    def _fail_expired(self, event: Interrupted) -> None:
        """Fail the run, as soon as no call runs any more whose result would be lost."""
        text = f"nobody answered {event.tool_name!r} in time"
        failed = RunFailed(at=self._spec.clock(), error="Expired", message=text)

        def decide(state: RunState) -> list[StoredEvent]:
            waits = status_of(state) == "interrupted" and event in state.pending
            return [failed] if waits else []

        messages = self.messages
        if not self._journal.commit(decide):
            return
        self._error = Expired(text, messages=messages)
        self._home().call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        """Leave the bodies that wait for answers which nobody can give any more."""
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            self._task.cancel()
        else:
            self._active = False
        self._notify()

    # --- a message while questions are open

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
            self._home().call_soon_threadsafe(self._abandon)

    def retry(self) -> Run:
        """Go on after a failure, from the last good state: finished calls are kept, answers too.

        Raises:
            UsageError: the run has not failed.
        """
        event = RunRetried(at=self._spec.clock(), by="code", owner=owner())

        def decide(state: RunState) -> list[StoredEvent]:
            if not isinstance(state.outcome, RunFailed):
                raise UsageError(f"only a failed run is retried; this one is {status_of(state)}")
            return [event]

        self._journal.commit(decide)
        self._error = None
        for waiting in self._journal.state.pending:
            self._home().call_soon_threadsafe(self._watch, waiting)
        self._go_on()
        return self

    def fork(self, *, at: PendingInterrupt | str | None = None) -> Run:
        """An independent run that goes on from here, or from when ``at`` was asked.

        What was done is taken over and not repeated; questions get ids of their own.

        Raises:
            NotPending: this run never asked ``at``.
            UsageError: calls were running then of which no result is known.
        """
        now = self._spec.clock()
        at_id = None if at is None else id_of(at)
        events = forked(self._journal.read(), at_id, self._spec.new_id, now)
        journal = Journal(self._spec.new_id(), self._journal.store)
        journal.append(*events)
        run = Run(self._spec, journal, Place(self._host, self.attended, self._loop))
        run._values = dict(self._values)
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
        self, interrupt: PendingInterrupt | str, resolution: AnyResolution, *, by: str = "code"
    ) -> Receipt:
        """Settle an interrupt; safe from any thread.

        Raises:
            InvalidAnswer: it does not fit; nothing was changed.
            NotPending: there is no such interrupt.
            Conflict: it was answered already, and the message says by whom and when; or the run
                has ended or is being cancelled.
            TypeError: ``interrupt`` is neither an interrupt nor an id.
        """
        if by != "expiry":
            self._expire_due()
        stamp = (by, self._spec.clock())

        def decide(state: RunState) -> list[StoredEvent]:
            self._check_takes_answers(state, id_of(interrupt))
            check_in_time(state, id_of(interrupt), stamp)
            event = resolved(state, interrupt, resolution, self._spec.tools, stamp)
            return [event.model_copy(update={"owner": _next_driver(state, event)})]

        asked = {event.id: event for event in self._journal.state.pending}
        written = self._journal.commit(decide)
        self._remember(asked, written[0])
        if self._journal.driver == owner():
            self._go_on()
        else:
            self.follow()
        return Receipt(written[0])

    def _remember(self, asked: Mapping[str, Interrupted], answer: StoredEvent) -> None:
        if isinstance(answer, Resolved) and answer.id in asked:
            state, spec = self._journal.state, self._spec
            memory = remembered_at(state, answer.scope, spec.tools, spec.remembered)
            remember(asked[answer.id], answer.resolution, memory, self.id)

    def why_not_pending(self, interrupt_id: str) -> str:
        """What became of an interrupt that takes no answer (any more): who answered, and when."""
        try:
            check_open(self._journal.state, interrupt_id)
        except (NotPending, Conflict) as error:
            return str(error)
        return f"interrupt {interrupt_id!r} waits for an answer"

    def _check_takes_answers(self, state: RunState, interrupt_id: str) -> None:
        ended = state.outcome is not None
        if (ended or self._stopping) and any(e.id == interrupt_id for e in state.pending):
            now = status_of(state) if ended else "being cancelled"
            raise Conflict(f"the run is {now}: it takes no answers any more")

    def _answer(self, heard: Heard) -> None:
        """Answer from ``answers=`` what nobody is there to be asked."""
        if isinstance(heard, Interrupted):
            self._deciding.add(heard.id)
            self._home().call_soon_threadsafe(partial(self._answer_now, heard.id))

    def _answer_now(self, interrupt_id: str) -> None:
        for interrupt in self.interrupts:
            if interrupt.id == interrupt_id:
                try:
                    resolution = self._script.next(interrupt) if self._script else None
                    if resolution is not None:
                        self.resolve(interrupt, resolution, by="answers=")
                except Exception as error:  # for whoever awaits the run, which stays paused
                    self._bad_answers[interrupt_id] = error
        self._deciding.discard(interrupt_id)
        self._notify()

    # --- stopping

    async def cancel(self, *, by: str = "code") -> None:
        """Stop for good: finished results are kept, a body that won't stop is left behind."""
        await asyncio.shield(asyncio.wrap_future(self.stop(by=by)))

    def stop(self, *, by: str = "code") -> Future[None]:
        """``cancel`` without waiting for it; from any thread."""
        self._stopping = True  # from here on no answer is taken and no driver started
        loop = self._home()
        if loop is not _running_loop() or self._task is not None:
            return asyncio.run_coroutine_threadsafe(self._cancel(by), loop)
        self._cancelled(by)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def _cancel(self, by: str) -> None:
        driver, task = self._driver, self._task
        if driver is None or task is None:
            self._cancelled(by)
            return
        driver.stop()
        task.cancel()
        try:
            await _stopped(driver, task)
        finally:
            self._cancelled(by, driver.running_bodies)

    def _cancelled(self, by: str, still_running: tuple[str, ...] = ()) -> None:
        event = RunCancelled(at=self._spec.clock(), by=by, still_running=still_running)
        self._journal.end(event)
        self._active = False
        self._notify()

    # --- watching

    async def events(self) -> AsyncIterator[Heard]:
        """Everything that happened and happens, until the run has ended.

        Stored events come from the first on; text that nobody read yet comes joined.
        """
        feed = Feed(asyncio.get_running_loop())
        feed.begin(self._journal.subscribe(feed.put))
        if self._loop.is_closed() and self._error is None:
            self.follow()
        try:
            while True:
                heard = await feed.get()
                yield heard
                if isinstance(heard, RunCompleted | RunFailed | RunCancelled):
                    return
        finally:
            self._journal.unsubscribe(feed.put)

    def subscribe(self, listener: Callable[[Heard], None]) -> list[StoredEvent]:
        """Hear what comes from now on, on whatever thread it happens; gives back what came before."""
        return self._journal.subscribe(listener)

    def unsubscribe(self, listener: Callable[[Heard], None]) -> None:
        """Hear no more."""
        self._journal.unsubscribe(listener)

    def view(self) -> None:
        """Show the run here, live."""
        self._host.show(self)

    def _ipython_display_(self) -> None:
        self._host.display(self)


async def _stopped(driver: Driver, task: asyncio.Task[None]) -> None:
    """Wait until a cancelled driver and the bodies it started have stopped, or the grace is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + GRACE
    await asyncio.wait([task], timeout=GRACE)
    for _ in range(int(GRACE / TICK)):  # threads tell nobody that they end
        if not driver.running_bodies or loop.time() >= until:
            return
        await asyncio.sleep(TICK)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if task.cancelled():
        return RunError("the event loop that the run lived on stopped while the run went on")
    return task.exception()


def _next_driver(state: RunState, answer: Resolved) -> str:
    """Who goes on after an answer: who takes it, or the process whose body waits at its line."""
    call = state.calls.get(answer.call_id)
    if call is None or answer.id not in call.asked or is_gone(call.owner) is not False:
        return owner()
    return call.owner


_handles: WeakSet[Run] = WeakSet()
"""The runs that this process holds."""


def open_handles() -> list[Run]:
    """The runs that this process holds."""
    return list(_handles)


_driven: set[Run] = set()
"""Runs with a driver at work: an event loop alone keeps no task alive."""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _needed(interrupts: list[PendingInterrupt], events: list[Interrupted]) -> str:
    schemas = {event.id: event.reply_schema for event in events}
    lines = [
        f"- {i.tool_name or 'the limit'} (interrupt {i.id}), input {dict(i.input)!r}, "
        f"asks: {i.metadata!r}; {_wanted(i, schemas.get(i.id))}"
        for i in interrupts
    ]
    return (
        "the run waits for a person and nobody is attached; it stays paused. Give answers=, or "
        "answer with run.respond / run.restart / run.reject:\n" + "\n".join(lines)
    )


def _wanted(interrupt: PendingInterrupt, schema: Json) -> str:
    if is_approval(interrupt):
        name = interrupt.tool_name
        return f"answers={{{name!r}: True}} approves it, answers={{{name!r}: False}} refuses"
    return f"an answer must fit {schema!r}"
