"""A run that a tool's body starts, in a real front end: its form in the outer card, its result in the tool."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import App

SETUP = """
import nbagent as nb

ran = []
call = nb.ScriptedModel.call
banker = nb.Agent(
    nb.ScriptedModel([call("transfer", amount=5), "all sent", call("transfer", amount=6), "sent too"]),
    name="banker",
)

@banker.tool
def transfer(amount: float, ctx: nb.ToolContext) -> str:
    "Transfer money."
    if not ctx.resumed:
        ctx.interrupt(nb.Confirm(message=f"Send {amount:.0f}?"))
    ran.append(amount)
    return f"sent {amount}"

planner = nb.Agent(
    nb.ScriptedModel([call("pay", to="ann"), call("pay_sync", to="bob"), "both paid"]), name="planner"
)

@planner.tool
async def pay(to: str) -> str:
    "Pay."
    return (await banker.run(f"pay {to}")).text

@planner.tool
def pay_sync(to: str) -> str:
    "Pay."
    return banker.run_sync(f"pay {to}").text
"""
RUN = "run = planner.run('Pay Ann and Bob')"
TALLY = "print('ran', ran, [run.calls[n][0].output for n in ('pay', 'pay_sync')])"


@pytest.mark.parametrize("app", [App.LAB])
def test_c140_a_question_from_a_tool_body_is_answered_in_the_outermost_card(app, server, open_page):
    """The outer card has the inner run's rows and form below the call; each answer continues its body."""
    notebook = open_page(server.write(f"bodies-{app}.ipynb", SETUP, RUN, TALLY), app=app)
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_for_question("Send 5?")
    expect(notebook.output(1)).to_contain_text("planner ▸ pay ▸ banker")
    card.press("Approve")
    card.wait_for_question("Send 6?")
    expect(notebook.output(1)).to_contain_text("planner ▸ pay_sync ▸ banker")
    card.press("Approve")
    card.wait_until("completed")
    expect(notebook.output(1).locator(".nbagent")).to_have_count(1)
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("ran [5.0, 6.0] ['all sent', 'sent too']")
    assert notebook.errors == [], "\n".join(notebook.errors)
