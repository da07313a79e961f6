"""P8 in a real front end: hostile text in every place is shown as text, and nothing of it runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card
from tests.browser.notebook_page import APPS

CELL = (
    GIVES_WAY
    + r"""
import nbagent as nb

BAD = (
    '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'
    '<svg onload="window.pwned=3"></svg>[link](javascript:window.pwned=4)'
    '![pixel](http://127.0.0.1:9/pixel.png)'
    '$\\text{<img src=x onerror="window.pwned=5">}$ $\\href{javascript:window.pwned=6}{x}$'
    '<math><mtext><table><mglyph><style><!--</style><img title="--><img src=x onerror=window.pwned=7>">'
    'safe\u202etxt.exe\u200b'
)

class Reason(nb.Confirm):
    why: str

agent = nb.Agent(
    nb.ScriptedModel([[BAD, nb.ScriptedModel.call("act", what=BAD)], BAD]), name=BAD
)

@agent.tool
def act(what: str, ctx: nb.ToolContext) -> str:
    "Act."
    if not ctx.resumed:
        ctx.interrupt(Reason(message=BAD, why=BAD))
    return BAD

run = agent.run(BAD)
"""
)

INVISIBLE = "\u202e\u200b"


@pytest.mark.parametrize("app", APPS)
def test_hostile_text_does_not_run_or_load_in_any_card(app, server, open_page):
    """Prompt, model text, names, input, metadata and results, in the form and in the saved card."""
    name = server.write(f"hostile-{app}.ipynb", CELL)
    notebook = open_page(name, app=app)
    requests: list[str] = []
    notebook.page.on("request", lambda request: requests.append(request.url))
    notebook.run_all()
    card = Card(notebook.output(0))
    form = card.wait_for_question()
    shown = form.inner_text()
    assert "<img src=x onerror" in shown
    assert not set(INVISIBLE) & set(shown), "invisible characters stay invisible in an approval"
    card.press("Approve")
    card.wait_until("completed")
    notebook.page.evaluate("() => document.activeElement.blur()")
    card.wait_until_static()
    expect(card.root).to_contain_text("<script>")
    check_nothing_ran(notebook, requests)
    notebook.save()
    notebook.reload()
    card.wait_until_static()
    check_nothing_ran(notebook, requests)


def check_nothing_ran(notebook, requests):
    """No script in the text ran, and the page requested nothing that the text names."""
    assert notebook.page.evaluate("() => window.pwned ?? null") is None
    assert [url for url in requests if url.endswith(("pixel.png", "/x"))] == []
