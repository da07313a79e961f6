"""The work on a batch whose rows go on in other processes, by an executor: sent in chunks, and read from the store."""

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
        self.executor = executor
        """Where rows are sent from now on."""
        self._jobs: list[Job] = []
        """That wait for room in a task, or for their share of a limit."""
        self._kit = b""
        self._driver: Driver | None = None
        self._shares = Shares(())
        self._again_at: asyncio.TimerHandle | None = None
        """When a share may be free."""
        self._lost: Counter[str] = Counter()
        """How often the worker of a row has ended, by key."""
        self._ended_with: set[str] = set()
        """Rows whose workers are known to have ended."""
        self._sent: dict[str, Job] = {}
        """What is under way in tasks, by key."""
        self._apart: set[str] = set()
        """Rows that are under way in processes that may live, and in none of our tasks."""
        self._lives: dict[str, Life] = {}
        """What is known of the processes of rows that are under way, by key."""
        self._looked_at = 0.0
        self._leases: set[Lease] = set()
        """Of tasks that are under way, or may be."""

    async def drive(self) -> dict[str, int]:
        """As ``Work.drive``; workers that cannot do it are named before any row begins.

        Raises:
            UsageError: something cannot go to other processes, or a worker cannot begin.
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
            for lease in [*self._leases]:  # of tasks that the batch does not wait for
                lease.waits.clear()
                self._end_lease(lease)

    async def anew(self, asked: Asked) -> None:
        """As ``Work.anew``: rows are sent with what is asked for now, and to the executor of now.

        Raises:
            UsageError: something cannot go to other processes, or a worker cannot begin.
        """
        self.asked = asked
        await self._make_ready()
        await super().anew(asked)

    def leave(self) -> None:
        """As ``Work.leave``: rows that wait to be sent are not."""
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
            self._shares.hold()  # a driver that is gone may have sent them just now
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

    def _is_done(
        self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[Came]
    ) -> None:
        self._on_loop(partial(self._came, chunk, lease, executor, done))

    def _came(self, chunk: list[Job], lease: Lease, executor: Executor, done: Future[Came]) -> None:
        """A task has ended, or was lost."""
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
        """Look in the store what came of the rows of a task, whatever the task itself says."""
        chunk = [job for job in chunk if self._sent.get(job.key) is job]  # others went on elsewhere
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
        chunk = [job for job in chunk if self._sent.get(job.key) is job]  # or meanwhile
        for job in chunk:
            self._leave(job.key)
            came = found.get(job.run_id)
            self._come_of(self.rows[job.key], job, came, is_lost=is_lost, has_word=has_word)
        if error is not None:
            lease.waits = {job.key for job in chunk if job.key in self._apart}
            self._end_lease(lease)
        self.wake()

    def _leave(self, key: str) -> None:
        """A row is not under way any more, as far as is known here."""
        self.active.pop(key, None)
        self.stuck.pop(key, None)
        self._sent.pop(key, None)
        self._apart.discard(key)
        self._lives.pop(key, None)
        for lease in [one for one in self._leases if key in one.waits]:
            lease.waits.discard(key)
            self._end_lease(lease)

    def _end_lease(self, lease: Lease) -> None:
        """What a lost task may use counts until its rows are known not to use it any more."""
        if not lease.waits and lease in self._leases:
            self._leases.discard(lease)
            lease.lost()

    def _found(self, run_ids: list[str]) -> dict[str, tuple[Journal, list[StoredEvent]]]:
        found = {}
        for run_id in run_ids:
            journal = Journal(run_id, self.store, keeps_events=False)
            try:
                events = self.store.read(run_id)
            except UsageError:  # it never began
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
        """Note where a row stands, and send it again where it was lost, was answered, or is to be tried again."""
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
        elif found is None:  # it has not begun
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
        """Send a row again whose task has ended before it has, unless a process that may live has it."""
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
            assert job is not None  # it was sent, and has not begun
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

    # --- rows whose processes may live

    def _set_apart(self, row: Row) -> None:
        """A process that may live has the row, and none of our tasks: it is not sent, and its journal is watched."""
        self.active[row.key] = None
        self._apart.add(row.key)

    async def _look_more(self) -> None:
        """Look what becomes of rows that others have, and whether the processes of all that are under way respond."""
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
        """What a look at a row's journal, and at its processes, came to."""
        key, is_apart = row.key, row.key in self._apart or row.key in self.stuck
        has_come = found is not None and _has_come(found[0])
        if found is not None and (
            is_apart or has_come
        ):  # its task waits for other rows, or is gone
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

    # --- from outside

    async def stop(self, by: str) -> None:
        """Stop the rows under way, for good: it is written, and the workers see it."""
        self.fail(RunError("The batch was stopped"))
        self._put_back()
        under_way = [self.rows[key].run_id for key in (*self.active, *self.stuck)]
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


class Life:
    """What is known of a row that is under way in another process: whether its journal grows, and that process responds.

    Args:
        row: the row.
        store: where its run is.
    """

    def __init__(self, row: Row, store: Store) -> None:
        self._run_id, self._store, self._length = row.run_id, store, row.length
        self._others = Others(store, row.run_id)
        self._journal: Journal | None = None
        self.has_ended = False
        """Whether every process that had it has ended."""
        self.why = ""
        """Why it is stuck: its process lives, and does not respond; empty where it is not."""

    def look(self) -> tuple[Journal, list[StoredEvent]] | None:
        """What its journal says, where that has grown; not for an event loop.

        Raises:
            StoreError: the store cannot be read.
        """
        try:
            more = self._store.read(self._run_id, self._length)
        except UsageError:  # it has not begun
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
        """Look whether its processes live, and respond."""
        state, processes = journal.state, drivers(journal)
        self.has_ended = bool(processes) and all(map(self._others.has_ended, processes))
        owners = owners_elsewhere(state)
        silent = [each for each in processes if self._others.drives_nothing(each)]
        self.has_ended |= bool(silent) and not owners  # no body is under way: it is taken
        is_stuck = not self.has_ended and any(each in silent for each in owners)
        self.why = _why(silent[0], state) if is_stuck else ""


def _has_come(journal: Journal) -> bool:
    """Whether a run has ended, or waits for an answer and is held by nobody."""
    status = journal.state.status
    return status in ENDED or (status == "interrupted" and journal.is_vacant)


def _why(process: str, state: RunState) -> str:
    """Why a row is stuck, and what to do."""
    names = ", ".join(dict.fromkeys(call.name for call in running_calls(state)))
    return (
        f"{names} is running in {describe_process(process)}, which does not respond. Wait for it, or open the row and "
        "take it over"
    )
