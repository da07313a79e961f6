"""docs/behavior.md, approval: each question gets its own answer and no other, on every driver."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb

call = nb.ScriptedModel.call


class Transfers:
    """A tool with its own question, and the answers that its bodies saw."""

    def __init__(self, *, approval: bool = False) -> None:
        self.saw: list[Any] = []
        self.moved: list[float] = []
        self._approval = approval

    def __call__(self, agent: nb.Agent) -> None:
        """Define transfer."""

        @agent.tool(approval=self._approval)
        def transfer(amount: float, ctx: nb.ToolContext) -> str:
            """Move money."""
            told = [one and one.data for one in (ctx.approved, ctx.resumed)]
            self.saw.append([bool(ctx.approved), bool(ctx.resumed), *told, ctx.state])
            if amount > 100 and not ctx.resumed:
                ctx.interrupt(
                    nb.Confirm(f"overdraw by {amount - 100:g}?", danger=True), state={"left": 100}
                )
            self.moved.append(amount)
            return f"moved {amount:g}"


class Inside:
    """An agent whose inner agent moves money; fresh agents share the inner model."""

    def __init__(self) -> None:
        self.transfers = Transfers()
        self.model = nb.ScriptedModel([call("transfer", amount=5000), "inside done"])

    def __call__(self, agent: nb.Agent) -> None:
        """Define banker."""
        banker = nb.Agent(self.model, name="banker", policy=[nb.review("*")])
        self.transfers(banker)
        agent.add(banker.as_tool())


@pytest.mark.parametrize("by", ["rule", "option"])
async def test_c137_an_approval_and_the_tools_own_question_are_both_asked_once(play, by):
    """The gate's answer is ``ctx.approved``, the tool's own is ``ctx.resumed``, in this order."""
    transfers = Transfers(approval=by == "option")
    policy = [nb.review("*")] if by == "rule" else []
    s = await play([call("transfer", amount=5000), "done"], transfers, policy=policy)
    assert [(i.kind, i.expects) for i in s.interrupts] == [("approval", "approval")]
    await s.answer(restart={0: {"data": "ok"}})
    assert [(i.kind, i.metadata) for i in s.interrupts] == [
        ("tool", {"message": "overdraw by 4900?", "danger": True})
    ]
    assert (transfers.moved, transfers.saw) == ([], [[True, False, "ok", None, None]])
    await s.answer(restart={0: {"data": "yes"}})
    assert (s.status, s.results, transfers.moved) == ("completed", ["moved 5000"], [5000])
    assert transfers.saw[1:] == [[True, True, "ok", "yes", {"left": 100}]]


async def test_c137_an_input_edited_at_either_question_is_not_asked_about_again(play):
    """The tool's own question shows the edited input, and the edited input runs."""
    transfers = Transfers()
    rules = [nb.review("*", editable=True)]
    s = await play([call("transfer", amount=5000), "done"], transfers, policy=rules)
    await s.answer(restart={0: {"new_input": {"amount": 900}}})
    assert [(i.kind, i.input, i.original_input) for i in s.interrupts] == [
        ("tool", {"amount": 900}, {"amount": 5000})
    ]
    await s.answer(restart={0: {"new_input": {"amount": 800}}})
    assert (s.status, transfers.moved) == ("completed", [800])
    assert [seen[:2] for seen in transfers.saw] == [[True, False], [True, True]]


async def test_c137_an_always_allowed_tool_still_asks_its_own_question(play_stored):
    """A remembered approval does not answer the tool's own question."""
    transfers = Transfers()
    script = [call("transfer", amount=5000), call("transfer", amount=6000), "done"]
    s = await play_stored(script, transfers, policy=[nb.review("*")])
    await s.decide(nb.Restart(remember="tool"))
    await s.answer(restart={0: {}})
    again = s.interrupts[0]
    if again.kind == "approval":  # a new process remembers nothing
        await s.answer(restart={0: {}})
        again = s.interrupts[0]
    assert (again.kind, again.metadata["message"]) == ("tool", "overdraw by 5900?")
    await s.answer(restart={0: {}})
    assert (s.status, transfers.moved) == ("completed", [5000, 6000])


async def test_c137_a_tool_of_an_inner_agent_asks_both_questions_too(play):
    """The outermost run asks them one after the other, each once."""
    family = Inside()
    transfers, rules = family.transfers, [nb.review("banker")]
    s = await play([call("banker", prompt="pay"), "done"], family, policy=rules)
    asked = []
    while s.interrupts:
        asked.append((s.interrupts[0].tool_name, s.interrupts[0].kind))
        await s.answer(restart={0: {}})
    assert asked == [("banker", "approval"), ("transfer", "approval"), ("transfer", "tool")]
    assert transfers.moved == [5000]
    assert [seen[:2] for seen in transfers.saw] == [[True, False], [True, True]]


async def test_c146_middleware_gate_and_body_each_get_their_own_answer(play):
    """Each of the three asks once, from the outside in, and keeps its own answer in later passes."""
    transfers = Transfers()
    saw: list[Any] = []

    async def confirm(c: nb.ToolCall, nxt: Any) -> Any:
        saw.append([c.resumed_as(str), bool(c.approved), c.state])
        if not c.resumed:
            c.interrupt(nb.Confirm("really?"), state={"asked": 1})
        return await nxt(c)

    script = [call("transfer", amount=5000), "done"]
    s = await play(script, transfers, policy=[nb.review("*")], middleware=[confirm])
    asked = []
    for said in ("middleware", "gate", "body"):
        asked.append((s.interrupts[0].kind, len(s.interrupts)))
        await s.answer(restart={0: {"data": said}})
    assert asked == [("tool", 1), ("approval", 1), ("tool", 1)]
    assert (s.status, transfers.moved) == ("completed", [5000])
    mine = ["middleware", False, {"asked": 1}]
    assert saw == [[None, False, None], mine, [mine[0], True, mine[2]], [mine[0], True, mine[2]]]
    assert transfers.saw == [
        [True, False, "gate", None, None],
        [True, True, "gate", "body", {"left": 100}],
    ]
