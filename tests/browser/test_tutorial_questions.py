"""Questions as in the first tutorials, live and mostly by keyboard: a question, and a confirmation."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import nbagent as nb
from pydantic import BaseModel, Field

call = nb.ScriptedModel.call
ran = []

class Questions(BaseModel):
    question: str = Field(description="what to ask")
    choices: list[str] = Field(description="what to choose from")
    allow_other: bool = True

def agent(*steps):
    made = nb.Agent(nb.ScriptedModel(list(steps)), name="planner")

    @made.tool
    def ask_question(input: Questions, ctx: nb.ToolContext) -> str:
        "Ask the person."
        ran.append("asked")
        ctx.interrupt()

    @made.tool
    def wipe(disk: str, ctx: nb.ToolContext) -> str:
        "Wipe a disk."
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm("Wipe it?", danger=True))
        ran.append(disk)
        return f"wiped {disk}"

    return made
"""
ASK = """run = agent(
    [call("ask_question", question="What do we cook with?", choices=["coal", "gas"])], "Fine."
).run("Plan a barbecue")"""
WIPE = 'run = agent([call("wipe", disk="/dev/sda")], "Done.").run("Make room")'
THREE = """run = agent(
    [call("wipe", disk="/dev/sda"), call("wipe", disk="/dev/sdb"), call("wipe", disk="/dev/sdc")],
    "Done.",
).run("Make room")"""
RESULT = "Result (wipe does not run)"
OUT = "print(ran, [one[-1].output for one in run.calls.values()])"


@pytest.fixture
def open_question(server, open_lab):
    """``open_question(cell)`` runs the set-up, this cell and one that prints the calls; returns notebook and card."""

    def asked(cell):
        notebook = open_lab(server.write("tutorial-questions.ipynb", SETUP, cell, OUT))
        notebook.run_all()
        return notebook, Card(notebook.output(1))

    return asked


def expect_report(notebook, text):
    """Run the last cell again, and wait until it prints the text."""
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text(text)
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c138_a_question_is_answered_with_a_write_in_by_keyboard(open_question):
    """A bare pause offers the choices in its input; a written answer is the tool's result."""
    notebook, card = open_question(ASK)
    form = card.wait_for_question("What do we cook with?")
    keyboard = notebook.page.keyboard
    form.get_by_label("coal").focus()
    notebook.shot("answer-question", card.root)
    keyboard.press("1")
    expect(form.get_by_label("coal")).to_be_checked()
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    keyboard.press("Tab")
    keyboard.type("wood")
    keyboard.press("Enter")
    card.wait_until("completed")
    expect(card.records).to_contain_text("you chose wood")
    expect(card.records).to_be_focused()
    expect_report(notebook, "['asked'] ['wood']")


def test_c138_a_question_is_run_again_from_its_menu_and_asks_once_more(open_question):
    """The form can restart a bare pause, as documented code does."""
    notebook, card = open_question(ASK)
    form = card.wait_for_question("What do we cook with?")
    form.get_by_label("gas").check()
    form.get_by_role("button", name="More ways to answer").focus()
    notebook.page.keyboard.press("Enter")
    card.button("Run ask_question").focus()
    notebook.page.keyboard.press("Enter")
    expect(card.records.first).to_contain_text("you ran it anyway")
    card.wait_for_question("asked again")
    expect_report(notebook, "['asked', 'asked']")


def test_c139_a_confirmation_is_answered_in_its_place_by_keyboard(open_question):
    """The facts stay, the answer's field has the focus, Escape restores the approval; nothing runs."""
    notebook, card = open_question(WIPE)
    form = card.wait_for_question("Wipe it?")
    keyboard = notebook.page.keyboard
    more = form.get_by_role("button", name="More ways to approve")
    for end in ("Escape", "send"):
        more.focus()
        keyboard.press("Enter")
        expect(card.button("Answer instead…")).to_be_focused()
        keyboard.press("Enter")
        field = form.get_by_label(RESULT)
        expect(field).to_be_focused()
        expect(form.locator(".nba-facts")).to_contain_text("/dev/sda")
        parts = (".nba-facts", ".nba-instead", ".nba-acts")
        places = [form.locator(part).bounding_box()["y"] for part in parts]
        assert places == sorted(places)
        expect(card.button("Wipe a disk")).to_have_count(0)
        if end == "Escape":
            keyboard.press("Escape")
            expect(more).to_be_focused()
            expect(card.button("Wipe a disk")).to_be_visible()
    keyboard.type("wiped by hand")
    keyboard.press("Enter")
    card.wait_until("completed")
    expect(card.records).to_contain_text("you answered wiped by hand")
    expect_report(notebook, "[] ['wiped by hand']")


def test_c139_text_typed_as_an_answer_is_there_after_a_reload(open_question):
    notebook, card = open_question(WIPE)
    card.wait_for_question("Wipe it?")
    card.press("More ways to approve")
    card.press("Answer instead…")
    with notebook.sending('"instead"'):
        card.fill(RESULT, "half of it")
    notebook.save()
    notebook.reload()
    card.wait_for_question("Wipe it?")
    expect(card.root.get_by_label(RESULT)).to_have_value("half of it")
    card.press("Cancel")
    card.press("Wipe a disk")
    card.wait_until("completed")
    expect_report(notebook, "['/dev/sda'] ['wiped /dev/sda']")


def test_c139_one_row_of_a_table_is_answered_and_the_others_are_approved(open_question):
    """A call whose answer is being written is not approved with the rest."""
    notebook, card = open_question(THREE)
    card.root.get_by_role("heading", name="3 calls of wipe are waiting").wait_for()
    card.press_still(card.root.get_by_role("button", name="Open:").first)
    card.press("More ways to approve")
    card.press("Answer instead…")
    field = card.root.get_by_label(RESULT)
    expect(field).to_be_focused()
    notebook.shot("answer-instead-in-a-table", card.root)
    card.press("Wipe a disk (all 2)")
    expect(card.records).to_have_count(2)
    field.fill("kept")
    field.press("Enter")
    card.wait_until("completed")
    expect_report(notebook, "['/dev/sdb', '/dev/sdc']")
