"""``after=`` a run that has not ended: the next run is queued behind it, as with Run All."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import RunFailed, RunQueued
from nbagent.core.base.model import Usage
from nbagent.core.base.process import this_process
from nbagent.core.call.threads import private_loop
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.memory import memory_of_process
from nbagent.core.run import polling, session
from nbagent.core.run.host import Place, current_host
from nbagent.core.run.run import session_of
from nbagent.core.run.session import Session, find_session
from tests.until import until

call = nb.ScriptedModel.call


def asking(*answers: Any, **options: Any) -> nb.Agent:
    """An agent that asks first and then sends these answers."""
    agent = nb.Agent(nb.ScriptedModel([call("ask", question="Which?"), *answers]), **options)
    agent.add(nb.interrupt_tool("ask", output=str))
    return agent


def kinds(run: nb.Run) -> list[str]:
    """The types of the stored events."""
    return [event.type for event in run.journal]


async def test_a_run_that_another_handle_failed_waits_no_longer_for_its_bodies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that waits for its body, to fail then, stops: the run behind ends, and a retry has its own driver."""
    for module in (session, polling):
        monkeypatch.setattr(module, "POLL", 3600.0)  # the run behind is told, and does not poll
    was_stopped = asyncio.Event()

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            was_stopped.set()
        return "never"

    inner = nb.Agent(nb.ScriptedModel(["never"]), name="inner")
    model = nb.ScriptedModel([[call("slow"), call("inner", prompt="go")]], usage=Usage(30, 7))
    budget = nb.Budget(tokens=20)
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(model, tools=[slow, inner.as_tool()], budget=budget, store=store)
    run = agent.run("go", attended=True)
    behind = agent.run("next", after=run, attended=True)
    await until(lambda: run.interrupts)
    run.reject(run.interrupts[0])
    await until(lambda: session_of(run)._driver._exceeded is not None)
    other = Journal(run.id, nb.SQLiteStore(tmp_path / "runs.db"))
    other.catch_up()
    failure = RunFailed(at=0.0, error="BudgetExceeded", message="no tokens", owner=this_process())
    other.commit(lambda _: [failure])
    session_of(run).journal.catch_up()  # as a refused write does, before it follows
    session_of(run).follow()
    with pytest.raises(nb.errors.RunError, match="The previous run failed"):
        await asyncio.wait_for(behind, 10)
    with pytest.raises(nb.errors.RunError, match="no tokens"):
        await asyncio.wait_for(run, 10)
    assert was_stopped.is_set()
    run.retry()
    await until(lambda: run.interrupts)
    assert [asked.kind for asked in run.interrupts] == ["budget"]
    assert session_of(run).executing == ["slow"]
    await run.cancel()


async def test_c145_a_chain_of_runs_continues_in_order_once_the_first_is_answered():
    """Each run starts with the whole conversation; prompts are stored at once."""
    agent = asking(*(str(n) for n in range(60)))
    runs = [agent.run("p0", attended=True)]
    for n in range(1, 60):
        runs.append(agent.run(f"p{n}", after=runs[-1], attended=True))
    await runs[0].settled()
    await runs[-1].settled()
    assert [run.status for run in runs] == ["interrupted", *["queued"] * 59]
    assert kinds(runs[-1]) == ["run_queued"]
    assert "queued behind the previous run, which is interrupted" in repr(runs[-1])
    for pending in ("raise", "reject"):
        with pytest.raises(nb.errors.RunNotFinished, match="has not ended"):
            agent.run("x", after=runs[-1], pending=pending)
    with pytest.raises(nb.errors.RunNotFinished, match="queued"):
        _ = runs[-1].result
    runs[0].respond(runs[0].interrupts[0], "this")
    assert (await asyncio.wait_for(runs[-1], 30)).text == "59"
    assert [(await run).text for run in runs] == [str(n) for n in range(60)]
    assert kinds(runs[1])[:2] == ["run_queued", "run_started"]
    said = [m["content"][0]["text"] for m in runs[-1].messages if m["role"] == "user"]
    assert said == [f"p{n}" for n in range(60)]


async def test_c145_a_run_queued_behind_a_working_one_waits_for_it():
    """A queued run waits for any running call; queued time counts toward no budget."""
    gate = asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return "done"

    model = nb.ScriptedModel([call("slow"), "one", "two"])
    agent = nb.Agent(model, tools=[slow], budget=nb.Budget(seconds=60))
    first = agent.run("a")
    second = agent.run("b", after=first)
    await until(lambda: first.status == "running" and bool(session_of(first).executing))
    assert second.status == "queued"
    with pytest.raises(nb.errors.RunNotFinished, match="pending='wait'"):
        agent.run("c", after=first, pending="raise")
    gate.set()
    assert (await second).text == "two"
    assert session_of(second).state.active < 30


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_c226_a_queued_run_ends_with_the_failed_run_before_it(end):
    """All queued runs end with the reason, and the model gets no further request."""
    agent = asking()  # the script is used up after the question: the next request fails
    first = agent.run("a", attended=True)
    second = agent.run("b", after=first, attended=True)
    third = agent.run("c", after=second, attended=True)
    await first.settled()
    if end == "cancelled":
        await first.cancel()
    else:
        first.respond(first.interrupts[0], "this")
    kind = nb.errors.Cancelled if end == "cancelled" else nb.errors.RunError
    reasons = []
    for run in (second, third):
        with pytest.raises(kind, match=r"[Tt]he (previous run|run before it)") as caught:
            await asyncio.wait_for(run, 10)
        assert run.status == end
        reasons.append(str(caught.value).replace(run.id, ""))
    assert reasons[0] == reasons[1], "the first reason, however long the queue"
    assert len(agent.model.requests) == (1 if end == "cancelled" else 2)


async def test_c226_a_run_that_failed_with_the_previous_one_is_retried_after_it():
    """Both are retried, in any order: the later one waits again."""
    fails = [True]

    def says(_messages: Any) -> str:
        if fails:
            raise nb.errors.ModelError("the server is away")
        return "fine"

    agent = nb.Agent(nb.ScriptedModel(says))
    first = agent.run("a")
    second = agent.run("b", after=first)
    with pytest.raises(nb.errors.RunError, match=r"The previous run failed: .*away"):
        await second
    fails.clear()
    first.retry()
    second.retry()
    assert (await asyncio.wait_for(second, 10)).text == "fine"
    assert [m["role"] for m in second.messages] == ["user", "assistant"] * 2


async def test_c227_a_queued_run_can_be_cancelled_alone():
    """The previous run continues, and the runs behind end too."""
    agent = asking("said")
    first = agent.run("a", attended=True)
    second = agent.run("b", after=first, attended=True)
    third = agent.run("c", after=second, attended=True)
    await first.settled()
    await second.cancel()
    assert (first.status, second.status) == ("interrupted", "cancelled")
    with pytest.raises(nb.errors.Cancelled, match=r"[Tt]he (previous run|run before it)"):
        await asyncio.wait_for(third, 10)
    first.respond(first.interrupts[0], "this")
    assert (await first).text == "said"
    assert kinds(second) == ["run_queued", "run_cancelled"]
    with pytest.raises(nb.errors.UsageError, match="never started"):
        agent.run("d", after=second)


async def test_c227_a_message_for_a_queued_run_follows_its_first_answer():
    """``pending="queue"`` loses no message."""
    agent = asking("one", "two", "three")
    first = agent.run("a", attended=True)
    second = agent.run("b", after=first, attended=True)
    await first.settled()
    assert agent.run("b, please", after=second, pending="queue") is second
    first.respond(first.interrupts[0], "this")
    assert (await second).text == "three"


async def test_c227_without_a_person_awaiting_a_queued_run_names_the_question_of_the_first():
    """Waiting would never end; both runs can still be answered later."""
    agent = asking("one", "two", "three")
    first = agent.run("a")
    second = agent.run("b", after=first)
    third = agent.run("c", after=second)
    with pytest.raises(nb.HumanInputRequired, match="Which") as caught:
        await asyncio.wait_for(third, 10)
    assert caught.value.run_id == first.id
    await third.settled()
    first.respond(first.interrupts[0], "this")
    assert (await third).text == "three"


def test_c227_synchronous_code_waits_for_earlier_runs_too():
    """A thread without a loop waits; another thread answers meanwhile."""
    agent = asking("one", "two")
    first = agent.run("a", attended=True)

    def answer() -> None:
        with_question = asyncio.new_event_loop()
        with_question.run_until_complete(until(lambda: bool(first.interrupts)))
        with_question.close()
        first.respond(first.interrupts[0], "this")

    thread = threading.Thread(target=answer)
    thread.start()
    assert agent.run_sync("b", after=first, attended=True).text == "two"
    thread.join()


async def test_c227_a_loop_about_to_block_moves_waiting_runs_away_and_refuses_a_working_one():
    """A run that works on the blocked loop could never finish, so waiting is refused."""
    gate = asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return "done"

    agent = nb.Agent(nb.ScriptedModel([call("slow"), "one", "two"]), tools=[slow])
    first = agent.run("a")
    await until(lambda: bool(session_of(first).executing))
    with pytest.raises(nb.errors.UsageError, match="await"):
        agent.run_sync("b", after=first)
    gate.set()
    await first

    asks = asking("one", "two")
    paused = asks.run("a", attended=True)
    await paused.settled()
    timer = threading.Timer(0.05, lambda: paused.respond(paused.interrupts[0], "this"))
    timer.start()
    assert asks.run_sync("b", after=paused, attended=True).text == "two"


async def test_c228_a_queue_of_runs_continues_where_both_are_opened(tmp_path: Path):
    """Handles find each other's run through the store, and the second run starts once."""
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path) as store:
        agent = asking("one", "two", store=store)
        first = agent.run("a", attended=True)
        second = agent.run("b", after=first, attended=True)
        await second.settled()
        with nb.SQLiteStore(path) as elsewhere:
            again = asking("one", "two", store=elsewhere)
            follows = await nb.open_run(second.id, agent=again, attended=True)
            assert follows.status == "queued"
            first.respond(first.interrupts[0], "this")
            assert (await asyncio.wait_for(follows, 20)).text in ("one", "two")
            await asyncio.wait_for(second, 20)
        assert kinds(second).count("run_started") == 1


async def test_c228_a_queued_run_whose_previous_run_is_missing_says_so_and_can_be_cancelled():
    """The run waits for a missing run, so nobody starts it with half a conversation."""
    agent = nb.Agent(nb.ScriptedModel(["never"]))
    queued = RunQueued(at=1.0, agent="agent", model="m", after="nowhere", text="b", elsewhere=True)
    memory_of_process.append("waits", [queued], 0)
    run = await nb.open_run("waits", agent=agent, attended=True)
    with pytest.raises(nb.errors.UsageError, match="nowhere"):
        await asyncio.wait_for(run, 10)
    assert run.status == "queued"
    await run.cancel()
    assert (kinds(run), run.status) == (["run_queued", "run_cancelled"], "cancelled")


async def test_a_run_that_could_not_be_stored_is_in_no_queue():
    """The store was full when the run was queued: the end of the previous run starts nothing."""
    told: list[Any] = []

    class Full(nb.MemoryStore):
        def append(self, run_id: str, events: Any, expected: int) -> None:
            if isinstance(events[0], RunQueued):
                raise OSError("no space left on device")
            super().append(run_id, events, expected)

    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: told.append(what))
    agent = asking("done", store=Full())
    first = agent.run("first", attended=True)
    await first.settled()
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        agent.run("second", after=first, attended=True)
    first.respond(first.interrupts[0], "this")
    assert (await first).text == "done"
    await asyncio.sleep(0)
    assert told == []


def test_threads_can_start_runs_while_another_searches_for_one():
    """Each search sees a consistent list of runs, although other runs start meanwhile."""
    spec = session_of(nb.Agent(nb.ScriptedModel(["x"])).run("go")).spec
    stop, failed = threading.Event(), list[BaseException]()

    def look() -> None:
        try:
            while not stop.is_set():
                find_session("none", None)
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    looking = threading.Thread(target=look)
    sys.setswitchinterval(1e-6)
    try:
        looking.start()
        place = Place(current_host(), attended=True, loop=private_loop())
        sessions = [Session(spec, Journal(f"r{n}", None), place) for n in range(300)]
    finally:
        sys.setswitchinterval(before)
        stop.set()
        looking.join()
    assert failed == []
    assert len(sessions) == 300


_BOTH = """
import asyncio, os, sys
import nbagent as nb

async def main():
    model = nb.ScriptedModel([nb.ScriptedModel.call("ask", question="Which?")])
    agent = nb.Agent(model, store=nb.SQLiteStore(sys.argv[1]), tools=[nb.interrupt_tool("ask", output=str)])
    first = agent.run("a", attended=True)
    second = agent.run("b", after=first, attended=True)
    await second.settled()
    print(first.id, second.id, flush=True)
    os._exit(9)

asyncio.run(main())
"""


async def test_c228_a_queue_of_runs_survives_its_process(tmp_path: Path):
    """In any order of opening both runs continue after the answer; a run can name a question of an unopened run."""
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", _BOTH, str(path)]
    told = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    first_id, second_id = told.stdout.split()
    with nb.SQLiteStore(path) as store:
        agent = nb.Agent(nb.ScriptedModel(["one", "two"]), store=store)
        agent.add(nb.interrupt_tool("ask", output=str))
        second = await nb.open_run(second_id, agent=agent, attended=True)
        with pytest.raises(nb.HumanInputRequired, match="Which") as caught:
            await (await nb.open_run(second_id, agent=agent, attended=False))
        assert caught.value.run_id == first_id
        first = await nb.open_run(first_id, agent=agent, attended=True)
        first.respond(first.interrupts[0], "this")
        assert (await asyncio.wait_for(second, 20)).text == "two"
        assert kinds(second).count("run_started") == 1
