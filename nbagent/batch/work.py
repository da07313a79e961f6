"""The work on a batch: it starts and continues rows, and records their results.

The work runs in the body of the batch's own run, a flow. The process that drives the flow does the work. Each row
is a separate run, started like any other run. A row that waits for a person uses no resources of this process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from nbagent.core.agent import Agent
from nbagent.core.base.errors import BudgetExceeded, Conflict, RunError, StoreError, UsageError
from nbagent.core.base.events import RowOf
from nbagent.core.base.messages import is_prompt
from nbagent.core.base.model import NOTHING, Usage
from nbagent.core.call.threads import run_in_thread
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import Archive, Changing
from nbagent.core.journal.store import Store
from nbagent.core.run.run import Run, session_of, unanswered_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.run.session import GRACE, find_session
from nbagent.core.run.start import Options, follow_stored, launch_apart
from nbagent.core.stored.catalog import ENDED
from nbagent.core.tools.spec import Budget

from .listing import RowState, StoredBatch, is_row, read_batch, update_row
from .rows import InputRow, RowSource, run_id_of

POLL = 0.5
"""Seconds between checks for answered rows; more if a check takes long."""
POLL_FACTOR = 20
"""The wait between checks, as a multiple of the duration of the last check."""
LONGEST_POLL = 5.0
"""Maximum seconds between checks, unless a check itself takes longer."""
MAX_STEP_ROWS = 200
"""The number of rows that are handled before other tasks run on the event loop."""
MAX_NAMED = 5
"""The maximum number of keys in an error message."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of a batch; see ``nb.map``."""

    source: RowSource | None = None
    concurrency: int = 8
    retry: int = 0
    on_error: Literal["keep", "stop"] = "keep"
    budget: Budget | None = None
    answers: Answers = None
    changed: Literal["keep", "again"] | None = None
    context: Any = None
    attended: bool = False
    background: bool = False

    @property
    def can_answer(self) -> bool:
        """Whether ``answers`` can answer open questions, because no person can."""
        return self.answers is not None and not self.attended

    def of_runs(self, store: Store) -> Options:
        """The options with which the rows are started."""
        return Options(
            store=store,
            answers=self.answers,
            attended=self.attended,
            show=False,
            context=self.context,
            nested=False,
            is_new=True,
        )


class Work:
    """The state of a batch, and the work on it in this process."""

    def __init__(  # noqa: PLR0915 - one line for each attribute
        self, batch: str, agent: Agent, store: Store, options: BatchOptions
    ) -> None:
        self.batch, self.agent, self.store, self.options = batch, agent, store, options
        self.executor: Any = None
        self.rows: dict[str, RowState] = {}
        """The rows that have started, by key."""
        self.ended: list[RowState] = []
        """Rows that ended since this process opened the batch, in the order of their ends."""
        self.counts: Counter[str] = Counter()
        """The number of rows with each run status."""
        self.active: dict[str, Run | None] = {}
        """The runs of rows that are running, by key; None while a run is read, or if an executor has it."""
        self.stuck: dict[str, str] = {}
        """For each stuck row, by key, the reason and what to do. Its process is alive but does not respond."""
        self.is_paused = False
        self.version = 0
        """A number that grows with every change."""
        self.unanswered: Exception | None = None
        """The error to raise if code awaits the batch, a row needs an answer, and nobody can answer."""
        self.is_driving = False
        """Whether this process is driving the batch."""
        self._has_looked = False
        """Whether ``drive`` has checked which of the waiting rows were answered before it."""
        self.spec = agent._spec(agent.tools)  # noqa: SLF001 - as the agent itself starts runs
        self._context = copy_context()
        self._due: OrderedDict[str, RowState] = OrderedDict()
        """Started rows that continue as soon as ``concurrency`` allows, by key."""
        self._retry_keys: set[str] = set()
        """Keys of failed and stopped rows that a person retries."""
        self._last_check: tuple[object, dict[str, int]] = (None, {})
        """The store's token of the last check, and the lengths of all runs at the last check."""
        self._stamp_seen: object = None
        """The store's stamp when waiting rows were last checked; None if they must be checked."""
        self._open_tasks: set[asyncio.Task[None]] = set()
        self._outside: dict[str, Run] = {}
        """Runs with questions to external systems, by key. The runs stay open, so that an answer reaches them."""
        self._source_rows: Iterator[InputRow] | None = None
        """The rows of the source that can be started; None if there are none, or none may start."""
        self._numbers: dict[str, int] = {}
        """The positions of the keys that were read."""
        self._given: dict[str, InputRow] = {}
        """The input of rows that are being started, by key, until their runs are known to be theirs."""
        self._foreign: set[str] = set()
        """The ids of runs that are named like rows of the batch, but were not started by it."""
        self._earlier_ids: set[str] = set()
        """The ids of earlier runs of rows, whose usage is counted."""
        self._read_source: RowSource | None = None
        """The source that ``_rows_of_source`` reads."""
        self._rows_of_source: Iterator[InputRow] | None = None
        """The rows of the source that are not read yet, also while no row may start."""
        self._read_error: Exception | None = None
        """The error of a row of the source that could not be read."""
        self._unchanged_keys: set[str] = set()
        """Keys of rows whose prompts are known to be unchanged."""
        self._is_source_read = False
        """Whether all rows of the source were read."""
        self._input = self._output = self._unknown = 0
        self._cost = 0.0
        self._dearest = (0, 0.0)
        """The most tokens and the most dollars that a row has used at once: from a start or retry to a pause or end."""
        self._wakeup = asyncio.Event()
        self._waiters: list[tuple[Callable[[], bool], Future[None]]] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None
        """The error that ends the batch before all its rows have ended."""
        self._poll_task: asyncio.Task[None] | None = None
        self._is_loaded = False
        """Whether the state was read from the store."""
        self._is_leaving = False
        """Whether another ``Work`` will continue the batch."""
        self.has_ended = False
        """Whether ``drive`` has ended, or could not start."""

    # --- state

    @property
    def total(self) -> int | None:
        """The number of rows of the batch; None if it is unknown."""
        source = self.options.source
        if source is not None and source.count is not None:
            return source.count
        return len(self.rows) if source is None or self._is_source_read else None

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all rows that have paused or ended. The cost is None if a part is unknown."""
        cost = None if self._unknown else self._cost
        return Usage(self._input, self._output, cost, known_cost=self._cost)

    @property
    def left(self) -> int | None:
        """The number of rows that have not started; None if it is unknown."""
        total = self.total
        return None if total is None else max(0, total - len(self.rows))

    def is_waiting(self) -> bool:
        """Whether all rows that have not ended wait for an answer, or are stuck."""
        return (
            self.is_driving
            and self._has_looked
            and not self.is_paused
            and not (self.active or self._due or self._source_rows is not None)
            and (self.counts["interrupted"] > 0 or bool(self.stuck))
        )

    def waits_elsewhere(self) -> bool:
        """Whether another process drives the batch, and its last known rows have all ended or wait for an answer."""
        is_running = self.counts["running"] or self.counts["queued"] or self.left
        return (
            not (self.is_driving or self.has_ended or is_running) and self.counts["interrupted"] > 0
        )

    def when(self, holds: Callable[[], bool]) -> Future[None]:
        """Return a future that is done once ``holds()`` is true, checked at each change. Callable from any thread."""
        future: Future[None] = Future()
        with self._lock:
            if holds():
                future.set_result(None)
            else:
                self._waiters.append((holds, future))
        return future

    def notify(self) -> None:
        """Record a change of the batch, and complete the futures whose condition is now true."""
        self.version += 1
        if not self._waiters:
            return
        with self._lock:
            ready = [one for one in self._waiters if one[0]()]
            self._waiters = [
                one for one in self._waiters if one not in ready and not one[1].cancelled()
            ]
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    # --- starting

    def load(self, found: StoredBatch) -> None:
        """Load the batch's stored state, to continue the batch in this process or to follow another process."""
        for row in found.rows.values():
            known = self.rows.get(row.key)
            has_ended_before = known is not None and known.status in ENDED
            if self._is_loaded and row.status in ENDED and not has_ended_before:
                self.ended.append(row)
            self._add(row)
        self._foreign |= found.foreign
        for row in found.earlier:
            if row.run_id not in self._earlier_ids:
                self._earlier_ids.add(row.run_id)
                self._count_usage(row.usage, 1)
        self._is_loaded = True
        self.notify()

    async def forget_deleted(self) -> None:
        """Forget the ended and waiting rows whose runs were deleted from the store, so that they run again.

        Raises:
            StoreError: the store cannot be read.
        """
        stored = [row for row in self.rows.values() if self._is_idle_row(row)]  # before the read
        found = await run_in_thread(partial(read_batch, self.store, self.batch))
        for row in stored:
            if row.key not in found.rows and row.run_id not in found.unreadable:
                self._forget(row)

    def _is_idle_row(self, row: RowState) -> bool:
        """Whether the row has ended or waits, and nothing continues it now."""
        is_due = row.key in self.active or row.key in self._due
        return row.status in (*ENDED, "interrupted") and not is_due

    def _forget(self, row: RowState) -> None:
        """Forget a row whose run was deleted, unless the row has continued meanwhile."""
        if self.rows.get(row.key) is row and self._is_idle_row(row):
            del self.rows[row.key]
            self.counts[row.status] -= 1
            self._count_usage(row.usage, -1)

    async def check(self) -> bool:
        """Check the keys of a table's rows, and compare the rows with the stored ones. Return whether there is work to do.

        Raises:
            UsageError: two rows have the same key, or the prompt of a started row has changed.
        """
        source = self.options.source
        if source is None or not source.is_table:
            return source is not None or self._has_open()
        changed: list[str] = []
        unfinished: list[str] = []
        numbers: dict[str, int] = {}
        is_new = False
        if not self.rows:
            for number, key in enumerate(source.keys()):
                _note_key(numbers, key, number)
                if number % MAX_STEP_ROWS == MAX_STEP_ROWS - 1:
                    await asyncio.sleep(0)
            return bool(source.count)
        for given in source:
            _note_key(numbers, given.key, given.number)
            row = self.rows.get(given.key)
            if row is None:
                is_new = True
            else:
                row.number = given.number
                if row.digest == given.digest:
                    self._unchanged_keys.add(given.key)
                else:
                    changed.append(given.key)
                    if row.status == "interrupted":
                        unfinished.append(given.key)
            if given.number % MAX_STEP_ROWS == MAX_STEP_ROWS - 1:
                await asyncio.sleep(0)
        if changed and self.options.changed is None:
            raise self._prompt_changed_error(changed)
        if unfinished and self.options.changed == "again":
            raise _waiting_error(unfinished)
        return is_new or self._has_open() or (bool(changed) and self.options.changed == "again")

    def _has_open(self) -> bool:
        tries = (
            row.retried < self.options.retry for row in self.rows.values() if row.status == "failed"
        )
        return (
            bool(self._retry_keys)
            or any(self.counts[s] for s in ("running", "interrupted", "queued"))
            or any(tries)
        )

    def _prompt_changed_error(self, keys: list[str]) -> UsageError:
        return UsageError(
            f"The prompt of {len(keys):,} row{'s' * (len(keys) > 1)} of the batch {self.batch!r} has changed since "
            f"{'they' if len(keys) > 1 else 'it'} ran: {_named(keys)}. Use another id=, or changed='keep' to keep the "
            "results, or changed='again' to rerun"
        )

    # --- the work

    async def drive(self) -> dict[str, int]:
        """Run the rows until all have ended. The body of the batch's own run calls this method.

        Returns:
            The number of rows with each status.

        Raises:
            RunError: a row failed with ``on_error="stop"``, the budget is used up, or the store failed.
            UsageError: a row cannot be read.
        """
        self._has_looked = False
        self._loop, self.is_driving, self.failure = asyncio.get_running_loop(), True, None
        self._wakeup, self.has_ended = asyncio.Event(), False
        self._queue_rows()
        self._poll_task = self._loop.create_task(self._poll())
        try:
            if self.counts["interrupted"]:  # rows may have been answered since they were read
                await self.continue_answered()
            self._has_looked = True
            while True:
                self._wakeup.clear()
                skipped = self._fill()
                self.notify()
                if self._is_over():
                    break
                if skipped:
                    await asyncio.sleep(0)
                else:
                    await self._wakeup.wait()
        finally:
            self._poll_task.cancel()
            self.is_driving, self.has_ended = False, True
            self.notify()
        if self.failure is not None:
            raise self.failure
        return {name: n for name, n in sorted(self.counts.items()) if n}

    def _queue_rows(self) -> None:
        source = self.options.source
        # a generator continues where it was; its rows cannot be read again
        if source is None or source.is_table or source is not self._read_source:
            self._rows_of_source = None if source is None else iter(source)
            self._is_source_read, self._read_error = False, None
            self._numbers.clear()
        self._read_source = source
        self._source_rows = None if self._is_source_read else self._rows_of_source
        for row in self.rows.values():
            is_again = row.key in self._retry_keys and row.status in ("failed", "cancelled")
            if is_again:
                row.retried = min(row.retried, self.options.retry - 1)
            is_unfinished = row.status in ("running", "queued")
            can_answer = row.status == "interrupted" and self.options.can_answer
            is_tried = row.status == "failed" and row.retried < self.options.retry
            # a cancelled row gets a new run when it is read from the source again
            is_new_run = row.status == "cancelled" and source is not None and source.is_table
            if (is_again and not is_new_run) or is_unfinished or can_answer or is_tried:
                self._set_due(row)
                self._retry_keys.discard(row.key)

    async def restart(self, options: BatchOptions) -> None:
        """Continue with new options, or retry rows, while this process drives the batch.

        Raises:
            UsageError: an option is invalid.
        """
        self.options, self.failure = options, None
        self._unchanged_keys.clear()
        self.spec = self.agent._spec(self.agent.tools)  # noqa: SLF001 - the tools may have changed
        if self._poll_task is not None and self._poll_task.done() and self._loop is not None:
            self._poll_task = self._loop.create_task(self._poll())
        self._queue_rows()
        self.wake()

    def leave(self) -> None:
        """Start no more rows. Another ``Work`` continues the batch once all running rows have paused or ended."""
        self._is_leaving = True
        self._source_rows = None
        self._due.clear()
        self.wake()

    def hand_over(self, to: Work) -> None:
        """Move the waiting futures, the pause and the ended rows to the ``Work`` that continues the batch."""
        to.is_paused, to.ended = self.is_paused, self.ended
        with self._lock:
            to._waiters, self._waiters = self._waiters, []

    def _is_idle(self) -> bool:
        return not self.active

    def _is_over(self) -> bool:
        if self._is_leaving:
            return self._is_idle()
        if self.active:
            return False
        if self.failure is not None:
            return True
        return not self.is_paused and not (
            self._due or self._source_rows is not None or self.counts["interrupted"] or self.stuck
        )

    def _fill(self) -> bool:
        """Start or continue rows while there is room. Return whether to call this method again at once."""
        self._check_budget()
        for _ in range(MAX_STEP_ROWS):
            if not self._may_start():
                return False
            try:
                if self._due:
                    self._resume(self._due.popitem(last=False)[1])
                elif not self._start_next():
                    return False
            except Exception as error:
                self.fail(error)
                return False
        return True

    def _may_start(self) -> bool:
        """Whether one more row may start, continue or be retried now. Nothing else decides this."""
        is_stopped = self.is_paused or self._is_leaving or self.failure is not None
        is_full = len(self.active) >= self.options.concurrency
        return not (is_stopped or is_full or self._is_used_up())

    def _start_next(self) -> bool:
        """Read the next row of the source, and start the row if it needs a new run. Return False after the last row."""
        if self._source_rows is None:
            return False
        if self._read_error is not None:  # the rows after it cannot be read
            raise self._read_error
        try:
            given = next(self._source_rows, None)
        except Exception as error:
            self._read_error = error
            raise
        if given is None:
            self._source_rows, self._is_source_read = None, True
            return False
        _note_key(self._numbers, given.key, given.number)
        row, attempt = self.rows.get(given.key), 1
        if row is not None and row.status == "cancelled" and given.key in self._retry_keys:
            self._retry_keys.discard(given.key)
            attempt = row.attempt + 1
        elif row is not None:
            row.number = given.number
            if given.key in self._unchanged_keys or row.digest == given.digest:
                return True
            if self.options.changed is None:
                raise self._prompt_changed_error([given.key])
            if self.options.changed == "again" and row.status == "interrupted":
                raise _waiting_error([given.key])
            if self.options.changed == "keep" or row.status not in ENDED:
                return True
            attempt = row.attempt + 1
        self._start_row(given, attempt)
        return True

    def _new_row(self, given: InputRow, attempt: int) -> RowState:
        """Return a row to start, with a run id that no other run has."""
        number, key, _, digest = given
        while (run_id := run_id_of(self.batch, key, attempt)) in self._foreign:
            attempt += 1
        return RowState(key, run_id, number, digest, attempt=attempt)

    def _start_row(self, given: InputRow, attempt: int) -> None:
        row = self._new_row(given, attempt)
        self._given[row.key] = given
        try:
            launch = partial(launch_apart, self.spec, given.prompt, blocking=False)
            run = self._launched(launch, row, self._row_of(row))
        except Conflict:  # another process started the run after the store was read
            self._add(row)
            self._open_later(row)
            return
        self._add(row)
        self._follow(row, run)

    def _row_of(self, row: RowState) -> RowOf:
        return RowOf(batch=self.batch, key=row.key, number=row.number, prompt=row.digest)

    def _launched(self, launch: Callable[..., Run], row: RowState, of: RowOf) -> Run:
        options = self.options.of_runs(self.store)
        options = replace(options, background=self.options.background, id=row.run_id, row=of)
        return self._context.copy().run(partial(launch, options=options))

    def _follow(self, row: RowState, run: Run) -> None:
        """Call ``_settled`` when the row's run has paused or ended."""
        self.active[row.key] = run
        settled = session_of(run).when_settled()
        settled.add_done_callback(lambda _: self._on_loop(partial(self._settled, row, run)))

    def _on_loop(self, work: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this on the loop of this process's ``drive``, as a task."""
        assert self._loop is not None  # this process is driving
        task = self._loop.create_task(work)
        self._open_tasks.add(task)
        task.add_done_callback(self._open_tasks.discard)

    def _settled(self, row: RowState, run: Run) -> None:
        """Handle a run that has paused or ended: retry it, release it, or record its result."""
        session = session_of(run)
        state, error = session.state, session.error
        if self.active.get(row.key) is not run:
            return
        if error is not None and state.outcome is None:
            del self.active[row.key]
            if isinstance(error, Conflict) and not state.position:  # another process started it
                self._set_due(row)
            elif session.was_taken:  # another process has taken the run over; its end counts
                self._open_later(row)
            else:  # the store failed
                self.fail(error)
            self.wake()
            return
        self._given.pop(row.key, None)
        if not session.is_settled():
            self._follow(row, run)
            return
        self._change_row(row, partial(update_row, row, state))
        self._outside.pop(row.key, None)
        if row.status == "interrupted":
            self._release_waiting(row, run)
            return
        del self.active[row.key]
        if row.status == "failed" and row.retried < self.options.retry:
            if self._may_start():
                self._continue_run(row, run)
            else:
                self._set_due(row)
        elif row.status in ENDED:
            self._row_ended(row, run)
        self.wake()

    def _release_waiting(self, row: RowState, run: Run) -> None:
        """Release a waiting run, so that any process can answer it. Keep a run that an external system answers."""
        session = session_of(run)
        if not self.options.attended and self.unanswered is None and session.is_over():
            self.unanswered = unanswered_of(session)
        if any(event.external is not None for event in session.state.open):
            self._outside[row.key] = run
            self._set_waiting(row, run)
            return
        try:
            released = session.follower.release()
        except StoreError as error:
            self.fail(error)
            self._set_waiting(row, run)
        except UsageError:  # the run was answered meanwhile
            self._follow(row, run)
        else:
            released.add_done_callback(
                lambda _: self._on_loop(partial(self._set_waiting, row, run))
            )

    def _set_waiting(self, row: RowState, run: Run) -> None:
        """Mark the row as waiting, unless the row was answered meanwhile."""
        state = session_of(run).state
        if state.status != "interrupted" and self.failure is None:
            self._follow(row, run)
            return
        self._change_row(row, partial(update_row, row, state))
        self.active.pop(row.key, None)
        self.wake()

    def _row_ended(self, row: RowState, run: Run | None = None) -> None:
        self.ended.append(row)
        if row.status == "failed" and self.options.on_error == "stop":
            failure = RunError(
                f"Row {row.key!r} failed, and on_error='stop' ends the batch: {row.error}. The same call with "
                "the same id continues the batch"
            )
            try:
                _ = None if run is None else run.result
            except Exception as error:  # the error of the row
                failure.__cause__ = error
            self.fail(failure)

    def fail(self, error: BaseException) -> None:
        """Start no more rows. The error is raised once the running rows have paused or ended."""
        self.failure = self.failure or error
        self._source_rows = None
        self._due.clear()

    # --- rows that have started

    def _set_due(self, row: RowState) -> None:
        if self._is_leaving or self.failure is not None:
            return  # the next start finds the row in the store
        if row.key not in self.active and row.key not in self.stuck:
            self._due.setdefault(row.key, row)

    def _resume(self, row: RowState) -> None:
        """Continue a stored row; a cancelled row gets a new run."""
        is_new = row.status == "cancelled" or row.key in self._given
        session = None if is_new else find_session(row.run_id, self.store)
        is_answered = row.status == "interrupted" and self.options.can_answer
        if session is not None and (session.is_active or not is_answered):
            session.follow()  # the session may not have read the newest events
            self._continue_run(row, session.handle() or Run(session))
        else:
            self._open_later(row)

    def _open_later(self, row: RowState) -> None:
        self.active[row.key] = None
        self._spawn(self._open(row, Journal(row.run_id, self.store)))

    async def _open(self, row: RowState, journal: Journal) -> None:
        try:
            await run_in_thread(journal.catch_up)
            new = self._given.pop(row.key, None)
            if new is not None and not is_row(journal.state, self.batch, row.key):
                self._foreign.add(row.run_id)
                del self.active[row.key]
                self._start_row(new, row.attempt)
                return
            if journal.state.status == "cancelled" and row.status == "cancelled":
                del self.active[row.key]
                given = InputRow(row.number, row.key, prompt_of(journal), row.digest)
                self._start_row(given, row.attempt + 1)
                return
            await self.agent._know_tools(journal)  # noqa: SLF001 - as ``open_run`` does
            of = journal.state.row or self._row_of(row)
            run = self._launched(partial(follow_stored, self.spec, journal), row, of)
        except (UsageError, RunError) as error:
            self.active.pop(row.key, None)
            self.fail(error)
            self.wake()
            return
        self._continue_run(row, run)

    def _continue_run(self, row: RowState, run: Run) -> None:
        state = session_of(run).state
        if row.status == "failed" and state.status == "failed":
            try:
                run.retry()
            except (UsageError, StoreError):  # a call may have taken effect, or the store fails
                self.active.pop(row.key, None)
                self._row_ended(row, run)
                self.wake()
                return
            row.retried += 1
        self._change_row(row, partial(setattr, row, "status", "running"))
        self._follow(row, run)

    async def _poll(self) -> None:
        """Check repeatedly whether waiting rows were answered, in any process."""
        wait = POLL
        try:
            while True:
                await asyncio.sleep(wait)
                started = time.monotonic()
                await self._check_other_processes()
                if self.counts["interrupted"]:
                    store = self.store
                    now = await run_in_thread(store.stamp) if isinstance(store, Archive) else None
                    if now is None or now != self._stamp_seen:
                        self._stamp_seen = now
                        await self.continue_answered()
                    self._continue_expired()
                took = time.monotonic() - started
                wait = max(POLL, min(POLL_FACTOR * took, max(took, LONGEST_POLL)))
        except Exception as error:
            self.fail(error)
            self.wake()

    async def _check_other_processes(self) -> None:
        """Check rows that run in other processes. Only ``SentWork`` needs this."""

    async def continue_answered(self) -> None:
        """Continue the waiting rows whose journals have new events.

        Raises:
            StoreError: the store cannot be read.
        """
        waiting = {row.run_id: row for row in self.rows.values() if row.status == "interrupted"}
        lengths = await run_in_thread(partial(self._lengths, list(waiting)))
        for run_id, length in lengths.items():
            row = waiting[run_id]
            if row.length != length and row.status == "interrupted":
                self._change_row(row, partial(setattr, row, "status", "queued"))
                self._set_due(row)
        missing = waiting.keys() - lengths.keys()
        for run_id in await run_in_thread(partial(self._deleted, missing)) if missing else ():
            self._forget(waiting[run_id])
        self.wake()

    def _deleted(self, run_ids: Iterable[str]) -> list[str]:
        """The runs that the store no longer has."""
        deleted = []
        for run_id in run_ids:
            try:
                self.store.read(run_id)
            except UsageError:
                deleted.append(run_id)
        return deleted

    def _lengths(self, run_ids: list[str]) -> dict[str, int]:
        store: object = self.store
        if isinstance(store, Changing):
            since, lengths = self._last_check
            changes = store.changes(f"{self.batch}:", since)
            changed = {head.run_id: head.length for head in changes.heads}
            lengths = changed if changes.is_whole else lengths | changed
            self._last_check = (changes.token, lengths)
            return {run_id: lengths[run_id] for run_id in run_ids if run_id in lengths}
        if isinstance(self.store, Archive):
            wanted = set(run_ids)
            heads = self.store.heads(f"{self.batch}:")
            return {head.run_id: head.length for head in heads if head.run_id in wanted}
        return {run_id: len(self.store.read(run_id)) for run_id in run_ids}

    def _continue_expired(self) -> None:
        now = time.time()
        for row in self.rows.values():
            if row.status == "interrupted" and row.deadline is not None and row.deadline <= now:
                self._set_due(row)
        self.wake()

    # --- counting

    def _add(self, row: RowState) -> None:
        known = self.rows.get(row.key)
        if known is not None:
            self.counts[known.status] -= 1
            if known.run_id == row.run_id:
                self._count_usage(known.usage, -1)
            else:  # a new run of the row; the earlier one still counts
                self._earlier_ids.add(known.run_id)
        self.rows[row.key] = row
        self.counts[row.status] += 1
        self._count_usage(row.usage, 1)
        if row.status in ENDED:
            self._note_use(NOTHING, row.usage)

    def _change_row(self, row: RowState, change: Callable[[], None]) -> None:
        self.counts[row.status] -= 1
        before = row.usage
        self._count_usage(before, -1)
        change()
        self._note_use(before, row.usage)
        if row.status == "interrupted":  # the answer may be in the store already
            self._stamp_seen = None
        self.counts[row.status] += 1
        self._count_usage(row.usage, 1)

    def _count_usage(self, usage: Usage, times: int) -> None:
        self._input += times * usage.input_tokens
        self._output += times * usage.output_tokens
        self._cost += times * usage.known_cost
        self._unknown += times * (not usage.is_priced)

    # --- the budget

    def _note_use(self, before: Usage, after: Usage) -> None:
        """Note how much a row has used since it was started or retried."""
        tokens, cost = self._dearest
        self._dearest = (
            max(tokens, after.total_tokens - before.total_tokens),
            max(cost, after.known_cost - before.known_cost),
        )

    def _is_used_up(self) -> bool:
        budget = self.options.budget
        if budget is None:
            return False
        tokens, cost = self._input + self._output, self._cost
        for key, run in self.active.items():
            # a running row counts at least as much as any row has used at once
            known = self.rows[key].usage
            used = known if run is None else session_of(run).state.usage
            tokens += max(self._dearest[0], used.total_tokens - known.total_tokens)
            cost += max(self._dearest[1], used.known_cost - known.known_cost)
        return (budget.tokens is not None and tokens >= budget.tokens) or (
            budget.cost is not None and cost >= budget.cost
        )

    def _check_budget(self) -> None:
        """Fail if the budget is used up, no row is running, and rows still need to run."""
        is_due = bool(self._due) or self._source_rows is not None
        if self.active or not is_due or self.is_paused or not self._is_used_up():
            return
        budget = self.options.budget
        assert budget is not None  # a budget is used up
        limits = [f"{budget.tokens:,} tokens"] if budget.tokens is not None else []
        limits += [f"${budget.cost:,.2f}"] if budget.cost is not None else []
        usage, not_started = self.usage, self.left
        self.fail(
            BudgetExceeded(
                f"The budget of {' and '.join(limits)} for the batch {self.batch!r} is used up. Its rows used "
                f"{usage.total_tokens:,} tokens, ${usage.known_cost:,.4f}"
                + (f"; {not_started:,} rows have not started" if not_started else "")
                + ". The same call with the same id and a larger budget= continues the batch"
            )
        )

    # --- control

    def wake(self) -> None:
        """Make ``drive`` check for rows to run. Callable from any thread."""
        self.version += 1
        self._on_loop(self._wakeup.set)

    def pause(self, *, paused: bool) -> None:
        """Pause or resume starting rows. Running rows continue."""
        self.is_paused = paused
        self.wake()
        self.notify()

    async def stop(self, by: str) -> None:
        """Cancel the running rows."""
        self.fail(RunError("The batch was stopped"))
        stopped = [
            asyncio.wrap_future(session_of(run).stop(by=by))
            for run in [*self.active.values()]
            if run is not None
        ]
        if stopped:
            await asyncio.wait(stopped, timeout=GRACE)

    def mark_for_retry(self, keys: list[str] | None) -> int:
        """Mark failed and stopped rows for a retry. Return their number."""
        chosen = [
            row
            for row in self.rows.values()
            if row.status in ("failed", "cancelled") and (keys is None or row.key in keys)
        ]
        self._retry_keys.update(row.key for row in chosen)
        return len(chosen)


def _named(keys: list[str]) -> str:
    """The first keys, as a list for an error."""
    return ", ".join(map(repr, keys[:MAX_NAMED])) + (", …" if len(keys) > MAX_NAMED else "")


def _waiting_error(keys: list[str]) -> UsageError:
    """The error for rows that cannot run again with a new prompt, because they wait for an answer."""
    return UsageError(
        f"The prompt has changed, but these rows still wait for an answer to their earlier prompt: {_named(keys)}. "
        "Answer or reject their questions first, then use changed='again'"
    )


def _note_key(numbers: dict[str, int], key: str, number: int) -> None:
    """Record the position of a row's key."""
    before = numbers.setdefault(key, number)
    if before != number:
        raise UsageError(
            f"Rows {before} and {number} have the same key {key!r}. Pass a column, or a function "
            "of the row, with unique values as key="
        )


def prompt_of(journal: Journal) -> str:
    """Return the prompt of a row's run.

    Raises:
        UsageError: the prompt is not a single text.
    """
    prompt = next((m for m in reversed(journal.state.messages) if is_prompt(m)), None)
    content: Any = () if prompt is None else prompt["content"]
    if [part.get("type") for part in content] != ["text"]:
        raise UsageError(
            f"{journal.run_id!r} has a prompt that is not a single text. Call nb.map with the rows to start it again"
        )
    return str(content[0]["text"])
