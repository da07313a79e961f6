"""The open questions of a store, from all processes, and the place where each run continues after an answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from nbagent.core.agent import Agent
from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import Conflict, InvalidAnswer, NotPending, UsageError
from nbagent.core.base.events import Resolved
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import canonical
from nbagent.core.base.process import has_ended, this_process
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.default import is_missing
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.store import Store
from nbagent.core.registry import known_named
from nbagent.core.run.answers import AnyResolution, check_open, next_driver, tool_at
from nbagent.core.run.describe import asks, bounded
from nbagent.core.run.heartbeat import OtherProcesses
from nbagent.core.run.lost_calls import is_idle
from nbagent.core.run.scripted_answers import as_resolution
from nbagent.core.run.session import find_session
from nbagent.core.tools.tool import Tool

from .catalog import Catalog, Entry
from .opening import answer_stored, open_run

logger = logging.getLogger("nbagent")
Owner: TypeAlias = Agent | Flow[..., Any]
Place: TypeAlias = Literal["here", "there", "nowhere"]
"""The place where a run continues after an answer: this process, another process, or none until it is opened."""


_AT_ONCE = 32
"""Maximum number of answers that are stored at the same time."""


@dataclass(frozen=True, slots=True)
class InboxQuestion:
    """One open question of a store."""

    run: Entry
    interrupt: PendingInterrupt
    at: float
    """The time of the question, in Unix seconds."""
    waiting: InboxEntry = field(repr=False, compare=False)
    """The inbox of the question."""

    def __repr__(self) -> str:
        asked = self.interrupt
        tool = f" of {asked.tool_name}" if asked.tool_name else ""
        shown = bounded(repr(dict(asked.input)))
        return escaped(f"<question{tool} in run {self.run.id!r}, {asks(asked)}, input {shown}>")

    @awaited("asked.answer")
    async def answer(self, value: Any) -> Resolved:
        """Answer the question from code. Its run continues as after an answer in a form; see ``Waiting.continuation``.

        Args:
            value: as in ``answers=``: the answer; for an approval True or False; or ``nb.Respond``,
                ``nb.Restart``, ``nb.Reject``.

        Returns:
            The answer, once it is stored.

        Raises:
            Conflict: the question was already answered; the message says by whom and when.
            NotPending, InvalidAnswer: nothing was changed.
            StoreError: the answer could not be stored.
        """
        return await self.waiting.answer(self, as_resolution(value, self.interrupt), by="code")

    @property
    def key(self) -> tuple[str, str]:
        """The question's key: the ids of its run and its interrupt."""
        return self.run.id, self.interrupt.id

    @property
    def is_for_person(self) -> bool:
        """Whether the question is for a person, not for an outside system."""
        return self.interrupt.expects != "external"


@dataclass(frozen=True, slots=True)
class Continuation:
    """The place where a run continues after its question is answered."""

    place: Place
    process: str = ""
    """The process, if it is not this process; see ``describe_process``."""
    or_here: bool = False
    """True if the run continues in this process if ``process`` no longer drives it."""
    tools: Mapping[str, Any] | None = None
    """The tools of the run's agent, if the run continues in this process."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A run without open questions that no process continues, for example because its process has ended."""

    run: Entry
    here: bool
    """True if this process has an agent that can continue the run."""


@dataclass(frozen=True, slots=True)
class Below:
    """A test of ``where``: whether a value is a number less than ``limit``."""

    limit: float

    def __call__(self, value: Any) -> bool:
        """Whether this value is below the limit."""
        return isinstance(value, int | float) and not isinstance(value, bool) and value < self.limit

    def __repr__(self) -> str:
        return f"below({self.limit!r})"


def below(limit: Any) -> Below:
    """A test for an inbox's ``where``, as in ``batch.questions.where(tool="pay", amount=nb.below(100))``.

    Args:
        limit: values less than this match; text and missing values never match.

    Raises:
        UsageError: ``limit`` is not a number.
    """
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit:  # noqa: PLR0124 - NaN
        raise UsageError(f"nb.below takes a number, got {limit!r:.80}")
    return Below(limit)


class InboxAnswer:
    """The outcome of an answer to many questions."""

    def __init__(self) -> None:
        self.count = 0
        """Number of answered questions."""
        self.refused: list[tuple[InboxQuestion, Exception]] = []
        """Questions that could not be answered, with the error: for example, the answer is invalid, or another
        answer was first."""
        self.later = 0
        """Number of matching questions that are newer than the shown ones, and were not answered."""
        self.standing: asyncio.Task[None] | None = None
        """The task that answers new questions, with ``standing=True``."""
        self.ended = ""
        """The error that ended ``standing``, in words; empty if there was none."""

    def end(self) -> None:
        """Stop answering new questions."""
        if self.standing is not None:
            self.standing.cancel()
            self.standing = None

    def keep(self, answering: Coroutine[Any, Any, None]) -> None:
        """Answer new questions until ``end``, or until an error, which is logged."""
        self.standing = asyncio.create_task(answering)
        self.standing.add_done_callback(self._log_end)

    def _log_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.ended = f"new questions are no longer answered: {type(error).__name__}: {error}"
            self.standing = None
            logger.warning("a standing answer has ended: %s", self.ended)

    def __repr__(self) -> str:
        parts = [f"{self.count:,} answered"]
        if self.refused:
            parts.append(f"{len(self.refused):,} not answered: {self.refused[0][1]}")
        if self.later:
            parts.append(f"{self.later:,} newer question{'s' * (self.later != 1)} not answered")
        if self.standing is not None:
            parts.append("new matching questions are answered until .end()")
        parts += [self.ended] if self.ended else []
        return escaped("; ".join(parts))


def alike(one: InboxQuestion, others: Sequence[InboxQuestion]) -> dict[str, Any]:
    """The inputs whose values repeat in the questions of ``one``'s tool, with the values of ``one``, or ``ABSENT``.

    Values repeat if there are at least twice as many questions as different values. Values that differ from row
    to row do not: ids, amounts and free text. Values are equal if their canonical JSON is.
    """
    same = [
        each.interrupt.input
        for each in others
        if each.interrupt.tool_name == one.interrupt.tool_name
    ]
    shared = {}
    for name in {name: None for given in (one.interrupt.input, *same) for name in given}:
        values = {canonical(given[name]) if name in given else ABSENT for given in same}
        if 2 * len(values) <= len(same):
            shared[name] = one.interrupt.input.get(name, ABSENT)
    return shared


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()
"""The value of an input that a question does not have."""


def has_input(name: str, wanted: Any) -> Callable[[InboxQuestion], bool]:
    """A test for ``where``: whether a question has an input with this value.

    Args:
        name: the input's name, which may be any text.
        wanted: a function of the value; or a value with the same canonical JSON, so that ``True``, ``1``, ``1.0``
            and ``"1"`` all differ, and the order of an object's keys does not count; or ``ABSENT``.

    Raises:
        UsageError: ``wanted`` is neither a function nor JSON.
    """
    if wanted is ABSENT:
        return lambda one: name not in one.interrupt.input
    if callable(wanted):
        return lambda one: name in one.interrupt.input and bool(wanted(one.interrupt.input[name]))
    try:
        text = canonical(wanted)
    except (TypeError, ValueError):
        raise UsageError(
            f"inbox.where(): the input {name!r} takes a JSON value or a function of the value, got "
            f"{type(wanted).__name__} {wanted!r:.80}"
        ) from None
    return lambda one: name in one.interrupt.input and canonical(one.interrupt.input[name]) == text


class InboxEntry:
    """The open questions of a store; only runs that have grown are read again.

    Args:
        store: the store.
        agents: the agents that continue runs in this process, instead of other agents with the same names.
        agent: only questions of runs of this agent.
        tool: only questions of this tool.
        older_than: only questions that were asked at least this many seconds ago.
        tests: functions of a question; only questions for which all of them return a true value.
        runs: only questions of runs whose ids start with this text; no other runs are read.
        is_own: a function of such a run's journal; only questions of runs for which it is true.
        on_answered: called after answers are stored, to continue the runs, as a batch does. None to continue each run
            as ``continuation`` says.
    """

    def __init__(  # noqa: PLR0913 - keyword-only, one for each filter
        self,
        store: Store,
        *,
        agents: Sequence[Owner] = (),
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | None = None,
        tests: Sequence[Callable[[InboxQuestion], object]] = (),
        runs: str = "",
        is_own: Callable[[Journal], bool] | None = None,
        on_answered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.catalog = Catalog(store, prefix=runs)
        self._on_answered, self._is_own = on_answered, is_own
        self.agent, self.tool, self.older_than, self.tests = agent, tool, older_than, tuple(tests)
        self.agents = tuple(agents)
        self._journals: dict[str, Journal] = {}
        """The journals of runs that have an open question, or had one since the first look."""
        self._working: list[Entry] = []
        """The running runs without open questions."""
        self.all: list[InboxQuestion] = []
        """All open questions, oldest first, before filters."""

    def where(
        self,
        *tests: Callable[[InboxQuestion], object],
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | None = None,
    ) -> InboxEntry:
        """An inbox of the same store with more filters. A question must match all filters, old and new."""
        for name, new in (("agent", agent), ("tool", tool)):
            known = getattr(self, name)
            if new is not None and known not in (None, new):
                tests += (lambda _: False,)
        ages = [age for age in (self.older_than, older_than) if age is not None]
        return InboxEntry(
            self.catalog.store,
            agents=self.agents,
            agent=self.agent or agent,
            tool=self.tool or tool,
            older_than=max(ages, default=None),
            tests=(*self.tests, *tests),
            runs=self.catalog.prefix,
            is_own=self._is_own,
            on_answered=self._on_answered,
        )

    @property
    def is_missing(self) -> bool:
        """Whether the store's file does not exist yet."""
        return is_missing(self.catalog.store)

    @property
    def has_changed(self) -> bool:
        """Whether to look again. Fast.

        Raises:
            StoreError: the store cannot be read.
        """
        return self.catalog.has_changed

    def look(self) -> list[InboxQuestion]:
        """Read the store and return the open questions, oldest first. Not for an event loop: reading may take long.

        Raises:
            StoreError: the store cannot be read.
        """
        entries = self.catalog.look(only_open=True)
        self.all = sorted(
            (one for entry in entries for one in self._questions(entry)), key=lambda one: one.at
        )
        self._working = [one for one in entries if one.status == "running" and not one.asks]
        return self.chosen()

    def chosen(self) -> list[InboxQuestion]:
        """The open questions of the last look that match the filters."""
        return [
            one
            for one in self.all
            if self.agent in (None, one.run.agent, *one.interrupt.path[:-1])
            and self.tool in (None, one.interrupt.tool_name)
            and (self.older_than is None or time.time() - one.at >= self.older_than)
            and all(test(one) for test in self.tests)
        ]

    def stranded(self) -> list[Stranded]:
        """The runs of the last look that no process continues; not for an event loop, like ``look``."""
        return [
            Stranded(one, self._owner(one.agent) is not None)
            for one in self._working
            if self.agent in (None, one.agent) and self._is_left(one)
        ]

    async def continue_stranded(self, stranded: Stranded) -> None:
        """Continue a stranded run in this process.

        The run asks about calls that were running when its last process ended. Raises like ``open_run``.
        """
        run, store = stranded.run, self.catalog.store
        await open_run(run.id, agent=self._owner(run.agent), store=store, show=False)

    def continuation(self, asked: InboxQuestion) -> Continuation:
        """The place where the run of a question continues after an answer, as far as is known now."""
        journal, owner = self._journals[asked.run.id], self._owner(asked.run.agent)
        event = next((e for e in journal.state.pending if e.id == asked.interrupt.id), None)
        # the process in which a body waits for the answer; this process if there is none
        waits_in = this_process() if event is None else next_driver(journal.state, event)
        if waits_in != this_process():
            return Continuation("there", waits_in)
        driver, session = journal.driver, find_session(asked.run.id, journal.store)
        if driver not in ("", this_process()) and not self._has_ended(driver, journal):
            may_be_taken = journal.is_vacant or is_idle(journal.state)
            has_agent = owner is not None or session is not None
            return Continuation("there", driver, or_here=may_be_taken and has_agent)
        if session is not None:
            return Continuation("here", tools=session.spec.tools)
        return Continuation("nowhere") if owner is None else Continuation("here", tools=owner.tools)

    def is_earlier(self, asked: InboxQuestion) -> bool:
        """Whether the cell of the question's run has started a later run in another kernel, so both may do the work."""
        return self.catalog.started_since(asked.run)

    def tool_of(
        self, asked: InboxQuestion, tools: Mapping[str, Any] | None = None
    ) -> Tool[..., Any] | None:
        """The tool of a question, from ``tools`` or from the run's agent in this process."""
        if tools is None:
            owner = self._owner(asked.run.agent)
            tools = {} if owner is None else owner.tools
        state = self._journals[asked.run.id].state
        found = next((one for one in state.pending if one.id == asked.interrupt.id), None)
        return None if found is None else tool_at(state, found.scope, found, tools)

    def settled(self, asked: InboxQuestion) -> Resolved | None:
        """The answer to a question that is no longer open; None if the question was never answered."""
        journal = self._journals.get(asked.run.id)
        return None if journal is None else journal.state.settled.get(asked.interrupt.id)

    async def answer(self, asked: InboxQuestion, resolution: AnyResolution, *, by: str) -> Resolved:
        """Answer a question. Its run continues according to ``continuation``. Raises like ``answer_stored``."""
        answer = await self._answer(asked, resolution, by=by)
        if self._on_answered is not None:
            await self._on_answered()
        return answer

    async def _answer(
        self, asked: InboxQuestion, resolution: AnyResolution, *, by: str
    ) -> Resolved:
        journal = self._journals[asked.run.id]
        await run_in_thread(journal.catch_up)
        event = check_open(journal.state, asked.interrupt.id)
        if (event.digest, event.input) != (asked.interrupt.digest, asked.interrupt.input):
            raise NotPending("The question has changed since it was shown")
        owner, where = self._owner(asked.run.agent), self.continuation(asked).place
        is_kept = self._on_answered is not None
        if is_kept:
            session = find_session(journal.run_id, journal.store)
            is_kept = session is None or not session.is_active
        agent = owner if where == "here" and not is_kept else None
        journal_only, interrupt_id = where == "there" or is_kept, asked.interrupt.id
        answer = await answer_stored(
            journal, interrupt_id, resolution, by=by, agent=agent, journal_only=journal_only
        )
        is_due = not answer.owner and journal.state.status == "running"
        # another process may take the run first
        if where == "there" and owner is not None and is_due:
            await open_run(journal.run_id, agent=owner, store=journal.store, show=False)
        return answer

    async def answer_each(
        self,
        chosen: Sequence[InboxQuestion],
        means: Callable[[PendingInterrupt], AnyResolution],
        *,
        by: str,
        into: InboxAnswer,
    ) -> None:
        """Answer several questions, some of them at the same time. Failures are added to ``into.refused``.

        Args:
            chosen: the questions.
            means: a function that returns the resolution for a question.
            by: the source of the answer.
            into: the outcome to update.

        Raises:
            InvalidAnswer: the first answer was invalid, and no question was answered.
            StoreError: an answer could not be stored; the other answers are stored.
        """
        slots = asyncio.Semaphore(_AT_ONCE)

        async def answer(one: InboxQuestion) -> None:
            async with slots:
                try:
                    await self._answer(one, means(one.interrupt), by=by)
                except (Conflict, NotPending, InvalidAnswer) as error:
                    into.refused.append((one, error))
                else:
                    into.count += 1

        ends = await asyncio.gather(*map(answer, chosen), return_exceptions=True)
        if chosen and self._on_answered is not None:
            await self._on_answered()
        for error in filter(None, ends):
            raise error
        if not into.count and into.refused and isinstance(into.refused[0][1], InvalidAnswer):
            raise into.refused[0][1]

    def _owner(self, name: str) -> Owner | None:
        given = next((one for one in self.agents if one.name == name), None)
        return given or known_named(Agent, name) or known_named(Flow, name)

    def _questions(self, entry: Entry) -> Iterable[InboxQuestion]:
        journal = self.catalog.journal(entry.id)
        if journal is None or not entry.asks:
            return
        if self._is_own is not None and not self._is_own(journal):
            return
        self._journals[entry.id] = journal
        times = {event.id: event.at for event in journal.state.pending}
        for interrupt in entry.asks:
            yield InboxQuestion(entry, interrupt, times.get(interrupt.id, entry.updated), self)

    def _is_left(self, one: Entry) -> bool:
        journal = self.catalog.journal(one.id)
        if journal is None or find_session(one.id, journal.store) is not None:
            return False
        return one.driver in ("", this_process()) or self._has_ended(one.driver, journal)

    def _has_ended(self, process: str, journal: Journal) -> bool:
        known = has_ended(process)
        if known is None:
            known = OtherProcesses(journal.store, journal.run_id).has_ended(process)
        return known
