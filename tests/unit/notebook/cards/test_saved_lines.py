"""A saved notebook in a repository: what differs from run to run is on lines of its own."""

from __future__ import annotations

import asyncio
import re

import nbagent as nb
from nbagent.core.base.model import Usage
from nbagent.notebook.cards.display import static_bundle
from nbagent.notebook.cards.run_card import RunCard

CHANGING = re.compile(r"<(div|span)( class=\"nba-(strip|legend|time|decided)\"| |>)")


async def saved(seconds: float) -> list[str]:
    """The lines of a run's saved card; its tool takes so long, and its model counts tokens by it."""
    call = nb.ScriptedModel.call
    used = Usage(round(1_000 * seconds), 5, cost=seconds)
    steps = [[call("look"), call("look")], call("pay"), "Done **now**."]
    agent = nb.Agent(nb.ScriptedModel(steps, usage=used), name="clerk")

    @agent.tool
    async def look() -> str:
        await asyncio.sleep(seconds)
        return "first\n\nsecond"

    agent.tool(approval=True, name="pay")(lambda: "paid")
    run = await agent.run("Look", attended=True, show=False).settled()
    run.approve(run.interrupts[0])
    await run
    card = RunCard(run)
    card.detach()
    lines = static_bundle(run, card)["text/html"].split("\n")
    card.close()
    return lines


async def test_c780_an_identical_second_run_changes_only_counts_and_times():
    """Each on a line of its own, and the style on another."""
    first, second = await saved(0.03), await saved(0.08)
    assert len(first) == len(second)
    changed = [old for old, new in zip(first, second, strict=True) if old != new]
    assert len(changed) >= 4
    assert [line for line in changed if CHANGING.match(line) is None] == []
    assert first[0].startswith("<style>")
    assert [line for line in first[1:] if "<style>" in line] == []
    assert max(map(len, changed)) < 700
