"""The code of a batch's workers. A worker receives a pickled kit and rows, and runs each row until it ends or waits.

Results are in the store. The result of a task only reports that the task's rows can be read from the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import pickle
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from nbagent.core.agent import Agent
from nbagent.core.base.errors import Conflict, NbagentError, StoreError, UsageError
from nbagent.core.base.events import ModelResponded, RowOf, RunRetried, RunTaken, ToolStarted
from nbagent.core.base.origin import PERSON, marked
from nbagent.core.base.process import describe_process, fork_safe, this_process
from nbagent.core.call.threads import private_loop, run_in_thread
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.store import Store
from nbagent.core.run.heartbeat import Beating
from nbagent.core.run.lost_calls import RELEASE, owners_elsewhere
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.start import Options, follow_stored, launch_apart
from nbagent.models.limits import RateLimit

from .listing import is_row
from .shares import Grant, RequestQueues, Used, current, dumped

logger = logging.getLogger("nbagent")

CHECK_SECONDS = 1.0
"""Seconds between checks whether another process has the run."""


@dataclass(frozen=True, slots=True)
class Kit:
    """The objects that a worker needs to run rows of a batch. A process caches the last few kits."""

    agent: Agent
    store: Store
    options: Options


class Job(NamedTuple):
    """One row to start or continue."""

    key: str
    run_id: str
    of: RowOf
    prompt: Any
    """The prompt, as ``agent.run`` accepts it; None if the run has started."""
    retry: bool = False
    """Whether to retry the row's failed run."""
    take_over: bool = False
    """Whether to take the row's run over from the process that ran it."""
    length: int = 0
    """The number of events in the row's run when the row was sent."""


class TaskResult(NamedTuple):
    """The result of a task."""

    used: Used
    """The requests of the task's last minute, for each limit of its kit."""


class BatchDriver(NamedTuple):
    """The process that drives the batch. Each worker is compared with this process before the worker receives rows."""

    process: str
    nonce: str
    """The name of a heartbeat that the driver has just written to the store."""
    store: str
    """The module of the class of the driver's store."""
    python: tuple[int, int]
    nbagent: str


def this_driver(store: Store) -> BatchDriver:
    """Return the data of this process, and write its nonce to the store. Blocks.

    Raises:
        StoreError: the nonce could not be written.
    """
    nonce = f"probe:{uuid.uuid4().hex}"
    if isinstance(store, Beating):
        store.beat(nonce)
    return BatchDriver(
        this_process(), nonce, type(store).__module__, sys.version_info[:2], _version()
    )


def stop_name(driver: BatchDriver) -> str:
    """The name of the heartbeat with which the driver stops tasks that an executor has not started yet."""
    return f"stop:{driver.nonce}"


def packed(kit: Kit) -> tuple[bytes, list[RateLimit]]:
    """Pickle the kit for other processes, without keys and passwords. Return the bytes and the limits in the kit.

    Raises:
        UsageError: a part of the kit cannot be pickled, or cloudpickle is not installed.
    """
    try:
        return dumped(kit)
    except NbagentError:
        raise
    except ImportError as error:
        raise UsageError("executor= needs cloudpickle: pip install cloudpickle") from error
    except Exception as error:
        raise UsageError(
            f"The agent {kit.agent.name!r}, or answers= or context=, cannot be pickled for the workers: {error}"
        ) from error


def run_rows(driver: BatchDriver, kit: bytes, jobs: Sequence[Job], grant: Grant) -> TaskResult:
    """Run these rows until each has ended or waits for an answer.

    Raises:
        UsageError: this process cannot run rows. Its first task checks this first, so no row was started.
    """
    if driver.nonce not in _checked_nonces:  # this worker joined after the probe
        worker, reason = probe(driver, kit)
        if reason:
            raise UsageError(f"{worker}: {reason}")
    unpacked, _ = _unpacked_kit(kit)
    if isinstance(unpacked.store, Beating) and unpacked.store.beats(stop_name(driver)):
        return TaskResult([[] for _ in grant.shares])
    with marked(PERSON):  # who started the batch, with its answers
        running = asyncio.run_coroutine_threadsafe(_run_all(unpacked, jobs, grant), private_loop())
    return running.result()


def probe(driver: BatchDriver, kit: bytes) -> tuple[str, str]:
    """Return the name of this process, and the reason why it cannot run rows; empty if it can."""
    worker = f"{describe_process(this_process())}, pid {os.getpid()}"
    try:
        reason = _obstacle(driver, kit)
    except Exception as error:
        reason = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    if not reason:
        _checked_nonces.add(driver.nonce)
    return worker, reason


def _version() -> str:
    """Return the version of nbagent, from the loaded root package: importing it here would break the layers."""
    return str(sys.modules["nbagent"].__version__)


def _obstacle(driver: BatchDriver, kit: bytes) -> str:
    """Return the version or the store of this process that differs from the driver's; empty if none differs.

    Raises:
        Exception: a package, a key or the database is missing.
    """
    python = sys.version_info[:2]
    if python != tuple(driver.python):
        own_version, driver_version = (".".join(map(str, each)) for each in (python, driver.python))
        return f"it has Python {own_version}, and the process that started the batch has {driver_version}"
    if _version() != driver.nbagent:
        return f"it has nbagent {_version()}, and the process that started the batch has {driver.nbagent}"
    if driver.process != this_process() and driver.store.startswith("nbagent."):
        # each store of this process gets one connection for all rows, besides the connection that listens
        pool = getattr(import_module(driver.store), "POOL", None)
        if pool is not None:
            pool.update(pool_size=1, max_overflow=0)
    unpacked, models = _unpacked_kit(kit)
    for model in models:
        asyncio.run_coroutine_threadsafe(model.check_ready(), private_loop()).result()
    if isinstance(unpacked.store, Beating) and not unpacked.store.beats(driver.nonce):
        return (
            f"its store {unpacked.store!r} does not have what was just written to the batch's. Use a database or a disk "
            "that both see, not a copy"
        )
    return ""


_kits: dict[str, tuple[Kit, list[Any]]] = {}
_checked_nonces: set[str] = set()
"""Nonces of the drivers whose probe this process has passed."""
_lock = fork_safe(threading.Lock())


def _unpacked_kit(kit: bytes) -> tuple[Kit, list[Any]]:
    """Return the kit in these bytes and the models in it. The last few kits are unpickled only once."""
    name = hashlib.sha256(kit).hexdigest()
    with _lock:
        known = _kits.get(name)
        if known is None:
            known = pickle.loads(kit)
            if len(_kits) >= 4:
                del _kits[next(iter(_kits))]
            _kits[name] = known
        return known


async def _run_all(kit: Kit, jobs: Sequence[Job], grant: Grant) -> TaskResult:
    is_used = bool(grant.shares) and await run_in_thread(partial(_has_progress, kit.store, jobs))
    lines = RequestQueues(grant, is_used=is_used)
    current.set(lines)
    await asyncio.gather(*(_run_row(kit, job) for job in jobs))
    return TaskResult(lines.used())


def _has_progress(store: Store, jobs: Sequence[Job]) -> bool:
    """Whether an earlier attempt of this task may have called a model. An executor can run a lost task again."""
    for job in jobs:
        try:
            events = store.read(job.run_id, job.length)
        except UsageError:  # the run has not started
            continue
        signs = (ModelResponded, ToolStarted, RunRetried)
        for event in events:
            is_taken = isinstance(event, RunTaken) and event.by != RELEASE
            if job.length == 0 or is_taken or isinstance(event, signs):
                return True
    return False


async def _run_row(kit: Kit, job: Job) -> None:
    """Run one row. An error of the row is stored in its journal; an error of the store fails the task."""
    spec = kit.agent._spec(kit.agent.tools)  # noqa: SLF001 - as the agent itself starts runs
    options = replace(kit.options, id=job.run_id, row=job.of)
    run = None
    if job.prompt is not None:
        launch = partial(launch_apart, spec, job.prompt, options, blocking=False)
        run = await _run_until_settled(launch)
    if run is None:  # the run had started, in this or another process
        journal = Journal(job.run_id, kit.store)
        await run_in_thread(journal.catch_up)
        if job.prompt is not None and not is_row(journal.state, job.of.batch, job.key):
            return  # the driver finds another id
        await kit.agent._know_tools(journal)  # noqa: SLF001 - as ``open_run`` does
        run = await _run_until_settled(partial(follow_stored, spec, journal, options), job)
    if run is None:
        raise StoreError(f"Row {job.key!r}: another process has changed its run {job.run_id!r}")
    session = session_of(run)
    if _is_elsewhere(run):
        return
    if session.error is not None and session.state.outcome is None:
        raise session.error
    if run.status == "interrupted":
        try:
            await run.release()
        except UsageError:  # the run was answered just now, and continues
            await _run_row(kit, job._replace(prompt=None, retry=False))


def drivers(journal: Journal) -> list[str]:
    """Return the processes that drive a run or run one of its tools, alive or not."""
    is_driven = not journal.is_vacant and journal.state.status == "running"
    run_drivers = [journal.driver] if is_driven else []
    return [*dict.fromkeys((*run_drivers, *owners_elsewhere(journal.state)))]


def _is_elsewhere(run: Run) -> bool:
    """Whether another process, which may be alive, has the run. The batch's driver watches such runs."""
    session, here = session_of(run), this_process()
    if session.is_active or session.state.outcome is not None:
        return False
    has_ended = session.follower.others.has_ended
    return any(each != here and not has_ended(each) for each in drivers(session.journal))


async def _run_until_settled(launch: Callable[[], Run], job: Job | None = None) -> Run | None:
    """Return the run once it has paused or ended, or another process runs it; None after a conflict with another."""
    try:
        run = launch()
        if job is not None and job.take_over:
            await run.take_over()
        if job is not None and job.retry and run.status == "failed":
            try:
                run.retry()
            except UsageError as error:  # a call may or may not have taken effect
                logger.info("row %r is not tried again: %s", job.key, error)
        settled = asyncio.ensure_future(asyncio.wrap_future(session_of(run).when_settled()))
        while not (settled.done() and session_of(run).is_settled()):
            if settled.done():
                settled = asyncio.ensure_future(asyncio.wrap_future(session_of(run).when_settled()))
            if job is not None and _is_elsewhere(run):
                break
            await asyncio.wait([settled], timeout=CHECK_SECONDS)
    except Conflict:
        return None
    return None if isinstance(session_of(run).error, Conflict) else run
