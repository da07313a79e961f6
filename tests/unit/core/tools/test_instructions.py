"""Instructions as a function of the run, and the run's data in tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import nbagent as nb

call = nb.ScriptedModel.call


async def later(run: nb.RunView) -> str:
    await asyncio.sleep(0)
    return f"for {run.context}"


class Prompter:
    """An object whose method is the function."""

    def brief(self, run: nb.RunView) -> str:
        return f"for {run.context}"


FUNCTIONS: list[tuple[Any, str | None]] = [
    (lambda: "be brief", "be brief"),
    (lambda run: f"for {run.context}", "for Ada"),
    (lambda run, extra="": f"for {run.context}{extra}", "for Ada"),
    (later, "for Ada"),
    (Prompter().brief, "for Ada"),
    (lambda _run: None, None),
    ("be brief", "be brief"),
    (None, None),
]


@pytest.mark.parametrize(("given", "sent"), FUNCTIONS)
async def test_instructions_are_a_text_or_a_function(given, sent):
    """Sync or async, with or without the run as argument; live and step by step."""
    model = nb.ScriptedModel(["a", "b"])
    agent = nb.Agent(model, instructions=given)
    await agent.run("go", context="Ada")
    await agent.generate("go", context="Ada")
    assert [request.instructions for request in model.requests] == [sent, sent]


async def test_instructions_are_computed_once_per_request_from_the_history():
    """The function gets the run's id and history; no message has the instructions."""
    seen: list[nb.RunView] = []

    def instructions(run: nb.RunView) -> str:
        seen.append(run)
        return f"step {len(run.messages)}"

    model = nb.ScriptedModel([call("look"), "done"])
    run = nb.Agent(model, instructions=instructions, tools=[look]).run("go")
    await run
    assert [request.instructions for request in model.requests] == ["step 1", "step 3"]
    assert {view.run_id for view in seen} == {run.id}
    assert "step" not in str(run.messages)


def look() -> str:
    """Look around."""
    return "seen"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda run: run.context["missing"], "raised TypeError"),
        (lambda: 5, "must return a string, got 5"),
    ],
)
async def test_a_function_that_fails_fails_the_run_with_its_name(given, said):
    """No request is sent."""
    model = nb.ScriptedModel(["never"])
    given.__qualname__ = "house_rules"
    run = nb.Agent(model, instructions=given).run("go")
    with pytest.raises(nb.errors.RunError, match=f"house_rules {said}"):
        await run
    assert model.requests == []


@pytest.mark.parametrize("given", [5, str, lambda a, b: "", ["be brief"]])
def test_invalid_instructions_are_refused(given):
    with pytest.raises(nb.errors.UsageError, match="instructions"):
        nb.Agent("demo", instructions=given)


async def test_an_inner_agent_has_the_context_and_its_own_history():
    """The function's docstring describes the agent as a tool."""

    def rules(run: nb.RunView) -> str:
        """Knows the house rules."""
        return f"{run.context}: {run.messages[-1]['content'][0]['text']}"

    model = nb.ScriptedModel(["inside"])
    inner = nb.Agent(model, name="inner", instructions=rules).as_tool()
    assert inner.description == "Knows the house rules."
    outer = nb.Agent(nb.ScriptedModel([call("inner", prompt="hi"), "done"]), tools=[inner])
    await outer.run("go", context="Ada")
    assert model.requests[0].instructions == "Ada: hi"


async def test_a_tool_can_read_its_run_id_and_messages():
    """``ctx.run_id`` and ``ctx.messages``; a tool called by a body gets those of the outer call."""
    seen: list[Any] = []

    def note(ctx: nb.ToolContext) -> str:
        seen.append((ctx.run_id, ctx.messages))
        return "noted"

    async def around(ctx: nb.ToolContext) -> str:
        return await ctx.call(note)

    model = nb.ScriptedModel([call("note"), call("around"), "done"])
    run = nb.Agent(model, tools=[note, around]).run("go")
    await run
    assert [each[0] for each in seen] == [run.id, run.id]
    assert seen[0][1] == run.messages[:2]
    assert seen[1][1] == run.messages[:4]
