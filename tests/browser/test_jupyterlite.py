"""The quickstart in JupyterLite: a page of static files that includes the kernel."""

from __future__ import annotations

import functools
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.card import Card
from tests.browser.notebook_page import SPLASH, NotebookPage
from tests.browser.test_quickstart import (
    AFTERWARDS,
    APPROVAL,
    AWAITED,
    EDIT,
    HELLO,
    NOBODY,
    QUESTION,
    approve_a_transfer,
    choose_a_dinner,
    edit_a_mail,
    reject_a_transfer,
)
from tests.integration import install_pyodide
from tests.integration.test_pyodide import needs_pyodide

QUICKSTART = "01_quickstart.ipynb"
MORE = "more.ipynb"
MORE_CELLS = (
    """
import asyncio
import nbagent as nb
call = nb.ScriptedModel.call
store = nb.SQLiteStore("/tmp/runs.db")
agent = nb.Agent(nb.ScriptedModel([call("slow"), "never said"]), name="slow")

@agent.tool
async def slow() -> str:
    "Take long."
    await asyncio.sleep(600)

try:
    print((await agent.run("Take long")).text)
except nb.errors.RunError as error:
    print("stopped:", error)
""",
    """
asking = nb.Agent(nb.ScriptedModel([call("pay", amount=5), "Paid."]), name="clerk", store=store)

@asking.tool(approval=True)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

run = asking.run("Pay", show=False)
""",
    "nb.inbox(store)",
    "print((await run).text)",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site, on a plain server of files without headers of its own."""
    needs_pyodide()
    out = tmp_path_factory.mktemp("lite") / "site"
    install_pyodide.build(out)
    write_more(out)
    handler = functools.partial(Quiet, directory=str(out))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def write_more(out: Path) -> None:
    """Add a notebook to the site, and expose its pages to the tests."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{n}",
            "source": source.strip(),
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for n, source in enumerate(MORE_CELLS)
    ]
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python", "display_name": "Python"}},
    }
    (out / "files" / MORE).write_text(json.dumps(whole | {"nbformat": 4, "nbformat_minor": 5}))
    listed = out / "api" / "contents" / "all.json"
    told = json.loads(listed.read_text())
    told["content"].append(told["content"][0] | {"name": MORE, "path": MORE})
    listed.write_text(json.dumps(told))
    config = out / "jupyter-lite.json"
    told = json.loads(config.read_text())
    told["jupyter-config-data"]["exposeAppInBrowser"] = True
    config.write_text(json.dumps(told))


REPLACE = """async path => {
  const { commands, shell } = window.jupyterapp;
  const before = shell.currentWidget;
  const { id } = before.context.sessionContext.session.kernel;
  before.dispose();
  await commands.execute("docmanager:open", { path, kernel: { id } });
}"""


class LitePage(NotebookPage):
    """A tab of JupyterLite."""

    def __init__(self, context: BrowserContext, site: str) -> None:
        super().__init__(context, None)  # type: ignore[arg-type]  # there is no server
        self._site = site

    def open(self, name: str, *_: Any, **__: Any) -> LitePage:
        """Open the notebook, and wait for its kernel: that of the notebook before, which it replaces, else a new one."""
        self.errors = []
        if self.waits:
            self.page.evaluate(REPLACE, name)
        else:
            self.page.goto(self.address(name))
        self.waits = True
        self._wait_until_shown()
        self.wait_for_kernel()
        return self

    def address(self, name: str) -> str:
        """The address that opens a notebook with a new kernel."""
        return f"{self._site}lab/index.html?path={name}"

    def _note(self, error: str) -> None:
        if error != SPLASH and "/favicon.ico" not in error:  # JupyterLab's own, and the server's
            super()._note(error)


@pytest.fixture(scope="module")
def lite(site: str, profile: BrowserContext) -> Iterator[LitePage]:
    """A tab of JupyterLite; its tests use one kernel, as Python in a page takes long to start."""
    page = LitePage(profile, site)
    try:
        yield page
    finally:
        page.shot("jupyterlite-last")
        page.close()


def test_c472_stop_and_the_inbox_reach_a_kernel_with_a_waiting_cell(lite: LitePage) -> None:
    """Stop ends a run that its cell awaits; the inbox answers a question while another cell awaits the run."""
    notebook = lite.open(MORE)
    notebook.run_all()
    stopped = Card(notebook.output(0))
    expect(stopped.root).to_contain_text("slow")
    stopped.press("Stop")
    expect(notebook.output(0)).to_contain_text("stopped:")
    inbox = Card(notebook.output(2))
    inbox.wait_for_question("pay")
    notebook.shot("jupyterlite-inbox")
    inbox.press("Approve")
    expect(notebook.output(3)).to_contain_text("Paid.")
    notebook.wait_until_all_ran()
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c471_the_quickstart_works_in_a_page_without_a_server(lite: LitePage) -> None:
    """Every cell works, with an answer while its cell awaits, in light and dark; a reload shows the ended cards."""
    began = time.monotonic()
    notebook = lite.open(QUICKSTART)
    notebook.run_all()
    hello = Card(notebook.output(HELLO))
    hello.wait_until("running")
    print(f"seconds to the first card: {time.monotonic() - began:.1f}")
    hello.wait_until("completed")
    choose_a_dinner(Card(notebook.output(QUESTION)))
    approve_a_transfer(Card(notebook.output(APPROVAL)), notebook, "jupyterlite")
    edit_a_mail(Card(notebook.output(EDIT)), notebook)
    reject_a_transfer(Card(notebook.output(AWAITED)))
    notebook.wait_until_all_ran()
    for index, text in AFTERWARDS.items():
        expect(notebook.output(index)).to_contain_text(text)
    notebook.save()
    assert notebook.errors == [], "\n".join(notebook.errors)

    lite.waits = False
    notebook.page.goto(notebook.address(QUICKSTART))  # ended cards need no kernel
    card = Card(notebook.output(EDIT))
    notebook.cell(EDIT).scroll_into_view_if_needed()
    expect(card.root).to_contain_text("A demo, with cake")
    expect(notebook.output(NOBODY)).to_contain_text("waiting for: transfer_money")
    notebook.shot("jupyterlite-reloaded")
    assert notebook.errors == [], "\n".join(notebook.errors)
