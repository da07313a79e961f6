"""A script that Ctrl+C hits at a given moment: counted, so that every moment has its turn.

    python -m tests.integration.interrupted STORE HOW AT

HOW is ``run_sync`` or ``asyncio``. Moments are what the model streams, what tools do, and each append
to the store, before it and after it. At number AT the script gets SIGINT, and a few moments later again
where AT ends with ``+``.
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
    """One more; on Ctrl+C the main thread is let go on with that."""
    if next(moments) in hits:
        os.kill(os.getpid(), signal.SIGINT)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)


class Momentous(nb.SQLiteStore):
    """A store whose appends are moments."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add them."""
        moment()
        super().append(run_id, events, expected)
        moment()


class Talker:
    """Calls all tools at once, then says something."""

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
    """The agent of this script, and of whoever opens its runs."""
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
