"""Run All: cells that continue one another, a magic, and a run that is answered while a cell computes."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
%load_ext nbagent
import time
import nbagent as nb
call = nb.ScriptedModel.call
model = nb.ScriptedModel([call("transfer", amount=250), "Sent.", "To Anna.", "On Monday."])
banker = nb.Agent(model, name="banker")

@banker.tool(approval=True)
def transfer(amount: int) -> str:
    "Send money."
    return f"sent {amount}"
"""
FIRST = "first = banker.run('Pay the rent')"
SECOND = "second = banker.run('To whom?', after=first)"
THIRD = "third = banker.run('When?', after=second)\nprint((await third).text)"
MAGIC_AGENT = """
clerk = nb.Agent(nb.ScriptedModel([call("file", name="rent"), "Filed."]), name="clerk")
@clerk.tool(approval=True)
def file(name: str) -> str:
    return "filed " + name
bill = {"to": "Anna", "amount": 250}
"""
MAGIC = "%%agent clerk -o said\nFile this: {bill}"
BACKGROUND_AGENT = """
worker = nb.Agent(nb.ScriptedModel([call("work"), "Worked."]), name="worker")
worked = []
@worker.tool(approval=True)
async def work() -> str:
    worked.append(time.monotonic())
    return "done"
"""
BACKGROUND = """
job = worker.run("Go", background=True)
until = time.monotonic() + 60
while time.monotonic() < until and not job.status == "completed":
    time.sleep(0.05)
print("computed, meanwhile:", job.status)
"""


def test_run_all_goes_through_cells_that_wait_for_one_another(server, open_lab):
    """The first of three cells asks; the others show that they are queued, and continue after the answer."""
    notebook = open_lab(server.write("run_all.ipynb", SETUP, FIRST, SECOND, THIRD))
    notebook.run_all()
    first, second, third = (Card(notebook.output(n)) for n in (1, 2, 3))
    first.wait_until("interrupted")
    for card in (second, third):
        card.wait_until("queued")
        expect(card.root).to_contain_text("queued behind the previous run")
        expect(card.root.locator(".nba-footer")).not_to_contain_text("turn")
    notebook.shot("run_all_waiting", notebook.page.locator(".jp-Notebook"))
    notebook.command("application:toggle-left-area")
    notebook.dark()
    notebook.page.set_viewport_size({"width": 400, "height": 900})
    notebook.shot("run_all_narrow", second.root)
    notebook.light()
    notebook.page.set_viewport_size({"width": 1100, "height": 900})
    first.press("Approve")
    for card, said in ((first, "Sent."), (second, "To Anna."), (third, "On Monday.")):
        card.wait_until("completed")
        expect(card.root).to_contain_text(said)
    expect(notebook.output(3)).to_contain_text("On Monday.")
    notebook.wait_until_all_ran()
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_forms_answer_in_a_magics_cell_and_while_a_cell_computes(server, open_lab):
    """The magic's cell waits for its form; a busy cell does not delay a background run."""
    cells = (SETUP, MAGIC_AGENT, MAGIC, "print(said)", BACKGROUND_AGENT, BACKGROUND)
    notebook = open_lab(server.write("magics.ipynb", *cells))
    notebook.run_all()
    card = Card(notebook.output(2))
    card.wait_until("interrupted")
    expect(card.root).to_contain_text("File this: {'to': 'Anna', 'amount': 250}")
    notebook.shot("magic", notebook.cell(2))
    card.press("Approve")
    expect(notebook.output(3)).to_contain_text("Filed.")
    job = Card(notebook.output(5))
    job.wait_until("interrupted")
    expect(notebook.cell(5)).to_contain_text("[*]")
    notebook.shot("background_asks", notebook.cell(5))
    job.press("Approve")
    expect(notebook.output(5)).to_contain_text("computed, meanwhile: completed")
    job.wait_until("completed")
    notebook.wait_until_all_ran()
    assert notebook.errors == [], "\n".join(notebook.errors)
