"""The list of a store's runs in JupyterLab: filtered, sorted, opened and answered, by keyboard too."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import check_picture
from tests.browser.notebook_page import VIEWPORT

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MANY = """
import nbagent as nb
store = nb.SQLiteStore("list.db")
call = nb.ScriptedModel.call

def agent(name, *script):
    return nb.Agent(nb.ScriptedModel(list(script)), name=name, store=store)

writer = agent("writer", *["The sea is wide."] * 60)
for number in range(60):
    await writer.run(f"Write about sea {number:02}", id=f"sea-{number:02}", show=False)
banker = agent("banker", call("pay", to="Ada", amount=10), call("pay", to="Bob", amount=20), "All settled.")

@banker.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {to}"

run = banker.run("Pay the bills of May <b>now</b>", id="may")
"""
LIST = """
import nbagent as nb
listed = nb.runs("list.db")
listed
"""
SLOW = """
import asyncio, pathlib

@nb.tool
async def settle(month: str) -> str:
    "Settle a month."
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)
    return "settled"

slow = nb.Agent(nb.ScriptedModel([call("settle", month="May"), "Done."]), name="banker", tools=[settle], store=store)
other = slow.run("Settle May", id="books")
"""
BANKER = """
agent = nb.Agent(nb.ScriptedModel(["All settled.", "Done."]), name="banker")

@agent.tool
def settle(month: str) -> str:
    "Settle a month."
    return "settled here"

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {to}"
"""


def test_c375_runs_of_another_notebook_are_found_sorted_opened_and_answered_by_keyboard(
    server, open_page
):
    """The list follows the store; an unknown agent's run is shown, a known agent's run is answered in both pages."""
    first = open_page(server.write("many.ipynb", MANY, SLOW))
    first.run_cell(0)
    Card(first.output(0)).wait_for_question("pay")
    second = open_page(server.write("list.ipynb", LIST, BANKER, "listed[0].id, len(listed)"))
    second.run_cell(0)
    out, page = second.output(0), second.page
    table = out.locator(".nba-table-card")
    rows = table.locator(".t-space .t-row")
    expect(table.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", "62")
    expect(table).to_contain_text("61 runs")
    expect(rows.first).to_contain_text("Pay the bills of May <b>now</b>")
    expect(rows.first).to_contain_text("waiting for you")
    check_picture(second, out, "runs-light", ".nba-table-card")
    second.dark()
    check_picture(second, out, "runs-dark", ".nba-table-card")
    second.light()

    is_chosen_and_sorted(page, table, rows)
    press_tab_until(page, "Open may")
    page.keyboard.press("Enter")
    card = Card(out.locator(".widget-vbox > *").nth(2))
    expect(card.root).to_contain_text("define the agent banker in this notebook")
    check_picture(second, out, "runs-unknown", ".nba-table-card")

    second.run_cell(1)
    card.wait_for_question("pay")
    expect(rows.get_by_role("button", name="Close may")).to_be_visible()
    picture_for_the_guide(second, out, table)
    second.style(".jp-OutputArea-child { max-width: 400px }")
    check_picture(second, out, "runs-narrow", ".nba-table-card")
    second.style(".jp-OutputArea-child.jp-OutputArea-child { max-width: none }")
    rows.get_by_role("button", name="Close may").focus()
    press_tab_until(page, "Approve")
    page.keyboard.press("Enter")
    card.wait_until("completed")
    expect(rows.first).to_contain_text("done")
    second.run_cell(2)
    expect(second.output(2)).to_contain_text("('may', 61)")
    check_picture(second, out, "runs-answered", ".nba-table-card")
    first.page.bring_to_front()
    Card(first.output(0)).wait_until("completed")

    is_taken_over(first, second, table, card)
    for notebook in (first, second):
        assert notebook.errors == [], "\n".join(notebook.errors)


def picture_for_the_guide(notebook, out, table):
    """Take the guide's picture again if NBAGENT_UPDATE_IMAGES is set."""
    table.get_by_label("Find").fill("")
    expect(table.get_by_role("table")).to_have_attribute("aria-rowcount", "62")
    table.get_by_role("button", name="prompt").click()
    # high enough to show everything
    notebook.page.set_viewport_size({**VIEWPORT, "height": 1100})
    shot = notebook.shot("runs-open", of=out)
    notebook.page.set_viewport_size(VIEWPORT)
    if os.environ.get("NBAGENT_UPDATE_IMAGES"):
        shutil.copy(shot, IMAGES / "runs.png")
    table.get_by_label("Find").fill("bills may")
    expect(table.get_by_role("table")).to_have_attribute("aria-rowcount", "2")


def is_chosen_and_sorted(page, table, rows):
    """Show, sort and filter all runs."""
    rows.get_by_role("button", name="Open may").focus()
    page.keyboard.press("End")
    expect(rows.get_by_role("button", name="Open sea-00")).to_be_focused()
    page.keyboard.press("Home")
    expect(rows.get_by_role("button", name="Open may")).to_be_focused()
    table.get_by_role("button", name="prompt").click()
    expect(rows.first).to_contain_text("Pay the bills")
    table.get_by_role("button", name="prompt").click()
    expect(rows.first).to_contain_text("sea 59")
    expect(table.get_by_role("columnheader", name="prompt")).to_have_attribute(
        "aria-sort", "descending"
    )
    table.get_by_label("Find").click()
    page.keyboard.type("bills may")
    expect(rows).to_have_count(1)
    expect(table).to_contain_text("1 of 61 runs")


def is_taken_over(first, second, table, card):
    """One notebook's running run is taken over in the other notebook's list; both cards say so."""
    out, page = second.output(0), second.page
    first.run_cell(1)
    theirs = Card(first.output(1))
    theirs.wait_until("running")
    page.bring_to_front()
    table.get_by_label("Find").fill("books")
    table.get_by_role("button", name="Open books").click()
    expect(card.root).to_contain_text("This run is active in process")
    check_picture(second, out, "runs-elsewhere", ".nba-table-card")
    card.press("Take over…")
    expect(card.root).to_contain_text("Results of calls that are running there are ignored")
    check_picture(second, out, "runs-take-over", ".nba-table-card")
    card.press("Take over")
    card.wait_for_question("Did settle take effect?")
    check_picture(second, out, "runs-taken", ".nba-table-card")
    expect(theirs.root).to_contain_text("took over the run")
    first.page.bring_to_front()
    first.shot("runs-taken-from", of=first.output(1))
    page.bring_to_front()
    card.press("Run again")
    card.wait_until("completed")
    expect(card.root).to_contain_text("took over the run")
    theirs.wait_until("completed")


def press_tab_until(page, label):
    """Press Tab until the button with this label has the focus."""
    name = (
        "document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent"
    )
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate(name) == label:
            return
    raise AssertionError(f"Tab does not come to {label}")
