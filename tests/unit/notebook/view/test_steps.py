"""Steps and flows in a card: a row for each step, and a flow's card without a model."""

from __future__ import annotations

import asyncio
from typing import Any

import nbagent as nb
from nbagent.core.tools.call_output import StepStarted
from nbagent.notebook.render import plain, static
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import CallItem
from tests.until import until


class Watched:
    """The view of a run as it happens."""

    def __init__(self, run: nb.Run) -> None:
        self.view = SingleRunView("r")
        for event in run.subscribe(self.view.apply):
            self.view.apply(event)

    @property
    def rows(self) -> list[str]:
        """The items as words: a call's path, name and state."""
        items = self.view.snapshot().items
        return [
            " ".join(filter(None, (i.path, i.name, i.state))) if i.type == "call" else i.type
            for i in items
        ]


def replayed(run: nb.Run) -> Any:
    """The snapshot for a page that opens later."""
    view = SingleRunView("r")
    for event in run.journal:
        view.apply(event)
    return view.snapshot()


async def test_c163_a_step_is_a_row_that_shows_finished_and_running_work():
    """A row is running, done with value and time, or failed with its error; steps are in order of their ends."""
    gates = [asyncio.Event() for _ in range(3)]

    @nb.tool
    async def plan(ctx: nb.ToolContext) -> str:
        """Plan."""

        async def late(number: int) -> int:
            await gates[number].wait()
            if number == 2:
                raise OSError("no such hotel")
            return number

        await asyncio.gather(*(ctx.step(f"s{n}", lambda n=n: late(n)) for n in range(2)))
        await ctx.ask("Go on?")
        await ctx.step("s2", lambda: late(2))
        return "planned"

    model = nb.ScriptedModel([nb.ScriptedModel.call("plan"), "Done."])
    run = nb.Agent(model, tools=[plan]).run("Plan", attended=True, show=False)
    seen = Watched(run)
    await until(lambda: seen.rows == ["plan running", "plan s0 running", "plan s1 running"])
    gates[1].set()
    await until(lambda: seen.rows[1:] == ["plan s0 running", "plan s1 done"])
    gates[0].set()
    await until(lambda: bool(run.interrupts))
    assert seen.rows == ["plan waiting", "plan s1 done", "plan s0 done", "form"]
    run.respond(run.interrupts[0], "yes")
    await until(lambda: seen.rows[-1] == "plan s2 running")
    gates[2].set()
    await run
    rows = ["plan failed", "plan s1 done", "plan s0 done", "record", "plan s2 failed", "text"]
    assert seen.rows == rows
    step = seen.view.snapshot().items[1]
    assert isinstance(step, CallItem)
    assert (step.result, step.brief, step.elapsed is not None) == ("1", "1", True)
    assert "OSError: no such hotel" in static.render(seen.view.snapshot())
    assert seen.view.snapshot() == replayed(run)


async def test_c163_an_unfinished_step_leaves_no_row():
    """A step that was cut off is not in the journal, so its row is removed."""

    @nb.flow
    async def wait(ctx: nb.ToolContext) -> None:
        await ctx.step("for ever", asyncio.Event().wait)

    run = wait.with_options(attended=True, show=False).run()
    seen = Watched(run)
    await until(lambda: seen.rows == ["for ever running", "wait running"])
    await run.cancel()
    assert seen.rows == ["wait cancelled", "notice"]
    assert seen.view.snapshot() == replayed(run)


async def test_c163_the_card_of_a_flow_has_its_name_input_steps_and_value():
    """The input is in the head, without turns; steps and questions follow in order; the value is last."""

    @nb.flow
    async def clean(path: str, ctx: nb.ToolContext, limit: int = 3) -> dict:
        await ctx.step("load", lambda: 5)
        await ctx.ask(nb.Confirm(message="Write?"))
        print("written")
        return {"rows": 5, "columns": ["a", "b"]}

    run = clean.with_options(answers=[True]).run("data.csv", limit=2)
    await run
    view = replayed(run)
    assert (view.head.agent, view.head.prompt) == ("clean", 'path="data.csv", limit=2')
    assert (view.head.turns, view.head.max_turns) == (0, 0)
    assert plain.render(view) == (
        "clean · done\n"
        '> path="data.csv", limit=2\n\n'
        "✓ load\n  → 5\n\n"
        "  Write?: approved · by code\n\n"
        "✓ clean\n    path: data.csv\n    limit: 2\n\n"
        '{"rows": 5, "columns": ["a", "b"]}'
    )
    assert "turn" not in static.render(view, style=False)


async def test_c163_the_value_of_a_flow_is_drawn_by_its_type():
    """Text is drawn as Markdown, data as code, and ``None`` as nothing."""
    shown = []
    for value in ("**bold**", {"code": "```x"}, 7, None):

        @nb.flow
        def give(value: Any = value) -> Any:
            return value

        run = give.run()
        await run
        shown.append("".join(getattr(replayed(run).items[-1], "blocks", [])))
    assert "<strong>bold</strong>" in shown[0]
    assert "```x" in shown[1]
    assert "<pre" in shown[1]
    assert "7" in shown[2]
    assert shown[3] == ""


async def test_c164_calls_made_by_a_body_are_among_its_steps_and_questions():
    """The order is that of events, live and replayed."""

    @nb.tool
    def drop(table: str) -> int:
        return len(table)

    @nb.flow
    async def tidy(ctx: nb.ToolContext) -> int:
        await ctx.step("look", lambda: 1)
        dropped = await ctx.call(drop, table="logs")
        await ctx.ask("Go on?")
        await ctx.step("note", lambda: 2)
        return dropped

    run = tidy.with_options(answers=["yes"]).run()
    seen = Watched(run)
    await run
    assert seen.rows == ["look done", "drop done", "record", "note done", "tidy done", "text"]
    assert seen.view.snapshot() == replayed(run)


def test_a_step_delta_for_an_unknown_call_is_ignored():
    """The delta may arrive after the call's result."""
    view = SingleRunView("r")
    view.apply(StepStarted("gone", "s", 1.0))
    assert view.snapshot().items == []
