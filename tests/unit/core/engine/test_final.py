"""Tools whose answer ends the run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb

call = nb.ScriptedModel.call


class Plan(BaseModel):
    """A typed end."""

    steps: list[str]


def define(agent: nb.Agent) -> None:
    """Add three final tools and a plain one; ``finish`` can ask or fail."""
    agent.add(nb.interrupt_tool("sign_off", output=str, final=True))

    @agent.tool(final=True)
    def finish(text: str, ctx: nb.ToolContext) -> str:
        if text == "ask" and not ctx.resumed:
            ctx.interrupt()
        if text == "fail":
            raise ValueError("not yet")
        return f"finished: {text}"

    @agent.tool(final=True)
    def deliver(plan: Plan) -> Plan:
        return plan

    @agent.tool
    def plain() -> str:
        return "plain"


async def test_c117_an_answered_final_tool_ends_the_run_with_that_output(play):
    """No model call follows; results of sibling calls are kept."""
    s = await play([[call("plain"), call("sign_off")]], define)
    await s.answer(respond={0: "agreed"})
    assert (s.status, s.text, s.requests) == ("completed", "agreed", 1)
    assert s.results == ["plain", "agreed"]
    s.model.check()


async def test_a_final_tool_that_returns_ends_the_run(play):
    """Also after an approval."""
    s = await play([call("finish", text="x")], define)
    assert (s.text, s.requests) == ("finished: x", 1)
    s = await play([call("finish", text="ask")], define)
    await s.answer(restart={0: {}})
    assert (s.text, s.requests) == ("finished: ask", 1)


@pytest.mark.parametrize("how", ["rejected", "failed"])
async def test_a_final_tool_that_is_rejected_or_fails_does_not_end_the_run(play, how):
    """The model gets the reason and continues."""
    s = await play(
        [call("finish", text="ask" if how == "rejected" else "fail"), "going on"], define
    )
    if how == "rejected":
        await s.answer(reject={0: "no"})
    assert (s.text, s.requests) == ("going on", 2)


async def test_an_edited_final_answer_is_the_output_itself(play):
    """The note about the edit is in the history, not in the output, also through JSON."""
    s = await play([[call("finish", text="ask"), call("sign_off")]], define)
    await s.answer(restart={0: {"new_input": {"text": "better"}}})
    await s.answer(respond={0: "later"})
    assert s.text == "finished: better"
    assert s.results[0].startswith("A person changed the arguments")


async def test_a_final_output_fits_the_output_type():
    """The output is typed, live and step by step."""
    plan = {"steps": ["a", "b"]}
    for live in (True, False):
        agent = nb.Agent(nb.ScriptedModel([call("deliver", plan=plan)]), output_type=Plan)
        define(agent)
        result: Any = await agent.run("go") if live else await agent.generate("go")
        assert result.output == Plan(steps=["a", "b"])
    assert result.finish_reason == "stop"
    agent = nb.Agent(nb.ScriptedModel([call("finish", text="x")]), output_type=Plan)
    define(agent)
    with pytest.raises(nb.errors.ModelError, match="output_type"):
        await agent.run("go")


async def test_an_inner_final_tool_ends_only_the_inner_run(play):
    """The inner output is the outer call's result."""

    def outer(agent: nb.Agent) -> None:
        inner = nb.Agent(nb.ScriptedModel([call("finish", text="x")]), name="inner")
        define(inner)
        agent.add(inner.as_tool())

    s = await play([call("inner", prompt="p"), "done"], outer)
    assert (s.results, s.text) == (["finished: x"], "done")
