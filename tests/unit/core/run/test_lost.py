"""Calls whose process ended while they ran: the question, its possible answers, and the calls that run again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base.events import (
    Interrupted,
    Resolved,
    RunCancelled,
    StoredEvent,
    ToolStarted,
)
from nbagent.core.base.interrupts import SECRET_GONE
from tests.until import until

call = nb.ScriptedModel.call


class Bank:
    """Tools with effects, on an agent and its inner agent, and a log of the effects."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.did: list[Any] = []
        inner = nb.Agent(nb.ScriptedModel([call("send", n=3), "in"]), name="inner")
        self.agent = nb.Agent(nb.ScriptedModel([*script, "done"]), name="outer", **options)
        for agent in (self.agent, inner):
            self._define(agent)
        self.agent.add(inner.as_tool())

    def _define(self, agent: nb.Agent) -> None:
        did = self.did

        @agent.tool
        def send(n: int) -> str:
            did.append(n)
            return f"sent {n}"

        @agent.tool(idempotent=True)
        def put(n: int) -> str:
            did.append(n)
            return f"put {n}"

        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"quote": n})
            did.append((n, ctx.state, ctx.resumed.data))
            return "acted"

    async def lost(self, run: nb.Run, owner: str, store: nb.Store | None = None) -> nb.Run:
        """The run with a journal that ends at the start of a body, whose process has ended."""
        events = list(run.journal)
        last = max(n for n, e in enumerate(events) if isinstance(e, ToolStarted))
        store = store or nb.MemoryStore()
        kept = [
            e.model_copy(update={"owner": owner}) if getattr(e, "owner", "") else e
            for e in events[: last + 1]
        ]
        store.append("r", kept, 0)
        self.did.clear()
        self.agent.model = nb.ScriptedModel(["done"])
        return await nb.open_run("r", agent=self.agent, store=store, attended=True, show=False)


async def test_c136_a_lost_call_is_one_question_with_three_answers(ended_process):
    """The answers are: run the call again, set its result, or let it fail."""
    for answer, told, did in [
        (nb.Restart(), "sent 5", [5]),
        (nb.Respond("sent, says the bank"), "sent, says the bank", []),
        (nb.Reject("ask me later"), "ask me later", []),
    ]:
        bank = Bank(call("send", n=5))
        run = bank.agent.run("go", show=False)
        await run
        run = await bank.lost(run, ended_process)
        await run.settled()
        (i,) = run.interrupts
        assert (i.kind, i.expects, i.input, i.restartable) == ("lost", "outcome", {"n": 5}, True)
        assert run.status == "interrupted"
        for wrong in (nb.Restart({"n": 6}), nb.Restart(data=1), nb.Restart(remember="tool")):
            with pytest.raises(nb.errors.InvalidAnswer, match="Restart it unchanged"):
                run.resolve(i, wrong)
        with pytest.raises(nb.errors.InvalidAnswer):
            run.respond(i, ["no text"])
        run.resolve(i, answer)
        assert (await run).text == "done"
        assert told in run.calls["send"][0].output
        assert bank.did == did


async def test_c136_a_lost_gate_runs_again_with_the_data_of_its_restart(ended_process):
    """The new body gets the lost body's state and data; nobody approves twice."""
    bank = Bank(call("gate", n=5))
    run = await bank.agent.run("go", attended=True, show=False).settled()
    run.restart(run.interrupts[0], data="yes")
    await run
    run = await bank.lost(run, ended_process)
    await run.settled()
    (i,) = run.interrupts
    run.restart(i)
    assert (await run).text == "done"
    assert bank.did == [(5, {"quote": 5}, "yes")]


async def test_c136_a_lost_call_with_a_secret_runs_again_once_the_secret_is_entered_again(
    ended_process,
):
    """P13: the secret ended with its process, so the person enters it before the body runs."""
    got: list[str] = []
    bank = Bank(call("login", password="hunter2"))

    @bank.agent.tool(approval=True)
    def login(password: SecretStr) -> str:
        got.append(password.get_secret_value())
        return "in"

    run = await bank.agent.run("go", attended=True, show=False).settled()
    run.restart(run.interrupts[0])
    await run
    run = await bank.lost(run, ended_process)
    got.clear()
    await run.settled()
    (i,) = run.interrupts
    run.restart(i)
    await run.settled()
    (asked,) = run.interrupts
    assert (asked.note, asked.expects, asked.editable) == (SECRET_GONE, "edit", ("password",))
    assert got == []
    run.restart(asked, new_input={"password": "again"})
    assert ((await run).text, got) == ("done", ["again"])


class CancelledMeanwhile(nb.MemoryStore):
    """Another process cancels the run right before the question about its lost call is stored."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        if events[0].type == "interrupted" and self.read(run_id)[-1].type != "run_cancelled":
            super().append(run_id, [RunCancelled(at=1.0, by="somebody")], expected)
        super().append(run_id, events, expected)


async def test_c136_nothing_is_asked_of_a_run_that_was_cancelled_meanwhile(ended_process):
    """Cancellation is the last event."""
    bank = Bank(call("send", n=5))
    run = bank.agent.run("go", show=False)
    await run
    run = await bank.lost(run, ended_process, CancelledMeanwhile())
    with pytest.raises(nb.errors.Cancelled):
        await run
    assert run.journal[-1].type == "run_cancelled"
    assert (run.interrupts, bank.did) == ([], [])


async def test_c136_an_idempotent_call_runs_again_and_the_journal_says_why(ended_process):
    """Nobody is asked."""
    bank = Bank([call("put", n=1), call("send", n=2)])
    run = bank.agent.run("go", show=False)
    await run
    events = list(run.journal)
    started = [e for e in events if isinstance(e, ToolStarted)]
    assert len(started) == 2
    run = await bank.lost(run, ended_process)
    await run.settled()
    assert [(i.tool_name, i.kind) for i in run.interrupts] in ([("send", "lost")], [])
    for i in run.interrupts:
        run.respond(i, "sent")
    assert (await run).text == "done"
    assert bank.did in ([1], [])  # the call that had finished first
    for event in run.journal:
        if isinstance(event, Resolved) and event.by == "idempotent=True":
            assert event.resolution == nb.Restart()


async def test_c136_an_inner_agent_that_had_not_started_runs_again(ended_process):
    """The process claimed the call and ended before the inner run started."""
    bank = Bank(call("inner", prompt="go"))
    run = bank.agent.run("go", show=False)
    await run
    events = list(run.journal)
    claim = next(n for n, e in enumerate(events) if isinstance(e, ToolStarted))
    assert events[claim].scope == ()
    store = nb.MemoryStore()
    store.append(
        "r", [*events[:claim], events[claim].model_copy(update={"owner": ended_process})], 0
    )
    bank.did.clear()
    bank.agent.model = nb.ScriptedModel(["done"])
    bank.agent.tools.pop("inner")
    inner = nb.Agent(nb.ScriptedModel([call("send", n=3), "in"]), name="inner")
    inner.add(bank.agent.tools["send"])
    bank.agent.add(inner.as_tool())
    run = await nb.open_run("r", agent=bank.agent, store=store, attended=True, show=False)
    assert (await run).text == "done"
    assert bank.did == [3]


async def test_c136_a_lost_call_waits_in_a_history_too(ended_process):
    """Through JSON, step by step; nothing runs before the answer."""
    bank = Bank(call("send", n=5))
    run = bank.agent.run("go", show=False)
    await run
    run = await bank.lost(run, ended_process)
    await run.settled()
    messages = json.loads(json.dumps(run.messages))
    (i,) = bank.agent.interrupts(messages)
    assert (i.kind, i.expects) == ("lost", "outcome")
    bank.agent.model = nb.ScriptedModel(["done"])
    done = await bank.agent.generate(messages=messages, tool_restarts=[i.restart()])
    assert (done.text, bank.did) == ("done", [5])


@pytest.mark.parametrize(
    "answers", [{"send": True}, [True], lambda _: "yes"], ids=["by name", "in order", "by function"]
)
async def test_c136_answers_for_other_questions_do_not_restart_a_lost_call(ended_process, answers):
    """``answers=`` must name the outcome of a lost call."""
    bank = Bank(call("send", n=5))
    run = bank.agent.run("go", show=False)
    await run
    lost = await bank.lost(run, ended_process)
    await lost.settled()
    store = nb.MemoryStore()
    store.append("r", list(lost.journal), 0)
    again: dict[str, Any] = {"agent": bank.agent, "store": store, "attended": False}
    with pytest.raises(nb.errors.InvalidAnswer, match=r"nb.Restart\(\) to run it again"):
        await (await nb.open_run("r", answers=answers, **again))
    assert bank.did == []
    bank.agent.model = nb.ScriptedModel(["done"])
    run = await nb.open_run("r", answers={"send": nb.Restart()}, **again)
    assert ((await run).text, bank.did) == ("done", [5])


async def test_c136_a_fork_asks_about_a_lost_call_separately(ended_process):
    """The fork's question has its own id."""
    bank = Bank(call("send", n=5))
    run = bank.agent.run("go", show=False)
    await run
    run = await bank.lost(run, ended_process)
    await run.settled()
    fork = await run.fork().settled()
    (i,), (asked,) = fork.interrupts, [e for e in run.journal if isinstance(e, Interrupted)]
    assert i.id != asked.id
    fork.respond(i, "sent")
    assert (await fork).text == "done"
    assert (run.status, bank.did) == ("interrupted", [])


async def test_c302_a_call_whose_process_ends_is_asked_about_while_a_body_here_waits():
    """A store reports writes but no ended process, so this process checks even while it waits for an answer."""
    says = (
        "from nbagent.core.base.process import this_process as me; print(me(), flush=True); input()"
    )
    turn = [call("colors"), call("send", n=5)]
    bank = Bank(turn)

    @bank.agent.tool
    async def colors(ctx: nb.ToolContext) -> str:
        return await ctx.ask("Which color?", reply=str)

    run = await bank.agent.run("go", attended=True, show=False).settled()
    begun, answered, *_ = run.journal
    sent = next(e for e in run.journal if isinstance(e, ToolStarted) and "n" in e.input)
    bank.agent.model = nb.ScriptedModel(["done"])
    command = [sys.executable, "-c", says]
    with subprocess.Popen(  # noqa: ASYNC220 - it only says who it is
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        owner = other.stdout.readline().strip()
        store = nb.MemoryStore()
        begun = begun.model_copy(update={"owner": ""})
        store.append("r", [begun, answered, sent.model_copy(update={"owner": owner})], 0)
        run = await nb.open_run("r", agent=bank.agent, store=store, attended=True, show=False)
        other.kill()
        other.wait()
        await until(lambda: [i.kind for i in run.interrupts] == ["ask", "lost"])
    for i in run.interrupts:
        await run.respond(i, "as told")
    assert (await run).text == "done"


async def test_an_inner_agent_starts_later_where_another_process_continues_the_run_first(
    ended_process: str,
):
    """The inner agent's call is claimed already. It does not fail, and runs once no other process has the run."""

    class Shared(nb.MemoryStore):
        """A store where another process answers right after the agent's call was claimed."""

        def append(self, run_id: str, events: Any, expected: int) -> None:
            super().append(run_id, events, expected)
            told = {event.type: event for event in self.read(run_id)}
            asked, claims = told.get("interrupted"), [getattr(e, "call_id", "") for e in events]
            if asked is None or "resolved" in told or claims != ["call_2"]:
                return
            answer = Resolved(
                at=asked.at,
                id=asked.id,
                call_id=asked.call_id,
                resolution=nb.Respond(output="well"),
                by="inbox",
                owner=ended_process,
            )
            super().append(run_id, [answer], expected + len(events))

    inner = nb.Agent(nb.ScriptedModel(["inside"]), name="inner")
    question = nb.interrupt_tool("question", output=str)
    first = [call("question", message="?"), call("inner", prompt="p")]
    model = nb.ScriptedModel([first, "done"])
    agent = nb.Agent(model, tools=[question, inner.as_tool()], store=Shared())
    run = agent.run("go", attended=True)
    assert (await asyncio.wait_for(run, 30)).text == "done"
    assert "inside" in str(run.messages)
    assert [e.type for e in run.journal].count("run_failed") == 0
