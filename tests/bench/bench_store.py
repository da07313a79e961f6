"""What a durable run writes and costs: time in ``append``, bytes, opening, a chat, an inbox.

Run it: ``python -m tests.bench.bench_store [--turns 200] [--postgresql] [--looks 100000]``. It prints, it judges nothing. A turn is a
model response that asks for one call of about 200 bytes, the call's claim, and a result of 250 bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbagent as nb
from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    RunCompleted,
    RunStarted,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.model import Finished, ModelDelta, Request, TextDelta
from nbagent.core.base.process import this_process
from nbagent.core.stored.catalog import Catalog
from nbagent.core.stored.inbox import InboxEntry
from nbagent.stores.sqlite import SQLiteStore
from tests import postgres


def turn(number: int) -> list[StoredEvent]:
    """The events of one turn."""
    call_id, input_ = f"call_{number:020}", {"account": "ABC123", "note": "n" * 100}
    call = CallRequested(id=call_id, name="look_up", input=input_)
    return [
        ModelResponded(at=time.time(), calls=(call,), finish_reason="tool_calls", input_tokens=9),
        ToolStarted(at=time.time(), call_id=call_id, attempt=1, owner=this_process(), input=input_),
        ToolFinished(at=time.time(), call_id=call_id, output="r" * 250),
    ]


def written() -> int:
    """Bytes that this process has handed to write calls so far."""
    counts = Path("/proc/self/io").read_text(encoding="utf-8").split()
    return int(counts[counts.index("wchar:") + 1])


def percentiles(seconds: list[float]) -> str:
    """The median and the 95th percentile, in milliseconds."""
    ordered = sorted(seconds)
    middle, most = statistics.median(ordered), ordered[len(ordered) * 95 // 100]
    return f"median {middle * 1e3:.2f} ms, 95 % under {most * 1e3:.2f} ms"


def appends(store: Any, turns: int) -> None:
    """Append a run event by event; print the costs, and the time of an empty poll."""
    started = RunStarted(at=time.time(), agent="a", model="m", messages=[], max_turns=turns)
    store.append("run", [started], 0)
    position, sizes, times = 1, [], []
    for number in range(turns):
        before = written()
        for event in turn(number):  # one commit per event, as in the engine
            start = time.perf_counter()
            store.append("run", [event], position)
            times.append(time.perf_counter() - start)
            position += 1
        sizes.append(written() - before)
    print(f"  append: {percentiles(times)}")
    if isinstance(store, SQLiteStore):
        parts = [f"{statistics.fmean(sizes[n : n + 50]):.0f}" for n in (0, max(0, turns - 50))]
        print(f"  bytes handed to the system a turn, first and last 50: {', '.join(parts)}")
    start = time.perf_counter()
    for _ in range(100):
        store.read("run", position)
    print(f"  a poll that finds nothing: {(time.perf_counter() - start) * 10:.3f} ms")


async def opening(store: Any) -> None:
    """Print the time to open a run of 5,000 events from the store."""
    started = RunStarted(at=time.time(), agent="a", model="m", messages=[], max_turns=5000)
    events = [started, *(event for number in range(1666) for event in turn(number))]
    events.append(RunCompleted(at=time.time(), text="Done."))
    store.append("long", events, 0)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        await nb.open_run(
            "long", agent=nb.Agent(nb.ScriptedModel([]), name="a", store=store), show=False
        )
        times.append(time.perf_counter() - start)
    print(f"  opening {len(events)} events: {min(times) * 1e3:.0f} ms (goal 300)")


class Says:
    """A model that ignores its request; the scripted model would check all of it."""

    name = "says"

    async def stream(self, _request: Request) -> AsyncIterator[ModelDelta]:
        """The same text every time."""
        yield TextDelta("It is so. " * 100)
        yield Finished("stop")


async def chat(store: Any) -> None:
    """Print bytes and time of a turn of a chat, early and late."""
    agent = nb.Agent(Says(), store=store)
    thread, times = agent.chat(show=False), []
    for number in range(100):
        start = time.perf_counter()
        await thread.send(f"Question {number}?")
        times.append(time.perf_counter() - start)
    sizes = [sum(len(row.data) for row in store.rows(run.id)) for run in thread.runs]
    parts = [statistics.median(times[n - 3 : n + 4]) * 1e3 for n in (5, 95)]
    print(
        f"  a turn of a chat, at 5 and 100: {sizes[4]} and {sizes[99]} bytes (goal 6,000), ", end=""
    )
    print(f"{parts[0]:.1f} and {parts[1]:.1f} ms")


async def inbox(store: Any) -> None:
    """Print the times of a first look at 1,000 waiting runs, and of pruning them."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay", amount=1)]), store=store)

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        return f"{amount}"

    run = await agent.run("Pay.", attended=True, show=False).settled()
    events = store.read(run.id)
    for number in range(999):
        asked = replace(events[-1], id=f"q{number}")
        store.append(f"waits {number}", [*events[:-1], asked], 0)
    start = time.perf_counter()
    found = InboxEntry(store).look()
    print(
        f"  an inbox of {len(found)} questions, read: {time.perf_counter() - start:.2f} s (goal 1)"
    )
    start = time.perf_counter()
    nb.prune(0, store=store, waiting=True)
    print(f"  pruning them: {time.perf_counter() - start:.2f} ms a run")


async def rows(store: Any, count: int = 600, at_once: int = 32) -> None:
    """Print the speed of many short runs at once, each with three appends, like a batch's rows."""
    agent = nb.Agent(Says(), store=store)
    room = asyncio.Semaphore(at_once)

    async def row(number: int) -> None:
        async with room:
            await agent.run(f"Row {number}", show=False, attended=False)

    await asyncio.gather(*(row(number) for number in range(at_once)))
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(row(number) for number in range(count)))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"  {count} runs, {at_once} at a time: {count / wall:.0f} a second, {cpu / count * 1e3:.2f} ms CPU each"
    )


COPIES = {
    "SQLiteStore": (
        "with recursive n (i) as (select 2 union all select i + 1 from n where i < {count}) "
        "insert into runs select i, 'b:' || i from n",
        "with recursive n (i) as (select 2 union all select i + 1 from n where i < {count}) "
        "insert into events select (i << 32) + (key & 4294967295), version, data, seal from n, events where key >> 32 = 1",
    ),
    "SQLStore": (
        "insert into nbagent_runs (id, length, seal) select 'b:' || i, 2, seal from nbagent_runs, "
        "generate_series(2, {count}) i",
        "insert into nbagent_events select r.number, e.position, e.version, e.data, e.seal from nbagent_runs r, "
        "nbagent_events e where r.id <> 'b:1' and e.run = (select number from nbagent_runs where id = 'b:1')",
        "analyze nbagent_runs, nbagent_events",
    ),
}
"""Statements that copy one run many times."""


class Unchanging:
    """A store without ``changes()``, like older stores."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "changes":
            raise AttributeError(name)
        return getattr(self._store, name)


def fill(store: Any, count: int) -> None:
    """Store runs ``b:1``, ``b:2`` and so on, of two events each."""
    begun = RunStarted(at=time.time(), agent="a", model="m", messages=[], max_turns=3)
    events = [begun, RunCompleted(at=time.time(), text="Done.")]
    store.append("b:1", events, 0)
    statements = [each.format(count=count) for each in COPIES.get(type(store).__name__, ())]
    if isinstance(store, SQLiteStore):
        with store._writable() as handle:
            for statement in statements:
                handle.connection.execute(statement)
    elif statements:
        with store._connected() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    else:
        for number in range(2, count + 1):
            store.append(f"b:{number}", events, 0)


def looks(name: str, store: Any, count: int) -> None:
    """Print the time to look for one write among many runs, with all heads read and with only the changes."""
    print(f"{name}, {count:,} runs:")
    fill(store, count)
    begun = RunStarted(at=time.time(), agent="a", model="m", messages=[], max_turns=3)
    store.append("b:open", [begun], 0)
    length = 1

    def write() -> float:
        nonlocal length
        start = time.perf_counter()
        store.append("b:open", [turn((length - 1) // 3)[(length - 1) % 3]], length)
        length += 1
        return time.perf_counter() - start

    before = [write() for _ in range(200)]
    for what, seen in (("all heads", Unchanging(store)), ("changes", store)):
        catalog, times, reads, since = Catalog(seen, prefix="b:"), [], [], None
        for number in range(8):
            write()
            start = time.perf_counter()
            if what == "changes":
                since = store.changes("b:", since).token
            else:
                store.heads("b:")
            middle = time.perf_counter()
            catalog.look(only_open=True)
            if number > 1:
                reads.append(middle - start)
                times.append(time.perf_counter() - middle)
        print(f"  {what}: {percentiles(reads)}; a catalog's look: {percentiles(times)}")
    print(f"  append: {percentiles(before)}; once changes are read: ", end="")
    print(percentiles([write() for _ in range(200)]))


def measure(name: str, store: Any, turns: int) -> None:
    """Print a store's numbers."""
    print(f"{name}:")
    with store:
        appends(store, turns)
        for what in (rows, opening, chat, inbox):
            asyncio.run(what(store))


def main() -> None:
    """Measure SQLite, and PostgreSQL with ``--postgresql``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--postgresql", action="store_true", help="on a server of its own, too")
    parser.add_argument("--looks", type=int, help="only looks after one write among so many runs")
    options = parser.parse_args()
    if options.looks:
        looks("Memory", nb.MemoryStore(), options.looks)
        with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "b.db") as store:
            looks("SQLite", store, options.looks)
        if options.postgresql:
            with postgres.server() as server, nb.SQLStore(postgres.database(server)) as sql:
                looks("PostgreSQL", sql, options.looks)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", SQLiteStore(Path(folder) / "b.db"), options.turns)
    if options.postgresql:
        with postgres.server() as server:
            measure("PostgreSQL", nb.SQLStore(postgres.database(server)), options.turns)


if __name__ == "__main__":
    main()
