"""A released run continues where it is answered, and uses no memory until then."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.interrupts import Respond
from nbagent.core.journal.journal import Journal
from nbagent.core.run.run import session_of
from nbagent.core.stored.opening import answer_by_record
from tests import postgres as servers
from tests.until import turns, until

call = nb.ScriptedModel.call


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The store of the runs."""
    if request.param == "memory":
        return nb.MemoryStore()
    if request.param == "sqlite":
        return nb.SQLiteStore(tmp_path / "runs.db")
    return nb.SQLStore(servers.database(request.getfixturevalue("postgres")))


def planner(store: Any, did: list[str]) -> nb.Agent:
    """An agent whose tool asks after a step that runs once."""

    def script(messages: Any) -> Any:
        return "done" if messages[-1]["role"] == "tool" else [call("plan")]

    agent = nb.Agent(nb.ScriptedModel(script), name="planner", store=store)

    @agent.tool
    async def plan(ctx: nb.ToolContext) -> str:
        await ctx.step("look", lambda: did.append("looked"))
        try:
            nights = await ctx.ask("How many nights?", reply=int)
        except asyncio.CancelledError:
            did.append("left")
            raise
        did.append(f"booked {nights}")
        return "booked"

    return agent


async def released(agent: nb.Agent) -> nb.Run:
    """A released run whose body waits for an answer."""
    run = await agent.run("go", id="trip", attended=True, show=False).settled()
    await run.release()
    await until(lambda: not session_of(run).is_at_work)
    return run


async def test_c481_a_released_run_continues_where_it_is_answered(store: Any) -> None:
    """The handle that answers runs the body again from its last step; the handle that released the run follows."""
    did: list[str] = []
    run = await released(planner(store, did))
    assert (did, run.status, len(run.interrupts)) == (["looked", "left"], "interrupted", 1)
    other = await nb.open_run("trip", agent=planner(store, did), store=store, attended=True)
    other.respond(other.interrupts[0], 3)
    assert (await asyncio.wait_for(other, 30)).text == "done"
    assert did == ["looked", "left", "booked 3"]
    assert (await asyncio.wait_for(run, 30)).text == "done"
    assert [event.by for event in run.journal if event.type == "run_taken"] == ["release"]


async def test_c481_a_released_run_stays_with_others_even_if_it_is_answered(
    store: Any,
) -> None:
    """An answer by record, from a process without the agent, is used when the run is next opened."""
    did: list[str] = []
    run = await released(planner(store, did))
    journal = Journal("trip", store)
    journal.catch_up()
    answer_by_record(journal, run.interrupts[0].id, Respond(output=2), ("somebody", 1.0))
    await until(lambda: not run.interrupts)
    await asyncio.sleep(0.6)  # longer than any handle would wait before taking the run
    assert (run.status, did) == ("running", ["looked", "left"])
    other = await nb.open_run("trip", agent=planner(store, did), store=store)
    assert (await asyncio.wait_for(other, 30)).text == "done"
    assert did == ["looked", "left", "booked 2"]


async def test_c481_the_process_that_released_a_run_can_still_answer_it(store: Any) -> None:
    """The process then drives the run again."""
    did: list[str] = []
    run = await released(planner(store, did))
    await run.release()  # a second release has no effect
    run.respond(run.interrupts[0], 1)
    assert (await asyncio.wait_for(run, 30)).text == "done"
    assert did == ["looked", "left", "booked 1"]


async def test_c481_no_memory_is_used_for_a_released_run(store: Any) -> None:
    """The session is freed with the last handle of the run."""
    run = await released(planner(store, []))
    held = weakref.ref(session_of(run))
    del run
    for _ in range(200):
        await turns()
        gc.collect()
        if held() is None:
            break
        await asyncio.sleep(0.05)
    assert held() is None


async def test_c481_a_working_run_cannot_be_released() -> None:
    """The error says what to wait for; an ended run is left unchanged."""
    go = asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel([[call("slow"), call("ask")], "done"]))
    agent.add(nb.interrupt_tool("ask"))

    @agent.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    run = agent.run("go", attended=True, show=False)
    await until(lambda: bool(run.interrupts) and not session_of(run).is_writing)
    with pytest.raises(nb.errors.UsageError, match=r"slow is still running.*await run\.settled"):
        await run.release()
    go.set()
    await run.settled()
    await run.release()
    run.respond(run.interrupts[0], "yes")
    await run
    await run.release()
    assert run.status == "completed"
