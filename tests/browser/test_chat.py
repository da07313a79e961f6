"""A chat in JupyterLab: said with Enter, answered in the card, edited, with variables, tools and files."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = r"""
import pandas as pd
import nbagent as nb

S = nb.ScriptedModel
df = pd.DataFrame({"region": ["South", "North"], "margin": [-42.5, 18.0]})
draft = "a text"

def agent(*steps, name="analyst"):
    made = nb.Agent(S(list(steps)), name=name)

    @made.tool
    def look(region: str) -> dict:
        "Look at the numbers of a region."
        return {"region": region, "margin": -42.5}

    @made.tool(approval=True)
    def pay(to: str, amount: float) -> str:
        "Pay somebody."
        return f"paid {amount}"

    return made
"""
CHAT = r"""
chat = agent(
    "Only **South** lost money.",
    [S.call("look", region="South")], "South lost 42.5, mostly by discounts.",
    [S.call("pay", to="Ada", amount=20.0)], "Paid, and noted.",
    "Another answer.",
).chat()
"""


@pytest.fixture
def opened(server, open_lab):
    """``opened(cell, …)`` runs these cells after the set-up; 1 is the first."""

    def opened(*cells):
        notebook = open_lab(server.write("chat.ipynb", SETUP, *cells))
        notebook.run_all()
        return notebook

    return opened


def test_a_chat_is_written_read_and_said_anew_in_its_card(opened):
    """By keyboard alone: Enter sends, the thread grows, a question is answered in it, a message is edited."""
    notebook = opened(CHAT)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    keys = notebook.page.keyboard
    expect(box).to_have_attribute("placeholder", "Ask analyst…")
    notebook.shot("chat-empty", card.root)
    box.focus()
    keys.type("Which region lost money?")
    keys.press("Shift+Enter")
    keys.type("Be short.")
    keys.press("Enter")
    expect(card.root).to_contain_text("Only South lost money.")
    expect(box).to_have_value("")
    keys.type("/lo")
    expect(card.root.get_by_role("option")).to_have_count(1)
    keys.press("Tab")
    keys.type("at @d")
    expect(card.root.get_by_role("option")).to_have_count(2)
    notebook.shot("chat-names", card.root)
    keys.press("Enter")
    expect(box).to_have_value("/look at @df ")
    keys.press("Enter")
    expect(card.root).to_contain_text("mostly by discounts")
    expect(card.root.locator(".nba-message").last).to_contain_text("(/look: use the tool look.)")
    expect(card.root.locator(".nba-message").last.locator(".nba-file")).to_contain_text("@df")
    keys.type("Pay Ada")
    keys.press("Enter")
    card.wait_for_question()
    notebook.shot("chat-question", card.root)
    keys.type("And note it down")
    keys.press("Enter")
    expect(card.root.get_by_text("sent after this turn")).to_be_visible()
    card.press("Approve")
    expect(card.root).to_contain_text("Paid, and noted.")
    notebook.shot("chat-done", card.root)
    keys.press("Escape")
    box.focus()
    keys.press("ArrowUp")
    expect(box).to_have_value("Pay Ada")
    assert notebook.errors == [], "\n".join(notebook.errors)
