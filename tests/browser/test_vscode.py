"""Cards in VS Code's own renderer of widgets."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.notebook_page import SHOTS
from tests.browser.vscode_page import VSCodePage
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
LAB = "/static/lab/"
UNCALLED = "Failed to execute 'removeChild' on 'Node'"
"""An error of React in JupyterLab; nbagent's code does not make this call."""


def is_labs(error: str, errors: list[str]) -> bool:
    """Whether JupyterLab causes the error, because its page was emptied; an error may be logged without its stack."""
    return (
        LAB in error
        or UNCALLED in error
        or any(LAB in other and error in other for other in errors)
    )


WAITS = {"shown": "run", "awaited": "print((await run).output)"}


@pytest.mark.parametrize("how", WAITS)
def test_choose_confirm_and_edit_in_vs_codes_renderer(how, profile, server):
    """Shown or awaited, without a subshell for comm messages: each form works, and the run ends."""
    if not installed():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    notebook = VSCodePage(profile, server)
    card = Card(notebook.run_cell(f"{JOURNEY}\n{WAITS[how]}"))
    card.wait_for_question("Which region?")
    card.root.get_by_text("south", exact=True).click()
    card.press("Send")
    card.wait_for_question("close")
    card.press("Approve")
    card.wait_for_question("pay")
    card.fill("Amount", "7")
    notebook.page.screenshot(path=SHOTS / f"vscode-{how}.png")
    card.press("Approve with changes")
    card.wait_until("completed")
    expect(card.root).to_contain_text("paid 7")
    card.wait_until_static()
    notebook.page.screenshot(path=SHOTS / f"vscode-{how}-static.png")
    # JupyterLab also logs errors, because its page was emptied
    ours = [error for error in notebook.errors if "nbagent" in error]
    assert ours == [], "\n".join(ours)
    notebook.page.close()
