"""CPU of ``nb.map`` over many rows, against a hand-written semaphore over AsyncOpenAI in the same process.

    python -m tests.bench.bench_batch [rows] [rounds] [words]

All use one loopback server in another process, 16 rows at a time, with responses of three words (or ``words``). The
loop by hand stores nothing and asks nobody. It is measured twice: plain, and streaming as the agent does. Compare only
ratios: absolute times depend on the machine. Targets: in memory 1.3 of the plain loop and 0.6 of the streaming loop,
with SQLite 1.6 of the plain loop; a missed target fails nothing.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai

import nbagent as nb

from .bench_loop import server

AT_ONCE = 16
Way = Callable[[int], Awaitable[Any]]


def by_hand(client: openai.AsyncOpenAI, *, streams: bool) -> Way:
    """The loop that people write by hand."""

    async def run(count: int) -> list[str]:
        room = asyncio.Semaphore(AT_ONCE)

        async def row(number: int) -> str:
            asked: Any = [{"role": "user", "content": f"row {number}"}]
            async with room:
                if not streams:
                    whole = await client.chat.completions.create(model="m", messages=asked)
                    return whole.choices[0].message.content or ""
                text = ""
                stream = await client.chat.completions.create(
                    model="m", messages=asked, stream=True, stream_options={"include_usage": True}
                )
                async for chunk in stream:
                    for choice in chunk.choices:
                        text += choice.delta.content or ""
                return text

        return await asyncio.gather(*(row(number) for number in range(count)))

    return run


def with_map(model: nb.OpenAIModel, store: Callable[[], Any]) -> Way:
    """The same rows as a batch, with a new store in each round."""
    agent = nb.Agent(model, name="bench")

    async def run(count: int) -> list[str]:
        place = store()
        batch = nb.map(
            agent, range(count), prompt="row {}", id="bench", concurrency=AT_ONCE, store=place
        )
        await batch
        assert batch.counts["completed"] == count
        return []

    return run


async def compare(url: str, rows: int, rounds: int) -> None:
    """Print the medians of alternating rounds, and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(10_000))
        model = nb.OpenAIModel("m", base_url=url)
        async with model, openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            ways = {
                "by hand": by_hand(client, streams=False),
                "by hand, streaming": by_hand(client, streams=True),
                "nb.map in memory": with_map(model, nb.MemoryStore),
                "nb.map with SQLite": with_map(
                    model, lambda: nb.SQLiteStore(Path(folder) / f"{next(numbers)}.db")
                ),
            }
            cpu: dict[str, list[float]] = {name: [] for name in ways}
            for way in ways.values():
                await way(AT_ONCE)  # warm up
            for _ in range(rounds):
                for name, way in ways.items():
                    gc.collect()
                    used = time.process_time()
                    await way(rows)
                    cpu[name].append((time.process_time() - used) / rows)
    middle = {name: statistics.median(times) for name, times in cpu.items()}
    plain, streaming = middle["by hand"], middle["by hand, streaming"]
    print(f"{'':22}{'ms CPU a row':>14}{'of plain':>10}{'of streaming':>14}")
    for name, each in middle.items():
        print(f"{name:22}{each * 1e3:14.2f}{each / plain:10.2f}{each / streaming:14.2f}")


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    words = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with server(0, words) as url:
        asyncio.run(compare(url, rows, rounds))


if __name__ == "__main__":
    main()
