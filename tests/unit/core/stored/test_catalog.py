"""The catalog of a store's runs, which reads a run again only after a change."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import RunCompleted, RunFailed, RunRetried, RunStarted, StoredEvent
from nbagent.core.base.messages import user
from nbagent.core.stored.catalog import Catalog
from tests.until import PATIENCE

MANY = 220
"""Enough runs for a SQLite file to report only the changes."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield nb.MemoryStore()
        return
    with nb.SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened


def started() -> StoredEvent:
    return RunStarted(at=1.0, agent="a", model="m", messages=[], max_turns=9)


def following(last: StoredEvent, chosen: random.Random) -> StoredEvent:
    """A possible next event of a run."""
    at = chosen.random()
    match last:
        case RunFailed():
            return RunRetried(at=at, by="x")
        case _ if chosen.random() < 0.7:
            return RunFailed(at=at, error="E", message="down")
        case _:
            return RunCompleted(at=at)


@pytest.mark.variant
@pytest.mark.parametrize("seed", range(3))
def test_a_catalog_that_reads_what_changed_lists_as_a_new_one_does(store: Any, seed: int) -> None:
    """Entries, order and counts are equal, after any writes and deletions, for rare looks too."""
    chosen = random.Random(seed)
    for n in range(MANY):
        store.append(f"{'ab'[n % 2]}:{n}", [started()], 0)
    kept = [(Catalog(store, prefix=p, journals=j), p) for p, j in (("", None), ("a:", 3))]
    for step in range(60):
        run_id = chosen.choice([*store.run_ids(), f"a:new{step}"])
        there = store.read(run_id) if run_id in store.run_ids() else []
        if there and chosen.random() < 0.1:
            store.delete(run_id)
        elif not there:
            store.append(run_id, [started()], 0)
        elif not isinstance(there[-1], RunCompleted):
            store.append(run_id, [following(there[-1], chosen)], len(there))
        catalog, prefix = chosen.choice(kept)
        at_most = chosen.choice([None, 2])
        only_open = chosen.random() < 0.3
        found = catalog.look(only_open=only_open, at_most=at_most)
        anew = Catalog(store, prefix=prefix)
        entries = anew.look(only_open=only_open)
        assert catalog.count == anew.count
        ids = {one.id for one in found}
        assert found == [one for one in entries if one.id in ids]
        assert len(entries) - len(found) <= catalog.left


def test_after_one_write_a_catalog_reads_one_head(store: Any) -> None:
    """The number of runs does not matter."""
    for n in range(MANY):
        store.append(f"{n}", [started()], 0)
    catalog = Catalog(store)
    for _ in range(2):
        catalog.look()
    store.append("7", [RunCompleted(at=1.0)], 1)
    changes = store.changes("", catalog._since)
    assert ([head.run_id for head in changes.heads], changes.is_whole) == (["7"], False)
    assert [one.id for one in catalog.look() if one.status == "completed"] == ["7"]


def test_a_look_that_failed_is_made_again_in_full(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed look's changes are not lost."""
    store.append("run", [started()], 0)
    catalog = Catalog(store)
    catalog.look()
    store.append("run", [RunCompleted(at=1.0)], 1)
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "_read_run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            catalog.look()
    assert [one.status for one in catalog.look()] == ["completed"]


class Plain:
    """A store with the required methods, a damaged run, and a run deleted after the ids were read."""

    def __init__(self, count: int) -> None:
        self.near = nb.MemoryStore()
        self.met = threading.Barrier(count)
        self.append = self.near.append

    def run_ids(self) -> list[str]:
        """Ids of the runs."""
        return [*self.near.run_ids(), "damaged", "deleted"]

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """Events of a run, after all runs are being read at once."""
        if run_id.startswith("run"):
            self.met.wait(PATIENCE)
        if run_id == "damaged":
            raise nb.errors.StoreError("it is damaged")
        return self.near.read(run_id, start)


def test_a_slow_store_is_asked_for_many_runs_at_the_same_time() -> None:
    store = Plain(6)
    for n in range(6):
        store.append(f"run{n}", [started()], 0)
    catalog = Catalog(store)
    assert [entry.id for entry in catalog.look()] == [f"run{n}" for n in range(6)]
    assert {*catalog.unreadable} == {"damaged", "deleted"}


def test_a_later_run_of_a_cell_counts_only_if_another_process_started_it() -> None:
    """A cell that runs again in its own kernel is no second kernel that may do the work too."""
    store = nb.MemoryStore()
    for run_id, at, cell, owner in [
        ("first", 1.0, "a", "one"),
        ("again", 2.0, "a", "one"),
        ("elsewhere", 3.0, "a", "two"),
        ("other cell", 4.0, "b", "three"),
    ]:
        begun = RunStarted(
            at=at, agent="x", model="m", messages=[user("go")], max_turns=9, cell=cell, owner=owner
        )
        store.append(run_id, [begun], 0)
    catalog = Catalog(store)
    entries = {entry.id: entry for entry in catalog.look()}
    found = [each for each in entries if catalog.started_since(entries[each])]
    assert found == ["first", "again"]
    store.delete("elsewhere")
    catalog.look()
    assert not catalog.started_since(entries["first"])


def test_a_run_whose_history_is_damaged_hides_no_other_run() -> None:
    """The list, the inbox and the deletion read the other runs."""
    store = nb.MemoryStore()
    call_less = {"role": "assistant", "content": []}
    for run_id, messages, flow in [("a", ["go"], False), ("b", [call_less], True)]:
        begun = RunStarted(at=1.0, agent="x", model="m", messages=messages, max_turns=9, flow=flow)
        store.append(run_id, [begun], 0)
    store.append("good", [started()], 0)
    catalog = Catalog(store)
    assert [entry.id for entry in catalog.look()] == ["good"]
    assert {*catalog.unreadable} == {"a", "b"}
