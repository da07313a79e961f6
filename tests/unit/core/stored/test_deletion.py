"""Deleting: never a live run, never a run that another run continues, and without traces in the file."""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import Event, RunFailed, RunRetried, RunStarted
from nbagent.core.base.messages import user
from nbagent.core.base.process import _owner
from nbagent.core.journal.history import histories_of
from nbagent.core.stored import deletion

call = nb.ScriptedModel.call
SECRET = "the moon is made of cheese"


async def thread(store: nb.Store, *, ask: bool = False) -> list[nb.Run]:
    """Three runs, each continuing the previous one; the last one asks if ``ask`` is set."""
    last = call("confirm") if ask else "three"
    agent = nb.Agent(
        nb.ScriptedModel(["one", "two", last]), tools=[nb.interrupt_tool("confirm")], store=store
    )
    runs: list[nb.Run] = []
    for n in range(3):
        runs.append(agent.run(f"{SECRET} {n}", after=runs[-1] if runs else None))
        await runs[-1].settled()
    return runs


def files_of(store: nb.SQLiteStore) -> bytes:
    """All bytes of the file and of SQLite's other files beside it."""
    return b"".join(path.read_bytes() for path in store.path.parent.iterdir())


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    """A store of each kind."""
    return nb.MemoryStore() if request.param == "memory" else nb.SQLiteStore(tmp_path / "runs.db")


async def test_c263_a_run_that_others_continue_is_deleted_with_them_or_not_at_all(store):
    """The error names the other runs, and the store does not change."""
    one, two, three = [run.id for run in await thread(store)]
    with pytest.raises(nb.errors.UsageError, match=f"{two!r}, {three!r} continue its conversation"):
        nb.delete_run(one, store=store)
    with pytest.raises(nb.errors.UsageError, match="no run 'nope'"):
        nb.delete_run("nope", store=store)
    assert nb.delete_run(three, store=store) == [three]
    assert nb.delete_run(one, store=store, with_followers=True) == [one, two]
    assert store.run_ids() == []


async def test_c264_a_live_run_is_not_deleted(store):
    """Neither by id, nor with previous runs, nor by age; after a cancellation it can be deleted."""
    gate = asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel(["one", call("wait")]), store=store)

    @agent.tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    first = agent.run("go")
    await first
    second = agent.run("wait", after=first)
    async for event in second.events():
        if isinstance(event, Event) and event.type == "tool_started":
            break
    for act in (
        lambda: nb.delete_run(second.id, store=store),
        lambda: nb.delete_run(first.id, store=store, with_followers=True),
    ):
        with pytest.raises(nb.errors.UsageError, match="while it is active in process"):
            act()
    assert nb.prune(0, store=store, waiting=True) == []
    await second.cancel()
    assert nb.prune(0, store=store) == [first.id, second.id]


async def test_c265_prune_deletes_whole_threads_that_are_ended_and_old(store, monkeypatch):
    """Waiting runs and the runs before them stay; a dry run only lists the runs."""
    old = [run.id for run in await thread(store)]
    waits = [run.id for run in await thread(store, ask=True)]
    assert nb.prune("1d", store=store) == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 86_400)
    assert nb.prune(datetime.timedelta(days=2), store=store, dry_run=True) == old
    assert nb.prune(2 * 86_400, store=store) == old
    assert store.run_ids() == waits
    assert nb.prune("2d", store=store, waiting=True) == waits


@pytest.mark.parametrize("given", ["30", "d", "-1d", -1, True, None, "1y"])
def test_an_invalid_time_is_refused(given):
    """The error explains the format, and comes before any read."""
    with pytest.raises(nb.errors.UsageError, match="older_than must be a duration such as '30d'"):
        nb.prune(given, store=nb.MemoryStore())
    if given is not None:
        with pytest.raises(nb.errors.UsageError, match="older_than must be a duration such as"):
            nb.inbox(older_than=given, store=nb.MemoryStore())
    assert "older than 12 h 0 min" in repr(nb.inbox(older_than="12h", store=nb.MemoryStore()))


async def test_a_deleted_run_is_nowhere_in_the_file(tmp_path):
    """Neither the file nor its log has the text, even with a second open store; the freed space is reused."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    other = nb.SQLiteStore(tmp_path / "runs.db")
    runs = await thread(store)
    assert SECRET.encode() in files_of(store)
    assert nb.prune(0, store=store) == [run.id for run in runs]
    assert SECRET.encode() not in files_of(store)
    assert other.run_ids() == []
    size = store.path.stat().st_size
    for _ in range(3):
        await thread(store)
        nb.prune(0, store=store)
    assert store.path.stat().st_size == size


async def test_a_deleted_run_is_in_no_memory_of_its_store(store):
    """Its messages are kept for runs that continue it, of which there are none any more."""
    first, *_ = await thread(store)
    assert histories_of(store).last(first.id) is not None
    for run_id in nb.delete_run(first.id, store=store, with_followers=True):
        assert histories_of(store).last(run_id) is None


def test_a_run_that_is_retried_while_old_runs_are_sought_is_not_deleted(store, monkeypatch):
    """Another process retries it after it was found to be over."""
    lives = _owner(os.getppid())
    begun = RunStarted(at=1.0, agent="a", model="m", messages=[user("go")], max_turns=9)
    store.append("r", [begun, RunFailed(at=2.0, error="E", message="m")], 0)
    found = deletion._threads

    def retried(before: Any) -> Any:
        if len(store.read("r")) == 2:
            store.append("r", [RunRetried(at=3.0, by="form", owner=lives)], 2)
        return found(before)

    monkeypatch.setattr(deletion, "_threads", retried)
    assert nb.prune("1s", store=store) == []
    assert len(store.read("r")) == 3
