"""``nb.map``: run an agent on many rows. Each row is a run; all rows share a budget, a card and a list of questions."""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Never

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_budget, checked_store, checked_text, checked_turns
from nbagent.core.base.amounts import counted
from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import (
    HumanInputRequired,
    RunError,
    StoreError,
    ToolFailed,
    UsageError,
    suggest,
)
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import Usage
from nbagent.core.base.process import this_process
from nbagent.core.call.threads import private_loop, run_in_thread, running_loop
from nbagent.core.flow import flow
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import StoreLike, current_store, is_same_place
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import Archive
from nbagent.core.journal.store import Store
from nbagent.core.registry import known_named
from nbagent.core.run.host import ScriptHost, current_host, is_attended, is_there, started
from nbagent.core.run.run import Run, document, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.stored.catalog import ENDED
from nbagent.core.stored.inbox import InboxEntry
from nbagent.core.stored.opening import open_run
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.spec import Budget, check_cost

from .frame import batch_frame
from .listing import BUDGET_STEP, RowState, completion, read_batch, record_id, results_of
from .rows import source_of
from .work import BatchOptions, Work

STORE_WAIT = 5.0
"""Maximum seconds that a repeated call waits for a store that has failed."""
OTHER_LOOP_WAIT = 5.0
"""Maximum seconds to wait until a batch on another loop has continued its answered rows."""
logger = logging.getLogger("nbagent")

_ID = re.compile(r"[\w.+-]{1,60}")
CHECK_SECONDS = 1.0
"""Seconds between checks of a batch that another process runs."""
_STATUS_TEXT = {
    "completed": "done",
    "interrupted": "waiting",
    "running": "running",
    "stuck": "stuck",
    "failed": "failed",
    "cancelled": "stopped",
}
"""What a batch's text calls each status that ``Batch.counts`` has, in order."""


class BatchRow:
    """One row of a batch, always in its current state."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: RowState) -> None:
        self._batch, self._row = batch, row

    @property
    def _now(self) -> RowState:
        return work_of(self._batch).rows.get(self._row.key, self._row)

    @property
    def key(self) -> str:
        """The key that identifies the row."""
        return self._row.key

    @property
    def number(self) -> int:
        """The row's position in the input, from 0."""
        return self._now.number

    @property
    def run_id(self) -> str:
        """The id of the row's run."""
        return self._now.run_id

    @property
    def status(self) -> str:
        """The status of the row's run, as in ``run.status``."""
        return self._now.status

    @property
    def asks(self) -> tuple[str, ...]:
        """The tools that wait for an answer."""
        return self._now.asks

    @property
    def error(self) -> str:
        """The error message of a failed row, otherwise empty."""
        return self._now.error

    @property
    def stuck(self) -> str:
        """The reason why the row is stuck, and what to do; otherwise empty.

        A stuck row has a call that is running in a process that does not respond.
        """
        return work_of(self._batch).stuck.get(self.key, "")

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the row's run, up to the last time that the run paused or ended."""
        return self._now.usage

    @property
    def output(self) -> Any:
        """The row's result, read from the store: an ``output_type`` value, or text. None if the row is not completed.

        Raises:
            StoreError: the store cannot be read.
        """
        batch, row = self._batch, self._now
        if row.status != "completed":
            return None
        last = completion(batch.store, row.run_id, row.length)
        if last is None:
            return None
        spec = work_of(batch).spec
        return last.text if spec.output_type is None else spec.answer.typed(last.output)

    @awaited("row.open")
    async def open(self, **options: Any) -> Run:
        """Open the row's run, and show its card. The options are those of ``nb.open_run``."""
        work = work_of(self._batch)
        return await open_run(self.run_id, agent=work.agent, store=work.store, **options)

    def __repr__(self) -> str:
        row = self._now
        more = f": {row.error:.120}" if row.error else f" {', '.join(row.asks)}" if row.asks else ""
        status = _STATUS_TEXT.get(row.status, row.status)
        text = f"stuck: {self.stuck}" if self.stuck else f"{status}{more}"
        return escaped(f"<row {row.key!r} of {self._batch.id}: {text}>")


class Batch:
    """An agent on many rows: await it, loop over its rows, answer its questions, pause, stop or resume it.

    ``nb.map`` and ``nb.open_batch`` return a batch.
    """

    def __init__(self, work: Work, *, attended: bool) -> None:
        self._work = work
        self._host = current_host()
        is_here = not work.options.background
        here = self._host.loop(attended=attended) or running_loop() if is_here else None
        self._loop = here or private_loop()
        self._next: Work | None = None
        """The work that continues the batch when the current work has stopped."""
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._is_started = False
        self._checks = 0
        """Calls of ``nb.map`` for this batch that are being checked."""
        self._questions: tuple[Agent, Any] | None = None
        """The agent, and the inbox of the batch's questions for this agent. The inbox remembers what you last saw."""
        self._follows = False
        """Whether ``_watch`` still follows the batch's own run, which any process may drive."""
        self._seen: object = None
        """The rows at the last look of ``_watch``, while another process drives the batch."""
        self._is_unchanged = False
        """Whether the rows were the same in the last two looks of ``_watch``, while another process drives the batch."""
        self._body: ToolContext | None = None
        """The context of the body of the batch's own run, which drives the batch in this process."""
        self._task: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._flow = _flow_of(self)
        _batches.add(self)

    # --- state

    @property
    def id(self) -> str:
        """The batch's id, for ``nb.open_batch``. Its rows are the runs ``id:key``."""
        return self._work.batch

    @property
    def store(self) -> Store:
        """The store of the batch's rows."""
        return self._work.store

    @property
    def agent(self) -> str:
        """The agent's name."""
        return str(self._work.agent.name)

    @property
    def status(self) -> str:
        """``starting``, ``running``, ``waiting`` (for a person), ``paused``, or the status of an ended run."""
        if self._error is not None:
            return "failed"
        if not self._is_started:
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
        return "waiting" if self._is_waiting() else "running"

    def _is_waiting(self) -> bool:
        """Whether all rows that have not ended wait for an answer, here or in the process that drives the batch."""
        return self._work.is_waiting() or (self._is_unchanged and self._work.waits_elsewhere())

    @property
    def error(self) -> BaseException | None:
        """The error that ended the batch before all its rows ended, otherwise None."""
        if self._error is not None or self._run is None:
            return self._error
        session = session_of(self._run)
        if session.state.status == "failed":
            return self._work.failure or self._run_error()
        return session.error if session.state.outcome is None else None

    def _run_error(self) -> RunError:
        """The error of the batch's own run, if that run failed in another process."""
        assert self._run is not None  # the caller checks that it failed
        failed = session_of(self._run).state.outcome
        message = getattr(failed, "message", "")
        return RunError(message.partition(" failed: ")[2] or message)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows in each state: the statuses of their runs, and ``left`` for rows that have not started.

        A row is ``stuck`` if its call is running in another process that is alive but does not respond. Wait for the
        process, or take over the row: ``await batch[key].open(take_over=True)``.
        """
        counts = {name: self._work.counts[name] for name in _STATUS_TEXT}
        counts["stuck"] = len(self._work.stuck)
        counts["running"] += self._work.counts["queued"] - counts["stuck"]
        not_started = self._work.left
        return counts if not_started is None else {**counts, "left": not_started}

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all rows that have paused or ended, also in earlier processes."""
        return self._work.usage

    @property
    def cost(self) -> float | None:
        """Cost in US dollars of all rows that have paused or ended; None if a part is unknown."""
        return self._work.usage.cost

    def __len__(self) -> int:
        total = self._work.total
        return len(self._work.rows) if total is None else total

    def __bool__(self) -> bool:
        return True  # a batch without rows is true too

    def __contains__(self, key: object) -> bool:
        return str(key) in self._work.rows

    def __getitem__(self, key: Any) -> BatchRow:
        """The row with this key. The row must have started."""
        row = self._work.rows.get(str(key))
        if row is None:
            hint = suggest(str(key), list(self._work.rows)[:1000])
            raise KeyError(f"The batch {self.id!r} has not started a row {str(key)!r:.80}{hint}")
        return BatchRow(self, row)

    @property
    def rows(self) -> list[BatchRow]:
        """The rows that have started, in the order of the input."""
        return [BatchRow(self, row) for row in _in_order(self._work)]

    @property
    def failures(self) -> list[BatchRow]:
        """The rows that have failed, in the order of the input."""
        return [BatchRow(self, row) for row in _in_order(self._work) if row.status == "failed"]

    @property
    def questions(self) -> Any:
        """The open questions of the batch's rows, as in ``nb.inbox``: look at them, filter them, answer them."""
        agent = self._work.agent
        if self._questions is None or self._questions[0] is not agent:
            self._questions = agent, hooks.inbox_of(waiting_of(self), self.id)
        return self._questions[1]

    def to_frame(self) -> Any:
        """The input as a DataFrame, with the columns status, output, error, cost and run.

        If the input was a DataFrame, the result has its order and index. The fields of ``output_type=`` become
        columns. A new column whose name exists already gets the suffix ``_of_run``. For any other input, the
        result is a pandas DataFrame whose index is the key.

        Raises:
            UsageError: pandas is not installed.
            StoreError: the store cannot be read.
        """
        work = self._work
        return batch_frame(
            work.rows, results_of(self.store, f"{self.id}:"), work.options.source, work.agent
        )

    def to_html(self, path: str | Path | None = None) -> str:
        """Return a report as one HTML page, without scripts or downloads: counts, decisions, failures, rows, cards.

        The cards of the rows that asked are folded; a print shows them. The report reads the journals of all rows.

        Args:
            path: a file to write the text to as well, as UTF-8, readable only for its owner.
        """
        return document(self, "html", path, hooks.reported)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the report of ``to_html`` as Markdown.

        Args:
            path: a file to write the text to as well, as UTF-8, readable only for its owner.
        """
        return document(self, "markdown", path, hooks.reported)

    def __repr__(self) -> str:
        if self._error is not None:
            return escaped(f"<Batch {self.id}: {type(self._error).__name__}: {self._error}>")
        counts = self.counts
        total, cost = self._work.total, self.usage.known_cost
        of = f"{counts['completed']:,}" + ("" if total is None else f" of {total:,}") + " done"
        more = [f"{counts[s]:,} {t}" for s, t in [*_STATUS_TEXT.items()][1:] if counts[s]]
        error = self.error
        progress = ", ".join(
            [of, *more, *([f"${cost:,.4f}"] if cost else [])]
            + (["paused"] if self.status == "paused" else [])
            + ([f"ended by {type(error).__name__}: {error}"] if error is not None else [])
        )
        return escaped(f"<Batch {self.id}: {progress}>")

    # --- waiting

    def __await__(self) -> Generator[Any, None, Batch]:
        return self._wait().__await__()

    async def _wait(self) -> Batch:
        try:
            await asyncio.wrap_future(self._when_started())
            while True:
                over = self._work.when(self.is_over)
                if self._run is not None:
                    with session_of(self._run).stopped_by_keyboard():
                        await self._host.wait(self._run, over)
                else:
                    await asyncio.wrap_future(over)
                if self.is_over():
                    return self._outcome()
        except asyncio.CancelledError:
            self._keep_for_end()
            raise

    def _when_started(self) -> Future[None]:
        """Note that code waits for the batch, so that earlier looks at the store do not count; return its start."""
        started.batches.pop(self, None)
        self._seen, self._is_unchanged = None, False
        return self._work.when(lambda: self._is_started)

    def wait(self) -> Batch:
        """Wait for the batch in synchronous code, outside the event loop that its rows use.

        Raises:
            UsageError: called on the event loop of the rows.
            HumanInputRequired: a row needs an answer, and nobody can answer.
            RunError: the batch ended before all its rows did.
        """
        if running_loop() is self._loop:
            raise UsageError(
                "`batch.wait()` would block the event loop that the batch needs. Use `await batch`"
            )
        self._when_started().result()
        while True:
            over = self._work.when(self.is_over)
            if self._run is not None:
                with session_of(self._run).stopped_by_keyboard():
                    self._host.wait_sync(self._run, over, attended=False)
            over.result()
            if self.is_over() and not self._asked_rows():
                if self.status == "waiting":
                    self._keep_for_end()
                return self._outcome()

    def _keep_for_end(self) -> None:
        """Have the end of the script wait for this batch, or name it, unless something waits for it before."""
        if type(self._host) is ScriptHost:
            started.keep_batch(self)

    def _asked_rows(self) -> bool:
        is_attended = self._work.options.attended
        is_waiting = self._run is not None and self._error is None and self._is_waiting()
        return is_waiting and self._host.ask_rows(self, attended=is_attended)

    def is_over(self) -> bool:
        """Whether ``await batch`` returns: all rows have ended, the batch failed, or it waits for a person."""
        if self._error is not None:
            return True
        if not self._is_started or self._checks:
            return False
        if self._run is None or (self._work.failure is None and self._is_waiting()):
            return True
        return session_of(self._run).is_over() and (self._work.has_ended or not self._follows)

    def _outcome(self) -> Batch:
        if self._error is not None:
            raise self._error
        if self._run is None:
            return self
        session = session_of(self._run)
        if session.is_over():
            if session.error is not None and session.state.outcome is None:
                raise session.error
            try:
                self._run.result  # noqa: B018 - raises if the batch ended before all its rows
            except ToolFailed:
                raise self._work.failure or self._run_error() from None
            return self
        if self._work.options.attended:
            return self
        raise self._unanswered()

    def _unanswered(self) -> Exception:
        stuck = self._work.stuck
        if stuck and not self._work.counts["interrupted"]:
            key, why = next(iter(stuck.items()))
            return HumanInputRequired(
                f"{counted(len(stuck), 'row')} of the batch {self.id!r} cannot continue alone. Row "
                f"{key!r}: {why}, with `await batch[{key!r}].open(take_over=True)`"
            )
        first, n = self._work.unanswered, self._work.counts["interrupted"]
        if not self._work.is_driving:
            return HumanInputRequired(
                f"{counted(n, 'row')} of the batch {self.id!r}, on which another process works, "
                f"need{'s' * (n == 1)} an answer. Answer with batch.questions, then await the batch again"
            )
        if first is not None and not isinstance(first, HumanInputRequired):
            return first
        message = "" if first is None else f" The first: {first}"
        waiting = [row.key for row in _in_order(self._work) if row.status == "interrupted"]
        keys = ", ".join(repr(key) for key in waiting[:5]) + (", …" if n > 5 else "")
        return HumanInputRequired(
            f"{counted(n, 'row')} of the batch {self.id!r} need{'s' * (n == 1)} an answer ({keys}), and nobody "
            f"can answer. Pass `answers=`. Or answer with batch.questions, then await the "
            f"batch again. The same call with the same id continues the batch.{message}",
            interrupts=getattr(first, "interrupts", ()),
            run_id=getattr(first, "run_id", ""),
        )

    def __iter__(self) -> Never:
        raise TypeError(
            "Use `async for row in batch`, or batch.rows for the rows that have started"
        )

    async def __aiter__(self) -> AsyncIterator[BatchRow]:
        """Yield the rows that have already ended, then each row as it ends, until the batch ends or waits."""
        await asyncio.wrap_future(self._when_started())
        work, ended = self._work, self._work.ended
        seen = 0
        here = {row.key for row in work.ended}
        before = [r for r in _in_order(work) if r.status in ENDED and r.key not in here]
        for row in before:
            may_retry = work.is_driving and row.retried < work.options.retry
            if row.status != "failed" or not may_retry:
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

    # --- control

    def pause(self) -> None:
        """Start no more rows. Running rows continue to their end.

        Raises:
            UsageError: another process works on the batch.
        """
        self._check_works_here("Pause it")
        self._work.pause(paused=True)

    def resume(self) -> None:
        """Start rows again after a pause.

        Raises:
            UsageError: another process works on the batch.
        """
        self._check_works_here("Resume it")
        self._work.pause(paused=False)

    def stop(self, *, by: str = "code") -> None:
        """Stop the batch: start no more rows, and cancel running rows.

        The same call with the same id starts the rows that have not started yet. ``retry()`` starts the cancelled
        rows again.
        """
        started = self._work.when(lambda: self._is_started)
        started.add_done_callback(
            lambda _: None if self._run is None else session_of(self._run).stop(by=by)
        )

    def retry(self, keys: Iterable[Any] | None = None) -> int:
        """Retry failed rows from their last step, and start stopped rows again.

        Args:
            keys: the keys of the rows; by default all failed and stopped rows.

        Returns:
            The number of rows that are retried.

        Raises:
            UsageError: another process works on the batch.
        """
        self._check_works_here("Retry its rows")
        chosen = None if keys is None else [str(key) for key in keys]
        n = self._work.mark_for_retry(chosen)
        if n and self._is_running:
            self._on_loop(self._restart_running())
        elif n:
            self._start()
        return n

    def _check_works_here(self, what: str) -> None:
        driver = "" if self._run is None else session_of(self._run).journal.driver
        is_here = self._work.is_driving or driver in ("", this_process())
        if self._is_running and not is_here:
            raise UsageError(f"Another process is working on the batch {self.id!r}. {what} there")

    def view(self) -> None:
        """Show the live card of the batch in this cell."""
        self._host.show_batch(self)

    def _ipython_display_(self) -> None:
        self._host.display_batch(self)

    # --- starting

    def _start(self) -> None:
        """Start on the batch's loop. An error becomes the error of the batch."""
        self._is_started, self._error = False, None
        self._on_loop(self._run_start())

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        def start() -> None:
            self._task = self._loop.create_task(work, name=f"nbagent batch {self.id}")

        if running_loop() is self._loop:
            start()
        else:
            self._loop.call_soon_threadsafe(start)

    async def _run_start(self) -> None:
        work = self._work
        try:
            found = await run_in_thread(partial(read_batch, self.store, self.id))
            work.load(found)
            _check_agent(found.agent, work.agent, self.id)
            is_due = await work.check()
            number = max(found.records, default=0)
            is_open = number in found.records and found.records[number][1] not in ENDED
            if is_due and not is_open:
                number += 1
                while record_id(self.id, number) in found.foreign:
                    number += 1
            if number:
                self._run = self._record(number)
                over = session_of(self._run).when_over()
                over.add_done_callback(lambda _: self._work.notify())
            self._follows = bool(self._run is not None and (is_due or is_open))
            if self._follows:
                self._watching = self._loop.create_task(self._watch())
        except Exception as error:  # also an error of the caller's own prompt function
            self._error = error
        finally:
            self._is_started = True
            work.notify()

    def _record(self, number: int) -> Run:
        """Start or open the batch's own run with this number. The run's body does the work."""
        given = self._work.options
        options = {"attended": given.attended, "background": given.background, "nested": False}
        run_id, store = record_id(self.id, number), self.store
        made = self._flow.with_options(id=run_id, store=store, show=False, **options)
        started.of_batches.add(run_id)
        run: Run = made.run(agent=self._work.agent.name)
        return run

    async def _drive(self, ctx: ToolContext) -> dict[str, int]:
        self._body = ctx
        try:
            while True:
                await self._store_budget(ctx)
                counts = await self._work.drive()
                if self._next is None:
                    return counts
                before, self._work, self._next = self._work, self._next, None
                before.hand_over(self._work)
                self._work.load(await run_in_thread(partial(read_batch, self.store, self.id)))
                await self._work.check()
        except asyncio.CancelledError:
            if self._run is not None and session_of(self._run).is_stopping:
                await self._work.stop(by="the batch, which was stopped")
            raise

    async def _store_budget(self, ctx: ToolContext) -> None:
        """Store the budget with the batch's own run, unless it is the last one there."""
        known = [v for name, v in ctx.steps.items() if name.startswith(BUDGET_STEP)]
        budget = self._work.options.budget
        now = None if budget is None else {"tokens": budget.tokens, "cost": budget.cost}
        if now != (known[-1] if known else None):
            await ctx.step(f"{BUDGET_STEP}{len(known) + 1}", lambda: now)

    def _continue_with(self, options: BatchOptions, agent: Agent, executor: Any) -> None:
        """Continue the batch with these options: in the current work, or in a new one."""
        made = _new_work(self.id, agent, self.store, options, executor)
        if self._loop.is_closed():  # with all its tasks, as at the end of asyncio.run
            self._loop = running_loop() or private_loop()
            self._work, self._next, self._checks = made, None, 0
            self._start()
            return
        if self._is_running:
            self._checks += 1
            self._on_loop(self._check_and_adopt(made))
            return
        if type(made) is type(self._work):
            self._adopt(made)
        else:
            self._work.hand_over(made)
            self._work = made
        self._start()

    def _adopt(self, made: Work) -> None:
        """Copy the options, agent and executor of ``made``, which has the same type, to the current work."""
        work = self._work
        work.options, work.agent, work.executor = made.options, made.agent, made.executor

    async def _check_and_adopt(self, made: Work) -> None:
        """Give the running work the options of ``made``. If ``made`` has another type, replace the running work."""
        work = self._work
        try:
            if type(made) is not type(work):
                self._next = made
                work.leave()
                return
            self._adopt(made)
            if work.has_ended:  # the store has failed: wait until it has the end of the batch's run
                until = self._loop.time() + STORE_WAIT
                while self._is_running and self._work.has_ended and self._loop.time() < until:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(STORE_WAIT / 50)
                # else the run's body runs again meanwhile, or the store still fails
                if not self._is_running:
                    await self._run_start()
                return
            await work.forget_deleted()
            await work.check()
            if self._body is not None and work.is_driving:
                await self._store_budget(self._body)
            await work.restart(made.options)
        except Exception as error:
            work.fail(error)
            work.wake()
        finally:
            self._checks -= 1
            self._work.notify()

    async def _restart_running(self) -> None:
        try:
            await self._work.restart(self._work.options)
        except Exception as error:
            self._work.fail(error)
            self._work.wake()

    @property
    def _is_running(self) -> bool:
        """Whether the batch's own run has started, and the store does not have its end."""
        if self._run is None:
            return False
        session = session_of(self._run)
        return session.state.outcome is None or bool(session.journal.unstored_end)

    async def _watch(self) -> None:
        """Watch the batch until it ends; read its rows if another process runs it."""
        assert self._run is not None  # the batch has started
        work, stamp = self._work, None
        over = asyncio.wrap_future(session_of(self._run).when_over())
        while True:
            is_over = over.done()
            if not (work.is_driving or work.has_ended):
                try:
                    stamp = await self._read_if_changed(stamp)
                except StoreError as error:
                    logger.warning("batch %r could not be read; trying again: %s", self.id, error)
                before, self._seen = self._seen, (len(work.rows), dict(work.counts))
                self._is_unchanged = self._seen == before
                work.notify()
            if is_over:
                self._follows = False
                is_complete = session_of(self._run).status == "completed"  # not stopped or failed
                if not (work.is_driving or work.has_ended) and is_complete:
                    self._is_started = False  # this process may have rows that the other did not
                    await self._run_start()
                self._work.notify()  # not `work`: a changed executor replaces the work
                return
            await asyncio.wait([over], timeout=CHECK_SECONDS)

    async def _read_if_changed(self, stamp: object) -> object:
        """Read the rows if the store has changed since ``stamp``; return the store's new stamp, None if it has none."""
        work, store = self._work, self.store
        now = await run_in_thread(store.stamp) if isinstance(store, Archive) else None
        if now is None or now != stamp:
            found = await run_in_thread(partial(read_batch, store, self.id))
            if not (work.is_driving or work.has_ended):  # else this process knows more by now
                work.load(found)
        return now

    async def continue_answered(self) -> None:
        """Continue rows whose questions were answered, as soon as ``concurrency`` allows.

        A failure is logged: the answers are stored, and the batch checks again by itself.
        """
        if not self._work.is_driving:
            return
        if running_loop() is self._loop:
            await self._continue_answered()
        else:
            begun = asyncio.run_coroutine_threadsafe(self._continue_answered(), self._loop)
            # with a timeout, because that loop may be blocked
            await asyncio.wait([asyncio.wrap_future(begun)], timeout=OTHER_LOOP_WAIT)

    async def _continue_answered(self) -> None:
        try:
            await self._work.continue_answered()
        except StoreError:
            logger.exception("batch %s: its answered rows could not be read yet", self.id)


def work_of(batch: Batch) -> Work:
    """The internal state of a batch, for the batch's card and rows."""
    return batch._work  # noqa: SLF001 - the only access to it: it is not public


def waiting_of(batch: Batch) -> InboxEntry:
    """The open questions of a batch's rows, without those of runs that are only named like its rows."""

    def is_own(journal: Journal) -> bool:
        of = journal.state.row
        if of is not None:
            return of.batch == batch.id
        return any(row.run_id == journal.run_id for row in work_of(batch).rows.values())

    return InboxEntry(
        batch.store,
        agents=[work_of(batch).agent],
        runs=f"{batch.id}:",
        is_own=is_own,
        on_answered=batch.continue_answered,
    )


_batches: weakref.WeakSet[Batch] = weakref.WeakSet()
"""The batches of this process."""


def loop_of(batch: Batch) -> asyncio.AbstractEventLoop:
    """The event loop of the batch's rows."""
    return batch._loop  # noqa: SLF001 - one class


def _flow_of(batch: Batch) -> Any:
    """The batch's own run, as a flow: one process runs the flow; if that process ends, another continues the flow."""

    @flow(name="batch", idempotent=True)
    async def body(agent: str, ctx: ToolContext) -> dict[str, int]:  # noqa: ARG001 - stored with the run
        if ctx.run_id != batch.id and not ctx.run_id.startswith(f"{batch.id}:@"):
            raise UsageError(
                f"{ctx.run_id!r} is a batch. Open it with nb.open_batch({ctx.run_id.partition(':@')[0]!r})"
            )
        return await batch._drive(ctx)  # noqa: SLF001 - the body is the batch's

    return body


def _new_work(batch: str, agent: Agent, store: Store, options: BatchOptions, executor: Any) -> Work:
    """Return work whose rows run in this process, or in the processes of an executor."""
    if executor is None:
        return Work(batch, agent, store, options)
    from .executors import executor_of  # noqa: PLC0415
    from .remote import SentWork  # noqa: PLC0415 - few batches have it

    return SentWork(batch, agent, store, options, executor_of(executor))


def _check_agent(name: str, agent: Agent, batch: str) -> None:
    if name and name != agent.name:
        raise UsageError(
            f"The batch {batch!r} belongs to the agent {name!r}, not to {agent.name!r}. Use another id"
        )


def _in_order(work: Work) -> list[RowState]:
    return sorted(work.rows.values(), key=lambda row: row.number)


def _batch_id(given: Any) -> str:
    if isinstance(given, str) and _ID.fullmatch(given):
        return given
    raise UsageError(f"A batch id must be 1 to 60 letters, digits or . + - _, got {given!r:.80}")


def _running_here(batch: str, store: Store) -> Batch | None:
    for one in list(_batches):
        is_running = one._is_running or not one._is_started  # noqa: SLF001 - one class
        if is_running and one.id == batch and is_same_place(one.store, store):
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
    store: StoreLike | None = None,
    context: Any = None,
    executor: Any = None,
    attended: bool | None = None,
    show: bool = True,
    background: bool = False,
) -> Batch:
    """Start an agent on every row of a table, and return the batch. If a person can answer, its card appears.

    Example:
            batch = nb.map(agent, df, prompt="Classify: {text}", id="march", key="order_id", budget=nb.Budget(cost=5))
            await batch
            batch.to_frame()

    Each row is a separate run, ``march:<key>``, with its own journal, questions and card. The same call with the
    same id continues the batch: rows that have ended do not run again.

    Args:
        agent: the agent that runs on each row.
        rows: a pandas or polars DataFrame or Series, or an iterable of dicts, pydantic models or plain values. A
            generator is read when its next row can start.
        prompt: a template with ``{column}`` (``{}`` or ``{value}`` for a plain value), or a function of the row.
        id: a name for the batch: letters, digits and .+-_.
        key: the column that identifies a row, or a function of the row; by default the index of a pandas
            DataFrame, otherwise the position.
        concurrency: the maximum number of rows that run at the same time.
        retry: the maximum number of retries of a failed row, counted over all restarts. A retry continues from
            the row's last step.
        on_error: ``"keep"`` continues with the other rows; ``"stop"`` starts no more rows and raises.
        budget: limits on tokens and cost of all rows, counted over all restarts. The batch can exceed it by at
            most ``concurrency`` times the cost of the most expensive row.
        answers: as in ``agent.run``, for every row.
        changed: what to do with started rows whose prompt has changed: ``"keep"`` their earlier runs, or run them
            ``"again"``. By default, an error names them.
        store: the store for the runs; the agent's by default.
        context: as in ``agent.run``, for every row.
        executor: runs the rows in other processes: a ``dask.distributed.Client``, a ``concurrent.futures`` pool or a
            function that makes one. All processes need access to the store.
        attended: True if a person can answer; detected by default.
        show: True to show the card at once.
        background: True to continue rows while a cell computes, as in ``agent.run``.

    Raises:
        UsageError: an option is invalid, or the prompt names an unknown column. Errors that are found later (a changed
            prompt, a duplicate key) are raised by ``await batch``.
    """
    if not isinstance(agent, Agent):
        raise UsageError(
            f"nb.map needs an agent, such as nb.Agent(…), got {agent!r:.80}. For several runs of a flow, use "
            "await asyncio.gather(*(flow.run(each) for each in rows))"
        )
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
    on_kernel_loop, attended_as_passed = is_there(host, attended=attended), attended
    attended = is_attended(host, attended=attended, answers=answers, show=show)
    options = BatchOptions(
        source_of(rows, prompt, key),
        checked_turns(concurrency, "concurrency"),
        checked_turns(retry, "retry", least=0),
        on_error,
        limits,
        answers,
        changed,
        context,
        attended,
        background,
    )
    options.of_runs(kept).check(spec)
    batch = _running_here(batch_id, kept)
    if batch is not None:
        _check_agent(batch.agent, agent, batch_id)
        batch._continue_with(options, agent, executor)  # noqa: SLF001 - one class
    else:
        work = _new_work(batch_id, agent, kept, options, executor)
        batch = Batch(work, attended=on_kernel_loop)
        if attended_as_passed is False:
            started.alone.add(batch)
        batch._keep_for_end()  # noqa: SLF001 - as above
        batch._start()  # noqa: SLF001 - as above
    if show and attended:
        batch.view()
    return batch


@awaited("nb.open_batch")
@checks_keywords("nb.open_batch")
async def open_batch(  # noqa: PLR0913 - keyword-only, one for each documented option
    id: str,  # noqa: A002 - as of runs
    *,
    agent: Agent | None = None,
    store: StoreLike | None = None,
    concurrency: int | None = None,
    retry: int | None = None,
    answers: Answers = None,
    context: Any = None,
    executor: Any = None,
    attended: bool | None = None,
    show: bool = True,
) -> Batch:
    """Open a stored batch without its input, to read its results and answer its questions.

    Rows that have started continue in this process, within the batch's last budget, unless another process runs the
    batch. To start the other rows, or to raise the budget, call ``nb.map`` with all rows and the same id.

    A batch that is already open in this process is returned, and continues with the options that you pass.

    Args:
        id: as in ``nb.map``.
        agent: the batch's agent; by default the newest agent of this process with the stored name.
        store: the store of the batch; by default the agent's store, or the store of ``nb.use_store``.
        concurrency: as in ``nb.map``.
        retry: as in ``nb.map``.
        answers: as in ``nb.map``.
        context: as in ``nb.map``.
        executor: as in ``nb.map``.
        attended: as in ``nb.map``.
        show: as in ``nb.map``.

    Raises:
        UsageError: an option is invalid, the store has no such batch, the batch belongs to another agent, or this
            process has no agent of that name.
        StoreError: the store cannot be read.
    """
    batch_id = _batch_id(checked_text("id", id))
    kept: Any = checked_store(store)
    if kept is None:
        kept = agent.store if agent is not None else current_store()
    given: dict[str, Any] = {"answers": answers, "context": context}
    if concurrency is not None:
        given["concurrency"] = checked_turns(concurrency, "concurrency")
    if retry is not None:
        given["retry"] = checked_turns(retry, "retry", least=0)
    given = {name: value for name, value in given.items() if value is not None}
    host = current_host()
    is_person_there = is_attended(host, attended=attended, answers=answers, show=show)
    batch = _running_here(batch_id, kept)
    if batch is None:
        found = await run_in_thread(partial(read_batch, kept, batch_id))
        if not found.records and not found.rows:
            raise UsageError(f"{kept!r} has no batch {batch_id!r}")
        owner = agent or known_named(Agent, found.agent)
        if owner is None:
            raise UsageError(
                f"{batch_id!r} is a batch of the agent {found.agent!r}, which this process does not have. Define it "
                "first, or pass agent="
            )
        options = BatchOptions(attended=is_person_there, budget=found.budget, **given)
        options.of_runs(kept).check(owner._spec(owner.tools))  # noqa: SLF001 - as the agent itself starts runs
        work = _new_work(batch_id, owner, kept, options, executor)
        batch = Batch(work, attended=is_there(host, attended=attended))
        batch._start()  # noqa: SLF001 - one class
        await asyncio.wrap_future(batch._when_started())  # noqa: SLF001 - as above
        if batch._error is not None:  # noqa: SLF001 - as above
            raise batch._error  # noqa: SLF001 - as above
    else:
        work = work_of(batch)
        owner = agent or work.agent
        _check_agent(batch.agent, owner, batch_id)
        if attended is not None or answers is not None:
            given["attended"] = is_person_there
        is_stopped = batch._loop.is_closed()  # noqa: SLF001 - as above
        if given or executor is not None or owner is not work.agent or is_stopped:
            options = replace(work.options, **given)
            options.of_runs(kept).check(owner._spec(owner.tools))  # noqa: SLF001 - as above
            executor = work.executor if executor is None else executor
            batch._continue_with(options, owner, executor)  # noqa: SLF001 - as above
    if show and work_of(batch).options.attended:
        batch.view()
    return batch
