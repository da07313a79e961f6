"""Deletion of runs: never a running run, and never a run without the runs that continue it."""

from __future__ import annotations

import datetime
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import Conflict, StoreError, UsageError
from nbagent.core.base.events import RunQueued, RunStarted, StoredEvent
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.process import describe_process, has_ended, this_process
from nbagent.core.journal.default import StoreLike, is_same_place, near_runs
from nbagent.core.journal.history import histories_of, reference_of
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.verification import FullArchive, archive_of
from nbagent.core.run.heartbeat import UNHEARD, still_beats
from nbagent.core.run.session import all_sessions, find_session
from nbagent.core.state.state import running_calls

from .catalog import ENDED, Catalog, Entry

logger = logging.getLogger("nbagent")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@checks_keywords("nb.delete_run")
def delete_run(
    run_id: str, *, store: StoreLike | None = None, with_followers: bool = False
) -> list[str]:
    """Delete a run permanently: its prompts, answers and results, also in the store's file.

    If the run's last process was on another machine, the check whether that process has ended can take half a
    minute.

    Args:
        run_id: ``run.id`` of the run.
        store: the store of the run.
        with_followers: True to delete also the runs that continue this run, directly or not.

    Returns:
        The ids of the deleted runs.

    Raises:
        UsageError: the run does not exist, is running, or has runs that continue it; nothing was deleted.
        StoreError: the store could not be written.
    """
    archive = archive_of(store)
    before: dict[str, set[str]] = {}
    while True:
        _look_before(archive, before)
        if run_id not in before:
            raise UsageError(f"{archive!r} has no run {run_id!r}{near_runs(run_id, archive)}")
        followers = _followers(run_id, before)
        if followers and not with_followers:
            names = ", ".join(map(repr, followers[:5])) + (" and others" if followers[5:] else "")
            raise UsageError(
                f"Run {run_id!r} cannot be deleted alone, because {names} continue its conversation. Pass "
                "with_followers=True to delete those too"
            )
        to_delete = [run_id, *followers]
        for each in to_delete:
            driver = _driver_of(archive, each)
            if driver:
                raise UsageError(
                    f"Run {each!r} cannot be deleted while it is active in {describe_process(driver)}. Cancel it first"
                )
        try:
            return _deleted(archive, to_delete, before)
        except (Conflict, UsageError):  # meanwhile a run started, or one of these was deleted
            continue


@checks_keywords("nb.prune")
def prune(
    older_than: str | float | datetime.timedelta,
    *,
    store: StoreLike | None = None,
    waiting: bool = False,
    dry_run: bool = False,
) -> list[str]:
    """Permanently delete conversations without recent events. All runs of a conversation are deleted, or none.

    Args:
        older_than: the time without any event, as ``"30d"`` (``s``, ``m``, ``h``, ``d``, ``w``), a
            ``timedelta``, or seconds.
        store: the store.
        waiting: True to delete also conversations with an open question.
        dry_run: True to delete nothing, and only return the ids.

    Returns:
        The ids of the deleted runs, oldest first. Unreadable and running runs are never deleted.

    Raises:
        UsageError: ``older_than`` is not a duration.
        StoreError: the store could not be read or written.
    """
    archive, until = archive_of(store), time.time() - seconds_of(older_than)
    catalog, before, order = Catalog(archive), dict[str, set[str]](), dict[str, None]()
    deleted: list[str] = []
    while True:
        _look_before(archive, before)
        order |= dict.fromkeys(before)
        entries = {entry.id: entry for entry in catalog.look()}
        threads = [
            thread
            for thread in _threads(before)
            if all(_is_over(entries.get(each), until, waiting=waiting) for each in thread)
            and not any(_driver_of(archive, each) for each in thread)
        ]
        try:
            for thread in threads:
                deleted += thread if dry_run else _deleted(archive, thread, before)
        except (Conflict, UsageError):  # meanwhile a run started, or one of these was deleted
            continue
        gone = {*deleted}
        return [each for each in order if each in gone]


def _is_over(run: Entry | None, until: float, *, waiting: bool) -> bool:
    if run is None or run.updated >= until:
        return False
    return run.status in ENDED or (waiting and run.status == "interrupted")


def seconds_of(duration: Any) -> float:
    """A duration in seconds.

    Raises:
        UsageError: the duration is not valid.
    """
    if isinstance(duration, datetime.timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", duration)
        duration = float(found[1]) * _UNITS[found[2]] if found else duration
    is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
    if is_number and duration >= 0:
        return float(duration)
    raise UsageError(
        f"older_than must be a duration such as '30d' or '12h', a timedelta, or seconds, got {duration!r:.80}"
    )


def _deleted(
    archive: FullArchive, to_delete: list[str], before: Mapping[str, set[str]]
) -> list[str]:
    """Delete these runs, all or none, so that no run is left without the runs that it continues.

    Raises:
        Conflict: a new run started meanwhile; nothing was deleted.
    """
    archive.delete(*to_delete, known=before.keys())
    for run_id in to_delete:
        histories_of(archive).forget(run_id)
    for session in all_sessions():
        if session.run_id in to_delete and is_same_place(session.journal.store, archive):
            session.journal.forget_events()
    return to_delete


def _look_before(archive: FullArchive, before: dict[str, set[str]]) -> None:
    """Update ``before``: the ids of all runs in the store, each with the ids of the runs that it continues.

    The first events of a run name the runs that it continues. An unreadable run counts as continuing none.
    """
    existing = dict.fromkeys(archive.run_ids())
    for deleted_id in before.keys() - existing.keys():
        del before[deleted_id]
    for run_id in [each for each in existing if each not in before]:
        first: list[StoredEvent] = []
        try:
            first = archive.read(run_id)[:2]
        except (StoreError, UsageError) as error:
            logger.warning(
                "run %s cannot be read, so the run that it continues is unknown: %s", run_id, error
            )
        before[run_id] = _named(first) - {run_id}


def _named(events: list[StoredEvent]) -> set[str]:
    named = set()
    for event in events:
        if isinstance(event, RunQueued | RunStarted) and not event.scope and event.after:
            named.add(event.after)
        try:
            reference = reference_of(event)
        except StoreError:  # the reference is not valid, so it does not count
            continue
        named |= set() if reference is None else {reference.run_id}
    return named


def _followers(run_id: str, before: Mapping[str, set[str]]) -> list[str]:
    """All runs that continue this run, directly or not, in the order of the store."""
    found, new = set[str](), {run_id}
    while new:
        found |= new
        new = {each for each, named in before.items() if named & found} - found
    return [each for each in before if each in found and each != run_id]


def _threads(before: Mapping[str, set[str]]) -> list[list[str]]:
    """The ids of the runs, grouped by conversation, in the order of the store."""
    parent = {run_id: run_id for run_id in before}

    def root(run_id: str) -> str:
        while parent[run_id] != run_id:
            parent[run_id] = parent[parent[run_id]]
            run_id = parent[run_id]
        return run_id

    for run_id, named in before.items():
        for each in named & before.keys():
            parent[root(run_id)] = root(each)
    threads: dict[str, list[str]] = {}
    for run_id in before:
        threads.setdefault(root(run_id), []).append(run_id)
    return list(threads.values())


def _driver_of(archive: FullArchive, run_id: str) -> str:
    """The process that is running a run, as far as known; empty if none is."""
    journal = Journal(run_id, archive)
    try:
        journal.catch_up()
    except (StoreError, UsageError):  # an unreadable run can be deleted
        return ""
    state = journal.state
    if state.status not in ("running", "queued"):
        return ""
    # a handle in this process may take a run that nobody drives
    driver = this_process() if journal.is_vacant else journal.driver
    owners = {driver, *(call.owner for call in running_calls(state))} - {""}
    return next((one for one in owners if _may_drive(one, journal)), "")


def _may_drive(process: str, journal: Journal) -> bool:
    """Whether a process may be running a run.

    A process on another machine may be running it while the process sends heartbeats. If the store has no
    heartbeats, the run's last event must be recent.
    """
    if process == this_process():
        return find_session(journal.run_id, journal.store) is not None
    ended = has_ended(process)
    if ended is not None:
        return not ended
    beats = still_beats(journal.store, process)
    return time.time() - journal.state.at < UNHEARD if beats is None else beats
