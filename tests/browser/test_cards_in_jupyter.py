"""Parts of a card in JupyterLab: wide tables, money and formulas, and a page that loads slowly."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import GIVES_WAY, Card
from tests.browser.notebook_page import App

AGENT = (
    GIVES_WAY
    + """
import nbagent as nb
import pandas as pd
call = nb.ScriptedModel.call

def agent(*steps):
    return nb.Agent(nb.ScriptedModel(list(steps)), name="clerk")
"""
)
MAILER = """
mailer = agent([call("send_mail", to="ada")], "Sent.")
@mailer.tool(approval=True)
def send_mail(to: str) -> str:
    "Send a mail."
    return f"mail to {to}"

mailer.run("Write")
"""
WIDE = """
teller = agent([call("table")], "There it is.")
@teller.tool
def table() -> pd.DataFrame:
    "A table that is wider than any page."
    return pd.DataFrame([[number * 1_000_000 for number in range(60)]] * 3)

teller.run("Show it")
"""
SLOW = """() => {
  const { timeout } = AbortSignal;
  AbortSignal.timeout = time => timeout.call(AbortSignal, time === 2000 ? 0 : time);
}"""
FORM = """
from pydantic import BaseModel

class Person(BaseModel):
    name: str

got = await nb.form(Person, submit_label="Submit")
"""
ROWS = """
nb.map(nb.Agent(nb.ScriptedModel(lambda messages: "Well.")), ["a", "b"], prompt="{}", id="two")
"""
MONEY = r"""
TEXT = 'It costs $5 to $10, or `$x$`. The sum is $x^2 + 1$, and\n\n$$\\frac{a}{b}$$\n\nso keep $20 back.'
agent(TEXT).run("How much?")
"""


def test_a_wide_table_scrolls_in_its_row_and_never_widens_the_page(server, open_page):
    """The card stays as wide as its cell, live and static, in a narrow window too."""
    notebook = open_page(server.write("wide.ipynb", AGENT, WIDE))
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_until("completed")
    card.root.locator(".nba-call > summary").click()
    check_width(card)
    notebook.page.set_viewport_size({"width": 700, "height": 900})
    check_width(card)
    notebook.turn_to(0)
    card.wait_until_static()
    card.root.locator(".nba-call > summary").click()
    check_width(card)


def check_width(card):
    """The table is wider than its row, and nothing else is wider than the card."""
    table = card.root.locator(".nba-outputs table")
    table.scroll_into_view_if_needed()
    sizes = table.evaluate("""(table) => {
      const [card, output] = [".nbagent", ".jp-OutputArea-output"].map((one) => table.closest(one));
      let scrolls = table;
      while (scrolls !== card && scrolls.scrollWidth <= scrolls.clientWidth) scrolls = scrolls.parentElement;
      return {
        scrolls: scrolls.scrollWidth > scrolls.clientWidth + 100
          && ["auto", "scroll"].includes(getComputedStyle(scrolls).overflowX),
        within: scrolls !== card && card.contains(scrolls),
        card: card.scrollWidth - card.clientWidth,
        output: output.scrollWidth - output.clientWidth,
        page: document.documentElement.scrollWidth - innerWidth,
      };
    }""")
    assert sizes == {"scrolls": True, "within": True, "card": 0, "output": 0, "page": 0}


@pytest.mark.parametrize("app", [App.LAB])
def test_prices_stay_prices_and_formulas_are_formulas_live_and_static(app, server, open_page):
    """A dollar sign is money unless it belongs to a formula, and Jupyter's own typesetting changes nothing."""
    notebook = open_page(server.write(f"money-{app}.ipynb", AGENT, MONEY), app=app)
    notebook.run_all()
    card = Card(notebook.output(1))
    card.wait_until("completed")
    check_money(card)
    notebook.turn_to(0)
    card.wait_until_static()
    check_money(card)
    notebook.save()
    notebook.reload()
    card.wait_until_static()
    check_money(card)
    notebook.shot(f"money-{app}", of=notebook.output(1))


def check_money(card):
    """Prices and code are unchanged; the two formulas are drawn as formulas, once."""
    said = card.root.locator(".nba-say")
    expect(said).to_contain_text("It costs $5 to $10, or $x$.")
    expect(said).to_contain_text("so keep $20 back.")
    expect(said.locator("code").first).to_have_text("$x$")
    expect(said.locator("math")).to_have_count(2)
    expect(said.locator("mjx-container, .MathJax")).to_have_count(0)


def test_a_card_lives_in_a_page_too_slow_for_anywidget(server, open_page):
    """Widgets receive their messages although anywidget drops all of them where the code took two seconds to load."""
    notebook = open_page(server.write("slow.ipynb", AGENT + MAILER, FORM, ROWS))
    notebook.page.evaluate(SLOW)
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    card.wait_for_question("send_mail")
    card.press("Approve")
    expect(card.root).to_contain_text("mail to ada")
    notebook.run_cell(1)
    form = Card(notebook.output(1))
    form.wait_for_question("Person")
    expect(form.root.locator(".nba-header")).to_be_hidden()
    form.fill("Name", "Ada")
    form.press("Submit")
    notebook.wait_for_kernel()
    notebook.run_cell(2)
    expect(notebook.output(2).locator(".t-space .t-row")).to_have_count(2)
    expect(notebook.output(2).locator(".t-space [data-status=completed]")).to_have_count(2)
