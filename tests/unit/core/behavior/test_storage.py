"""docs/behavior.md, storage and cancel: runs in memory, in a file, and reopened by other processes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base import messages as messages_module
from nbagent.core.base.model import TextDelta
from tests.unit.core.clock import Clock
from tests.unit.core.usual import outputs, parts
from tests.until import until

call = nb.ScriptedModel.call


OPEN = [call("ask"), call("gate", n=1), call("plain", n=2), call("wizard")]


async def test_c98_a_resumed_history_is_in_order(play, tools):
    """User, model call, tool result, model text."""
    s = await play([call("ask"), "done"], tools)
    await s.answer(respond={0: "b"})
    kinds = [(m["role"], [p["type"] for p in m["content"]]) for m in s.messages]
    assert kinds == [
        ("user", ["text"]),
        ("assistant", ["tool_call"]),
        ("tool", ["tool_result"]),
        ("assistant", ["text"]),
    ]
    messages_module.check(messages_module.load(s.messages))


async def test_c102_a_retry_after_a_failed_turn_starts_from_the_last_good_state(play, tools):
    """Finished calls and answers are kept; only the model is asked again."""
    down = RuntimeError("model is down")
    s = await play([[call("ask"), call("plain", x=1)], down, call("plain", x=2), "done"], tools)
    with pytest.raises(nb.errors.RunError, match="model is down"):
        await s.answer(respond={0: "b"})
    await s.retry()
    assert (s.text, outputs(s.messages)) == ("done", ["b", {"x": 1}, {"x": 2}])
    assert tools.log == [("plain", 1), ("plain", 2)]


async def test_c122_an_unknown_run_id_is_a_clear_error(play_stored, tools):
    """The error names the run."""
    s = await play_stored([call("ask")], tools)
    with pytest.raises(nb.NbagentError, match="nonsense"):
        await s.open("nonsense")


async def test_c128_cancel_during_a_tool_keeps_finished_results(tools):
    """The tool stops at its await, finished results are kept, the status is cancelled."""
    model = nb.ScriptedModel([[call("plain", x=1), call("slow")]])
    agent = nb.Agent(model)
    tools(agent)
    started, stopped = asyncio.Event(), []

    @agent.tool
    async def slow() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return "slow"

    run = agent.run("go")
    await started.wait()
    await until(lambda: bool(run.calls["plain"][0].output))
    await run.cancel()
    assert (run.status, stopped) == ("cancelled", [True])
    assert run.calls["plain"][0].output == {"x": 1}
    with pytest.raises(nb.errors.Cancelled, match="by code"):
        await run
    assert run.interrupts == []
    assert len(model.requests) == 1


async def test_c128_a_cancelled_run_stays_cancelled_wherever_it_is_opened(play_stored, keeping):
    """Answers are refused; finished results are kept; a new run can follow."""
    s = await play_stored([OPEN, "and on"], keeping)
    found = s.interrupts
    await s.cancel()
    assert (s.status, s.interrupts) == ("cancelled", [])
    s.interrupts = found
    for answer in ({"respond": {0: "b"}}, {"restart": {1: {}}}, {"reject": {2: None}}):
        with pytest.raises(nb.Conflict, match="cancelled"):
            await s.answer(**answer)
    await s.say("go on")
    assert s.text == "and on"
    assert keeping.log == [("plain", 2)]
    assert "plain 2" in outputs(s.messages)


@pytest.mark.parametrize("late", ["result", "pause"])
async def test_c129_a_tool_that_does_not_stop_is_left_behind(late, short_grace, caplog):
    """The status is cancelled, the call is named, its late result or pause is discarded and logged."""
    agent = nb.Agent(nb.ScriptedModel([call("stubborn")]))
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    @agent.tool
    def stubborn(ctx: nb.ToolContext) -> str:
        entered.set()
        leave.wait(30)
        left.set()
        return "late" if late == "result" else ctx.interrupt({"late": True})

    run = agent.run("go")
    await asyncio.to_thread(entered.wait, 30)
    await run.cancel(by="ada")
    journal = run.journal
    assert journal[-1].still_running == ("call_1",)
    assert journal[-1].by == "ada"
    leave.set()
    await asyncio.to_thread(left.wait, 30)
    await until(lambda: "was ignored" in caplog.text)
    assert "'stubborn'" in caplog.text
    assert (run.journal, run.status, run.interrupts) == (journal, "cancelled", [])


async def test_c128_cancel_while_the_model_streams_keeps_the_partial_response():
    """The partial response is the end of the history."""
    agent = nb.Agent(
        nb.ScriptedModel([nb.ScriptedModel.slow("never whole", delay=0.05, pieces=1000)])
    )
    run = agent.run("go")
    async for heard in run.events():
        if isinstance(heard, TextDelta):
            break
    await run.cancel()
    assert run.status == "cancelled"
    assert [m["role"] for m in run.messages] == ["user", "assistant"]
    assert run.messages[1]["content"][0]["nbagent"] == {"cut": "stopped"}


async def test_c113_state_saved_with_the_pause_is_returned_with_the_answer(play, keeping):
    """Also in a fresh agent after JSON."""
    s = await play([call("gate", n=3), "done"], keeping)
    assert s.interrupts[0].state == {"saved": 3}
    await s.answer(restart={0: {}})
    assert keeping.log == [("gate", 3, {"saved": 3})]


class Late:
    """A tool that asks with a deadline, and a clock that can be put forward."""

    def __init__(self, on_expire: Any) -> None:
        self.on_expire = on_expire
        self.clock = Clock(time.time())
        self.ran: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define the tool, and give the agent the clock."""
        self.clock.on(agent)

        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            self.ran.append(ctx.resumed)
            ctx.interrupt(expires_in=3600, on_expire=self.on_expire)


@pytest.mark.parametrize("on_expire", ["reject", nb.Respond(output="b"), "fail"], ids=repr)
async def test_c133_on_expire_is_applied_once_after_the_deadline(play, on_expire):
    """The next look applies and records the expiry; later answers are refused."""
    late = Late(on_expire)
    s = await play([call("gate"), "done"], late)
    found = s.interrupts
    assert found[0].expires_at > late.clock() + 3000
    late.clock.now += 3601
    look = s.wait if s.live else s.answer
    if on_expire == "fail":
        with pytest.raises(nb.errors.RunError, match="in time"):
            await look()
    else:
        await look()
        (result,) = parts(s.messages, "tool_result")
        assert [r["by"] for r in result["nbagent"]] == ["expiry"]
        assert (result["output"] == "b") == (on_expire != "reject")
        assert s.text == "done"
    s.interrupts = found
    with pytest.raises((nb.Conflict, nb.errors.NotPending, nb.errors.RunError)):
        await s.answer(restart={0: {}})
    assert late.ran == [None]
