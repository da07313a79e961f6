"""A process that continues a batch: ``python -m tests.integration.batch_worker STORE LOG ROWS``.

Each row asks for one payment, whose body writes a line to the log before it pays. A call that a killed process
left behind is answered with a result, so no body runs twice.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import nbagent as nb


async def reply(messages: Any) -> Any:
    """Call ``pay`` once for each row, then end the row with a text."""
    await asyncio.sleep(0.005)
    if messages[-1]["role"] == "tool":
        return "paid"
    return nb.ScriptedModel.call("pay", n=int(messages[-1]["content"][0]["text"].split()[1]))


async def main(place: str, log: str, count: int) -> None:
    """Continue the batch to its end."""
    agent = nb.Agent(nb.ScriptedModel(reply), name="payer", store=place)

    def write(line: str) -> None:
        with open(log, "a") as file:
            file.write(f"{line}\n")

    def answer(asked: Any) -> Any:
        if asked.kind != "lost":
            return True
        write(f"lost {asked.input['n']}")
        return nb.Respond(output="it was running")

    @agent.tool(approval=True)
    async def pay(n: int) -> str:
        write(f"body {n}")
        await asyncio.sleep(0.005)
        return f"paid {n}"

    write(f"process {os.getpid()}")
    batch = nb.map(agent, range(count), prompt="row {}", id="march", concurrency=8, answers=answer)
    await batch
    print(batch.counts, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
