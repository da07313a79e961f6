"""The pictures of docs/models.md: a provider's search with sources, an image with a typed answer, and a fallback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.card import Card

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SETUP = """
import json
import matplotlib.pyplot as plt
import nbagent as nb
from nbagent.core.base.model import Citation, Finished, HostedCall, ReasoningDelta, TextDelta, Usage
from pydantic import BaseModel

class Finding(BaseModel):
    month: str
    value: float
    why: str

fig, ax = plt.subplots(figsize=(4, 2.2))
ax.bar(["Apr", "May", "Jun", "Jul"], [31, 33, 92, 34])
plt.close(fig)
list_ = {"url": "https://example.org/towers", "title": "Towers of the world"}
search = HostedCall("1", "web_search", {"query": "tallest tower 2026"}, "done", None, [list_])
hosted = [
    ReasoningDelta("**Looking it up**"), search,
    TextDelta("The tallest tower is the Burj Khalifa, 828 m high."),
    Citation(list_["title"], list_["url"]), Finished("stop", Usage(1_410, 62, 0.0131)),
]
found = json.dumps([
    {"month": "June", "value": 92, "why": "three times its neighbors"},
    {"month": "July", "value": 34, "why": "back to normal within a month"},
])
seen = [found, Finished("stop", Usage(905, 48, 0.0021))]
"""
HOSTED = (
    "run = nb.Agent(nb.ScriptedModel([hosted]), name='guide').run('How tall is the tallest tower?')"
)
TYPED = """run = nb.Agent(nb.ScriptedModel([seen]), name='analyst', output_type=list[Finding]).run(
    ['What is odd here?', fig])"""
FALLBACK = """
busy = nb.errors.ModelError("The model 'gpt-5' at https://api.openai.com/v1/: 429, too many requests", kind="rate_limit")
answer = ["The capital of France is Paris.", Finished("stop", Usage(210, 8, 0.0007))]
run = nb.Agent(nb.Fallback(
    nb.ScriptedModel([busy], name="gpt-5"), nb.ScriptedModel([answer], name="anthropic:claude-sonnet-4-5")
), name="guide").run("What is the capital of France?")
"""
OUTSIDE = """
agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("transfer"), "Done."]), name="banker")

@agent.tool
def transfer(ctx: nb.ToolContext) -> str:
    "Wait for the bank."
    ctx.interrupt("The bank tells when it is done.", external=True)

run = agent.run("Pay the rent")
"""
COLOR = "el => getComputedStyle(el).color"


def test_the_cards_of_the_models_guide_look_as_it_shows_them(server, open_lab):
    """Sources stay folded, the image is shown with the findings, and a wait for others has no warm color. The reason of a fallback is shown."""
    cells = [SETUP, HOSTED, TYPED, OUTSIDE, FALLBACK]
    notebook = open_lab(server.write("models-guide.ipynb", *cells))
    notebook.page.set_viewport_size({"width": 1100, "height": 1000})
    for index in range(len(cells)):
        notebook.run_cell(index)
    hosted, typed, outside, fallback = (Card(notebook.output(index)) for index in (1, 2, 3, 4))
    for card in (hosted, typed, fallback):
        card.wait_until("completed")
    expect(hosted.root.locator("details[open]")).to_have_count(0)
    expect(hosted.root.locator(".nba-say").last).to_contain_text("Sources: Towers of the world")
    expect(typed.root.locator("tbody tr")).to_have_count(2)
    expect(typed.root.locator(".nba-message img")).to_be_visible()
    state = outside.root.locator(".nba-pill")
    expect(state).to_have_text("waiting for another system")
    soft = outside.root.locator(".nba-footer").evaluate(COLOR)
    assert state.evaluate(COLOR) == soft
    note = fallback.root.get_by_text(
        "too many requests. Asked 'anthropic:claude-sonnet-4-5' instead."
    )
    expect(note).to_be_visible()
    for name, card in (("hosted", hosted), ("typed", typed), ("fallback", fallback)):
        shot = notebook.shot(f"models-{name}", card.root)
        if os.environ.get("NBAGENT_UPDATE_IMAGES"):
            shutil.copy(shot, IMAGES / f"models-{name}.png")
    assert notebook.errors == [], "\n".join(notebook.errors)
