"""The rows of calls on a page: each shows that it opens, and a table in one uses the card's width."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from nbagent.notebook.render import static
from nbagent.notebook.wire import CallItem, Head, Rich, View

WORDS = "one line of words that would fit the card but not half of it, once and again"
TALL = f"<table><tr><td>7</td><td>{WORDS}</td></tr></table>"
WIDE = f"<table><tr>{''.join(f'<td>some_column_{n}</td>' for n in range(30))}</tr></table>"
HEAD = Head(
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
def test_a_row_shows_that_it_opens(state: str, browser: Browser) -> None:
    """However its call ended: what it says about that is inside."""
    page = browser.new_page()
    item = CallItem(key="c", name="look", state=state, result="no such table")
    page.set_content(static.render(View(head=HEAD, items=[item]), style=True))
    assert page.locator("details.nba-call > summary").evaluate(ROW) == '"\u203a"'
    page.locator("summary").click()
    assert page.get_by_text("no such table").is_visible()
    page.close()


def test_a_table_in_a_row_wraps_only_where_the_card_ends(browser: Browser) -> None:
    """What fits is on one line; what is too wide scrolls inside its row."""
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
