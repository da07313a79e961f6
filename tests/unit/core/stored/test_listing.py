"""``nb.runs``: the runs of a store as people look for them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import nbagent as nb


async def test_c275_runs_are_listed_with_what_they_ask_and_opened_from_the_list(
    tmp_path: Path,
) -> None:
    """Newest first, by agent and status, as text, HTML and a frame; an index gives one, which opens."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    call = nb.ScriptedModel.call
    asks = nb.Agent(
        nb.ScriptedModel([call("ask", q="<b>?")]),
        name="asker",
        store=store,
        tools=[nb.interrupt_tool("ask")],
    )
    says = nb.Agent(nb.ScriptedModel(["hello", RuntimeError("down")]), name="talker", store=store)
    await asks.run("What <i>color</i>?", id="color").settled()
    await says.run("Hi.", id="hi")
    with pytest.raises(nb.errors.RunError):
        await says.run("Hi again.", id="again")
    listed = nb.runs(store)
    assert [one.id for one in listed] == ["again", "hi", "color"]
    assert [one.status for one in listed] == ["failed", "completed", "interrupted"]
    assert [one.id for one in nb.runs(store, agent=says, limit=1)] == ["again"]
    assert [one.id for one in nb.runs(store, status="interrupted")] == ["color"]
    assert listed[2].asks == ("ask",)
    lines = repr(listed).splitlines()
    assert lines[0].split() == [
        "id",
        "agent",
        "prompt",
        "status",
        "asks",
        "age",
        "deadline",
        "cost",
    ]
    assert "waits for an answer" in lines[3]
    assert "<i>" not in listed._repr_html_()
    assert list(listed.to_frame().index) == ["again", "hi", "color"]
    run = await listed[2].open()
    assert run.interrupts[0].tool_name == "ask"
    assert "and 2 more" in repr(nb.runs(store, limit=1))
    assert repr(nb.runs(nb.SQLiteStore(tmp_path / "none.db"))).startswith("no runs in ")
    with pytest.raises(nb.errors.UsageError, match="a status is one of"):
        nb.runs(store, status="open")


async def test_c276_a_damaged_run_is_listed_as_such_beside_the_others(tmp_path: Path) -> None:
    """One row's damage hides no other run."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "hello"), store=store)
    await agent.run("One.", id="one")
    await agent.run("Two.", id="two")
    store.close()
    with sqlite3.connect(tmp_path / "runs.db") as file:
        file.execute("update events set data = 'no json' where key = (select min(key) from events)")
    file.close()
    listed = nb.runs(nb.SQLiteStore(tmp_path / "runs.db"))
    assert {one.id: one.status for one in listed} == {"one": "unreadable", "two": "completed"}
