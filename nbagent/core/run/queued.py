"""Runs that stand in line: what is known of the run before, and what comes of a queued run with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from nbagent.core.base.errors import NbagentError, StoreError, UsageError
from nbagent.core.base.events import RunCancelled, RunCompleted, RunFailed, RunStarted, StoredEvent
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Message
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.state.pause_record import closed_messages
from nbagent.core.state.state import RunState, Status
from nbagent.core.tools.spec import RunSpec

from .generate import beginning
from .writes import Writes

FAILED = "the run before it failed: "


class Held(Protocol):
    """The session of a run, where this process has one."""

    error: BaseException | None
    journal: Journal
    line: Line
    loop: asyncio.AbstractEventLoop

    @property
    def run_id(self) -> str:
        """The run's id."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer."""

    @property
    def wrong_answers(self) -> Mapping[str, Exception]:
        """What was wrong with answers that were given, by interrupt id."""

    @property
    def answers_told(self) -> str:
        """What is to be known of them where one is missing."""

    @property
    def status(self) -> Status:
        """The run's status."""

    @property
    def is_at_work(self) -> bool:
        """Whether a driver is, or something waits to be written."""

    def move(self) -> None:
        """Live on the private loop from now on."""

    def follow(self) -> None:
        """Look at the run, and go on looking while it is needed; from any thread."""

    def is_settled(self) -> bool:
        """Whether nothing can go on without an answer."""

    def is_over(self) -> bool:
        """Whether awaiting it has something to say."""


class Before:
    """The run before, by its session; or by its journal alone, where another process has the run."""

    def __init__(self, journal: Journal, held: Held | None = None) -> None:
        self.journal = journal
        self.held = held

    @property
    def state(self) -> RunState:
        """Where it stands, as far as is known here."""
        return self.journal.state

    @property
    def error(self) -> BaseException | None:
        """Why it cannot go on here."""
        return None if self.held is None else self.held.error

    def stands(self) -> bool:
        """Whether it cannot go on without an answer."""
        if self.state.outcome is not None:
            return False
        return self.state.status == "interrupted" if self.held is None else self.held.is_settled()

    def is_over(self, *, attended: bool) -> bool:
        """Whether nobody here makes it end: it failed to go on, or asks a person and nobody is there."""
        if self.state.outcome is not None:
            return False
        return self.held.is_over() if self.held is not None else not attended and self.stands()


class QueuedRun(Held, Protocol):
    """What a ``Line`` needs of the run that stands in it."""

    spec: RunSpec
    writes: Writes
    error: BaseException | None

    @property
    def state(self) -> RunState:
        """Where the run stands."""

    def beside(self, run_id: str) -> Held | None:
        """The session of another run of this run's store, where this process has one."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""

    def begun(self) -> None:
        """The run has begun: let it go on."""

    def progressed(self) -> None:
        """The run may have come to a stand."""

    def lost(self, why: BaseException | None) -> None:
        """Note why the run cannot go on; called on its loop."""


class Line:
    """A run's place in line: behind the run before, and before those that wait for it."""

    __slots__ = ("_run", "before", "behind")

    def __init__(self, run: QueuedRun) -> None:
        self._run = run
        self.before: Before | None = None
        """The run before, while this one is queued."""
        self.behind: tuple[Held, ...] = ()
        """Runs that are queued behind this one, and told when it moves."""

    def join(self, before: Held) -> None:
        """Stand behind this run from now on."""
        self.before = Before(before.journal, before)
        with _lock:
            before.line.behind += (self._run,)

    def leave(self) -> None:
        """Let go of the run before, once it is not waited for any more; where this one failed, it may be again."""
        state, before = self._run.state, self.before
        if before is None or not state.position:
            return
        if state.behind is not None and not isinstance(state.outcome, RunCancelled):
            return
        self.before = None
        if before.held is not None:
            line = before.held.line
            with _lock:
                line.behind = tuple(one for one in line.behind if one is not self._run)

    def tell(self) -> None:
        """The run has moved: let those behind it look."""
        for one in self.behind:
            one.follow()

    def first(self) -> Before | None:
        """The run that all before this one wait for; None where this one is not queued."""
        first: Before | None = None
        for one in self.here():
            if one.status != "queued" or one.line.before is None:
                break
            first = one.line.before
        return first

    def here(self) -> Iterator[Held]:
        """This run, and those before it as far as this process has them, one behind the other."""
        one: Held | None = self._run
        while one is not None:
            yield one
            before = one.line.before if one.status == "queued" else None
            one = None if before is None else before.held

    def look(self) -> bool:
        """Begin if the run before has ended, or end with it; whether to look again later. Called on the run's loop."""
        run = self._run
        try:
            before = self._found()
        except (StoreError, UsageError) as error:
            run.lost(error)
            return False
        if before.held is not None:
            self._come_of(before)
            return False
        come_of = partial(run.call_soon, partial(self._come_of, before))
        run.writes.attempt(before.journal.look, lambda _: come_of())
        return run.status == "queued" and run.error is None

    def _found(self) -> Before:
        """The run before; one that nobody here has by what its journal says.

        Raises:
            UsageError: its store has no such run.
        """
        run, queued = self._run, self._run.state.behind
        if self.before is None and queued is not None:
            waited_for = run.beside(queued.after)
            if waited_for is not None:
                self.join(waited_for)
            else:
                self.before = Before(Journal(queued.after, run.journal.store))
                self.before.journal.watch(run.follow)
        assert self.before is not None  # whoever asks is queued
        return self.before

    def _come_of(self, before: Before) -> None:
        """Write what comes of this run now; of several handles that do, one counts."""
        run = self._run

        def written(events: Sequence[StoredEvent]) -> None:
            if events and run.state.outcome is None:
                run.begun()
            run.progressed()

        decide = partial(come_of, before=before.state, spec=run.spec)
        run.writes.attempt(partial(run.journal.submit, decide), written)


def run_started(
    spec: RunSpec, messages: Sequence[Message], now: float, after: str | None
) -> RunStarted:
    """The event that begins a run on a history."""
    return RunStarted(
        at=now,
        agent=spec.agent,
        model=spec.model_name,
        messages=list(messages),
        max_turns=spec.max_turns,
        after=after,
        owner=this_process(),
        flow=spec.model is None,
        answer=spec.answer.form,
    )


def come_of(state: RunState, before: RunState, spec: RunSpec) -> list[StoredEvent]:
    """What is written of a queued run, now that the run before stands so; nothing as long as it goes on.

    It begins where that one has ended well, and ends with it where it has not.
    """
    queued, now = state.behind, spec.clock()
    if queued is None or state.outcome is not None:
        return []
    match before.outcome:
        case None:
            return []
        case RunCompleted():
            try:
                begun = beginning(spec, closed_messages(before), queued.said, "refuse")
            except NbagentError as error:
                return [RunFailed(at=now, error=type(error).__name__, message=str(error))]
            return [run_started(spec, begun, now, queued.after)]
        case RunFailed(error=error, message=message):
            first = message if message.startswith(FAILED) else f"{FAILED}{error}: {message}"
            return [RunFailed(at=now, error="RunError", message=first)]
        case RunCancelled():
            return [RunCancelled(at=now, by="the run before it, which was cancelled")]


_lock = threading.Lock()
"""Held for a moment while a run joins a line, or leaves it."""
