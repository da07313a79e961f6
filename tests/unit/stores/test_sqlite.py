"""The SQLite store beyond the contract: its file, other programs, failures and processes."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.base import events
from nbagent.core.base.events import RunCompleted, RunStarted, dump, parse
from nbagent.stores import sqlite


def completed(text: str) -> RunCompleted:
    return RunCompleted(at=1.0, text=text)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_its_log_and_folders_made_for_it_are_private(tmp_path: Path) -> None:
    """Only the user can read prompts and results, under any umask."""
    old = os.umask(0)
    try:
        with nb.SQLiteStore(tmp_path / "new" / "deep" / "runs.db") as store:
            store.append("run", [completed("secret")], 0)
            files = sorted(p.name for p in store.path.parent.iterdir())
            assert files == ["runs.db", "runs.db-shm", "runs.db-wal"]
            assert {mode(store.path.with_name(name)) for name in files} == {0o600}
            assert mode(tmp_path / "new") == mode(tmp_path / "new" / "deep") == 0o700
    finally:
        os.umask(old)
    assert [p.name for p in store.path.parent.iterdir()] == ["runs.db"]


def test_a_reopened_store_has_its_data(tmp_path: Path) -> None:
    """An append continues after the last process's event."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("b", [completed("1")], 0)
        store.append("a", [completed("2"), completed("3")], 0)
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("a", [completed("4")], 2)
        assert store.run_ids() == ["b", "a"]
        assert [e.text for e in store.read("a", 1)] == ["3", "4"]


def test_an_in_memory_store_is_refused_with_an_alternative() -> None:
    """``:memory:`` would be a separate store for each process and thread."""
    with pytest.raises(nb.NbagentError, match=r"nb\.MemoryStore"):
        nb.SQLiteStore(":memory:")


def test_a_path_from_home_is_found_and_shown_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``~`` is the home folder, and the path is shown as written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with nb.SQLiteStore("~/runs.db") as store:
        assert repr(store) == "SQLiteStore('~/runs.db')"
        assert store.path == tmp_path / "runs.db"


def test_reading_a_file_does_not_change_its_permissions(tmp_path: Path) -> None:
    """A wrong path changes no foreign file's permissions; a store becomes private when it is written."""
    table, theirs, ours = (tmp_path / name for name in ("orders.csv", "theirs.db", "runs.db"))
    table.write_text("item,bottles\n" * 20)
    with closing(sqlite3.connect(theirs)) as other:
        other.execute("create table theirs (x)")
    with nb.SQLiteStore(ours) as store:
        store.append("run", [completed("1")], 0)
    for path in (table, theirs, ours):
        path.chmod(0o644)
    for path in (table, theirs):
        with pytest.raises(nb.errors.StoreError, match=path.name):
            nb.SQLiteStore(path)
    with nb.SQLiteStore(ours) as store:
        assert [e.text for e in store.read("run")] == ["1"]
        assert [mode(path) for path in (table, theirs, ours)] == [0o644] * 3
        store.append("run", [completed("2")], 1)
        assert mode(ours) == 0o600


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    """The message names the requested path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(nb.errors.StoreError, match=r"file/runs\.db"):
        nb.SQLiteStore(tmp_path / "file" / "runs.db")


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        ("pragma query_only = on", "read-only"),
        ("pragma max_page_count = 1", "disk is full"),
    ],
)
def test_a_full_file_says_why_and_keeps_its_data(
    tmp_path: Path, break_it: str, reason: str
) -> None:
    """An append is stored as a whole or not at all."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("run", [completed("first")], 0)
        store._handle.connection.execute(break_it)
        with pytest.raises(nb.errors.StoreError, match=rf"runs\.db.*{reason}"):
            store.append("run", [completed("x" * 5000), completed("y" * 5000)], 1)
        assert store.read("run") == [completed("first")]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Closing twice is allowed."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    store.close()
    store.close()
    with pytest.raises(nb.errors.StoreError, match="closed"):
        store.run_ids()


def test_c126_tables_of_a_newer_version_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """Nothing is misread, and nothing is written that the newer version cannot read."""
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path) as store:
        store.append("run", [], 0)
    with sqlite3.connect(path) as other:
        other.execute(f"pragma user_version = {sqlite.SCHEMA_VERSION + 1}")
    other.close()
    with pytest.raises(nb.errors.StoreError, match=r"version is 3, .* up to 2. Upgrade"):
        nb.SQLiteStore(path)


def test_c126_events_of_a_newer_format_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """Other runs stay readable."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("new", [completed("a")], 0)
        store._handle.connection.execute("update events set version = ?, data = '?'", (7,))
        store.append("old", [completed("b")], 0)
        with pytest.raises(nb.errors.StoreError, match=r"format is 7, .* up to 2. Upgrade"):
            store.read("new")
        assert store.read("old") == [completed("b")]


def test_c126_a_journal_marked_as_newer_is_refused() -> None:
    """Plain JSON without a store is refused too."""
    started = RunStarted(at=1.0, version=3, agent="a", model="m", messages=[], max_turns=1)
    with pytest.raises(nb.errors.StoreError, match="format is 3"):
        parse(dump(started))


def test_c126_an_event_of_an_older_format_is_migrated_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A journal of an earlier release can be read like a new one."""
    monkeypatch.setattr(events, "FORMAT_VERSION", 3)
    monkeypatch.setattr(
        events,
        "MIGRATIONS",
        [
            lambda data: {**data, "message": data["said"]},
            lambda data: {"type": data["type"], "at": data["at"], "text": data["message"]},
        ],
    )
    assert parse('{"type":"run_completed","at":1,"said":"hello"}', 1) == completed("hello")
    assert parse('{"type":"run_completed","at":1,"message":"hello"}', 2) == completed("hello")
    assert parse(dump(completed("hello")), 3) == completed("hello")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_can_use_and_close_the_store(tmp_path: Path) -> None:
    """``multiprocessing`` may fork: the child gets its own connection."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("run", [completed("parent")], 0)
        child = multiprocessing.get_context("fork").Process(
            target=lambda: store.append("run", [completed("child")], 1)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
        store.append("run", [completed("parent again")], 2)
        assert [e.text for e in store.read("run")] == ["parent", "child", "parent again"]


def test_the_log_is_checkpointed_now_and_then_while_the_store_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the log would grow as long as the kernel runs."""
    monkeypatch.setattr(sqlite, "CHECKPOINT", 50_000)
    made, checkpoint = [], sqlite._checkpoint
    monkeypatch.setattr(sqlite, "_checkpoint", lambda path: made.append(checkpoint(path)))
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for n in range(300):
            store.append("run", [completed("x" * 1000)], n)
            for thread in threading.enumerate():
                if thread.name == "nbagent-checkpoint":
                    thread.join()
        log = store.path.with_name("runs.db-wal").stat().st_size
        assert log < 200_000 < store.path.stat().st_size
        assert len(made) < 30, "not after each write"
        assert len(store.read("run")) == 300


def test_a_deletion_waits_for_readers_and_leaves_nothing_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the deleted text for as long as somebody reads an older state of the file."""
    has_tried = threading.Event()
    with nb.SQLiteStore(tmp_path / "runs.db", timeout=60) as store:
        empty_wal = store._empty_wal

        def tried() -> None:
            try:
                empty_wal()
            finally:
                has_tried.set()

        monkeypatch.setattr(store, "_empty_wal", tried)
        store.append("run", [completed("a secret")], 0)
        log = store.path.with_name("runs.db-wal")
        with closing(sqlite3.connect(store.path)) as reader:
            reader.execute("begin")
            reader.execute("select * from events").fetchall()
            deletion = threading.Thread(target=store.delete, args=("run",))
            deletion.start()
            assert has_tried.wait(30)
            assert b"a secret" in log.read_bytes()
            reader.execute("rollback")
            deletion.join()
        assert log.stat().st_size == 0


def test_the_number_of_a_deleted_run_is_never_used_again(tmp_path: Path) -> None:
    """A process that still knows the deleted run would take a new one for it."""
    numbers = []
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("kept", [completed("")], 0)
        for run_id in ("a", "b", "c"):
            store.append(run_id, [completed("")], 0)
            with closing(sqlite3.connect(store.path)) as other:
                numbers += other.execute("select max(number) from runs").fetchone()
            store.delete(run_id)
    assert numbers == sorted(set(numbers))


def test_the_heads_of_a_prefix_are_found_by_the_index(tmp_path: Path) -> None:
    """So are changed heads, by their numbers."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for n in range(sqlite.LOGGED_FROM + 1):
            store.append(f"r{n}", [completed("")], 0)
        assert store.changes("", store.changes("", None).token).is_whole
        values = {"prefix": "r1", "since": 1}
        with closing(sqlite3.connect(store.path)) as other:
            for statement in (sqlite.OF_PREFIX, sqlite.CHANGED):
                plan = [
                    row[3].decode() if isinstance(row[3], bytes) else row[3]
                    for row in other.execute(f"explain query plan {statement}", values)
                ]
                assert not [line for line in plan if line.startswith("SCAN")], plan


def test_a_file_whose_runs_are_listed_once_gets_no_log_and_a_long_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that returns after very many writes reads all heads."""
    monkeypatch.setattr(sqlite, "LOGGED_FROM", 0)
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        store.append("run", [completed("")], 0)
        first = store.changes("", None)
        with closing(sqlite3.connect(store.path)) as other:
            names = "select count(*) from sqlite_master where name = 'moved'"
            assert other.execute(names).fetchone() == (0,)
            since = store.changes("", first.token).token
            assert other.execute(names).fetchone() == (1,)
            store.append("long", [completed("")] * 12_000, 0)
            assert other.execute("select count(*) from moved").fetchone()[0] < 10_000
        assert store.changes("", since).is_whole
        assert [head.length for head in store.changes("", since).heads] == [1, 12_000]


def test_a_connection_that_was_closed_meanwhile_is_not_called_damage(tmp_path: Path) -> None:
    """At the end of a program, a run may still write; a person would replace a good file."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    assert store.run_ids() == []
    store.append("r", [RunStarted(at=0, agent="a", model="m", messages=[], max_turns=1)], 0)
    assert store._handle is not None
    store._handle.connection.close()
    with pytest.raises(nb.errors.StoreError, match=r"is closed$"):
        store.read("r")
