"""What is shown is what runs: hidden characters at their fields, and what one answer to many questions covers."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import check_all_looks, check_picture

PAYMENTS = """
import nbagent as nb

PAID = [{"to": f"ACC-{n:03}", "amount": 5 + n * 7 % 60, "why": ("duplicate order", "arrived broken")[n % 3 > 0]} for n in range(117)]
PAID += [
    {"to": "ACC-004", "amount": 987_654_321, "why": "duplicate order"},
    {"to": "ACC-\\u202e500", "amount": 9, "why": "arrived broken"},
    {"to": "ACC-006", "amount": 9, "why": "arrived broken" + ", as said" * 20 + "\\nBCC: all@evil.example" + ", thanks" * 20},
]
ran = []

def answer(messages):
    n = int(next(m for m in messages if m["role"] == "user")["content"][0]["text"])
    return "paid" if messages[-1]["role"] == "tool" else nb.ScriptedModel.call("pay", **PAID[n])

agent = nb.Agent(nb.ScriptedModel(answer), name="payer")

@agent.tool(approval=True)
def pay(to: str, amount: float, why: str) -> str:
    ran.append(amount)
    return "paid"

batch = nb.map(agent, range(120), prompt="{}", id="pay")
"""
RAN = "print(len(ran), max(ran))"
GROUP = """
calls = [nb.ScriptedModel.call("pay", **one) for one in [*PAID[:6], *PAID[117:]]]
run = nb.Agent(nb.ScriptedModel([calls, "done"]), name="payer", tools=[pay]).run("Pay them")
"""
FIELDS = """
from typing import Annotated

import nbagent as nb

ran = []
CODE = "for n in (1,):\\n    if False:\\n        pass\\n\\f    ran.append(n)"
turns = [
    nb.ScriptedModel.call("run_python", code=CODE),
    nb.ScriptedModel.call("send", to="Bob \\u202eAda", text="Dear Bob,\\nas agreed\\u2028pay 5", headers={"X-\\u200bFrom": "me"}),
    "done",
]
agent = nb.Agent(nb.ScriptedModel(turns), name="writer", tools=nb.notebook_tools(code=True))

@agent.tool(approval=True, editable=True)
def send(to: str, text: str, headers: dict[str, str]) -> str:
    "Send a letter."
    ran.append([to, text, headers])
    return "sent"

run = agent.run("Write to Bob")
"""
SENT = "print(ascii(ran), [one.output for one in run.calls['run_python']])"


def test_one_answer_to_many_covers_only_what_was_shown(server, open_lab):
    """A transfer far from the others, a cut text and a hidden character wait until they are opened, by keyboard."""
    notebook = open_lab(server.write("shown-many.ipynb", PAYMENTS, RAN, GROUP))
    page = notebook.page
    notebook.run_cell(0)
    out = notebook.output(0)
    batch = out.locator(".nba-table-card")
    expect(batch.get_by_role("button", name="Approve 117, 3 need a look")).to_be_visible()
    check_all_looks(notebook, out, "shown-many")
    batch.get_by_role("button", name="Open: amount: far from the others").focus()
    page.keyboard.press("Enter")
    expect(batch.get_by_role("group", name="amount: far from the others")).to_be_focused()
    expect(batch.get_by_role("group", name="amount: far from the others")).to_contain_text(
        "987654321"
    )
    expect(batch).to_contain_text("5 to 987,654,321, sum")
    batch.get_by_role("button", name="Open: why: much longer than the others").click()
    expect(batch.locator(".nba-value").last).to_contain_text("BCC: all@evil.example")
    check_picture(notebook, out, "shown-many-opened")
    batch.get_by_role("button", name="Approve 119, 1 needs a look").focus()
    page.keyboard.press("Enter")
    expect(batch.get_by_role("button", name="119 done")).to_be_visible()
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("119 987654321")

    notebook.run_cell(2)
    card = Card(notebook.output(2))
    expect(card.root.get_by_role("button", name="Approve 6 of 9: 3 need a look")).to_be_visible()
    check_all_looks(notebook, card.root, "shown-group")
    card.press("Approve 6 of 9: 3 need a look")
    expect(card.root.locator("h4.nba-title").first).to_have_text("3 calls of pay are waiting")
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_hidden_characters_are_named_at_their_fields(server, open_lab):
    """Code with one never runs; a value with one is sent unchanged unless the person changes it."""
    notebook = open_lab(server.write("shown-fields.ipynb", FIELDS, SENT))
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    card.wait_for_question()
    notes = card.form.locator(".nba-hidden").filter(visible=True)
    expect(notes).to_have_text(
        [
            "Check To: U+202E right-to-left override.",
            "Check Text: U+2028 line separator in line 2.",
            "Check Name 1: U+200B zero-width space.",
        ]
    )
    expect(card.root.get_by_label("To", exact=True)).to_have_accessible_description(
        "Check To: U+202E right-to-left override."
    )
    check_all_looks(notebook, card.root, "shown-fields")
    card.root.get_by_label("To", exact=True).fill("Bob")
    expect(notes).to_have_count(2)
    card.press("Approve with changes")
    card.wait_until("completed")
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text(
        r"[['Bob', 'Dear Bob,\nas agreed\u2028pay 5', {'X-\u200bFrom': 'me'}]]"
    )
    expect(notebook.output(1)).to_contain_text("line 4 has U+000C form feed")
    assert notebook.errors == [], "\n".join(notebook.errors)
