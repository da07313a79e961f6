"""P7: without a person nothing hangs, and prepared answers are used."""

from __future__ import annotations

import asyncio
import re
import shlex

import pytest

import nbagent as nb
from nbagent.cli import main

call = nb.ScriptedModel.call


def gate_of(agent: nb.Agent, ran: list[int]) -> None:
    """Define a tool that asks first."""

    @agent.tool
    def gate(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n})
        ran.append(n)
        return "ran"


async def test_p7_the_error_names_the_interrupt_and_its_schema_and_the_run_stays_paused():
    """The run can be answered later."""
    agent = nb.Agent(nb.ScriptedModel([call("ask", q="beer?"), "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = agent.run("go")
    with pytest.raises(nb.HumanInputRequired) as caught:
        await run
    text = str(caught.value)
    for word in ("ask", run.interrupts[0].id, "beer?", "'string'", "answers="):
        assert word in text
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], "yes")
    assert (await run).text == "done"


async def test_c392_the_error_names_each_way_to_answer(tmp_path):
    """In a script: prepared answers, code or a waiting run; a shell, if another process can open the run."""
    for store in (nb.MemoryStore(), nb.SQLiteStore(tmp_path / "my runs.db")):
        agent = nb.Agent(
            nb.ScriptedModel([call("ask"), "done"]), tools=[nb.interrupt_tool("ask")], store=store
        )
        run = agent.run("go")
        with pytest.raises(nb.HumanInputRequired) as caught:
            await run
        text = str(caught.value)
        for word in ("answers=", "run.respond", "await the run again", "attended=True"):
            assert word in text
        shell = re.search("nbagent answer (.*):\n", text)
        assert (shell is None) == isinstance(store, nb.MemoryStore)
    arguments = shlex.split(shell[1])
    assert arguments[0] == run.id
    assert await asyncio.to_thread(main, ["answer", *arguments, "--text", "blue"]) == 0
    opened = await nb.open_run(run.id, agent=agent, store=store)
    assert (await opened).text == "done"


ANSWERS = {
    "list": ["b", True],
    "by tool": {"ask": "b", "gate": True},
    "by tool, in order": {"ask": ["b"], "gate": [nb.Restart()]},
    "by tool, computed": {"ask": lambda i: i.input["q"], "gate": nb.Restart()},
    "computed": lambda i: "b" if i.tool_name == "ask" else nb.Restart(),
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
async def test_p7_answers_replace_a_person(answers):
    """Answers can be a list, a dict by tool, or a function."""
    ran: list[int] = []
    agent = nb.Agent(nb.ScriptedModel([[call("ask", q="b"), call("gate", n=1)], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    gate_of(agent, ran)
    run = agent.run("go", answers=answers)
    assert (await run).text == "done"
    assert run.calls["ask"][0].output == "b"
    assert len(ran) == 1
    assert {e.by for e in run.journal if e.type == "resolved"} == {"answers="}


async def test_p7_answers_that_run_out_leave_the_run_paused():
    """A person answers the remaining questions."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("ask")]]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = agent.run("go", answers=["first"])
    with pytest.raises(nb.HumanInputRequired) as caught:
        await run
    assert [i.call_id for i in caught.value.interrupts] == ["call_2"]


@pytest.mark.parametrize(
    "answers", [[5], {"ask": 5}, lambda _i: 1 / 0], ids=["misfit", "by tool", "raises"]
)
async def test_p7_a_bad_prepared_answer_is_raised_where_the_run_is_awaited(answers):
    """The error is not swallowed, and the paused run takes a correct answer."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("slow")], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    async def slow() -> str:
        for _ in range(20):  # longer than the check of the answer takes
            await asyncio.sleep(0)
        return "slow"

    run = agent.run("go", answers=answers)
    with pytest.raises((nb.errors.InvalidAnswer, ZeroDivisionError)):
        await run
    assert run.calls["slow"][0].output == "slow"
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], "good")
    assert (await run).text == "done"


async def test_p7_prepared_answers_are_never_used_beside_a_form():
    """With a person attached, the person answers."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = await agent.run("go", answers=["robot"], attended=True, show=False).settled()
    assert run.status == "interrupted"
    waiting = asyncio.ensure_future(run)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    run.respond(run.interrupts[0], "person")
    await waiting
    assert run.calls["ask"][0].output == "person"
