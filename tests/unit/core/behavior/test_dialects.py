"""Both dialects of the vocabulary in docs/behavior.md, as tutorials write them."""

from __future__ import annotations

import pytest

import nbagent as nb
from tests.unit.core.usual import outputs

call = nb.ScriptedModel.call


async def test_the_documented_dialect_runs_unchanged():
    """A tutorial's code, apart from its imports: ``@ai.tool()``, ``input: Model, ctx``."""
    from pydantic import BaseModel, Field  # noqa: PLC0415 - as the tutorial's own first lines

    from nbagent import tool_response  # noqa: PLC0415

    ai = nb.Agent(
        nb.ScriptedModel([call("ask_question", question="How rare?", choices=["a", "b"]), "Enjoy!"])
    )

    class QuestionInput(BaseModel):
        question: str = Field(description="the question to ask")
        choices: list[str] = Field(description="the choices to display")

    @ai.tool()
    def ask_question(input: QuestionInput, ctx) -> str:  # noqa: A002
        """Use this to ask a clarifying question."""
        ctx.interrupt()

    response = await ai.generate(prompt="Plan a menu for my backyard BBQ.", tools=["ask_question"])
    asked = []
    while response.finish_reason == "interrupted":
        asked.append(response.interrupts[0].input)
        response = await ai.generate(
            messages=response.messages,
            tool_responses=[tool_response(response.interrupts[0], "b")],
            tools=["ask_question"],
        )
    assert asked == [{"question": "How rare?", "choices": ["a", "b"]}]
    assert response.text == "Enjoy!"


async def test_the_documented_dialect_of_restartable_interrupts_runs_unchanged():
    """The transfer tutorial: metadata, original input, resumed data, new input."""
    from pydantic import BaseModel  # noqa: PLC0415 - as the tutorial's own first lines

    ai = nb.Agent(nb.ScriptedModel([call("transfer_money", to_account="ABC", amount=200), "Done."]))

    class TransferInput(BaseModel):
        to_account: str
        amount: float

    class Transfer(BaseModel):
        status: str
        told: str

    class TransferInterrupt(BaseModel):
        reason: str
        amount: float

    class Confirmation(BaseModel):
        approved: bool

    balance = 150.0

    @ai.tool()
    async def transfer_money(input: TransferInput, ctx) -> Transfer:  # noqa: A002
        """Transfers money to another account."""
        nonlocal balance
        if input.amount > balance:
            ctx.interrupt(TransferInterrupt(reason="insufficient_balance", amount=input.amount))
        confirmation = ctx.resumed_as(Confirmation)
        if input.amount > 100 and not (confirmation and confirmation.approved):
            ctx.interrupt({"reason": "confirm_large", "amount": input.amount})
        balance -= input.amount
        original = ctx.original_input_as(TransferInput)
        told = f"{original.amount} asked" if original else "as asked"
        return Transfer(status="completed", told=told)

    response = await ai.generate(prompt="Transfer $200 to ABC", tools=["transfer_money"])
    while response.finish_reason == "interrupted":
        restarts = []
        for interrupt in response.interrupts:
            meta = interrupt.metadata_as(TransferInterrupt)
            if meta.reason == "insufficient_balance":
                new_input = TransferInput(to_account="ABC", amount=balance)
                restarts.append(nb.tool_restart(interrupt, new_input=new_input))
            else:
                restarts.append(nb.tool_restart(interrupt, data=Confirmation(approved=True)))
        response = await ai.generate(
            messages=response.messages, tool_restarts=restarts, tools=[transfer_money]
        )
    assert response.text == "Done."
    assert balance == 0
    assert "200.0 asked" in outputs(response.messages)[0]


async def test_the_nbagent_dialect_has_the_same_outcome():
    """Keyword parameters, ``i.respond``, ``tool.respond``, ``i.restart``, all in one loop."""
    agent = nb.Agent(
        nb.ScriptedModel([[call("ask"), call("send", n=1), call("send", n=2), call("old")], "done"])
    )
    ask = agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    def send(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            raise nb.Interrupt(nb.Confirm(message="sure?"), state={"n": n})
        return f"sent {n} {ctx.state_as(dict)['n']} {ctx.resumed.data}"

    @agent.tool
    def old(ctx: nb.ToolContext) -> str:
        ctx.interrupt()

    response = await agent.generate("go")
    first, second, third, fourth = response.interrupts
    assert second.metadata_as(nb.Confirm) == nb.Confirm(message="sure?")
    assert (second.restartable, first.restartable, first.expires_at) == (True, False, None)
    response = await agent.generate(
        messages=response.messages,
        tool_responses=[ask.respond(first, "b")],
        tool_restarts=[send.restart(second, data="x"), third.restart(new_input={"n": 3})],
        tool_rejections=[fourth.reject("old")],
    )
    assert response.text == "done"
    told = outputs(response.messages)
    assert told[:2] == ["b", "sent 1 1 x"]
    assert "sent 3 2 None" in told[2]
    with pytest.raises(nb.errors.InvalidAnswer, match="'ask'"):
        send.respond(first, "x")
