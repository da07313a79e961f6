"""Questions inside Jupyter: a key reaches either the form or the window, and a long form keeps its buttons in view."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import APPS

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


@pytest.mark.parametrize("app", APPS)
def test_c212_keys_on_a_button_or_a_radio_reach_only_the_card(app, server, open_page):
    """In both front ends, X cuts no cell and arrows select options; Ctrl+S still saves the notebook."""
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


LONG = """
agent = nb.Agent(
    nb.ScriptedModel([[call("send", to="Ada", text=text, n=n) for n in (1, 2)], "All sent."]),
    policy=[nb.review("*", editable=True)],
)

@agent.tool
def send(to: str, text: str, n: int) -> str:
    "Send a letter."
    return "sent"

@agent.tool
async def rate(ctx: nb.ToolContext) -> str:
    "Ask for a rating."
    return str(await ctx.ask("How was it?", reply=Rating))
"""
PLACES = """() => [".jp-WindowedPanel-outer", ".nba-acts"].map((what) =>
  [...document.querySelectorAll(what)].at(0).getBoundingClientRect()).map((r) => [r.top, r.bottom])"""


def test_c211_a_long_form_keeps_its_scroll_position(server, open_lab):
    """The buttons stay at the end of the form, below its fields; after the answer, its row is in view."""
    setup = f"{SETUP}\ncall = nb.ScriptedModel.call\ntext = '\\n'.join(f'line {{n}}' for n in range(12))\n"
    setup += "from pydantic import BaseModel\nclass Rating(BaseModel):\n    'As you would tell a friend.'\n"
    setup += "".join(f"    question_{n}: int = {n}\n" for n in range(40))
    ask = (
        "rating = nb.Agent(nb.ScriptedModel([[call('rate')], 'Thanks.']), tools=[rate]).run('Rate')"
    )
    name = server.write("long-form.ipynb", f"{setup}\n{LONG}", "print('above')\n" * 30, ask)
    notebook = open_lab(name)
    page = notebook.page
    for cell in range(3):
        notebook.run_cell(cell)
    card = Card(notebook.output(2))
    card.wait_for_question("How was it?")
    expect(card.form).to_contain_text("As you would tell a friend.")
    card.root.get_by_label("Question 5", exact=True).scroll_into_view_if_needed()
    card.root.get_by_label("Question 5", exact=True).focus()
    expect(card.form.locator("[data-lifted]")).to_have_count(0)
    notebook.shot("questions-long-lab")
    send = card.button("Send")
    send.focus()
    send.press("Enter")
    row = card.root.locator(".nba-call, .nba-record").first
    expect(card.forms).to_have_count(0)
    card.wait_until("completed")
    panel, place = page.evaluate(PLACES.replace(".nba-acts", ".nba-call, .nba-record"))
    notebook.shot("questions-long-lab-answered")
    assert panel[0] <= place[0] <= panel[1], "the row jumped out of view"
    expect(row).to_be_visible()
