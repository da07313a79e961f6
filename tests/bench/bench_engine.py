"""What the engine costs beside a loop written by hand: CPU, memory and bytes, on no real model.

Run it: ``python tests/bench/bench_engine.py [--profile]``. It prints, it judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import nbagent as nb
from nbagent.core.base.model import Finished, ModelDelta, Request, TextDelta, ToolCallDelta

ARGUMENTS = json.dumps({"account": "ABC123", "amount": 12.5})
FINISHED = Finished("tool_calls")


class NoModel:
    """A model that costs next to nothing: ``turns`` tool calls, then a text."""

    name = "none"

    def __init__(self, turns: int, tool: str = "look_up") -> None:
        self.left = turns
        self.tool = tool

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """The next call, or the final text."""
        if self.left:
            self.left -= 1
            yield ToolCallDelta(0, ARGUMENTS, f"call_{self.left}", self.tool)
            yield FINISHED
        else:
            yield TextDelta("done")
            yield Finished("stop")


def make_agent(turns: int) -> nb.Agent:
    """An agent with one plain async tool and one that pauses."""
    agent = nb.Agent(NoModel(turns), max_turns=turns + 2)

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

    return agent


async def by_hand(turns: int) -> None:
    """The loop that a careful person writes: parse, call, append."""

    async def look_up(account: str, amount: float) -> str:
        return f"{account} has {amount}"

    model = NoModel(turns)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        call: dict[str, Any] = {}
        async for delta in model.stream(Request(messages=())):
            if isinstance(delta, ToolCallDelta):
                call = {"id": delta.id, "name": delta.name, "arguments": delta.arguments}
        messages.append({"role": "assistant", "tool_calls": [call] if call else []})
        if not call:
            return
        result = await look_up(**json.loads(call["arguments"]))
        messages.append({"role": "tool", "id": call["id"], "content": result})


async def step_by_step(turns: int) -> None:
    """The loop through ``generate``."""
    await make_agent(turns).generate("go")


async def live(turns: int) -> None:
    """The loop through ``run``, with a journal in memory."""
    await make_agent(turns).run("go", store=nb.MemoryStore())


def cpu(work: Callable[[int], Coroutine[Any, Any, Any]], turns: int, repeat: int) -> float:
    """Best CPU seconds of one loop."""

    async def measure() -> float:
        best = float("inf")
        for _ in range(repeat):
            begin = time.process_time()
            await work(turns)
            best = min(best, time.process_time() - begin)
        return best

    return asyncio.run(measure())


def loops() -> None:
    """CPU of loops of several lengths, and per turn."""
    print(f"{'':16}{'turns':>6}{'ms':>9}{'µs/turn':>9}{'over by hand, µs/turn':>24}")
    for turns, repeat in ((5, 40), (50, 10), (500, 3)):
        base = cpu(by_hand, turns, repeat)
        for name, work in (("by hand", by_hand), ("generate", step_by_step), ("run", live)):
            took = cpu(work, turns, repeat)
            per, over = took / turns * 1e6, (took - base) / turns * 1e6
            print(f"{name:16}{turns:6}{took * 1e3:9.2f}{per:9.1f}{over:24.1f}")


def paused_bytes() -> None:
    """Bytes of a saved pause after 50 turns, against the history alone."""

    async def measure() -> None:
        agent = make_agent(50)
        done = await agent.generate("go")
        raw = len(json.dumps(done.messages, ensure_ascii=False, separators=(",", ":")))
        agent.model = NoModel(1, "pause")
        paused = await agent.generate("and now?", messages=done.messages)
        saved = len(json.dumps(paused.messages, ensure_ascii=False, separators=(",", ":")))
        bare = [
            {k: v for k, v in part.items() if k != "nbagent"}
            for part in paused.messages[-1]["content"]
        ]
        added = len(json.dumps([paused.messages[-2], bare], separators=(",", ":")))
        print(
            f"paused, 50 turns: {saved} bytes; raw {raw + added}; limit {1.3 * (raw + added) + 512:.0f}"
        )

    asyncio.run(measure())


def paused_memory(name: str, count: int = 1000) -> float:
    """KiB of memory per paused run, ``live`` or as a response (``stateless``)."""

    async def measure() -> float:
        agent = make_agent(0)
        agent.model = NoModel(10 * count, "pause")
        held: list[Any] = [await _paused(agent, name) for _ in range(20)]
        gc.collect()
        tracemalloc.start()
        held = [await _paused(agent, name) for _ in range(count)]
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] / len(held)
        tracemalloc.stop()
        return size / 1024

    return asyncio.run(measure())


async def _paused(agent: nb.Agent, name: str) -> Any:
    if name == "stateless":
        return (await agent.generate("go")).messages
    return await agent.run("go").settled()


def profile(turns: int = 300) -> None:
    """Print the functions that take the most time."""
    profiler = cProfile.Profile()
    for work in (step_by_step, live):
        profiler.enable()
        asyncio.run(work(turns))
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    if parser.parse_args().profile:
        profile()
        return
    loops()
    paused_bytes()
    for name in ("live", "stateless"):
        print(f"memory of a paused run, {name}: {paused_memory(name):.1f} KiB")


if __name__ == "__main__":
    main()
