"""Tools that a model's provider runs, as a person sees them: rows with sources, reasoning folded."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import nbagent as nb
from nbagent.core.base.model import Citation, Finished, HostedCall, ReasoningDelta, TextDelta

search = HostedCall("1", "web_search", {"query": "tallest tower of the world 2026"}, "done", None, [
    {"url": "https://example.org/towers", "title": "A list of towers"},
    {"url": "https://example.com/" + "very-long-" * 20 + "path"},
    {"url": "javascript:alert(1)", "title": "<b>not a link</b>"},
])
code = HostedCall("2", "code_interpreter", {"code": "import math\\nprint(math.sqrt(828))"}, "done", "28.77")
broken = HostedCall("3", "docs/read_page", {"page": "towers"}, "failed", "the page is gone")
step = [
    ReasoningDelta("**Looking it up**\\n\\nThe person wants a height. I will search."), search, code, broken,
    TextDelta("The tallest tower is 828 m high."),
    Citation("A list of towers", "https://example.org/towers"), Citation("heights.pdf"), Finished(),
]
agent = nb.Agent(nb.ScriptedModel([step]), name="guide")
"""


def test_a_hosted_search_is_a_row_with_its_sources_and_reasoning_is_folded(server, open_lab):
    """Rows open to links that lead to the web alone; in light and dark, wide and narrow."""
    notebook = open_lab(server.write("hosted.ipynb", SETUP, "run = agent.run('How tall is it?')"))
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_until("completed")
    thought = card.root.locator("details.nba-think")
    expect(thought).to_have_count(1)
    expect(thought.locator(".nba-thought")).to_be_hidden()
    rows = card.root.locator("details.nba-call")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator("summary").first).to_contain_text("tallest tower of the world")
    expect(rows.nth(2)).to_have_attribute("data-state", "failed")
    search = rows.nth(0)
    expect(search).not_to_have_attribute("open", "")  # so that the answer is in view
    search.locator("summary").first.click()
    links = search.locator("a")
    expect(links).to_have_count(2)
    expect(links.nth(0)).to_have_attribute("href", "https://example.org/towers")
    expect(links.nth(0)).to_have_attribute("rel", "noopener noreferrer")
    expect(search).to_contain_text("<b>not a link</b>")
    below = card.root.locator(".nba-say").filter(has_text="Sources:")
    expect(below.locator("a")).to_have_count(1)
    expect(below).to_contain_text("heights.pdf")
    for width in (1280, 700):
        notebook.page.set_viewport_size({"width": width, "height": 900})
        for theme in (notebook.light, notebook.dark):
            theme()
            notebook.shot(f"hosted-{width}-{theme.__name__}", card.root)
