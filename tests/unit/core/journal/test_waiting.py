"""Slow stores: the event loop continues, and no event has an effect before it is stored."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import (
    Resolved,
    RunCancelled,
    RunFailed,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.run.run import session_of
from nbagent.core.stored.opening import answer_stored
from tests.until import PATIENCE, turns, until

from .test_storing import APPENDS, make_agent

call = nb.ScriptedModel.call


class Far:
    """A store on the other end of a network: one append takes as long as the test says."""

    def __init__(self) -> None:
        self.near = nb.MemoryStore()
        self.held: Any = lambda _events, _count: False
        """Whether to hold this append, by its events and number."""
        self.count = 0
        self.is_held = False
        self.released = threading.Event()

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events, after a wait if held."""
        now, self.count = self.count, self.count + 1
        if self.held(events, now):
            self.is_held = True
            assert self.released.wait(PATIENCE)
        self.near.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """The stored events of a run."""
        return self.near.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The ids of the stored runs."""
        return self.near.run_ids()


def hold_first(kind: type[StoredEvent]) -> Any:
    """Hold appends of such an event."""
    return lambda events, _count: any(isinstance(event, kind) for event in events)


def arrived(store: Far, run: nb.Run) -> list[StoredEvent]:
    return store.near.read(run.id) if run.id in store.near.run_ids() else []


@pytest.mark.parametrize("slow", range(APPENDS))
async def test_the_loop_continues_and_no_unstored_event_has_an_effect(slow: int) -> None:
    """During a slow append no body starts and no event is sent; the run ends as usual."""
    done: list[str] = []
    heard: list[Any] = []
    store, agent = Far(), make_agent(done)
    store.held = lambda _events, count: count == slow
    run = agent.run("go", store=store, attended=True)
    heard += run.subscribe(heard.append)
    person = asyncio.create_task(approve(run))
    await until(lambda: store.is_held)  # returns only if the loop continues
    await turns()
    stored = [e.type for e in arrived(store, run)]
    assert [e.type for e in heard if isinstance(e, StoredEvent)] == stored
    assert [e.type for e in run.journal] == stored
    assert len(done) <= stored.count("tool_started")
    store.released.set()
    await person
    assert (await run).text == "done"
    assert sorted(done) == ["gate", "plain"]


async def approve(run: nb.Run) -> None:
    """Restart the first question."""
    await until(lambda: run.status == "interrupted")
    await run.restart(run.interrupts[0])


async def test_of_two_answers_that_are_being_stored_one_counts() -> None:
    """The second caller gets a ``Conflict``."""
    store, done = Far(), list[str]()
    run = make_agent(done).run("go", store=store, attended=True)
    await until(lambda: run.status == "interrupted" and "plain" in done)
    store.held = hold_first(Resolved)
    first = run.restart(run.interrupts[0])
    second = run.reject(run.interrupts[0])
    await until(lambda: store.is_held)
    assert "being stored" in repr(first)
    assert run.status == "interrupted"
    store.released.set()
    await first
    with pytest.raises(nb.Conflict, match="already answered"):
        await second
    assert (await run).text == "done"
    assert sum(isinstance(event, Resolved) for event in run.journal) == 1


async def test_a_result_that_waits_to_be_stored_is_kept_when_the_run_is_stopped() -> None:
    """The cancel is stored, and takes effect, after the result."""
    store, done = Far(), list[str]()
    store.held = hold_first(ToolFinished)
    run = make_agent(done).run("go", store=store, attended=True)
    await until(lambda: store.is_held)
    stopping = asyncio.create_task(run.cancel())
    await turns()
    assert not stopping.done()
    store.released.set()
    await stopping
    assert run.status == "cancelled"
    kinds = [type(event) for event in arrived(store, run)]
    assert ToolFinished in kinds
    assert kinds[-1] is RunCancelled


async def test_a_claim_that_waits_to_be_stored_is_dropped_when_the_run_is_stopped() -> None:
    """A claim that waits behind another claim is not stored."""
    store = Far()
    started: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([[call("one"), call("two")], "done"]))

    @agent.tool
    async def one() -> str:
        started.append("one")
        return "1"

    @agent.tool
    async def two() -> str:
        started.append("two")
        return "2"

    store.held = hold_first(ToolStarted)
    run = agent.run("go", store=store, attended=True)
    await until(lambda: store.is_held)
    stopping = asyncio.create_task(run.cancel())
    await turns()
    store.released.set()
    await stopping
    begun = [e for e in arrived(store, run) if isinstance(e, ToolStarted)]
    assert len(begun) == 1  # the other claim waited behind it
    assert started == []


async def test_a_run_whose_start_cannot_be_stored_says_so() -> None:
    """No caller waits forever for a run that never started."""
    store = Far()

    def fails(*_: object) -> None:
        assert store.released.wait(PATIENCE)
        raise OSError("the network is gone")

    store.held = fails
    run = make_agent([]).run("go", store=store)
    assert run.status == "running"
    store.released.set()
    with pytest.raises(nb.errors.StoreError, match="the network is gone"):
        await run


def locked(path: Path) -> sqlite3.Connection:
    """Another program that has locked the file."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    return other


async def test_a_locked_file_blocks_no_loop(tmp_path: Path) -> None:
    """While another program writes, the loop continues; the answer is stored afterwards."""
    done: list[str] = []
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = make_agent(done).run("go", store=store, attended=True)
        await run.settled()
        with closing(locked(store.path)) as other:
            answer = run.restart(run.interrupts[0])
            await turns()
            assert "being stored" in repr(answer)
            assert "gate" not in done
            assert run.journal[-1].type == "interrupted"
            other.execute("rollback")
        await answer
        assert (await run).text == "done"


async def test_a_file_that_stays_locked_leaves_the_question_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer raises, once; the question can be answered again, also before the writing thread goes on."""

    def set_exception(future: Future[Any], error: BaseException) -> None:
        real(future, error)
        time.sleep(0.05)

    real = Future.set_exception
    monkeypatch.setattr(Future, "set_exception", set_exception)
    done: list[str] = []
    with nb.SQLiteStore(tmp_path / "runs.db", timeout=0.1) as store:
        run = make_agent(done).run("go", store=store, attended=True)
        await run.settled()
        answer = pytest.raises(nb.errors.StoreError, match="another process has locked it")
        with closing(locked(store.path)), answer:
            await run.restart(run.interrupts[0])
        assert run.status == "interrupted"
        run.restart(run.interrupts[0])
        assert (await run).text == "done"
    assert done == ["plain", "gate"]


def test_a_thread_without_a_loop_waits_itself(tmp_path: Path) -> None:
    """In a script, an answer is stored when the call returns, or raises."""
    with nb.SQLiteStore(tmp_path / "runs.db", timeout=0.1) as store:
        agent = make_agent([])
        run = agent.run("go", store=store, attended=True)
        asyncio.run(asyncio.wait_for(_settled(run), PATIENCE))
        with closing(locked(store.path)), pytest.raises(nb.errors.StoreError, match="locked"):
            run.restart(run.interrupts[0])
        assert run.restart(run.interrupts[0]).event.type == "resolved"
        assert run.wait().text == "done"


async def _settled(run: nb.Run) -> None:
    await run.settled()


async def test_waiting_appends_keep_their_order() -> None:
    """Many writes at once: each event is stored once, in the order of the requests."""
    store = Far()
    store.held = lambda _events, count: count == 0
    journal = Journal("r", store)
    first = nb.Agent(nb.ScriptedModel(["done"])).run("go", store=nb.MemoryStore())
    await first
    event = first.journal[0]
    made = [event.model_copy(update={"agent": f"{n}"}) for n in range(50)]
    written = [journal.submit(lambda _state, e=e: [e]) for e in made]  # type: ignore[misc]
    assert not any(future.done() for future in written)
    store.released.set()
    await asyncio.gather(*map(asyncio.wrap_future, written))
    assert [e.agent for e in journal.read()] == [e.agent for e in made]  # type: ignore[union-attr]


async def test_a_waiter_learns_that_its_answer_was_not_stored(tmp_path: Path) -> None:
    """Awaiting the run raises that error; the run continues with the next answer."""
    with nb.SQLiteStore(tmp_path / "runs.db", timeout=0.1) as store:
        run = await make_agent([]).run("go", store=store).settled()
        with closing(locked(store.path)):
            run.restart(run.interrupts[0])
            with pytest.raises(nb.errors.StoreError, match="locked"):
                await run
        run.restart(run.interrupts[0])
        assert (await run).text == "done"


async def test_a_result_that_a_locked_file_rejected_is_known_only_to_a_local_retry(
    tmp_path: Path,
) -> None:
    """The failure is a ``StoreError``, with which a retry in another process refuses."""
    paid: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([call("pay"), "done"]))
    with nb.SQLiteStore(tmp_path / "runs.db", timeout=0.1) as store, ExitStack() as stack:

        @agent.tool
        async def pay() -> str:
            paid.append("paid")
            stack.enter_context(closing(locked(store.path)))
            return "receipt"

        run = agent.run("go", store=store)
        with pytest.raises(nb.errors.StoreError, match="locked"):
            await run
        stack.close()
        failed = run.journal[-1]
        assert isinstance(failed, RunFailed)
        assert failed.error == "StoreError"
        assert (await run.retry()).text == "done"
    assert paid == ["paid"]


@pytest.mark.parametrize("how", ["receipt", "by its record"])
async def test_cancelling_the_wait_for_an_answer_does_not_withdraw_it(how: str) -> None:
    """The answer is stored, and the run continues with it to its end."""
    store, done = Far(), list[str]()
    run = make_agent(done).run("go", store=store, attended=True)
    await until(lambda: run.status == "interrupted" and "plain" in done)
    store.held = hold_first(Resolved)
    if how == "receipt":
        waits: Any = wait_for(run.restart(run.interrupts[0]))
    else:
        journal, asked = Journal(run.id, store), run.interrupts[0]
        waits = answer_stored(journal, asked.id, nb.Restart(), by="code")
    waiting = asyncio.create_task(waits)
    await until(lambda: store.is_held)
    waiting.cancel()
    await asyncio.wait([waiting])
    store.released.set()
    assert (await asyncio.wait_for(run, PATIENCE)).text == "done"
    assert "gate" in done


async def wait_for(receipt: Any) -> None:
    """Wait as a person does who may give up."""
    await receipt


async def test_a_lost_call_beside_a_deadline_is_asked_about_on_the_loop_of_the_run() -> None:
    """The store reports from its thread; timers belong to the loop."""
    gone, store = this_process().replace(":", ":1", 1), Far()
    agent = nb.Agent(nb.ScriptedModel([[call("gate"), call("send")], "done"]), name="office")

    @agent.tool
    def send() -> str:
        return "sent"

    @agent.tool
    async def gate(ctx: nb.ToolContext) -> str:
        ctx.interrupt({"m": 1}, expires_in=600)

    begun = agent.run("go", attended=True, show=False)
    await begun.settled()
    events: list[Any] = [e for e in begun.journal if not isinstance(e, ToolFinished)]
    store.near.append(
        "r",
        [e.model_copy(update={"owner": gone}) if getattr(e, "owner", "") else e for e in events],
        0,
    )
    asyncio.get_running_loop().set_debug(True)  # refuses timers from other threads
    run = await nb.open_run("r", agent=agent, store=store, attended=True, show=False)
    await until(lambda: "lost" in [i.kind for i in run.interrupts])
    await run.settled()
    assert session_of(run).error is None
    assert sorted(i.kind for i in run.interrupts) == ["lost", "tool"]
    await run.cancel()


async def test_cancelled_waiters_are_removed_from_every_list() -> None:
    """Repeated waits on a run do not pile up."""
    run = make_agent([]).run("go", attended=True, show=False)
    await run.settled()
    for _ in range(3):
        waiting = session_of(run).when_over()
        assert waiting.cancel()
    assert session_of(run)._waiting == ()
    await run.cancel()
