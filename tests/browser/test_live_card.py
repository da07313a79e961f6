"""A card while its run continues: an earlier run of its cell, Stop in two views, a kernel that stops."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card
from tests.browser.form_page import axe_finds

SETUP = (
    GIVES_WAY
    + """
import threading
import nbagent as nb

go = threading.Event()
S = nb.ScriptedModel

def agent(*steps):
    made = nb.Agent(S(list(steps)), name="banker")

    @made.tool
    def transfer(amount: float) -> str:
        "Takes its time."
        for n in range(40):
            print("step", n)
        go.wait(60)
        return "sent"

    @made.tool
    def ask(ctx: nb.ToolContext) -> str:
        "Ask."
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Send it?"))
        return "ok"

    return made
"""
)
AGAIN = """
runs = globals().setdefault("runs", [])
first = [S.call("transfer", amount=200.0)] if not runs else "Nothing to do."
runs.append(agent(first, "Late, but sent.").run("Transfer $200"))
"""
SLOW = "run = agent([S.call('transfer', amount=200.0)], 'Sent.').run('Transfer $200')"
ASKS = "waits = agent([S.call('ask')], 'Sent.').run('Send it')"
LONG_GRACE = "from nbagent.core.run import session\nsession.GRACE = 600.0"
EXECUTE = """code => void window.jupyterapp.shell.currentWidget.context.sessionContext
  .session.kernel.requestExecute({ code })"""
GONE = re.compile("The kernel has stopped")


@pytest.fixture
def opened(server, open_lab):
    """``opened(cell, …)`` runs the set-up and these cells; the first has index 1."""

    def opened(*cells):
        notebook = open_lab(server.write("live-card.ipynb", SETUP, *cells))
        notebook.run_all()
        return notebook

    return opened


def executing(card):
    """Wait until the tool executes."""
    expect(card.root.locator("details.nba-call[data-state=running]")).to_have_count(1)


def test_a_rerun_cell_stops_or_shows_its_earlier_run(opened):
    """Show puts the earlier card below; Stop ends the earlier run by keyboard, and the notice is removed."""
    notebook = opened(AGAIN)
    executing(Card(notebook.output(1)))
    notebook.run_cell(1)
    card, below = Card(notebook.output(1)), Card(notebook.output(1), number=1)
    notice = card.root.locator(".nba-notice")
    expect(notice).to_contain_text("still executing transfer")
    card.wait_until("completed")
    notebook.shot("earlier-run", card.root)
    card.button("Show previous run").click()
    executing(below)
    expect(card.button("Show previous run")).to_have_count(0)
    notebook.shot("earlier-run-shown", notebook.output(1))
    card.button("Stop previous run").focus()
    notebook.page.keyboard.press("Enter")
    expect(notice).to_contain_text("is stopping")
    expect(notice.locator(".nba-text")).to_be_focused()
    below.wait_until("cancelled")
    expect(notice).to_have_count(0)
    notebook.page.evaluate("() => document.activeElement.blur()")
    card.wait_until_static()
    below.wait_until_static()
    expect(below.root).to_contain_text("Stopped by you.")
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_a_stop_in_progress_shows_in_every_view_at_once(opened):
    """Both views' buttons show the stop during the tool's grace period, and take no second press."""
    notebook = opened(SLOW, "run", LONG_GRACE)
    notebook.wait_until_all_ran()
    views = [Card(notebook.output(index)) for index in (1, 2)]
    for view in views:
        executing(view)
    views[0].button("Stop").click()
    for view in views:
        expect(view.button("Stopping…")).to_have_attribute("aria-disabled", "true")
        expect(view.root).to_have_attribute("data-status", "running")
    notebook.page.evaluate(EXECUTE, "go.set()")
    for view in views:
        view.wait_until("cancelled")
        expect(view.root.locator(".nba-stop:visible")).to_have_count(0)
    assert notebook.errors == [], "\n".join(notebook.errors)


@pytest.mark.parametrize("how", ["restarted", "shut down"])
def test_a_lost_kernel_is_noticed_without_a_press(how, opened):
    """Forms and Stop are disabled, and the card says that the kernel has stopped."""
    notebook = opened(ASKS, SLOW)
    waits, runs = Card(notebook.output(1)), Card(notebook.output(2))
    waits.wait_for_question("Send it?")
    executing(runs)
    notebook.wait_until_all_ran()
    expect(notebook.page.locator(".nba-gone:visible")).to_have_count(0)
    notebook.page.evaluate(
        """how => {
          const { sessionContext } = window.jupyterapp.shell.currentWidget.context;
          if (how === "restarted") void sessionContext.restartKernel();
          if (how === "shut down") void sessionContext.shutdown();
        }""",
        how,
    )
    for card in (waits, runs):
        expect(card.root.locator(".nba-gone:visible")).to_have_text(GONE)
        expect(card.root.locator(".nba-pill")).to_have_text("kernel stopped")
        expect(card.button("Stop")).to_have_attribute("aria-disabled", "true")
    expect(waits.button("Approve")).to_be_disabled()
    if how != "shut down":
        notebook.wait_for_kernel()
    notebook.shot(f"kernel-{how.replace(' ', '-')}", notebook.page.locator(".jp-Notebook"))


SPEAKER = """
import asyncio
from nbagent.core.base.model import Finished, TextDelta

_cards.STAY = 20

TEXT = "".join(f"Line {n} of what I found, **in the South** mostly.\\n\\n" for n in range(12))

class Speaker:
    name = "speaker"

    async def stream(self, request):
        for at in range(0, len(TEXT), 40):
            yield TextDelta(TEXT[at : at + 40])
            await asyncio.sleep(0)
        if len(request.messages) == 1:
            await asyncio.sleep(600)
        yield Finished()
"""
SPEAKS = "run = nb.Agent(Speaker(), name='analyst').run('What did you find?')"
AWAITED = "await nb.Agent(Speaker(), name='analyst').run('What did you find?')"
LAST = "Line 11 of what I found, in the South mostly."


@pytest.mark.parametrize("how", ["button", "kernel"])
def test_text_of_a_stopped_run_stays_in_its_card(opened, how):
    """After Stop or a kernel interrupt no line moves, and a follow-up works."""
    notebook = opened(SPEAKER, AWAITED if how == "kernel" else SPEAKS)
    card = Card(notebook.output(2))
    expect(card.root).to_contain_text(LAST)
    below = "(card) => card.querySelector('.nba-items').getBoundingClientRect().bottom - card.getBoundingClientRect().y"
    before = card.root.evaluate(below)
    if how == "button":
        card.press("Stop")
    else:
        notebook.interrupt_kernel()
    card.wait_until("cancelled")
    expect(card.root).to_contain_text(
        f"Stopped by {'you' if how == 'button' else 'a kernel interrupt'}."
    )
    expect(card.root).to_contain_text(LAST)
    assert card.root.evaluate(below) >= before, "nothing falls in under who reads"
    notebook.shot(f"stopped-by-{how}", card.root)
    if how == "button":
        notebook.dark()
        notebook.shot("stopped-dark", card.root)
        notebook.light()
        card.button("Follow up…").focus()
        notebook.page.keyboard.press("Enter")
        notebook.page.keyboard.type("Go on")
        notebook.page.keyboard.press("Enter")
        expect(card.root.locator(".nba-message")).to_have_count(2)
        card.wait_until("completed")
        expect(card.root.get_by_text("Line 11 of what I found")).to_have_count(2)
    assert notebook.errors == [], "\n".join(notebook.errors)


ENDS = """
_cards.STAY = 20
booker = nb.Agent(S([[S.call("book")], "Booked."]), name="booker")

@booker.tool
async def book(ctx: nb.ToolContext) -> str:
    "Book a room."
    return " and ".join([await ctx.ask(f"{what}?", reply=str) for what in ("Who", "When")])

wide = "| " + " | ".join(f"column {n}" for n in range(40)) + " |"
rows = "\\n".join([wide, "|" + "---|" * 40, wide])
tabled = nb.Agent(S([rows, "Second answer."]), name="clerk")
"""
BOOKS = "booking = booker.run('Book a room')"
CHATS = "talk = tabled.chat()"
HEARD = "(card) => [...card.querySelectorAll(':scope > .nba-sr p')].map((p) => p.textContent)"


def test_c790_each_end_is_announced_once_and_the_keyboard_keeps_its_place(opened):
    """Ends and a chat's answers are announced; focus goes to the tool's next question, and from Stop to what follows."""
    notebook = opened(ENDS, BOOKS, SLOW, CHATS)
    keyboard = notebook.page.keyboard
    booking, stopped, chat = (Card(notebook.output(index)) for index in (2, 3, 4))
    booking.wait_for_question("Who?")
    booking.root.get_by_role("textbox").focus()
    keyboard.type("Ada")
    keyboard.press("Enter")
    booking.wait_for_question("When?")
    expect(booking.root.get_by_role("textbox")).to_be_focused()
    expect(booking.button("Send")).to_be_in_viewport(ratio=1)
    keyboard.type("tomorrow")
    keyboard.press("Enter")
    booking.wait_until("completed")
    expect(booking.root).to_contain_text("tomorrow")
    assert booking.root.evaluate(HEARD) == [
        "New question: Who?",
        "New question: When?",
        "booker: done",
    ]
    executing(stopped)
    stopped.button("Stop").focus()
    keyboard.press("Enter")
    expect(stopped.button("Stopping…")).to_be_focused()
    notebook.page.evaluate(EXECUTE, "go.set()")
    stopped.wait_until("cancelled")
    expect(stopped.button("Follow up…")).to_be_focused()
    [heard] = stopped.root.evaluate(HEARD)
    assert heard.startswith("banker: stopped. Stopped by you.")
    chat.root.get_by_role("textbox").fill("The rooms?")
    keyboard.press("Enter")
    chat.wait_until("completed")
    expect(chat.root.get_by_role("group", name="clerk")).to_contain_text("column 39")
    [heard] = chat.root.evaluate(HEARD)
    assert heard.startswith("clerk: column 0")
    chat.root.locator(".nba-edit").focus()
    keyboard.press("Tab")
    expect(chat.root.locator("table")).to_be_focused()
    for card in (booking, stopped, chat):
        assert card.root.get_by_role("heading", level=3).count() == 1
    assert axe_finds(notebook.page, ".jp-Notebook .nbagent") == []
    assert notebook.errors == [], "\n".join(notebook.errors)
