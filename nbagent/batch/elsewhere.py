"""The work on a batch whose rows go on in other processes, by an executor: sent in chunks, and read from the store."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from concurrent.futures import Future
from functools import partial
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.base.errors import Conflict, RunError, StoreError, UsageError
from nbagent.core.base.events import RowOf, RunCancelled, RunRetried, StoredEvent
from nbagent.core.base.user import user_behind
from nbagent.core.call.threads import run_in_thread
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.run.answers import interrupts_of
from nbagent.core.run.describe import unanswered
from nbagent.core.state.state import RunState

from .executors import Executor
from .listing import Row, take_in
from .rows import Given, run_id_of
from .shares import GROWING, Lease, Shares
from .work import ENDED, Asked, Work
from .workers import Came, Job, Kit, packed, probe, run_rows

MOST = 32
"""Rows of one task, at most: where its worker ends, so many are looked for."""
LOST = 5
"""How often a row may be lost with its worker, before the batch ends with that."""


class SentWork(Work):
    """Sends rows to an executor, one task from one question to the next.

    The store is what counts, not what a task returns: rows end outside of tasks too, and tasks are lost.
    """

    def __init__(
        self, batch: str, agent: Agent, store: Store, asked: Asked, executor: Executor
    ) -> None:
        super().__init__(batch, agent, store, asked)
        self._executor = executor
        self._jobs: list[Job] = []
        """That wait for room in a task, or for their share of a limit."""
        self._kit = b""
        self._shares = Shares(())
        self._again_at: asyncio.TimerHandle | None = None
        """When a share may be free."""
        self._lost: Counter[str] = Counter()
        """How often the worker of a row has ended, by key."""
        self._ended_with: set[str] = set()
        """Rows whose workers are known to have ended."""

    async def drive(self) -> dict[str, int]:
        """As ``Work.drive``; workers that cannot do it are named before any row begins.

        Raises:
            UsageError: something cannot go to other processes, or a worker cannot begin.
        """
        try:
            await self._make_ready()
        except (UsageError, RunError) as error:
            self.failure = error
            raise
        return await super().drive()

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
        told = await run_in_thread(partial(self._executor.probe, probe, self._kit, self.batch))
        wrong = [f"{who}: {why}" for who, why in told if why]
        if wrong:
            more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise UsageError(f"A worker cannot start: {wrong[0]}{more}. No row was started")

    def _begin(self) -> None:
        if any(row.status in ("running", "queued") for row in self.rows.values()):
            self._shares.hold()  # a driver that is gone may have sent them just now
        super()._begin()

    # --- sending

    def _fill(self) -> bool:
        skipped = super()._fill()
        if self.failure is not None:
            self._put_back()
        slots = self._executor.slots()
        among = min(slots or GROWING, self._shares.most or math.inf)
        size = min(MOST, max(1, math.ceil(self.asked.concurrency / among)))
        while self._jobs and not self.is_paused:
            lease = self._shares.give(slots or GROWING)
            if isinstance(lease, float):
                self._come_back(lease)
                break
            chunk, self._jobs = self._jobs[:size], self._jobs[size:]
            future = self._executor.submit(
                run_rows, self._kit, chunk, lease.grant, name=self._name(chunk)
            )
            future.add_done_callback(partial(self._is_done, chunk, lease))
        return skipped

    def _come_back(self, seconds: float) -> None:
        """Look again whether a limit has room."""
        assert self._loop is not None  # it is at work
        if self._again_at is not None:
            self._again_at.cancel()
        self._again_at = self._loop.call_later(seconds, self.wake) if seconds else None

    def _put_back(self) -> None:
        """Rows that were to be sent are not: the batch ends."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self.active.pop(job.key, None)
            if job.prompt is not None:  # it has not begun
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
            self._read(row)  # begins it anew, by ``_start``
        else:
            self._send(row, None)

    # --- what came of it

    def _is_done(self, chunk: list[Job], lease: Lease, done: Future[Came]) -> None:
        self._on_loop(partial(self._came, chunk, lease, done))

    def _came(self, chunk: list[Job], lease: Lease, done: Future[Came]) -> None:
        """A task has ended, or was lost."""
        assert self._loop is not None  # it is at work
        error = done.exception() if not done.cancelled() else Conflict("the task was cancelled")
        if error is None:
            lease.ended(done.result().used)
        else:
            lease.lost()
        is_lost = error is not None and (done.cancelled() or self._executor.is_lost(error))
        task = self._loop.create_task(self._look_at(chunk, error, is_lost=is_lost))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _look_at(
        self, chunk: list[Job], error: BaseException | None, *, is_lost: bool
    ) -> None:
        try:
            if is_lost:
                self._executor.renew()
            elif error is not None:
                self.fail(_named(error, chunk))
            found = await run_in_thread(partial(self._found, [job.run_id for job in chunk]))
        except (UsageError, RunError, StoreError) as trouble:
            for job in chunk:
                self.active.pop(job.key, None)
            self.fail(trouble)
            self.wake()
            return
        for job in chunk:
            self.active.pop(job.key, None)
            self._come_of(self.rows[job.key], job, found.get(job.run_id), is_lost=is_lost)
        self.wake()

    def _found(self, run_ids: list[str]) -> dict[str, tuple[RunState, list[StoredEvent]]]:
        found = {}
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                events = self.store.read(run_id)
            except UsageError:  # it never began
                continue
            journal.catch_up(events)
            found[run_id] = (journal.state, events)
        return found

    def _come_of(
        self,
        row: Row,
        job: Job,
        found: tuple[RunState, list[StoredEvent]] | None,
        *,
        is_lost: bool,
    ) -> None:
        """Note where a row stands, and send it again where it was lost, was answered, or is to be tried again."""
        if found is not None:
            state, events = found
            self._counted(row, partial(take_in, row, state))
            row.retried = sum(isinstance(event, RunRetried) for event in events)
        if row.status == "interrupted" and found is not None:
            if not self.asked.attended and self.unanswered is None:
                journal = Journal(row.run_id, self.store, keeps_events=False)
                asked = interrupts_of(found[0], self.spec.tools, self.spec.agent)
                self.unanswered = unanswered(asked, {}, journal, "")
            return
        if row.status in ENDED and found is not None:
            if row.status == "failed" and row.retried < self.asked.retry:
                self._set_due(row)
            else:
                self._has_ended(row)
            return
        if self.failure is not None:
            return
        if is_lost:
            self._lost[row.key] += 1
            self._ended_with.add(row.key)
            if self._lost[row.key] > LOST:
                self.fail(
                    RunError(
                        f"row {row.key!r}: its worker ended {self._lost[row.key]} times. The same call with the same "
                        "id continues the batch"
                    )
                )
                return
        if found is None:
            self._send(row, job.prompt)
        else:
            self._set_due(row)

    # --- from outside

    async def stop(self, by: str) -> None:
        """Stop the rows under way, for good: it is written, and the workers see it."""
        self.fail(RunError("the batch was stopped"))
        self._put_back()
        under_way = [self.rows[key].run_id for key in self.active]
        await run_in_thread(partial(self._stop_each, under_way, by))

    def _stop_each(self, run_ids: list[str], by: str) -> None:
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                journal.catch_up()
            except UsageError:  # it has not begun
                continue
            if journal.state.outcome is None:
                ended = RunCancelled(at=self.spec.clock(), by=by, user=user_behind(by))
                journal.end(ended)


def _named(error: BaseException, chunk: list[Job]) -> RunError:
    """Why the batch ends: a worker failed at rows, and not a row."""
    keys = ", ".join(repr(job.key) for job in chunk[:3]) + (", …" if len(chunk) > 3 else "")
    failure = RunError(f"A worker failed at the rows {keys}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
