"""docs/behavior.md, a new message during an open question: refused, rejecting, or queued."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run.run import session_of
from tests.unit.core.usual import outputs

call = nb.ScriptedModel.call


OPEN = [call("ask"), call("gate", n=1), call("plain", n=2), call("wizard")]


async def test_c61_a_new_message_while_paused_is_refused_or_rejects_the_question(play, keeping):
    """By default an error with the interrupts; no call is left without a result."""
    s = await play([OPEN, "never mind"], keeping)
    found, before = s.interrupts, json.dumps(s.messages)
    with pytest.raises(nb.errors.UnansweredInterrupts, match=r"ask.*gate.*wizard") as caught:
        await s.say("something else")
    assert list(caught.value.interrupts) == found
    assert (json.dumps(s.messages), s.requests) == (before, 1)
    await s.say("something else", pending="reject")
    told = outputs(s.messages)
    assert (s.text, told[2]) == ("never mind", "plain 2")
    assert all("new message" in told[n] for n in (0, 1, 3))
    assert keeping.log == [("plain", 2)]
    roles = [m["role"] for m in s.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


async def test_c61_pending_reject_ends_the_paused_live_run(keeping):
    """The old run is cancelled with its questions rejected, and waiting bodies end."""
    model = nb.ScriptedModel([OPEN, "sure"])
    agent = nb.Agent(model)
    keeping(agent)
    run = await agent.run("go").settled()
    second = agent.run("never mind", after=run, pending="reject")
    assert (await asyncio.wait_for(second, 10)).text == "sure"
    assert (run.status, run.interrupts) == ("cancelled", [])
    assert keeping.log == [("plain", 2)]
    assert [e.resolution.type for e in run.journal if e.type == "resolved"] == ["reject"] * 3
    assert all("new message" in outputs(second.messages)[n] for n in (0, 1, 3))
    with pytest.raises(nb.errors.Cancelled):
        await run


async def test_c61_pending_reject_closes_an_inner_agent_that_asked_a_question(keeping):
    """The inner agent's call has a result, so the outer model sees no open call."""
    inner = nb.Agent(nb.ScriptedModel([call("gate", n=1)]), name="inner")
    keeping(inner)
    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="p"), "sure"]), tools=[inner.as_tool()])
    paused = await agent.generate("go")
    done = await agent.generate("never mind", messages=paused.messages, pending="reject")
    assert done.text == "sure"
    assert "new message" in outputs(done.messages)[0]


async def test_c61_pending_queue_continues_the_same_live_run(keeping):
    """``run`` returns the same run, whose journal has the message."""
    model = nb.ScriptedModel([[call("ask"), call("plain")], "both"])
    agent = nb.Agent(model)
    keeping(agent)
    run = await agent.run("go").settled()
    assert agent.run("and this", after=run, pending="queue") is run
    run.respond(run.interrupts[0], "a")
    assert (await run).text == "both"
    assert [m["role"] for m in run.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert [e.text for e in run.journal if e.type == "message_queued"] == ["and this"]


async def test_c61_a_message_queued_while_the_model_responds_follows_that_response(keeping):
    """The run ends only after answering it; a queue on an ended run starts a new run."""
    queued: list[bool] = []

    def answer(_messages: Any) -> str:
        if not queued:
            queued.append(session_of(run).send("and this", lambda: run))
        return f"answer {len(model.requests)}"

    model = nb.ScriptedModel(answer)
    agent = nb.Agent(model)
    run = agent.run("go")
    assert (await run).text == "answer 2"
    assert queued == [True]
    after = agent.run("more", after=run, pending="queue")
    assert after is not run
    assert (await after).text == "answer 3"


def test_c61_synchronous_code_can_reject_or_queue_as_well(keeping):
    """``run_sync`` takes ``pending=`` too."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "instead", call("ask"), "both"]))
    keeping(agent)

    def paused() -> nb.Run:
        run = agent.run("go")
        with pytest.raises(nb.HumanInputRequired):
            run.wait()
        return run

    assert agent.run_sync("never mind", after=paused(), pending="reject").text == "instead"
    run = paused()
    with pytest.raises(nb.errors.UnansweredInterrupts):
        agent.run_sync("and this", after=run, pending="raise")
    with pytest.raises(nb.HumanInputRequired):
        agent.run_sync("and this", after=run, pending="queue")
    run.respond(run.interrupts[0], "b")
    assert run.wait().text == "both"


async def test_c61_pending_queue_sends_the_message_after_the_results(play, tools):
    """Over several pauses of the turn."""
    s = await play([[call("ask"), call("ask")], "both"], tools)
    await s.say("one", pending="queue")
    assert (s.status, len(s.interrupts)) == ("interrupted", 2)
    await s.answer(respond={0: "a"})
    await s.say("two", pending="queue")
    await s.answer(respond={0: "b"})
    assert (s.text, s.results) == ("both", ["a", "b"])
    sent = s.model.requests[-1].messages
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user", "user"]
    assert [m["content"][0]["text"] for m in sent[3:]] == ["one", "two"]
