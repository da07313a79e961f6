"""The tools that most cases use, and helpers for histories."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import nbagent as nb


class Why(BaseModel):
    """Metadata of a user's own."""

    reason: str
    amount: float


class Tools:
    """The usual tools, and a log of the bodies that finished."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.entered: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define ask, gate, plain and broken."""
        log, entered = self.log, self.entered
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        def gate(amount: float, ctx: nb.ToolContext) -> str:
            """Act once a person agrees."""
            entered.append(("gate", amount))
            if not ctx.resumed:
                ctx.interrupt(Why(reason="large", amount=amount))
            log.append(("gate", amount))
            return f"sent {amount}"

        @agent.tool
        async def plain(x: int = 0) -> dict[str, int]:
            """An ordinary tool."""
            log.append(("plain", x))
            return {"x": x}

        @agent.tool(idempotent=True)
        def broken(x: int = 0) -> str:
            """Fail."""
            log.append(("broken", x))
            raise ValueError("no luck")


class Keeping:
    """A gate that keeps state with its pause, beside an ask, a plain tool and a question at a line."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define ask, gate, plain and wizard."""
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"saved": n})
            self.log.append(("gate", n, ctx.state))
            return f"did {n}"

        @agent.tool
        def plain(n: int = 0) -> str:
            self.log.append(("plain", n))
            return f"plain {n}"

        @agent.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            return await ctx.ask("well?")


def parts(messages: Any, kind: str) -> list[Any]:
    """All parts of a kind."""
    return [p for m in messages for p in m["content"] if p["type"] == kind]


def outputs(messages: Any) -> list[Any]:
    """All results in a history, in order."""
    return [part["output"] for part in parts(messages, "tool_result")]
