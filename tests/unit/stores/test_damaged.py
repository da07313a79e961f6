"""Damaged or foreign SQLite files are refused, with the file's name and what to do."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.events import Interrupted, RunCompleted
from nbagent.core.base.interrupts import token_digest
from nbagent.core.run.session import find_session
from nbagent.core.stored import opening
from tests.until import until

Damage: TypeAlias = Callable[[Path], object]
RUNS, LENGTH = "abc", 40
FIRST = 1 << 32
"""The key of the first event of the first run."""


def completed(at: int) -> RunCompleted:
    return RunCompleted(at=at, text="x" * 200)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with three runs."""
    path = tmp_path_factory.mktemp("valid") / "runs.db"
    with nb.SQLiteStore(path) as store:
        for run_id in RUNS:
            store.append(run_id, [completed(n) for n in range(LENGTH)], 0)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, sound: bytes) -> Path:
    """A copy of the file."""
    copy = tmp_path / "runs.db"
    copy.write_bytes(sound)
    copy.chmod(0o600)
    return copy


def truncated(length: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def filled(data: bytes) -> Damage:
    return lambda path: path.write_bytes(data)


def sql(*statements: str) -> Damage:
    def run(path: Path) -> None:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return run


def row(data: str, version: str = "1") -> Damage:
    """Replace the first event of the first run."""
    return sql(f"update events set data = {data}, version = {version} where key = {FIRST}")


def json_row(output: str) -> Damage:
    return row(f"""'{{"type":"run_completed","at":1,"text":"a","output":{output}}}'""")


FILES: dict[str, tuple[Damage, str]] = {
    "half of it": (truncated(20_000), "damaged.*recover"),
    "its first page": (truncated(1024), "damaged"),
    "half a page": (truncated(512), "damaged"),
    "a few bytes": (truncated(20), "not a SQLite database.*Use another path"),
    "garbage": (filled(random.Random(0).randbytes(5000)), "not a SQLite database"),
    "zeros": (filled(bytes(5000)), "not a SQLite database"),
    "a text": (filled(b"notes " * 1000), "not a SQLite database"),
    "no version": (sql("pragma user_version = 0"), "damaged"),
    "a newer version": (sql("pragma user_version = 99"), "newer nbagent.*Upgrade"),
    "another program's": (sql("pragma application_id = 7"), "another program.*Use another file"),
    "no events": (sql("drop table events"), "damaged"),
    "no runs": (sql("drop table runs"), "damaged"),
    "no numbers": (
        sql(
            "drop table runs",
            "create table runs (number, id)",
            "insert into runs (id) values ('a')",
        ),
        "damaged",
    ),
    "other columns": (sql("drop table events", "create table events (a)"), "damaged"),
    "an undecodable table": (
        lambda path: path.write_bytes(path.read_bytes().replace(b"CREATE", b"\xff\xfeEATE", 1)),
        "damaged",
    ),
}
EVENTS: dict[str, tuple[Damage, str]] = {
    "undecodable text": (row("cast(x'7bfffe' as text)"), "not an event"),
    "bytes": (row("x'fffe00'"), "not an event"),
    "a number": (row("12"), "not an event"),
    "not JSON": (row("'{'"), "not an event"),
    "another object": (row("'{}'"), "not an event"),
    "a version that is a word": (row("'{}'", "'x'"), "its version is"),
    "a version before the first": (row("'{}'", "0"), "its version is"),
    "a newer version": (row("'{}'", "9"), "newer nbagent.*Upgrade"),
    "5,000 digits": (json_row("9" * 5000), "not an event"),
    "5,000 levels": (json_row("[" * 5000 + "]" * 5000), "not an event"),
    "a gap": (sql(f"delete from events where key = {FIRST + 5}"), "is missing"),
    "no beginning": (sql(f"delete from events where key = {FIRST}"), "is missing"),
}


def use(path: Path) -> None:
    """Open the file, read all runs, and write to a new run."""
    with nb.SQLiteStore(path, timeout=0.1) as store:
        for run_id in store.run_ids():
            store.read(run_id)
        store.append("new", [completed(1)], 0)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_a_sound_store_is_refused_with_what_to_do(path: Path, name: str) -> None:
    """Opening or reading raises one nbagent error that names the file; a file of others does not change."""
    damage, told = FILES[name]
    damage(path)
    before = path.read_bytes()
    with pytest.raises(nb.errors.StoreError, match=rf"(?s){path}.*{told}"):
        use(path)
    if "damaged" not in told:
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", EVENTS)
def test_a_damaged_run_hides_no_other(path: Path, name: str) -> None:
    """The error names the event and the file; other runs are listed, read and written."""
    damage, told = EVENTS[name]
    damage(path)
    with nb.SQLiteStore(path) as store:
        assert store.run_ids() == list(RUNS)
        with pytest.raises(
            nb.errors.StoreError, match=rf"(?s)Event \d of run 'a' .*{path}.*{told}"
        ):
            store.read("a")
        with pytest.raises(nb.Conflict):
            store.append("a", [completed(1)], 0)
        for run_id in RUNS[1:]:
            assert len(store.read(run_id)) == LENGTH
            store.append(run_id, [completed(1)], LENGTH)


def why_unreadable(store: nb.SQLiteStore, run_id: str) -> str | None:
    """The error of reading a run; None if the whole run can be read."""
    try:
        assert len(store.read(run_id)) == LENGTH
    except nb.errors.StoreError as error:
        return str(error)
    return None


def test_a_damaged_page_hides_only_its_own_run(path: Path) -> None:
    """SQLite notices the damage when it reads the page, and reads all other pages."""
    data = bytearray(path.read_bytes())
    place = data.rindex(b'"at":30.0', 0, data.index(b'"at":0.0', data.index(b'"at":39.0')))
    start = place // 1024 * 1024
    data[start : start + 1024] = bytes(1024)
    path.write_bytes(data)
    with nb.SQLiteStore(path) as store:
        assert store.run_ids() == list(RUNS)
        found = [why_unreadable(store, run_id) for run_id in RUNS]
        assert len([why for why in found if why is None]) == 2
        assert [why for why in found if why is not None and "damaged" not in why] == []


@given(data=st.data())
@settings(max_examples=150)
def test_damage_never_raises_another_error(path: Path, sound: bytes, data: st.DataObject) -> None:
    """Any bytes may be lost or changed, mostly in the header and the table of tables."""
    broken = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.integers(0, 1200), st.integers(0, len(sound) - 1)))
        piece = data.draw(st.binary(min_size=1, max_size=40))
        broken[at : at + len(piece)] = piece
    length = data.draw(st.sampled_from([len(sound), *range(1024, len(sound), 7000)]))
    for left in path.parent.glob("runs.db-*"):  # left by the previous example
        left.unlink()
    path.write_bytes(broken[:length])
    with suppress(nb.errors.StoreError, nb.errors.UsageError):  # the latter: an index lacks a run
        use(path)


def test_an_empty_file_is_a_new_store_and_says_so(tmp_path: Path) -> None:
    """Another process may be creating the store; an error about a missing run says that the file is empty."""
    path = tmp_path / "runs.db"
    path.touch()
    with nb.SQLiteStore(path) as store:
        with pytest.raises(nb.errors.UsageError, match=r"the file is empty. Is the path right"):
            store.read("run")
        assert (store.run_ids(), path.stat().st_size) == ([], 0)
        store.append("run", [completed(1)], 0)
        assert path.stat().st_size


def test_a_token_is_found_beside_a_damaged_run(path: Path) -> None:
    """An answer by token works although another run is damaged."""
    EVENTS["undecodable text"][0](path)
    agent = nb.Agent(nb.ScriptedModel([[nb.ScriptedModel.call("wait")], "done"]))
    tokens: list[str] = []

    @agent.tool
    def wait(ctx: nb.ToolContext) -> str:
        tokens.append(ctx.external_token)
        ctx.interrupt(external=True)

    with nb.SQLiteStore(path) as store:

        async def begin() -> None:
            await agent.run("go", store=store).settled()

        asyncio.run(begin())
        [run_id] = set(store.run_ids()) - set(RUNS)
        [asked] = [e for e in store.read(run_id) if isinstance(e, Interrupted)]
        assert asked.external == token_digest(tokens[0])
        # a tool's thread may be the last that holds the run
        asyncio.run(until(lambda: gc.collect() >= 0 and find_session(run_id, store) is None))
        [journal] = [j for j in opening._stored(store, asked.external) if j.state.outcome is None]
        assert journal.run_id == run_id


# --- ownership of the file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_others_can_read_is_made_private_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A copied file has any permissions; SQLite's log beside it is made private too."""
    log = path.with_name("runs.db-wal")
    log.touch()
    for each in (path, log):
        each.chmod(0o664)
    with nb.SQLiteStore(path) as store:
        store.append("new", [completed(1)], 0)
        assert {mode(path), mode(log)} == {0o600}
    assert sum(str(path) in record.getMessage() for record in caplog.records) == 1
    caplog.clear()
    nb.SQLiteStore(path).close()
    assert str(path) not in caplog.text


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_means_the_file_it_points_to(path: Path, *, exists: bool) -> None:
    """The target is created and made private, and SQLite's log is beside the target."""
    link = path.with_name("link")
    target = path if exists else path.with_name("new.db")
    if exists:
        path.chmod(0o644)
    link.symlink_to(target)
    old = os.umask(0)
    try:
        with nb.SQLiteStore(link) as store:
            store.append("new", [completed(1)], 0)
            assert store.path == target
            assert mode(target) == 0o600
            assert mode(target.with_name(f"{target.name}-wal")) == 0o600
    finally:
        os.umask(old)
    assert link.is_symlink()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [fifo, folder, loop, device])
def test_a_special_file_is_refused_at_once(path: Path, make: Any) -> None:
    """A pipe would block forever."""
    make(path)
    with pytest.raises(nb.errors.StoreError, match=r"not a file|symbolic links"):
        nb.SQLiteStore(path)


NOBODY = 65534


@pytest.fixture
def without_root(path: Path) -> Iterator[None]:
    """Run without root's rights, with a file that belongs to root."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    nb.SQLiteStore(path).close()
    folders = [folder for folder in path.parents if str(folder).startswith("/tmp/")]
    before = [(folder, mode(folder)) for folder in folders]
    for each in folders:
        each.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for each, rights in before:
            each.chmod(rights)


def test_a_folder_without_rights_is_reported(path: Path, without_root: None) -> None:
    """The error is no PermissionError, even if the folder cannot be listed."""
    with pytest.raises(nb.errors.StoreError, match=r"new\.db.*folder where you can write"):
        nb.SQLiteStore(path.with_name("new.db"))
    os.seteuid(0)
    path.parent.chmod(0o700)
    os.seteuid(NOBODY)
    for name in ("new.db", "runs.db", "deeper/runs.db"):
        with pytest.raises(nb.errors.StoreError, match=rf"{name}.*folder where you can write"):
            nb.SQLiteStore(path.with_name("x").parent / name)


def test_a_file_of_another_user_is_refused(path: Path, without_root: None) -> None:
    """If others can read the file, they would see all later writes."""
    with pytest.raises(nb.errors.StoreError, match=r"cannot be opened|read-only"):
        nb.SQLiteStore(path)
    os.seteuid(0)
    path.chmod(0o666)
    os.seteuid(NOBODY)
    with pytest.raises(nb.errors.StoreError, match="belongs to another user"):
        nb.SQLiteStore(path)
