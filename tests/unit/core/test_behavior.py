"""BEHAVIOR.md case by case: each holds step by step, live, and through JSON into a fresh agent."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core import messages as messages_module
from nbagent.core import drive as drive_module
from nbagent.core.errors import Misuse, ToolError, ToolFailed, UsageError

call = nb.ScriptedModel.call


class Why(BaseModel):
    """Metadata of a user's own."""

    reason: str
    amount: float


class Other(BaseModel):
    """Metadata that nobody used."""

    color: str


class Fix(BaseModel):
    """Data of a restart."""

    approved: bool


class Tools:
    """The usual tools, and a log of which bodies ran to their end."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.entered: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define ask, gate and plain."""
        log, entered = self.log, self.entered
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        def gate(amount: float, ctx: nb.ToolContext) -> str:
            """Act once a person agrees."""
            entered.append(("gate", amount))
            if not ctx.resumed:
                ctx.interrupt(Why(reason="large", amount=amount))
            log.append(("gate", amount))
            return f"sent {amount}"

        @agent.tool
        async def plain(x: int = 0) -> dict[str, int]:
            """An ordinary tool."""
            log.append(("plain", x))
            return {"x": x}

        @agent.tool
        def broken(x: int = 0) -> str:
            """Fail."""
            log.append(("broken", x))
            raise ValueError("no luck")


@pytest.fixture
def tools() -> Tools:
    """The usual tools."""
    return Tools()


def parts(messages: Any, kind: str) -> list[Any]:
    """All parts of a kind."""
    return [p for m in messages for p in m["content"] if p["type"] == kind]


# --- pausing


async def test_c01_a_tool_that_asks_pauses_the_conversation(play, tools):
    """One interrupt, one model call, and a history that ends with the model's message."""
    s = await play([call("ask", q="?")], tools)
    assert (s.status, len(s.interrupts), s.requests) == ("interrupted", 1, 1)
    assert [m["role"] for m in s.messages] == ["user", "assistant"]


async def test_c02_a_tool_without_a_body_shows_its_input_as_metadata(play, tools):
    """The question is what the model asked."""
    s = await play([call("ask", q="beer or wine?")], tools)
    (i,) = s.interrupts
    assert i.metadata == i.input == {"q": "beer or wine?"}
    assert (i.kind, i.restartable, i.tool_name) == ("question", False, "ask")


@pytest.mark.parametrize(
    ("metadata", "typed", "as_other"),
    [
        ({"reason": "r", "amount": 1.0}, Why(reason="r", amount=1), None),
        (Why(reason="r", amount=1), Why(reason="r", amount=1), None),
        ({"reason": "r", "amount": 1.0, "more": 1}, None, None),
        (None, None, None),
    ],
)
async def test_c03_c04_c06_metadata_is_kept_and_typed_by_shape(play, metadata, typed, as_other):
    """It is in the interrupt and in the saved history; a type that does not fit gives None."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            ctx.interrupt(metadata)

    s = await play([call("gate")], define)
    (i,) = s.interrupts
    assert i.metadata_as(Why) == typed
    assert i.metadata_as(Other) is as_other
    (saved,) = parts(json.loads(json.dumps(s.messages)), "tool_call")
    expected = metadata.model_dump() if isinstance(metadata, BaseModel) else metadata
    assert saved["nbagent"]["pause"].get("metadata") == expected == i.metadata


class Question(BaseModel):
    """The input of a question."""

    n: int


async def _async_metadata(typed: Question) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"twice": typed.n * 2}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"fixed": True}, {"fixed": True}),
        (lambda typed: {"twice": typed.n * 2}, {"twice": 14}),
        (_async_metadata, {"twice": 14}),
    ],
)
async def test_c05_a_question_can_compute_what_it_says(play, metadata, expected):
    """A constant, a function of the typed input, an async function."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask", input=Question, metadata=metadata))

    s = await play([call("ask", n=7)], define)
    assert s.interrupts[0].metadata == expected


async def test_c07_a_tool_may_pause_for_some_inputs_only(play):
    """The one that need not ask is done; the one that must waits."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def transfer(amount: float, ctx: nb.ToolContext) -> str:
            if amount > 100 and not ctx.resumed:
                ctx.interrupt()
            return f"sent {amount}"

    s = await play([call("transfer", amount=5), call("transfer", amount=500)], define)
    assert [i.input for i in s.interrupts] == [{"amount": 500}]
    assert s.results == ["sent 5.0"]


async def test_c08_a_mixed_message_pauses_only_what_asks(play, tools):
    """Two interrupts in call order; both plain calls ran once and keep their results."""
    s = await play(
        [[call("plain", x=1), call("ask"), call("gate", amount=9), call("plain", x=2)], "ok"], tools
    )
    assert [i.tool_name for i in s.interrupts] == ["ask", "gate"]
    assert sorted(tools.log) == [("plain", 1), ("plain", 2)]
    await s.answer(respond={0: "a", 1: "b"})
    assert s.results == [{"x": 1}, "a", "b", {"x": 2}]
    assert sorted(tools.log) == [("plain", 1), ("plain", 2)]


async def test_c10_a_first_run_carries_nothing(play):
    """Not resumed, no data, no original input, no state."""
    seen = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def look(ctx: nb.ToolContext) -> str:
            seen.append(
                (ctx.resumed, ctx.resumed_as(Fix), ctx.original_input, ctx.state, ctx.attempt)
            )
            return "ok"

    s = await play([call("look"), "done"], define)
    assert seen == [(None, None, None, None, 1)]
    assert s.text == "done"


async def test_c11_nothing_paused_means_no_interrupts(play, tools):
    """An empty list, not None."""
    s = await play(["hello"], tools)
    assert (s.interrupts, s.status, s.text) == ([], "completed", "hello")


async def test_c13_a_failure_is_the_calls_result_by_default(play, tools):
    """The model is told and goes on."""
    s = await play([call("broken"), "sorry"], tools)
    assert s.text == "sorry"
    assert s.results == ["The tool broken failed: ValueError: no luck"]
    assert parts(s.messages, "tool_result")[0]["error"] is True


async def test_c13_on_tool_error_raise_fails_the_run(play, tools):
    """The error carries the cause and the messages to resume from."""
    with pytest.raises(ToolFailed, match="no luck") as caught:
        await play([call("broken")], tools, on_tool_error="raise")
    assert isinstance(caught.value.__cause__, ValueError)
    assert [m["role"] for m in caught.value.messages] == ["user", "assistant"]


async def test_c15_return_tool_calls_executes_nothing(tools):
    """The calls are there to look at, and no body ran."""
    agent = nb.Agent(nb.ScriptedModel([[call("plain", x=1), call("gate", amount=2)], "done"]))
    tools(agent)
    response = await agent.generate("go", return_tool_calls=True)
    assert (response.finish_reason, response.interrupts, tools.entered, tools.log) == (
        "tool_calls",
        [],
        [],
        [],
    )
    assert [c["name"] for c in response.tool_calls] == ["plain", "gate"]
    resumed = await agent.generate(messages=response.messages)
    assert [i.tool_name for i in resumed.interrupts] == ["gate"]


async def test_c15_return_tool_calls_after_an_answer_still_settles_that_answer(tools):
    """What was answered runs first; only what the model asks for next is held back."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", amount=2), call("plain", x=1)]))
    tools(agent)
    paused = await agent.generate("go")
    response = await agent.generate(
        messages=paused.messages,
        tool_restarts=[nb.tool_restart(paused.interrupts[0])],
        return_tool_calls=True,
    )
    assert tools.log == [("gate", 2.0)]
    assert [c["name"] for c in response.tool_calls] == ["plain"]


async def test_c16_text_beside_a_call_is_kept(play, tools):
    """What the model said before it asked stays in the history."""
    s = await play([["let me see", call("ask")], "done"], tools)
    await s.answer(respond={0: "b"})
    assert [p["text"] for p in parts(s.messages, "text")] == ["go", "let me see", "done"]


async def test_c17_a_failing_sibling_does_not_destroy_a_pause(play, tools):
    """The pause survives, and the failure is that call's own result."""
    s = await play([[call("broken"), call("ask")], "done"], tools)
    assert [i.tool_name for i in s.interrupts] == ["ask"]
    await s.answer(respond={0: "yes"})
    assert s.results == ["The tool broken failed: ValueError: no luck", "yes"]


@pytest.mark.parametrize("bad", [object(), float("nan"), {1, object()}, {"k": float("inf")}])
@pytest.mark.parametrize("where", ["metadata", "state"])
async def test_c18_metadata_that_is_no_json_fails_the_run(play, bad, where):
    """The error names the tool and the value, and never becomes text for the model."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            ctx.interrupt(**{where: bad})

    with pytest.raises(Misuse, match=f"'gate'.*{where}.*no JSON") as caught:
        await play([call("gate")], define)
    assert repr(bad)[:20] in str(caught.value)


@pytest.mark.parametrize("ids", [("", ""), ("same", "same")])
async def test_c19_calls_without_their_own_id_are_told_apart(play, tools, ids):
    """Each gets a distinct id and is answered on its own."""
    s = await play([[call("ask", ids[0]), call("ask", ids[1])], "done"], tools)
    a, b = s.interrupts
    assert a.call_id
    assert a.call_id != b.call_id
    await s.answer(respond={1: "second"})
    assert [i.call_id for i in s.interrupts] == [a.call_id]
    await s.answer(respond={0: "first"})
    assert s.results == ["first", "second"]


async def test_c19_an_id_the_model_uses_again_later_is_made_unique(play, tools):
    """A server that says call_1 every turn does not mix up two turns."""
    s = await play([call("plain", "call_1", x=1), call("plain", "call_1", x=2), "done"], tools)
    ids = [p["id"] for p in parts(s.messages, "tool_call")]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 2


# --- respond


async def test_c21_an_answer_is_the_tools_result(play, tools):
    """One tool message with the answer, one more model call, the final text."""
    s = await play([call("ask"), "you said b"], tools)
    await s.answer(respond={0: "b"})
    assert (s.results, s.text, s.requests) == (["b"], "you said b", 2)
    assert s.status == "completed"


async def test_c22_the_history_records_the_interrupt_and_its_answer(play, tools):
    """Metadata, answer, who and when."""
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
    """Order of answering is not order of calls."""
    s = await play([[call("ask"), call("ask")], "done"], tools)
    await s.answer(respond={1: "second", 0: "first"})
    assert s.results == ["first", "second"]


async def test_c26_a_finished_call_does_not_run_again(play, tools):
    """Its kept output is delivered beside the answer."""
    s = await play([[call("ask"), call("plain", x=3)], "done"], tools)
    await s.answer(respond={0: "b"})
    assert tools.log == [("plain", 3)]
    assert s.results == ["b", {"x": 3}]


async def test_c27_the_model_may_ask_again_and_again(play, tools):
    """Works to completion."""
    s = await play([call("ask"), call("ask"), call("ask"), "done"], tools)
    for n in range(3):
        assert s.status == "interrupted"
        await s.answer(respond={0: str(n)})
    assert s.text == "done"
    assert [p["output"] for p in parts(s.messages, "tool_result")] == ["0", "1", "2"]


async def test_c28_a_misfit_is_refused_where_the_answer_is_made(play, tools):
    """The error says where; the interrupt still waits."""
    s = await play([call("ask"), "done"], tools)
    with pytest.raises(nb.InvalidAnswer, match="ask") as caught:
        await s.answer(respond={0: 5})
    assert caught.value.errors[0]["msg"]
    await s.answer(respond={0: "five"})
    assert s.text == "done"


async def test_c29_a_misfit_made_by_hand_is_refused_at_resume(tools):
    """Also when the helper is bypassed; nothing ran."""
    agent = nb.Agent(nb.ScriptedModel([call("ask")]))
    tools(agent)
    paused = await agent.generate("go")
    by_hand = (paused.interrupts[0], nb.Respond(output=5))
    with pytest.raises(nb.InvalidAnswer):
        await agent.generate(messages=paused.messages, tool_responses=[by_hand])


@pytest.mark.parametrize("helper", [nb.tool_response, nb.tool_restart, nb.tool_rejection])
@pytest.mark.parametrize("given", [None, "id", 5, {}])
def test_c30_helpers_say_what_they_were_given(helper, given):
    """A TypeError that names the helper and the thing."""
    arguments = (given, "x") if helper is nb.tool_response else (given,)
    with pytest.raises(TypeError, match=f"{helper.__name__}.*{type(given).__name__}"):
        helper(*arguments)


async def test_c30_another_runs_interrupt_is_not_pending_here(tools):
    """An interrupt of another history is refused."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), call("ask")]))
    tools(agent)
    one, two = await agent.generate("1"), await agent.generate("2")
    with pytest.raises(nb.NotPending, match=one.interrupts[0].id):
        await agent.generate(
            messages=two.messages, tool_responses=[nb.tool_response(one.interrupts[0], "x")]
        )


async def test_c34_results_come_in_call_order_whatever_ends_first(play):
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
    """Whatever settled it, a second answer is no answer."""
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    first = s.interrupts[0]
    await s.answer(respond={0: "a"})
    s.interrupts = [first]
    with pytest.raises((nb.NotPending, nb.Conflict), match=first.id):
        await s.answer(respond={0: "b"})


# --- restart


async def test_c36_a_restarted_gate_runs_once_more_and_delivers(play, tools):
    """The body sees that it is resumed."""
    s = await play([call("gate", amount=500), "done"], tools)
    assert tools.log == []
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 500.0)]
    assert tools.entered == [("gate", 500.0)] * 2
    assert s.results == ["sent 500.0"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (Fix(approved=True), Fix(approved=True)),
        ({"approved": True}, Fix(approved=True)),
        ({"color": "red"}, None),
        ("text", None),
        (None, None),
    ],
)
async def test_c37_c38_a_restart_carries_typed_data(play, data, expected):
    """A type that does not fit gives None; a bare restart is truthy all the same."""
    seen = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            seen.append((bool(ctx.resumed), type(ctx.resumed), ctx.resumed_as(Fix)))
            return "ok"

    s = await play([call("gate"), "done"], define)
    await s.answer(restart={0: {"data": data}})
    assert seen == [(True, nb.Resumed, expected)]


class Amount(BaseModel):
    """The gate's input."""

    amount: float


@pytest.mark.parametrize(
    ("new", "used", "original"),
    [
        ({"amount": 5}, 5.0, Amount(amount=500)),
        (Amount(amount=7), 7.0, Amount(amount=500)),
        (None, 500.0, None),
    ],
)
async def test_c39_c40_new_input_is_used_and_the_old_one_stays_readable(play, new, used, original):
    """Without a replacement there is no original input."""
    seen = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(amount: float, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            seen.append((amount, ctx.original_input_as(Amount)))
            return "ok"

    s = await play([call("gate", amount=500), "done"], define)
    await s.answer(restart={0: {"new_input": new}})
    assert seen == [(used, original)]


@pytest.mark.parametrize("new", [{"amount": "much"}, {}, {"amount": 1, "x": 2}, [1], "text"])
async def test_c41_new_input_that_breaks_the_schema_runs_nothing(play, tools, new):
    """An error before anything runs; still paused."""
    s = await play([call("gate", amount=500), "done"], tools)
    with pytest.raises(nb.InvalidAnswer):
        await s.answer(restart={0: {"new_input": new}})
    assert tools.log == []
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 500.0)]


async def test_c42_a_response_and_a_restart_settle_in_one_message(play, tools):
    """Two ways of settling, one tool message."""
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    await s.answer(respond={0: "b"}, restart={1: {}})
    assert [m["role"] for m in s.messages] == ["user", "assistant", "tool", "assistant"]
    assert s.results == ["b", "sent 1.0"]


class Bank:
    """The transfer scenario: confirm what is large, offer what there is."""

    def __init__(self, balance: float) -> None:
        self.balance = balance

    def __call__(self, agent: nb.Agent) -> None:
        """Define transfer."""

        @agent.tool
        def transfer(to_account: str, amount: float, ctx: nb.ToolContext) -> dict[str, Any]:
            """Transfer money."""
            if amount > self.balance and not ctx.resumed:
                ctx.interrupt({"reason": "insufficient", "balance": self.balance})
            if amount > 100 and not ctx.resumed:
                ctx.interrupt({"reason": "confirm_large"})
            self.balance -= amount
            before = ctx.original_input_as(dict)
            told = f"asked {before['amount']}, " if before else ""
            return {"message": f"{told}sent {amount} to {to_account}", "balance": self.balance}


async def test_c43_a_large_transfer_is_confirmed(play):
    """$200 out of $250: confirm, then it is sent once."""
    bank = Bank(250)
    s = await play([call("transfer", to_account="ABC", amount=200), "done"], bank)
    assert s.interrupts[0].metadata == {"reason": "confirm_large"}
    assert bank.balance == 250
    await s.answer(restart={0: {"data": {"ok": True}}})
    assert bank.balance == 50
    assert s.results == [{"message": "sent 200.0 to ABC", "balance": 50.0}]


async def test_c43_an_insufficient_balance_is_sent_instead(play):
    """The adjusted run tells both amounts, to the model too."""
    bank = Bank(150)
    s = await play([call("transfer", to_account="ABC", amount=200), "done"], bank)
    assert s.interrupts[0].metadata["reason"] == "insufficient"
    balance = s.interrupts[0].metadata["balance"]
    await s.answer(restart={0: {"new_input": {"to_account": "ABC", "amount": balance}}})
    assert bank.balance == 0
    (told,) = s.results
    assert "asked 200" in told
    assert "sent 150" in told


async def test_c43_a_declined_transfer_sends_nothing(play):
    """The answer takes the tool's place."""
    bank = Bank(250)
    s = await play([call("transfer", to_account="ABC", amount=200), "done"], bank)
    await s.answer(respond={0: {"message": "declined", "balance": 250}})
    assert bank.balance == 250
    assert s.results == [{"message": "declined", "balance": 250}]


class Flaky:
    """A gate whose restarted body fails the first time, beside an ask and a plain tool."""

    def __init__(self) -> None:
        self.tools = Tools()
        self.tries = 0

    def __call__(self, agent: nb.Agent) -> None:
        """Define the tools."""
        self.tools(agent)

        @agent.tool
        def flaky(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            self.tries += 1
            if self.tries == 1:
                raise OSError("line is down")
            return "through"


async def test_c45_a_restarted_body_that_fails_is_that_calls_result(play):
    """The turn goes on; siblings keep theirs."""
    flaky = Flaky()
    s = await play([[call("ask"), call("flaky"), call("plain")], "done"], flaky)
    await s.answer(respond={0: "b"}, restart={1: {}})
    assert s.results == ["b", "The tool flaky failed: OSError: line is down", {"x": 0}]
    assert s.text == "done"


async def test_c45_c63_with_raise_the_finished_siblings_are_kept_and_only_that_call_runs_again():
    """The error's messages resume at that call alone, also through JSON."""
    flaky = Flaky()
    model = nb.ScriptedModel([[call("ask"), call("flaky"), call("plain", x=4)], "done"])
    agent = nb.Agent(model, on_tool_error="raise")
    flaky(agent)
    paused = await agent.generate("go")
    ask, gate = paused.interrupts
    with pytest.raises(ToolFailed, match="line is down") as caught:
        await agent.generate(
            messages=paused.messages,
            tool_responses=[nb.tool_response(ask, "b")],
            tool_restarts=[nb.tool_restart(gate)],
        )
    kept = json.loads(json.dumps(caught.value.messages))
    again = nb.Agent(model, on_tool_error="raise")
    flaky(again)
    done = await again.generate(messages=kept)
    assert done.text == "done"
    assert [p["output"] for p in parts(done.messages, "tool_result")] == ["b", "through", {"x": 4}]
    assert (flaky.tools.log, flaky.tries) == ([("plain", 4)], 2)


async def test_c45_live_with_raise_the_run_fails_and_siblings_keep_their_results():
    """A failed run tells why, and its journal holds what was done."""
    flaky = Flaky()
    agent = nb.Agent(
        nb.ScriptedModel([[call("ask"), call("flaky"), call("plain")]]), on_tool_error="raise"
    )
    flaky(agent)
    run = agent.run("go")
    await run.settled()
    run.respond(run.interrupts[0], "b")
    run.restart(run.interrupts[0])
    with pytest.raises(ToolFailed, match="line is down"):
        await run
    assert run.status == "failed"
    assert run.calls["ask"][0].output == "b"
    assert run.calls["plain"][0].output == {"x": 0}
    assert not run.calls["flaky"][0].done


async def test_c46_c47_a_gate_may_pause_again_in_every_round(play):
    """New pause each round, answered siblings keep their answers, replaced input is what is shown."""
    seen = []

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            seen.append((n, ctx.attempt, ctx.state))
            if n < 3:
                ctx.interrupt({"n": n}, state={"round": n})
            return f"ok {n}"

    s = await play([[call("ask"), call("gate", n=0)], "done"], define)
    await s.answer(respond={0: "kept"}, restart={1: {"new_input": {"n": 1}}})
    ids = set()
    for n in (1, 2):
        (i,) = s.interrupts
        assert (i.input, i.metadata, i.original_input) == ({"n": n}, {"n": n}, {"n": 0})
        assert i.id not in ids
        ids.add(i.id)
        await s.answer(restart={0: {"new_input": {"n": n + 1}}})
    assert s.results[0] == "kept"
    assert "ok 3" in s.results[1]
    assert seen == [(0, 1, None), (1, 2, {"round": 0}), (2, 3, {"round": 1}), (3, 4, {"round": 2})]


async def test_c48_a_tool_without_a_body_cannot_be_restarted(play, tools):
    """A clear error, still paused."""
    s = await play([call("ask"), "done"], tools)
    with pytest.raises(nb.InvalidAnswer, match="no body"):
        await s.answer(restart={0: {}})
    await s.answer(respond={0: "b"})
    assert s.text == "done"


async def test_c49_the_model_is_told_of_replaced_input(play, tools):
    """What it sees says that a person changed the arguments, and to what."""
    s = await play([call("gate", amount=500), "done"], tools)
    await s.answer(restart={0: {"new_input": {"amount": 5}}})
    (told,) = s.results
    assert told.splitlines() == [
        'A person changed the arguments of this call to {"amount":5}.',
        "sent 5.0",
    ]
    assert parts(s.messages, "tool_call")[0]["input"] == {"amount": 500}


async def test_c49_true_in_place_of_one_is_a_change_too(play):
    """Python holds 1 and True equal; JSON does not, and neither does the model."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(flag: int | bool, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            return repr(flag)

    s = await play([call("gate", flag=1), "done"], define)
    await s.answer(restart={0: {"new_input": {"flag": True}}})
    assert s.results == ['A person changed the arguments of this call to {"flag":true}.\nTrue']


async def test_c49_an_input_edited_to_nothing_is_an_edit(play):
    """All defaults is an input of its own, also after a round trip."""
    seen = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext, n: int = 1) -> str:
            seen.append(n)
            if not ctx.resumed or n != 1:
                ctx.interrupt()
            return "ok"

    s = await play([call("gate", n=5), "done"], define)
    await s.answer(restart={0: {"new_input": {}}})
    assert seen == [5, 1]
    assert "to {}" in s.results[0]


# --- invalid and partial


@pytest.mark.parametrize("answer", ["none", "response"])
async def test_c51_c52_resuming_what_has_nothing_pending_is_an_error(tools, answer):
    """No model call."""
    model = nb.ScriptedModel([call("ask"), "hello"])
    agent = nb.Agent(model)
    tools(agent)
    paused = await agent.generate("go")
    replies = [nb.tool_response(paused.interrupts[0], "b")]
    done = await agent.generate(messages=paused.messages, tool_responses=replies)
    with pytest.raises(nb.NotPending):
        await agent.generate(
            messages=done.messages, tool_responses=replies if answer == "response" else ()
        )
    assert len(model.requests) == 2


async def test_c53_a_call_left_without_an_answer_is_named_before_anything_runs(tools):
    """Neither the answered gate nor the model runs."""
    model = nb.ScriptedModel([[call("gate", amount=1), call("ask")]])
    agent = nb.Agent(model)
    tools(agent)
    paused = await agent.generate("go")
    gate, ask = paused.interrupts
    with pytest.raises(nb.PendingInterrupts, match=f"'ask'.*{ask.id}") as caught:
        await agent.generate(messages=paused.messages, tool_restarts=[nb.tool_restart(gate)])
    assert tools.log == []
    assert len(model.requests) == 1
    assert ask in caught.value.interrupts


async def test_c54_c106_answering_one_of_two_leaves_the_other_pending(play, tools):
    """The first is run once, the second still waits, the model is not called."""
    s = await play([[call("gate", amount=1), call("gate", amount=2)], "done"], tools)
    await s.answer(restart={0: {}})
    assert [i.input for i in s.interrupts] == [{"amount": 2}]
    assert (s.status, s.requests, tools.log) == ("interrupted", 1, [("gate", 1.0)])
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 1.0), ("gate", 2.0)]
    assert s.results == ["sent 1.0", "sent 2.0"]


async def test_c55_an_unknown_interrupt_id_runs_nothing(tools):
    """The error lists what waits; the journal is as it was."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "done"]))
    tools(agent)
    run = await agent.run("go").settled()
    before = run.journal
    with pytest.raises(nb.NotPending, match=f"nonsense.*{run.interrupts[0].id}"):
        run.respond("nonsense", "b")
    assert run.journal == before
    assert run.status == "interrupted"


async def test_c57_the_second_submission_is_told_who_was_first(tools):
    """At once or later; the tool runs once."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", amount=1), "done"]))
    tools(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    run.resolve(i, nb.Restart(), by="ada")
    with pytest.raises(nb.Conflict, match=r"answered already \(restart\), by ada at \d{4}-"):
        run.restart(i)
    await run
    with pytest.raises(nb.Conflict, match="by ada"):
        run.reject(i)
    assert tools.log == [("gate", 1.0)]


async def test_c58_a_saved_history_resumed_twice_gives_two_branches(tools):
    """The saved data is untouched."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "one", "two"]))
    tools(agent)
    paused = await agent.generate("go")
    saved = json.dumps(paused.messages)
    branches = [
        await agent.generate(
            messages=paused.messages, tool_responses=[nb.tool_response(paused.interrupts[0], v)]
        )
        for v in "ab"
    ]
    assert [b.text for b in branches] == ["one", "two"]
    assert [parts(b.messages, "tool_result")[0]["output"] for b in branches] == ["a", "b"]
    assert json.dumps(paused.messages) == saved


@pytest.mark.parametrize("answered", [True, False])
async def test_c59_a_tool_that_is_no_longer_registered_is_named(tools, answered):
    """No model call, still paused."""
    model = nb.ScriptedModel([call("gate", amount=1)])
    agent = nb.Agent(model)
    tools(agent)
    paused = await agent.generate("go")
    bare = nb.Agent(model)
    replies = [nb.tool_restart(paused.interrupts[0])] if answered else []
    with pytest.raises(ToolError, match=r"'gate'.*not registered"):
        await bare.generate(messages=paused.messages, tool_restarts=replies)
    assert len(model.requests) == 1


async def test_c60_a_prompt_and_answers_together_are_an_error(tools):
    """Answer first, then go on."""
    agent = nb.Agent(nb.ScriptedModel([call("ask")]))
    tools(agent)
    paused = await agent.generate("go")
    with pytest.raises(UsageError, match="not both"):
        await agent.generate(
            "and?",
            messages=paused.messages,
            tool_responses=[nb.tool_response(paused.interrupts[0], "b")],
        )


async def test_c61_a_new_message_while_paused_is_refused_or_rejects(tools):
    """By default with the interrupts in the error; never a dangling call."""
    agent = nb.Agent(nb.ScriptedModel([[call("gate", amount=1), call("plain")], "never mind"]))
    tools(agent)
    paused = await agent.generate("go")
    with pytest.raises(nb.PendingInterrupts, match="'gate'") as caught:
        await agent.generate("something else", messages=paused.messages)
    assert [i.id for i in caught.value.interrupts] == [paused.interrupts[0].id]
    done = await agent.generate("something else", messages=paused.messages, pending="reject")
    assert done.text == "never mind"
    assert "rejected" in parts(done.messages, "tool_result")[0]["output"]
    assert tools.log == [("plain", 0)]


async def test_c61_after_a_run_that_still_asks_is_refused(tools):
    """The same for live runs."""
    agent = nb.Agent(nb.ScriptedModel([call("ask")]))
    tools(agent)
    run = await agent.run("go").settled()
    with pytest.raises(nb.PendingInterrupts, match="ask"):
        agent.run("and?", after=run)


async def test_c64_instructions_are_sent_once(play, tools):
    """They ride beside the messages, in every request the same."""
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


async def test_c65_c113_a_paused_history_goes_on_in_another_process():
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


# --- streaming, limits


async def test_c67_each_interrupt_is_an_event_at_the_moment_it_is_raised():
    """While a sibling still runs, and answerable at once."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("slow")], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    go = asyncio.Event()

    @agent.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    run = agent.run("go")
    async for event in run.events():
        if getattr(event, "type", "") == "interrupted":
            break
    (i,) = run.interrupts
    assert (event.id, event.tool_name, event.metadata) == (i.id, "ask", {})
    assert i.path == ("agent", "ask")
    assert run.status == "running"
    run.respond(i, "b")
    assert run.interrupts == []
    go.set()
    await run
    assert [c[0].output for c in run.calls.values()] == ["b", "slow"]


def endless(_messages: Any) -> Any:
    """A model that always calls a tool."""
    return call("plain")


async def test_c69_step_by_step_a_model_that_loops_is_stopped(tools):
    """The error carries the history and the text so far, and can be gone on from."""
    model = nb.ScriptedModel(lambda _m: ["hm", call("plain")])
    agent = nb.Agent(model, max_turns=3)
    tools(agent)
    with pytest.raises(nb.TurnLimit, match="3 turns") as caught:
        await agent.generate("go")
    assert len(model.requests) == 3
    assert caught.value.text == "hm"
    assert caught.value.messages[-1]["role"] == "tool"
    with pytest.raises(nb.TurnLimit):
        await agent.generate(messages=caught.value.messages, max_turns=5)
    assert len(model.requests) == 5


async def test_c69_live_a_person_is_asked_whether_to_go_on(tools):
    """A number of turns goes on; anything else is refused; a no ends the run with TurnLimit."""
    model = nb.ScriptedModel(endless)
    agent = nb.Agent(model, max_turns=2)
    tools(agent)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    assert (run.status, i.kind, i.tool_name, i.call_id) == ("interrupted", "budget", "", "")
    for bad in (0, -1, "3", None, True, 1.5):
        with pytest.raises(nb.InvalidAnswer):
            run.respond(i, bad)
    with pytest.raises(nb.InvalidAnswer):
        run.restart(i)
    run.respond(i, 3)
    await run.settled()
    assert len(model.requests) == 5
    run.reject(run.interrupts[0])
    with pytest.raises(nb.TurnLimit) as caught:
        await run
    assert run.status == "failed"
    assert caught.value.messages == run.messages


async def test_c70_c134_a_pause_in_the_last_turn_is_delivered_and_resuming_costs_no_turn(
    play, tools
):
    """Only model responses count."""
    s = await play([call("ask"), call("gate", amount=1), "done"], tools, max_turns=3)
    await s.answer(respond={0: "b"})
    assert s.interrupts[0].tool_name == "gate"
    await s.answer(restart={0: {}})
    assert s.text == "done"
    last = await play([call("ask")], tools, max_turns=1)
    assert [i.tool_name for i in last.interrupts] == ["ask"]


# --- approval


async def test_c76_approving_runs_exactly_what_was_shown(play, tools):
    """Once, with the displayed input."""
    s = await play([call("gate", amount=500), "done"], tools)
    shown = s.interrupts[0].input
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", shown["amount"])]


@pytest.mark.parametrize("reason", ["too much", None])
async def test_c78_c79_a_rejection_reaches_the_model_and_never_the_body(play, tools, reason):
    """The result names the tool, and the reason where there is one."""
    s = await play([call("gate", amount=500), "done"], tools)
    await s.answer(reject={0: reason})
    (told,) = s.results
    assert "gate" in told
    assert "reject" in told
    assert ("too much" in told) == (reason is not None)
    assert "None" not in told
    assert tools.log == []
    assert s.text == "done"


def named(value):
    """A name that is the same in every process: without an object's address."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


NO_DECISIONS: list[Any] = [
    None,
    "approve",
    "false",
    "true",
    {},
    {"type": "restart"},
    {"type": "launch"},
    [],
    True,
    False,
    0,
    nb.Respond,
    object(),
]


@pytest.mark.parametrize("decision", NO_DECISIONS, ids=named)
@pytest.mark.parametrize("tool", ["gate", "ask", "stream"])
async def test_c80_what_is_no_decision_never_runs_a_tool(decision, tool):
    """Live: an error, nothing written, still pending; for streaming tools too."""
    ran = []
    agent = nb.Agent(nb.ScriptedModel([call(tool)]))
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        ran.append(1)
        return "ran"

    @agent.tool
    async def stream(ctx: nb.ToolContext):
        if not ctx.resumed:
            ctx.interrupt()
        ran.append(1)
        yield "ran"

    run = await agent.run("go").settled()
    before = run.journal
    with pytest.raises(nb.InvalidAnswer):
        run.resolve(run.interrupts[0], decision)
    with pytest.raises((TypeError, nb.NotPending)):
        run.resolve(decision, nb.Restart())
    if decision is not None:
        if not isinstance(decision, str):
            with pytest.raises(nb.InvalidAnswer):
                run.reject(run.interrupts[0], decision)
        if not isinstance(decision, dict):
            with pytest.raises(nb.InvalidAnswer):
                run.restart(run.interrupts[0], new_input=decision)
    assert run.journal == before
    assert (len(run.interrupts), run.status, ran) == (1, "interrupted", [])


@pytest.mark.parametrize("decision", NO_DECISIONS, ids=named)
@pytest.mark.parametrize("where", ["tool_responses", "tool_restarts", "tool_rejections"])
async def test_c80_what_is_no_decision_is_refused_step_by_step(tools, decision, where):
    """In every list, before anything runs."""
    model = nb.ScriptedModel([call("gate", amount=1)])
    agent = nb.Agent(model)
    tools(agent)
    paused = await agent.generate("go")
    for given in (decision, (paused.interrupts[0], decision)):
        with pytest.raises(nb.InvalidAnswer, match=where):
            await agent.generate(messages=paused.messages, **{where: [given]})
    assert (tools.log, len(model.requests)) == ([], 1)


async def test_c80_an_answer_of_another_kind_than_its_list_is_refused(tools):
    """A restart among the responses is a slip that must not run a tool."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", amount=1)]))
    tools(agent)
    paused = await agent.generate("go")
    with pytest.raises(nb.InvalidAnswer, match="tool_responses"):
        await agent.generate(
            messages=paused.messages, tool_responses=[nb.tool_restart(paused.interrupts[0])]
        )
    assert tools.log == []


async def test_c84_c85_an_edited_approval_runs_the_edit_and_tells_the_model(play, tools):
    """Without edits the original runs and nothing is told."""
    s = await play([[call("gate", amount=500), call("gate", amount=600)], "done"], tools)
    await s.answer(restart={0: {"new_input": {"amount": 50}}, 1: {}})
    assert sorted(tools.log) == [("gate", 50.0), ("gate", 600.0)]
    assert s.results[0].startswith("A person changed the arguments")
    assert s.results[1] == "sent 600.0"


async def test_c88_answering_instead_of_running(play, tools):
    """The answer is the result; the body is not run again."""
    s = await play([call("gate", amount=500), "done"], tools)
    await s.answer(respond={0: "do it by hand"})
    assert (s.results, tools.log) == (["do it by hand"], [])


async def test_c98_a_resumed_history_reads_in_order(play, tools):
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


# --- cancel


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give cancelled tools little time."""
    monkeypatch.setattr(drive_module, "GRACE", 0.2)


async def test_c128_cancel_during_a_tool_keeps_what_is_finished(tools):
    """The tool stops at its await, finished results are kept, the status is cancelled."""
    model = nb.ScriptedModel([[call("plain", x=1), call("slow")]])
    agent = nb.Agent(model)
    tools(agent)
    started, stopped = asyncio.Event(), []

    @agent.tool
    async def slow() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(True)
        return "slow"

    run = agent.run("go")
    await started.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    await run.cancel()
    assert (run.status, stopped) == ("cancelled", [True])
    assert run.calls["plain"][0].output == {"x": 1}
    with pytest.raises(nb.Cancelled, match="by code"):
        await run
    assert run.interrupts == []
    assert len(model.requests) == 1


async def test_c129_a_tool_that_will_not_stop_is_left_behind(short_grace, caplog):
    """The status is cancelled, the call is named, the late result is discarded and logged."""
    agent = nb.Agent(nb.ScriptedModel([call("stubborn")]))
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    @agent.tool
    def stubborn() -> str:
        entered.set()
        leave.wait(30)
        left.set()
        return "late"

    run = agent.run("go")
    await asyncio.to_thread(entered.wait)
    await run.cancel(by="ada")
    journal = run.journal
    assert run.status == "cancelled"
    assert journal[-1].still_running == ("call_1",)
    assert journal[-1].by == "ada"
    leave.set()
    await asyncio.to_thread(left.wait)
    for _ in range(100):
        if caplog.records:
            break
        await asyncio.sleep(0.01)
    assert "'stubborn'" in caplog.text
    assert "discarded" in caplog.text
    assert run.journal == journal


async def test_c128_cancel_while_the_model_streams():
    """The response that was under way is not in the history."""
    agent = nb.Agent(
        nb.ScriptedModel([nb.ScriptedModel.slow("never whole", delay=0.05, pieces=1000)])
    )
    run = agent.run("go")
    async for _ in run.events():
        break
    await asyncio.sleep(0.01)
    await run.cancel()
    assert run.status == "cancelled"
    assert [m["role"] for m in run.messages] == ["user"]


def test_the_readme_loop_runs_as_documented():
    """The classic interrupt loop, as a person copies it."""
    code = textwrap.dedent(
        """
        async def main(agent, ask_person, ask_question):
            response = await agent.generate("Plan a BBQ", tools=[ask_question])
            while response.finish_reason == "interrupted":
                replies = [nb.tool_response(i, ask_person(i)) for i in response.interrupts]
                response = await agent.generate(
                    messages=response.messages, tool_responses=replies, tools=[ask_question]
                )
            return response.text
        """
    )
    names: dict[str, Any] = {"nb": nb}
    exec(code, names)
    agent = nb.Agent(
        nb.ScriptedModel(
            [call("ask_question", q="meat?"), call("ask_question", q="beer?"), "planned"]
        )
    )
    question = nb.interrupt_tool("ask_question", output=str)
    assert asyncio.run(names["main"](agent, lambda i: i.input["q"], question)) == "planned"
