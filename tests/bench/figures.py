"""Costs of a run and an import, beside the figures that ``figures.json`` stores and that are reviewed like code.

    python -m tests.bench.figures                    prints all of them
    python -m tests.bench.figures --counts           without speeds, which take most of the time
    python -m tests.bench.figures --counts --write   also stores the counts; without ``--counts`` the speeds as well

A count that grew fails ``tests/unit/test_figures.py`` until it is stored. Speeds are only printed: ratios of CPU to a
loop written by hand, or to the import of openai. Calls into rooms that a run does not use
(``tests/bench/capabilities.py``) are stored as ``known``. This command only lowers them; raise one by hand and say why.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import nbagent as nb
from nbagent.core.base.model import Finished, ModelDelta, Request, ToolCallDelta

from . import bench_agent

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("figures.json")
ACCEPT = "python -m tests.bench.figures --counts --write"
MARGIN = 0.03
"""Relative growth of a count that needs no review."""
OLDEST = (3, 11)
"""The Python version of the stored figures; newer versions enter a few generators less."""
ROUNDS = 3
MODULES = "print(sum(name.partition('.')[0] == 'nbagent' for name in sys.modules))"
PLAIN = "import asyncio; from tests.bench.journeys import plain_run; asyncio.run(plain_run())"
NEEDED = "from nbagent import Agent, OpenAIModel, ToolContext"


def python(*arguments: str) -> str:
    """The output of a new process, without earlier work and without ``NBAGENT_`` variables."""
    there = {name: said for name, said in os.environ.items() if not name.startswith("NBAGENT_")}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=there, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


# --- what is counted


def counts() -> dict[str, int]:
    """All counts, by name."""
    told = json.loads(python("-m", "tests.bench.journeys", "--json"))
    found = {f"{name}: {what}": count for name, of in told.items() for what, count in of.items()}
    for name, code in (("import nbagent", "import nbagent"), ("a plain run", PLAIN)):
        found[f"{name}: modules"] = int(python("-c", f"{code}; import sys; {MODULES}"))
    return found


def grown(kept: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Messages about counts that are new, or that grew by more than the margin."""
    return [
        f"{name} grew from {kept[name]} to {count}" if name in kept else f"{name} is new: {count}"
        for name, count in now.items()
        if count > kept.get(name, 0) * (1 + MARGIN)
    ]


def surplus(calls: Mapping[str, int], known: int) -> str:
    """A message about calls into a room that nobody uses, by function; empty if no more than ``known``."""
    if sum(calls.values()) <= known:
        return ""
    listed = "".join(f"\n  {count} {function}" for function, count in calls.items())
    return f"{sum(calls.values())} calls into a room that these runs do not use, where {known} are known:{listed}"


def passed() -> dict[str, dict[str, dict[str, int]]]:
    """Calls into the room of each capability, ``without`` the capability and ``with`` it."""
    found: dict[str, dict[str, dict[str, int]]] = json.loads(
        python("-m", "tests.bench.capabilities", "--json")
    )
    return found


def stored_figures() -> dict[str, Any]:
    """The figures in ``figures.json``."""
    figures: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return figures


# --- what is measured


def import_ratios() -> dict[str, float]:
    """CPU of imports from compiled files, relative to that of the openai client, without a bare interpreter's CPU."""
    codes = {"bare": "pass", "openai": "from openai import AsyncOpenAI"}
    codes |= {"import nbagent": "import nbagent", "import of an agent and its model": NEEDED}
    used: dict[str, list[float]] = {name: [] for name in codes}
    with tempfile.TemporaryDirectory() as folder:
        there = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        there.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(ROUNDS + 1):
            for name, code in codes.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=there, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used[name].append(
                    after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                )
    # the first round compiles
    cpu = {name: statistics.median(each[1:]) for name, each in used.items()}
    bare, openai = cpu.pop("bare"), cpu.pop("openai")
    return {name: (each - bare) / (openai - bare) for name, each in cpu.items()}


def speed() -> dict[str, float]:
    """All measured speeds and sizes, by name."""
    found = import_ratios()
    for case in bench_agent.CHAT:
        with bench_agent.server(case) as url:
            rounds = ROUNDS if case.runs == 1 else 1
            found[case.name] = asyncio.run(bench_agent.compare(case, url, rounds)).cpu
    found["a paused live run, KiB"] = asyncio.run(paused_memory(500))
    return {name: round(figure, 2) for name, figure in found.items()}


class Pausing:
    """A model that costs next to nothing: it calls the tool that asks."""

    name = "none"

    async def stream(self, _request: Request) -> AsyncIterator[ModelDelta]:
        """One call."""
        yield ToolCallDelta(0, '{"account": "ABC123", "amount": 12.5}', "call_1", "pause")
        yield Finished("tool_calls")


async def paused_memory(count: int) -> float:
    """KiB of memory per paused run."""
    agent = nb.Agent(Pausing())

    @agent.tool
    async def look_up(account: str, amount: float) -> str:
        """Look an account up."""
        return f"{account} has {amount}"

    @agent.tool
    async def pause(account: str, amount: float, ctx: nb.ToolContext) -> str:
        """Ask first."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Go on?"))
        return account

    held = [await agent.run("go").settled() for _ in range(20)]
    gc.collect()
    tracemalloc.start()
    held = [await agent.run("go").settled() for _ in range(count)]
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] / len(held)
    tracemalloc.stop()
    return size / 1024


# --- the table


def show(title: str, kept: dict[str, Any], now: dict[str, Any]) -> None:
    """Print the current figures beside the stored ones."""
    print(f"\n{title:44}{'kept':>10}{'now':>10}")
    for name in kept | now:
        before, figure = kept.get(name, 0), now.get(name, 0)
        change = f"{figure / before - 1:+8.1%}" if before and before != figure else ""
        print(f"{name:44}{before:10}{figure:10}{change}", flush=True)


def main() -> None:
    """Print the figures, and with ``--write`` store them."""
    parser = argparse.ArgumentParser(
        description="What a run and an import cost, beside what is kept."
    )
    parser.add_argument("--counts", action="store_true", help="without figures of speed")
    parser.add_argument("--write", action="store_true", help=f"keep them in {KEPT.name}")
    given = parser.parse_args()
    if given.write and sys.version_info[:2] != OLDEST:
        parser.error(
            "keep figures of Python {}.{}: newer ones count a few calls less".format(*OLDEST)
        )
    before = stored_figures() if KEPT.exists() else {}
    figures = {**before, "counts": counts()}
    show("counts", before.get("counts", {}), figures["counts"])
    without = {name: sum(calls["without"].values()) for name, calls in passed().items()}
    known = before.get("known", without)
    show("calls into rooms that a run does not use", known, {n: c for n, c in without.items() if c})
    lowered = {name: min(calls, known.get(name, 0)) for name, calls in without.items()}
    figures["known"] = {name: calls for name, calls in lowered.items() if calls}
    if not given.counts:
        figures["speed"] = speed()
        show("speed, as a ratio", before.get("speed", {}), figures["speed"])
    if given.write:
        KEPT.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
