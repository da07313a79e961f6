"""A chat in JupyterLab: messages, questions in the card, edits, variables, tools and files."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = r"""
import pandas as pd
import nbagent as nb

S = nb.ScriptedModel
df = pd.DataFrame({"region": ["South", "North"], "margin": [-42.5, 18.0]})
draft = "a text"

def agent(*steps, name="analyst"):
    made = nb.Agent(S(list(steps)), name=name)

    @made.tool
    def look(region: str) -> dict:
        "Look at the numbers of a region."
        return {"region": region, "margin": -42.5}

    @made.tool(approval=True)
    def pay(to: str, amount: float) -> str:
        "Pay somebody."
        return f"paid {amount}"

    return made
"""
CHAT = r"""
chat = agent(
    "Only **South** lost money.",
    [S.call("look", region="South")], "South lost 42.5, mostly by discounts.",
    [S.call("pay", to="Ada", amount=20.0)], "Paid, and noted.",
    "Another answer.",
    "A third answer.",
).chat(starters=["Which region lost money?"])
"""


@pytest.fixture
def opened(server, open_lab):
    """``opened(cell, …)`` runs the set-up and these cells; the first has index 1."""

    def opened(*cells):
        notebook = open_lab(server.write("chat.ipynb", SETUP, *cells))
        notebook.run_all()
        return notebook

    return opened


def test_c797_c880_messages_are_written_read_and_edited_in_the_card_of_a_chat(opened, server):
    """Enter sends, the thread grows, a question is answered in the thread; a message is edited, an answer retried."""
    notebook = opened(CHAT)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    keys = notebook.page.keyboard
    expect(box).to_have_attribute("placeholder", "Ask analyst…")
    expect(card.button("Which region lost money?")).to_be_visible()
    card.root.get_by_role("button", name="/pay").click()
    expect(box).to_have_value("/pay ")
    notebook.shot("chat-empty", card.root)
    box.fill("")
    keys.type("Which region lost money?")
    keys.press("Shift+Enter")
    keys.type("Be short.")
    keys.press("Enter")
    expect(card.root).to_contain_text("Only South lost money.")
    expect(box).to_have_value("")
    expect(card.root.locator(".nba-start")).to_be_hidden()
    expect(card.root.locator(".nba-after")).to_have_count(1)
    keys.type("/lo")
    expect(card.root.get_by_role("option")).to_have_count(1)
    keys.press("Tab")
    keys.type("at @d")
    expect(card.root.get_by_role("option")).to_have_count(2)
    notebook.shot("chat-names", card.root)
    keys.press("Enter")
    expect(box).to_have_value("/look at @df ")
    keys.press("Enter")
    expect(card.root).to_contain_text("mostly by discounts")
    expect(card.root.locator(".nba-message").last).to_contain_text("(Use the tool look.)")
    expect(card.root.locator(".nba-message").last.locator(".nba-file")).to_contain_text("@df")
    keys.type("Pay Ada")
    keys.press("Enter")
    card.wait_for_question()
    expect(card.root.locator(".nba-box").get_by_role("button")).to_have_text(["+", "Stop"])
    notebook.shot("chat-question", card.root)
    keys.type("And note it down")
    keys.press("Enter")
    expect(card.root.get_by_text("will be sent after this turn")).to_be_visible()
    card.press("Approve")
    expect(card.root).to_contain_text("Paid, and noted.")
    notebook.shot("chat-done", card.root)
    edit_message(notebook, card, box)
    copy_and_retry(notebook, card)
    check_saved(notebook, server)


def check_saved(notebook, server):
    """The saved notebook has the whole current thread, without the replaced messages."""
    notebook.save("A third answer.")
    path = server.root / "chat.ipynb"
    (output,) = json.loads(path.read_text())["cells"][1]["outputs"]
    assert set(output["data"]) == {"text/html", "text/plain"}
    html, text = ("".join(output["data"][mime]) for mime in ("text/html", "text/plain"))
    for said in ("Which region lost money?", "And the North?", "A third answer."):
        assert said in html
        assert said in text
    assert "Paid, and noted" not in html


def edit_message(notebook, card, box):
    """Go back to an earlier message, and send another one in its place."""
    keys = notebook.page.keyboard
    box.focus()
    keys.press("ArrowUp")
    expect(box).to_have_value("Pay Ada")
    keys.press("ArrowDown")
    expect(box).to_have_value("")
    said = card.root.locator(".nba-message")
    expect(said).to_have_count(4)
    said.nth(1).hover()
    said.nth(1).get_by_role("button", name="Edit this message").click()
    expect(box).to_be_focused()
    expect(said.nth(1)).to_have_css("outline-style", "solid")
    opacities = [said.nth(n).evaluate("el => getComputedStyle(el).opacity") for n in range(4)]
    assert opacities == ["1", "1", "0.62", "0.62"], "what the edit drops is faded"
    notebook.shot("chat-edit", card.root)
    box.fill("And the North?")
    keys.press("Enter")
    expect(card.root).to_contain_text("Another answer.")
    expect(said).to_have_count(2)
    expect(card.root.locator(".nba-items")).not_to_contain_text("Paid, and noted.")
    notebook.dark()
    notebook.page.set_viewport_size({"width": 770, "height": 900})
    notebook.shot("chat-dark-narrow", card.root)
    notebook.light()
    assert notebook.errors == [], "\n".join(notebook.errors)


SEEN = """el => {
  const texts = [];
  const look = () => texts.push(el.textContent.trim());
  new MutationObserver(look).observe(el, { subtree: true, childList: true, characterData: true });
  return texts;
}"""
"""The texts that an element has from now on, also those that it has only for a moment."""


def copy_and_retry(notebook, card):
    """Each answer has Copy and Retry; Retry of the last answer asks again, of an earlier one it shows what it drops."""
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    after = card.root.locator(".nba-after")
    expect(after).to_have_count(2)
    seen = after.first.evaluate_handle(SEEN)
    after.first.get_by_role("button", name="Copy the answer").click()
    notebook.page.wait_for_function("seen => seen.includes('Copied▾Retry')", arg=seen)
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "Only **South** lost money."
    after.first.get_by_role("button", name="Copy the answer").click(modifiers=["Shift"])
    notebook.page.wait_for_function("seen => seen.includes('Copied as text▾Retry')", arg=seen)
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "Only South lost money."
    after.last.get_by_role("button", name="Retry").click()
    expect(card.root).to_contain_text("A third answer.")
    expect(card.root.locator(".nba-message")).to_have_count(2)
    after.first.get_by_role("button", name="Retry").click()
    expect(card.root.locator(".nba-edited")).to_contain_text("Which region lost money?")
    card.press("Cancel")
    expect(card.root.locator(".nba-edited")).to_have_count(0)


FILES = "pictures = agent('A red dot.', 'Still red.').chat()"
DROP = """(el, names) => {
  const data = new DataTransfer();
  for (const [name, type, text] of names)
    data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, { type }));
  el.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CAB+GTG8HSALfKY52fTcuYAAAA"
    "AElFTkSuQmCC"
)


def test_files_are_dropped_pasted_and_removed_again(opened):
    """Files are chips with a button each; the model gets the files, and an edited message keeps them."""
    notebook = opened(FILES)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    composer = card.root.locator(".nba-composer")
    chips = composer.locator(".nba-chip")
    box.fill("What is it?")
    composer.evaluate(DROP, [["dot.png", "image/png", DOT], ["notes.txt", "text/plain", "aGk="]])
    expect(chips).to_have_count(2)
    notebook.shot("chat-files", card.root)
    composer.get_by_role("button", name="Remove notes.txt").click()
    expect(chips).to_have_count(1)
    composer.evaluate(DROP, [[f"{n}.txt", "text/plain", "aGk="] for n in range(10)])
    expect(composer.locator(".nba-err")).to_contain_text("at most 10 files")
    for n in range(9):
        composer.get_by_role("button", name=f"Remove {n}.txt").click()
    box.press("Enter")
    expect(card.root).to_contain_text("A red dot.")
    expect(card.root.locator(".nba-message img")).to_have_count(1)
    card.root.locator(".nba-message").hover()
    card.button("Edit this message").click()
    expect(chips).to_have_count(1)
    box.fill("And now?")
    box.press("Enter")
    expect(card.root).to_contain_text("Still red.")
    expect(card.root.locator(".nba-message img")).to_have_count(1)
    assert notebook.errors == [], "\n".join(notebook.errors)


LONG = r"""
text = "## Part\n\n" + "A long answer with **words**, `code` and a list.\n\n- one\n- two\n\n" * 6
long = agent(*[text] * 32, "The end.").chat(show=False)
for n in range(30):
    await long.send(f"Question {n}")
long.view()
"""
TYPE = """async (box) => {
  const took = [];
  for (let n = 0; n < 40; n++) {
    const begun = performance.now();
    box.setRangeText("x", box.value.length, box.value.length, "end");
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
    box.getBoundingClientRect();
    took.push(performance.now() - begun);
    await new Promise(requestAnimationFrame);
  }
  return took.sort((a, b) => a - b);
}"""


def test_c403_thirty_turns_scroll_in_their_card_and_typing_stays_smooth(opened):
    """The newest message is in view, also when a person has scrolled up and sends; opening the chat scrolls no page."""
    notebook = opened(LONG)
    panel = notebook.page.locator(PANEL)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    items = card.root.locator(".nba-items")
    expect(card.root.locator(".nba-message")).to_have_count(30)
    rest = "el => el.scrollHeight - el.scrollTop - el.clientHeight"
    notebook.page.wait_for_function(f"el => ({rest})(el) < 60", arg=items.element_handle())
    assert card.root.evaluate("el => el.offsetHeight") <= panel.evaluate("el => el.clientHeight")
    assert panel.evaluate("el => el.scrollTop") == 0
    expect(card.button("Newest ↓")).to_be_hidden()
    box.scroll_into_view_if_needed()
    took = box.evaluate(TYPE)
    print(f"a key takes {took[20]:.1f} ms, at most {took[-1]:.1f} ms")
    items.evaluate("el => { el.scrollTop = 0; }")
    notebook.page.wait_for_function("el => el.scrollTop === 0", arg=items.element_handle())
    notebook.shot("chat-long-top", card.root)
    box.fill("One more")
    box.press("Enter")
    expect(card.root.locator(".nba-message")).to_have_count(31)
    notebook.page.wait_for_function(f"el => ({rest})(el) < 60", arg=items.element_handle())
    notebook.shot("chat-long", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)


SLOW = r"""
text = "## Part\n\n" + "A long answer with **words**, `code` and a list.\n\n- one\n- two\n\n" * 9
slow = agent(*[S.slow(text * n, pieces=40 * n, delay=0.05) for n in (1, 2, 4)]).chat()
"""
BELOW = "1 + 1"
FOLLOWED = """() => {
  const composer = document.querySelector(".nba-composer");
  const panel = document.querySelector(".jp-WindowedPanel-outer");
  const out = (globalThis.followed = { most: 0, ups: 0, tops: new Set() });
  let last = 0;
  const look = () => {
    const { top, bottom } = composer.getBoundingClientRect();
    out.most = Math.max(out.most, bottom - panel.getBoundingClientRect().bottom);
    if (top < last - 1) out.ups += 1;
    last = top;
    requestAnimationFrame(look);
  };
  look();
}"""
PANEL = ".jp-WindowedPanel-outer"


def test_c401_the_box_of_a_chat_stays_in_view_until_the_person_scrolls_up(opened):
    """The box is in view during an answer; a person who scrolls up is not moved and has a button back."""
    notebook = opened(SLOW, BELOW)
    card = Card(notebook.output(1))
    page, keys = notebook.page, notebook.page.keyboard
    box = card.root.get_by_label("Message", exact=True)
    stop, newest = card.button("Stop"), card.button("Newest ↓")
    items = card.root.locator(".nba-items")
    panel = page.locator(PANEL)
    box.click()
    page.evaluate(FOLLOWED)
    keys.type("Tell me")
    keys.press("Enter")
    expect(stop).to_be_visible()
    card.wait_until("completed")
    followed = page.evaluate("followed")
    assert followed["most"] <= 0, "the box was below the panel"
    assert followed["ups"] == 0, "the box went up and down"
    expect(newest).to_be_hidden()
    keys.type("More")
    keys.press("Enter")
    expect(stop).to_be_in_viewport(ratio=1)
    items.hover()
    page.mouse.wheel(0, -300)
    expect(newest).to_be_visible()
    notebook.shot("chat-scrolled-up")
    said = items.inner_text()
    at = items.evaluate("el => el.scrollTop")
    page.wait_for_function(
        "([el, n]) => el.innerText.length > n + 300", arg=[items.element_handle(), len(said)]
    )
    assert items.evaluate("el => el.scrollTop") == at
    newest.press("Enter")
    expect(newest).to_be_hidden()
    expect(box).to_be_focused()
    assert items.evaluate("el => el.scrollHeight - el.scrollTop - el.clientHeight") < 2
    card.wait_until("completed")
    keys.type("And more")
    keys.press("Enter")
    expect(stop).to_be_visible()
    scroll_up_slowly(page, panel)
    expect(newest).to_be_in_viewport(ratio=1)
    at = panel.evaluate("el => el.scrollTop")
    said = items.inner_text()
    page.wait_for_function(
        "([el, n]) => el.innerText.length > n + 300", arg=[items.element_handle(), len(said)]
    )
    assert panel.evaluate("el => el.scrollTop") == at
    notebook.shot("chat-above")
    newest.click()
    expect(box).to_be_in_viewport(ratio=1)
    check_low(notebook, card, box)
    assert notebook.errors == [], "\n".join(notebook.errors)


def scroll_up_slowly(page, panel):
    """Turn the wheel beside the card, in steps that leave the box in view."""
    edge = panel.bounding_box()
    page.mouse.move(edge["x"] + 5, edge["y"] + edge["height"] / 2)
    for _ in range(16):
        page.mouse.wheel(0, -25)
        page.wait_for_timeout(60)


def check_low(notebook, card, box):
    """In a low panel, the card is low enough to show its footer."""
    page = notebook.page
    notebook.dark()
    page.set_viewport_size({"width": 620, "height": 560})
    card.wait_until("completed")
    box.click()
    card.root.locator(".nba-items").hover()
    page.mouse.wheel(0, -300)
    expect(card.button("Newest ↓")).to_be_visible()
    expect(card.root.locator(".nba-footer")).to_be_in_viewport(ratio=1)
    notebook.shot("chat-low-dark")


CALLING = """
script = [step for n in range(14) for step in ([S.call("look", n=n)], f"Answer {n}.")]
caller = nb.Agent(S(script), name="caller")

@caller.tool
def look(n: int) -> str:
    return f"found {n}"

thread = caller.chat(show=False)
for n in range(14):
    await thread.send(f"Question {n}")
thread
"""


def test_c401_rows_of_calls_keep_their_height_where_a_chat_scrolls(opened):
    """The rows clip their content, but do not shrink in a card as high as the panel."""
    notebook = opened(CALLING)
    card = Card(notebook.output(1))
    rows = card.root.locator(".nba-call")
    expect(rows).to_have_count(14)
    notebook.shot("chat-of-calls")
    assert card.root.locator(".nba-items").evaluate("el => el.scrollHeight > el.clientHeight + 100")
    assert min(rows.evaluate_all("all => all.map((el) => el.offsetHeight)")) > 24


def test_c401_a_growing_chat_does_not_move_a_person_who_writes_in_another_cell(opened):
    """A chat continued by code grows, and the cell that is being edited stays in place."""
    cell = "import asyncio\ntask = asyncio.ensure_future(slow.send('Go on'))"
    notebook = opened(SLOW, BELOW)
    card = Card(notebook.output(1))
    panel = notebook.page.locator(PANEL)
    expect(card.root.get_by_label("Message", exact=True)).to_be_in_viewport()
    notebook.cell(2).locator(".cm-content").click()
    notebook.page.keyboard.press("Control+A")
    notebook.page.keyboard.insert_text(cell)
    notebook.page.keyboard.press("Control+Enter")
    notebook.cell(0).locator(".cm-content").click()
    at = panel.evaluate("el => el.scrollTop")
    card.wait_until("completed")
    assert panel.evaluate("el => el.scrollTop") == at
    expect(card.button("Newest ↓")).to_be_in_viewport(ratio=1)
    assert notebook.errors == [], "\n".join(notebook.errors)


RELOADED = "spoken = agent('Heard.').chat()"


def test_an_unsent_message_is_back_after_a_reload(opened, server):
    """Text and files stay in the box until they are sent; then the box is empty after a reload."""
    notebook = opened(RELOADED)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    expect(box).to_be_editable()
    composer, chips = card.root.locator(".nba-composer"), card.root.locator(".nba-chip")
    composer.evaluate(DROP, [["dot.png", "image/png", DOT], ["notes.txt", "text/plain", "aGk="]])
    expect(chips).to_have_count(2)
    with notebook.sending('"drafts"'):
        box.fill("Half a thought")
    notebook.save()
    assert DOT[:40] not in (server.root / "chat.ipynb").read_text()
    notebook.reload()
    expect(box).to_have_value("Half a thought")
    expect(chips).to_have_text([re.compile("dot.png"), re.compile("notes.txt")])
    notebook.shot("chat-reloaded", card.root)
    box.press("Enter")
    expect(card.root).to_contain_text("Heard.")
    expect(card.root.locator(".nba-message img")).to_have_count(1)
    notebook.save()
    notebook.reload()
    expect(card.root).to_contain_text("Heard.")
    expect(box).to_have_value("")
    assert notebook.errors == [], "\n".join(notebook.errors)


KEPT = r"""
store = nb.SQLiteStore("chat.db")
kept = agent(*globals().get("steps", ["Noted."])).chat(id="notes", store=store)
"""


def test_a_chat_is_opened_again_after_a_restart(opened):
    """The card says that the kernel has stopped and keeps the typed text; the cell run again continues the chat."""
    notebook = opened(KEPT)
    card = Card(notebook.output(1))
    box = card.root.get_by_label("Message", exact=True)
    box.fill("Remember the milk")
    box.press("Enter")
    expect(card.root).to_contain_text("Noted.")
    box.fill("And what was it?")
    notebook.restart_kernel()
    expect(box).not_to_be_editable()
    expect(box).to_have_value("And what was it?")
    expect(card.root.locator(".nba-gone:visible")).to_contain_text("The kernel has stopped")
    notebook.shot("chat-gone", card.root)
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(box).to_be_editable()
    expect(card.root.locator(".nba-message")).to_have_text(re.compile("Remember the milk"))
    expect(card.root).to_contain_text("Noted.")
    box.fill("Again")
    box.press("Enter")
    expect(card.root.locator(".nba-say")).to_have_count(2)
    assert notebook.errors == [], "\n".join(notebook.errors)
