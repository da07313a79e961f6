"""Copying from a live card: with the pointer, and by keyboard alone."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card

CELL = """
import threading
import pandas as pd
import nbagent as nb

go = threading.Event()
S = nb.ScriptedModel
agent = nb.Agent(S([["Look:\\n\\n```python\\na = 1\\n```\\n", S.call("sales", year=2024)], S.call("wait"), "Done."]), name="analyst")

@agent.tool
def sales(year: int):
    "Sell."
    return pd.DataFrame({"month": ["jan", "feb"], "amount": [3, 5]})

@agent.tool
def wait() -> str:
    "Wait."
    go.wait(60)
    return "ok"

run = agent.run("Show sales")
run
"""
COPIED = "() => navigator.clipboard.readText()"
HEIGHT = "el => el.getBoundingClientRect().height"


def test_the_block_under_the_pointer_is_copied_and_nothing_moves(server, open_lab):
    """A table is copied with tabs, code unchanged; the button overlays the corner, and arrow keys move it."""
    notebook = open_lab(server.write("copy.ipynb", CELL, "go.set()"))
    page = notebook.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    table = card.root.locator("table")
    expect(table).to_be_visible()
    height = card.root.evaluate(HEIGHT)
    button = card.root.locator(".nba-copy")
    table.hover()
    expect(button).to_have_accessible_name("Copy the table")
    assert card.root.evaluate(HEIGHT) == height
    notebook.shot("copy-table", card.root)
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate(COPIED) == "\tmonth\tamount\n0\tjan\t3\n1\tfeb\t5"
    notebook.dark()
    card.root.locator(".nba-say pre").first.hover()
    expect(button).to_have_accessible_name("Copy the code")
    notebook.shot("copy-code-dark", card.root)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Copied")
    assert page.evaluate(COPIED) == "a = 1"
    page.keyboard.press("ArrowDown")
    expect(button).to_have_accessible_name("Copy the arguments")
    page.keyboard.press("Enter")
    expect(button).to_have_text("Copied")
    assert page.evaluate(COPIED) == "year: 2024"
    notebook.run_cell(1)
    card.wait_until("completed")
    assert notebook.errors == [], "\n".join(notebook.errors)
