"""The contract of every store that deletes: no stored run continues a deleted run."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import nbagent as nb
from nbagent.core.base.events import RunQueued, RunStarted, dump
from nbagent.core.base.messages import user
from nbagent.core.journal.history import LostReference
from nbagent.core.journal.rows import Archive, with_seals
from nbagent.core.stored import deletion
from tests.postgres import database
from tests.until import until

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


def run_started(*said: Any, after: str | None = None) -> RunStarted:
    """The first event of a run."""
    return RunStarted(at=1.0, agent="a", model="m", messages=list(said), max_turns=5, after=after)


def refers(to: str) -> RunStarted:
    """The first event of a run that continues another run after its first message."""
    return run_started(
        {"role": "run", "id": to, "events": 1, "messages": 1}, user("more"), after=to
    )


def test_c263_a_run_never_refers_to_a_deleted_run_and_a_needed_run_is_not_deleted(
    store: Archive,
) -> None:
    """The store checks references as it writes; it deletes all given runs or none, and none with unknown followers."""
    kept: Any = store
    kept.append("one", [run_started(user("hi"))], 0)
    kept.append("two", [refers("one")], 0)
    with pytest.raises(nb.Conflict, match="'two' was started in the meantime"):
        store.delete("one", known={"one"})
    with pytest.raises(nb.errors.UsageError, match="no run 'three'"):
        store.delete("two", "three")
    assert kept.run_ids() == ["one", "two"]
    store.delete("one", "two", known={"one", "two"})
    assert kept.run_ids() == []
    with pytest.raises(LostReference, match="'two' continues run 'one'"):
        kept.append("two", [refers("one")], 0)
    assert kept.run_ids() == []


async def test_c447_runs_queued_at_once_start_one_after_the_other(store: Any) -> None:
    """A queued run waits until the first event of the previous run is stored."""
    agent = nb.Agent(nb.ScriptedModel(["one", "two", "three"] * 8), store=store)
    for _ in range(8):
        first = agent.run("first", show=False, attended=False)
        second = agent.run("second", after=first, show=False, attended=False)
        third = agent.run("third", after=second, show=False, attended=False)
        assert [(await run).text for run in (first, second, third)] == ["one", "two", "three"]
        assert len(third.messages) == 6


async def test_c263_a_follow_up_that_races_a_deletion_is_complete_whichever_wins(
    store: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follow-up before the deletion prevents it. A follow-up right after it gets the whole history."""
    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "said"), store=store)  # type: ignore[arg-type]
    first = agent.run("Hi.", id="first")
    await first
    checks: list[str] = []

    def driver_of(_archive: Any, run_id: str) -> str:
        checks.append(run_id)
        if len(checks) == 1:
            thread = threading.Thread(target=lambda: agent.run_sync("More.", after=first))
            thread.start()
            thread.join()
        return ""

    monkeypatch.setattr(deletion, "_driver_of", driver_of)
    with pytest.raises(nb.errors.UsageError, match="cannot be deleted alone"):
        nb.delete_run("first", store=store)  # type: ignore[arg-type]
    assert len(nb.delete_run("first", store=store, with_followers=True)) == 2  # type: ignore[arg-type]
    late = agent.run("Even more.", after=first)
    await late
    kept: Any = store
    assert kept.run_ids() == [late.id]
    assert [m["role"] for m in kept.read(late.id)[0].messages] == ["user", "assistant", "user"]


def queued(after: str, *, elsewhere: bool = False) -> RunQueued:
    """The first event of a run that is queued behind another run."""
    return RunQueued(at=1.0, agent="a", model="m", after=after, text="more", elsewhere=elsewhere)


GOES_ON: dict[str, Callable[[Any, str, str], None]] = {
    "begins": lambda store, run, after: store.append(run, [refers(after)], 0),
    "waits": lambda store, run, after: store.append(run, [queued(after)], 0),
    "is brought in": lambda store, run, after: store.put(
        run, with_seals(run, [dump(refers(after))])
    ),
    "is brought in, waiting": lambda store, run, after: store.put(
        run, with_seals(run, [dump(queued(after))])
    ),
}
"""Ways to store a run that continues another run, by name."""


def test_c263_every_way_of_writing_a_run_refuses_references_to_deleted_runs(store: Archive) -> None:
    """Every method refuses a deleted run; a reference that is not needed, or is to another store, may be missing."""
    kept: Any = store
    for go_on in GOES_ON.values():
        with pytest.raises(LostReference, match="'two' continues run 'one'"):
            go_on(kept, "two", "one")
    assert kept.run_ids() == []
    kept.append("apart", [queued("one", elsewhere=True)], 0)
    begun_since = [queued("one"), run_started(user("hi"), user("more"), after="one")]
    kept.put("old", with_seals("old", map(dump, begun_since)))
    assert kept.run_ids() == ["apart", "old"]


@pytest.mark.parametrize("way", GOES_ON)
def test_continuing_a_run_and_deleting_it_exclude_each_other(store: Archive, way: str) -> None:
    """Two threads compete several times: the stored run never misses the run before."""
    kept: Any = store
    outcomes = set()
    for n in range(4):
        one, two = f"one{n}", f"two{n}"
        kept.append(one, [run_started(user("hi"))], 0)
        known = set(kept.run_ids())
        ready = threading.Barrier(2)
        said: dict[str, str] = {}

        def attempt(
            name: str, do: Callable[[], None], ready: Any = ready, said: Any = said
        ) -> None:
            ready.wait()
            said[name] = outcome_of(do)

        works = {
            "delete": lambda one=one, known=known: store.delete(one, known=known),
            "go on": lambda one=one, two=two: GOES_ON[way](kept, two, one),
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


def outcome_of(do: Callable[[], None]) -> str:
    """``done``, or the name of the error."""
    try:
        do()
    except (nb.Conflict, LostReference) as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("way", GOES_ON)
@pytest.mark.parametrize("first", ["delete", "go on"])
def test_the_second_connection_waits_while_the_first_writes_a_run(
    postgres: Path, first: str, way: str
) -> None:
    """The first is about to commit; the second waits and sees the result."""
    url = database(postgres)
    with nb.SQLStore(url) as one, nb.SQLStore(url) as two:
        one.append("run", [run_started(user("hi"))], 0)
        works = {
            "delete": lambda store: store.delete("run", known={"run"}),
            "go on": lambda store: GOES_ON[way](store, "next", "run"),
        }
        [second] = works.keys() - {first}
        said: dict[str, str] = {}

        def begin(name: str, store: Any) -> threading.Thread:
            def work() -> None:
                said[name] = outcome_of(lambda: works[name](store))

            thread = threading.Thread(target=work)
            thread.start()
            return thread

        late: list[threading.Thread] = []

        def before_commit(_connection: Any) -> None:
            if not late:
                late.append(begin(second, two))
                asyncio.run(until(lambda: bool(said) or waits_for_a_lock(url)))

        sa.event.listen(one._engine, "commit", before_commit)
        begin(first, one).join()
        late[0].join()
        refused = {"delete": "Conflict", "go on": "LostReference"}[second]
        assert said == {first: "done", second: refused}
        assert one.run_ids() == (["run", "next"] if first == "go on" else [])


def waits_for_a_lock(url: str) -> bool:
    """Whether a connection waits for another transaction."""
    asked = "select exists (select from pg_locks l join pg_database d on d.oid = l.database or l.database is null "
    asked += "where not l.granted and d.datname = current_database())"
    with psycopg.connect(url) as connection:
        found = connection.execute(asked).fetchone()
    return bool(found and found[0])


def test_heartbeats_of_long_ended_processes_are_deleted(tmp_path: Path) -> None:
    """A file has the heartbeats of the last hundred processes; a live process that was dropped starts again at 1."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for n in range(250):
            store.beat(f"process {n}")
        store.beat("process 0")
        assert [store.beats(f"process {n}") for n in (0, 1, 150, 151, 249)] == [1, 0, 0, 1, 1]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        assert file.execute("select count(*) from beats").fetchone() == (100,)


async def test_c447_a_run_queued_behind_a_new_id_starts_after_it(store: Any) -> None:
    """The store first checks whether the id exists; a queued run waits for the first event."""
    agent = nb.Agent(nb.ScriptedModel(["one", "two"] * 8), store=store)
    for number in range(8):
        first = agent.run("first", id=f"new-{number}", show=False, attended=False)
        second = agent.run("second", after=first, show=False, attended=False)
        assert [(await run).text for run in (first, second)] == ["one", "two"]
