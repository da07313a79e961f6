"""Several calls of one tool in one table: answered row by row or all alike, once each."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.card import Card
from tests.browser.form_page import check_picture
from tests.browser.notebook_page import App

SETUP = """
import nbagent as nb

ran = []
call = nb.ScriptedModel.call
bills = [("Ada", 10), ("Bob", 20), ("Cid", 30), ("Dee", 40)]
model = nb.ScriptedModel(
    [[call("pay", to=to, amount=amount, unit="EUR") for to, amount in bills], "All settled."]
)
agent = nb.Agent(model, name="banker", policy=[nb.review("pay", message="Pay it?", editable=True)])

@agent.tool
def pay(to: str, amount: float, unit: str) -> str:
    "Pay a bill."
    ran.append(f"{to} {amount:g}")
    return f"paid {amount:g}"

@agent.tool
def menu(guest: str, ctx: nb.ToolContext) -> str:
    "Ask which menu a guest has."
    ctx.interrupt(nb.Choose(message="Which menu?", choices=["Fish", "Vegan"]))
"""
RUN = "run = agent.run('Pay the bills')"
TOLD = """
print('ran', sorted(ran), run.status)
print(*(m["content"] for m in model.requests[-1].messages if m["role"] == "tool"))
"""
ASK = """
asking = nb.ScriptedModel([[call("menu", guest=guest) for guest, _ in bills[:3]], "Thanks."])
run = nb.Agent(asking, name="host", tools=[menu]).run("Ask them")
"""
ANSWERS = "print([c.value for c in run.calls['menu']])"


class Table:
    """The table of a card."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.root = card.root.locator(".nba-group")
        self.title = self.root.locator("h4.nba-title").first
        self.rows = self.root.locator("table.nba-calls > tbody > tr:not(.nba-under)")

    def wait(self, title: str) -> None:
        """Wait until the table has this title."""
        expect(self.title.or_(self.card.failures).first).to_have_text(title)
        self.root.scroll_into_view_if_needed()

    def under(self, row: int) -> Locator:
        """The part that is unfolded below a row."""
        return self.root.locator("tr.nba-under").nth(row)

    def button(self, row: int, name: str) -> Locator:
        """A button of a row."""
        return self.rows.nth(row).get_by_role("button", name=name)

    def place(self, of: Locator) -> list[float]:
        """Position of an element relative to the table, wherever the notebook is scrolled to."""
        inner, outer = of.bounding_box(), self.root.bounding_box()
        return [inner["x"] - outer["x"], inner["y"] - outer["y"]]


@pytest.fixture
def open_table(server, open_page):
    """``open_table(app, cell, …)`` runs the set-up and the first of these cells; returns the notebook and the table."""

    def asked(app, *cells):
        notebook = open_page(server.write(f"group-{app}.ipynb", SETUP, *cells), app=app)
        notebook.run_cell(0)
        notebook.run_cell(1)
        return notebook, Table(Card(notebook.output(1)))

    return asked


def expect_report(notebook, index, text):
    """Run the cell that prints the calls and what the model received, and wait for these words."""
    notebook.run_cell(index)
    expect(notebook.output(index)).to_contain_text(text)


def test_four_calls_are_decided_in_one_table_each_once(open_table):
    """One call is edited, one rejected with a reason, one answered by code, the rest approved at once."""
    notebook, table = open_table(App.LAB, RUN, "run.restart(run.interrupts[0])", TOLD)
    card = table.card
    table.wait("4 calls of pay are waiting")
    expect(table.root.locator(".nba-facts").first).to_contain_text("unit")
    check_picture(notebook, card.root, "group-light")

    table.button(1, "Open").click()
    table.under(1).get_by_label("Amount", exact=True).fill("25")
    check_picture(notebook, card.root, "group-open")
    table.button(1, "Close").click()
    expect(table.rows.nth(1).locator("ins")).to_have_text("25")

    card.press_still(table.button(2, "Reject"))
    table.under(2).get_by_label("Reason (the agent").fill("not Cid")
    notebook.dark()
    check_picture(notebook, card.root, "group-dark")
    notebook.light()
    card.press_still(table.under(2).locator(".nba-reason").get_by_role("button", name="Reject"))
    table.wait("3 calls of pay are waiting")
    expect(table.rows.nth(2)).to_contain_text("rejected")

    before = table.place(table.button(3, "Approve"))
    notebook.run_cell(2)
    table.wait("2 calls of pay are waiting")
    expect(table.rows.nth(0)).to_contain_text("approved · by code")
    assert table.place(table.button(3, "Approve")) == before, "a settled row moved another"

    card.press("Approve all 2, 1 with changes", clicks=2)
    card.wait_until("completed")
    expect(table.root).to_have_count(0)
    expect(card.records).to_have_count(4)
    expect(card.records.first).to_be_focused()
    expect(card.records).to_contain_text(
        ["by code", "approved with changes", "not Cid", "approved"]
    )
    expect_report(notebook, 3, "ran ['Ada 10', 'Bob 25', 'Dee 40'] completed")
    for words in ('changed the arguments of this call to {"to":"Bob","amount":25', "not Cid"):
        expect(notebook.output(3)).to_contain_text(words)
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_a_table_is_decided_with_the_keyboard_only(open_table):
    """From the card's footer into the table, through its rows, and out at the end."""
    notebook, table = open_table(App.LAB, RUN, TOLD)
    table.wait("4 calls of pay are waiting")
    press = notebook.page.keyboard.press
    table.card.root.locator(".nba-jump").focus()
    press("Enter")
    expect(table.title).to_be_focused()
    for name in ("Approve", "Reject…", "Open"):
        press("Tab")
        expect(table.button(0, f"{name}: to Ada, amount 10")).to_be_focused()
    press("Enter")
    press("Tab")
    expect(table.under(0).get_by_label("To", exact=True)).to_be_focused()
    press("Tab")
    notebook.page.keyboard.type("15")
    press("Enter")
    expect(table.title).to_have_text("4 calls of pay are waiting")
    press("Control+Enter")
    table.wait("3 calls of pay are waiting")
    expect(table.rows.nth(0).locator(".nba-record")).to_be_focused()
    press("Tab")
    expect(table.rows.nth(0).locator("summary")).to_be_focused()
    press("Tab")
    expect(table.button(1, "Approve: to Bob, amount 20")).to_be_focused()
    press("Enter")
    table.wait("2 calls of pay are waiting")
    for _ in range(7):
        press("Tab")
    expect(table.card.button("Approve all 2")).to_be_focused()
    press("Enter")
    table.card.wait_until("completed")
    expect(table.card.records.first).to_be_focused()
    expect_report(notebook, 2, "ran ['Ada 15', 'Bob 20', 'Cid 30', 'Dee 40'] completed")


def test_a_reload_keeps_the_text_typed_in_a_row(open_table):
    """Text survives answers to other rows and a reload, also in the narrow table of blocks."""
    notebook, table = open_table(App.NB7, RUN, TOLD)
    table.wait("4 calls of pay are waiting")
    table.button(3, "Open").click()
    field = table.under(3).get_by_label("Amount", exact=True)
    field.click()
    with notebook.sending('"drafts"'):
        field.fill("44")
    notebook.run_cell(2)
    table.card.press_still(table.button(0, "Approve"))
    table.wait("3 calls of pay are waiting")
    expect(field).to_have_value("44")
    notebook.save()
    notebook.reload()
    table.wait("3 calls of pay are waiting")
    expect(table.rows.nth(2).locator("ins")).to_have_text("44")
    notebook.page.set_viewport_size({"width": 480, "height": 1000})
    expect(table.root.locator("thead")).to_be_hidden()
    notebook.shot("group-narrow", of=table.card.root)
    table.card.press_still(table.button(2, "Approve with changes"))
    table.wait("2 calls of pay are waiting")
    table.card.press("Reject all 2…")
    table.card.press("Reject all 2")
    table.card.wait_until("completed")
    expect_report(notebook, 2, "ran ['Ada 10', 'Dee 44'] completed")


def test_one_answer_goes_to_all_remaining_questions(open_table):
    """One question is answered in its row, the others by the form for all of them."""
    notebook, table = open_table(App.LAB, ASK, ANSWERS)
    table.wait("3 questions from menu are waiting")
    table.button(1, "Answer").click()
    table.under(1).get_by_label("Fish").check()
    table.card.press_still(table.under(1).get_by_role("button", name="Send"))
    table.wait("2 questions from menu are waiting")
    same = table.root.locator("> form")
    same.get_by_label("Vegan").check()
    notebook.shot("group-questions", of=table.card.root)
    table.card.press_still(same.get_by_role("button", name="Send"))
    table.card.wait_until("completed")
    expect(table.card.records).to_have_count(3)
    expect_report(notebook, 2, "['Vegan', 'Fish', 'Vegan']")
