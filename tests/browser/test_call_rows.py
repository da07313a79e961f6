"""The rows of calls on a page: each row shows that it opens, and a table in a row uses the card's width."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from nbagent.notebook.render import static
from nbagent.notebook.wire import CallItem, CardHead, Rich, View
from tests.browser.card import GIVES_WAY, Card

WORDS = "one line of words that would fit the card but not half of it, once and again"
TALL = f"<table><tr><td>7</td><td>{WORDS}</td></tr></table>"
WIDE = f"<table><tr>{''.join(f'<td>some_column_{n}</td>' for n in range(30))}</tr></table>"
HEAD = CardHead(
    run="r",
    agent="analyst",
    prompt="Look",
    started_at=0.0,
    status="completed",
    status_text="done",
)
ROW = "(row) => getComputedStyle(row, '::after').content"
SIZES = """() => [...document.querySelectorAll("table")].map((table) => ({
  lines: table.querySelector("td:last-child").getBoundingClientRect().height / 19,
  beyond: table.scrollWidth > table.clientWidth,
  inside: table.clientWidth <= table.parentElement.clientWidth,
}))"""


@pytest.mark.parametrize("state", ["done", "failed", "rejected"])
def test_a_row_shows_that_it_can_be_opened(state: str, browser: Browser) -> None:
    """The row has the details, whatever the call's state."""
    page = browser.new_page()
    item = CallItem(key="c", name="look", state=state, result="no such table")
    page.set_content(static.render(View(head=HEAD, items=[item]), style=True))
    assert page.locator("details.nba-call > summary").evaluate(ROW) == '"\u203a"'
    page.locator("summary").click()
    assert page.get_by_text("no such table").is_visible()
    page.close()


def test_a_table_in_a_row_wraps_only_at_the_edge_of_the_card(browser: Browser) -> None:
    """A table that fits is on one line; a wider table scrolls inside its row."""
    page = browser.new_page(viewport={"width": 820, "height": 600})
    outputs = [Rich(kind="html", data=TALL), Rich(kind="html", data=WIDE)]
    item = CallItem(key="c", name="look", state="done", outputs=outputs)
    page.set_content(static.render(View(head=HEAD, items=[item]), style=True))
    fits, wide = page.evaluate(SIZES)
    assert fits["lines"] < 2
    assert not fits["beyond"]
    assert wide["beyond"]
    assert wide["inside"]
    page.close()


LONG = f"""{GIVES_WAY}
import nbagent as nb, pandas as pd
from IPython.display import display, HTML

S = nb.ScriptedModel
bot = nb.Agent(S([[S.call("table")], [S.call("text")], "Only **South** lost."]), name="analyst")

@bot.tool
def table() -> str:
    display(HTML(pd.DataFrame({{"region": [f"R{{n}}" for n in range(100)], "margin": range(100)}}).to_html()))
    return "100 rows"

@bot.tool
def text() -> str:
    return "\\n".join(f"line {{n}}" for n in range(100))
"""
SEEN = "els => els.filter(el => el.getClientRects().length).length"


def test_c402_long_results_are_folded_live_and_saved(server, open_lab):
    """Ten rows or twenty lines are shown, with a control for all of them, by keyboard too; the card stays low."""
    notebook = open_lab(server.write("long.ipynb", LONG, "run = bot.run('Which region?')\nrun"))
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_until("completed")
    rows = card.root.locator("tbody tr")
    for kind in ("live", "saved"):
        expect(card.root.locator("details.nba-call[open]")).to_have_count(1)
        assert rows.evaluate_all(SEEN) == 10
        assert card.root.evaluate("el => el.offsetHeight") < 700
        card.root.locator("summary", has_text="text").first.click()
        result = card.root.locator(".nba-result").last
        assert result.evaluate("el => el.clientHeight < el.scrollHeight && el.clientHeight < 400")
        all_rows = card.root.locator(".nba-all > summary").first
        expect(all_rows).to_have_text("Show all 100 rows")
        notebook.shot(f"rows-folded-{kind}", card.root)
        all_rows.press("Enter")
        assert rows.evaluate_all(SEEN) == 100
        card.root.locator(".nba-all > summary").last.click()
        assert result.evaluate("el => el.clientHeight >= el.scrollHeight")
        all_rows.press("Enter")
        assert rows.evaluate_all(SEEN) == 10
        if kind == "live":
            # a saved page runs no script that could keep the control in view
            expect(all_rows).to_be_in_viewport()
            card.root.locator(".nba-all > summary").last.click()
            card.root.locator("summary", has_text="text").first.click()
            notebook.turn_to(0)
            card.wait_until_static()
    notebook.dark()
    notebook.page.set_viewport_size({"width": 620, "height": 900})
    notebook.shot("rows-folded-dark", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)
