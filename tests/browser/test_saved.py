"""A notebook that is saved while a card is live contains the card's state, as HTML that needs no kernel."""

from __future__ import annotations

import json
import shutil
from typing import Any

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card
from tests.browser.notebook_page import APPS, App

SETUP = (
    GIVES_WAY
    + """
import nbagent as nb
call = nb.ScriptedModel.call
store = nb.SQLiteStore("runs.db")
clerk = nb.Agent(
    nb.ScriptedModel([["I pay.", call("look", what="rates"), call("pay", to="Ada", amount=7)], "All paid."]),
    name="clerk",
    store=store,
)

@clerk.tool
def look(what: str) -> dict:
    "Look."
    print("looking")
    return {"what": what, "rate": 1.5}

@clerk.tool(approval=True, editable=True)
def pay(to: str, amount: int) -> str:
    "Pay."
    return f"paid {amount} to {to}"
"""
)
RUN = "run = clerk.run('Pay Ada')\nrun"
WIDGET = "application/vnd.jupyter.widget-view+json"


def saved(server, name: str) -> dict[str, Any]:
    """The one output of the notebook's second cell, read from disk."""
    path = server.root / name
    nbformat.validate(nbformat.read(path, as_version=4))
    (output,) = json.loads(path.read_text())["cells"][1]["outputs"]
    return {mime: "".join(text) for mime, text in output["data"].items() if mime != WIDGET} | {
        mime: text for mime, text in output["data"].items() if mime == WIDGET
    }


@pytest.mark.parametrize("app", APPS)
def test_a_waiting_run_is_saved_as_it_is_and_stays_live(app, server, open_page):
    """Typed text survives the save; after a reload the form is shown again; the end is saved, and opening changes nothing."""
    name = server.write(f"saved-{app}.ipynb", SETUP, RUN)
    notebook = open_page(name, app=app)
    notebook.run_all()
    card = Card(notebook.output(1))
    form = card.wait_for_question("pay")
    amount = form.get_by_role("textbox", name="Amount")
    amount.fill("12")
    notebook.save("not answered")
    expect(amount).to_have_value("12")
    expect(amount).to_be_focused()
    data = saved(server, name)
    assert WIDGET not in data
    for text in ("clerk", "look", "Not answered.", "Ada", "nb.open_run("):
        assert text in data["text/html"]
        assert text in data["text/plain"]
    assert "not answered" in data["text/plain"]
    pages = [notebook]
    if app is App.LAB:
        pages += is_opened_again(server, open_page, notebook, name)
        expect(amount).to_have_value("12")
    card.press("Approve with changes")
    card.wait_until("completed")
    notebook.turn_to(0)
    for page in pages:
        page.page.bring_to_front()
        Card(page.output(1)).wait_until_static()
        expect(page.output(1)).to_contain_text("All paid.")
    notebook.save()
    data = saved(server, name)
    assert set(data) == {"text/html", "text/plain"}
    assert "All paid." in data["text/html"]
    finished = (server.root / name).read_bytes()
    pages.append(open_page(name, app=app))
    expect(pages[-1].output(1)).to_contain_text("All paid.")
    pages[-1].save()
    assert (server.root / name).read_bytes() == finished
    for page in pages:
        assert page.errors == [], "\n".join(page.errors)


def is_opened_again(server, open_page, notebook, name):
    """Opened without a kernel, in another tab and after a reload, the notebook shows the waiting run; returns the tab."""
    shutil.copy(server.root / name, server.root / f"sent-{name}")
    sent = open_page(f"sent-{name}", kernel=False)
    still = sent.output(1).locator(".nbagent.nba-static")
    expect(still).to_contain_text("Not answered.")
    sent.shot("saved-waiting", still)
    assert sent.errors == [], "\n".join(sent.errors)
    other = open_page(name)
    expect(Card(other.output(1)).form).to_be_visible()
    notebook.page.bring_to_front()
    notebook.reload()
    Card(notebook.output(1)).wait_for_question("pay")
    return [other]
