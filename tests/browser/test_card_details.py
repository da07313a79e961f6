"""Small details of a card, in the page and in the saved notebook."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = r"""
import asyncio, time
import nbagent as nb

S = nb.ScriptedModel
working = nb.Agent(S([[S.call("work_on_it"), S.call("wait_for_it")], "Done."]), name="working_agent")

@working.tool
def work_on_it() -> str:
    for n in range(40):
        print("thread", n)
        time.sleep(0.05)
    return "done"

@working.tool
async def wait_for_it() -> str:
    for n in range(400):
        print("task", n)
        await asyncio.sleep(0.05)
    return "done"

failing = nb.Agent(S([RuntimeError("the server is gone")]), name="failing")
paying = nb.Agent(S([[S.call("pay", to="Ada Lovelace", amount=20.0), S.call("pay", to="Bob", amount=2.5)]]), name="payments")

@paying.tool(approval=True)
def pay(to: str, amount: float) -> str:
    return "paid"

text = "A long answer.\n\n" * 40
chat = nb.Agent(S([text, S.slow("| a |\n|---|\n| 1 |\n\n" + text, delay=1.0), "End."]), name="talker").chat(show=False)
await chat.send("first question")
"""
BROKEN = """root => [...root.querySelectorAll(".nba-who, .nba-name, .nba-button, .nba-pill")]
  .filter(el => el.getClientRects().length && !/[ _-]/.test(el.textContent.trim()))
  .filter(el => { const range = new Range(); range.selectNodeContents(el); return new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1; })
  .map(el => el.textContent)"""
BEYOND = """root => {
  const edge = root.getBoundingClientRect().right + 1;
  return [...root.querySelectorAll("*")]
    .filter(el => el.getClientRects().length && !el.closest("table, pre, .nba-copies, .nba-sr, .nba-legend"))
    .filter(el => el.getBoundingClientRect().right > edge).map(el => el.className);
}"""


def test_c407_output_of_a_stopped_tool_stays_in_its_row(server, open_lab):
    """Before and after the stop, for a task and for a thread that nothing can stop, and in a saved notebook."""
    notebook = open_lab(server.write("stopped.ipynb", SETUP, "run = working.run('Work'); run"))
    notebook.run_all()
    card = Card(notebook.output(1))
    rows = card.root.locator("details.nba-call")
    expect(rows).to_have_count(2)
    for row in rows.all():
        row.locator("summary").first.click()
        expect(row.locator(".nba-printed").first).to_contain_text("2")
    card.press("Stop")
    card.wait_until("cancelled")
    expect(rows.nth(0)).to_contain_text("thread 39")
    expect(rows.nth(1)).to_contain_text("task 2")
    expect(notebook.cell(1).locator(".jp-OutputArea-child")).to_have_count(1)
    notebook.shot("stopped-prints", card.root)
    notebook.save("thread 2", "task 2")
    cell = json.loads((server.root / "stopped.ipynb").read_text())["cells"][1]
    (output,) = cell["outputs"]
    saved = "".join(output["data"]["text/html"])
    assert "thread 2" in saved
    assert "task 2" in saved
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c408_a_card_of_200_pixels_breaks_no_name_and_keeps_its_corner_button(server, open_lab):
    """Nothing overflows the card; "Follow up…" is in a failed card's corner; the time strip has a legend."""
    cells = ("working.run('Work')", "failing.run('Say it')", "paying.run('Pay both')")
    notebook = open_lab(server.write("narrow.ipynb", SETUP, *cells))
    notebook.run_all()
    cards = [Card(notebook.output(index)) for index in (1, 2, 3)]
    cards[1].wait_until("failed")
    expect(cards[2].forms).not_to_have_count(0)
    ask, retry, footer = (
        cards[1].root.locator(f".nba-{name}").bounding_box() for name in ("ask", "retry", "footer")
    )
    assert retry["x"] + retry["width"] < ask["x"]
    assert footer["x"] + footer["width"] - ask["x"] - ask["width"] < 20
    legend = cards[0].root.locator(".nba-legend")
    expect(legend).to_be_hidden()
    cards[0].root.locator(".nba-strip").hover()
    expect(legend).to_be_visible()
    expect(legend).to_have_text(re.compile(r"^model .*s\s*tools .*s$"))
    notebook.shot("legend", cards[0].root)
    notebook.style(".jp-OutputArea-child.jp-OutputArea-child { max-width: 264px }")
    for index, card in enumerate(cards):
        card.root.scroll_into_view_if_needed()
        assert card.root.evaluate("el => el.offsetWidth") <= 200
        assert card.root.evaluate(BEYOND) == []
        assert card.root.evaluate(BROKEN) == []
        notebook.shot(f"narrow-{index}", card.root)
    notebook.dark()
    notebook.shot("narrow-dark", cards[2].root)
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c409_the_copy_button_stays_on_its_block_and_a_chat_names_its_model(server, open_lab):
    """The button follows its block while the chat scrolls, and disappears with the block."""
    notebook = open_lab(server.write("copies.ipynb", SETUP, "chat.view()"))
    notebook.run_all()
    card = Card(notebook.output(1))
    items, copy = card.root.locator(".nba-items"), card.root.locator(".nba-copies")
    box = card.root.get_by_label("Message", exact=True)
    box.fill("second")
    box.press("Enter")
    card.wait_until("completed")
    expect(card.root.locator(".nba-counts")).to_have_text("scripted")
    items.evaluate("el => { el.scrollTop = 0; }")
    say = card.root.locator(".nba-say").first
    say.locator("p").nth(2).hover()
    expect(copy).to_be_visible()
    above = (
        "([copy, items]) => copy.getBoundingClientRect().top - items.getBoundingClientRect().top"
    )
    both = [copy.element_handle(), items.element_handle()]
    notebook.page.mouse.wheel(0, 300)
    notebook.page.wait_for_function(f"both => Math.abs(({above})(both) - 3) < 2", arg=both)
    notebook.shot("copy-scrolled", card.root)
    copy.locator(".nba-copy").focus()
    notebook.page.mouse.move(5, 5)
    items.evaluate("el => { el.scrollTop = el.scrollHeight; }")
    expect(copy).to_have_attribute("data-gone", "")
    assert notebook.errors == [], "\n".join(notebook.errors)
