"""``nb.SQLStore`` beyond the store contract, on a real PostgreSQL server: other processes, failures, permissions."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import psycopg
import pytest
import sqlalchemy as sa

import nbagent as nb
from nbagent.cli import main
from nbagent.core.base.errors import Busy, StoreError
from nbagent.core.base.events import RunCompleted, RunStarted
from nbagent.core.base.messages import user
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import Head
from nbagent.core.journal.store import Append
from nbagent.core.state.state import EMPTY_STATE, RunState, evolve
from nbagent.stores import postgres_listener
from tests.postgres import database
from tests.until import PATIENCE, until


def completed(text: str) -> RunCompleted:
    return RunCompleted(at=1.0, text=text)


@pytest.fixture
def url(postgres: Path) -> str:
    return database(postgres)


@pytest.fixture
def store(url: str) -> Iterator[nb.SQLStore]:
    with nb.SQLStore(url, timeout=0.3) as opened:
        yield opened


def sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


class Bell:
    """A watcher of a run that waits for new events."""

    def __init__(self) -> None:
        self.rung = threading.Event()

    def on_append(self) -> None:
        self.rung.set()

    def wait(self) -> bool:
        heard = self.rung.wait(PATIENCE)
        self.rung.clear()
        return heard


def test_a_shell_prints_no_password_of_the_database_url(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON, hints and errors have no password, because cron, CI and terminals store the output."""
    secret = url.replace("tester@", "tester:correct-horse@")
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay")]), store=nb.SQLStore(secret))
    agent.tool(lambda: "paid", name="pay", approval=True)
    run = agent.run("Pay", id="bill", show=False, attended=False)
    with pytest.raises(nb.HumanInputRequired):
        run.wait()
    agent.store.close()
    assert main(["show", "bill", "--store", secret]) == 0
    assert main(["runs", "--json", "--store", secret]) == 0
    monkeypatch.setenv("NBAGENT_STORE", secret)
    assert main(["answer", "bill", "--approve"]) == 0
    told = "".join(capsys.readouterr())
    assert "tester:***@" in told
    assert "correct-horse" not in told


def test_c248_a_watcher_learns_of_writes_during_a_lost_connection(
    store: nb.SQLStore, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No watcher polls; watchers that may have missed a write are called."""
    monkeypatch.setattr(postgres_listener, "AGAIN", 0.05)
    bell = Bell()
    with nb.SQLStore(url) as others:
        others.append("run", [completed("a")], 0)
        assert store.watch("run", bell)
        listener = store._listener
        assert listener is not None
        while listener.change_count is None:
            bell.rung.wait(0.05)
        bell.rung.clear()
        others.append("run", [completed("b")], 1)
        assert bell.wait()
        before = [store.stamp(), store.stamp()]
        others.append("run", [completed("c")], 2)
        assert bell.wait()
        assert before[1] != store.stamp() == store.stamp()
        sql(
            url,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()",
        )
        assert bell.wait()
        while listener.change_count is None:
            bell.rung.wait(0.05)
        bell.rung.clear()
        others.append("run", [completed("d")], 3)  # the pooled connection was killed, too
        assert bell.wait()
        assert len(store.read("run")) == 4
    assert "does not report" in caplog.text


def test_a_list_of_many_runs_needs_only_a_few_queries(
    store: nb.SQLStore,
) -> None:
    """Even from a distant server, a thousand questions are read in a fraction of a second."""
    for number in range(60):
        asked = RunStarted(at=1.0, agent="a", model="m", messages=[user(f"{number}")], max_turns=2)
        store.append(f"run {number}", [asked, completed(f"{number}")], 0)
    statements: list[str] = []

    def noted(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    sa.event.listen(store._engine, "before_cursor_execute", noted)
    listed = nb.runs(store, limit=50)
    assert {(run.id, run.prompt) for run in listed} <= {(f"run {n}", f"{n}") for n in range(60)}
    assert (len(listed), listed.left_out) == (50, 10)
    assert len(statements) <= 10
    sa.event.remove(store._engine, "before_cursor_execute", noted)


def test_a_run_locked_by_another_process_is_reported_as_busy_and_works_again_afterwards(
    store: nb.SQLStore, url: str
) -> None:
    """The run is busy while the other transaction is open; other runs are not blocked."""
    store.append("run", [completed("a")], 0)
    with psycopg.connect(url) as held:
        held.execute("update nbagent_runs set seal = seal")
        with pytest.raises(nb.errors.Busy, match="another process holds a lock"):
            store.append("run", [completed("b")], 1)
        store.append("other", [completed("c")], 0)
        assert store.read("run") == [completed("a")]
    store.append("run", [completed("b")], 1)
    assert len(store.read("run")) == 2


@asynccontextmanager
async def gathered(
    store: nb.SQLStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[list[str]]]:
    """The groups of appended runs; the first append waits until the block ends, so all others form one group."""
    groups: list[list[str]] = []
    go, append_each = threading.Event(), store.append_each

    def noted(appends: Sequence[Append]) -> list[bool]:
        groups.append([one.run_id for one in appends])
        if len(groups) == 1:
            assert go.wait(PATIENCE)
        return append_each(appends)

    monkeypatch.setattr(store, "append_each", noted)
    first = asyncio.create_task(write(store, "first", 0, "a"))
    await until(lambda: bool(groups))
    yield groups
    await asyncio.sleep(0)  # let the tasks of this block start to write
    go.set()
    await first


class Refused(Exception):
    """The run did not have the expected length."""


async def write(store: nb.SQLStore, run_id: str, expected: int, text: str) -> None:
    """Append to a run with an expected length."""

    def decide(state: RunState) -> list[RunCompleted]:
        if state.position != expected:
            raise Refused
        return [completed(text)]

    journal = Journal(run_id, store, evolve(EMPTY_STATE, position=expected))
    await journal.write(decide)
    assert journal.state.position == expected + 1


async def test_c446_appends_at_once_share_one_transaction_and_each_gets_its_own_outcome(
    store: nb.SQLStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed, a locked and a missing run do not block the other appends."""
    for run_id in ("moved", "held", *map(str, range(20))):
        store.append(run_id, [completed("a")], 0)
    store._ends["gone"] = store._ends["held"]._replace(length=3)
    store._numbers["gone"] = store._numbers["held"]
    expected = {"moved": 0, "held": 1, "gone": 3, "new": 0, **dict.fromkeys(map(str, range(20)), 1)}

    with psycopg.connect(url) as other:
        async with gathered(store, monkeypatch) as groups:
            other.execute("select * from nbagent_runs where id = 'held' for update")
            writes = {
                run_id: asyncio.create_task(write(store, run_id, at, "b"))
                for run_id, at in expected.items()
            }
            twice = asyncio.create_task(write(store, "new", 0, "c"))
        await asyncio.wait([twice, *writes.values()])
    of_new = {type(writes.pop("new").exception()), type(twice.exception())}
    assert of_new == {type(None), Refused}
    errors = {run_id: type(one.exception()) for run_id, one in writes.items() if one.exception()}
    assert errors == {"moved": Refused, "held": Busy, "gone": nb.errors.UsageError}
    assert groups == [["first"], [*expected, "new"]]
    assert [len(store.read(str(number))) for number in range(20)] == [2] * 20
    assert len(store.read("new")) == 1
    assert len(store.read("held")) == 1
    assert nb.verify_run("3", store=store)


@pytest.mark.parametrize("breaks", ["before the commit", "after it"])
@pytest.mark.parametrize("is_away", [False, True])
async def test_c446_a_connection_that_breaks_in_a_group_loses_no_append_and_writes_none_twice(
    breaks: str, is_away: bool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the database cannot be read at first."""
    with nb.SQLStore(url, timeout=PATIENCE) as store:
        store.append("ready", [completed("a")], 0)
        append_in_one = store._append_in_one

        def broken(writes: Any) -> None:
            if breaks == "after it":
                append_in_one(writes)
            raise psycopg.OperationalError("the connection is gone")

        note_stored = Mock(
            side_effect=chain([StoreError("the server is gone")] * is_away, repeat(DEFAULT)),
            wraps=store._note_stored,
        )
        async with gathered(store, monkeypatch) as groups:
            writes = [asyncio.create_task(write(store, str(n), 0, "a")) for n in range(12)]
            await asyncio.sleep(0)
            # the first group already uses the original method
            monkeypatch.setattr(store, "_append_in_one", broken)
            monkeypatch.setattr(store, "_note_stored", note_stored)
        await asyncio.gather(*writes)
        monkeypatch.undo()
        assert [len(group) for group in groups] == [1, 12]
        assert not store._in_doubt
        await asyncio.gather(*(write(store, str(n), 1, "b") for n in range(12)))
        for n in range(12):
            assert [event.text for event in store.read(str(n))] == ["a", "b"]


async def test_c446_an_append_that_the_server_commits_after_its_connection_broke_counts_once(
    store: nb.SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup comes too early, so the append is repeated alone and finds itself stored."""
    store.append("ready", [completed("a")], 0)
    append_in_one, append = store._append_in_one, store._append
    sent: list[Any] = []

    def broken(writes: Any) -> None:
        sent.extend(writes)
        raise psycopg.OperationalError("the connection is gone")

    def late(*write: Any) -> None:
        append_in_one(sent)
        append(*write)

    with monkeypatch.context() as patched:
        patched.setattr(store, "_append_in_one", broken)
        patched.setattr(store, "_append", late)
        await write(store, "ready", 1, "b")
    await write(store, "ready", 2, "c")
    assert [event.text for event in store.read("ready")] == ["a", "b", "c"]


async def test_c446_a_subclass_with_an_append_of_its_own_is_not_bypassed(url: str) -> None:
    class Audited(nb.SQLStore):
        def append(self, run_id: str, events: Sequence[Any], expected: int) -> None:
            seen.append(run_id)
            super().append(run_id, events, expected)

    seen: list[str] = []
    with Audited(url) as audited:
        await write(audited, "one", 0, "a")
    assert seen == ["one"]


async def test_c446_a_write_fails_alone_where_the_database_is_away_for_its_group_too(
    store: nb.SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("ready", [completed("a")], 0)
    with monkeypatch.context() as patched:
        for name in ("_append_in_one", "_note_stored", "_append", "_rows"):
            patched.setattr(store, name, Mock(side_effect=StoreError("the server is gone")))
        with pytest.raises(StoreError, match="the server is gone"):
            await write(store, "ready", 1, "b")
    await write(store, "ready", 1, "b")


def test_a_read_only_user_reads_and_gets_a_clear_error_for_writes(
    store: nb.SQLStore, url: str, postgres: Path
) -> None:
    """The database checks permissions; missing tables are no error for a reader."""
    store.append("run", [completed("a")], 0)
    name = f"reader_{os.getpid()}"
    sql(
        url,
        f"create role {name} login password 'hunter2'",
        f"grant select on all tables in schema public to {name}",
    )
    try:
        with nb.SQLStore(url.replace("tester", f"{name}:hunter2")) as reader:
            assert reader.read("run") == [completed("a")]
            for write in (
                lambda: reader.append("run", [completed("b")], 1),
                lambda: reader.append("new", [completed("b")], 0),
                lambda: reader.delete("run"),
            ):
                with pytest.raises(nb.errors.StoreError, match="role lacks permission") as error:
                    write()
                assert "hunter2" not in f"{reader!r} {error.value}"
        empty = database(postgres)
        with nb.SQLStore(empty.replace("tester", name)) as reader:
            assert (reader.run_ids(), reader.heads(), reader.beats("p")) == ([], [], 0)
            with pytest.raises(nb.errors.UsageError, match="Is it the right database"):
                reader.read("run")
            with pytest.raises(nb.errors.StoreError, match="role lacks permission"):
                reader.append("run", [completed("b")], 0)
    finally:
        sql(url, f"drop owned by {name}", f"drop role {name}")


def test_a_reader_finds_nothing_and_no_error_while_another_thread_creates_the_tables(
    store: nb.SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads see the new tables only after the commit."""
    seen: list[object] = []
    insert = nb.SQLStore._insert

    def before_it_is_done(self: nb.SQLStore, *told: object) -> None:
        for _ in range(2):
            reading = threading.Thread(target=lambda: seen.append(store.run_ids()))
            reading.start()
            reading.join()
        insert(self, *told)

    monkeypatch.setattr(nb.SQLStore, "_insert", before_it_is_done)
    store.append("run", [completed("a")], 0)
    assert seen == [[], []]
    assert store.run_ids() == ["run"]


def test_tables_of_a_newer_version_are_refused_and_missing_ones_reported(
    store: nb.SQLStore, url: str
) -> None:
    """Nothing is written to unknown tables."""
    store.append("run", [completed("a")], 0)
    sql(url, "update nbagent_meta set version = 99")
    with nb.SQLStore(url) as late:
        for act in (late.run_ids, lambda: late.append("run", [completed("b")], 1)):
            with pytest.raises(nb.errors.StoreError, match=r"newer nbagent.*Upgrade"):
                act()
    sql(url, "drop table nbagent_events")
    with pytest.raises(nb.errors.StoreError, match="tables no longer exist"):
        store.read("run")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_engine_of_the_caller_threads_and_a_fork_can_use_it(url: str) -> None:
    """The child process gets its own connections, and the engine stays open for the caller."""
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    with nb.SQLStore(engine) as store:
        store.append("run", [completed("parent")], 0)
        child = multiprocessing.get_context("fork").Process(
            target=lambda: store.append("run", [completed("child")], 1)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
        store.append("run", [completed("parent again")], 2)
        assert [e.text for e in store.read("run")] == ["parent", "child", "parent again"]
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select count(*) from nbagent_events")) == 3
    engine.dispose()


@pytest.mark.parametrize(
    ("database", "told"),
    [
        ("runs.db", "takes the URL of a database"),
        ("sqlite://", "MemoryStore"),
        ("nosuch://a:hunter2@b/c", "has no dialect 'nosuch'"),
        ("mysql+pymysql://a:hunter2@b/c", "driver of .* is not installed"),
    ],
)
def test_an_object_that_is_not_a_database_is_refused_with_what_to_pass(
    database: str, told: str
) -> None:
    """The error has no password."""
    with pytest.raises(nb.errors.UsageError, match=told) as error:
        nb.SQLStore(database)
    assert "hunter2" not in str(error.value)


def test_an_unreachable_server_is_reported_without_its_password() -> None:
    """The store connects only when needed."""
    with nb.SQLStore("postgres://me:hunter2@127.0.0.1:9/runs?sslpassword=hunter2") as store:
        with pytest.raises(nb.errors.StoreError, match="refused") as error:
            store.append("run", [completed("a")], 0)
        assert "hunter2" not in f"{error.value} {store!r}"


class Looking:
    """A reader of the runs with a prefix; ``other`` is the store of another process."""

    def __init__(self, store: nb.SQLStore, other: nb.SQLStore, monkeypatch: Any) -> None:
        self.store, self.other = store, other
        self.scans = Mock(wraps=store._changed)
        monkeypatch.setattr(store, "_changed", self.scans)
        self.heads: dict[str, Head] = {}
        self.since: object = None

    def is_complete(self) -> bool:
        changes = self.store.changes("r", self.since)
        self.since = changes.token
        if changes.is_whole:
            self.heads.clear()
        self.heads.update({head.run_id: head for head in changes.heads})
        return self.heads == {head.run_id: head for head in self.other.heads("r")}

    async def begin(self) -> None:
        for name in ("r1", "r2", "r3", "s"):
            self.other.append(name, [completed("a")], 0)
        await until(lambda: isinstance(self.store.stamp(), int))
        assert self.is_complete()

    def has_scanned(self) -> bool:
        """Whether the rows of all runs were read since the last call."""
        has_scanned = self.scans.called
        self.scans.reset_mock()
        return has_scanned


async def test_c495_a_look_reads_only_the_runs_whose_writes_were_notified(
    store: nb.SQLStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any writer; after a deletion, all runs are read."""
    with nb.SQLStore(url) as other:
        looking = Looking(store, other, monkeypatch)
        await looking.begin()
        assert looking.is_complete()
        other.append("r2", [completed("b")], 1)
        other.append("r4", [completed("b")], 0)
        other.append("s", [completed("b")], 1)
        await until(looking.is_complete)
        await write(other, "r5", 0, "in a group")
        await until(looking.is_complete)
        store.append("r1", [completed("b")], 1)
        assert looking.is_complete()  # the store's own writes are known at once
        await write(store, "r6", 0, "in a group")
        assert looking.is_complete()
        assert not looking.has_scanned()
        other.delete("r3")
        await until(looking.is_complete)
        assert looking.has_scanned()
        store.delete("r5")
        assert looking.is_complete()
        assert looking.has_scanned()


async def test_c495_a_look_reads_all_runs_where_notices_may_be_missing(
    store: nb.SQLStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is a lost connection, a foreign notice, or more writes than the listener remembers."""
    monkeypatch.setattr(postgres_listener, "AGAIN", 0.05)
    with nb.SQLStore(url) as other:
        looking = Looking(store, other, monkeypatch)
        await looking.begin()
        sql(
            url,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()",
        )
        other.append("r1", [completed("b")], 1)
        await until(lambda: looking.is_complete() and looking.has_scanned())
        await until(lambda: isinstance(store.stamp(), int))
        assert looking.is_complete()
        looking.has_scanned()
        sql(url, "select pg_notify('nbagent', 'x:y:-1')")
        await until(lambda: looking.is_complete() and looking.has_scanned())
        assert looking.is_complete()
        assert not looking.has_scanned()
        assert store._listener is not None
        store._listener._numbers = deque(maxlen=2)
        for length in range(1, 4):
            store.append("r2", [completed("b")], length)
        assert looking.is_complete()
        assert looking.has_scanned()


async def test_c495_a_look_finds_a_write_that_was_reported_as_failed(
    store: nb.SQLStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke after the commit; in a forked process, notices of the parent's listener are ignored."""
    append = store._append

    def breaks(*given: Any) -> None:
        append(*given)
        raise StoreError("the connection is gone")

    with nb.SQLStore(url) as other:
        looking = Looking(store, other, monkeypatch)
        await looking.begin()
        assert looking.is_complete()
        with monkeypatch.context() as patched:
            patched.setattr(store, "_append", breaks)
            with pytest.raises(StoreError):
                store.append("r1", [completed("b")], 1)
        assert looking.is_complete()
        other._listener = None
        other.stamp()
        await until(lambda: isinstance(other.stamp(), int))
        assert store._listener is not None
        assert other._listener is not None
        theirs = other._listener.notices
        assert theirs is not None
        assert store._listener.written_since(theirs) is None


def test_a_look_finds_a_run_whose_transaction_began_before_later_ones_that_it_saw(
    url: str, store: nb.SQLStore
) -> None:
    """Rows become visible in commit order, which differs from the order of row numbers and transactions."""
    store.append("a", [completed("1")], 0)
    since = store.changes("", None).token
    add = "insert into nbagent_runs (id, length, seal) values (%s, 0, '')"
    with psycopg.connect(url) as slow, psycopg.connect(url) as saved:
        slow.execute(add, ("slow",))
        with saved.transaction():
            saved.execute(add, ("saved 1",))
            store.append("b", [completed("2")], 0)
            with saved.transaction():  # a savepoint has its own transaction number
                saved.execute(add, ("saved 2",))
            changes = store.changes("", since)
            assert [head.run_id for head in changes.heads] == ["b"]
        store.append("a", [completed("3")], 1)
        slow.commit()
    found = store.changes("", changes.token)
    assert not found.is_whole
    assert {head.run_id for head in found.heads} >= {"slow", "saved 1", "saved 2", "a"}
    assert store.changes("", found.token).heads == []
    with psycopg.connect(url) as slow:
        slow.execute("delete from nbagent_runs where id = 'slow'")
        assert not store.changes("", found.token).is_whole
        slow.commit()
    assert store.changes("", found.token).is_whole


def test_heads_of_a_prefix_are_found_by_the_index_and_its_signs_are_literal(
    url: str, store: nb.SQLStore
) -> None:
    """The index needs collation C for ids; otherwise, all ids are compared."""
    for run_id in ("a%:1", "a%:2", "ab:3", "a\\:4", "a_:5"):
        store.append(run_id, [completed("1")], 0)
    found = [[h.run_id for h in store.heads(p)] for p in ("a%:", "a_", "a\\", "a")]
    assert [len(each) for each in found] == [2, 1, 1, 5]
    sql(url, "create database collated template template0 lc_collate 'C' lc_ctype 'C'")
    name = url.partition("@/")[2].partition("?")[0]
    collated = url.replace(f"/{name}?", "/collated?")
    with nb.SQLStore(collated) as other:
        other.append("a:1", [completed("1")], 0)
    with psycopg.connect(collated) as connection:
        connection.execute("set enable_seqscan = off")
        explain = "explain select number from nbagent_runs where id like 'a:%'"
        assert "Index Cond" in str(connection.execute(explain).fetchall())
    sql(url, "drop database collated with (force)")
