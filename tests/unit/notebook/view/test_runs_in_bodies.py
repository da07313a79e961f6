"""Runs and calls that a tool's body starts: rows with a path below the call's row, live and replayed."""

from __future__ import annotations

import asyncio

import nbagent as nb
from nbagent.notebook.render import plain
from nbagent.notebook.view.view import SingleRunView

call = nb.ScriptedModel.call


def shown(run: nb.Run) -> SingleRunView:
    """A view that follows the run."""
    view = SingleRunView(run.id)
    for event in run.subscribe(view.apply):
        view.apply(event)
    return view


def rows(view: SingleRunView) -> list[tuple[str, ...]]:
    return [
        (i.path, i.name, i.state) if i.type == "call" else (i.type,) for i in view.snapshot().items
    ]


def checker() -> nb.Agent:
    model = nb.ScriptedModel([call("approve", order=7), "fine"])
    return nb.Agent(model, name="checker", tools=[nb.interrupt_tool("approve", output=bool)])


async def test_runs_started_by_a_body_are_rows_below_its_call():
    """Runs and calls in a body have rows, the form has their path, and a replay draws the same rows."""
    inner = checker()

    def price(order: int) -> int:
        return order

    async def check(order: int, ctx: nb.ToolContext) -> str:
        await ctx.call(price, order=order)
        return (await inner.run("p")).text

    office = nb.Agent(
        nb.ScriptedModel([call("check", order=7), "done"]), name="office", tools=[check]
    )
    run = office.run("go")
    view = shown(run)
    await run.settled()
    inside = "office ▸ check ▸ checker"
    assert rows(view) == [
        ("", "check", "running"),
        ("office ▸ check", "price", "done"),
        ("office ▸ check", "checker", "running"),
        ("form",),
    ]
    assert [i.path for i in view.snapshot().items if i.type == "form"] == [inside]
    run.respond(run.interrupts[0], True)
    await run
    assert [row[-1] for row in rows(view)][:4] == ["done"] * 4
    again = SingleRunView(run.id)
    for event in run.journal:
        again.apply(event)
    assert rows(again) == rows(view)
    assert "office ▸ check ▸ checker ▸ approve · " in plain.render(view.snapshot())


async def test_an_open_question_in_an_ended_call_is_drawn_as_ended():
    """A failed body ends the runs that it started, and their open forms are removed."""
    inner = checker()

    async def check() -> str:
        await inner.run("p").settled()
        raise ValueError("broken")

    office = nb.Agent(nb.ScriptedModel([call("check"), "done"]), tools=[check])
    run = office.run("go")
    view = shown(run)
    await asyncio.wait_for(run, 20)
    states = [row[-1] for row in rows(view)]
    assert "form" not in states
    assert states[:3] == ["failed", "cancelled", "cancelled"]
