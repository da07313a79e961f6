"""docs/behavior.md, always allow: in this run, or in every run of an agent object."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import FORMAT_VERSION, dump, parse
from nbagent.core.base.interrupts import CODE_CHANGED

call = nb.ScriptedModel.call


class Bank:
    """A tool with approval, one that asks by itself, and a question; sends are recorded."""

    def __init__(self) -> None:
        self.did: list[float] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define send, gate and ask."""

        @agent.tool(approval=True)
        def send(amount: float) -> str:
            self.did.append(amount)
            return f"sent {amount}"

        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"sure": True})
            return "went on"

        agent.add(nb.interrupt_tool("ask", output=str))


def replies(script: list[Any]) -> nb.ScriptedModel:
    """A model that gives these responses, by the number of earlier ones."""
    return nb.ScriptedModel(lambda m: script[sum(one["role"] == "assistant" for one in m)])


def nested(script: list[Any], bank: Bank) -> nb.Agent:
    """An agent and its inner agent, both with the bank's tools."""
    inner = nb.Agent(replies([call("send", amount=5), call("send", amount=6), "in"]), name="inner")
    bank(inner)
    outer = nb.Agent(replies(script), tools=[inner.as_tool()])
    bank(outer)
    return outer


TURNS = [
    call("send", amount=5),
    [call("send", amount=5), call("send", amount=6), call("ask")],
    [call("send", amount=5), call("send", amount=7)],
    "done",
    call("send", amount=5),
]


@pytest.mark.parametrize("remember", ["tool_in_run", "input_in_run"])
async def test_c165_always_allow_in_this_run_lasts_as_long_as_the_run(play, remember):
    """Over pauses, processes and stores; a message after the end starts a run, which asks again."""
    bank = Bank()
    s = await play(TURNS, bank)
    await s.answer(restart={0: {"remember": remember}})
    asked = [i.input.get("amount") for i in s.interrupts]
    assert asked == ([None] if remember == "tool_in_run" else [6, None])
    await s.answer(reject={n: None for n, amount in enumerate(asked) if amount})
    await s.answer(respond={0: "b"})
    later = [i.input["amount"] for i in s.interrupts]
    assert later == ([] if remember == "tool_in_run" else [7])
    if later:
        await s.answer(reject={0: None})
    assert bank.did == ([5, 5, 6, 5, 7] if remember == "tool_in_run" else [5, 5, 5])
    assert (s.text, s.agent.remembered) == ("done", [])
    await s.say("again")
    assert [i.input["amount"] for i in s.interrupts] == [5]


@pytest.mark.parametrize("how", ["live", "steps"])
async def test_c165_always_allow_in_this_run_includes_inner_agents(how):
    """An approval for an inner tool covers the same tool outside, and the other way round."""
    bank = Bank()
    agent = nested([call("inner", prompt="p"), [call("send", amount=7), call("ask")], "done"], bank)
    if how == "steps":
        paused = await agent.generate("go")
        yes = nb.tool_restart(paused.interrupts[0], remember="tool_in_run")
        paused = await agent.generate(messages=paused.messages, tool_restarts=[yes])
        assert [i.tool_name for i in paused.interrupts] == ["ask"]
    else:
        run = await agent.run("go").settled()
        run.approve(run.interrupts[0], remember="tool_in_run")
        await run.settled()
        assert [i.tool_name for i in run.interrupts] == ["ask"]
        assert [str(one) for one in run.remembered] == ["allow send"]
    assert bank.did == [5, 6, 7]


async def test_c165_a_changed_tool_asks_again_and_says_why():
    """Reopened with other code of the same name: the code counts, as the name and schema do."""
    store, bank = nb.MemoryStore(), Bank()
    agent = nb.Agent(replies(TURNS), store=store)
    bank(agent)
    run = await agent.run("go").settled()
    run.approve(run.interrupts[0], remember="tool_in_run")
    await run.settled()
    changed = nb.Agent(replies(TURNS), store=store)
    bank(changed)

    def send(amount: float) -> str:
        return "sent elsewhere"

    changed.tools["send"] = nb.tool(approval=True)(send)
    there = await nb.open_run(run.id, agent=changed)
    there.respond(there.interrupts[0], "b")
    await there.settled()
    assert [(i.tool_name, i.note) for i in there.interrupts] == [("send", CODE_CHANGED)] * 2


async def test_c165_a_fork_keeps_always_allow_and_a_follow_up_run_does_not():
    """A fork is a copy of the conversation; ``after=`` starts another run."""
    agent = nb.Agent(replies(TURNS))
    Bank()(agent)
    run = await agent.run("go").settled()
    run.approve(run.interrupts[0], remember="tool_in_run")
    await run.settled()
    fork = run.fork()
    for one in (run, fork):
        await one.settled()
        one.respond(one.interrupts[0], "b")
        assert (await one).text == "done"
    later = await agent.run("again", after=run).settled()
    assert [i.tool_name for i in later.interrupts] == ["send"]


async def test_c166_always_allow_in_every_run_is_one_removable_entry_per_tool_or_input():
    """Repeated answers add no entries; allowing in one run adds none."""
    turns = [call("send", amount=5), "done"] * 8
    agent = nb.Agent(nb.ScriptedModel(turns))
    Bank()(agent)
    for remember in ("input", "tool", "input_in_run", "tool_in_run", "input", "tool"):
        agent.remembered.clear()
        run = await agent.run("go").settled()
        run.approve(run.interrupts[0], remember=remember)
        await run
        assert len(agent.remembered) == (not remember.endswith("run"))
    assert (await agent.run("go")).text == "done"
    agent.remembered.clear()
    assert (await agent.run("go").settled()).interrupts


async def test_c166_always_allow_for_the_same_input_replaces_the_earlier_entry():
    """Two questions of equal calls, both answered with it."""
    agent = nb.Agent(nb.ScriptedModel([[call("send", amount=5)] * 2 + [call("send", amount=6)]]))
    Bank()(agent)
    run = await agent.run("go").settled()
    for i in run.interrupts:
        run.restart(i, remember="input" if i.input["amount"] == 5 else "input_in_run")
    assert sorted(map(str, agent.remembered)) == ['allow send with {"amount":5}']
    assert sorted(map(str, run.remembered)) == ['allow send with {"amount":6}']


async def test_c166_only_approvals_can_be_remembered():
    """By interrupt, id and ``answers=``; a tool's own question and invalid values are refused."""
    agent = nb.Agent(nb.ScriptedModel([[call("send", amount=5), call("gate"), call("ask")]] * 3))
    Bank()(agent)
    run = await agent.run("go").settled()
    send, gate, ask = run.interrupts
    for refused in (
        lambda: run.approve(gate, remember="tool"),
        lambda: run.approve(ask),
        lambda: run.approve(send, remember="forever"),  # type: ignore[arg-type]
        lambda: run.restart(send, new_input={"amount": 6}, remember="tool"),
        lambda: send.restart(remember="forever"),  # type: ignore[arg-type]
    ):
        with pytest.raises(nb.errors.InvalidAnswer):
            refused()
    with pytest.raises(nb.errors.NotPending):
        run.approve("nonsense")
    assert len(run.interrupts) == 3
    run.approve(send.id, remember="tool")
    run.approve(gate)
    await run.settled()
    assert [i.tool_name for i in run.interrupts] == ["ask"]
    assert [c.output for c in run.calls["gate"]] == ["went on"]
    agent.remembered.clear()
    answers = {"send": nb.Restart(remember="tool_in_run"), "gate": True}
    there = await agent.run("go", answers=answers, attended=False).settled()
    assert [str(one) for one in there.remembered] == ["allow send"]


async def test_c165_an_answer_of_an_older_version_remembers_nothing():
    """The answer lacks the tool's code: the journal is read, and such calls ask again."""
    store, agent = nb.MemoryStore(), nb.Agent(replies(TURNS))
    Bank()(agent)
    run = await agent.run("go", store=store).settled()
    run.approve(run.interrupts[0], remember="tool_in_run")
    await run.settled()
    events = []
    for event in run.journal[:4]:
        plain = json.loads(dump(event))
        plain.pop("remembers", None)
        events.append(parse(json.dumps(plain), FORMAT_VERSION))
    store.append("older", events, 0)
    older = await nb.open_run("older", agent=agent, store=store)
    await older.settled()
    assert [i.tool_name for i in older.interrupts] == ["send", "send", "ask"]
    assert older.remembered == ()
