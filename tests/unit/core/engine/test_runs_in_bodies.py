"""Runs that a tool's body starts: what they ask stands on the outermost run, wherever that is answered."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Usage

call = nb.ScriptedModel.call


class Bank:
    """planner, whose tool pay awaits a run of banker, whose tool transfer asks."""

    def __init__(self, how: str, *inner: Any, depth: int = 1) -> None:
        self.how = how
        self.depth = depth
        self.log: list[Any] = []
        self.entered: list[str] = []
        self.model = nb.ScriptedModel(
            inner or [[call("look", n=1)], call("transfer", amount=5), "all sent"],
            usage=Usage(10, 1),
        )
        self.middles = [
            nb.ScriptedModel([call("pay", to="bob"), "passed on"]) for _ in range(1, depth)
        ]

    def __call__(self, agent: nb.Agent) -> None:
        """Give the agent the tool."""
        inner = self._banker()
        for model in self.middles:
            middle = nb.Agent(model, name="middle")
            self._give(middle, inner)
            inner = middle
        self._give(agent, inner)

    def _banker(self) -> nb.Agent:
        banker = nb.Agent(self.model, name="banker")
        banker.add(nb.interrupt_tool("ask", output=str))

        @banker.tool
        def look(n: int) -> str:
            self.log.append(("look", n))
            return f"looked {n}"

        @banker.tool
        async def transfer(amount: float, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"amount": amount}, state={"asked": amount})
            self.log.append(("transfer", amount, ctx.state))
            return f"sent {amount}"

        return banker

    def _give(self, agent: nb.Agent, inner: nb.Agent) -> None:
        async def pay_run(to: str) -> str:
            self.entered.append(to)
            return (await inner.run(f"pay {to}")).text

        def pay_sync(to: str) -> str:
            self.entered.append(to)
            return inner.run_sync(f"pay {to}").text

        async def pay_generate(to: str) -> str:
            self.entered.append(to)
            return (await inner.generate(f"pay {to}")).text

        bodies: dict[str, Any] = {"run": pay_run, "run_sync": pay_sync, "generate": pay_generate}
        agent.add(nb.tool(bodies[self.how], name="pay"))


HOWS = ["run", "run_sync", "generate"]
SCRIPT = [call("pay", to="bob"), "done"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("answer", "told", "sent"),
    [
        ({"respond": {0: "by hand"}}, "by hand", []),
        ({"restart": {0: {}}}, "sent 5.0", [5.0]),
        ({"reject": {0: "too much"}}, "too much", []),
    ],
    ids=["respond", "restart", "reject"],
)
async def test_c140_a_tool_awaits_a_run_that_it_started(play, how, answer, told, sent):
    """One question with the whole path; the answer reaches the inner model, and nothing is done twice."""
    bank = Bank(how)
    s = await play(SCRIPT, bank, name="planner")
    (i,) = s.interrupts
    assert i.path == ("planner", "pay", "banker", "transfer")
    assert (i.metadata, i.state, i.input) == ({"amount": 5.0}, {"asked": 5.0}, {"amount": 5})
    await s.answer(**answer)
    assert told in bank.model.requests[-1].messages[-1]["content"][0]["output"]
    assert [entry[1] for entry in bank.log] == [1, *sent]
    assert (s.results, s.text) == (["all sent"], "done")
    assert len(bank.model.requests) == 3


@pytest.mark.parametrize("how", HOWS)
async def test_c140_two_levels_deep(play, how):
    """A run inside a run inside a run: one question, with every agent and tool on the way."""
    bank = Bank(how, depth=2)
    s = await play(SCRIPT, bank, name="planner")
    (i,) = s.interrupts
    assert i.path == ("planner", "pay", "middle", "pay", "banker", "transfer")
    await s.answer(restart={0: {}})
    assert [entry[1] for entry in bank.log] == [1, 5.0]
    assert s.results == ["passed on"]
