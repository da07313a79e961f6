"""docs/behavior.md, invalid and partial: invalid answers change nothing, on every driver."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import nbagent as nb
from nbagent.core.base.errors import ToolError, UsageError
from tests.unit.core.behavior.drivers import Steps
from tests.unit.core.usual import Tools, parts

call = nb.ScriptedModel.call


async def test_c51_c52_resuming_a_conversation_with_nothing_pending_is_an_error(play, tools):
    """No model call, neither with an earlier answer again nor without an answer."""
    s = await play([call("ask"), "hello"], tools)
    answered = s.interrupts
    await s.answer(respond={0: "b"})
    s.interrupts = answered
    with pytest.raises((nb.errors.NotPending, nb.Conflict)):
        await s.answer(respond={0: "b"})
    if not s.live:
        with pytest.raises(nb.errors.NotPending, match=r"Nothing is pending.*hello"):
            await s.generate()
    assert s.requests == 2


async def test_c53_c54_a_call_without_an_answer_is_named_before_anything_runs(play, tools):
    """Neither the answered gate nor the model runs; a live run continues with what it has."""
    s = await play([[call("gate", amount=1), call("ask")], "done"], tools)
    ask = s.interrupts[1]
    if s.live:
        await s.answer(restart={0: {}}, partial=False)
    else:
        with pytest.raises(nb.errors.UnansweredInterrupts, match=f"'ask'.*{ask.id}") as caught:
            await s.answer(restart={0: {}}, partial=False)
        assert ask in caught.value.interrupts
        assert (tools.log, len(s.interrupts)) == ([], 2)
        await s.answer(restart={0: {}})
    assert (s.interrupts, s.status, s.requests) == ([ask], "interrupted", 1)
    assert tools.log == [("gate", 1.0)]


async def test_c54_c106_answering_one_of_two_leaves_the_other_pending(play, tools):
    """The first is run once, the second still waits, the model is not called."""
    s = await play([[call("gate", amount=1), call("gate", amount=2)], "done"], tools)
    await s.answer(restart={0: {}})
    assert [i.input for i in s.interrupts] == [{"amount": 2}]
    assert (s.status, s.requests, tools.log) == ("interrupted", 1, [("gate", 1.0)])
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 1.0), ("gate", 2.0)]
    assert s.results == ["sent 1.0", "sent 2.0"]


@pytest.mark.parametrize("made_up", ["id", "call"])
async def test_c55_c94_an_unknown_interrupt_id_runs_nothing(play, tools, made_up):
    """A made-up id, or an interrupt of a made-up call: not found, and no change."""
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    ask, gate = s.interrupts
    before = json.dumps(s.messages)
    never = nb.PendingInterrupt("nonsense", "plain", "call_99", {})
    s.interrupts = [replace(gate, id="nonsense") if made_up == "id" else never]
    for answer in ({"restart": {0: {}}}, {"reject": {0: None}}):
        with pytest.raises(nb.errors.NotPending, match="nonsense"):
            await s.answer(**answer)
    assert (json.dumps(s.messages), tools.log, s.requests) == (before, [], 1)
    s.interrupts = [ask, gate]
    await s.answer(respond={0: "b"}, restart={1: {}})
    assert s.text == "done"


async def test_c55_an_unknown_interrupt_id_leaves_the_store_unchanged(play_stored, tools):
    """The error lists the open interrupts; the journal is unchanged."""
    s = await play_stored([call("ask"), "done"], tools)
    ask, before = s.interrupts[0], s.journal()
    s.interrupts = [replace(ask, id="nonsense")]
    with pytest.raises(nb.errors.NotPending, match=f"nonsense.*{ask.id}"):
        await s.answer(respond={0: "b"})
    assert s.journal() == before
    await s.wait()
    assert (s.interrupts, s.status) == ([ask], "interrupted")


async def test_c57_the_second_submission_learns_who_was_first(play_stored, tools):
    """Also in another process, also after the end; the tool runs once."""
    s = await play_stored([[call("gate", amount=1), call("ask")], "done"], tools)
    gate, ask = s.interrupts
    await s.answer(restart={0: {}})
    for left in ([ask], []):
        s.interrupts = [gate]
        for second in ({"restart": {0: {}}}, {"reject": {0: None}}):
            with pytest.raises(
                nb.Conflict, match=r"already answered \(restart\), by code at \d{4}-"
            ):
                await s.answer(**second)
        assert tools.log == [("gate", 1.0)]
        s.interrupts = left
        if left:
            await s.answer(respond={0: "b"})
    assert s.text == "done"


async def test_c57_two_submissions_at_once_settle_the_interrupt_once(tools):
    """The second caller learns who was first, though the tool has not run yet."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", amount=1), "done"]))
    tools(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    run.resolve(i, nb.Restart(), by="ada")
    assert tools.log == []
    with pytest.raises(nb.Conflict, match=r"already answered \(restart\), by ada at \d{4}-"):
        run.restart(i)
    await run
    assert tools.log == [("gate", 1.0)]


async def test_one_interrupt_answered_twice_in_one_call_is_refused(play_steps, tools):
    """Neither answer counts."""
    s = await play_steps([call("gate", amount=1), "done"], tools)
    (gate,) = s.interrupts
    restart, no = nb.tool_restart(gate), nb.tool_rejection(gate)
    with pytest.raises(nb.errors.InvalidAnswer, match="two answers"):
        await s.generate(tool_restarts=[restart], tool_rejections=[no])
    with pytest.raises(nb.errors.InvalidAnswer, match="two answers"):
        await s.generate(tool_restarts=[restart, restart])
    assert (tools.log, s.requests, s.interrupts) == ([], 1, [gate])


async def test_c58_c99_a_saved_history_resumed_twice_gives_two_branches(play, tools):
    """Each branch has its own outcome; the saved data is unchanged, no call is repeated."""
    s = await play([[call("gate", amount=1), call("plain", x=1)], "one", "two"], tools)
    saved = json.dumps(s.messages)
    first, second = await s.branch(), await s.branch()
    asked = {branch.interrupts[0].id for branch in (s, first, second)}
    assert len(asked) == (3 if s.live else 1)  # a fork has questions of its own
    await first.answer(restart={0: {}})
    await second.answer(respond={0: "by hand"})
    assert [first.text, second.text] == ["one", "two"]
    assert [first.results, second.results] == [["sent 1.0", {"x": 1}], ["by hand", {"x": 1}]]
    assert sorted(tools.log) == [("gate", 1.0), ("plain", 1)]
    assert json.dumps(s.messages) == saved
    assert len(s.interrupts) == 1


async def test_c59_a_tool_that_is_no_longer_registered_is_named(play, tools):
    """No model call, still paused; step by step, also if another question is answered."""
    s = await play([[call("gate", amount=1), call("ask")], "done"], tools)
    s.lose("gate")
    with pytest.raises(ToolError, match=r"'gate'.*not registered"):
        await s.answer(restart={0: {}})
    if s.live:
        await s.answer(respond={1: "b"})
    else:
        with pytest.raises(ToolError, match=r"'gate'.*not registered"):
            await s.answer(respond={1: "b"})
    assert [i.tool_name for i in s.interrupts][:1] == ["gate"]
    assert (s.requests, tools.log) == (1, [])


async def test_c60_a_prompt_and_answers_together_are_an_error(play_steps, tools):
    """Answer first, then send the prompt."""
    s = await play_steps([call("ask"), "done"], tools)
    with pytest.raises(UsageError, match="both a prompt and answers"):
        await s.say("and?", tool_responses=[nb.tool_response(s.interrupts[0], "b")])
    assert (s.requests, len(s.interrupts)) == (1, 1)
    await s.answer(respond={0: "b"})
    assert s.text == "done"


async def test_c64_instructions_are_sent_once(play, tools):
    """Each request has the instructions, and no message has them."""
    s = await play([call("ask"), "done"], tools, instructions="Be careful.")
    await s.answer(respond={0: "b"})
    for request in s.model.requests:
        assert request.instructions == "Be careful."
        assert all(m["role"] != "system" for m in request.messages)


FRESH = """
import asyncio, json, sys
import nbagent as nb

messages = json.load(sys.stdin)
agent = nb.Agent(nb.ScriptedModel([sys.argv[1]]))
agent.add(nb.interrupt_tool("ask", output=str))

@agent.tool
def gate(amount: float, ctx: nb.ToolContext) -> str:
    if not ctx.resumed:
        ctx.interrupt()
    return f"sent {amount}, saved {ctx.state}"

async def main():
    ask, gate = agent.interrupts(messages)
    done = await agent.generate(
        messages=messages,
        tool_responses=[nb.tool_response(ask, "b")],
        tool_restarts=[nb.tool_restart(gate)],
    )
    print(json.dumps([done.text, done.messages]))

asyncio.run(main())
"""


async def test_c65_c113_a_paused_history_continues_in_another_process():
    """Identical outcome, with the state that was saved at the pause."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("gate", amount=9)]]))
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    def gate(amount: float, ctx: nb.ToolContext) -> str:
        ctx.interrupt(state={"step": 2})

    paused = await agent.generate("go")
    ran = subprocess.run(  # noqa: ASYNC221 - nothing else is on this loop
        [sys.executable, "-c", FRESH, "the end"],
        input=json.dumps(paused.messages),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    text, messages = json.loads(ran.stdout)
    assert text == "the end"
    assert [p["output"] for p in parts(messages, "tool_result")] == [
        "b",
        "sent 9.0, saved {'step': 2}",
    ]


async def test_c65_the_outcome_is_identical_however_a_conversation_is_driven(play, tools):
    """All messages are equal, except for random ids and times."""
    script = [
        ["hm", call("ask", q="?"), call("gate", amount=5), call("broken"), call("plain", x=1)],
        call("gate", amount=7),
        "done",
    ]
    told = []
    for s in (await play(script, tools), Steps(script, Tools())):
        if not s.messages:
            await s.start("go")
        await s.answer(respond={0: "b"}, restart={1: {"new_input": {"amount": 4}}})
        await s.answer(reject={0: "enough"})
        told.append(re.sub(r'("at"|"interrupt"): [^,}]*', r"\1", json.dumps(s.messages)))
    assert told[0] == told[1]
    assert told[0].count('"interrupt"') == 3
