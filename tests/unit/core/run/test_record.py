"""Data that can be read from a run."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel

import nbagent as nb
from nbagent.core.call.questions import reply_types


class Rating(BaseModel):
    """An answer whose form is told how to ask."""

    stars: Annotated[int, nb.FormHint(widget="slider")] = 3


async def test_the_reply_type_of_an_open_question_is_known_to_its_form():
    """A form uses the type passed as ``reply=``, with its hints."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("rate"), "thanks"]))

    @agent.tool
    async def rate(ctx: nb.ToolContext) -> str:
        return str((await ctx.ask("How was it?", reply=Rating)).stars)

    run = await agent.run("go", attended=True, show=False).settled()
    [asked] = run.interrupts
    adapter = reply_types.get(asked.id)
    assert adapter is not None
    assert adapter.validate_python({"stars": 5}) == Rating(stars=5)

    run.respond(asked, {"stars": 4})
    assert (await asyncio.wait_for(_ended(run), 20)).text == "thanks"


async def _ended(run: nb.Run) -> Any:
    return await run
