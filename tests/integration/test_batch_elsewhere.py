"""Batch rows in other processes: pools, Dask clusters, killed workers, and questions answered in this process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import nbagent as nb
from nbagent.batch import shares, workers
from nbagent.batch.batch import work_of
from nbagent.batch.executors import Executor, executor_of
from nbagent.core.run import heartbeat
from tests import postgres as servers
from tests.integration.batch_attack import Attack, attacked, wrong_with
from tests.integration.chat_server import ChatServer, Reply
from tests.integration.processes import suspend
from tests.until import until

call = nb.ScriptedModel.call


def banker(log: Path, *, kills: Path | None = None, idempotent: bool = False) -> nb.Agent:
    """Every fifth row asks to pay; each body logs a line. With ``kills``, the body of row 3 kills its process once."""
    path, marker = str(log), None if kills is None else str(kills)

    def reply(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "paid"
        n = int(messages[-1]["content"][0]["text"].split()[-1])
        if n % 5 == 0:
            return [nb.ScriptedModel.call("pay", amount=n)]
        return [nb.ScriptedModel.call("look", n=n)]

    agent = nb.Agent(nb.ScriptedModel(reply), name="banker", policy=[nb.review("pay")])

    def note(line: str) -> None:
        with open(path, "a") as file:
            file.write(line + "\n")

    @agent.tool
    def pay(amount: int) -> str:
        note(f"pay {amount}")
        return "ok"

    @agent.tool(idempotent=idempotent)
    def look(n: int) -> str:
        note(f"look {n}")
        if n == 3 and marker is not None and not os.path.exists(marker):
            with open(marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return "ok"

    return agent


def spawned(n: int = 2) -> ProcessPoolExecutor:
    """A pool of processes that share no memory with this one."""
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(params=["threads", "processes", "dask"])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An executor of each kind that a batch accepts."""
    if request.param == "threads":
        with ThreadPoolExecutor(4) as pool:
            yield pool
    elif request.param == "processes":
        with spawned() as pool:
            yield pool
    else:
        with cluster() as client:
            yield client


class cluster:  # noqa: N801 - used as a function
    """A Dask cluster of processes on this machine."""

    def __init__(self, workers: int = 2) -> None:
        self.distributed = pytest.importorskip("distributed")
        self.cluster = self.distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=2,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
        )
        self.client = self.distributed.Client(self.cluster)

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.cluster.close()


def bodies(log: Path) -> Counter[str]:
    """The number of starts of each body."""
    return Counter(log.read_text().split("\n")[:-1]) if log.exists() else Counter()


def rows(n: int) -> list[dict[str, int]]:
    """``n`` rows."""
    return [{"n": number} for number in range(n)]


def mapped(agent: nb.Agent, n: int, store: Any, executor: Any, **options: Any) -> Any:
    """A batch of ``n`` rows."""
    given = {"concurrency": 8, "attended": True, "show": False, **options}
    return nb.map(agent, rows(n), prompt="row {n}", id="b", store=store, executor=executor, **given)


async def test_c482_rows_run_in_workers_and_their_questions_are_answered_here(
    executor: Any, tmp_path: Path
) -> None:
    """No process holds a row that asks; its answer is stored, and any worker continues the row."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    batch = mapped(banker(log), 30, store, executor)
    await asyncio.wait_for(batch, 120)
    assert batch.counts["interrupted"] == 6, batch
    assert batch.counts["completed"] == 24
    assert (await batch.questions.approve()).count == 6
    await until(lambda: batch.counts["completed"] == 30)
    await batch
    assert set(bodies(log).values()) == {1}
    assert len(bodies(log)) == 30
    assert batch["5"].output == "paid"
    again = await asyncio.wait_for(mapped(banker(log), 31, store, executor), 120)
    assert again.counts["interrupted"] + again.counts["completed"] == 31
    assert bodies(log)["look 3"] == 1


@pytest.mark.parametrize("idempotent", [False, True])
async def test_c483_a_worker_that_is_killed_in_a_body_leaves_a_question(
    idempotent: bool, tmp_path: Path
) -> None:
    """An idempotent body runs again without a question; in another pool, every other body starts once."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    agent = banker(log, kills=tmp_path / "killed", idempotent=idempotent)
    batch = mapped(agent, 16, store, spawned)
    await asyncio.wait_for(batch, 120)
    await until(lambda: sum(batch.counts[s] for s in ("completed", "interrupted")) == 16)
    began = bodies(log)
    assert began.pop("look 3") == (2 if idempotent else 1)
    assert (batch["3"].status == "interrupted") is not idempotent
    lost = {key: n for key, n in began.items() if n > 1}
    assert lost == {} or idempotent, (
        lost
    )  # idempotent bodies of the same chunk were killed and run again
    if not idempotent:
        asked = [one for one in batch.questions if one.run.id == "b:3"]
        assert "may or may not have taken effect" in str(asked[0].interrupt.metadata)
    batch.stop()


async def test_c483_a_pool_passed_by_the_caller_cannot_be_recreated_and_the_error_says_so(
    tmp_path: Path,
) -> None:
    """The batch ends with an error that says what to do, and continues with another pool."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    agent = banker(log, kills=tmp_path / "killed", idempotent=True)
    with spawned() as pool, pytest.raises(nb.errors.UsageError, match="one of its processes has"):
        await asyncio.wait_for(mapped(agent, 4, store, pool), 120)
    with spawned() as pool:
        batch = await asyncio.wait_for(mapped(agent, 4, store, pool), 120)
    assert batch.counts["completed"] == 3


def versioned(log: Path, version: str) -> nb.Agent:
    """An agent as a cell defines it; ``version`` changes the body."""
    path = str(log)

    def reply(messages: Any) -> Any:
        last = messages[-1]
        return "done" if last["role"] == "tool" else [nb.ScriptedModel.call("pay", amount=1)]

    agent = nb.Agent(nb.ScriptedModel(reply), name="versioned", policy=[nb.review("pay")])

    @agent.tool
    def pay(amount: int, ctx: nb.ToolContext) -> str:
        with open(path, "a") as file:
            file.write(f"{version} {ctx.context}\n")
        return version

    return agent


@pytest.mark.parametrize(
    ("before", "after"),
    [("threads", "threads"), ("threads", "processes"), ("threads", "here"), ("here", "threads")],
)
async def test_c488_the_same_call_with_an_edited_agent_and_another_executor_uses_them(
    before: str, after: str, tmp_path: Path
) -> None:
    """A waiting batch continues with the agent, context and executor of the last call."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    with ThreadPoolExecutor(2) as first, ThreadPoolExecutor(2) as second, spawned() as processes:
        executors = {"threads": first, "processes": processes, "here": None}
        batch = mapped(versioned(log, "old"), 6, store, executors[before], context="A")
        await asyncio.wait_for(batch, 60)
        assert batch.counts["interrupted"] == 6
        other = second if after == "threads" else executors[after]
        again = mapped(versioned(log, "new"), 8, store, other, context="B")
        assert again is batch
        await until(lambda: batch.counts["interrupted"] == 8)
        assert (await batch.questions.approve()).count == 8
        await until(lambda: batch.counts["completed"] == 8)
        await batch
        used = work_of(batch)
        assert getattr(used, "executor", None) is None or used.executor._pool is other
    assert bodies(log) == {"new B": 8}
    assert sorted([row.key async for row in batch]) == [str(n) for n in range(8)]


async def test_c488_a_worker_that_lacks_something_of_the_edited_agent_ends_the_batch(
    tmp_path: Path,
) -> None:
    """The workers are checked again for the edited agent."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    batch = mapped(versioned(log, "old"), 2, store, Refusing())
    await asyncio.wait_for(batch, 60)
    mapped(versioned(log, "new"), 2, store, Refusing("no disk"))
    with pytest.raises(nb.errors.UsageError, match="worker 7: no disk"):
        await asyncio.wait_for(batch, 60)


class Refusing:
    """An executor that runs every task in this process and can refuse in ``probe``."""

    def __init__(self, told: str = "") -> None:
        self.told = told
        self.names: list[str] = []

    def slots(self) -> int:
        """One slot."""
        return 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
        """Run the task at once."""
        self.names.append(name)
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Always False."""
        return False

    def has_ended(self, error: BaseException) -> bool:
        """Always False."""
        return False

    def renew(self) -> None:
        """Do nothing."""

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """Refuse with the given message, or call ``fn``."""
        return [("worker 7", self.told)] if self.told else [fn(*args)]


def _broken(*_: Any, **__: Any) -> Any:
    raise OSError("it is broken")


def _future(value: Any = None, error: Exception | None = None) -> Callable[..., Future[Any]]:
    """A ``submit`` whose futures have this value or error."""
    future: Future[Any] = Future()
    future.set_result(value) if error is None else future.set_exception(error)
    return lambda *_, **__: future


LOST = {"submit": _future(error=ConnectionError("gone")), "is_lost": lambda _: True}
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a future without a result": ({"submit": _future()}, "None, not the result"),
    "no future": ({"submit": lambda *_, **__: None}, "NoneType"),
    "submit": ({"submit": _broken}, "it is broken"),
    "slots": ({"slots": _broken}, "it is broken"),
    "probe": ({"probe": _broken}, "it is broken"),
    "no reports": ({"probe": lambda *_: None}, "NoneType"),
    "is_lost": ({**LOST, "is_lost": _broken}, "it is broken"),
    "has_ended": ({**LOST, "has_ended": _broken}, "it is broken"),
    "renew": ({**LOST, "renew": _broken}, "it is broken"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_p7_a_broken_executor_ends_its_batch(what: str, tmp_path: Path) -> None:
    """A batch never waits for a row that its executor does not run; the next call continues the batch."""
    log, store, executor = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db"), Refusing()
    broken, named = BROKEN[what]
    for name, method in broken.items():
        setattr(executor, name, method)
    with pytest.raises(nb.errors.RunError, match=named):
        await asyncio.wait_for(mapped(banker(log), 2, store, executor), 30)
    batch = await asyncio.wait_for(mapped(banker(log), 2, store, Refusing()), 60)
    assert batch.counts["left"] == batch.counts["running"] == 0


async def test_c484_a_requirement_that_a_worker_lacks_is_named_before_any_row_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory store, an unpicklable context, a missing key, a wrong executor: no row starts."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    assert isinstance(Refusing(), Executor)
    with pytest.raises(nb.errors.UsageError, match="cannot see this process"):
        await mapped(banker(log), 3, nb.MemoryStore(), Refusing())
    with pytest.raises(nb.errors.UsageError, match="context=, cannot be pickled"):
        await mapped(banker(log), 3, store, Refusing(), context=(n for n in [1]))
    with pytest.raises(nb.errors.UsageError, match=r"worker 7: no disk.*No row was started"):
        await mapped(banker(log), 3, store, Refusing("no disk"))
    with pytest.raises(
        nb.errors.UsageError, match=r"executor= must be a dask.distributed.Client.*got 4"
    ):
        mapped(banker(log), 3, store, 4)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    keyless = nb.Agent("gpt-5", name="banker", store=store)
    with pytest.raises(nb.errors.UsageError, match=r"OPENAI_API_KEY.*No row was started"):
        await mapped(keyless, 3, store, Refusing())
    assert [one for one in store.run_ids() if one.startswith("b:") and "@" not in one] == []
    assert not log.exists()


async def test_c484_requests_of_a_whole_cluster_stay_within_a_models_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts requests in any window, with later workers, a killed one, and an inner agent."""
    monkeypatch.setattr(shares, "LENGTH", 5.0)
    monkeypatch.setattr(
        shares, "MARGIN", 2.0
    )  # seconds that a busy machine needs to serve a request
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    came: list[float] = []

    def reply(body: dict[str, Any]) -> Reply:
        came.append(time.monotonic())
        said = body["messages"][-1]
        is_asked = said["role"] == "user" and "row" in str(said["content"])
        return Reply(calls=[("helper", {"prompt": "help"})]) if is_asked else Reply("done")

    with ChatServer(reply) as server, cluster(0) as client:
        limits = nb.RateLimit(rpm=20)
        helper = nb.Agent(nb.OpenAIModel("m", base_url=server.url, limits=limits), name="helper")
        agent = nb.Agent(
            nb.OpenAIModel("m", base_url=server.url, limits=limits),
            name="asks",
            tools=[helper.as_tool()],
        )
        store = nb.SQLiteStore(tmp_path / "runs.db")
        batch = mapped(agent, 12, store, client, concurrency=12)
        client.cluster.scale(2)
        await until(lambda: len(came) >= 5)
        client.cluster.scale(4)
        client.wait_for_workers(4, timeout=60)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        await asyncio.wait_for(batch, 120)
        assert batch.counts["completed"] + batch.counts["interrupted"] == 12, batch
    assert len(came) >= 30
    within = [sum(at <= each < at + 5.0 for each in came) for at in came]
    assert max(within) <= 20, within


def waiter(log: Path, door: Path, *, idempotent: bool = True) -> nb.Agent:
    """Each row's body logs its row and process; row 0 waits until the file ``door`` exists."""
    path, opened = str(log), str(door)

    def reply(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        n = int(messages[-1]["content"][0]["text"].split()[-1])
        return [nb.ScriptedModel.call("wait", n=n)]

    agent = nb.Agent(nb.ScriptedModel(reply), name="waiter")

    @agent.tool(idempotent=idempotent)
    def wait(n: int) -> str:
        with open(path, "a") as file:
            file.write(f"wait {n} {os.getpid()}\n")
        while n == 0 and not os.path.exists(opened):
            time.sleep(0.05)
        return "ok"

    return agent


async def test_c486_a_body_whose_task_is_cancelled_is_not_run_again_while_its_process_lives(
    tmp_path: Path,
) -> None:
    """A lost connection does not restart the body either: a missing task does not mean that its process has ended."""
    log, door, store = tmp_path / "log", tmp_path / "door", nb.SQLiteStore(tmp_path / "runs.db")
    with cluster(2) as client:
        batch = mapped(waiter(log, door), 4, store, client, concurrency=4)
        await until(lambda: any(line.startswith("wait 0 ") for line in bodies(log)))
        futures = [key for key in client.futures if str(key).startswith("b:")]
        client.cancel([_future(client, key) for key in futures], force=True)
        await until(lambda: batch.counts["completed"] == 3)
        await asyncio.sleep(3)  # a second body would have started by now
        assert batch.counts["running"] == 1
        door.touch()
        await asyncio.wait_for(batch, 60)
    assert batch.counts["completed"] == 4
    assert sorted(line.split()[1] for line in bodies(log)) == ["0", "1", "2", "3"]
    assert set(bodies(log).values()) == {1}


def _future(client: Any, key: Any) -> Any:
    return pytest.importorskip("distributed").Future(key, client)


@pytest.mark.parametrize(
    ("name", "is_lost", "has_ended"),
    [
        ("KilledWorker", True, True),
        ("FutureCancelledError", True, False),
        ("FutureLostError", True, False),
        ("CommClosedError", True, False),
        ("ValueError", False, False),
    ],
)
def test_c486_only_a_killed_worker_is_a_process_that_ended(
    name: str, is_lost: bool, has_ended: bool
) -> None:
    """After a lost connection or a cancelled task, the row is submitted again without taking its run over."""

    class Client:
        __module__ = "distributed.client"
        asynchronous = False

    dask, error = executor_of(Client()), type(name, (Exception,), {})()
    assert (dask.is_lost(error), dask.has_ended(error)) == (is_lost, has_ended)
    with ThreadPoolExecutor(1) as threads:
        pool = executor_of(threads)
    assert pool.has_ended(BrokenProcessPool())
    assert not pool.has_ended(CancelledError())
    assert pool.is_lost(CancelledError())


def fast_beats() -> None:
    """Make this process send and miss heartbeats 20 times as fast."""
    heartbeat.BEAT = 0.25


async def test_c487_a_row_whose_process_is_frozen_is_stuck_and_a_person_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row does not run again by itself; other rows end, and awaiting the batch returns."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.25)
    log, door, store = tmp_path / "log", tmp_path / "door", nb.SQLiteStore(tmp_path / "runs.db")
    pool = ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn"), initializer=fast_beats
    )
    batch = mapped(waiter(log, door, idempotent=False), 12, store, pool, concurrency=4)
    await until(lambda: any(line.startswith("wait 0 ") for line in bodies(log)))
    await until(lambda: batch.counts["completed"] >= 8)
    frozen = next(int(line.split()[2]) for line in bodies(log) if line.startswith("wait 0 "))
    assert batch.counts["stuck"] == 0
    suspend(frozen, tmp_path / "runs.db")
    try:
        await asyncio.wait_for(batch, 60)
        assert batch.counts["stuck"] == 1, batch
        assert batch.counts["running"] == 0
        assert "1 stuck" in repr(batch)
        assert batch["0"].status == "running"
        assert f"wait is running in process {frozen}" in batch["0"].stuck
        assert "take it over" in repr(batch["0"])
        run = await batch["0"].open(take_over=True, show=False, attended=True)
        await run.settled()
        await until(lambda: batch.counts["interrupted"] == 1 and batch.counts["stuck"] == 0)
        await next(iter(batch.questions)).answer(nb.Respond("it had worked"))
        await until(lambda: batch.counts["completed"] == 12)
        await batch
    finally:
        os.kill(frozen, signal.SIGCONT)
        door.touch()
        pool.shutdown()
    assert batch.counts["completed"] == 12
    assert set(bodies(log).values()) == {1}


async def test_c487_nobody_there_is_told_of_a_frozen_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script ends with an error that says what to do; when the process wakes, its row continues."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.25)
    log, door, store = tmp_path / "log", tmp_path / "door", nb.SQLiteStore(tmp_path / "runs.db")
    pool = ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=fast_beats
    )
    batch = mapped(waiter(log, door), 1, store, pool, attended=False)
    await until(lambda: bool(bodies(log)))
    frozen = int(next(iter(bodies(log))).split()[2])
    suspend(frozen, tmp_path / "runs.db")
    try:
        with pytest.raises(nb.HumanInputRequired, match=r"open\(take_over=True\)"):
            await asyncio.wait_for(batch, 60)
        assert batch.status == "waiting"
    finally:
        os.kill(frozen, signal.SIGCONT)
        door.touch()
    await until(lambda: batch.counts["completed"] == 1)
    pool.shutdown()
    await batch


async def test_c489_a_copy_of_the_database_and_other_versions_are_named_before_any_row_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker must read the driver's last write, and have the same Python and nbagent versions."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    first = mapped(banker(log), 1, store, None)
    await first
    shutil.copy(tmp_path / "runs.db", tmp_path / "copy.db")

    class Elsewhere(Refusing):
        """A worker with a copy of the file under the same name."""

        def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
            driver, kit = args
            (asked, models) = pickle.loads(kit)
            copy = replace(asked, store=nb.SQLiteStore(tmp_path / "copy.db"))
            return [fn(driver, pickle_of((copy, models)))]

    with pytest.raises(nb.errors.UsageError, match="does not have what was just written"):
        await mapped(banker(log), 3, store, Elsewhere())
    driver = workers.this_driver(store)
    assert "has 3.1" in workers.probe(driver._replace(python=(3, 1)), b"")[1]
    monkeypatch.setattr(workers, "_version", lambda: "9.9")
    assert "it has nbagent 9.9, and" in workers.probe(driver, b"")[1]


def pickle_of(given: Any) -> bytes:
    """A value pickled like a kit."""
    return bytes(pytest.importorskip("cloudpickle").dumps(given))


async def test_c489_the_key_of_an_inner_agents_model_is_looked_for_in_each_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch fails before a row starts, not when the first row calls the inner agent."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    inner = nb.Agent("gpt-5", name="helper")
    agent = nb.Agent(nb.ScriptedModel(["done"]), name="outer", tools=[inner.as_tool()])
    with pytest.raises(nb.errors.UsageError, match=r"OPENAI_API_KEY.*No row was started"):
        await mapped(agent, 3, nb.SQLiteStore(tmp_path / "runs.db"), Refusing())


async def test_c489_a_process_that_joins_later_is_looked_at_before_its_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first probe missed the process, so the batch ends with an error, and its row does not start."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    wrong = tmp_path / "joined later"

    class Growing(Refusing):
        """The probe reaches a good worker; a wrong one joins for the second task."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
            if self.names:
                driver = args[0]._replace(nonce=str(wrong))
                args = (driver, *args[1:])
            return super().submit(fn, *args, name=name)

    batch = mapped(banker(log), 4, store, Growing(), concurrency=2)
    with pytest.raises(nb.errors.RunError, match="does not have what was just written"):
        await asyncio.wait_for(batch, 60)
    assert batch.counts["completed"] == 1
    assert batch.counts["running"] == 0
    assert [one for one in store.run_ids() if one in ("b:2", "b:3")] == []


async def test_c489_a_worker_holds_two_connections_at_most(postgres: Path, tmp_path: Path) -> None:
    """One connection for all rows and one that listens, counted by the server; the driver has up to ten."""
    log, door = tmp_path / "log", tmp_path / "door"
    url = servers.database(postgres)
    most = 0
    store = nb.SQLStore(url)
    with spawned(3) as pool:
        batch = mapped(waiter(log, door), 60, store, pool, concurrency=48)
        until_ = time.monotonic() + 30
        with psycopg.connect(url) as look:
            look.autocommit = True
            while batch.counts["completed"] < 40 and time.monotonic() < until_:
                await asyncio.sleep(0.05)
                count = "select count(*) from pg_stat_activity where datname = current_database()"
                most = max(most, look.execute(count).fetchone()[0] - 1)
        door.touch()
        await asyncio.wait_for(batch, 60)
    store.close()
    assert batch.counts["completed"] == 60
    assert 3 <= most <= 3 * 2 + 10, most
    print(f"{most} connections of 3 workers and the driver")


async def test_c485_c490_under_attack_every_body_begins_once_except_what_a_person_restarts(
    postgres: Path, tmp_path: Path
) -> None:
    """Workers and the driver are killed, another process answers, and the cluster restarts, stops and grows."""
    pytest.importorskip("distributed")
    attack = Attack(2000, 300, 50) if os.environ.get("NBAGENT_THOROUGH") else Attack()
    outcome = await attacked(attack, postgres, tmp_path / "log")
    print(outcome.kills, len(outcome.restarted), round(outcome.seconds))
    assert wrong_with(attack, outcome) == []
    assert outcome.kills > 0


def test_an_executor_is_recognized_by_its_methods() -> None:
    """Pools, functions that make one, and objects with the methods are accepted."""
    with ThreadPoolExecutor(3) as pool:
        assert executor_of(pool).slots() == 3
    refusing = Refusing()
    assert executor_of(refusing) is refusing
    with pytest.raises(
        nb.errors.UsageError, match=r"return a concurrent\.futures\.Executor, got int"
    ):
        executor_of(lambda: 3)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_c482_a_pool_of_forked_processes_runs_rows_too(method: str, tmp_path: Path) -> None:
    """A fork has the parent's loop, but not the loop's thread; it starts a loop of its own."""
    log, store = tmp_path / "log", nb.SQLiteStore(tmp_path / "runs.db")
    nb.Agent(nb.ScriptedModel(["first"])).run_sync("go")  # starts the private loop
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        batch = mapped(banker(log), 4, store, pool, attended=False, answers={"pay": True})
        batch.wait()
    assert batch.counts["completed"] == 4


async def test_c485_a_stop_reaches_tasks_that_wait_in_the_pool(tmp_path: Path) -> None:
    """Their rows start neither then nor later."""
    log, door, store = tmp_path / "log", tmp_path / "door", nb.SQLiteStore(tmp_path / "runs.db")
    pool = spawned(1)
    agent = waiter(log, door)
    batch = mapped(agent, 40, store, pool, concurrency=40)
    await until(lambda: bool(bodies(log)))
    batch.stop()
    with pytest.raises(nb.errors.RunError):
        await batch
    started = len(store.run_ids())
    door.touch()
    await asyncio.to_thread(pool.shutdown)
    assert len(store.run_ids()) == started
