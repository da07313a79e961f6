"""A run that has ended can be asked on, and looked through, in its own card."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import App

SETUP = r"""
import nbagent as nb
from nbagent.notebook.cards import display

display.STAY = 2
S = nb.ScriptedModel

def agent(*steps, name="analyst"):
    made = nb.Agent(S(list(steps)), name=name)

    @made.tool
    def look(region: str, lines: int = 3) -> str:
        "Look at the numbers of a region."
        print("\n".join(f"row {n} of {region}" for n in range(lines)))
        return f"{region} is fine" if region != "South 7" else "a discount of 90 % was given"

    return made
"""
SHORT = "run = agent('Only **South** lost money.', 'By discounts, mostly.', 'Stop giving them.').run('Which region lost money?')"
FAILED = "agent(RuntimeError('the line is down')).run('Why?')"
LONG = r"""
agent(
    ["I look at all.", *[S.call("look", region=f"South {n}") for n in range(12)]],
    ["And two more.", S.call("look", region="North", lines=30), S.call("look", region="East")],
    ["Once more.", S.call("look", region="North")],
    "The **discount** in South is what was lost.",
).run("What was lost?")
"""


def ask(card, notebook, text):
    """Open the box by key, write, send."""
    card.button("Ask on…").focus()
    notebook.page.keyboard.press("Enter")
    box = card.root.get_by_label("Message", exact=True)
    expect(box).to_be_focused()
    notebook.page.keyboard.type(text)
    notebook.page.keyboard.press("Enter")
    return box


def test_a_run_that_has_ended_is_asked_on_in_its_own_card(server, open_lab):
    """The card becomes the thread, is saved so, is there after a reload, and older cards give way."""
    notebook = open_lab(server.write("ask-on.ipynb", SETUP, SHORT, FAILED, LONG, "run"))
    keys = notebook.page.keyboard
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_until("completed")
    expect(card.button("Ask on…")).to_be_visible()
    notebook.shot("ask-on-offered", card.root)
    card.press("Ask on…")
    box = card.root.get_by_label("Message", exact=True)
    keys.press("Escape")
    expect(box).to_be_hidden()
    expect(card.button("Ask on…")).to_be_focused()
    ask(card, notebook, "How?")
    expect(card.root).to_contain_text("By discounts, mostly.")
    expect(box).to_be_focused()
    expect(card.root.locator(".nba-message")).to_have_text(["Which region lost money?✎", "How?✎"])
    notebook.shot("ask-on-thread", card.root)
    notebook.save()
    (output,) = json.loads((server.root / "ask-on.ipynb").read_text())["cells"][1]["outputs"]
    assert "By discounts, mostly." in "".join(output["data"]["text/html"])
    box.fill("half a")
    with notebook.sending("half a"):
        pass
    notebook.reload()
    expect(box).to_have_value("half a")
    box.fill("And now?")
    box.press("Enter")
    expect(card.root).to_contain_text("Stop giving them.")
    assert notebook.errors == [], "\n".join(notebook.errors)
