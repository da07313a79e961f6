"""Code that a run passes through: functions, files, calls and changes of file on four journeys.

    python -m tests.bench.journeys            prints one line a journey
    python -m tests.bench.journeys --files    and the files in the order in which they are entered
    python -m tests.bench.journeys --json     the same figures, as ``tests.bench.figures`` reads them

The journeys use the public API and ``ScriptedModel``, outside Jupyter. Files named after scripted answers and models
are not counted. Play the journeys in a new process, because the first one counts work that a process does only once.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import nbagent as nb

ROOT = f"{Path(nb.__file__).parent}/"
call = nb.ScriptedModel.call


class Step(NamedTuple):
    """A function of nbagent that was entered; a coroutine is entered again each time it resumes."""

    file: str
    function: str


class Profiler:
    """Records the functions of nbagent that are entered in a block, in this thread and in threads started meanwhile."""

    def __init__(self) -> None:
        self._steps: list[Step] | None = None

    @contextmanager
    def on(self) -> Iterator[list[Step]]:
        """Record the functions that are entered in this block."""
        steps = self._steps = []
        threading.setprofile(self._heard)
        sys.setprofile(self._heard)
        try:
            yield steps
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            self._steps = None

    def _heard(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or self._steps is None or not code.co_filename.startswith(ROOT):
            return
        if not code.co_name.startswith("<"):  # newer versions have no frame for a comprehension
            self._steps.append(Step(code.co_filename.removeprefix(ROOT), code.co_qualname))


def travelled(steps: Sequence[Step]) -> dict[str, int]:
    """The figures of a journey."""
    counted = [step for step in steps if "scripted" not in step.file]
    turns = pairwise(counted)
    return {
        "functions": len(set(counted)),
        "files": len({step.file for step in counted}),
        "calls": len(counted),
        "changes of file": sum(one.file != other.file for one, other in turns),
    }


def banker(policy: Sequence[Any] = ()) -> nb.Agent:
    """An agent with one tool, which asks before it sends money."""
    script = [call("transfer", to="A", amount=2.0), "done"]
    agent = nb.Agent(nb.ScriptedModel(script), policy=list(policy))

    @agent.tool
    def transfer(to: str, amount: float, ctx: nb.ToolContext) -> str:
        """Send money."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Send?"))
        return "sent"

    return agent


async def plain_run() -> dict[str, int]:
    """Events and stored bytes of a run with one tool call; times and processes count as one character each."""
    store = nb.MemoryStore()
    agent = nb.Agent(nb.ScriptedModel([call("look", n=1), "done"]), store=store)

    @agent.tool
    async def look(n: int) -> str:
        """Look something up."""
        return f"found {n}"

    run = agent.run("go", show=False)
    await run
    (document,) = nb.export_run(run.id, store=store)["runs"]
    rows = [re.sub(r'"at":[\d.e+]+', '"at":0', row["data"]) for row in document["rows"]]
    rows = [re.sub(r'"owner":"[^"]+"', '"owner":"o"', row) for row in rows]
    return {"events": len(rows), "bytes": sum(len(row.encode()) for row in rows)}


async def journeys() -> dict[str, list[Step]]:
    """The functions that are entered on each journey."""
    profiler, found = Profiler(), {}
    agent = banker()
    with profiler.on() as found["run to pause"]:
        run = agent.run("go", attended=True, show=False)
        await run.settled()
        # newer versions of Python resume this coroutine before the run's last look
        for _ in range(9):
            await asyncio.sleep(0)
    with profiler.on() as found["answer to end"]:
        run.restart(run.interrupts[0])
        await run
    agent = banker()
    with profiler.on() as found["generate to pause"]:
        response = await agent.generate("go")
    assert response.interrupts
    agent = banker([nb.deny("transfer")])
    with profiler.on() as found["a rule denies"]:
        await agent.run("go", show=False)
    return found


def main() -> None:
    """Print the figures."""
    found = asyncio.run(journeys())
    figures = {name: travelled(steps) for name, steps in found.items()}
    if "--json" in sys.argv:
        print(json.dumps({**figures, "a plain run": asyncio.run(plain_run())}))
        return
    for name, told in figures.items():
        print(f"{name}: " + ", ".join(f"{number} {what}" for what, number in told.items()))
        if "--files" in sys.argv:
            print("   " + " ".join(dict.fromkeys(step.file for step in found[name])))


if __name__ == "__main__":
    main()
