"""Copying from a live card: with the pointer, and by keyboard alone."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.card import Card
from tests.browser.notebook_page import keep_picture

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


ANSWERS = """
import asyncio
import nbagent as nb
S = nb.ScriptedModel
MARKDOWN = "## Result\\n\\n- one\\n- **two**\\n\\n| a | b |\\n|:--|--:|\\n| 1 | 2 |\\n\\n```python\\na = 1\\n```\\n\\n$x^2$"
FULL = "word " * 90
code = "```\\n" + "x = 1234567890 " * 20 + "\\n```"
texts = [MARKDOWN, FULL, FULL + "\\n\\n" + FULL, code]
writer = nb.Agent(S([[text, S.call("look", n=n)] for n, text in enumerate(texts)]), name="writer")

@writer.tool
async def look(n: int) -> str:
    "Look; at last for long, so that the card stays live."
    await asyncio.sleep(600 if n == 3 else 0)
    return "ok"

run = writer.run("Write")
"""
COVERED = """async card => {
  await new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)));
  const button = card.querySelector(".nba-copies").getBoundingClientRect();
  const texts = document.createTreeWalker(card.querySelector(".nba-items"), NodeFilter.SHOW_TEXT);
  const range = document.createRange(), covered = [];
  if (card.querySelector(".nba-copies[data-gone]")) return null;
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    for (const line of range.getClientRects())
      if (line.left < button.right && line.right > button.left
          && line.top < button.bottom && line.bottom > button.top)
        covered.push(texts.currentNode.textContent);
  }
  return covered;
}"""


def test_c684_c685_c847_an_answer_is_copied_as_markdown_by_a_button_that_covers_no_text(
    server, open_lab
):
    """At any width the button is beside the text or in a gap, or hidden; without a kernel the text is copied."""
    notebook = open_lab(server.write("copies.ipynb", ANSWERS, "import time; time.sleep(60)"))
    page = notebook.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    blocks, button = card.root.locator(".nba-say, .nba-say > *"), card.root.locator(".nba-copy")
    expect(card.root.locator(".nba-say")).to_have_count(4)
    for width in (600, 760, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        for block in blocks.all():
            block.hover()
            covered = card.root.evaluate(COVERED)
            assert covered == [] or (covered is None and width < 1200)
        notebook.shot(f"copy-{width}", card.root)
    page.set_viewport_size({"width": 1000, "height": 900})
    first = card.root.locator(".nba-say").first
    first.locator("h4").hover()
    button.click()
    expect(button).to_have_text("Copied")
    written = page.evaluate(COPIED)
    assert written.startswith("## Result\n\n- one\n- **two**\n\n| a | b |")
    assert written.endswith("```python\na = 1\n```\n\n$x^2$")
    is_copied_as_plain_text_by_keyboard(card, button)
    notebook.restart_kernel()
    first.locator("h4").hover()
    button.click()
    expect(button).to_have_text("Copied as text")
    assert page.evaluate(COPIED).startswith("Result\n")
    assert notebook.errors == [], "\n".join(notebook.errors)


def is_copied_as_plain_text_by_keyboard(card: Card, button: Locator) -> None:
    """Go to the menu beside Copy, and choose its second entry: nothing in the card moves, and Stop stays in view."""
    page, keys = button.page, button.page.keyboard
    height = card.root.evaluate(HEIGHT)
    button.focus()
    keys.press("Tab")
    more = card.button("More ways to copy")
    expect(more).to_be_focused()
    keys.press("Enter")
    menu = page.get_by_role("menu", name="More ways to copy")
    expect(menu.get_by_role("menuitem", name="Copy as Markdown")).to_be_focused()
    assert card.root.evaluate(HEIGHT) == height
    keep_picture(page, "copy-menu")
    keys.press("Escape")
    expect(menu).to_be_hidden()
    expect(more).to_be_focused()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    expect(menu.get_by_role("menuitem", name="Copy as plain text")).to_be_focused()
    keys.press("Enter")
    expect(button).to_have_text("Copied as text")
    expect(more).to_be_focused()
    copied = page.evaluate(COPIED)
    assert copied.startswith("Result\n")
    assert "**" not in copied
    keys.press("Enter")
    keys.press("Enter")
    expect(button).to_have_text("Copied")
    assert page.evaluate(COPIED).startswith("## Result\n")
