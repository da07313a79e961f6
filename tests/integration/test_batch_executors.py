"""The contract of batch executors: pause, stop, retry and budget work the same with a pool and with Dask."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.batch.executors import Executor, executor_of
from nbagent.core.base.model import Usage
from tests.integration.test_batch_elsewhere import cluster, mapped, spawned
from tests.until import until

CONCURRENCY = 4


@pytest.fixture(params=["processes", "dask"], scope="module")
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An executor of each kind, for all tests in this module."""
    made: Any = {"processes": spawned, "dask": cluster}
    with made[request.param]() as given:
        yield given


def agent_of(failing: Path | None = None, cost: float = 0.0) -> nb.Agent:
    """Each fifth row calls a tool four times, so it costs five requests; row 3 fails twice if ``failing`` is set."""
    fails = None if failing is None else str(failing)

    def reply(messages: Any) -> Any:
        n = int(messages[0]["content"][0]["text"].split()[-1])
        if n == 3 and fails is not None:
            with open(fails, "a+") as file:
                file.seek(0)
                if len(file.read()) < 2:
                    file.write("x")
                    file.flush()
                    raise nb.errors.ModelError("overloaded")
        time.sleep(0.02)
        calls = sum(message["role"] == "tool" for message in messages)
        return [nb.ScriptedModel.call("look", n=calls)] if n % 5 == 0 and calls < 4 else "done"

    agent = nb.Agent(nb.ScriptedModel(reply, usage=Usage(10, 5, cost)), name="contract")

    @agent.tool
    def look(n: int) -> str:
        return f"{os.getpid()} {n}"

    return agent


def test_an_executor_has_the_methods_of_the_protocol(executor: Any) -> None:
    """Each task ends in a future of concurrent.futures, with its result or error."""
    made = executor_of(executor)
    assert isinstance(made, Executor)
    assert made.slots() >= 1
    assert made.submit(divmod, 7, 2, name="one").result(60) == (3, 1)
    error = made.submit(divmod, 7, 0, name="two").exception(60)
    assert isinstance(error, ZeroDivisionError)
    assert not made.is_lost(error)
    assert not made.has_ended(error)
    made.renew()
    assert set(made.probe(abs, -3)) == {3}


async def test_a_pause_starts_no_rows_and_a_stop_is_continued(
    executor: Any, tmp_path: Path
) -> None:
    """``retry()`` restarts stopped rows; the same call starts the other rows."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    batch = mapped(agent_of(), 60, store, executor, concurrency=CONCURRENCY)
    await until(lambda: batch.counts["completed"] >= 2)
    batch.pause()
    await until(lambda: batch.counts["running"] == 0)
    n = batch.counts["completed"]
    await asyncio.sleep(0.3)
    assert (batch.status, batch.counts["completed"]) == ("paused", n)
    batch.resume()
    await until(lambda: batch.counts["completed"] > n)
    batch.stop()
    with pytest.raises(nb.errors.Cancelled):
        await asyncio.wait_for(batch, 60)
    batch = mapped(agent_of(), 60, store, executor, concurrency=CONCURRENCY)
    await asyncio.wait_for(batch, 60)
    stopped = batch.counts["cancelled"]
    assert stopped <= CONCURRENCY
    assert batch.counts["completed"] == 60 - stopped
    assert batch.retry() == stopped
    await asyncio.wait_for(batch, 60)
    assert batch.counts["completed"] == 60


async def test_a_row_that_fails_is_tried_again_or_stops_the_batch(
    executor: Any, tmp_path: Path
) -> None:
    """``retry=`` counts retries over all calls; ``on_error="stop"`` starts no more rows."""
    store, failing = nb.SQLiteStore(tmp_path / "runs.db"), tmp_path / "failing"
    with pytest.raises(nb.errors.RunError, match="Row '3' failed"):
        await asyncio.wait_for(
            mapped(agent_of(failing), 60, store, executor, on_error="stop", concurrency=4), 60
        )
    batch = mapped(agent_of(failing), 60, store, executor, concurrency=4)
    await asyncio.wait_for(batch, 60)
    assert (batch.counts["completed"], [row.key for row in batch.failures]) == (59, ["3"])
    batch = mapped(agent_of(failing), 60, store, executor, retry=2, concurrency=4)
    await asyncio.wait_for(batch, 60)
    assert batch.counts["completed"] == 60
    assert len(failing.read_text()) == 2


async def test_a_budget_is_exceeded_by_the_dearest_row_times_concurrency_at_most(
    executor: Any, tmp_path: Path
) -> None:
    """Rows cost one or five requests; the same call with a larger budget continues."""
    store, budget = nb.SQLiteStore(tmp_path / "runs.db"), nb.Budget(cost=20)
    batch = mapped(agent_of(cost=1.0), 60, store, executor, budget=budget, concurrency=CONCURRENCY)
    with pytest.raises(nb.errors.BudgetExceeded):
        await asyncio.wait_for(batch, 60)
    assert 20 - 5 * CONCURRENCY <= batch.cost <= 20 + 5 * CONCURRENCY
    more = nb.Budget(cost=1000)
    batch = mapped(agent_of(cost=1.0), 60, store, executor, budget=more, concurrency=CONCURRENCY)
    await asyncio.wait_for(batch, 60)
    assert batch.cost == 48 + 12 * 5
