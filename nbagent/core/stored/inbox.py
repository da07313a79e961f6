"""What waits for an answer in a store, whoever asked it, and where its run goes on once it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.known import known_named
from nbagent.core.run.answers import AnyResolution, check_open, next_driver, tool_at
from nbagent.core.run.follow import is_idle
from nbagent.core.run.heartbeat import Others
from nbagent.core.run.scripted_answers import as_resolution
from nbagent.core.run.session import held
from nbagent.core.tools.tool import Tool

from .catalog import Catalog, Entry
from .opening import answer_stored, open_run

Owner: TypeAlias = Agent | Flow[..., Any]
Place: TypeAlias = Literal["here", "there", "kept"]
"""Where a run goes on once it is answered: in this process, in the one that it lives in, or nowhere yet."""


_AT_ONCE = 32
"""Answers that are on their way to the store at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question that waits in a store."""

    run: Entry
    interrupt: PendingInterrupt
    at: float
    """When it was asked, in Unix seconds."""
    waiting: Waiting = field(repr=False, compare=False)
    """Whose question it is."""

    @awaited("asked.answer")
    async def answer(self, value: Any) -> Resolved:
        """Answer it from code; its run goes on in the process that it lives in, or here, as by a form.

        Args:
            value: as in ``answers=``: the answer; for an approval True or False; or ``nb.Respond``, ``nb.Restart``,
                ``nb.Reject``, which say what becomes of the call.

        Returns:
            The answer, once it is stored.

        Raises:
            Conflict: it was answered already, and the message says by whom and when.
            NotPending, InvalidAnswer: nothing was changed.
            StoreError: it could not be stored.
        """
        return await self.waiting.answer(self, as_resolution(value, self.interrupt), by="code")

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by: the run's id, and the interrupt's."""
        return self.run.id, self.interrupt.id

    @property
    def by_person(self) -> bool:
        """Whether a person is asked, and no outside system."""
        return self.interrupt.expects != "external"


@dataclass(frozen=True, slots=True)
class GoesOn:
    """Where a run goes on once a question of it is answered."""

    place: Place
    process: str = ""
    """Which process, where it is another one; see ``describe_process``."""
    or_here: bool = False
    """Whether it goes on here where that process has let go of it."""
    tools: Mapping[str, Any] | None = None
    """Its agent's tools, where it goes on here."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A run that asks nothing and that nobody goes on with: it was answered, or its process ended while it worked."""

    run: Entry
    here: bool
    """Whether this process has an agent that goes on with it."""


@dataclass(frozen=True, slots=True)
class Below:
    """A test of ``where``: whether a number is less than ``limit``; what is no number is not."""

    limit: float

    def __call__(self, value: Any) -> bool:
        """Whether this value is."""
        return isinstance(value, int | float) and not isinstance(value, bool) and value < self.limit

    def __repr__(self) -> str:
        return f"below({self.limit!r})"


def below(limit: Any) -> Below:
    """A test of an inbox's ``where``: ``batch.questions.where(tool="pay", amount=nb.below(100))``.

    Args:
        limit: values less than this fit; texts and missing values never do.

    Raises:
        UsageError: it is no number.
    """
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit:  # noqa: PLR0124 - NaN
        raise UsageError(f"nb.below takes a number, got {limit!r:.80}")
    return Below(limit)


class Answered:
    """What an answer to many questions came to."""

    def __init__(self) -> None:
        self.count = 0
        """How many it answered."""
        self.refused: list[tuple[Asked, Exception]] = []
        """Those that did not take it, and why: somebody else was first, or it does not fit."""
        self.later = 0
        """How many questions fit that were asked after those that were shown, and are left as they were."""
        self.standing: asyncio.Task[None] | None = None
        """What goes on to answer those that come, with ``standing=True``."""

    def end(self) -> None:
        """Answer no more of those that come."""
        if self.standing is not None:
            self.standing.cancel()
            self.standing = None

    def __repr__(self) -> str:
        parts = [f"{self.count:,} answered"]
        if self.refused:
            parts.append(f"{len(self.refused):,} not answered: {self.refused[0][1]}")
        if self.later:
            parts.append(f"{self.later:,} newer question{'s' * (self.later != 1)} not answered")
        if self.standing is not None:
            parts.append("new matching questions are answered until .end()")
        return escaped("; ".join(parts))


def alike(one: Asked, others: Sequence[Asked]) -> dict[str, Any]:
    """The inputs that ``one`` shares with questions that are like it.

    An input counts where its values come back: among the questions of its tool there are at least twice as many
    questions as different values of it. What differs from row to row, such as ids, amounts and free text, does not.
    """
    same = [each for each in others if each.interrupt.tool_name == one.interrupt.tool_name]
    shared = {}
    for name, value in one.interrupt.input.items():
        values = {canonical(each.interrupt.input.get(name)) for each in same}
        if 2 * len(values) <= len(same):
            shared[name] = value
    return shared


class Waiting:
    """The questions of a store that wait, read again only where runs have grown.

    Args:
        store: whose.
        agents: who goes on with runs here, before those that this process knows by name.
        agent: only questions of runs of this agent.
        tool: only questions of this tool.
        older_than: only what was asked at least so many seconds ago.
        tests: only the questions of which each of these is true.
        runs: only questions of runs whose ids begin so; no others are read.
        by_record: whether an answer is kept for whoever goes on with these runs as there is room, and none goes on
            here at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        agents: Sequence[Owner] = (),
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | None = None,
        tests: Sequence[Callable[[Asked], object]] = (),
        runs: str = "",
        by_record: bool = False,
    ) -> None:
        self.catalog = Catalog(store, prefix=runs)
        self._by_record = by_record
        self.agent, self.tool, self.older_than, self.tests = agent, tool, older_than, tuple(tests)
        self.agents = tuple(agents)
        self._journals: dict[str, Journal] = {}
        """Of the runs that ask, or have asked since the first look."""
        self._looked = False
        self._working: list[Entry] = []
        """The runs that have not ended and ask nothing."""
        self.all: list[Asked] = []
        """Everything that waits, oldest first, whatever is looked for."""

    def where(
        self,
        *tests: Callable[[Asked], object],
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | None = None,
    ) -> Waiting:
        """The same questions, with less of them looked for; of what two say, the narrower one counts."""
        for name, new in (("agent", agent), ("tool", tool)):
            known = getattr(self, name)
            if new is not None and known not in (None, new):
                tests += (lambda _: False,)
        ages = [age for age in (self.older_than, older_than) if age is not None]
        return Waiting(
            self.catalog.store,
            agents=self.agents,
            agent=self.agent or agent,
            tool=self.tool or tool,
            older_than=max(ages, default=None),
            tests=(*self.tests, *tests),
            runs=self.catalog.prefix,
            by_record=self._by_record,
        )

    @property
    def is_missing(self) -> bool:
        """Whether there is no file of them yet."""
        return is_missing(self.catalog.store)

    @property
    def has_changed(self) -> bool:
        """Whether to look again; cheap.

        Raises:
            StoreError: the store cannot be read.
        """
        return not self._looked or self.catalog.has_changed

    def look(self) -> list[Asked]:
        """What waits now, oldest first; not for an event loop, as it may read for long.

        Raises:
            StoreError: the store cannot be read.
        """
        entries = self.catalog.look(only_open=True)
        self.all = sorted(
            (one for entry in entries for one in self._questions(entry)), key=lambda one: one.at
        )
        self._working = [one for one in entries if one.status == "running" and not one.asks]
        self._looked = True
        return self.chosen()

    def chosen(self) -> list[Asked]:
        """Of what waited at the last look, what is looked for."""
        return [one for one in self.all if self._is_looked_for(one)]

    def stranded(self) -> list[Stranded]:
        """The runs of the last look that nobody goes on with now; not for an event loop, as ``look``."""
        return [
            Stranded(one, self._owner(one.agent) is not None)
            for one in self._working
            if self.agent in (None, one.agent) and self._is_left(one)
        ]

    async def continue_run(self, stranded: Stranded) -> None:
        """Go on with it here; what ran when its process ended is asked about then. Raises as ``open_run`` does."""
        run, store = stranded.run, self.catalog.store
        await open_run(run.id, agent=self._owner(run.agent), store=store, show=False)

    def continuation(self, asked: Asked) -> GoesOn:
        """Where its run goes on once it is answered, as far as can be known now."""
        journal, owner = self._journals[asked.run.id], self._owner(asked.run.agent)
        waits_in = _driver_after(journal, asked)
        if waits_in != this_process():
            return GoesOn("there", waits_in)
        driver, session = journal.driver, held(asked.run.id, journal.store)
        if driver not in ("", this_process()) and not self._has_ended(driver, journal):
            may_be_taken = journal.is_vacant or is_idle(journal.state)
            has_agent = owner is not None or session is not None
            return GoesOn("there", driver, or_here=may_be_taken and has_agent)
        if session is not None:
            return GoesOn("here", tools=session.spec.tools)
        return GoesOn("kept") if owner is None else GoesOn("here", tools=owner.tools)

    def is_earlier(self, asked: Asked) -> bool:
        """Whether its cell has begun another run since, in a later kernel: to do both may do the work twice."""
        return self.catalog.started_since(asked.run)

    def tool_of(
        self, asked: Asked, tools: Mapping[str, Any] | None = None
    ) -> Tool[..., Any] | None:
        """The tool that asks, where these tools have it, or those of an agent that this process knows."""
        if tools is None:
            owner = self._owner(asked.run.agent)
            tools = {} if owner is None else owner.tools
        state = self._journals[asked.run.id].state
        found = next((one for one in state.pending if one.id == asked.interrupt.id), None)
        return None if found is None else tool_at(state, found.scope, found, tools)

    def settled(self, asked: Asked) -> Resolved | None:
        """How a question was answered that does not wait any more; None where it never was."""
        journal = self._journals.get(asked.run.id)
        return None if journal is None else journal.state.settled.get(asked.interrupt.id)

    async def answer(self, asked: Asked, resolution: AnyResolution, *, by: str) -> Resolved:
        """Answer it; the run goes on where ``goes_on`` says. Raises as ``answer_stored`` does."""
        journal = self._journals[asked.run.id]
        await run_in_thread(journal.catch_up)
        check_open(journal.state, asked.interrupt.id)
        owner, where = self._owner(asked.run.agent), self.continuation(asked).place
        session = held(journal.run_id, journal.store) if self._by_record else None
        is_kept = self._by_record and not (session is not None and session.is_active)
        agent = owner if where == "here" and not is_kept else None
        is_there, interrupt_id = where == "there" or is_kept, asked.interrupt.id
        answer = await answer_stored(
            journal, interrupt_id, resolution, by=by, agent=agent, by_record=is_there
        )
        is_due = not answer.owner and journal.state.status == "running"
        if where == "there" and owner is not None and is_due:  # by whoever takes it first
            await open_run(journal.run_id, agent=owner, store=journal.store, show=False)
        return answer

    async def answer_each(
        self,
        chosen: Sequence[Asked],
        means: Callable[[PendingInterrupt], AnyResolution],
        *,
        by: str,
        into: Answered,
    ) -> None:
        """Answer each of these singly, several at a time; who was first elsewhere, and what does not fit, is noted.

        Args:
            chosen: which.
            means: what the answer means for a question.
            by: who answers.
            into: what it came to.

        Raises:
            InvalidAnswer: it fits none of them; nothing was changed.
            StoreError: it could not be stored; what was answered before is.
        """
        room = asyncio.Semaphore(_AT_ONCE)

        async def answer(one: Asked) -> None:
            async with room:
                try:
                    await self.answer(one, means(one.interrupt), by=by)
                except (Conflict, NotPending, InvalidAnswer) as error:
                    into.refused.append((one, error))
                else:
                    into.count += 1

        await asyncio.gather(*(answer(one) for one in chosen))
        if not into.count and into.refused and isinstance(into.refused[0][1], InvalidAnswer):
            raise into.refused[0][1]

    def _owner(self, name: str) -> Owner | None:
        given = next((one for one in self.agents if one.name == name), None)
        return given or known_named(Agent, name) or known_named(Flow, name)

    def _questions(self, entry: Entry) -> Iterable[Asked]:
        journal = self.catalog.journal(entry.id)
        if journal is None or not entry.asks:
            return
        self._journals[entry.id] = journal
        times = {event.id: event.at for event in journal.state.pending}
        for interrupt in entry.asks:
            yield Asked(entry, interrupt, times.get(interrupt.id, entry.moved), self)

    def _is_looked_for(self, one: Asked) -> bool:
        return (
            self.agent in (None, one.run.agent, *one.interrupt.path[:-1])
            and self.tool in (None, one.interrupt.tool_name)
            and (self.older_than is None or time.time() - one.at >= self.older_than)
            and all(test(one) for test in self.tests)
        )

    def _is_left(self, one: Entry) -> bool:
        journal = self.catalog.journal(one.id)
        if journal is None or held(one.id, journal.store) is not None:
            return False
        return one.driver in ("", this_process()) or self._has_ended(one.driver, journal)

    def _has_ended(self, process: str, journal: Journal) -> bool:
        known = has_ended(process)
        return Others(journal.store, journal.run_id).has_ended(process) if known is None else known


def _driver_after(journal: Journal, asked: Asked) -> str:
    """Who goes on where a body waits at its line; this process where none does."""
    event = next((one for one in journal.state.pending if one.id == asked.interrupt.id), None)
    return this_process() if event is None else next_driver(journal.state, event)
