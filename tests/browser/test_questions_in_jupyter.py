"""Keys in a card of JupyterLab and Notebook 7: a form's are the form's, the window's are the window's."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import App

SETUP = """
import nbagent as nb
agent = nb.Agent(nb.ScriptedModel([[nb.ScriptedModel.call("pick")], "Done."]))

@agent.tool
def pick(ctx: nb.ToolContext) -> str:
    "Ask which dish."
    return ctx.interrupt(nb.Choose(message="Which dish?", choices=["Fish", "Meat", "Vegan"]))
"""
CELLS = "() => window.jupyterapp.shell.currentWidget.content.model.cells.length"
DIRTY = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
SHORTCUTS = ["a", "b", "d", "d", "x", "y", "m", "j", "k", "0", "0"]


@pytest.mark.parametrize("app", App)
def test_keys_on_a_button_or_a_radio_are_the_cards_alone(app, server, open_page):
    """X cuts no cell and arrows walk the options, in both; Ctrl+S saves the notebook all the same."""
    name = server.write(
        f"keys-{app}.ipynb", SETUP, "run = agent.run('Choose')", "print(run.status)"
    )
    notebook = open_page(name, app=app)
    page = notebook.page
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_for_question("Which dish?")
    cells = page.evaluate(CELLS)
    radios = card.root.get_by_role("radio")
    for place in (radios.first, card.button("Decline…")):
        place.focus()
        for key in SHORTCUTS:
            page.keyboard.press(key)
        expect(place).to_be_focused()
    assert page.evaluate(CELLS) == cells, "a key in the card changed the notebook"
    radios.first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    expect(radios.nth(1)).to_be_checked()
    expect(radios.nth(1)).to_be_focused()

    page.evaluate("() => { window.jupyterapp.shell.currentWidget.context.model.dirty = true; }")
    page.keyboard.press("Control+s")
    page.wait_for_function(f"!({DIRTY})()")
    expect(radios.nth(1)).to_be_focused()
    page.keyboard.press("x")
    assert page.evaluate(CELLS) == cells
    page.keyboard.press("Control+Enter")
    card.wait_until("completed")
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("completed")
    assert notebook.errors == [], "\n".join(notebook.errors)
