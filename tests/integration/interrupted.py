"""A script that gets Ctrl+C at a given moment; moments are counted, so that tests can try each.

    python -m tests.integration.interrupted STORE HOW AT

HOW is ``run_sync`` or ``asyncio``. Moments are in the model's stream, in tools, and before and after
each append to the store. At moment AT the script gets SIGINT. If AT ends with ``+``, it gets
another one six moments later.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence

import nbagent as nb
from nbagent.core.base.events import StoredEvent
from nbagent.core.base.model import Finished, ModelDelta, Request, TextDelta, ToolCallDelta

store_path, how, at = sys.argv[1:]
first = int(at.rstrip("+"))
hits = {first, first + 6} if at.endswith("+") else {first}
moments = itertools.count(1)


def moment() -> None:
    """Count a moment; after SIGINT in another thread, give the main thread time to handle it."""
    if next(moments) in hits:
        os.kill(os.getpid(), signal.SIGINT)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)


class Momentous(nb.SQLiteStore):
    """A store with a moment before and after each append."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        moment()
        super().append(run_id, events, expected)
        moment()


class Talker:
    """A model that calls all tools at once, then answers with text."""

    name = "talker"

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """One response, with a moment before each piece."""
        first = len(request.messages) == 1
        for index in range(3):
            moment()
            await asyncio.sleep(0)
            if first:
                yield ToolCallDelta(index, "{}", f"c{index}", ("steps", "thread", "turns")[index])
            else:
                yield TextDelta("word ")
        moment()
        yield Finished("tool_calls" if first else "stop")


def make(store: nb.SQLiteStore) -> nb.Agent:
    """The agent of this script and of tests that open its runs."""
    agent = nb.Agent(Talker(), store=store)

    @agent.tool
    async def steps() -> str:
        moment()
        await asyncio.sleep(0.001)
        moment()
        return "stepped"

    @agent.tool
    def thread() -> str:
        moment()
        return "threaded"

    @agent.tool
    async def turns(ctx: nb.ToolContext) -> str:
        await ctx.step("one", moment)
        return "turned"

    return agent


async def main(agent: nb.Agent) -> None:
    """Await a run."""
    await agent.run("go")


if __name__ == "__main__":
    made = make(Momentous(store_path))
    if how == "run_sync":
        made.run_sync("go")
    else:
        asyncio.run(main(made))
    print("ended", next(moments))
