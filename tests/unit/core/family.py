"""An agent with one or several nested agents, and helpers."""

from __future__ import annotations

from typing import Any

import nbagent as nb
from nbagent.core.base.model import Usage

call = nb.ScriptedModel.call


class Family:
    """planner ▸ banker ▸ transfer, with a log; fresh agents share the inner models."""

    def __init__(self, *inner: Any, depth: int = 1, **options: Any) -> None:
        self.log: list[Any] = []
        self.seen: list[Any] = []
        self.model = nb.ScriptedModel(inner, usage=Usage(10, 1))
        self.middles = [
            nb.ScriptedModel(
                [call("banker" if n == 1 else f"level{n - 1}", prompt="p"), f"level {n} done"]
            )
            for n in range(1, depth)
        ]
        self.options = options

    def __call__(self, agent: nb.Agent) -> None:
        """Add the inner agent and a plain tool to the outer agent."""
        banker = nb.Agent(self.model, name="banker", **self.options)
        banker.add(nb.interrupt_tool("ask", output=str))

        @banker.tool
        def look(n: int = 0) -> str:
            self.log.append(("look", n))
            return f"looked {n}"

        @banker.tool
        async def transfer(amount: float, ctx: nb.ToolContext) -> str:
            self.seen.append(ctx.resumed)
            if not ctx.resumed:
                ctx.interrupt({"amount": amount}, state={"asked": amount})
            self.log.append(("transfer", amount, ctx.state))
            return f"sent {amount}"

        inner = banker
        for n, model in enumerate(self.middles, 1):
            above = nb.Agent(model, name=f"level{n}")
            above.add(inner.as_tool())
            inner = above
        agent.add(inner.as_tool(name="helper"))

        @agent.tool
        def plain(n: int = 0) -> str:
            self.log.append(("plain", n))
            return f"plain {n}"


async def wait_for_question(run: nb.Run) -> None:
    """Wait until the run asks, whatever else still runs."""
    async for event in run.events():
        if event.type == "interrupted":
            return


def outer(*steps: Any) -> list[Any]:
    """The outer model's script: it calls the helper, then says done."""
    return [*(steps or (call("helper", prompt="move money"),)), "done"]
