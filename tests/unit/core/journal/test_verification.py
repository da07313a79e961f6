"""Changes of a store's file by raw SQL are found and named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

import nbagent as nb

DATA = "update events set data = replace(data, 'answer', 'ANSWER') where key = {key}"
CASES: list[tuple[str, str, str | None]] = [
    ("a byte of an event", DATA, "event 1 (model_responded)"),
    (
        "its seal",
        "update events set seal = replace(seal, substr(seal, 1, 1), 'z') where key = {key}",
        "event 1 (",
    ),
    ("its version", "update events set version = 1 where key = {key}", "event 1 ("),
    ("no seal", "update events set seal = null where key = {key}", "event 1 ("),
    ("all seals", "update events set seal = null where key >> 32 = 2", "event 0 (run_started)"),
    ("one taken out", "delete from events where key = {key}", "event 1 ("),
    ("the first one", "delete from events where key = {key} - 1", "event 0 ("),
    (
        "two changed places",
        "update events set key = -1 where key = {key}; update events set key = {key} where key = {key} + 1;"
        "update events set key = {key} + 1 where key = -1",
        "event 1 (run_completed)",
    ),
    (
        "one put in",
        "update events set key = {key} + 2 where key = {key} + 1; update events set key = {key} + 1 where key = {key};"
        "insert into events select {key}, version, data, seal from events where key = {key} - 1",
        "event 1 (run_started)",
    ),
    (
        "one of another run",
        "update events set (version, data, seal) = (select version, data, seal from events where key = {other}) "
        "where key = {key}",
        "event 1 (model_responded)",
    ),
    (
        "no longer an event",
        "update events set data = 'x' where key = {key}",
        "event 1 (no longer an event)",
    ),
    ("the end cut off", "delete from events where key = {key} + 1", None),
]


@pytest.mark.parametrize(
    ("change", "told"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
async def test_c262_a_changed_event_is_named(change: str, told: str | None, tmp_path):
    """The first changed event is named by number and type; a noted seal shows a removed end."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(["answer 1", "answer 2", "answer 3"]), store=store)
    first = agent.run("go")
    await first
    second = agent.run("and on", after=first)
    await second
    await agent.run("something else")
    whole = second.journal.verify()
    assert whole
    assert (whole.sealed_from, whole.events) == (0, 3)
    assert second.journal.verify(seal=whole.seal)
    tamper(store, change.format(key=(2 << 32) + 1, other=(3 << 32) + 1))
    found = nb.verify_run(second.id, store=store)
    noted = nb.verify_run(second.id, store=store, seal=whole.seal)
    assert not noted
    if told is None:
        assert found
        assert "Its last events were removed" in repr(noted)
    else:
        assert not found
        assert f"run {second.id!r}: {told}" in repr(found)
    assert nb.verify_run(first.id, store=store)


def tamper(store: nb.SQLiteStore, statements: str) -> None:
    """Change the file as a tool for SQLite would."""
    with sqlite3.connect(store.path) as connection:
        connection.executescript(statements)
    connection.close()


BEFORE: list[Callable[[str], str]] = [
    lambda _: (
        "update events set data = replace(data, 'answer', 'ANSWER') where key = (1 << 32) + 1"
    ),
    lambda _: "delete from runs where number = 1; delete from events where key < 2 << 32",
]


@pytest.mark.parametrize("change", BEFORE, ids=["changed", "gone"])
async def test_a_changed_earlier_run_is_named(change: Any, tmp_path):
    """The earlier run's messages are part of its follow-up."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(["answer 1", "answer 2"]), store=store)
    first = agent.run("go")
    await first
    second = agent.run("and on", after=first)
    await second
    tamper(store, change(first.id))
    found = nb.verify_run(second.id, store=nb.SQLiteStore(store.path))
    assert not found
    assert first.id in repr(found)


async def test_a_run_without_seals_is_not_verified(tmp_path):
    """Rows of format 1 have no seals: neither they nor a follow-up run can be verified."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(["answer", "and another"]), store=store)
    run = agent.run("go")
    await run
    assert run.journal.verify()
    tamper(store, "update events set seal = null, version = 1")
    found = nb.verify_run(run.id, store=nb.SQLiteStore(store.path))
    assert not found
    assert (found.sealed_from, found.problems, found.unsealed) == (None, (), (run.id,))
    assert "its events have no seal, so changes cannot be detected" in repr(found)
    second = agent.run("and on", after=run)
    await second
    found = second.journal.verify()
    assert not found
    assert (found.sealed_from, found.unsealed) == (0, (run.id,))
