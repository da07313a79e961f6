"""What a durable run writes and costs per turn: bytes handed to the system, and time in ``append``.

Run it: ``python tests/bench/bench_store.py [--turns 200]``. It prints, it judges nothing. A turn is a
model response that asks for one call of about 200 bytes, the call's claim, and a result of 250 bytes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    RunStarted,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.process import this_process
from nbagent.stores.sqlite import SQLiteStore


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


def main() -> None:
    """Print bytes and times by turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=400)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "b.db") as store:
        started = RunStarted(at=time.time(), agent="a", model="m", messages=[], max_turns=turns)
        store.append("run", [started], 0)
        position, sizes, times = 1, [], []
        for number in range(turns):
            before = written()
            for event in turn(number):  # one commit each, as the engine does
                start = time.perf_counter()
                store.append("run", [event], position)
                times.append(time.perf_counter() - start)
                position += 1
            sizes.append(written() - before)
        start = time.perf_counter()
        assert len(store.read("run")) == position
        reading = time.perf_counter() - start
        for low in range(0, turns, 50):
            part = sizes[low : low + 50]
            print(
                f"turns {low:4}-{low + len(part) - 1:<4} {statistics.fmean(part):8.0f} bytes a turn"
            )
        micro = sorted(t * 1e6 for t in times)
        print(
            f"append: median {statistics.median(micro):.0f} us, "
            f"99 % under {micro[len(micro) * 99 // 100]:.0f} us, longest {micro[-1]:.0f} us"
        )
        print(f"read of {position} events: {reading * 1e3:.1f} ms")
        start = time.perf_counter()
        for _ in range(1000):
            store.read("run", position)
        print(f"a poll that finds nothing: {(time.perf_counter() - start) * 1e3:.1f} us")


if __name__ == "__main__":
    main()
