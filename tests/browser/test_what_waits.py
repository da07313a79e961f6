"""Questions out of sight are found by the notebook's corner button, the title and browser notifications."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import APPS, App

SETUP = r"""
import nbagent as nb

S = nb.ScriptedModel

def paying(name):
    made = nb.Agent(S([[S.call("pay", to="Ada", amount=20.0)], "Paid."]), name=name)

    @made.tool(approval=True)
    def pay(to: str, amount: float) -> str:
        "Pay somebody."
        return "paid"

    return made
"""
LINES = "for n in range(60): print(n)"
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
NOTIFICATIONS = """() => {
  globalThis.shown = [];
  globalThis.Notification = class extends EventTarget {
    static permission = "granted";
    static requestPermission = async () => globalThis.permission;
    constructor(title, { body }) {
      super();
      shown.push(`${title}: ${body}`);
      globalThis.last = this;
    }
    close() { shown.push("closed"); }
  };
  globalThis.permission = "denied";
}"""
LISTENS = "() => Symbol.for('nbagent.waiting') in globalThis"
FORGET = "() => delete globalThis[Symbol.for('nbagent.waiting')]"
"""An earlier notebook in the same page may have asked something."""


@pytest.mark.parametrize("app", APPS)
def test_c404_a_question_out_of_sight_is_one_press_away(server, open_page, app):
    """The button finds questions below and above, in turn; the title counts in the background; answers remove both."""
    cells = (
        SETUP,
        *(
            part
            for name in ("one", "two", "three")
            for part in (f"paying('{name}').run('Pay')", LINES)
        ),
    )
    notebook = open_page(server.write("waits.ipynb", *cells), app=app)
    page = notebook.page
    page.evaluate(FORGET)
    notebook.run_cell(0)
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("59")
    assert not page.evaluate(LISTENS), "a notebook that asks nothing loads nothing"
    notebook.run_all()
    cards = [Card(notebook.output(index)) for index in (1, 3, 5)]
    corner = page.locator(".nba-corner").get_by_role("button")
    for card in cards:
        expect(card.forms).to_have_count(1)
    cards[0].forms.scroll_into_view_if_needed()
    expect(corner).to_have_text("2 questions ↓")
    notebook.shot(f"waits-{app}")
    seen = []
    for _ in range(4):
        corner.press("Enter")
        page.wait_for_function(
            "() => document.activeElement.closest('section.nbagent:not(.nba-corner)')"
        )
        page.wait_for_timeout(100)
        seen += [
            n
            for n, card in enumerate(cards)
            if card.forms.evaluate("el => el.contains(document.activeElement)")
        ]
        expect(cards[seen[-1]].forms).to_be_in_viewport(ratio=1)
        expect(corner).to_have_text(re.compile("2 questions"))
    assert seen == [1, 2, 0, 1]
    title = page.title()
    page.evaluate(HIDE, arg=True)
    expect(page).to_have_title(f"(3) {title}")
    page.evaluate(HIDE, arg=False)
    expect(page).to_have_title(title)
    for card in cards[1:]:
        card.press("Approve")
        card.wait_until("completed")
    expect(corner).to_have_text("1 question ↑")
    notebook.dark()
    page.set_viewport_size({"width": 620, "height": 700})
    notebook.shot(f"waits-{app}-dark")
    corner.click()
    cards[0].press("Approve")
    cards[0].wait_until("completed")
    expect(page.locator(".nba-corner")).to_have_count(0)
    if app is App.LAB:  # the question of a deleted cell is still in nb.inbox()
        notebook.run_cell(5)
        expect(cards[2].forms).to_have_count(1)
        notebook.turn_to(0)
        expect(corner).to_have_text("1 question ↓")
        notebook.turn_to(5)
        notebook.command("notebook:delete-cell")
        expect(page.locator(".nba-corner")).to_have_count(0)
        expect(page).to_have_title(title)
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c405_the_browser_notifies_of_a_question_once_notifications_are_on(server, open_lab):
    """A button turns notifications on; the browser's refusal is shown; a click on the notice leads to the question."""
    notebook = open_lab(
        server.write("notify.ipynb", SETUP, "nb.notify()", LINES, "paying('clerk').run('Pay')")
    )
    page = notebook.page
    page.evaluate(NOTIFICATIONS)
    for index in range(3):
        notebook.run_cell(index)
    button = notebook.output(1).get_by_role("button")
    expect(button).to_have_text("Turn on notifications")
    notebook.shot("notify")
    button.click()
    expect(notebook.output(1)).to_contain_text("The browser blocks notifications from this page.")
    page.evaluate("permission = 'granted'")
    button.click()
    expect(button).to_have_text("Turn off")
    page.evaluate(HIDE, arg=True)
    notebook.run_cell(3)
    card = Card(notebook.output(3))
    expect(card.forms).to_have_count(1)
    page.wait_for_function("() => shown.length")
    assert page.evaluate("shown") == ["clerk asks: Pay somebody"]
    page.evaluate("last.dispatchEvent(new Event('click'))")
    expect(card.forms.locator(".nba-title")).to_be_focused()
    expect(card.forms).to_be_in_viewport(ratio=1)
    page.evaluate(HIDE, arg=False)
    card.press("Approve")
    card.wait_until("completed")
    assert page.evaluate("shown") == ["clerk asks: Pay somebody", "closed"]
    notebook.save("The browser notifies you about new questions")
    saved = (server.root / "notify.ipynb").read_text()
    assert "The browser notifies you about new questions" in saved
    assert "Turn off" not in saved
    button.click()
    expect(button).to_have_text("Turn on notifications")
    assert notebook.errors == [], "\n".join(notebook.errors)
