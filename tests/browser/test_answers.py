"""Answering in a real front end: once only, from any view or tab, or not at all."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import APPS, App

SETUP = """
import nbagent as nb

ran = []
agent = nb.Agent("demo", name="banker")

@agent.tool
def transfer_money(to_account: str, amount: float, ctx: nb.ToolContext) -> str:
    "Transfer money."
    if not ctx.resumed:
        ctx.interrupt(nb.Confirm(message="Send it?"))
    ran.append([to_account, amount])
    return f"sent {amount}"

@agent.tool
def send_email(to: str, subject: str, body: str, ctx: nb.ToolContext) -> str:
    "Send a mail."
    if not ctx.resumed:
        ctx.interrupt(nb.Edit(message="Look it over"))
    ran.append([to, subject, body])
    return "sent"
"""
TRANSFER = "run = agent.run('Transfer $200 to account ABC123')"
MAIL = "run = agent.run('Invite Ada to the demo')"
TALLY = "print('ran', len(ran), 'status', run.status)"


@pytest.fixture
def open_question(server, open_page):
    """``open_question(app, cell, …)`` opens a notebook and runs the set-up and these cells; the first has index 1."""

    def asked(app, *cells):
        notebook = open_page(server.write(f"asked-{app}.ipynb", SETUP, *cells), app=app)
        notebook.run_all()
        return notebook

    return asked


def tally(notebook, index, text):
    """Run this cell again, and wait until it prints the text."""
    notebook.run_cell(index)
    expect(notebook.output(index)).to_contain_text(text)


@pytest.mark.parametrize("app", [App.LAB])
def test_presses_in_two_views_at_once_count_once(app, open_question):
    """P2: two views of one run are pressed at the same time; one answer counts, and both show the record."""
    notebook = open_question(app, TRANSFER, "run", TALLY)
    views = [Card(notebook.output(index)) for index in (1, 2)]
    for view in views:
        view.wait_for_question("Send it?")
    notebook.page.evaluate(
        "() => document.querySelectorAll('.nba-form .nba-go').forEach(button => button.click())"
    )
    for view in views:
        view.wait_until("completed")
        expect(view.records).to_have_count(1)
        expect(view.forms).to_have_count(0)
    tally(notebook, 3, "ran 1 status completed")


@pytest.mark.parametrize("app", APPS)
def test_a_second_tab_answers_and_the_first_tab_shows_the_answer(app, open_question, open_page):
    """A tab opened on the saved notebook shows the form; its answer appears in the first tab."""
    notebook = open_question(app, TRANSFER, TALLY)
    first = Card(notebook.output(1))
    first.wait_for_question("Send it?")
    notebook.save()
    second = Card(open_page(f"asked-{app}.ipynb", app=app).output(1))
    second.wait_for_question("Send it?")
    second.press("Approve")
    for card in (first, second):
        card.wait_until("completed")
        expect(card.records).to_have_count(1)
    tally(notebook, 2, "ran 1 status completed")


@pytest.mark.parametrize("app", APPS)
def test_after_a_kernel_restart_the_form_explains_why_it_cannot_be_sent(app, open_question):
    """The form is disabled and keeps the typed text."""
    notebook = open_question(app, MAIL)
    card = Card(notebook.output(1))
    card.wait_for_question("Look it over")
    card.fill("Subject", "Typed before the restart")
    notebook.restart_kernel()
    expect(card.root.locator(".nba-gone:visible")).to_contain_text("The kernel has stopped")
    expect(card.root.get_by_label("Subject", exact=True)).to_have_value("Typed before the restart")
    expect(card.button("Approve with changes")).to_be_disabled()
