"""Cards in VS Code's own renderer of widgets, in a page as VS Code makes it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import AXE, need_axe
from tests.browser.hits import assert_hit
from tests.browser.vscode_page import THEMES, VSCodePage
from tests.integration.install_vscode_renderer import installed

MISSING = "VS Code's renderer is not installed: python tests/integration/install_vscode_renderer.py"
JOURNEY = """
import nbagent as nb
call = nb.ScriptedModel.call

def clerk():
    agent = nb.Agent(
        nb.ScriptedModel([call("choose"), call("close"), call("pay", to="Ada", amount=5), "All done."]),
        name="clerk",
    )

    @agent.tool
    async def choose(ctx: nb.ToolContext) -> str:
        "Choose."
        return await ctx.ask(nb.Choose("Which region?", ["north", "south"]))

    @agent.tool(approval=True)
    def close() -> str:
        "Close the books."
        return "closed"

    @agent.tool(approval=True, editable=True)
    def pay(to: str, amount: float) -> str:
        "Pay."
        return f"paid {amount} to {to}"

    return agent

run = clerk().run("Close the quarter")
"""
Open = Callable[..., VSCodePage]
FORMS = """
import nbagent as nb
from pydantic import BaseModel, Field
call = nb.ScriptedModel.call

class Order(BaseModel):
    to: str = Field(pattern="^[a-z]+$")
    amount: float
    currency: str = "EUR"
    street: str = "Main Street"
    city: str = "Bonn"
    code: str = "53111"
    country: str = "DE"
    phone: str = ""
    note: str = ""
    urgent: bool = False

order = {"to": "ada", "amount": 5}
agent = nb.Agent(nb.ScriptedModel([
    [call("pay", to="ada", amount=5), call("order", order=order), call("choose")], "All done."]), name="clerk")

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay."
    return f"paid {amount} to {to}"

@agent.tool(approval=True, editable=True)
def order(order: Order) -> str:
    "Order."
    return "ordered"

@agent.tool
async def choose(ctx: nb.ToolContext) -> str:
    "Choose."
    return await ctx.ask(nb.Choose("Which region?", [f"region {n}" for n in range(8)]))

run = agent.run("Close the quarter")
run
"""
LONG = """
import nbagent as nb
agent = nb.Agent(nb.ScriptedModel([["A line.\\n\\n" * 60, nb.ScriptedModel.call("close")], "Done."]))

@agent.tool(approval=True)
def close() -> str:
    "Close."
    return "closed"

agent.run("Close")
"""


@pytest.fixture
def open_vscode(profile, server) -> Iterator[Open]:
    """Open the page; without the renderer the test skips, and fails in CI."""
    if not installed():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    pages: list[VSCodePage] = []

    def open_page(theme: str = "Dark Modern") -> VSCodePage:
        pages.append(VSCodePage(profile, server, theme))
        return pages[-1]

    yield open_page
    for each in pages:
        each.page.close()
    server.end_kernels()


def assert_no_errors(notebook: VSCodePage) -> None:
    """Of ours: JupyterLab also logs errors, because its page was emptied."""
    ours = [error for error in notebook.errors if "nbagent" in error]
    assert ours == [], "\n".join(ours)


def test_c600_a_mouse_meets_each_control_of_a_form_in_vs_code_in_every_theme(open_vscode):
    """No bar covers a field, a choice or an error; a click on a field reaches it; themes have edges and one scheme."""
    notebook = open_vscode()
    card = Card(notebook.run_cell(FORMS))
    card.wait_for_question("Which region?")
    pay, order = (card.forms.filter(has_text=tool).first for tool in ("pay", "order"))
    notebook.show(pay)
    for place in (0.1, 0.5):
        field = pay.get_by_label("Amount", exact=True)
        box = field.bounding_box()
        assert box is not None
        field.click(position={"x": box["width"] * place, "y": box["height"] / 2})
        expect(field).to_be_focused()
    order.get_by_label("To", exact=True).fill("Ada")
    notebook.show(order.locator(".nba-acts"))
    card.press_still(order.get_by_role("button", name="Approve with changes"))
    expect(order.locator(".nba-errors")).to_be_visible()
    assert_hit(notebook.page, card.root, fewest=25)
    assert card.root.locator("[data-lifted]").count() == 0
    need_axe()
    notebook.frame.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for theme, page in THEMES.items():
        notebook.show_theme(theme)
        look = pay.evaluate(LOOK)
        assert look["scheme"] == ("light" if "light" in " ".join(page["classes"]) else "dark"), (
            theme
        )
        contrast = page["colors"].get("--vscode-contrastBorder")
        if contrast:
            assert set(look["edges"]) == {rgb(contrast)}, theme
        problems = notebook.frame.evaluate(CONTRAST)
        assert problems == [], theme
        for name, form in {"approval": pay, "error": order, "choice": card.forms.last}.items():
            notebook.show(form)
            notebook.shot(f"vscode-{name}-{slug(theme)}")


CONTRAST = """async () => {
  const { violations } = await axe.run({ include: [".nbagent"] }, { runOnly: ["color-contrast"] });
  return violations.flatMap(({ nodes }) => nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`));
}"""
LOOK = """(form) => {
  const edge = (el) => getComputedStyle(el).borderTopColor;
  return {
    scheme: getComputedStyle(form).colorScheme,
    edges: [...form.querySelectorAll("input, .nba-buttons > .nba-button:not(.nba-end)"), form.closest(".nbagent")].map(edge),
  };
}"""


def rgb(color: str) -> str:
    """A color as a page computes it."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def slug(name: str) -> str:
    """The name as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def test_c601_a_notebook_saved_in_vs_code_has_each_moment_and_typing_goes_on(open_vscode):
    """At a pause and after an answer the file has the question, the finished calls and the text; nothing is redrawn."""
    notebook = open_vscode("Light Modern")
    card = Card(notebook.run_cell(f"{JOURNEY}\nrun"))

    def saved_html() -> str:
        (bundle,) = notebook.saved()
        return str(bundle["text/html"])

    def wait_until_saved(text: str) -> None:
        notebook.frame.wait_for_function(
            "text => window.saved()[0]['text/html'].includes(text)", arg=text
        )

    card.wait_for_question("Which region?")
    wait_until_saved("Which region?")
    assert "nb.use_store" in saved_html(), "the file says how to keep later runs"
    card.root.get_by_text("south", exact=True).click()
    card.press("Send")
    card.wait_for_question("close")
    wait_until_saved("close")
    assert "south" in saved_html()
    card.press("Approve")
    card.wait_for_question("pay")
    field = card.root.get_by_label("Amount", exact=True)
    field.fill("7")
    wait_until_saved("pay")
    expect(field).to_have_value("7")
    expect(field).to_be_focused()
    sizes = notebook.frame.evaluate("() => window.updates")
    one = notebook.frame.evaluate("() => JSON.stringify(window.saved()[0]).length")
    assert max(sizes) < one + 1000, "an update is one static card"
    card.press("Approve with changes")
    card.wait_until("completed")
    card.wait_until_static()
    notebook.reopen()
    expect(notebook.frame.locator("body")).to_contain_text("paid 7")
    expect(notebook.frame.locator("body")).to_contain_text("All done.")
    notebook.shot("vscode-reopened")
    assert_no_errors(notebook)


def test_c602_a_kernel_that_does_not_respond_or_was_restarted_is_noticed_in_vs_code(open_vscode):
    """A press that nothing answers says so after seconds; a kernel restarted elsewhere is known to be another."""
    notebook = open_vscode("Dark High Contrast")
    pid = notebook.run_cell("import os; print('pid', os.getpid())")
    expect(pid).to_contain_text("pid")
    card = Card(notebook.run_cell(f"{JOURNEY}\nrun"))
    card.wait_for_question("Which region?")
    kernel = int(pid.inner_text().split()[1])
    os.kill(kernel, signal.SIGSTOP)
    card.root.get_by_text("south", exact=True).click()
    card.press("Send")
    expect(card.form).to_contain_text("The kernel does not respond")
    notebook.shot("vscode-silent")
    notebook.restart_kernel_elsewhere()
    with suppress(ProcessLookupError):
        os.kill(kernel, signal.SIGCONT)  # a stopped process would stay for ever
    expect(card.form).to_contain_text("was restarted")
    expect(card.button("Send")).to_have_attribute("aria-disabled", "true")
    notebook.show(card.form)
    notebook.shot("vscode-restarted")


def test_c600_the_link_to_a_question_scrolls_in_vs_code(open_vscode):
    """The page cannot scroll there; the link in the footer shows the question all the same."""
    notebook = open_vscode()
    card = Card(notebook.run_cell(LONG))
    card.wait_for_question("close")
    notebook.page.set_viewport_size({"width": 800, "height": 120})
    link = card.button("1 question waiting")
    notebook.show(link)
    assert not notebook.is_visible(card.form)
    before = notebook.scrolled_to()
    link.click()
    notebook.page.wait_for_function("before => scrolledTo() < before", arg=before)
    assert notebook.is_visible(card.form)
