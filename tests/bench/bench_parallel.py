"""CPU of one turn with very many calls: by kind of tool and number of calls, with the view's share beside it.

    python -m tests.bench.bench_parallel [calls …]

Time for each call should stay as it is while their number grows; it prints, and judges nothing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import nbagent as nb
from nbagent.notebook.view.view import RunView

COUNTS = (1_000, 3_000, 10_000)
KINDS = ("plain", "threaded", "failing")


def agent_of(kind: str, calls: int) -> nb.Agent:
    """An agent whose model asks for so many calls at once."""
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
    """CPU seconds of a run, and what its journal holds."""
    agent = agent_of(kind, calls)
    began = time.process_time()
    run = agent.run("go", show=False, attended=False)
    await run
    return time.process_time() - began, list(run.journal)


def folded(events: list[Any]) -> float:
    """CPU seconds of a view that hears these events one by one, and is sent on now and then."""
    view = RunView("r")
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
