"""Runs in a default store: the first card shows the store, an id finds a run again, a list shows all."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import App

SETUP = """
import nbagent as nb
nb.use_store("kept.db")
call = nb.ScriptedModel.call
clerk = nb.Agent(
    nb.ScriptedModel(lambda said: "Paid." if said[-1]["role"] == "tool" else call("pay", to="Ada")), name="clerk"
)

@clerk.tool(approval=True)
def pay(to: str) -> str:
    "Pay."
    with open("paid.txt", "a") as file:
        file.write(to + "\\n")
    return f"paid {to}"
"""
RUN = "run = clerk.run('Pay Ada.', id='march')"
LIST = "nb.runs()"


def test_a_run_with_a_chosen_id_is_found_after_a_restart_and_pays_once(server, open_page) -> None:
    """A cell run again keeps its run; after a restart the id alone finds the form; the list shows the state."""
    name = server.write("kept.ipynb", SETUP, RUN, LIST)
    notebook = open_page(name, app=App.LAB)
    notebook.run_all()
    Card(notebook.output(1)).wait_for_question("pay")
    expect(notebook.output(1)).to_contain_text("Runs are stored in")
    expect(notebook.output(2)).to_contain_text("waiting for you")
    notebook.shot("kept-light")
    notebook.run_cell(1)
    Card(notebook.output(1)).wait_for_question("pay")
    notebook.restart_kernel()
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_for_question("pay")
    expect(notebook.output(1)).to_contain_text("Runs are stored in")
    card.press("Approve")
    expect(notebook.output(1)).to_contain_text("Paid.")
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("done")
    notebook.dark()
    notebook.shot("kept-dark")
    notebook.light()
    assert (server.root / "paid.txt").read_text() == "Ada\n"
