"""A batch of many rows in JupyterLab: progress, rows, and answers to many questions at once, by keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import check_all_looks, check_picture
from tests.browser.notebook_page import APPS, App

BATCH = """
import asyncio
import nbagent as nb
import pandas as pd
from nbagent.core.base.model import Usage

SLOW = asyncio.Event()
TOTAL = 10_000

def text_of(messages):
    return next(m for m in reversed(messages) if m["role"] == "user")["content"][0]["text"]

async def answer(messages):
    if messages[-1]["role"] == "tool":
        return "The refund is paid."
    n = int(text_of(messages).split("#")[1].split()[0])
    if n >= 2000:
        await SLOW.wait()
    if n % 40 == 7:
        why = ("duplicate order", "arrived broken", "never arrived")[n % 3]
        return nb.ScriptedModel.call("refund", order=f"A-{n}", amount=n % 230, reason=why)
    if n % 173 == 5:
        raise nb.errors.ModelError("the server did not answer")
    return ("A question about delivery: the parcel is on its way.", "Praise: <b>thank you</b> for the fast reply!", "A complaint about the price.")[n % 3]

agent = nb.Agent(nb.ScriptedModel(answer, usage=Usage(420, 60, 0.00021)), name="support")

@agent.tool(approval=True)
def refund(order: str, amount: float, reason: str) -> str:
    "Pay money back."
    return "paid"

orders = pd.DataFrame({"order": [f"A-{n}" for n in range(TOTAL)], "text": [f"#{n} Where is my order?" for n in range(TOTAL)]})
batch = nb.map(agent, orders, prompt="Sort this message: {text}", id="march", key="order", concurrency=16)
batch
"""
REST = "SLOW.set()"
WITHIN = ".nba-table-card"
MEASURE = """() => {
  globalThis.longest = 0;
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, one.duration);
  }).observe({ type: "longtask" });
}"""


@pytest.mark.parametrize("app", APPS)
def test_c464_ten_thousand_rows_are_watched_found_answered_and_opened_by_keyboard(
    server, open_page, app
):
    """The page contains only the visible rows; a rule answers many questions at once."""
    notebook = open_page(server.write(f"batch-{app}.ipynb", BATCH, REST), app=app)
    page = notebook.page
    page.evaluate(MEASURE)
    notebook.run_cell(0)
    out = notebook.output(0)
    batch = out.locator(".nba-table-card")
    expect(out.locator(".nba-table-card")).to_have_count(1)
    rows = batch.locator(".t-space .t-row")
    table = batch.get_by_role("table", name="Rows")
    expect(batch.get_by_role("button", name="50 waiting")).to_be_visible(timeout=60_000)
    expect(table).to_have_attribute("aria-rowcount", "2017")
    assert rows.count() <= 100
    if app is App.LAB:
        check_all_looks(notebook, out, "batch", WITHIN)

    are_chosen(page, batch, table, rows)
    are_answered(notebook, out, batch, app)
    is_opened(notebook, out, batch, app)
    batch.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(out).to_contain_text("paused")
    expect(batch.get_by_role("button", name="Continue")).to_be_focused()
    page.keyboard.press("Enter")
    expect(batch.get_by_role("button", name="Pause")).to_be_focused()
    if app is App.LAB:
        rest_is_run(notebook, out, batch)
    assert rows.count() <= 100
    assert notebook.errors == [], "\n".join(notebook.errors)


def rest_is_run(notebook, out, batch):
    """Let the other 8,000 rows run; prints what the page received and its longest task."""
    page = notebook.page
    page.evaluate("globalThis.longest = 0")
    before, begun = notebook.received, page.evaluate("performance.now()")
    notebook.run_cell(1)
    expect(batch.get_by_role("button", name="200 waiting")).to_be_visible(timeout=120_000)
    seconds = (page.evaluate("performance.now()") - begun) / 1000
    print(
        f"{(notebook.received - before) / seconds / 1000:.1f} kB/s while busy for {seconds:.0f} s"
    )
    print(f"the longest task {page.evaluate('globalThis.longest'):.0f} ms")
    check_picture(notebook, out, "batch-ended", WITHIN)


def are_chosen(page, batch, table, rows):
    """A press on the number of waiting rows shows only these rows."""
    batch.get_by_role("button", name="50 waiting").focus()
    page.keyboard.press("Enter")
    expect(table).to_have_attribute("aria-rowcount", "51")
    expect(rows.first).to_contain_text("refund: order=A-7")
    page.keyboard.press("Enter")
    expect(table).to_have_attribute("aria-rowcount", "2017")


def are_answered(notebook, out, batch, app):
    """Approve the questions that match a rule, then reject all others."""
    batch.get_by_label("where").first.select_option("amount")
    batch.get_by_label("where").nth(1).select_option("below")
    batch.get_by_label("Value").fill("100")
    few = batch.get_by_text("questions match")
    expect(few).to_contain_text("23 of 50 questions match")
    check_picture(notebook, out, f"batch-{app}-rule", WITHIN)
    approve = batch.get_by_role("button", name="Approve 23")
    approve.focus()
    notebook.page.keyboard.press("Enter")
    expect(batch.get_by_text("23 answered")).to_be_visible()
    expect(batch.get_by_role("button", name="27 waiting")).to_be_visible()
    batch.get_by_label("where").first.select_option("")
    batch.get_by_label("Reason for").fill("twice")
    batch.get_by_role("button", name="Reject 27").focus()
    notebook.page.keyboard.press("Enter")
    expect(batch.locator(".t-asks")).to_be_hidden()


def is_opened(notebook, out, batch, app):
    """Find a row, open its card below the table, and go to the last and first row."""
    page, rows = notebook.page, batch.locator(".t-space .t-row")
    table = batch.get_by_role("table", name="Rows")
    batch.get_by_label("Find rows").fill("A-1207")
    expect(table).to_have_attribute("aria-rowcount", "2")
    rows.get_by_role("button", name="Open A-1207").focus()
    page.keyboard.press("Enter")
    card = Card(out.locator(".widget-vbox > *").nth(2))
    expect(card.root).to_contain_text("#1207 Where is my order?")
    check_picture(notebook, out, f"batch-{app}-open", WITHIN)
    rows.get_by_role("button", name="Close A-1207").focus()
    page.keyboard.press("Enter")
    batch.get_by_label("Find rows").fill("")
    expect(table).to_have_attribute("aria-rowcount", "2017")

    rows.first.get_by_role("button", name="Open A-0").focus()
    page.keyboard.press("End")
    expect(batch.get_by_role("button", name="Open A-2015")).to_be_focused()
    page.keyboard.press("Home")
    expect(batch.get_by_role("button", name="Open A-0")).to_be_focused()
    assert rows.count() <= 100


DURABLE = """
import asyncio
import pathlib
import nbagent as nb

def answer(messages):
    with open("asked.log", "a") as log:
        log.write("asked" + chr(10))
    if messages[-1]["role"] == "tool":
        return "paid"
    n = int(messages[0]["content"][0]["text"].split()[1])
    return nb.ScriptedModel.call("pay", n=n) if n % 10 == 3 else "nothing to pay"

agent = nb.Agent(nb.ScriptedModel(answer), name="payer", store="durable_batch.db")

@agent.tool(approval=True)
def pay(n: int) -> str:
    "Pay."
    return "paid"

batch = nb.map(agent, range(50), prompt="row {}", id="durable")
"""
AWAITED = """
await batch
print(batch, len(pathlib.Path("asked.log").read_text().split()))
"""
ENDLESS = """
async def think(messages):
    await asyncio.sleep(60)

slow = nb.map(nb.Agent(nb.ScriptedModel(think), name="slow"), range(30), prompt="row {}", id="slow", concurrency=4)
await slow
"""


def test_c465_after_a_restart_the_same_cell_continues_and_the_stop_button_stops_all_rows(
    server, open_page
):
    """Rows that have finished do not run again; the card answers the open questions."""
    notebook = open_page(server.write("batch-durable.ipynb", DURABLE, AWAITED, ENDLESS))
    batch = notebook.output(0).locator(".nba-table-card")
    notebook.run_cell(0)
    expect(batch.get_by_role("button", name="5 waiting")).to_be_visible()
    notebook.restart_kernel()
    expect(batch).to_contain_text("The kernel has stopped")
    notebook.run_cell(0)
    expect(batch).not_to_contain_text("The kernel has stopped")
    expect(batch.get_by_role("button", name="45 done")).to_be_visible()
    batch.get_by_role("button", name="Approve 5").click()
    expect(batch.get_by_role("button", name="50 done")).to_be_visible()
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("<Batch durable: 50 of 50 done> 55")

    slow = notebook.output(2).locator(".nba-table-card")
    notebook.run_cell(2)
    expect(slow.get_by_role("button", name="4 running")).to_be_visible()
    notebook.interrupt_kernel()
    expect(slow.get_by_role("button", name="4 stopped")).to_be_visible()
    expect(notebook.output(2)).to_contain_text("stopped · 0 of 30 done")
    expect(slow.get_by_role("button", name="Retry 4")).to_be_visible()
    assert notebook.errors == [], "\n".join(notebook.errors)
