"""Promises P1, P2 and P5 (docs/design.md), case by case; test_any_schedule has random schedules."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import MessagesError

call = nb.ScriptedModel.call


def gate_of(agent: nb.Agent, kind: str, ran: list[Any]) -> None:
    """Define (again) a gate, with another body or another schema."""
    if kind == "other schema":

        def gate(n: int, ctx: nb.ToolContext, force: bool = True) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"s": 1}, editable=["n"])
            ran.append((kind, n, force, ctx.state))
            return "ran"
    else:

        def gate(n: int, ctx: nb.ToolContext) -> str:  # type: ignore[misc]
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"s": 1}, editable=["n"])
            ran.append((kind, n, ctx.state))
            return "ran"

    agent.tools.pop("gate", None)
    agent.add(nb.tool(gate))


async def test_p5_a_tool_with_a_changed_schema_asks_again():
    """An approval of the old schema does not count; the new pause says why and keeps the metadata."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    first = run.interrupts[0]
    gate_of(agent, "other schema", ran)
    run.restart(first)
    await run.settled()
    (again,) = run.interrupts
    assert ran == []
    assert again.id != first.id
    assert "changed" in (again.note or "")
    assert (again.metadata, again.state, again.editable) == ({"n": 1}, {"s": 1}, ("n",))
    assert again.digest != first.digest
    run.restart(again)
    await run
    assert ran == [("other schema", 1, True, {"s": 1})]


async def test_p5_a_tool_with_a_changed_body_runs_its_newest_body():
    """The person saw the schema; the body is in the person's own cell."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    gate_of(agent, "second", ran)
    run.restart(run.interrupts[0])
    await run
    assert ran == [("second", 1, {"s": 1})]


async def test_p5_a_history_changed_after_the_pause_runs_the_displayed_input():
    """An input that was changed in the saved call does not run."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    paused = await agent.generate("go")
    messages = json.loads(json.dumps(paused.messages))
    messages[-1]["content"][0]["input"] = {"n": 666}
    messages[-1]["content"][0]["nbagent"]["input"] = {"n": 667}
    (i,) = agent.interrupts(messages)
    assert i.input == {"n": 1}
    await agent.generate(messages=messages, tool_restarts=[nb.tool_restart(i)])
    assert ran == [("first", 1, {"s": 1})]


async def test_p5_a_changed_key_order_in_a_store_does_not_void_an_approval():
    """A database may return a JSON object in another order."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("two", b=1, a=2), "done"]))

    @agent.tool
    def two(b: int, a: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        ran.append((a, b))
        return "ok"

    paused = await agent.generate("go")
    messages = json.loads(json.dumps(paused.messages, sort_keys=True))
    done = await agent.generate(
        messages=messages, tool_restarts=[nb.tool_restart(agent.interrupts(messages)[0])]
    )
    assert ran == [(2, 1)]
    assert done.messages[2]["content"][0]["output"] == "ok"


# --- P1: fail closed


@pytest.mark.parametrize(
    "record",
    [
        {"status": "running"},
        {"status": "waiting"},
        {"status": "done"},
        {"status": "yes"},
        {"status": None},
        {"status": "ready", "resumed": {"data": None}},
        {"status": "waiting", "pause": {"id": "x"}},
        {
            "status": "done",
            "result": {"id": "other", "type": "tool_result", "name": "gate", "output": 1},
        },
        "approved",
        ["ready"],
        {"approved": True},
        {"attempt": "twice"},
        {"attempt": -1},
        {"answers": [["first", {"output": 1}]]},
        {"child": {"agent": "inner", "messages": []}},
        {"child": {"agent": "inner", "limit": 9, "messages": []}},
        {"run": {"usage": ["many", 0, None]}},
    ],
    ids=repr,
)
async def test_p1_a_malformed_record_of_a_pause_is_refused(record):
    """A history that was tampered with runs nothing and calls no model."""
    ran: list[Any] = []
    model = nb.ScriptedModel([])
    agent = nb.Agent(model)
    gate_of(agent, "first", ran)
    part = {"type": "tool_call", "id": "c", "name": "gate", "input": {"n": 1}, "nbagent": record}
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [part]}]
    with pytest.raises(MessagesError, match="record of the open call 'c'") as refused:
        await agent.generate(messages=history)
    if isinstance(record, dict) and "status" not in record:
        assert f"malformed: {next(iter(record))}" in str(refused.value)  # it says what is wrong
    assert (ran, model.requests) == ([], [])


# --- P2: exactly once


@pytest.mark.parametrize("kind", ["respond", "restart", "reject"])
async def test_p2_of_twenty_threads_that_answer_at_once_one_wins(kind):
    """The others learn who won; the body runs at most once."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    answer = {
        "respond": lambda k: run.respond(i, f"by {k}"),
        "restart": lambda _: run.restart(i),
        "reject": lambda k: run.reject(i, f"by {k}"),
    }[kind]

    def attempt(k: int) -> str:
        try:
            answer(k)
        except nb.Conflict as error:
            return f"lost: {error}"
        return "won"

    with ThreadPoolExecutor(20) as pool:
        waiting = [asyncio.wrap_future(pool.submit(attempt, k)) for k in range(20)]
        outcomes = await asyncio.gather(*waiting)
    lost = [one for one in outcomes if one != "won"]
    assert len(lost) == 19
    assert all("already answered" in one for one in lost)
    await run
    assert len(ran) == (kind == "restart")
    assert [e.type for e in run.journal].count("resolved") == 1
