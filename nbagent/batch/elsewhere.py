"""Work on a batch whose rows run in other processes. An executor receives rows in chunks; results come from the store."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.base.errors import RunError, StoreError, UsageError
from nbagent.core.base.events import RowOf, RunCancelled, RunRetried, StoredEvent
from nbagent.core.base.process import describe_process, has_ended
from nbagent.core.base.user import user_behind
from nbagent.core.call.threads import run_in_thread
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.run import heartbeat
from nbagent.core.run.answers import interrupts_of
from nbagent.core.run.describe import unanswered
from nbagent.core.run.heartbeat import Others
from nbagent.core.run.lost_calls import owners_elsewhere
from nbagent.core.state.state import RunState, running_calls

from .executors import Executor
from .listing import Row, take_in
from .rows import Given, run_id_of
from .shares import GROWING, Lease, Shares
from .work import ENDED, Asked, Work
from .workers import Came, Driver, Job, Kit, drivers, packed, probe, run_rows, this_driver

MOST = 32
"""The maximum number of rows in one task. If a worker ends, all rows of its task are checked."""
LOST = 5
"""The maximum number of times that a row may be lost with its worker. After that, the batch fails."""


class SentWork(Work):
    """Work that sends rows to an executor. A task runs its rows until each has ended or waits for an answer.

    The state of a row is read from the store, not from the result of its task. A row can end outside its task, and
    a task can be lost.
    """

    def __init__(
        self, batch: str, agent: Agent, store: Store, asked: Asked, executor: Executor
    ) -> None:
        super().__init__(batch, agent, store, asked)
        self.executor = executor
        """The executor that receives the next rows."""
        self._jobs: list[Job] = []
        """Rows that wait to be sent: for a task, or for a share of a limit."""
        self._kit = b""
        self._driver: Driver | None = None
        self._shares = Shares(())
        self._again_at: asyncio.TimerHandle | None = None
        """The timer of the next attempt, when a share may be free."""
        self._lost: Counter[str] = Counter()
        """The number of times that a row's task was lost, by key."""
        self._ended_with: set[str] = set()
        """Keys of rows whose workers have certainly ended."""
        self._sent: dict[str, Job] = {}
        """Rows that are running in tasks, by key."""
        self._apart: set[str] = set()
        """Keys of rows that run in processes that may be alive, outside the tasks of this batch."""
        self._lives: dict[str, Life] = {}
        """The watches on running rows and their processes, by key."""
        self._looked_at = 0.0
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
            self.tell()
            raise
        try:
            return await super().drive()
        finally:
            for lease in [*self._leases]:  # their tasks are not awaited
                lease.waits.clear()
                self._end_lease(lease)

    async def anew(self, asked: Asked) -> None:
        """Continue with new options, as ``Work.restart`` does. Rows are sent with them, to the current executor.

        Raises:
            UsageError: the agent or an option cannot be sent to other processes, or a worker cannot start.
        """
        self.asked = asked
        await self._make_ready()
        await super().anew(asked)

    def leave(self) -> None:
        """Start no more rows, as ``Work.leave`` does, and discard the rows that wait to be sent."""
        self._put_back()
        super().leave()

    def _is_at_a_stand(self) -> bool:
        return not self._sent

    async def _make_ready(self) -> None:
        if isinstance(self.store, MemoryStore):
            raise UsageError(
                "The workers of executor= cannot see this process's memory. Use store=nb.SQLStore(url), or "
                "nb.SQLiteStore(path) for processes of this machine"
            )
        asked = self.asked
        kit = Kit(self.agent, self.store, asked.answers, asked.context, asked.attended)
        self._kit, limits = packed(kit)
        self._shares = Shares(limits)
        self._driver = driver = await run_in_thread(partial(this_driver, self.store))
        told = await run_in_thread(partial(self.executor.probe, probe, driver, self._kit))
        wrong = [f"{who}: {why}" for who, why in told if why]
        if wrong:
            more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise UsageError(f"A worker cannot start: {wrong[0]}{more}. No row was started")

    def _begin(self) -> None:
        if any(row.status in ("running", "queued") for row in self.rows.values()):
            self._shares.hold()  # an earlier driver may have sent requests just now
        super()._begin()

    # --- sending

    def _fill(self) -> bool:
        skipped = super()._fill()
        if self.failure is not None or self._is_left:
            self._put_back()
        slots = self.executor.slots()
        among = min(slots or GROWING, self._shares.most or math.inf)
        size = min(MOST, max(1, math.ceil(self.asked.concurrency / among)))
        while self._jobs and not self.is_paused:
            lease = self._shares.give(slots or GROWING)
            if isinstance(lease, float):
                self._come_back(lease)
                break
            chunk, self._jobs = self._jobs[:size], self._jobs[size:]
            self._leases.add(lease)
            self._sent.update((job.key, job) for job in chunk)
            given = (self._driver, self._kit, chunk, lease.grant)
            future = self.executor.submit(run_rows, *given, name=self._name(chunk))
            future.add_done_callback(partial(self._is_done, chunk, lease, self.executor))
        return skipped

    def _come_back(self, seconds: float) -> None:
        """Try again to send rows after ``seconds``. With 0, wait until a task has ended."""
        assert self._loop is not None  # it is at work
        if self._again_at is not None:
            self._again_at.cancel()
        self._again_at = self._loop.call_later(seconds, self.wake) if seconds else None

    def _put_back(self) -> None:
        """Discard the rows that wait to be sent, because the batch ends."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self.active.pop(job.key, None)
            if job.prompt is not None:  # it has not started
                self.counts[self.rows.pop(job.key).status] -= 1

    def _name(self, chunk: list[Job]) -> str:
        return f"{self.batch}:{chunk[0].key:.40}"

    def _send(self, row: Row, prompt: Any) -> None:
        self.active[row.key] = None
        of = RowOf(batch=self.batch, key=row.key, number=row.number, prompt=row.digest)
        is_retry = prompt is None and row.status == "failed"
        gone = row.key in self._ended_with
        self._ended_with.discard(row.key)
        self._jobs.append(Job(row.key, row.run_id, of, prompt, is_retry, gone, row.length))
        self._moved.set()
        if row.status != "running":
            self._counted(row, partial(setattr, row, "status", "running"))

    def _start(self, given: Given, attempt: int) -> None:
        number, key, prompt, digest = given
        row = Row(key, run_id_of(self.batch, key, attempt), number, digest, attempt=attempt)
        self._add(row)
        self._send(row, prompt)

    def _resume(self, row: Row) -> None:
        if row.status == "cancelled":
            self._read(row)  # starts a new run, by ``_start_row``
        else:
            self._send(row, None)

    # --- results

    def _is_done(
        self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[Came]
    ) -> None:
        self._on_loop(partial(self._came, chunk, lease, executor, done))

    def _came(self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[Came]) -> None:
        """Handle a task that has ended or was lost."""
        assert self._loop is not None  # it is at work
        error = (
            done.exception() if not done.cancelled() else CancelledError("The task was cancelled")
        )
        if error is None:
            lease.ended(done.result().used)
            self._leases.discard(lease)
        task = self._loop.create_task(self._look_at(chunk, lease, executor, error))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _look_at(
        self, chunk: list[Job], lease: Lease, executor: Executor, error: BaseException | None
    ) -> None:
        """Read the rows of a task from the store, whether the task succeeded or not."""
        chunk = [job for job in chunk if self._sent.get(job.key) is job]  # the others are handled elsewhere
        is_lost = error is not None and executor.is_lost(error)
        has_word = is_lost and error is not None and executor.has_ended(error)
        try:
            if is_lost:
                executor.renew()
            elif error is not None:
                self.fail(_named(error, chunk))
            found = await run_in_thread(partial(self._found, [job.run_id for job in chunk]))
        except (UsageError, RunError, StoreError) as trouble:
            for job in chunk:
                self._leave(job.key)
            self.fail(trouble)
            self.wake()
            return
        chunk = [job for job in chunk if self._sent.get(job.key) is job]  # the store was read meanwhile
        for job in chunk:
            self._leave(job.key)
            came = found.get(job.run_id)
            self._come_of(self.rows[job.key], job, came, is_lost=is_lost, has_word=has_word)
        if error is not None:
            lease.waits = {job.key for job in chunk if job.key in self._apart}
            self._end_lease(lease)
        self.wake()

    def _leave(self, key: str) -> None:
        """Record that a row no longer runs, as far as this process knows."""
        self.active.pop(key, None)
        self.stuck.pop(key, None)
        self._sent.pop(key, None)
        self._apart.discard(key)
        self._lives.pop(key, None)
        for lease in [one for one in self._leases if key in one.waits]:
            lease.waits.discard(key)
            self._end_lease(lease)

    def _end_lease(self, lease: Lease) -> None:
        """Return the lease of a lost task, once none of its rows can use it."""
        if not lease.waits and lease in self._leases:
            self._leases.discard(lease)
            lease.lost()

    def _found(self, run_ids: list[str]) -> dict[str, tuple[Journal, list[StoredEvent]]]:
        found = {}
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                events = self.store.read(run_id)
            except UsageError:  # it never started
                continue
            journal.catch_up(events)
            found[run_id] = (journal, events)
        return found

    def _come_of(
        self,
        row: Row,
        job: Job | None,
        found: tuple[Journal, list[StoredEvent]] | None,
        *,
        is_lost: bool = False,
        has_word: bool = False,
    ) -> None:
        """Update a row from its journal. Send it again if it was lost, was answered, or has a retry left."""
        if found is not None:
            journal, events = found
            self._counted(row, partial(take_in, row, journal.state))
            row.retried = sum(isinstance(event, RunRetried) for event in events)
        if row.status == "interrupted" and found is not None:
            if not self.asked.attended and self.unanswered is None:
                asked = interrupts_of(found[0].state, self.spec.tools, self.spec.agent)
                self.unanswered = unanswered(asked, {}, found[0], "")
            return
        if row.status in ENDED and found is not None:
            if row.status == "failed" and row.retried < self.asked.retry:
                self._set_due(row)
            else:
                self._has_ended(row)
            return
        if self.failure is None:
            self._send_again(row, job, found, is_lost=is_lost, has_word=has_word)
        elif found is None:  # it has not started
            self.counts[self.rows.pop(row.key).status] -= 1

    def _send_again(
        self,
        row: Row,
        job: Job | None,
        found: tuple[Journal, list[StoredEvent]] | None,
        *,
        is_lost: bool,
        has_word: bool,
    ) -> None:
        """Send a row again whose task ended before the row did, unless a process that may be alive runs it."""
        self._lost[row.key] += is_lost
        if self._lost[row.key] > LOST:
            self.fail(
                RunError(
                    f"Row {row.key!r}: its worker ended {self._lost[row.key]} times. The same call with the same "
                    "id continues the batch"
                )
            )
            return
        if found is None:
            assert job is not None  # it was sent, and has not started
            self._send(row, job.prompt)
            return
        processes = drivers(found[0])
        ended = [has_ended(each) for each in processes]
        if False in ended or (None in ended and not has_word):
            self._set_apart(row)
            return
        if has_word and processes:
            self._ended_with.add(row.key)
        self._set_due(row)

    # --- rows whose processes may be alive

    def _set_apart(self, row: Row) -> None:
        """Watch a row's journal instead of sending it: a process that may be alive runs it, outside this batch's tasks."""
        self.active[row.key] = None
        self._apart.add(row.key)

    async def _look_more(self) -> None:
        """Check the rows that run outside tasks, and whether the processes of all running rows respond."""
        now = time.monotonic()
        is_due = now - self._looked_at >= heartbeat.BEAT
        self._looked_at = now if is_due else self._looked_at
        keys = [*self._apart, *(self._sent if is_due else ())]
        for key in keys:
            self._lives.setdefault(key, Life(self.rows[key], self.store))
        lives = [(key, self._lives[key]) for key in keys]
        if not lives:
            return
        for key, life, found in await run_in_thread(lambda: [(k, e, e.look()) for k, e in lives]):
            if self._lives.get(key) is life:
                self._note(self.rows[key], life, found)

    def _note(self, row: Row, life: Life, found: tuple[Journal, list[StoredEvent]] | None) -> None:
        """Apply the result of a check of a row's journal and processes."""
        key, is_apart = row.key, row.key in self._apart or row.key in self.stuck
        has_come = found is not None and _has_come(found[0])
        if found is not None and (is_apart or has_come):  # its task runs other rows, or is gone
            self._leave(key)
            self._come_of(row, None, found)
            self.wake()
        elif life.has_ended and is_apart:
            self._leave(key)
            self._ended_with.add(key)
            self._set_due(row)
            self.wake()
        elif bool(life.why) != (key in self.stuck):
            if life.why:
                self.stuck[key] = life.why
                self.active.pop(key, None)
            else:
                del self.stuck[key]
                self.active[key] = None
            self.wake()
            self.tell()

    # --- control

    async def stop(self, by: str) -> None:
        """Cancel the running rows. The cancellation is written to the store, and workers read it there."""
        self.fail(RunError("The batch was stopped"))
        self._put_back()
        under_way = [self.rows[key].run_id for key in (*self.active, *self.stuck)]
        await run_in_thread(partial(self._stop_each, under_way, by))

    def _stop_each(self, run_ids: list[str], by: str) -> None:
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                journal.catch_up()
            except UsageError:  # it has not started
                continue
            if journal.state.outcome is None:
                ended = RunCancelled(at=self.spec.clock(), by=by, user=user_behind(by))
                journal.end(ended)


def _named(error: BaseException, chunk: list[Job]) -> RunError:
    """The error of a batch whose worker failed, as opposed to a failed row."""
    keys = ", ".join(repr(job.key) for job in chunk[:3]) + (", …" if len(chunk) > 3 else "")
    failure = RunError(f"A worker failed at the rows {keys}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


class Life:
    """A watch on a row in another process: whether its journal grows, and whether that process responds.

    Args:
        row: the row.
        store: the store of its run.
    """

    def __init__(self, row: Row, store: Store) -> None:
        self._run_id, self._store, self._length = row.run_id, store, row.length
        self._others = Others(store, row.run_id)
        self._journal: Journal | None = None
        self.has_ended = False
        """Whether every process that ran it has ended."""
        self.why = ""
        """The reason why it is stuck: its process is alive but does not respond. Empty if it is not stuck."""

    def look(self) -> tuple[Journal, list[StoredEvent]] | None:
        """Return the row's journal and events if the journal has grown, otherwise None. It blocks.

        Raises:
            StoreError: the store cannot be read.
        """
        try:
            more = self._store.read(self._run_id, self._length)
        except UsageError:  # it has not started
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
            self._judge(self._journal)
        return None

    def _judge(self, journal: Journal) -> None:
        """Check whether its processes are alive and respond."""
        state, processes = journal.state, drivers(journal)
        self.has_ended = bool(processes) and all(map(self._others.has_ended, processes))
        owners = owners_elsewhere(state)
        silent = [each for each in processes if self._others.drives_nothing(each)]
        self.has_ended |= bool(silent) and not owners  # no tool is running, so another process can take it over
        is_stuck = not self.has_ended and any(each in silent for each in owners)
        self.why = _why(silent[0], state) if is_stuck else ""


def _has_come(journal: Journal) -> bool:
    """Whether a run has ended, or waits for an answer without a driver."""
    status = journal.state.status
    return status in ENDED or (status == "interrupted" and journal.is_vacant)


def _why(process: str, state: RunState) -> str:
    """The reason why a row is stuck, and what to do."""
    names = ", ".join(dict.fromkeys(call.name for call in running_calls(state)))
    return (
        f"{names} is running in {describe_process(process)}, which does not respond. Wait for it, or open the row and "
        "take it over"
    )
