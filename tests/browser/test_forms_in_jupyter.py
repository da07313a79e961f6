"""A large form inside JupyterLab: filled by keyboard, with text that is not lost."""

from __future__ import annotations

import inspect
from datetime import date
from enum import Enum
from typing import Literal

import pytest
from playwright.sync_api import expect
from pydantic import BaseModel, Field

from nbagent.forms.form import Form
from tests.browser.card import Card
from tests.browser.notebook_page import NotebookPage
from tests.browser.typist import Typist

SHORTCUTS = ["a", "b", "d", "d", "x", "y", "m", "j", "k", "0", "0", "Shift+Enter", "Escape"]
"""Keys that JupyterLab's command mode takes for insert, delete, cut, change, move, restart and run."""


class Hero(Enum):
    """Names that are not their values."""

    SUPERMAN = "hero-1"
    LANTERN = "hero-2"
    WONDER = "hero-3"


class Everything(BaseModel):
    """The fields of the elicitation of MCP's everything server, as a pydantic model."""

    name: str = Field(title="String", description="Your full, legal name")
    check: bool = Field(title="Boolean", description="Agree to the terms")
    first_line: str = Field("It was a dark and stormy night.", title="String with default")
    homepage: str = Field(title="Homepage", json_schema_extra={"format": "uri"})
    birthdate: date = Field(title="Birthdate")
    integer: int = Field(42, title="Integer", ge=1, le=100)
    number: float = Field(3.14, title="Number in range 1-1000", ge=0, le=1000)
    friend: Literal["Monica", "Rachel", "Joey", "Chandler", "Ross", "Phoebe"] = "Monica"
    instruments: list[Literal["Guitar", "Piano", "Violin"]] = Field(["Guitar"], max_length=3)
    hero: Hero = Hero.SUPERMAN


IMPORTS = """
from datetime import date
from enum import Enum
from typing import Literal
from pydantic import BaseModel, Field
import asyncio
import nbagent as nb
call = nb.ScriptedModel.call
"""
ASKING = """
agent = nb.Agent(nb.ScriptedModel([[call("fill_in"), call("tick")], "Done."]))

@agent.tool
async def fill_in(ctx: nb.ToolContext) -> str:
    "Ask for everything."
    return (await ctx.ask("Please fill this in", reply=Everything)).model_dump_json()

@agent.tool
async def tick(ctx: nb.ToolContext) -> str:
    "Tell something now and then."
    global tell, end
    tell, end = ctx.progress, asyncio.Event()
    await end.wait()
    return "ticked"

run = agent.run("Go")
run
"""


TOLD = "end.set(); await run; print(run.calls['fill_in'][-1].output)"
LETTERS = "abddxymjk 00"


def focus_by_tab(notebook: NotebookPage, cell: int, typist: Typist) -> None:
    """Leave a cell's editor, and press Tab until the focus is in the card below."""
    notebook.turn_to(cell)
    for _ in range(20):
        if typist.tab() is not None:
            typist.enter()
            return
    pytest.fail("Tab does not lead from the cell into its card")


def test_a_large_form_in_jupyterlab_is_filled_by_keyboard_and_keeps_the_typed_text(
    server, open_page
):
    """Letters are no notebook commands; typed text survives an error, another patch and a page reload."""
    setup = IMPORTS + inspect.getsource(Hero) + inspect.getsource(Everything)
    notebook = open_page(
        server.write("everything.ipynb", setup, ASKING, "tell(0.5, 'halfway')", TOLD)
    )
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_for_question("Please fill this in")
    typist = Typist(notebook.page)
    focus_by_tab(notebook, 1, typist)
    visited = press_shortcuts_everywhere(typist)
    assert {"String", "Boolean", "Integer", "Friend", "Instruments", "Hero", "Send"} <= visited
    expect(notebook.page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(4)
    expect(notebook.page.locator(".jp-Dialog")).to_have_count(0)
    expect(notebook.cell(2).locator(".jp-InputPrompt")).to_have_text("[ ]:")
    expect(card.forms).to_have_count(1)

    typist.enter()
    check_that_text_survives(notebook, card, typist)
    focus_by_tab(notebook, 1, typist)
    meant = typist.fill(Form(Everything).fields)
    typist.press("Control+Enter")
    expect(card.records).to_contain_text("you answered")
    notebook.run_cell(3)
    expect(notebook.output(3)).to_contain_text(Everything.model_validate(meant).model_dump_json())
    assert notebook.errors == [], "\n".join(notebook.errors)


def check_that_text_survives(notebook: NotebookPage, card: Card, typist: Typist) -> None:
    """Type into one field; the text survives a rejected answer, a redrawn card and a page reload."""
    typist.go_to("String with default")
    typist.type(LETTERS)
    with notebook.sending('"type":"drafts"'):
        typist.press("Enter")
        expect(card.form.locator(".nba-errors")).to_contain_text("4 fields to correct")
    text = card.root.get_by_role("textbox", name="String with default")
    expect(text).to_have_value(LETTERS)
    notebook.run_cell(2)
    expect(card.root.locator(".nba-call", has_text="tick")).to_contain_text("halfway")
    expect(text).to_have_value(LETTERS)
    notebook.save()
    notebook.reload()
    card.wait_for_question("Please fill this in")
    expect(text).to_have_value(LETTERS)


def press_shortcuts_everywhere(typist: Typist) -> set[str]:
    """Press command keys on every control from here on; return the controls' names."""
    names = set()
    while typist.here()["name"] is not None:
        here = typist.here()
        names.add(here["name"])
        if here["type"] in ("text", "textarea", "date"):
            typist.press("Escape", "Shift+Enter")
        elif here["name"] not in ("Send", "Stop", "Decline…"):
            typist.press(*SHORTCUTS)
        typist.tab()
    return names
