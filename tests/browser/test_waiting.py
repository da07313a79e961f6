"""A card whose run waits for the model's server: the card counts down by itself until the answer."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import asyncio, pathlib, time
import nbagent as nb
from nbagent.core.base.model import Finished, TextDelta, Usage, Waiting

go = asyncio.Event()

class Waits:
    name = "waits"

    async def stream(self, request):
        yield Waiting(90, "too many requests (429)")
        await go.wait()
        yield TextDelta("Here it is.")
        yield Finished("stop", Usage(1200, 30, 0.0125, cached=1000, reasoning=20))
"""
RUN = "run = nb.Agent(Waits(), name='banker').run('Go on')"
BUSY = """
while not pathlib.Path("go.txt").exists():
    time.sleep(0.05)
"""
ANSWER = "go.set()"


def test_a_wait_counts_down_without_the_kernel_and_ends_with_the_answer(server, open_lab):
    """The seconds go down while the kernel is busy; the answer removes the line, and the footer shows the cost."""
    notebook = open_lab(server.write("waiting.ipynb", SETUP, RUN, BUSY, ANSWER))
    for cell in (0, 1):
        notebook.run_cell(cell)
    card = Card(notebook.output(1))
    notice = card.root.locator(".nba-notice")
    expect(notice).to_contain_text("Waiting for the model's server: too many requests (429)")
    expect(notice.locator(".nba-left")).to_have_text(LEFT)
    notebook.run_cell(2)
    expect(notebook.cell(2)).to_contain_text("[*]")
    first = seconds(notice)
    notebook.shot("waiting", card.root)
    for _ in range(2):
        left = notice.locator(".nba-left")
        expect(left).not_to_have_text(left.inner_text())
    assert seconds(notice) <= first - 2
    expect(notebook.cell(2)).to_contain_text("[*]")
    (server.root / "go.txt").touch()
    notebook.run_cell(3)
    card.wait_until("completed")
    expect(notice).to_have_count(0)
    expect(card.root).to_contain_text("Here it is.")
    footer = card.root.locator(".nba-footer")
    expect(footer).to_contain_text("1.23k tokens")
    expect(footer).to_contain_text("$0.013")
    expect(footer.locator("[title]").first).to_have_attribute(
        "title", "1,230 tokens, 1,000 cached, 20 reasoning"
    )
    notebook.shot("waited", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)


LEFT = re.compile(r"· \d+ ?s|· 1 min")


def seconds(notice) -> int:
    """The remaining seconds in the card."""
    minutes, left = re.search(
        r"(?:(\d+) ?min )?(\d+) ?s", notice.locator(".nba-left").inner_text()
    ).groups()
    return int(minutes or 0) * 60 + int(left)
