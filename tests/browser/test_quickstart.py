"""The quickstart, as a newcomer goes through it in a real front end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import expect

from nbagent.cli.demo import NOTEBOOK, quickstart, without_outputs
from tests.browser.card import Card

HELLO, QUESTION, APPROVAL, EDIT, AWAITED, SMALL, NOBODY, LAST = 1, 3, 5, 7, 9, 11, 13, 14
AFTERWARDS = {
    AWAITED: "you said no (Not before Monday)",
    SMALL: "sent 20.0 to ABC123",
    NOBODY: "waiting for: transfer_money",
}
IMAGES = Path(__file__).parents[2] / "docs" / "images"


def test_the_quickstart_asks_and_each_answer_continues_its_run(server, open_page):
    """A choice, an approval and an edit, then a rejection under ``await``; the saved notebook shows them."""
    (server.root / NOTEBOOK).write_bytes(without_outputs(quickstart()))
    notebook = open_page(NOTEBOOK)
    notebook.run_all()
    choose_a_dinner(Card(notebook.output(QUESTION)))
    approve_a_transfer(Card(notebook.output(APPROVAL)), notebook, "approval")
    edit_a_mail(Card(notebook.output(EDIT)), notebook)
    reject_a_transfer(Card(notebook.output(AWAITED)))
    notebook.wait_until_all_ran()
    for index, text in AFTERWARDS.items():
        expect(notebook.output(index)).to_contain_text(text)
    assert notebook.errors == [], "\n".join(notebook.errors)

    notebook.save(*AFTERWARDS.values())
    notebook.close()
    server.end_kernels()
    expect_saved_record(open_page(NOTEBOOK, kernel=False))


def choose_a_dinner(card):
    """The question has the model's choices, and the model's text uses the answer."""
    card.wait_for_question("What are you in the mood for?")
    card.root.get_by_text("Thai", exact=True).click()
    expect(card.root.get_by_role("radio", name="Thai")).to_be_checked()
    card.press("Send")
    card.wait_until("completed")
    expect(card.root).to_contain_text("Thai it is.")


def approve_a_transfer(card, notebook, name):
    """The form shows the transfer, in light and dark, and the approved transfer is made."""
    form = card.wait_for_question("Large transfer")
    expect(form).to_contain_text("ABC123")
    expect(form).to_contain_text("200")
    label = form.get_by_text("to_account", exact=True)
    assert label.bounding_box()["height"] < 30, "the name of a fact is broken over lines"
    notebook.shot(f"{name}-light")
    notebook.dark()
    notebook.shot(f"{name}-dark")
    notebook.light()
    card.press("Approve")
    card.wait_until("completed")
    expect(card.root).to_contain_text("$200.00 went to account ABC123")


def edit_a_mail(card, notebook):
    """The tool runs with the edited input."""
    card.wait_for_question("Look it over before it goes out")
    card.fill("Subject", "A demo, with cake")
    notebook.shot("edit")
    picture_for_the_readme(notebook)
    card.press("Approve with changes")
    card.wait_until("completed")
    expect(card.root).to_contain_text("A demo, with cake is on its way to ada@example.com")


def picture_for_the_readme(notebook):
    """Take the README's picture again if NBAGENT_UPDATE_IMAGES is set."""
    if os.environ.get("NBAGENT_UPDATE_IMAGES"):
        IMAGES.mkdir(parents=True, exist_ok=True)
        notebook.page.set_viewport_size({"width": 1100, "height": 1400})  # the whole cell in view
        shutil.copy(notebook.shot("readme", notebook.cell(EDIT)), IMAGES / "quickstart.png")


def reject_a_transfer(card):
    """The reason reaches the model."""
    card.wait_for_question("Large transfer")
    card.press("Reject…")
    card.root.get_by_role("textbox").fill("Not before Monday")
    card.press("Reject")
    card.wait_until("completed")
    expect(card.root).to_contain_text("you said no (Not before Monday)")


def expect_saved_record(notebook):
    """The saved notebook shows the question and the decision, and nothing asks for a kernel."""
    card = Card(notebook.output(EDIT))
    notebook.cell(EDIT).scroll_into_view_if_needed()
    expect(card.root).to_contain_text("approved with changes")
    expect(card.root).to_contain_text("A demo, with cake")
    notebook.shot("reopened")
    expect(notebook.page.get_by_text("model not found")).to_have_count(0)
    assert notebook.errors == [], "\n".join(notebook.errors)
