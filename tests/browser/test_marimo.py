"""Cards in marimo, without a Jupyter kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.card import Card
from tests.browser.hits import assert_hit
from tests.browser.notebook_page import keep_picture
from tests.integration.install_marimo import installed, python
from tests.until import PATIENCE

MISSING = "marimo is not installed: python tests/integration/install_marimo.py"
ROOT = Path(__file__).parents[2]
APP = """
import marimo
app = marimo.App()

@app.cell
def _():
    import nbagent as nb
    call = nb.ScriptedModel.call
    steps = [call("choose"), call("close"), call("pay", to="Ada", amount=5), "All done."]
    agent = nb.Agent(nb.ScriptedModel(steps), name="clerk")

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

    run = agent.run("Close the quarter")
    run
    return call, nb

@app.cell
async def _(call, nb):
    asking = nb.Agent(nb.ScriptedModel([call("drop"), "Dropped."]), name="asking")

    @asking.tool(approval=True)
    def drop() -> str:
        "Drop."
        return "dropped"

    try:
        told = await asking.run("Drop it")
    except nb.errors.UsageError as error:
        told = str(error)
    told
    return

if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[str]:
    """The address of the notebook as an app; without marimo the test skips, and fails in CI."""
    if not installed():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    (tmp_path / "app.py").write_text(APP)
    log = tmp_path / "log"
    command = [python(), "-m", "marimo", "run", "app.py", "--headless", "--no-token"]
    with log.open("wb") as output:
        served = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield address(log)
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(20)


def address(log: Path) -> str:
    """The server's address, from its log."""
    deadline = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < deadline:
        found = re.search(r"http://[\w.]+:\d+", log.read_text())
        if found is not None:
            return found[0]
        time.sleep(0.1)
    raise RuntimeError(f"marimo did not start:\n{log.read_text()}")


def test_choose_confirm_and_edit_in_marimo(app: str, profile: BrowserContext) -> None:
    """A run as a cell's value is shown as its card; an awaited run says why its question cannot be answered."""
    page: Page = profile.new_page()
    page.goto(app)
    card = Card(page.locator("body"))
    card.wait_for_question("Which region?")
    assert_hit(page, card.root, fewest=5)
    card.root.get_by_text("south", exact=True).click()
    card.press("Send")
    card.wait_for_question("close")
    card.press("Approve")
    card.wait_for_question("pay")
    assert_hit(page, card.root, fewest=8)
    card.fill("Amount", "7")
    keep_picture(page, "marimo")
    card.press("Approve with changes")
    card.wait_until("completed")
    expect(card.root).to_contain_text("All done.")
    expect(page.locator("body")).to_contain_text("marimo accepts no answer while a cell waits")
    page.close()
