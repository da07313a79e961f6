"""A typed answer grows in the card as a table or as named values, and keeps that form."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card

SETUP = (
    GIVES_WAY
    + """
import asyncio, json, threading
import nbagent as nb
from nbagent.core.base.model import Finished, TextDelta
from pydantic import BaseModel

class City(BaseModel):
    name: str
    people: int
    known_for: str

class Trip(BaseModel):
    to: str
    nights: int
    stops: list[City]

ROME = dict(name="Rome", people=2_755_309, known_for="The Forum, the Colosseum, and a river that runs through all of it")
MILAN = dict(name="Milan", people=1_358_871, known_for="Its cathedral")

class Typing:
    name = "typing"
    def __init__(self, text, at):
        self.text, self.at, self.go = text, at, threading.Event()
    async def stream(self, request):
        for start in range(0, self.at, 7):
            yield TextDelta(self.text[start : min(self.at, start + 7)])
            await asyncio.sleep(0)
        while not self.go.is_set():
            await asyncio.sleep(0.02)
        yield TextDelta(self.text[self.at :])
        yield Finished()

rows = json.dumps({"value": [ROME, MILAN]})
table = Typing(rows, rows.index("Its cath") + 5)
trip = json.dumps({"to": "Rome", "nights": 3, "stops": [ROME, MILAN]})
object_ = Typing(trip, trip.index("Colosseum"))
"""
)
TABLE = "first = nb.Agent(table, name='geographer', output_type=list[City]).run('The two largest cities of Italy?')"
OBJECT = "second = nb.Agent(object_, name='planner', output_type=Trip).run('Plan a trip.')"
REFUSED = """
bad = json.dumps({"value": [{"name": "Rome", "people": "many"}]})
third = nb.Agent(nb.ScriptedModel([bad, "Sorry, I cannot.", rows]), name="geographer", output_type=list[City]).run("Cities?")
"""
GO = "table.go.set(); object_.go.set()"


def test_a_typed_answer_grows_and_its_final_form_looks_the_same(server, open_lab):
    """The answer grows row by row, in light and dark; its final form adds only the JSON, also narrow and static."""
    notebook = open_lab(server.write("typed-answers.ipynb", SETUP, TABLE, OBJECT, REFUSED, GO))
    for index in range(4):
        notebook.run_cell(index)
    table, trip, refused = (Card(notebook.output(index)) for index in (1, 2, 3))
    rows = table.root.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("Its c")
    expect(trip.root.locator("dl.nba-kv").first).to_contain_text("nights")
    expect(table.root.locator("details:has(summary:text('JSON'))")).to_have_count(0)
    assert "{" not in table.root.inner_text()
    shown = rows.nth(0).inner_text()
    for theme, name in ((notebook.light, "light"), (notebook.dark, "dark")):
        theme()
        notebook.shot(f"typed-table-grows-{name}", table.root)
        notebook.shot(f"typed-object-grows-{name}", trip.root)
    notebook.light()
    refused.wait_until("completed")
    expect(refused.root.locator(".nba-notice")).to_have_count(2)
    expect(refused.root.locator(".nba-notice").first).to_contain_text("people")
    notebook.shot("typed-refused", refused.root)
    notebook.run_cell(4)
    for card in (table, trip):
        card.wait_until("completed")
        card.wait_until_static()
        expect(card.root.locator("summary", has_text=re.compile("^JSON$"))).to_have_count(1)
    assert rows.nth(0).inner_text() == shown
    expect(rows.nth(1)).to_contain_text("Its cathedral")
    notebook.shot("typed-table-done", table.root)
    table.root.locator("summary", has_text=re.compile("^JSON$")).click()
    expect(table.root.locator("pre").last).to_contain_text('"people": 2755309')
    notebook.page.set_viewport_size({"width": 760, "height": 900})
    for theme, name in ((notebook.light, "light"), (notebook.dark, "dark")):
        theme()
        notebook.shot(f"typed-table-narrow-{name}", table.root)
        notebook.shot(f"typed-object-narrow-{name}", trip.root)
    for card in (table, trip):
        box = card.root.evaluate("el => [el.scrollWidth, el.clientWidth]")
        assert box[0] <= box[1]
    assert notebook.errors == [], "\n".join(notebook.errors)
