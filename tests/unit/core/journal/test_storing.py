"""Runs and their stores: unstored events have no effect, and handles on one run agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import Interrupted, Resolved, StoredEvent, ToolStarted
from nbagent.core.run.lost_calls import POLL
from nbagent.core.run.run import session_of
from tests.unit.core.clock import put_forward
from tests.until import turns, until

call = nb.ScriptedModel.call


class FailingStore(nb.MemoryStore):
    """A store that fails at one append, counted from 0, and ever after."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self.left = fails_at
        self.reads = 0

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        if self.left == 0:
            raise OSError("no space left on device")
        self.left -= 1
        super().append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        self.reads += 1
        return super().read(run_id, start)


def make_agent(done: list[str], steps: Any = None) -> nb.Agent:
    """An agent that calls a plain tool and a gate."""
    calls = [[call("plain"), call("gate", amount=5)], "done"]
    agent = nb.Agent(nb.ScriptedModel(steps or calls))

    @agent.tool
    async def plain() -> str:
        done.append("plain")
        return "plain"

    @agent.tool
    async def gate(amount: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Go on?"), state={"quote": amount * 2})
        done.append("gate")
        return f"{amount} {ctx.state}"

    return agent


# RunStarted, ModelResponded, two ToolStarted, ToolFinished and Interrupted, Resolved, ToolStarted,
# ToolFinished, ModelResponded, RunCompleted
APPENDS = 11


@pytest.mark.parametrize("fails_at", range(APPENDS))
async def test_c121_c123_a_failed_append_never_has_an_effect(
    fails_at: int,
) -> None:
    """No tool runs on an unstored claim or answer, no unstored pause is shown, and each failure raises."""
    done: list[str] = []
    heard: list[Any] = []
    store = FailingStore(fails_at)
    agent = make_agent(done)

    async def go() -> None:
        run = agent.run("go", store=store, attended=True)
        heard.extend(run.subscribe(heard.append))
        await run.settled()
        if run.status == "interrupted":
            run.restart(run.interrupts[0])
        await run

    with pytest.raises(nb.errors.StoreError, match="no space left"):
        await go()
    stored = [e for run_id in store.run_ids() for e in store.read(run_id)]
    assert len(done) <= sum(isinstance(e, ToolStarted) for e in stored)
    assert ("gate" in done) <= any(isinstance(e, Resolved) for e in stored)
    shown = [e for e in heard if isinstance(e, Interrupted)]
    assert all(e in stored for e in shown)


async def test_c123_an_answer_that_could_not_be_stored_leaves_the_question_open() -> None:
    """The answer raises, and can be given again once the store works."""
    done: list[str] = []
    store = FailingStore(6)
    run = make_agent(done).run("go", store=store, attended=True)
    await run.settled()
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        run.restart(run.interrupts[0])
    assert run.status == "interrupted"
    assert "gate" not in done
    store.left = 100
    run.restart(run.interrupts[0])
    assert (await run).text == "done"
    assert sorted(done) == ["gate", "plain"]


async def test_every_append_is_among_the_failed_ones() -> None:
    """Guards ``APPENDS``."""
    store = FailingStore(1000)
    await make_agent([]).run("go", store=store, answers={"gate": True})
    assert 1000 - store.left == APPENDS


async def test_two_handles_in_one_process_follow_each_other_without_polling_the_store() -> None:
    """A memory store notifies its handles: a paused run reads nothing, and both see an answer."""
    done: list[str] = []
    store = FailingStore(1000)
    agent = make_agent(done)
    one = agent.run("go", store=store, attended=True)
    await one.settled()
    two = await nb.open_run(one.id, agent=agent, store=store, attended=True)
    assert [i.id for i in two.interrupts] == [i.id for i in one.interrupts]
    assert two.interrupts[0].state == {"quote": 10}
    await turns()
    reads = store.reads
    put_forward(3 * POLL)
    await turns()
    assert store.reads == reads
    two.restart(two.interrupts[0])
    assert (await one).text == (await two).text == "done"
    assert one.journal == two.journal
    assert sorted(done) == ["gate", "plain"]
    with pytest.raises(nb.Conflict, match="by code at"):
        one.restart(next(e.id for e in one.journal if isinstance(e, Interrupted)))


async def test_an_ended_run_opens_with_its_result() -> None:
    """Its result can be read, and nothing runs."""
    store = nb.MemoryStore()
    first = make_agent([]).run("go", store=store, answers={"gate": True})
    await first
    opened = await nb.open_run(first.id, agent=make_agent([], ["never"]), store=store)
    assert opened.status == "completed"
    assert (await opened).text == "done"
    assert opened.messages == first.messages


async def test_answers_passed_when_opening_settle_open_questions() -> None:
    """A script finishes what a notebook left open."""
    store = nb.MemoryStore()
    done: list[str] = []
    agent = make_agent(done)
    with pytest.raises(nb.HumanInputRequired) as error:
        await agent.run("go", store=store)
    run = await nb.open_run(error.value.run_id, agent=agent, store=store, answers={"gate": True})
    assert (await run).text == "done"
    assert sorted(done) == ["gate", "plain"]


async def test_c122_opening_an_unknown_run_names_the_store() -> None:
    """The usual cause is a wrong store."""
    with pytest.raises(nb.NbagentError, match=r"MemoryStore\(0 runs\) has no run 'nope'"):
        await nb.open_run("nope", agent=make_agent([]), store=nb.MemoryStore())


async def test_a_question_of_a_body_is_not_answered_without_its_tool() -> None:
    """The body could not continue, so the answer is refused until the tool is registered."""
    store = nb.MemoryStore()
    agent = nb.Agent(nb.ScriptedModel([call("plan"), "Done."]), name="planner", store=store)

    @agent.tool
    async def plan(ctx: nb.ToolContext) -> str:
        nights = await ctx.ask("How many nights?", reply=int)
        return f"{nights} nights"

    first = agent.run("Rome", id="rome", attended=True)
    await first.settled()
    assert first.interrupts, first.status
    moved = nb.MemoryStore()  # as another process finds it
    moved.append("rome", store.read("rome"), 0)
    bare = nb.Agent(nb.ScriptedModel(["Hi."]), name="planner", store=moved)
    run = await nb.open_run("rome", agent=bare)
    with pytest.raises(nb.errors.ToolError, match=r"'plan' .*not registered. Add it to the agent"):
        run.respond(run.interrupts[0], 3)
    assert (run.status, len(run.interrupts)) == ("interrupted", 1)
    other = nb.Agent(nb.ScriptedModel([]), name="other", store=moved)
    with pytest.raises(nb.errors.UsageError, match=r"a run of 'planner', not of 'other'. Open it"):
        await nb.open_run("rome", agent=other)


async def test_c59_opening_a_run_whose_answered_tool_is_missing_names_the_tool() -> None:
    """No model call and no failed call: add the tool and open the run again."""
    store = nb.MemoryStore()
    agent = make_agent([])
    run = agent.run("go", store=store, attended=True)
    await run.settled()
    await until(lambda: not session_of(run).is_active)  # no driver is active any more
    await turns()

    class Killed(BaseException):
        """The process is gone."""

    def dies(_: Any) -> None:
        raise Killed

    run.subscribe(dies)  # called once the answer is stored; nothing more is done
    with pytest.raises(Killed):
        run.restart(run.interrupts[0])
    other = nb.Agent(nb.ScriptedModel([]))
    with pytest.raises(nb.NbagentError, match="no tool 'gate'"):
        await nb.open_run(run.id, agent=other, store=store)
    opened = await nb.open_run(run.id, agent=agent, store=store)
    assert (await opened).text == "done"
