"""``nb.map``: one agent over many rows, each a run of its own, with one budget, one card, and one list of questions."""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
import weakref
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_budget, checked_store, checked_text, checked_turns
from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import HumanInputRequired, RunError, ToolFailed, UsageError, suggest
from nbagent.core.base.events import RunCompleted
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import Usage
from nbagent.core.call.threads import private_loop, run_in_thread, running_loop
from nbagent.core.flow import flow
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import Kept, current_store, is_same_place
from nbagent.core.journal.journal import Store
from nbagent.core.journal.rows import Archive
from nbagent.core.known import known_named
from nbagent.core.run.host import ScriptHost, current_host
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.stored.inbox import Waiting
from nbagent.core.stored.opening import open_run
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.spec import Budget, check_cost

from .frame import framed
from .listing import Listed, Row, ends_of, listed, record_id
from .rows import source_of
from .work import ENDED, Asked, Work

logger = logging.getLogger("nbagent")

_ID = re.compile(r"[\w.+-]{1,60}")
EVERY = 1.0
"""Seconds between looks at a batch that another process goes on with."""
COUNTED = ("completed", "interrupted", "running", "stuck", "failed", "cancelled")
_SAID = {
    "completed": "done",
    "interrupted": "waiting",
    "running": "running",
    "stuck": "stuck",
    "failed": "failed",
    "cancelled": "stopped",
}


class BatchRow:
    """One row of a batch, as it stands whenever it is asked."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: Row) -> None:
        self._batch, self._row = batch, row

    @property
    def _now(self) -> Row:
        return work_of(self._batch).rows.get(self._row.key, self._row)

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return self._row.key

    @property
    def number(self) -> int:
        """Its place among the rows, from 0."""
        return self._now.number

    @property
    def run_id(self) -> str:
        """What its run is found by in the store."""
        return self._now.run_id

    @property
    def status(self) -> str:
        """As ``run.status`` says it."""
        return self._now.status

    @property
    def asks(self) -> tuple[str, ...]:
        """The tools that wait for an answer."""
        return self._now.asks

    @property
    def error(self) -> str:
        """Why it failed; empty where it has not."""
        return self._now.error

    @property
    def stuck(self) -> str:
        """Why it is stuck, and what to do: its call is under way in a process that does not respond; else empty."""
        return work_of(self._batch).stuck.get(self.key, "")

    @property
    def usage(self) -> Usage:
        """Tokens and cost, as its run last came to a stand."""
        return self._now.usage

    @property
    def output(self) -> Any:
        """What it came to, read from the store: as ``output_type``, else the text; None where it has not ended well.

        Raises:
            StoreError: the store cannot be read.
        """
        batch, row = self._batch, self._now
        if row.status != "completed":
            return None
        last = batch.store.read(row.run_id, max(0, row.length - 1))[-1]
        if not isinstance(last, RunCompleted):
            return None
        spec = work_of(batch).spec
        return last.text if spec.output_type is None else spec.typed_output(last.output)

    @awaited("row.open")
    async def open(self, **options: Any) -> Run:
        """Its run, and its card; takes the options of ``nb.open_run``."""
        batch = self._batch
        agent = work_of(batch).agent
        return await open_run(self.run_id, agent=agent, store=batch.store, **options)

    def __repr__(self) -> str:
        row = self._now
        more = f": {row.error:.120}" if row.error else f" {', '.join(row.asks)}" if row.asks else ""
        said = (
            f"stuck: {self.stuck}" if self.stuck else f"{_SAID.get(row.status, row.status)}{more}"
        )
        return escaped(f"<row {row.key!r} of {self._batch.id}: {said}>")


class Batch:
    """One agent over many rows: await it, read it row by row, answer its questions, pause, stop or resume it.

    Made by ``nb.map`` and ``nb.open_batch``.
    """

    def __init__(self, work: Work, *, attended: bool) -> None:
        self._work = work
        self._host = current_host()
        on_loop = (
            None if work.asked.background else self._host.loop(attended=attended) or running_loop()
        )
        self._loop = on_loop or private_loop()
        self._next: Work | None = None
        """What goes on with it once what is under way has come to a stand."""
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._is_begun = False
        self._was_awaited = False
        self._follows = False
        """Whether what becomes of it in another process is still to be read."""
        self._task: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._flow = _flow_of(self)
        _batches.add(self)

    # --- what can be read off it

    @property
    def id(self) -> str:
        """What it is found by, with ``nb.open_batch``; its rows are runs ``id:key``."""
        return self._work.batch

    @property
    def store(self) -> Store:
        """Where its rows are kept."""
        return self._work.store

    @property
    def agent(self) -> str:
        """The agent's name."""
        name: str = self._work.agent.name
        return name

    @property
    def status(self) -> str:
        """``starting``, ``running``, ``waiting`` (only people can help), ``paused``, or how it ended, as of a run."""
        if self._error is not None:
            return "failed"
        if not self._is_begun:
            return "starting"
        if self._run is None:
            return "completed"
        ended = session_of(self._run).state.outcome
        if ended is not None:
            return str(self._run.status)
        if session_of(self._run).error is not None:
            return "failed"
        if self._work.is_paused:
            return "paused"
        return "waiting" if self._work.is_waiting() else "running"

    @property
    def error(self) -> BaseException | None:
        """Why it has ended before all rows have; None where it has not."""
        if self._error is not None or self._run is None:
            return self._error
        session = session_of(self._run)
        if session.state.status == "failed":
            return self._work.failure or self._run_error()
        return session.error if session.state.outcome is None else None

    def _run_error(self) -> RunError:
        """Why its record failed, where that was in another process."""
        assert self._run is not None  # it is asked of one that failed
        failed = session_of(self._run).state.outcome
        told = getattr(failed, "message", "")
        return RunError(told.partition(" failed: ")[2] or told)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows stand how: by the status of their runs, and ``left`` of those that have not begun.

        ``stuck`` are rows of which a call is under way in another process that lives and does not respond. Wait for
        it, or take the row over: ``await batch[key].open(take_over=True)``.
        """
        counts = {name: self._work.counts[name] for name in COUNTED}
        counts["stuck"] = len(self._work.stuck)
        counts["running"] += self._work.counts["queued"] - counts["stuck"]
        left = self._work.left
        return counts if left is None else {**counts, "left": left}

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all rows that came to a stand, those of earlier processes included."""
        return self._work.usage

    @property
    def cost(self) -> float | None:
        """US dollars of all rows that came to a stand; None where a part is not known."""
        return self._work.usage.cost

    def __len__(self) -> int:
        total = self._work.total
        return len(self._work.rows) if total is None else total

    def __bool__(self) -> bool:
        return True  # one of no rows is still one

    def __contains__(self, key: object) -> bool:
        return str(key) in self._work.rows

    def __getitem__(self, key: Any) -> BatchRow:
        """The row with this key, once it has begun."""
        row = self._work.rows.get(str(key))
        if row is None:
            hint = suggest(str(key), list(self._work.rows)[:1000])
            raise KeyError(f"The batch {self.id!r} has not started a row {str(key)!r:.80}{hint}")
        return BatchRow(self, row)

    @property
    def rows(self) -> list[BatchRow]:
        """The rows that have begun, in the order of the input."""
        return [BatchRow(self, row) for row in _in_order(self._work)]

    @property
    def failures(self) -> list[BatchRow]:
        """The rows that have failed, in the order of the input."""
        return [BatchRow(self, row) for row in _in_order(self._work) if row.status == "failed"]

    @property
    def questions(self) -> Any:
        """What its rows ask people, as ``nb.inbox`` gives it: to be looked at, chosen from and answered."""
        waiting = Waiting(self.store, agents=[self._work.agent], runs=f"{self.id}:", by_record=True)
        return hooks.inbox_of(waiting, self.id, self.answered)

    def to_frame(self) -> Any:
        """A row for each row of the input, with status, output, error, cost and run.

        A DataFrame that was the input is given back with these columns added, in its own order and with its index;
        the fields of ``output_type=`` are columns. A name that it has already gets ``_of_run``. Of anything else it
        is a pandas DataFrame by key.

        Raises:
            UsageError: pandas is not installed.
            StoreError: the store cannot be read.
        """
        work = self._work
        return framed(work.rows, ends_of(self.store, f"{self.id}:"), work.asked.source, work.agent)

    def __repr__(self) -> str:
        return escaped(f"<Batch {self.id}: {self.says()}>")

    def says(self) -> str:
        """Where it stands, in words."""
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error}"
        counts = self.counts
        total, cost = self._work.total, self.usage.known_cost
        of = f"{counts['completed']:,}" + ("" if total is None else f" of {total:,}") + " done"
        more = [f"{counts[name]:,} {_SAID[name]}" for name in COUNTED[1:] if counts[name]]
        error = self.error
        return ", ".join(
            [of, *more, *([f"${cost:,.4f}"] if cost else [])]
            + (["paused"] if self.status == "paused" else [])
            + ([f"ended by {type(error).__name__}: {error}"] if error is not None else [])
        )

    # --- waiting

    def __await__(self) -> Generator[Any, None, Batch]:
        return self._wait().__await__()

    async def _wait(self) -> Batch:
        await self._until_begun()
        while True:
            over = self._work.when(self.is_over)
            if self._run is not None:
                with session_of(self._run).stopped_by_keyboard():
                    await self._host.wait(self._run, over)
            else:
                await asyncio.wrap_future(over)
            if self.is_over():
                return self._outcome()

    async def _until_begun(self) -> None:
        self._was_awaited = True
        await asyncio.wrap_future(self._work.when(lambda: self._is_begun))

    def wait(self) -> Batch:
        """Wait in synchronous code, outside of the loop that its rows live on.

        Raises:
            UsageError: called on that loop.
            HumanInputRequired: only people can help, and nobody is there.
            RunError: it ended before all rows have.
        """
        if running_loop() is self._loop:
            raise UsageError("This batch uses the event loop of this code. Use `await batch`")
        self._was_awaited = True
        self._work.when(lambda: self._is_begun).result()
        while True:
            over = self._work.when(self.is_over)
            if self._run is not None:
                with session_of(self._run).stopped_by_keyboard():
                    self._host.wait_sync(self._run, over)
            over.result()
            if self.is_over():
                return self._outcome()

    def is_over(self) -> bool:
        """Whether awaiting it returns: all rows have ended, it failed, or only people can help."""
        if self._error is not None:
            return True
        if not self._is_begun:
            return False
        if self._run is None or self._work.is_waiting():
            return True
        return session_of(self._run).is_over() and (self._work.has_ended or not self._follows)

    def _outcome(self) -> Batch:
        if self._error is not None:
            raise self._error
        if self._run is None:
            return self
        if session_of(self._run).is_over():
            try:
                self._run.result  # noqa: B018 - raises where it ended before all rows have
            except ToolFailed:
                raise self._work.failure or self._run_error() from None
            return self
        if self._work.asked.attended:
            return self
        raise self._unanswered()

    def _unanswered(self) -> Exception:
        stuck = self._work.stuck
        if stuck and not self._work.counts["interrupted"]:
            key, why = next(iter(stuck.items()))
            return HumanInputRequired(
                f"{len(stuck):,} row{'s' * (len(stuck) != 1)} of the batch {self.id!r} cannot continue by themselves. Row "
                f"{key!r}: {why}, with `await batch[{key!r}].open(take_over=True)`"
            )
        first, n = self._work.unanswered, self._work.counts["interrupted"]
        if first is not None and not isinstance(first, HumanInputRequired):
            return first
        told = "" if first is None else f" The first: {first}"
        waiting = [row.key for row in _in_order(self._work) if row.status == "interrupted"]
        keys = ", ".join(repr(key) for key in waiting[:5]) + (", …" if n > 5 else "")
        return HumanInputRequired(
            f"{n:,} row{'s' * (n != 1)} of the batch {self.id!r} need an answer, and no person is here to give one "
            f"({keys}). All other rows have ended. Pass `answers=`. Or answer with batch.questions, then await the "
            f"batch again. The same call with the same id continues the batch.{told}",
            interrupts=getattr(first, "interrupts", ()),
            run_id=getattr(first, "run_id", ""),
        )

    async def __aiter__(self) -> AsyncIterator[BatchRow]:
        """The rows as they end, those that had ended before first; until all have, or only people can help."""
        await self._until_begun()
        work, ended = self._work, self._work.ended
        seen = 0
        before = [row for row in _in_order(work) if row.status in ENDED]
        here = {row.key for row in work.ended}
        for row in before:
            if row.key not in here and not (
                row.status == "failed" and work.is_at_work and row.retried < work.asked.retry
            ):
                yield BatchRow(self, row)
        while True:
            while seen < len(ended):
                seen += 1
                yield BatchRow(self, ended[seen - 1])
            if self.is_over():
                self._outcome()
                return
            at = seen
            await asyncio.wrap_future(
                self._work.when(lambda at=at: len(ended) > at or self.is_over())  # type: ignore[misc]
            )

    # --- what a person does

    def pause(self) -> None:
        """Begin no more rows; those under way come to their end."""
        self._work.pause(paused=True)

    def resume(self) -> None:
        """Start rows again after a pause."""
        self._work.pause(paused=False)

    def stop(self, *, by: str = "code") -> None:
        """Stop for good: no more rows begin, and those under way are cancelled.

        The same call with the same id goes on with the rows that have not begun; ``retry()`` begins those anew that
        were under way.
        """
        begun = self._work.when(lambda: self._is_begun)
        begun.add_done_callback(
            lambda _: None if self._run is None else session_of(self._run).stop(by=by)
        )

    def retry(self, keys: Iterable[Any] | None = None) -> int:
        """Try rows again that failed, from where they stood, and begin those anew that were stopped.

        Args:
            keys: which; all by default.

        Returns:
            How many.

        Raises:
            UsageError: another process works on the batch.
        """
        if self._goes_on and not self._work.is_at_work:
            raise UsageError(
                f"Another process is working on the batch {self.id!r}. Retry its rows there"
            )
        chosen = None if keys is None else [str(key) for key in keys]
        n = self._work.again(chosen)
        if n:
            self._again()
        return n

    def view(self) -> None:
        """Show its card here, live."""
        self._host.show_batch(self)

    def _ipython_display_(self) -> None:
        self._host.display_batch(self)

    # --- beginning

    def _begin(self) -> None:
        """Begin on its loop; what goes wrong is the batch's error."""
        self._is_begun, self._error = False, None
        self._on_loop(self._started())

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        def start() -> None:
            self._task = self._loop.create_task(work, name=f"nbagent batch {self.id}")

        if running_loop() is self._loop:
            start()
        else:
            self._loop.call_soon_threadsafe(start)

    async def _started(self) -> None:
        work = self._work
        try:
            found = await run_in_thread(partial(listed, self.store, self.id))
            work.take(found)
            _check_agent(found.agent, work.agent, self.id)
            is_due = await work.check()
            number, is_open = _current(found)
            if is_due and not is_open:
                number += 1
            if number:
                self._run = self._record(number)
                over = session_of(self._run).when_over()
                over.add_done_callback(lambda _: work.tell())
            self._follows = bool(self._run is not None and (is_due or is_open))
            if self._follows:
                self._watching = self._loop.create_task(self._watch())
        except (UsageError, RunError) as error:
            self._error = error
        finally:
            self._is_begun = True
            work.tell()

    def _record(self, number: int) -> Run:
        """The batch's own run of this number, begun or opened: its body is the work."""
        attended = self._work.asked.attended
        options: Any = {"store": self.store, "show": False, "attended": attended, "nested": False}
        options["background"] = self._work.asked.background
        made = self._flow.with_options(id=record_id(self.id, number), **options)
        run: Run = made.run(agent=self._work.agent.name)
        return run

    async def _drive(self) -> dict[str, int]:
        try:
            while True:
                counts = await self._work.drive()
                if self._next is None:
                    return counts
                before, self._work, self._next = self._work, self._next, None
                before.hand_over(self._work)
                self._work.take(await run_in_thread(partial(listed, self.store, self.id)))
                await self._work.check()
        except asyncio.CancelledError:
            if self._run is not None and session_of(self._run).is_stopping:
                await self._work.stop(by="the batch, which was stopped")
            raise

    def _begin_again(self, asked: Asked, agent: Agent, executor: Any) -> None:
        """Go on with what is asked now: in the work that is under way here, or in a new one."""
        made = _work(self.id, agent, self.store, asked, executor)
        if self._goes_on:
            self._on_loop(self._checked(made))
            return
        if type(made) is type(self._work):
            self._take_on(made)
        else:
            self._work.hand_over(made)
            self._work = made
        self._begin()

    def _take_on(self, made: Work) -> None:
        """Have the work do what the other one would."""
        work = self._work
        work.asked, work.agent = made.asked, made.agent
        _hand_executor(work, made)

    async def _checked(self, made: Work) -> None:
        """Have the work that is under way go on as another one would; or that one, where its rows go on elsewhere."""
        work = self._work
        try:
            if type(made) is not type(work):
                self._next = made
                work.leave()
                return
            self._take_on(made)
            await work.check()
            await work.anew(made.asked)
        except (UsageError, RunError) as error:
            work.fail(error)
            work.wake()

    def _again(self) -> None:
        """Go on with the same that was asked for."""
        if self._goes_on:
            self._on_loop(self._anew())
        else:
            self._begin()

    async def _anew(self) -> None:
        try:
            await self._work.anew(self._work.asked)
        except (UsageError, RunError) as error:
            self._work.fail(error)
            self._work.wake()

    @property
    def _goes_on(self) -> bool:
        """Whether its record has begun, and has not ended."""
        return self._run is not None and session_of(self._run).state.outcome is None

    async def _watch(self) -> None:
        """Keep up with a batch that another process goes on with, to its end."""
        assert self._run is not None  # it has begun
        work, stamp = self._work, None
        over = asyncio.wrap_future(session_of(self._run).when_over())
        while True:
            is_over = over.done()
            if not (work.is_at_work or work.has_ended):
                store = self.store
                now = await run_in_thread(store.stamp) if isinstance(store, Archive) else None
                if now is None or now != stamp:
                    stamp = now
                    found = await run_in_thread(partial(listed, store, self.id))
                    if not work.is_at_work:
                        work.take(found)
            if is_over:
                self._follows = False
                work.tell()
                return
            await asyncio.wait([over], timeout=EVERY)

    async def answered(self) -> None:
        """Questions of it were answered: its rows go on as soon as there is room."""
        if not self._work.is_at_work:
            return
        if running_loop() is self._loop:
            await self._work.look()
        else:
            looked = asyncio.run_coroutine_threadsafe(self._work.look(), self._loop)
            await asyncio.wrap_future(looked)


def work_of(batch: Batch) -> Work:
    """What the notebook, and its rows, hold of a batch."""
    return batch._work  # noqa: SLF001 - the one door to it, so that `dir(batch)` is for people


_batches: weakref.WeakSet[Batch] = weakref.WeakSet()
"""The batches that this process has."""


@atexit.register
def _report_unfinished() -> None:
    """Warn that the program ends before batches that it began and never waited for."""
    for one in list(_batches):
        goes_on = one._goes_on or not one._is_begun  # noqa: SLF001 - one class
        if goes_on and not one._was_awaited and isinstance(one._host, ScriptHost):  # noqa: SLF001 - as above
            logger.warning(
                "nbagent: the program ended before its batch %r, because nothing waited for it. Use nb.map(…).wait(), or "
                "await it. With a store on disk, the same call with the same id continues the batch.",
                one.id,
            )


def _flow_of(batch: Batch) -> Any:
    """The batch's own run as a flow: what one process at a time does, and another goes on with where that is gone."""

    @flow(name="batch", idempotent=True)
    async def body(agent: str, ctx: ToolContext) -> dict[str, int]:  # noqa: ARG001 - kept with the run
        if ctx.run_id != batch.id and not ctx.run_id.startswith(f"{batch.id}:@"):
            raise UsageError(
                f"{ctx.run_id!r} is a batch. Open it with nb.open_batch({ctx.run_id!r})"
            )
        return await batch._drive()  # noqa: SLF001 - the body is the batch's

    return body


def _work(batch: str, agent: Agent, store: Store, asked: Asked, executor: Any) -> Work:
    """The work here, or in other processes."""
    if executor is None:
        return Work(batch, agent, store, asked)
    from .elsewhere import SentWork  # noqa: PLC0415 - few batches have it
    from .executors import executor_of  # noqa: PLC0415

    return SentWork(batch, agent, store, asked, executor_of(executor))


def _hand_executor(work: Work, made: Work) -> None:
    """Have work whose rows go on in other processes send them where that would."""
    there, given = getattr(work, "executor", None), getattr(made, "executor", None)
    if there is not None and given is not None:
        setattr(work, "executor", given)  # noqa: B010 - the module of that class is loaded for few batches


def _current(found: Listed) -> tuple[int, bool]:
    """The number of the batch's newest record, and whether that has not ended."""
    if not found.records:
        return 0, False
    number = max(found.records)
    return number, found.records[number][1] not in ENDED


def _check_agent(name: str, agent: Agent, batch: str) -> None:
    if name and name != agent.name:
        raise UsageError(
            f"The batch {batch!r} belongs to the agent {name!r}, not to {agent.name!r}. Use another id"
        )


def _in_order(work: Work) -> list[Row]:
    return sorted(work.rows.values(), key=lambda row: row.number)


def _batch_id(given: Any) -> str:
    if isinstance(given, str) and _ID.fullmatch(given):
        return given
    raise UsageError(
        f"A batch id has at most 60 letters, digits and .+-_ (its rows are the runs id:key), got {given!r:.80}"
    )


def _here(batch: str, store: Store) -> Batch | None:
    """The batch of this id that this process goes on with."""
    for one in list(_batches):
        goes_on = one._goes_on or not one._is_begun  # noqa: SLF001 - one class
        if goes_on and one.id == batch and is_same_place(one.store, store):
            return one
    return None


@checks_keywords("nb.map")
def map(  # noqa: A001, PLR0913 - the word that people look for; keyword-only, one for each documented option
    agent: Agent,
    rows: Any,
    *,
    prompt: Any,
    id: str,  # noqa: A002 - as of runs
    key: Any = None,
    concurrency: int = 8,
    retry: int = 0,
    on_error: Literal["keep", "stop"] = "keep",
    budget: Budget | None = None,
    answers: Answers = None,
    changed: Literal["keep", "again"] | None = None,
    store: Kept | None = None,
    context: Any = None,
    executor: Any = None,
    attended: bool | None = None,
    show: bool = True,
    background: bool = False,
) -> Batch:
    """Start an agent on every row at once, and show one card for all of them where a person is attached.

    Example:
            batch = nb.map(agent, df, prompt="Classify: {text}", id="march", key="order_id", budget=nb.Budget(cost=5))
            await batch
            batch.to_frame()

    Each row is a run of its own, ``march:<key>``, with its journal, its questions and its card. The same call with
    the same id goes on where it stood: rows that have ended are not asked again.

    Args:
        agent: who is asked.
        rows: a DataFrame or Series of pandas or polars, or an iterable of dicts, pydantic models or plain values. A
            generator is read when there is room for its next row.
        prompt: a template with ``{column}`` (``{}`` or ``{value}`` of a plain value), or a function of the row.
        id: a name for the batch: letters, digits and .+-_.
        key: the column that tells rows apart, or a function of the row; by default the index of a pandas
            DataFrame, else the place.
        concurrency: how many rows go on at a time.
        retry: how often a row that fails is tried again, from where it stood; over all restarts.
        on_error: ``"keep"`` goes on with the other rows, ``"stop"`` begins no more and raises.
        budget: tokens and cost of all rows, over all restarts; past it at most ``concurrency`` times what the
            dearest row costs is used.
        answers: as in ``agent.run``, for every row.
        changed: what becomes of rows that have begun and whose prompt is another now: ``"keep"`` what came of them,
            or ask them ``"again"``; without, they are named in an error.
        store: where the runs are kept; the agent's by default.
        context: as in ``agent.run``, for every row.
        executor: where rows go on, instead of here: a ``dask.distributed.Client``, a ``concurrent.futures`` pool or a
            function that makes one. It needs a store that all of them see.
        attended: whether a person can answer; detected by default.
        show: whether the card appears at once.
        background: as in ``agent.run``: whether its rows go on while a cell computes.

    Raises:
        UsageError: an option is none, or the prompt names a column that is not there. What the store knows better
            (a changed prompt, a second key) is raised where the batch is awaited.
    """
    if not isinstance(agent, Agent):
        raise UsageError(f"nb.map needs an agent, such as nb.Agent(…), got {agent!r:.80}")
    batch_id = _batch_id(id)
    if on_error not in ("keep", "stop"):
        raise UsageError(f"on_error must be 'keep' or 'stop', got {on_error!r:.80}")
    if changed not in (None, "keep", "again"):
        raise UsageError(f"changed must be 'keep', 'again' or None, got {changed!r:.80}")
    limits = checked_budget(budget) if budget is not None else None
    if limits is not None and limits.seconds is not None:
        raise UsageError(
            "A batch budget takes tokens= and cost=. Set seconds= for each row: nb.Agent(budget=…)"
        )
    spec = agent._spec(agent.tools)  # noqa: SLF001 - as the agent itself starts runs
    if limits is not None:
        check_cost(replace(spec, budget=limits))
    kept = checked_store(store) or agent.store
    host = current_host()
    is_attended = host.attended() if attended is None else attended
    asked = Asked(
        source_of(rows, prompt, key),
        checked_turns(concurrency, "concurrency"),
        checked_turns(retry, "retry", least=0),
        on_error,
        limits,
        answers,
        changed,
        context,
        is_attended,
        background,
    )
    asked.check(spec)
    there = _here(batch_id, kept)
    if there is not None:
        _check_agent(there.agent, agent, batch_id)
        there._begin_again(asked, agent, executor)  # noqa: SLF001 - one class
    else:
        there = Batch(_work(batch_id, agent, kept, asked, executor), attended=is_attended)
        there._begin()  # noqa: SLF001 - as above
    if show and is_attended:
        there.view()
    return there


@awaited("nb.open_batch")
@checks_keywords("nb.open_batch")
async def open_batch(  # noqa: PLR0913 - keyword-only, one for each documented option
    id: str,  # noqa: A002 - as of runs
    *,
    agent: Agent | None = None,
    store: Kept | None = None,
    concurrency: int = 8,
    retry: int = 0,
    answers: Answers = None,
    context: Any = None,
    executor: Any = None,
    attended: bool | None = None,
    show: bool = True,
) -> Batch:
    """A batch that a store holds, without its rows: what came of it, and what it asks.

    Rows that have begun go on here, unless another process is at it. Those that have not begun need the rows: call
    ``nb.map`` with them and the same id.

    Args:
        id: as in ``nb.map``.
        agent: whose runs the rows are; by default the newest agent of this process that has their agent's name.
        store: where they are kept; by default the agent's, or what ``nb.use_store`` says.
        concurrency: as in ``nb.map``.
        retry: as in ``nb.map``.
        answers: as in ``nb.map``.
        context: as in ``nb.map``.
        executor: as in ``nb.map``.
        attended: as in ``nb.map``.
        show: as in ``nb.map``.

    Raises:
        UsageError: the store has no such batch, or this process has no agent of that name.
        StoreError: it cannot be read.
    """
    batch_id = _batch_id(checked_text("id", id))
    kept: Any = checked_store(store)
    if kept is None:
        kept = agent.store if agent is not None else current_store()
    there = _here(batch_id, kept)
    if there is None:
        found = await run_in_thread(partial(listed, kept, batch_id))
        if not found.records and not found.rows:
            raise UsageError(f"{kept!r} has no batch {batch_id!r}")
        owner = agent or known_named(Agent, found.agent)
        if owner is None:
            raise UsageError(
                f"{batch_id!r} is a batch of the agent {found.agent!r}, which this process does not have. Define it "
                "first, or pass agent="
            )
        is_attended = current_host().attended() if attended is None else attended
        asked = Asked(
            None,
            checked_turns(concurrency, "concurrency"),
            checked_turns(retry, "retry", least=0),
            answers=answers,
            context=context,
            attended=is_attended,
        )
        asked.check(owner._spec(owner.tools))  # noqa: SLF001 - as the agent itself starts runs
        there = Batch(_work(batch_id, owner, kept, asked, executor), attended=is_attended)
        there._begin()  # noqa: SLF001 - one class
        await there._until_begun()  # noqa: SLF001 - as above
        if there._error is not None:  # noqa: SLF001 - as above
            raise there._error  # noqa: SLF001 - as above
    if show and work_of(there).asked.attended:
        there.view()
    return there
