"""Pictures in a conversation, in a real front end: in the prompt, from a tool, live and saved."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card
from tests.browser.notebook_page import APPS

SETUP = (
    GIVES_WAY
    + """
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import nbagent as nb

Path("scan.pdf").write_bytes(b"%PDF-1.4" + b"0" * 120_000)
fig, ax = plt.subplots(figsize=(5, 3))
ax.plot([3, 1, 4, 1, 5, 9, 2, 6])
ax.set_title("Monthly sales")
plt.close(fig)
call = nb.ScriptedModel.call
agent = nb.Agent(
    nb.ScriptedModel([call("smooth", window=3), call("approve"), "The peak in June is odd: 9."]),
    name="analyst",
)

@agent.tool
def smooth(window: int):
    "Draw the series smoothed."
    figure, axes = plt.subplots(figsize=(5, 3))
    axes.plot(np.convolve([3, 1, 4, 1, 5, 9, 2, 6], np.ones(window) / window))
    return figure

@agent.tool
def approve(ctx: nb.ToolContext) -> str:
    "Ask."
    if not ctx.resumed:
        ctx.interrupt(nb.Confirm(message="Is that it?"))
    return "yes"
"""
)
RUN = 'run = agent.run(["What is odd here?", fig, Path("scan.pdf"), np.eye(6)])'
KEPT = """
files = [f for e in run.journal if e.type == "tool_finished" for f in e.files]
print("kept", len(files), [e.display for e in run.journal if e.type == "tool_finished"])
print("shown as well", sum(len(e.displays) for e in run.journal if e.type == "tool_finished"))
"""
LOADED = "images => images.map(i => i.complete && i.naturalWidth > 0)"


@pytest.mark.parametrize("app", APPS)
def test_pictures_of_a_prompt_and_of_a_tool_are_shown_live_and_saved(app, server, open_page):
    """Pictures have their names, in light and dark, wide and narrow; a tool's figure is shown once, in its row."""
    notebook = open_page(server.write(f"files-{app}.ipynb", SETUP, RUN, KEPT), app=app)
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_for_question("Is that it?")
    shown = card.root.locator(".nba-message .nba-file")
    expect(shown).to_have_count(3)
    expect(shown.nth(0)).to_contain_text("image figure.png, ")
    expect(shown.nth(1)).to_have_text("file scan.pdf, 120 kB")
    assert shown.locator("img").evaluate_all(LOADED) == [True, True]
    row = card.root.locator("details.nba-call").first
    if row.get_attribute("open") is None:
        row.locator("summary").first.click()
    expect(row.locator("img")).to_be_visible()
    expect(row.locator("img")).to_have_count(1)
    expect(row.locator("img")).to_have_attribute("alt", "image figure.png")
    notebook.shot(f"files-{app}", card.root)
    notebook.dark()
    notebook.page.set_viewport_size({"width": 520, "height": 900})
    notebook.shot(f"files-{app}-narrow-dark", card.root)
    wide = card.root.evaluate("card => card.scrollWidth > card.clientWidth")
    assert not wide
    notebook.light()
    notebook.page.set_viewport_size({"width": 1100, "height": 900})
    card.press("Approve")
    card.wait_until("completed")
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("kept 1 [None, None]")
    expect(notebook.output(2)).to_contain_text("shown as well 0")
    notebook.turn_to(2)
    card.wait_until_static()
    assert card.root.locator("img").evaluate_all(LOADED) == [True, True, True]
    notebook.shot(f"files-{app}-saved", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)
