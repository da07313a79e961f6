"""The inbox in JupyterLab: questions of several notebooks in one table, and a pause that outlives its kernel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import AXE
from tests.browser.test_group import Table

ASKS = """
import nbagent as nb
call = nb.ScriptedModel.call
agent = nb.Agent(
    nb.ScriptedModel([[call("pay", to=to, amount=amount) for to, amount in {bills}], "All settled."]),
    name="banker",
    store=nb.SQLiteStore("inbox.db"),
)

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {{to}}"

run = agent.run("Pay the bills of {month}", id=None)
run
""".replace(", id=None", "")
AGAIN = """
import nbagent as nb
store = nb.SQLiteStore("inbox.db")
agent = nb.Agent(nb.ScriptedModel(["All settled."]), name="banker")

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {to}"

run = await nb.open_run(store.run_ids()[-1], agent=agent, store=store)
await run
"""
INBOX = """
import nbagent as nb
inbox = nb.inbox(nb.SQLiteStore("inbox.db"))
inbox
"""


def look(notebook, root, name):
    """Take a picture, and check that axe-core finds nothing wrong in it."""
    notebook.shot(f"inbox-{name}", of=root)
    notebook.page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = notebook.page.evaluate(
        "axe.run({include: ['.nbagent', '.nba-chooser']}, { resultTypes: ['violations'] })"
    )
    told = [
        f"{one['impact']} {one['id']} {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
    ]
    assert told == []


def asking(server, open_page, month, bills):
    """A notebook whose run asks, and its card."""
    cells = (ASKS.format(month=month, bills=bills), AGAIN)
    notebook = open_page(server.write(f"{month}.ipynb", *cells))
    notebook.run_cell(0)
    return notebook, Card(notebook.output(0))


@pytest.mark.skipif(not AXE.is_file(), reason=f"no axe-core at {AXE}: npm ci in frontend/")
def test_c280_two_notebooks_are_answered_in_one_table_and_a_lost_kernel_in_another(
    server, open_page
):
    """Both runs go on in their own kernels; a third, whose kernel restarts, is answered here and opened again."""
    may, its = asking(server, open_page, "May", [("Ada", 10), ("Bob", 20)])
    Table(its).wait("2 calls of pay wait")
    june, other = asking(server, open_page, "June", [("Cid", 30)])
    other.wait_for_question("pay")
    inbox = open_page(
        server.write("inbox.ipynb", INBOX, "print(inbox.count, len(inbox))", "inbox.to_frame()")
    )
    inbox.run_cell(0)
    card = Card(inbox.output(0))
    table = Table(card)
    table.wait("3 calls of pay wait")
    expect(card.root).to_contain_text("in process")
    look(inbox, inbox.output(0), "light")
    inbox.run_cell(1)
    expect(inbox.output(1)).to_contain_text("3 3")
    inbox.dark()
    look(inbox, inbox.output(0), "dark")
    inbox.light()
    inbox.style(".jp-OutputArea-child { max-width: 400px }")
    look(inbox, inbox.output(0), "narrow")
    inbox.style(".jp-OutputArea-child.jp-OutputArea-child { max-width: none }")

    card.press_still(table.button(1, "Reject"))
    table.under(1).get_by_label("Why?").fill("not Bob")
    july, third = asking(server, open_page, "July", [("Dee", 40)])
    third.wait_for_question("pay")
    july.restart_kernel()
    expect(third.form).to_contain_text("The kernel is gone, but the run is in its store.")
    expect(third.form).to_contain_text("await nb.open_run(")
    expect(third.button("Approve")).to_have_attribute("aria-disabled", "true")
    july.shot("inbox-kernel-gone", of=third.root)

    inbox.page.bring_to_front()
    table.wait("4 calls of pay wait")
    expect(card.root).to_contain_text("1 new")
    expect(table.under(1).get_by_label("Why?")).to_have_value("not Bob")
    inbox.shot("inbox-new", of=inbox.output(0))
    card.press_still(table.under(1).locator(".nba-reason").get_by_role("button", name="Reject"))
    table.wait("3 calls of pay wait")
    expect(table.rows.nth(3)).to_contain_text("once somebody opens the run")
    inbox.shot("inbox-one-left", of=inbox.output(0))
    card.press("Approve all 3", clicks=2)
    expect(card.root).to_have_attribute("data-status", "completed")
    inbox.shot("inbox-done", of=inbox.output(0))
    for notebook, its_card in ((may, its), (june, other)):
        notebook.page.bring_to_front()
        its_card.wait_until("completed")
    expect(its.root).to_contain_text("not Bob")
    july.page.bring_to_front()
    july.run_cell(1)
    Card(july.output(1)).wait_until("completed")
    for notebook in (may, june, inbox):
        assert notebook.errors == [], "\n".join(notebook.errors)
