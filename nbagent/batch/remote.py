"""Work on a batch whose rows run in other processes. An executor receives them in chunks; the store has the results."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Literal, TypeAlias

from nbagent.core.agent import Agent
from nbagent.core.base.errors import NbagentError, RunError, UsageError
from nbagent.core.base.events import RunCancelled, RunRetried, StoredEvent
from nbagent.core.base.process import describe_process, has_ended
from nbagent.core.base.user import user_behind
from nbagent.core.call.threads import run_in_thread
from nbagent.core.hooks import hooks
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.journal.store import Store
from nbagent.core.run import heartbeat
from nbagent.core.run.answers import interrupts_of
from nbagent.core.run.describe import unanswered
from nbagent.core.run.heartbeat import OtherProcesses
from nbagent.core.run.lost_calls import owners_elsewhere
from nbagent.core.state.state import running_calls
from nbagent.core.stored.catalog import ENDED

from .executors import Executor
from .listing import RowState, is_row, update_row
from .rows import InputRow
from .shares import TASKS_WITHOUT_WORKERS, Lease, Shares
from .work import BatchOptions, Work
from .workers import (
    BatchDriver,
    Job,
    Kit,
    TaskResult,
    drivers,
    packed,
    probe,
    run_rows,
    stop_name,
    this_driver,
)

MAX_TASK_ROWS = 32
"""The maximum number of rows in one task. If a worker ends, all rows of its task are checked."""
MAX_LOSSES = 5
"""The maximum number of times that the task of a row may be lost. After that, the batch fails."""

Lost: TypeAlias = Literal["", "task", "worker"]
"""What a row lost before it ended or paused: nothing, its task, or the task with its worker, whose process has ended."""
_Found: TypeAlias = tuple[Journal, list[StoredEvent]]
"""The journal of a row's run, and its events."""


class SentWork(Work):
    """Work that sends rows to an executor. A task runs its rows until each row has ended or waits for an answer.

    The state of a row is read from the store, not from the result of its task. A row can end outside its task, and
    a task can be lost.
    """

    def __init__(
        self, batch: str, agent: Agent, store: Store, options: BatchOptions, executor: Executor
    ) -> None:
        super().__init__(batch, agent, store, options)
        self.executor: Executor = executor
        """The executor that receives the next rows."""
        self._jobs: list[Job] = []
        """Rows not sent yet: they wait for shares of limits, or for the end of a pause."""
        self._kit = b""
        self._drivers: list[BatchDriver] = []
        """The drivers of all tasks: each restart makes a new one."""
        self._shares = Shares(())
        self._fill_timer: asyncio.TimerHandle | None = None
        """The timer of the next attempt to send rows, when a share may be free."""
        self._losses: Counter[str] = Counter()
        """The number of times that a row's task was lost, by key."""
        self._keys_to_take_over: set[str] = set()
        """Keys of rows whose runs can be taken over from their workers."""
        self._sent: dict[str, Job] = {}
        """Rows that are running in tasks, by key."""
        self._elsewhere: set[str] = set()
        """Keys of rows that run in processes that may be alive, outside the tasks of this batch."""
        self._watches: dict[str, RowWatch] = {}
        """The watches on running rows and their processes, by key."""
        self._checked_at = 0.0
        self._leases: set[Lease] = set()
        """The leases of tasks that are running, or may be running."""

    async def drive(self) -> dict[str, int]:
        """Run the rows, as ``Work.drive`` does. Workers are checked before any row starts.

        Raises:
            UsageError: the agent or an option cannot be sent to other processes, or a worker cannot start.
        """
        try:
            await self._make_ready()
        except (UsageError, RunError) as error:  # StoreError is one
            self.failure, self.has_ended = error, True
            self.notify()
            raise
        try:
            return await super().drive()
        finally:
            while self._leases:  # the tasks of these leases are not awaited
                self._leases.pop().record_lost()

    async def restart(self, options: BatchOptions) -> None:
        """Continue with new options, as ``Work.restart`` does. Rows are sent with the new options and executor.

        Raises:
            UsageError: the agent or an option cannot be sent to other processes, or a worker cannot start.
        """
        self.options = options
        await self._make_ready()
        await super().restart(options)

    def _is_idle(self) -> bool:
        return not self._sent

    async def _make_ready(self) -> None:
        if isinstance(self.store, MemoryStore):
            raise UsageError(
                "The workers of executor= cannot see this process's memory. Use store=nb.SQLStore(url), or "
                "nb.SQLiteStore(path) for processes of this machine"
            )
        options = self.options.of_runs(self.store)
        self._kit, limits = packed(Kit(self.agent, self.store, options))
        self._shares = Shares(limits)
        driver = await run_in_thread(partial(this_driver, self.store))
        self._drivers.append(driver)
        reports = await run_in_thread(partial(self.executor.probe, probe, driver, self._kit))
        wrong = [f"{worker}: {reason}" for worker, reason in reports if reason]
        if wrong:
            more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise UsageError(f"A worker cannot start: {wrong[0]}{more}. No row was started")

    def _queue_rows(self) -> None:
        if any(row.status in ("running", "queued") for row in self.rows.values()):
            self._shares.hold()  # an earlier driver may have sent requests just now
        super()._queue_rows()

    # --- sending

    def _fill(self) -> bool:
        skipped = super()._fill()
        if self.failure is not None or self._is_leaving:
            self._discard_jobs()
        slots = self.executor.slots()
        task_count = min(slots or TASKS_WITHOUT_WORKERS, self._shares.max_tasks or math.inf)
        size = min(MAX_TASK_ROWS, max(1, math.ceil(self.options.concurrency / task_count)))
        while self._jobs and not self.is_paused:
            lease = self._shares.lease(slots or TASKS_WITHOUT_WORKERS)
            if isinstance(lease, float):  # try again after these seconds; with 0, after a task
                assert self._loop is not None  # this process is driving
                if self._fill_timer is not None:
                    self._fill_timer.cancel()
                self._fill_timer = self._loop.call_later(lease, self.wake) if lease else None
                break
            chunk, self._jobs = self._jobs[:size], self._jobs[size:]
            self._leases.add(lease)
            self._sent.update((job.key, job) for job in chunk)
            given = (self._drivers[-1], self._kit, chunk, lease.grant)
            name = f"{self.batch}:{chunk[0].key:.40}"
            future = self.executor.submit(run_rows, *given, name=name)
            future.add_done_callback(partial(self._task_done, chunk, lease, self.executor))
        return skipped

    def _discard_jobs(self) -> None:
        """Discard the rows that wait to be sent, because no more rows are sent."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self.active.pop(job.key, None)
            if job.prompt is not None:  # the row has not started
                self.counts[self.rows.pop(job.key).status] -= 1

    def _send(self, row: RowState, prompt: Any) -> None:
        self.active[row.key] = None
        is_retry = prompt is None and row.status == "failed"
        worker_ended = row.key in self._keys_to_take_over
        self._keys_to_take_over.discard(row.key)
        of, length = self._row_of(row), row.length
        self._jobs.append(Job(row.key, row.run_id, of, prompt, is_retry, worker_ended, length))
        self._wakeup.set()
        if row.status != "running":
            self._change_row(row, partial(setattr, row, "status", "running"))

    def _start_row(self, given: InputRow, attempt: int) -> None:
        row = self._new_row(given, attempt)
        self._add(row)
        self._send(row, given.prompt)

    def _resume(self, row: RowState) -> None:
        if row.status == "cancelled":
            self._open_later(row)  # starts a new run, by ``_start_row``
        else:
            self._send(row, None)

    # --- results

    def _task_done(
        self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[TaskResult]
    ) -> None:
        self._on_loop(lambda: self._spawn(self._read_results(chunk, lease, executor, done)))

    async def _read_results(
        self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[TaskResult]
    ) -> None:
        """Read the rows of a task from the store, whether the task succeeded or not."""
        # without rows that ``_apply_check`` handled
        chunk = [job for job in chunk if self._sent.get(job.key) is job]
        keys = ", ".join(repr(job.key) for job in chunk[:3]) + (", …" if len(chunk) > 3 else "")
        try:  # an executor may be anyone's class
            error = _error_of(done)
            if error is None:
                lease.record_used(done.result().used)
                self._leases.discard(lease)
            lost: Lost = ""
            if error is not None and executor.is_lost(error):
                lost = "worker" if executor.has_ended(error) else "task"
                executor.renew()
            elif error is not None:  # the worker failed, as opposed to a row
                self.fail(_failure("A worker", keys, error))
            found = await run_in_thread(partial(self._read_journals, [job.run_id for job in chunk]))
        except Exception as trouble:
            for job in chunk:
                self._remove_running(job.key)
            is_own = isinstance(trouble, NbagentError)
            self.fail(trouble if is_own else _failure("executor=", keys, trouble))
            self.wake()
            return
        # again: ``_apply_check`` can handle rows during that read
        chunk = [job for job in chunk if self._sent.get(job.key) is job]
        for job in chunk:
            self._remove_running(job.key)
            self._update_row(self.rows[job.key], job, found.get(job.run_id), lost)
        if error is not None:
            lease.users = {job.key for job in chunk if job.key in self._elsewhere}
            self._end_lease(lease)
        self.wake()

    def _remove_running(self, key: str) -> None:
        """Record that a row no longer runs, as far as this process knows."""
        self.active.pop(key, None)
        self.stuck.pop(key, None)
        self._sent.pop(key, None)
        self._elsewhere.discard(key)
        self._watches.pop(key, None)
        for lease in [one for one in self._leases if key in one.users]:
            lease.users.discard(key)
            self._end_lease(lease)

    def _end_lease(self, lease: Lease) -> None:
        """End the lease of a lost task once no row of the task can use it."""
        if not lease.users and lease in self._leases:
            self._leases.discard(lease)
            lease.record_lost()

    def _read_journals(self, run_ids: list[str]) -> dict[str, _Found]:
        found = {}
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                events = self.store.read(run_id)
            except UsageError:  # the run never started
                continue
            journal.catch_up(events)
            found[run_id] = (journal, events)
        return found

    def _update_row(
        self, row: RowState, job: Job | None, found: _Found | None, lost: Lost = ""
    ) -> None:
        """Update a row from its journal. Send the row again if it was lost, was answered, or has a retry left."""
        is_new = job is not None and job.prompt is not None
        if found is not None and is_new and not is_row(found[0].state, self.batch, row.key):
            self._foreign.add(row.run_id)
            found = None  # the row has not started
        if found is not None:
            journal, events = found
            self._change_row(row, partial(update_row, row, journal.state))
            row.retried = sum(isinstance(event, RunRetried) for event in events)
            for watch in hooks.rows_elsewhere:
                watch(journal, events)
        if row.status == "interrupted" and found is not None:
            if not self.options.attended and self.unanswered is None:
                questions = interrupts_of(found[0].state, self.spec.tools, self.spec.agent)
                self.unanswered = unanswered(questions, {}, found[0], "")
            return
        if row.status in ENDED and found is not None:
            # a worker adds nothing to a run that cannot be retried: a call may have taken effect
            is_refused = job is not None and job.retry and row.length == job.length
            if row.status == "failed" and row.retried < self.options.retry and not is_refused:
                self._set_due(row)
            else:
                self._row_ended(row)
            return
        if self.failure is None:
            self._send_again(row, job, found, lost)
        elif found is None:  # the row has not started
            self.counts[self.rows.pop(row.key).status] -= 1

    def _send_again(self, row: RowState, job: Job | None, found: _Found | None, lost: Lost) -> None:
        """Send a row again if its task ended before the row, unless a process that may be alive runs the row."""
        self._losses[row.key] += bool(lost)
        if self._losses[row.key] > MAX_LOSSES:
            self.fail(
                RunError(
                    f"Row {row.key!r}: its task was lost {self._losses[row.key]} times. The same call with the same "
                    "id continues the batch"
                )
            )
            return
        if found is None:
            assert job is not None  # the row was sent, and has not started
            self._start_row(InputRow(row.number, row.key, job.prompt, row.digest), row.attempt)
            return
        processes = drivers(found[0])
        ended = [has_ended(each) for each in processes]
        if False in ended or (None in ended and lost != "worker"):
            # a process outside our tasks may still run the row: watch its journal instead
            self.active[row.key] = None
            self._elsewhere.add(row.key)
            return
        if lost == "worker" and processes:
            self._keys_to_take_over.add(row.key)
        self._set_due(row)

    # --- rows whose processes may be alive

    async def _check_other_processes(self) -> None:
        """Check the rows that run outside tasks, and whether the processes of all running rows respond."""
        now = time.monotonic()
        is_due = now - self._checked_at >= heartbeat.BEAT
        self._checked_at = now if is_due else self._checked_at
        keys = [*self._elsewhere, *(self._sent if is_due else ())]
        for key in keys:
            self._watches.setdefault(key, RowWatch(self.rows[key], self.store))
        watches = [(key, self._watches[key]) for key in keys]
        if not watches:
            return
        for key, watch, found in await run_in_thread(
            lambda: [(k, e, e.growth()) for k, e in watches]
        ):
            if self._watches.get(key) is watch:
                self._apply_check(self.rows[key], watch, found)

    def _apply_check(self, row: RowState, watch: RowWatch, found: _Found | None) -> None:
        """Apply the result of a check of a row's journal and processes."""
        key, is_elsewhere = row.key, row.key in self._elsewhere or row.key in self.stuck
        is_settled = False
        if found is not None:  # settled: the run has ended, or waits for an answer without a driver
            status = found[0].state.status
            is_settled = status in ENDED or (status == "interrupted" and found[0].is_vacant)
        # this process is done with the row, although its task may still run
        if found is not None and (is_elsewhere or is_settled):
            job = self._sent.get(key)
            self._remove_running(key)
            self._update_row(row, job, found)
            self.wake()
        elif watch.has_ended and is_elsewhere:
            self._remove_running(key)
            self._keys_to_take_over.add(key)
            self._set_due(row)
            self.wake()
        elif bool(watch.why) != (key in self.stuck):
            if watch.why:
                self.stuck[key] = watch.why
                self.active.pop(key, None)
            else:
                del self.stuck[key]
                self.active[key] = None
            self.wake()
            self.notify()

    # --- control

    async def stop(self, by: str) -> None:
        """Cancel the running rows. The cancellation is written to the store, from which workers read it."""
        self.fail(RunError("The batch was stopped"))
        self._discard_jobs()
        if isinstance(self.store, heartbeat.Beating):
            for driver in self._drivers:
                await run_in_thread(partial(self.store.beat, stop_name(driver)))
        under_way = [self.rows[key].run_id for key in (*self.active, *self.stuck)]
        await run_in_thread(partial(self._stop_each, under_way, by))

    def _stop_each(self, run_ids: list[str], by: str) -> None:
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                journal.catch_up()
            except UsageError:  # the run has not started
                continue
            if journal.state.outcome is None:
                ended = RunCancelled(at=self.spec.clock(), by=by, user=user_behind(by))
                journal.end(ended)


def _error_of(done: Future[TaskResult]) -> BaseException | None:
    if done.cancelled():
        return CancelledError("The task was cancelled")
    error = done.exception()
    if error is None and not isinstance(done.result(), TaskResult):
        return TypeError(f"the future has {done.result()!r:.80}, not the result of its function")
    return error


def _failure(who: str, keys: str, error: BaseException) -> RunError:
    failure = RunError(f"{who} failed at the rows {keys}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


class RowWatch:
    """A watch on a row in another process: whether the row's journal grows, and whether the process responds."""

    def __init__(self, row: RowState, store: Store) -> None:
        self._run_id, self._store, self._length = row.run_id, store, row.length
        self._others = OtherProcesses(store, row.run_id)
        self._journal: Journal | None = None
        self.has_ended = False
        """Whether the row's run can be taken over."""
        self.why = ""
        """The reason why the row is stuck: its process is alive but does not respond. Empty if the row is not stuck."""

    def growth(self) -> _Found | None:
        """Return the row's journal and events if the journal has grown, otherwise None. Blocks.

        Raises:
            StoreError: the store cannot be read.
        """
        try:
            more = self._store.read(self._run_id, self._length)
        except UsageError:  # the run has not started
            return None
        if more or (self._journal is None and self._others.silent >= heartbeat.BEAT / 2):
            events = self._store.read(self._run_id)
            self._journal = Journal(self._run_id, self._store, keeps_events=False)
            self._journal.catch_up(events)
            if more:
                self._length = len(events)
                self._others.moved()
                self.why, self.has_ended = "", False
                return self._journal, events
        if self._journal is not None:
            self._check_processes(self._journal)
        return None

    def _check_processes(self, journal: Journal) -> None:
        """Check whether the row's processes are alive and respond."""
        state, processes = journal.state, drivers(journal)
        self.has_ended = bool(processes) and all(map(self._others.has_ended, processes))
        owners = owners_elsewhere(state)
        silent = [each for each in processes if self._others.drives_nothing(each)]
        # without a running tool, another process can take the run over
        self.has_ended |= bool(silent) and not owners
        self.why = ""
        if not self.has_ended and any(each in silent for each in owners):
            names = ", ".join(dict.fromkeys(call.name for call in running_calls(state)))
            self.why = (
                f"{names} is running in {describe_process(silent[0])}, which does not respond. Wait for it, or open the "
                "row and take it over"
            )
