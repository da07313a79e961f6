"""A batch in real processes that are killed, and a batch that two processes start at once."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbagent as nb
from tests.postgres import database
from tests.until import until

ROOT = Path(__file__).parents[2]
ROWS = 120


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.variant)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The store that the processes share."""
    if request.param == "sqlite":
        yield str(tmp_path / "runs.db")
    else:
        yield database(request.getfixturevalue("postgres"))


def start_process(place: str, log: Path) -> subprocess.Popen[str]:
    """Start a process that continues the batch."""
    worker = [sys.executable, "-m", "tests.integration.batch_worker", place, str(log), str(ROWS)]
    return subprocess.Popen(
        worker, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def bodies(log: Path) -> Counter[str]:
    """The number of starts of each body."""
    return Counter(re.findall(r"^body (\d+)$", log.read_text(), re.MULTILINE))


def until_lines(log: Path, count: int) -> None:
    """Wait until ``count`` bodies have started."""
    for _ in range(3000):
        if log.exists() and bodies(log).total() >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{count} bodies never began: {log.read_text()}")


def test_c460_a_batch_whose_processes_are_killed_runs_each_body_once(
    place: str, tmp_path: Path
) -> None:
    """The same call continues in the next process; no row is lost or paid twice."""
    log, chance = tmp_path / "log", random.Random(7)
    for kill in range(5):
        process = start_process(place, log)
        until_lines(log, (kill + 1) * 15)
        time.sleep(chance.random() / 20)
        process.kill()
        process.communicate()
    told, wrong = start_process(place, log).communicate(timeout=120)
    assert f"'completed': {ROWS}" in told, wrong
    assert set(bodies(log).values()) == {1}
    lost = set(re.findall(r"^lost (\d+)$", log.read_text(), re.MULTILINE))
    assert {*bodies(log), *lost} == {str(n) for n in range(ROWS)}


async def test_c461_one_of_two_processes_works_on_a_batch_and_both_see_its_end(
    place: str, tmp_path: Path
) -> None:
    """The other process follows; a process that opens the batch later has it without the rows."""
    log = tmp_path / "log"
    both = [start_process(place, log), start_process(place, log)]
    for process in both:
        told, wrong = process.communicate(timeout=120)
        assert f"'completed': {ROWS}" in told, wrong
    assert set(bodies(log).values()) == {1}
    store = nb.SQLStore(place) if "://" in place else nb.SQLiteStore(place)
    agent = nb.Agent(nb.ScriptedModel([]), name="payer")
    batch = await nb.open_batch("march", agent=agent, store=store)
    assert batch.counts["completed"] == ROWS
    assert batch["7"].output == "paid"
    assert (await batch).status == "completed"
    store.close()


TAKEN = """
import asyncio, sys
from pathlib import Path
import nbagent as nb

store, gate = nb.SQLiteStore(sys.argv[1]), Path(sys.argv[2])
call = nb.ScriptedModel.call
model = lambda messages: "paid" if messages[-1]["role"] == "tool" else call("pay")
agent = nb.Agent(nb.ScriptedModel(model), name="payer", store=store)

@agent.tool
async def pay() -> str:
    while not gate.exists():
        await asyncio.sleep(0.01)
    return "ok"

batch = nb.map(agent, range(4), prompt="{}", id="march", concurrency=2, show=False).wait()
print(batch.status, batch.counts["completed"])
"""


async def test_a_row_that_another_process_takes_over_does_not_end_the_batch(tmp_path: Path) -> None:
    """The batch's process watches that row, and runs the others."""
    path, gate = tmp_path / "runs.db", tmp_path / "gate"
    command = [sys.executable, "-c", TAKEN, str(path), str(gate)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    with nb.SQLiteStore(path) as store:
        await until(lambda: count_of_calls(store) == 2)
        agent = nb.Agent(nb.ScriptedModel(["paid"]), name="payer", store=store)
        agent.tool(name="pay")(lambda: "ok")
        run = await nb.open_run("march:0", agent=agent, store=store, take_over=True, show=False)
        await until(lambda: bool(run.interrupts))
        run.respond(run.interrupts[0], "ok")
        await run
    gate.touch()
    told, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert told.split() == ["completed", "4"]


def count_of_calls(store: nb.SQLiteStore) -> int:
    """The number of calls of rows that have started."""
    rows = [each for each in store.run_ids() if each.startswith("march:")]
    return sum(event.type == "tool_started" for each in rows for event in store.read(each))
