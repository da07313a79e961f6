"""What every store that deletes must do: no run is left that goes on with one that is gone."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import RunStarted
from nbagent.core.base.messages import user
from nbagent.core.journal.history import LostReference
from nbagent.core.journal.rows import Archive
from nbagent.core.stored import deletion
from tests.postgres import database

KINDS = ["memory", "sqlite", "postgresql", "sqlite by SQLAlchemy"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store of each kind that deletes."""
    match request.param:
        case "memory":
            yield nb.MemoryStore()
        case "sqlite":
            with nb.SQLiteStore(tmp_path / "runs.db") as made:
                yield made
        case "postgresql":
            with nb.SQLStore(database(request.getfixturevalue("postgres"))) as made:
                yield made
        case _:
            with nb.SQLStore(f"sqlite:///{tmp_path / 'alchemy.db'}") as made:
                yield made


def begun(*said: Any, after: str | None = None) -> RunStarted:
    """The beginning of a run."""
    return RunStarted(at=1.0, agent="a", model="m", messages=list(said), max_turns=5, after=after)


def refers(to: str) -> RunStarted:
    """The beginning of one that goes on with the first message of another."""
    return begun({"role": "run", "id": to, "events": 1, "messages": 1}, user("more"), after=to)


def test_c263_a_run_goes_on_with_none_that_is_gone_and_nothing_is_deleted_behind_one_that_began(
    store: Archive,
) -> None:
    """Both are looked at where it is written: all or nothing is deleted, and an id that was given anew is another run."""
    kept: Any = store
    kept.append("one", [begun(user("hi"))], 0)
    kept.append("two", [refers("one")], 0)
    with pytest.raises(nb.Conflict, match="'two' was begun meanwhile"):
        store.delete("one", known={"one"})
    with pytest.raises(nb.errors.UsageError, match="no run 'three'"):
        store.delete("two", "three")
    assert kept.run_ids() == ["one", "two"]
    store.delete("one", "two", known={"one", "two"})
    assert kept.run_ids() == []
    with pytest.raises(LostReference, match="'two' goes on with run 'one'"):
        kept.append("two", [refers("one")], 0)
    assert kept.run_ids() == []


async def test_c263_a_follow_up_that_races_a_deletion_is_whole_whoever_is_first(
    store: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins between the check and the deletion: nothing is deleted. Or right after it: it has the history itself."""
    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "said"), store=store)  # type: ignore[arg-type]
    first = agent.run("Hi.", id="first")
    await first
    checks: list[str] = []

    def checked(_archive: Any, run_id: str) -> None:
        checks.append(run_id)
        if len(checks) == 1:
            thread = threading.Thread(target=lambda: agent.run_sync("More.", after=first))
            thread.start()
            thread.join()

    monkeypatch.setattr(deletion, "_check_stands_still", checked)
    with pytest.raises(nb.errors.UsageError, match="cannot be deleted alone"):
        nb.delete_run("first", store=store)  # type: ignore[arg-type]
    assert len(nb.delete_run("first", store=store, with_followers=True)) == 2  # type: ignore[arg-type]
    late = agent.run("Even more.", after=first)
    await late
    kept: Any = store
    assert kept.run_ids() == [late.id]
    assert [m["role"] for m in kept.read(late.id)[0].messages] == ["user", "assistant", "user"]


def test_who_goes_on_with_a_run_as_it_is_deleted_waits_or_is_waited_for(
    store: Archive, tmp_path: Path
) -> None:
    """From two threads at once, again and again: never a run whose beginning is gone."""
    kept: Any = store
    outcomes = set()
    for n in range(12):
        one, two = f"one{n}", f"two{n}"
        kept.append(one, [begun(user("hi"))], 0)
        known = set(kept.run_ids())
        ready = threading.Barrier(2)
        said: dict[str, str] = {}

        def attempt(
            name: str, do: Callable[[], None], ready: Any = ready, said: Any = said
        ) -> None:
            ready.wait()
            try:
                do()
                said[name] = "done"
            except (nb.Conflict, LostReference) as error:
                said[name] = type(error).__name__

        works = {
            "delete": lambda one=one, known=known: store.delete(one, known=known),
            "go on": lambda one=one, two=two: kept.append(two, [refers(one)], 0),
        }
        threads = [threading.Thread(target=attempt, args=each) for each in works.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes.add(tuple(sorted(said.items())))
        assert (one in kept.run_ids()) == (two in kept.run_ids())
    assert outcomes <= {
        (("delete", "Conflict"), ("go on", "done")),
        (("delete", "done"), ("go on", "LostReference")),
    }


def test_beats_of_processes_that_are_long_gone_are_forgotten(tmp_path: Path) -> None:
    """A file has those of the last hundred that began; a forgotten one that lives begins again."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for n in range(250):
            store.beat(f"process {n}")
        store.beat("process 0")
        assert [store.beats(f"process {n}") for n in (0, 1, 150, 151, 249)] == [1, 0, 0, 1, 1]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        assert file.execute("select count(*) from beats").fetchone() == (100,)
