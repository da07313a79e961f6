"""docs/behavior.md, respond: an answer in the place of the tool, on every driver."""

from __future__ import annotations

import asyncio
import json

import pytest

import nbagent as nb
from tests.unit.core.usual import parts

call = nb.ScriptedModel.call


async def test_c21_an_answer_is_the_tools_result(play, tools):
    """One tool message with the answer, one more model call, the final text."""
    s = await play([call("ask"), "you said b"], tools)
    await s.answer(respond={0: "b"})
    assert (s.results, s.text, s.requests) == (["b"], "you said b", 2)
    assert s.status == "completed"


async def test_c22_the_history_records_the_interrupt_and_its_answer(play, tools):
    """Metadata, answer, author and time."""
    s = await play([call("gate", amount=5), "done"], tools)
    interrupt = s.interrupts[0]
    await s.answer(respond={0: "b"})
    (result,) = parts(s.messages, "tool_result")
    (record,) = result["nbagent"]
    assert record["interrupt"] == interrupt.id
    assert record["metadata"] == {"reason": "large", "amount": 5.0}
    assert record["resolution"] == {"type": "respond", "output": "b"}
    assert record["by"] == "code"
    assert record["at"] > 0


async def test_c25_answers_in_reverse_order_reach_their_own_calls(play, tools):
    """The order of answers may differ from the calls."""
    s = await play([[call("ask"), call("ask")], "done"], tools)
    await s.answer(respond={1: "second", 0: "first"})
    assert s.results == ["first", "second"]


async def test_c26_a_finished_call_does_not_run_again(play, tools):
    """The stored output is sent beside the answer."""
    s = await play([[call("ask"), call("plain", x=3)], "done"], tools)
    await s.answer(respond={0: "b"})
    assert tools.log == [("plain", 3)]
    assert s.results == ["b", {"x": 3}]


async def test_c27_the_model_can_ask_again_and_again(play, tools):
    """The run completes."""
    s = await play([call("ask"), call("ask"), call("ask"), "done"], tools)
    for n in range(3):
        assert s.status == "interrupted"
        await s.answer(respond={0: str(n)})
    assert s.text == "done"
    assert [p["output"] for p in parts(s.messages, "tool_result")] == ["0", "1", "2"]


async def test_c28_an_answer_that_does_not_fit_is_refused_where_it_is_made(play, tools):
    """The error names the tool; the interrupt stays open."""
    s = await play([call("ask"), "done"], tools)
    before = json.dumps(s.messages)
    with pytest.raises(nb.errors.InvalidAnswer, match="ask") as caught:
        await s.answer(respond={0: 5})
    assert caught.value.errors[0]["msg"]
    assert json.dumps(s.messages) == before
    await s.answer(respond={0: "five"})
    assert s.text == "done"


async def test_c29_an_answer_that_does_not_fit_made_by_hand_is_refused_at_resume(play, tools):
    """Without the helper too; nothing runs, and the question stays open."""
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    with pytest.raises(nb.errors.InvalidAnswer, match="ask"):
        await s.decide(nb.Respond(5, interrupt=s.interrupts[0]))
    assert (s.requests, len(s.interrupts), tools.log) == (1, 2, [])
    await s.answer(respond={0: "five"}, restart={1: {}})
    assert s.results == ["five", "sent 1.0"]


async def test_every_helper_returns_the_same_resolution_with_its_interrupt(play_steps, tools):
    """All dialects make equal values, which survive JSON."""
    s = await play_steps([[call("ask"), call("gate", amount=1)], "done"], tools)
    ask, gate = s.interrupts
    said = nb.Respond("five", interrupt=ask.id)
    assert said == nb.tool_response(ask, "five") == s.agent.tools["ask"].respond(ask, "five")
    assert said == ask.respond("five") == nb.Respond("five", interrupt=ask)
    assert nb.Respond.model_validate_json(said.model_dump_json()) == said
    again = nb.Restart({"amount": 2.0}, interrupt=gate)
    assert again == nb.tool_restart(gate, new_input={"amount": 2.0})
    assert nb.Reject("no", interrupt=gate) == nb.tool_rejection(gate, "no") == gate.reject("no")
    with pytest.raises(ValueError, match="outptu"):
        nb.Respond.model_validate({"outptu": 1})
    with pytest.raises(TypeError, match="outptu"):
        nb.Respond(outptu=1)


async def test_an_answer_that_names_no_interrupt_is_refused_by_generate(play_steps, tools):
    """A guess could approve the wrong call."""
    s = await play_steps([[call("ask"), call("gate", amount=1)], "done"], tools)
    with pytest.raises(nb.errors.InvalidAnswer, match=r"This Restart has no interrupt.*interrupt="):
        await s.generate(tool_restarts=[nb.Restart()])
    with pytest.raises(nb.errors.InvalidAnswer, match="tool_responses takes"):
        await s.generate(tool_responses=[(s.interrupts[0], nb.Respond("five"))])
    assert (s.requests, len(s.interrupts), tools.log) == (1, 2, [])


async def test_resolve_accepts_a_resolution_that_has_its_interrupt(tools):
    """Alone or beside its interrupt; a contradiction is refused. The journal stores no interrupt in it."""
    agent = nb.Agent(nb.ScriptedModel([[call("gate", amount=1), call("gate", amount=2)], "done"]))
    tools(agent)
    run = await agent.run("go").settled()
    one, two = run.interrupts
    for wrong in (lambda: run.resolve(two, one.restart()), lambda: run.resolve(nb.Restart())):
        with pytest.raises(nb.errors.InvalidAnswer):
            wrong()
    assert run.interrupts == [one, two]
    run.resolve(one.restart())
    run.resolve(two.id, two.reject("no"))
    await run
    settled = [event.resolution for event in run.journal if event.type == "resolved"]
    assert settled == [nb.Restart(), nb.Reject("no")]


async def test_answers_can_be_made_with_the_helpers_of_the_interrupt(tools):
    """In a function for ``answers=``; an answer to another interrupt is refused."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", amount=1), "done"] * 2))
    tools(agent)
    assert (await agent.run("go", answers=lambda i: i.restart())).text == "done"
    assert tools.log == [("gate", 1.0)]
    with pytest.raises(nb.errors.InvalidAnswer, match="another"):
        await agent.run("go", answers={"gate": nb.Restart(interrupt="another")})


@pytest.mark.parametrize("helper", [nb.tool_response, nb.tool_restart, nb.tool_rejection])
@pytest.mark.parametrize("given", [None, "id", 5, {}])
def test_c30_helpers_name_the_wrong_argument(helper, given):
    """A TypeError names the helper and the type."""
    arguments = (given, "x") if helper is nb.tool_response else (given,)
    with pytest.raises(TypeError, match=f"{helper.__name__}.*{type(given).__name__}"):
        helper(*arguments)


async def test_c30_an_interrupt_of_another_run_is_not_pending_here(play, tools):
    """An interrupt of another history is refused, even if its call has the same id."""
    one, two = await play([call("ask")], tools), await play([call("ask")], tools)
    assert one.interrupts[0].call_id == two.interrupts[0].call_id
    two.interrupts = one.interrupts
    with pytest.raises(nb.errors.NotPending, match=one.interrupts[0].id):
        await two.answer(respond={0: "x"})


async def test_c30_the_helper_of_a_tool_refuses_the_interrupt_of_another_tool(play, tools):
    """The error names the tool that asked."""
    s = await play([[call("ask"), call("gate", amount=1)]], tools)
    ask, gate = s.interrupts
    with pytest.raises(nb.errors.InvalidAnswer, match="'ask'"):
        s.agent.tools["gate"].respond(ask, "x")
    with pytest.raises(nb.errors.InvalidAnswer, match="'gate'"):
        s.agent.tools["ask"].restart(gate)
    for given in (None, "x", 5):
        with pytest.raises(TypeError, match=type(given).__name__):
            s.agent.tools["ask"].respond(given, "x")


async def test_c34_results_are_in_call_order_whatever_ends_first(play):
    """Restarts that end in another order do not reorder the history."""

    def define(agent: nb.Agent) -> None:
        done = {n: asyncio.Event() for n in range(4)}
        done[3].set()

        @agent.tool
        async def gate(n: int, ctx: nb.ToolContext) -> int:
            if not ctx.resumed:
                ctx.interrupt()
            await done[n + 1].wait()
            done[n].set()
            return n

    s = await play([[call("gate", n=n) for n in range(3)], "done"], define)
    assert [i.input["n"] for i in s.interrupts] == [0, 1, 2]
    await s.answer(restart={2: {}, 0: {}, 1: {}})
    assert s.results == [0, 1, 2]


async def test_c35_an_answer_for_a_call_that_has_a_result_is_refused(play, tools):
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    first = s.interrupts[0]
    await s.answer(respond={0: "a"})
    s.interrupts = [first]
    with pytest.raises((nb.errors.NotPending, nb.Conflict), match=first.id):
        await s.answer(respond={0: "b"})
