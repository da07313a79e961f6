"""A mouse meets each control of a card, in JupyterLab and Notebook 7, whatever the window's size."""

from __future__ import annotations

from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect

from tests.browser.card import Card
from tests.browser.hits import assert_hit
from tests.browser.notebook_page import APPS, WAIT_MS, App
from tests.browser.test_vscode import FORMS

LINES = "for n in range(60): print(n)"
LATER = """
later = nb.Agent(nb.ScriptedModel([call("pay", to="ada", amount=5), "Done."]), name="later")
@later.tool(approval=True)
def pay(to: str, amount: float) -> str:
    "Pay."
    return "paid"
later.run("Pay later")
"""
LONG = """
long = nb.Agent(nb.ScriptedModel([call("note", text="\\n".join(f"line {n}" for n in range(45))), "Done."]))
@long.tool(approval=True)
def note(text: str) -> str:
    "Note."
    return "noted"
long.run("Note it")
"""


@pytest.mark.parametrize("app", APPS)
def test_c600_a_mouse_meets_each_control_beside_the_pointer_to_other_questions(
    app, server, open_page
):
    """Neither lifted buttons nor the corner's button cover a field, an option, a button or an error."""
    notebook = open_page(server.write("hits.ipynb", FORMS, LINES, LATER), app=app)
    if app is App.LAB:
        notebook.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    notebook.run_all()
    card, later = Card(notebook.output(0)), Card(notebook.output(2))
    card.wait_for_question("Which region?")
    expect(later.forms).to_have_count(1)
    order = card.forms.filter(has_text="order").first
    order.get_by_label("To", exact=True).fill("Ada")
    card.press_still(order.get_by_role("button", name="Approve with changes"))
    expect(order.locator(".nba-errors")).to_be_visible()
    expect(notebook.page.locator(".nba-corner")).to_be_visible()
    assert_hit(notebook.page, card.root, fewest=25)
    assert_hit(notebook.page, notebook.page.locator(".nba-corner"), fewest=0)
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c600_the_buttons_of_a_long_approval_follow_over_its_text(server, open_lab):
    """Over text alone, the buttons stay in view until the form ends; the corner's button is not printed."""
    notebook = open_lab(server.write("long.ipynb", FORMS, LONG))
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_for_question("note")
    show_all = card.root.get_by_role("button", name="Show all")
    if show_all.count():
        show_all.click()
    notebook.page.set_viewport_size({"width": 900, "height": 620})
    card.form.evaluate("form => form.scrollIntoView({ block: 'start', behavior: 'instant' })")
    expect(card.form.locator("[data-lifted]")).to_have_count(1)
    expect(card.button("Approve")).to_be_in_viewport(ratio=1)
    notebook.shot("lifted")
    expect(notebook.page.locator(".nba-corner")).to_be_visible()
    notebook.page.emulate_media(media="print")
    expect(notebook.page.locator(".nba-corner")).to_be_hidden()
    notebook.page.emulate_media(media="screen")


def test_c602_a_kernel_restarted_by_another_program_is_noticed_at_a_press(server, open_lab):
    """JupyterLab's page may not be told; then the unanswered press asks the kernel, which is another one."""
    notebook = open_lab(server.write("other.ipynb", FORMS))
    notebook.run_all()
    card = Card(notebook.output(0))
    card.wait_for_question("Which region?")
    kernel = notebook.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.id"
    )
    server.restart_kernel(kernel)
    notebook.page.set_default_timeout(5_000)
    with suppress(Error):  # it may be noticed before: then nothing can be pressed
        card.root.get_by_text("region 3", exact=True).click()
        card.press_still(card.button("Send"))
    notebook.page.set_default_timeout(WAIT_MS)
    expect(card.forms.last).to_contain_text("was restarted")
