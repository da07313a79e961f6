"""``nb.runs``: the runs of a store, for people who look for a run."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.stored.listing import Listing
from nbagent.notebook.view.inbox import InboxView
from nbagent.notebook.view.runs import RunsView


async def test_c275_runs_are_listed_with_their_questions_and_opened_from_the_list(
    tmp_path: Path,
) -> None:
    """Newest first, filtered by agent and status, as text, HTML and a frame; an item can be opened."""
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
        "updated",
        "deadline",
        "cost",
    ]
    assert "waiting for you" in lines[3]
    assert "<i>" not in listed._repr_html_()
    assert list(listed.to_frame().index) == ["again", "hi", "color"]
    run = await listed[2].open()
    assert run.interrupts[0].tool_name == "ask"
    assert "1 of 3 runs" in repr(nb.runs(store, limit=1))
    nothing = repr(nb.runs(nb.SQLiteStore(tmp_path / "none.db")))
    assert nothing.startswith("no runs in ")
    assert nothing.endswith("none.db: this file does not exist yet. Is the path right?")
    with pytest.raises(nb.errors.UsageError, match=f"Did you mean {nb.runs(store)[0].id!r}"):
        await nb.open_run(nb.runs(store)[0].id[:-1], store=store)
    with pytest.raises(nb.errors.UsageError, match="status must be one of"):
        nb.runs(store, status="open")


async def test_c276_a_damaged_run_is_listed_as_damaged_beside_the_others(tmp_path: Path) -> None:
    """A damaged row hides no other run."""
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


async def test_c275_a_list_is_filtered_and_sorted_over_all_runs_and_read_in_parts(
    tmp_path: Path,
) -> None:
    """The search covers all columns of a row; empty cells come last in both directions."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    call = nb.ScriptedModel.call
    tools = [nb.interrupt_tool("ask")]
    asks = nb.Agent(nb.ScriptedModel([call("ask", q="?")]), name="asker", store=store, tools=tools)
    says = nb.Agent(nb.ScriptedModel(lambda _messages: "hello"), name="talker", store=store)
    await asks.run("Zebra?", id="c").settled()
    await says.run("About APPLES.", id="a")
    await says.run("About pears.", id="b")

    def ids(listing: Listing, by: str = "", *, backwards: bool = False, **wanted: str) -> list[str]:
        view = RunsView(listing, "runs.db")
        view.want(wanted)
        for _ in range(1 + backwards):
            view.sort(by)
        view.look()
        return [key for key, *_ in view.window["rows"]]

    few = nb.runs(store=store, limit=2)
    assert (len(few), few.left_out) == (2, 1)
    for shown in (repr(few), few._repr_html_()):
        assert "2 of 3 runs. To see more, use nb.runs(limit=…)" in shown
    assert " of 3 runs" not in repr(nb.runs(store=store))
    listing = Listing(store)
    listing.look(1)
    assert (ids(listing), listing.count, listing.left) == (["b"], 3, 2)
    assert listing.has_changed
    listing.look(1)
    listing.look(1)
    assert (ids(listing), listing.left, listing.has_changed) == (["b", "a", "c"], 0, False)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"text": "apples talker"}, ["a"]),
        ({"text": "waiting ask"}, ["c"]),
        ({"agent": "talker", "status": "completed"}, ["b", "a"]),
        ({"by": "id"}, ["a", "b", "c"]),
        ({"by": "prompt", "backwards": True}, ["c", "b", "a"]),
        ({"by": "status"}, ["c", "b", "a"]),
        ({"by": "updated"}, ["b", "a", "c"]),
        ({"by": "asks"}, ["c", "b", "a"]),
        ({"by": "asks", "backwards": True}, ["c", "b", "a"]),
        ({"by": "deadline", "backwards": True}, ["b", "a", "c"]),
    ]
    for wanted, found in cases:
        assert ids(listing, **wanted) == found, wanted


async def test_a_path_without_a_file_is_reported_in_every_list_and_a_missing_folder_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Headings of list and inbox report the missing file; an error for an unknown id names similar ids."""
    path = tmp_path / "nodir" / "rnus.db"
    listing, inbox = nb.runs(path).listing, nb.inbox(path)
    assert "does not exist yet" in caplog.text
    assert "file does not exist yet" in repr(nb.runs(path))
    assert "file does not exist yet" in repr(inbox)
    before, view = RunsView(listing, "rnus.db"), InboxView("rnus.db")
    view.look([], inbox._waiting)
    store = nb.SQLiteStore(path)
    agent = nb.Agent(nb.ScriptedModel(["one", "two", "three"]), name="talker", store=store)
    for name in ("room-1", "room-2", "hall"):
        await agent.run("Hi.", id=name)
    after = RunsView(nb.runs(path).listing, "rnus.db")
    shown = [each.snapshot().head.prompt for each in (before, view, after)]
    assert shown == ["rnus.db · this file does not exist yet"] * 2 + ["rnus.db"]
    for wrong, near in (
        ("rom-1", "Did you mean 'room-1'"),
        ("oom", "'room-1' or 'room-2'"),
        ("x", "The latest runs"),
    ):
        with pytest.raises(nb.errors.UsageError, match=near):
            await nb.open_run(wrong, store=path)
        with pytest.raises(nb.errors.UsageError, match=near):
            nb.delete_run(wrong, store=path)
    assert repr(nb.runs(nb.MemoryStore())) == "no runs in the memory of this process"
