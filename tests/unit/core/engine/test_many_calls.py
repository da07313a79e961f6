"""Turns with very many calls: limits of calls and questions, and work in proportion to the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base import events as ev
from nbagent.core.base.messages import user
from nbagent.core.state.fold import apply
from nbagent.core.state.next_step import next_step
from nbagent.core.state.state import ROW, RunState

call = nb.ScriptedModel.call


def define(agent: nb.Agent, did: list[int]) -> None:
    """Add a plain tool, and tools that are approved, pause, ask in their middle or have no body."""

    @agent.tool
    def plain(n: int) -> str:
        did.append(n)
        return f"did {n}"

    @agent.tool(approval=True)
    def approved(n: int) -> str:
        did.append(n)
        return f"did {n}"

    @agent.tool
    def pauses(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n})
        did.append(n)
        return f"did {n}"

    @agent.tool
    async def asks(n: int, ctx: nb.ToolContext) -> str:
        name = await ctx.ask("Who?")
        did.append(n)
        return f"did {n} for {name}"

    agent.add(nb.interrupt_tool("ask", output=str))


async def test_calls_beyond_the_limit_of_a_turn_are_not_run_and_the_model_learns_it(play):
    """Each call has a result, and the count starts again in the next turn."""
    did: list[int] = []
    first, second = (
        [call("plain", n=n) for n in range(5)],
        [call("plain", n=n) for n in range(5, 8)],
    )
    s = await play([first, second, "done"], lambda a: define(a, did), max_calls=3)
    assert sorted(did) == [0, 1, 2, 5, 6, 7]
    told = [p["output"] for m in s.messages if m["role"] == "tool" for p in m["content"]]
    assert ["at most 3 calls" in one for one in told] == [False] * 3 + [True] * 2 + [False] * 3
    assert s.text == "done"


@pytest.mark.parametrize("kind", ["approved", "pauses", "asks", "ask"])
async def test_questions_beyond_the_limit_of_a_turn_are_not_asked_and_the_model_learns_it(
    play, kind
):
    """The open questions can be answered, and no other call runs."""
    did: list[int] = []
    calls = [call(kind, **({} if kind == "ask" else {"n": n})) for n in range(5)]
    s = await play([calls, "done"], lambda a: define(a, did), max_questions=2)
    assert len(s.interrupts) == 2
    how = (
        {"restart": {0: {}, 1: {}}}
        if kind in ("approved", "pauses")
        else {"respond": {0: "x", 1: "x"}}
    )
    await s.answer(**how)
    assert len(did) == (0 if kind == "ask" else 2)
    assert sum("maximum number of open questions" in str(one) for one in s.results) == 3
    assert s.text == "done"


async def test_questions_of_inner_agents_count_for_the_outer_agents():
    """The limit is not one per inner agent."""
    outer = nb.Agent(
        nb.ScriptedModel([[call(name, prompt="p") for name in "abc"], "done"]), max_questions=3
    )
    for name in "abc":
        inner = nb.Agent(nb.ScriptedModel([[call("ask"), call("ask")], "in"]), name=name)
        define(inner, [])
        outer.add(inner.as_tool())
    run = await outer.run("go", attended=True, show=False).settled()
    assert len(run.interrupts) == 3
    for i in run.interrupts:
        run.respond(i, "x")
    assert (await run).text == "done"


# --- work in proportion: counted in bytecode steps, which other processes cannot change


def work(do: Callable[[], Any]) -> int:
    """The number of bytecode steps that ``do`` takes."""
    count = 0

    def trace(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


def turn_of(calls: int) -> list[Any]:
    """The events of a turn with this many calls, all started before the first one ends."""
    requested = tuple(
        ev.CallRequested(id=f"c{n}", name="plain", input={"n": n}) for n in range(calls)
    )
    begun = [
        ev.ToolStarted(at=2, call_id=f"c{n}", attempt=1, owner="me", input={"n": n})
        for n in range(calls)
    ]
    ended = [ev.ToolFinished(at=3, call_id=f"c{n}", output=n) for n in range(calls)]
    start = ev.RunStarted(at=0, agent="a", model="m", messages=[user("go")], max_turns=2)
    return [start, ev.ModelResponded(at=1, calls=requested), *begun, *ended]


def fold(events: list[Any]) -> RunState:
    """Fold the events, with ``next_step`` after each, as drivers and views do."""
    state = RunState()
    for event in events:
        state = apply(state, event)
        if state.messages:
            next_step(state)
    return state


def test_twice_the_calls_in_a_turn_are_twice_the_work():
    """The work per event does not depend on how many calls are ready, running or done."""
    small, large = (turn_of(n) for n in (4 * ROW, 8 * ROW))
    assert work(lambda: fold(large)) < 2.1 * work(lambda: fold(small))


def test_a_state_never_changes_and_shares_all_but_a_row_with_the_next():
    """Code that holds an old state sees the old values."""
    calls = 4 * ROW
    events = turn_of(calls)
    state = fold(events[:2])
    seen = []
    for event in events[2:]:
        later = apply(state, event)
        if later.calls:
            rows = zip(state.calls.rows, later.calls.rows, strict=True)
            assert sum(a is not b for a, b in rows) == 1
        seen.append((state, [c.status for c in state.calls.values()]))
        state = later
    assert all([c.status for c in old.calls.values()] == was for old, was in seen)
    first = seen[0][0].calls
    assert (list(first), len(first), first["c9"].name) == (
        [f"c{n}" for n in range(calls)],
        calls,
        "plain",
    )
    assert (first.ready, first.left, "none" in first) == (calls, calls, False)
