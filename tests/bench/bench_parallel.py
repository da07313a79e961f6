"""CPU of one turn with very many calls, by kind of tool and number of calls, for the run and for its view.

    python -m tests.bench.bench_parallel [calls …]

CPU per call should not grow with the number of calls. This script only prints.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import nbagent as nb
from nbagent.notebook.view.view import SingleRunView

COUNTS = (1_000, 3_000, 10_000)
KINDS = ("plain", "threaded", "failing")


def agent_of(kind: str, calls: int) -> nb.Agent:
    """An agent whose model requests ``calls`` calls in one turn."""
    turn = [nb.ScriptedModel.call(kind, n=n) for n in range(calls)]
    agent = nb.Agent(nb.ScriptedModel([turn, "done"]), store=nb.MemoryStore(), max_calls=calls)

    @agent.tool
    async def plain(n: int) -> int:
        return n

    @agent.tool
    def threaded(n: int) -> int:
        return n

    @agent.tool
    async def failing(n: int) -> int:
        raise ValueError(n)

    return agent


async def measured(kind: str, calls: int) -> tuple[float, list[Any]]:
    """CPU seconds of a run, and the events of its journal."""
    agent = agent_of(kind, calls)
    began = time.process_time()
    run = agent.run("go", show=False, attended=False)
    await run
    return time.process_time() - began, list(run.journal)


def folded(events: list[Any]) -> float:
    """CPU seconds of a view that applies these events one by one and flushes every hundred events."""
    view = SingleRunView("r")
    began = time.process_time()
    for number, event in enumerate(events):
        view.apply(event)
        if number % 100 == 0:
            view.flush(number / 100)
    view.flush(len(events))
    return time.process_time() - began


def main() -> None:
    """Measure every kind with every number of calls."""
    counts = [int(given) for given in sys.argv[1:]] or COUNTS
    print(f"{'kind':10} {'calls':>7} {'run':>9} {'a call':>9} {'view':>9} {'a call':>9}")
    for kind in KINDS:
        for calls in counts:
            ran, events = asyncio.run(measured(kind, calls))
            drawn = folded(events)
            each = (f"{took:8.2f}s {took / calls * 1e6:7.0f}us" for took in (ran, drawn))
            print(f"{kind:10} {calls:7}", *each, flush=True)


if __name__ == "__main__":
    main()
