"""``await nb.form(…)`` in a real front end: errors at fields, a reload, one answer, a static record."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import APPS, App

SETUP = """
import nbagent as nb
from typing import Literal
from pydantic import BaseModel, Field, SecretStr

class Trip(BaseModel):
    "Where to, and how."
    city: str = Field(description="A city with an airport")
    days: int = Field(3, ge=1, le=30)
    seat: Literal["window", "aisle"] = "window"
    code: SecretStr
"""
ASK = "trip = await nb.form(Trip, title='Book a trip', submit_label='Book it')"
GOT = "city='Oslo' days=5 seat='aisle' code=SecretStr('**********')"


@pytest.mark.parametrize("app", APPS)
def test_a_cell_waits_for_its_form_and_continues_with_the_answer(app, server, open_page):
    """Errors are shown at their fields, a double click is one answer, and the record has no secrets."""
    name = server.write(f"form-{app}.ipynb", SETUP, ASK, "print('got', trip)")
    notebook = open_page(name, app=app)
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_for_question("Book a trip")
    expect(card.root.locator(".nba-header")).to_be_hidden()
    card.fill("City", "Oslo")
    card.fill("Days", "99")
    card.press("Book it")
    expect(card.form).to_contain_text("Must be at most 30")
    expect(card.root.get_by_label("City", exact=True)).to_have_value("Oslo")
    card.fill("Days", "5")
    card.root.get_by_label("aisle").check()
    card.fill("Code", "hushhush")
    notebook.shot(f"form-{app}", of=notebook.output(1))
    card.press("Book it", clicks=2)
    expect(card.records).to_contain_text("you answered")
    expect(notebook.output(2)).to_contain_text(f"got {GOT}")
    notebook.turn_to(0)
    card.wait_until_static()
    notebook.save()
    assert "hushhush" not in json.dumps(server.get(f"api/contents/{name}"))
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_a_reloaded_page_answers_the_form_that_its_cell_waits_for(server, open_page):
    """The typed text is shown again, the cell gets the answer, and the record replaces the form."""
    notebook = open_page(server.write("form-reload.ipynb", SETUP, ASK, "print('got', trip)"))
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_for_question("Book a trip")
    with notebook.sending('"drafts"'):
        card.fill("City", "Oslo")
    notebook.save()
    notebook.page.reload()
    card.wait_for_question("Book a trip")
    expect(card.root.get_by_label("City", exact=True)).to_have_value("Oslo")
    card.fill("Code", "hushhush")
    notebook.wait_for_connection()
    card.press("Book it")
    expect(card.records).to_contain_text("you answered")
    notebook.wait_for_kernel()
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("got city='Oslo' days=3")
    expect(card.records).to_contain_text("you answered")


@pytest.mark.parametrize("app", [App.LAB])
def test_an_ipywidget_used_as_a_field_is_shown_below_the_form(app, server, open_page):
    """The widget's value when the form is sent is the answer, and the widget disappears with the form."""
    setup = f"{SETUP}\nimport ipywidgets\nfrom typing import Annotated\n"
    setup += "Size = Annotated[int, nb.FormHint(widget=lambda: ipywidgets.IntSlider(max=50))]\n"
    setup += "class Area(BaseModel):\n    name: str\n    size: Size"
    ask = "area = await nb.form(Area, title='How large?')"
    name = server.write(f"form-widget-{app}.ipynb", setup, ask, "print('got', area)")
    notebook = open_page(name, app=app)
    notebook.run_all()
    output = notebook.output(1)
    card = Card(output)
    card.wait_for_question("How large?")
    expect(output.locator(".widget-label", has_text="Size")).to_be_visible()
    expect(card.root.get_by_label("Size")).to_have_count(0)
    card.fill("Name", "here")
    output.locator(".widget-slider .noUi-target").click()
    expect(output.locator(".widget-readout")).to_have_text("25")
    notebook.shot(f"form-widget-{app}", of=output)
    card.press("Send")
    expect(card.records).to_contain_text("you answered")
    expect(notebook.output(2)).to_contain_text("got name='here' size=25")
    expect(output.locator(".widget-slider")).to_have_count(0)
    assert notebook.errors == [], "\n".join(notebook.errors)
