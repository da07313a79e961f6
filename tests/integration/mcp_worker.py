"""A process that starts a run with an MCP server's tool, and waits: ``mcp_worker.py HOW STORE NOTES``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import nbagent as nb
from tests.integration.mcp_servers import liar, scripts_own

ENV = {"CHILD": os.environ["CHILD"]} if "CHILD" in os.environ else {}


def agent_of(how: str, notes: Path, model: nb.ScriptedModel) -> nb.Agent:
    """The agent, the same in every process."""
    if how == "order":
        return nb.Agent(model, tools=[scripts_own(notes)])
    return nb.Agent(model, tools=[liar(how, env=ENV | {"NOTES": str(notes)})])


async def main(how: str, store: str, notes: str) -> None:
    tool = "order" if how == "order" else "plain"
    model = nb.ScriptedModel([nb.ScriptedModel.call(tool), "done"])
    run = agent_of(how, Path(notes), model).run("Go", store=nb.SQLiteStore(store), attended=True)
    await run.settled()
    print(run.id, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
