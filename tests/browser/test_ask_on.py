"""A run that has ended can be followed up and searched in its own card."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import axe_finds

SETUP = r"""
import nbagent as nb
from nbagent.notebook.cards import display

display.STAY = 1
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
    """Open the message box by keyboard, type, and send."""
    card.button("Follow up…").focus()
    notebook.page.keyboard.press("Enter")
    box = card.root.get_by_label("Message", exact=True)
    expect(box).to_be_focused()
    notebook.page.keyboard.type(text)
    notebook.page.keyboard.press("Enter")
    return box


def test_a_finished_run_is_followed_up_in_its_own_card(server, open_lab):
    """The card becomes the thread, is saved as a thread, and is shown again after a reload."""
    notebook = open_lab(server.write("ask-on.ipynb", SETUP, SHORT, FAILED, LONG, "run"))
    keys = notebook.page.keyboard
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_until("completed")
    expect(card.button("Follow up…")).to_be_visible()
    notebook.shot("ask-on-offered", card.root)
    card.press("Follow up…")
    box = card.root.get_by_label("Message", exact=True)
    keys.press("Escape")
    expect(box).to_be_hidden()
    expect(card.button("Follow up…")).to_be_focused()
    ask(card, notebook, "How?")
    expect(card.root).to_contain_text("By discounts, mostly.")
    expect(box).to_be_focused()
    expect(card.root.locator(".nba-message")).to_have_text(
        ["YouWhich region lost money?✎", "YouHow?✎"]
    )
    notebook.shot("ask-on-thread", card.root)
    notebook.save("By discounts, mostly.")
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


def test_a_long_run_is_searched_and_older_cards_become_static(server, open_lab):
    """By keyboard: only matches are shown and marked, folded matches open, Escape restores all rows.

    A live card becomes static HTML when its kernel restarts.
    """
    notebook = open_lab(server.write("find.ipynb", SETUP, LONG, FAILED, SHORT))
    for cell in (0, 1):
        notebook.run_cell(cell)
    card = Card(notebook.output(1))
    card.wait_until("completed")
    find(notebook, card)
    expand(notebook, card)
    notebook.page.keyboard.press("Escape")
    notebook.run_cell(2)
    failed = Card(notebook.output(2))
    failed.wait_until("failed")
    expect(failed.button("Follow up…")).to_be_visible()
    expect(failed.button("Find…")).to_be_hidden()
    notebook.run_cell(3)
    newest = Card(notebook.output(3))
    newest.wait_until("completed")
    notebook.turn_to(0)
    card.wait_until_static()
    expect(newest.button("Follow up…")).to_be_visible()
    notebook.restart_kernel()
    newest.wait_until_static()
    expect(newest.root).to_contain_text("Only South lost money.")
    assert notebook.errors == [], "\n".join(notebook.errors)


def find(notebook, card):
    """Find a word in a folded row, and a line in folded output."""
    keys = notebook.page.keyboard
    rows, folded = card.root.locator(".nba-items > :visible"), card.root.locator(".nba-stretch")
    expect(rows).to_have_count(8)
    notebook.shot("find-offered", card.root)
    card.button("Find…").focus()
    keys.press("Enter")
    box = card.root.get_by_label("Find in this run")
    told = card.root.locator(".nba-finder .nba-help")
    expect(box).to_be_focused()
    keys.type("discount")
    expect(told).to_have_text("2 found")
    expect(rows).to_have_count(2)
    expect(folded).not_to_have_attribute("open", "")
    keys.press("Enter")
    expect(told).to_have_text("1 of 2")
    expect(folded.locator(".nba-call:visible")).to_have_count(1)
    expect(folded.get_by_text("a discount of 90 %")).to_be_visible()
    notebook.shot("find-match", card.root)
    marked = "name => [...CSS.highlights.get(name)].map(String)"
    assert notebook.page.evaluate(marked, "nba-found-here") == ["discount"]
    keys.press("Shift+Enter")
    expect(told).to_have_text("2 of 2")
    expect(folded).not_to_have_attribute("open", "")
    notebook.dark()
    notebook.page.set_viewport_size({"width": 770, "height": 900})
    notebook.shot("find-dark-narrow", card.root)
    assert axe_finds(notebook.page) == []
    notebook.light()
    box.fill("row 29")
    expect(told).to_have_text("1 found")
    keys.press("Enter")
    expect(card.root.get_by_text("row 29 of North")).to_be_visible()
    keys.press("Escape")
    expect(box).to_be_hidden()
    expect(card.button("Find…")).to_be_focused()
    keys.press("Tab")
    expect(card.button("Follow up…")).to_be_focused()
    keys.press("Shift+Tab")
    expect(rows).to_have_count(8)
    expect(card.root.locator("details[open]")).to_have_count(0)


def expand(notebook, card):
    """Expand all rows, including folded ones, and collapse them again."""
    notebook.page.keyboard.press("Enter")
    card.press("Expand all")
    expect(card.root.locator("details:not([open]):not([hidden])")).to_have_count(0)
    expect(card.root.locator(".nba-call")).to_have_count(16)
    card.press("Collapse all")
    expect(card.root.locator("details[open]")).to_have_count(0)
    card.root.get_by_label("Find in this run").focus()
