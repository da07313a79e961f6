"""docs/behavior.md, restart: the body runs (again) with a person's answer, on every driver."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import ToolFailed
from nbagent.core.base.interrupts import Resumed
from tests.unit.core.usual import Tools, parts

call = nb.ScriptedModel.call


class Fix(BaseModel):
    """Data of a restart."""

    approved: bool


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
    """A type that does not fit gives None; a restart without data is truthy too."""
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
    assert seen == [(True, Resumed, expected)]


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
    with pytest.raises(nb.errors.InvalidAnswer):
        await s.answer(restart={0: {"new_input": new}})
    assert tools.log == []
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 500.0)]


async def test_c42_a_response_and_a_restart_settle_in_one_message(play, tools):
    """Both results are in one tool message."""
    s = await play([[call("ask"), call("gate", amount=1)], "done"], tools)
    await s.answer(respond={0: "b"}, restart={1: {}})
    assert [m["role"] for m in s.messages] == ["user", "assistant", "tool", "assistant"]
    assert s.results == ["b", "sent 1.0"]


class Bank:
    """The transfer scenario: confirm large amounts, or offer the balance."""

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


async def test_c43_with_an_insufficient_balance_the_rest_is_sent_instead(play):
    """The result has both amounts, for the model too."""
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
    """The answer is the result."""
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
        self.data: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define the tools."""
        self.tools(agent)

        @agent.tool
        def flaky(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            self.tries += 1
            self.data.append(ctx.resumed.data)
            if self.tries == 1:
                raise OSError("line is down")
            return "through"


async def test_c45_a_restarted_body_that_fails_is_the_result_of_that_call(play):
    """The turn continues; siblings keep their results."""
    flaky = Flaky()
    s = await play([[call("ask"), call("flaky"), call("plain")], "done"], flaky)
    await s.answer(respond={0: "b"}, restart={1: {}})
    assert s.results == ["b", "The tool flaky failed: OSError: line is down", {"x": 0}]
    assert s.text == "done"


async def test_c45_c63_with_raise_finished_siblings_are_kept_and_only_the_failed_call_runs_again(
    play,
):
    """A failed restart fails the run; the retry keeps the siblings' answers and results."""
    flaky = Flaky()
    script = [[call("ask"), call("flaky"), call("plain", x=4)], "done"]
    s = await play(script, flaky, on_tool_error="raise")
    with pytest.raises(ToolFailed, match="line is down") as caught:
        await s.answer(respond={0: "b"}, restart={1: {"data": "by sea"}})
    assert isinstance(caught.value.__cause__, OSError)
    assert (flaky.tools.log, flaky.tries, s.requests) == ([("plain", 4)], 1, 1)
    await s.retry()
    assert (s.text, s.results) == ("done", ["b", "through", {"x": 4}])
    assert (flaky.tools.log, flaky.data) == ([("plain", 4)], ["by sea", "by sea"])


async def test_c46_c47_a_gate_can_pause_again_in_every_round(play):
    """Each round has a new pause with the replaced input; answered siblings keep their answers."""
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
    recorded = parts(s.messages, "tool_result")[1]["nbagent"]
    assert [r["metadata"] for r in recorded] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [r["resolution"]["input"] for r in recorded] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert seen == [(0, 1, None), (1, 2, {"round": 0}), (2, 3, {"round": 1}), (3, 4, {"round": 2})]


async def test_c48_a_tool_without_a_body_cannot_be_restarted(play, tools):
    """A clear error, still paused."""
    s = await play([call("ask"), "done"], tools)
    with pytest.raises(nb.errors.InvalidAnswer, match="no function"):
        await s.answer(restart={0: {}})
    await s.answer(respond={0: "b"})
    assert s.text == "done"


async def test_c49_the_model_learns_of_replaced_input(play, tools):
    """The result says that a person changed the arguments, and to what."""
    s = await play([call("gate", amount=500), "done"], tools)
    await s.answer(restart={0: {"new_input": {"amount": 5}}})
    (told,) = s.results
    assert told.splitlines() == [
        'A person changed the arguments of this call to {"amount":5}.',
        "sent 5.0",
    ]
    assert parts(s.messages, "tool_call")[0]["input"] == {"amount": 500}


async def test_c49_true_in_place_of_one_is_also_a_change(play):
    """1 and True are equal in Python, but not in JSON or for the model."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(flag: int | bool, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt()
            return repr(flag)

    s = await play([call("gate", flag=1), "done"], define)
    await s.answer(restart={0: {"new_input": {"flag": True}}})
    assert s.results == ['A person changed the arguments of this call to {"flag":true}.\nTrue']


async def test_c49_an_input_edited_to_an_empty_object_is_an_edit(play):
    """An input of only defaults is an edit, also after a round trip."""
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
