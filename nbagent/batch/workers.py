"""What a worker of a batch does: it is given rows as bytes, runs each until it ends or asks, and keeps nothing of it.

The store has all that comes of a row; what a task returns only says that it is worth looking there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from nbagent.core.agent import Agent
from nbagent.core.base.errors import Conflict, NbagentError, StoreError, UsageError
from nbagent.core.base.events import RowOf
from nbagent.core.base.process import describe_process, this_process
from nbagent.core.call.threads import private_loop, run_in_thread
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.run.start import Options, follow_stored, launch_apart

logger = logging.getLogger("nbagent")


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker needs to go on with rows of a batch; it is unpickled once in each process."""

    agent: Agent
    store: Store
    answers: Answers
    context: Any
    attended: bool
    workers: int
    """Among how many processes the model's limits are shared."""


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


def packed(kit: Kit) -> bytes:
    """The kit for other processes, without keys and passwords.

    Raises:
        UsageError: something of it cannot go there; it is named.
    """
    try:
        dumps = import_module("cloudpickle").dumps
    except ImportError as error:
        raise UsageError("executor= needs cloudpickle: pip install cloudpickle") from error
    try:
        return bytes(dumps(kit))
    except NbagentError:
        raise
    except Exception as error:
        raise UsageError(
            f"The agent {kit.agent.name!r}, or answers= or context=, cannot be pickled for the workers: {error}"
        ) from error


def run_rows(kit: bytes, jobs: Sequence[Job]) -> list[tuple[str, str]]:
    """Go on with these rows until each has ended or asks; gives the status of each run, by key."""
    asked = _unpacked(kit)
    return asyncio.run_coroutine_threadsafe(_all(asked, jobs), private_loop()).result()


def probe(kit: bytes, run_id: str) -> tuple[str, str]:
    """What stands against rows in this process: who it is, and what is wrong; empty where nothing is.

    Args:
        kit: what the rows need.
        run_id: a run that the store has.
    """
    who = f"{describe_process(this_process())}, pid {os.getpid()}"
    try:
        asked = _unpacked(kit)
        check = getattr(asked.agent.model, "check_ready", None)
        if check is not None:
            asyncio.run_coroutine_threadsafe(check(), private_loop()).result()
        asked.store.read(run_id)
    except UsageError as error:
        return who, f"{error}. Does the worker use the same database, or a disk that both see?"
    except Exception as error:
        return who, f"{type(error).__name__}: {error}"
    return who, ""


_kits: dict[str, Kit] = {}
_lock = threading.Lock()


def _unpacked(kit: bytes) -> Kit:
    """The kit of these bytes, which a process has once."""
    name = hashlib.sha256(kit).hexdigest()
    with _lock:
        known = _kits.get(name)
        if known is None:
            known = pickle.loads(kit)
            _share_limits(known)
            if len(_kits) >= 4:
                del _kits[next(iter(_kits))]
            _kits[name] = known
        return known


def _share_limits(kit: Kit) -> None:
    """Have this process keep its share of the model's limits."""
    share: Callable[[int], None] | None = getattr(kit.agent.model, "share_limits", None)
    if share is not None and kit.workers > 1:
        share(kit.workers)


async def _all(kit: Kit, jobs: Sequence[Job]) -> list[tuple[str, str]]:
    return list(await asyncio.gather(*(_one(kit, job) for job in jobs)))


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
    if session.error is not None and session.state.outcome is None:
        raise session.error
    status = run.status
    if status == "interrupted":
        try:
            await run.release()
        except UsageError:  # it was answered just now, and goes on
            return await _one(kit, job._replace(prompt=None, retry=False))
    return job.key, status


async def _settled(launch: Callable[[], Run], job: Job | None = None) -> Run | None:
    """A run that has come to a stand; None where somebody else has begun it."""
    try:
        run = launch()
        if job is not None and job.take_over:
            await run.take_over()
        if job is not None and job.retry and run.status == "failed":
            try:
                run.retry()
            except UsageError as error:  # what came of a call is not known
                logger.info("row %r is not tried again: %s", job.key, error)
        while not session_of(run).is_settled():
            await asyncio.wrap_future(session_of(run).when_settled())
    except Conflict:
        return None
    return None if isinstance(session_of(run).error, Conflict) else run
