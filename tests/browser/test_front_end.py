"""The code of cards is sent to a page once, however many cards the page shows and whichever remain."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import nbagent as nb
call = nb.ScriptedModel.call

def clerk():
    agent = nb.Agent(nb.ScriptedModel([call("pay", to="Ada"), "Paid."]), name="clerk")

    @agent.tool(approval=True)
    def pay(to: str) -> str:
        "Pay."
        return f"paid {to}"

    return agent
"""
SHOW = "run = clerk().run('Pay Ada')"
CLOSE = """
import ipywidgets
from nbagent.notebook.cards.run_card import RunCard
for widget in list(ipywidgets.widgets.widget._instances.values()):
    if isinstance(widget, RunCard):
        widget.close()
"""
MAX_CARD = 23_200
"""Most bytes from the kernel for a page's second card until its question is shown: the card, and twice the HTML that a
saved notebook stores (in the display, and for the page to write), with its styles once; on a busy machine three times."""
MAX_FIRST = 120_000
"""Most bytes for a page's first card, including what all cards share."""


def question(notebook, cell):
    """The card in this cell, after its question is shown."""
    card = Card(notebook.output(cell))
    card.wait_for_question("pay")
    return card


def styled(card):
    """Whether the card has its own styles."""
    return card.root.evaluate("card => getComputedStyle(card).borderTopStyle") == "solid"


def test_the_second_card_of_a_page_loads_no_code_and_all_cards_can_be_reloaded_and_closed(
    server, open_page
):
    """The second card takes a fraction of the first card's bytes; cards work reloaded, and with others closed."""
    name = server.write("front-end.ipynb", SETUP, SHOW, SHOW, CLOSE, SHOW)
    notebook = open_page(name)
    notebook.run_cell(0)
    notebook.wait_for_kernel()
    sizes = []
    for cell in (1, 2):
        before = notebook.received
        notebook.run_cell(cell)
        assert styled(question(notebook, cell))
        notebook.wait_for_kernel()
        sizes.append(notebook.received - before)
    assert sizes[1] < MAX_CARD < sizes[0] < MAX_FIRST
    notebook.save()
    notebook.reload()
    assert styled(question(notebook, 2))
    question(notebook, 1).press("Approve")
    Card(notebook.output(1)).wait_until("completed")
    notebook.run_cell(3)
    expect(Card(notebook.output(2)).root).to_have_count(0)
    notebook.run_cell(4)
    card = question(notebook, 4)
    assert styled(card)
    card.press("Approve")
    card.wait_until("completed")
    assert notebook.errors == [], "\n".join(notebook.errors)
