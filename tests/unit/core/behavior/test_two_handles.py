"""Two handles on one run: both may drive the run, and no work is done twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    RunCancelled,
    RunFailed,
    RunTaken,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.messages import user
from nbagent.core.base.process import this_process
from nbagent.core.engine.driver import Driver, run_started
from nbagent.core.engine.runs import StartedRuns
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import answer
from tests.unit.core.clock import Clock, spec_of
from tests.unit.core.family import wait_for_question

call = nb.ScriptedModel.call


class Works:
    """An inner agent that runs one call while another call asks."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go = asyncio.Event()

    def agent(self) -> nb.Agent:
        """The agent, as each process makes it."""

        def inner_says(messages: Any) -> Any:
            ended = messages[-1]["role"] == "tool"
            return "inner done" if ended else [call("slow"), call("gate")]

        inner = nb.Agent(nb.ScriptedModel(inner_says), name="inner")

        @inner.tool
        async def slow() -> str:
            await self.go.wait()
            self.done.append("slow")
            return "slow"

        @inner.tool
        async def gate(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            self.done.append("gate")
            return "gate"

        def says(messages: Any) -> Any:
            return "done" if messages[-1]["role"] == "tool" else call("inner", prompt="p")

        return nb.Agent(nb.ScriptedModel(says), tools=[inner.as_tool()])


async def test_a_call_that_another_handle_runs_inside_an_agent_is_awaited_without_a_busy_loop():
    """The other handle's answer runs its call; the loop stays free, and each body runs once."""
    works, store = Works(), nb.MemoryStore()
    run = works.agent().run("go", store=store)
    await wait_for_question(run)
    other = await nb.open_run(run.id, agent=works.agent(), store=store)
    other.restart(other.interrupts[0])

    async def gate_has_run() -> None:
        while works.done != ["gate"]:  # noqa: ASYNC110 - what is tested is that the loop goes round
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)

    await asyncio.wait_for(gate_has_run(), 10)
    assert other.status == "running"
    works.go.set()
    results = await asyncio.wait_for(asyncio.gather(run, other), 10)
    assert [result.text for result in results] == ["done", "done"]
    assert works.done == ["gate", "slow"]


async def test_a_cancel_after_a_failure_does_not_prevent_a_retry():
    """A cancel of a failed run has no effect; the same handle can retry."""
    agent = nb.Agent(nb.ScriptedModel([RuntimeError("down"), "done"]))
    run = agent.run("go")
    with pytest.raises(nb.errors.ModelError):
        await run
    await run.cancel()
    assert run.status == "failed"
    run.retry()
    assert (await asyncio.wait_for(run, 10)).text == "done"


async def test_a_body_continues_with_a_remote_answer_even_if_a_local_one_came_too_late(
    tmp_path,
):
    """With the conflict the handle reads the remote answer, and the waiting body gets it too."""

    def agent() -> nb.Agent:
        made = nb.Agent(nb.ScriptedModel([[call("asks"), call("plain")], "done"]))

        @made.tool
        async def plain() -> str:
            return "plain"

        @made.tool
        async def asks(ctx: nb.ToolContext) -> str:
            return str(await ctx.ask("Which?"))

        return made

    path = tmp_path / "runs.db"
    asking = agent()
    run = asking.run("go", store=nb.SQLiteStore(path), attended=True, show=False)
    await run.settled()
    (question,) = run.interrupts
    elsewhere = Journal(run.id, nb.SQLiteStore(path))
    elsewhere.catch_up()
    there = nb.Respond(output="there")
    elsewhere.commit(
        lambda state: [
            answer(
                state,
                question.id,
                there,
                asking.tools,
                ("B", 0.0),
                owner=lambda *_: elsewhere.driver,
            )
        ]
    )
    with pytest.raises(nb.Conflict):
        run.respond(question, "here")
    assert (await asyncio.wait_for(run, 10)).text == "done"
    assert run.calls["asks"][0].output == "there"


async def test_a_call_that_another_handle_ended_before_its_task_started_is_skipped():
    """Between a step and its tasks the journal may move on to another turn."""

    def agent() -> nb.Agent:
        made = nb.Agent(nb.ScriptedModel([[call("plain"), call("plain")], "done"]))

        @made.tool
        async def plain() -> str:
            return "plain"

        return made

    whole = agent().run("go")
    await whole
    began, _, *turn, said, _ = whole.journal
    store, one = nb.MemoryStore(), agent()
    journal = Journal("r", store)

    def other_goes_on() -> None:
        store.append("r", [*turn, said], 2)
        journal.catch_up()

    def hear(event: Any) -> None:
        if isinstance(event, ModelResponded) and len(journal.state.messages) == 2:
            asyncio.get_running_loop().call_soon(other_goes_on)  # before the tasks of the next step

    journal.commit(lambda _: [began])
    journal.subscribe(hear)
    await Driver(spec_of(one, Clock()), journal, live=True, runs=StartedRuns).drive()
    assert [e.type for e in journal.read()] == [e.type for e in whole.journal]
    assert len(one.model.requests) == 1


OTHER = "another machine:7:1:host"
AT = {"at": 9.0, "call_id": "call_1"}
FIRST: list[StoredEvent] = [
    ToolStarted(**AT, attempt=1, owner=OTHER, input={}),
    ToolFinished(**AT, output="there"),
    Interrupted(**AT, id="q", tool_name="work", kind="tool", expects="value", input={}, digest=""),
    RunTaken(at=9.0, by="take over", owner=OTHER),
    RunCancelled(at=9.0, by="somebody"),
]


@pytest.mark.parametrize("first", FIRST, ids=[event.type for event in FIRST])
async def test_a_body_whose_start_is_stored_second_never_runs(first):
    """Right before the claim, another process starts, ends or asks about the call, or takes or ends the run."""
    store, ran = nb.MemoryStore(), []

    async def while_judged(_: Any) -> bool:
        store.append("r", [first], 2)
        return True

    model = nb.ScriptedModel([[call("work"), call("asks")], "done"])
    agent = nb.Agent(model, policy=[nb.allow("work", when=while_judged)])
    agent.add(nb.interrupt_tool("asks", output=str))

    @agent.tool
    async def work() -> str:
        ran.append("here")
        return "here"

    journal = Journal("r", store)
    journal.commit(lambda _: [run_started(spec_of(agent, Clock()), [user("go")], 0.0)])
    await Driver(spec_of(agent, Clock()), journal, live=True, runs=StartedRuns).drive()
    mine = [e for e in journal.read() if isinstance(e, ToolStarted) and e.owner != OTHER]
    assert (ran, mine) == ([], [])
    assert first in journal.read()


def test_only_a_process_that_executes_a_run_may_say_that_it_failed():
    """Its driver, or a process in which a body runs; anyone may cancel it."""
    store = nb.MemoryStore()
    journal = Journal("r", store)
    failed = RunFailed(at=9.0, error="E", message="here")
    work = ModelResponded(at=9.0, calls=(CallRequested(id="call_1", name="work", input={}),))
    begun = run_started(nb.Agent(nb.ScriptedModel([]))._spec({}), [user("go")], 0.0)
    store.append("r", [replace(begun, owner=OTHER), work], 0)
    journal.catch_up()
    assert not journal.may_end(failed)
    assert journal.may_end(RunCancelled(at=9.0, by="somebody"))
    store.append("r", [ToolStarted(**AT, attempt=1, owner=this_process(), input={})], 2)
    store.append("r", [RunTaken(at=9.0, by="take over", owner=OTHER, gone="nobody")], 3)
    journal.catch_up()
    assert not journal.may_drive
    assert journal.may_end(failed)
