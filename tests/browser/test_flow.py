"""The notebook about flows, as a person uses it: a question, a kernel restart, another question."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from nbagent.cli.demo import without_outputs
from tests.browser.card import Card

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_flow.ipynb"
SETUP, RUN, OPEN, AWAIT, STEPS = (1, 3, 5), 7, 9, 10, 12


def test_a_flow_asks_is_restarted_and_continues_from_its_last_step(server, open_lab):
    """The card shows finished, running and waiting steps, live and static, at any width and theme."""
    (server.root / NOTEBOOK.name).write_bytes(without_outputs(NOTEBOOK))
    notebook = open_lab(NOTEBOOK.name)
    for index in (*SETUP, RUN):
        notebook.run_cell(index)
    card = Card(notebook.output(RUN))
    card.wait_for_question("Choose which mostly empty columns to drop.")
    expect(card.root.locator(".nba-header")).to_contain_text('path="flow_files/people.csv"')
    expect(card.root.locator(".nba-name")).to_have_text(["load", "clean"])
    notebook.shot("flow-first", card.root)
    card.root.get_by_text("fax", exact=True).click()
    card.press("Send")
    card.wait_for_question("cannot be right")
    notebook.restart_kernel()
    for index in (*SETUP, OPEN):
        notebook.run_cell(index)
    card = Card(notebook.output(OPEN))
    card.wait_for_question("cannot be right")
    expect(card.root.locator(".nba-name")).to_have_text(["load", "drop columns", "clean"])
    for row, age in enumerate(("37", "72")):
        card.root.locator(f'[role=grid] [data-row="{row}"] [data-at="1"]').focus()
        notebook.page.keyboard.type(f"{age}\n")
    notebook.shot("flow-second", card.root)
    notebook.dark()
    notebook.shot("flow-second-dark", card.root)
    notebook.light()
    card.press("Send")
    card.wait_until("completed")
    for index in (AWAIT, STEPS):
        notebook.run_cell(index)
    expect(notebook.output(STEPS)).to_contain_text("['load', 'drop columns', 'write']")
    notebook.turn_to(STEPS)
    expect(card.root.locator("table")).to_contain_text("Edsger Dijkstra")
    expect(card.root.locator(".nba-footer")).not_to_contain_text("turn")
    notebook.shot("flow-done", card.root)
    notebook.dark()
    notebook.page.set_viewport_size({"width": 520, "height": 900})
    notebook.shot("flow-done-narrow-dark", card.root)
    notebook.light()
    assert notebook.errors == [], "\n".join(notebook.errors)
