"""What a worker of a batch does: it is given rows as bytes, runs each until it ends or asks, and keeps nothing of it.

The store has all that comes of a row; what a task returns only says that it is worth looking there.
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
from nbagent.core.base.process import describe_process, this_process
from nbagent.core.call.threads import private_loop, run_in_thread
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.run.heartbeat import Beating
from nbagent.core.run.lost_calls import RELEASE, owners_elsewhere
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.run.start import Options, follow_stored, launch_apart
from nbagent.models.limits import RateLimit

from .shares import Grant, Lines, Used, current, dumped

logger = logging.getLogger("nbagent")

ELSEWHERE = 1.0
"""Seconds between looks whether another process has the run."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker needs to go on with rows of a batch; it is unpickled once in each process."""

    agent: Agent
    store: Store
    answers: Answers
    context: Any
    attended: bool


class Job(NamedTuple):
    """One row to go on with."""

    key: str
    run_id: str
    of: RowOf
    prompt: Any
    """What to ask, as ``agent.run`` takes it; None where its run has begun."""
    retry: bool = False
    """Whether its run has failed, and is to be tried again."""
    take_over: bool = False
    """Whether the process that had it is known to have ended."""
    length: int = 0
    """How many events its run had when this was sent."""


class Came(NamedTuple):
    """What a task returns."""

    statuses: list[tuple[str, str]]
    """Of each run, by key of its row."""
    used: Used
    """What it used of each limit of its kit."""


class Driver(NamedTuple):
    """What a worker is compared with before it is given anything: the process that works on the batch."""

    process: str
    nonce: str
    """What it has just left in the store, as the beats of a process of this name."""
    store: str
    """The module of its store's class."""
    python: tuple[int, int]
    nbagent: str


def this_driver(store: Store) -> Driver:
    """This process, and a nonce in the store; not for an event loop.

    Raises:
        StoreError: it could not be written.
    """
    nonce = f"probe:{uuid.uuid4().hex}"
    if isinstance(store, Beating):
        store.beat(nonce)
    return Driver(this_process(), nonce, type(store).__module__, sys.version_info[:2], _version())


def packed(kit: Kit) -> tuple[bytes, list[RateLimit]]:
    """The kit for other processes, without keys and passwords, and the limits that are in it.

    Raises:
        UsageError: something of it cannot go there; it is named.
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


def run_rows(driver: Driver, kit: bytes, jobs: Sequence[Job], grant: Grant) -> Came:
    """Go on with these rows until each has ended or asks.

    Args:
        driver: who sends them.
        kit: what they need.
        jobs: the rows.
        grant: what they may use of the limits of the kit.

    Raises:
        UsageError: this process cannot, which is looked at before its first task; no row was started.
    """
    if driver.nonce not in _checked:  # one that was probed, or has joined since
        who, why = probe(driver, kit)
        if why:
            raise UsageError(f"{who}: {why}")
    asked, _ = _unpacked(kit)
    return asyncio.run_coroutine_threadsafe(_all(asked, jobs, grant), private_loop()).result()


def probe(driver: Driver, kit: bytes) -> tuple[str, str]:
    """What stands against rows in this process: who it is, and what is wrong; empty where nothing is.

    Args:
        driver: who asks.
        kit: what the rows need.
    """
    who = f"{describe_process(this_process())}, pid {os.getpid()}"
    try:
        why = _differs(driver) or _lacks(driver, kit)
    except Exception as error:
        why = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    if not why:
        _checked.add(driver.nonce)
    return who, why


def _differs(driver: Driver) -> str:
    """How this process differs from the one that packed the rows: what is pickled there cannot be read here."""
    python = sys.version_info[:2]
    if python != tuple(driver.python):
        here, there = (".".join(map(str, each)) for each in (python, driver.python))
        return f"it has Python {here}, and the process that started the batch has {there}"
    if _version() != driver.nbagent:
        return f"it has nbagent {_version()}, and the process that started the batch has {driver.nbagent}"
    return ""


def _version() -> str:
    """Nbagent's, whose root is above this package."""
    return str(sys.modules["nbagent"].__version__)


def _lacks(driver: Driver, kit: bytes) -> str:
    """What this process does not have.

    Raises:
        Exception: a package, a key or the database is not there.
    """
    if driver.process != this_process():
        _use_few_connections(driver.store)
    asked, models = _unpacked(kit)
    for model in models:
        asyncio.run_coroutine_threadsafe(model.check_ready(), private_loop()).result()
    if isinstance(asked.store, Beating) and not asked.store.beats(driver.nonce):
        return (
            f"its store {asked.store!r} does not have what was just written to the batch's. Use a database or a disk "
            "that both see, not a copy"
        )
    return ""


def _use_few_connections(module: str) -> None:
    """Have stores of this process use one connection for all its rows, beside the one that listens."""
    pool = getattr(import_module(module), "POOL", None) if module.startswith("nbagent.") else None
    if pool is not None:
        pool.update(pool_size=1, max_overflow=0)


_kits: dict[str, tuple[Kit, list[Any]]] = {}
_checked: set[str] = set()
"""Nonces of the drivers that this process was compared with."""
_lock = threading.Lock()


def _unpacked(kit: bytes) -> tuple[Kit, list[Any]]:
    """The kit of these bytes, which a process has once, and the models in it."""
    name = hashlib.sha256(kit).hexdigest()
    with _lock:
        known = _kits.get(name)
        if known is None:
            known = pickle.loads(kit)
            if len(_kits) >= 4:
                del _kits[next(iter(_kits))]
            _kits[name] = known
        return known


async def _all(kit: Kit, jobs: Sequence[Job], grant: Grant) -> Came:
    is_used = bool(grant.shares) and await run_in_thread(partial(_had_begun, kit.store, jobs))
    lines = Lines.of(grant, is_used=is_used)
    current.set(lines)
    statuses = await asyncio.gather(*(_one(kit, job) for job in jobs))
    return Came(list(statuses), lines.used())


def _had_begun(store: Store, jobs: Sequence[Job]) -> bool:
    """Whether an earlier try of this task got as far as asking a model: an executor runs a task again whose worker ended."""
    for job in jobs:
        try:
            events = store.read(job.run_id, job.length)
        except UsageError:  # it has not begun
            continue
        if job.length == 0 and events:
            return True
        signs = (ModelResponded, ToolStarted, RunRetried)
        for event in events:
            if isinstance(event, signs) or (isinstance(event, RunTaken) and event.by != RELEASE):
                return True
    return False


async def _one(kit: Kit, job: Job) -> tuple[str, str]:
    """Go on with one row. What it fails with is in its journal; the store's own failure is the task's."""
    spec = kit.agent._spec(kit.agent.tools)  # noqa: SLF001 - as the agent itself starts runs
    options = Options(
        store=kit.store,
        answers=kit.answers,
        attended=kit.attended,
        show=False,
        context=kit.context,
        nested=False,
        id=job.run_id,
        is_new=True,
        row=job.of,
    )
    run = None
    if job.prompt is not None:
        run = await _settled(partial(launch_apart, spec, job.prompt, options, blocking=False))
    if run is None:  # it had begun, here or in a worker that is gone
        journal = Journal(job.run_id, kit.store)
        await run_in_thread(journal.catch_up)
        await kit.agent._know_tools(journal)  # noqa: SLF001 - as ``open_run`` does
        run = await _settled(
            partial(follow_stored, spec, journal, replace(options, is_new=False)), job
        )
    if run is None:
        raise StoreError(f"Row {job.key!r}: its run {job.run_id!r} exists and cannot be read")
    session = session_of(run)
    if _is_elsewhere(run):
        return job.key, "running"
    if session.error is not None and session.state.outcome is None:
        raise session.error
    status = run.status
    if status == "interrupted":
        try:
            await run.release()
        except UsageError:  # it was answered just now, and goes on
            return await _one(kit, job._replace(prompt=None, retry=False))
    return job.key, status


def drivers(journal: Journal) -> list[str]:
    """The processes that a run, or a body of it, is under way in, alive or not."""
    is_driven = not journal.is_vacant and journal.state.status == "running"
    drives = [journal.driver] if is_driven else []
    return [*dict.fromkeys((*drives, *owners_elsewhere(journal.state)))]


def _is_elsewhere(run: Run) -> bool:
    """Whether a process that may live has the run: a worker does not wait for it, and the driver of the batch watches it."""
    session, here = session_of(run), this_process()
    if session.is_active or session.state.outcome is not None:
        return False
    has_ended = session.follower.others.has_ended
    return any(each != here and not has_ended(each) for each in drivers(session.journal))


async def _settled(launch: Callable[[], Run], job: Job | None = None) -> Run | None:
    """A run that has come to a stand, or is under way in another process; None where somebody else has begun it."""
    try:
        run = launch()
        if job is not None and job.take_over:
            await run.take_over()
        if job is not None and job.retry and run.status == "failed":
            try:
                run.retry()
            except UsageError as error:  # what came of a call is not known
                logger.info("row %r is not tried again: %s", job.key, error)
        settled = asyncio.ensure_future(asyncio.wrap_future(session_of(run).when_settled()))
        while not (settled.done() and session_of(run).is_settled()):
            if settled.done():
                settled = asyncio.ensure_future(asyncio.wrap_future(session_of(run).when_settled()))
            if job is not None and _is_elsewhere(run):
                break
            await asyncio.wait([settled], timeout=ELSEWHERE)
    except Conflict:
        return None
    return None if isinstance(session_of(run).error, Conflict) else run
