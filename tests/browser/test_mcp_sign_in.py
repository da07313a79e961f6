"""Signing in to an MCP server in a notebook: a form before the first turn, the redirect, and a pasted address."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
from playwright.sync_api import Locator, expect

from tests.browser.card import Card
from tests.browser.notebook_page import NotebookPage
from tests.integration.mcp_servers import signed_in_by

AGENT = """
import nbagent as nb

call = nb.ScriptedModel.call
server = nb.mcp({url!r}, name="guarded", auth=nb.McpSignIn(folder={folder!r}), approval=False)
agent = nb.Agent(nb.ScriptedModel([call("look", what="up"), "All done."]), name="looker", tools=[server])
"""
RUN = 'run = agent.run("Look up.")'
OTHER = """
import sys

slow = nb.mcp([sys.executable, "-c", "import time; time.sleep(99)"])
other = nb.Agent(nb.ScriptedModel(["Never."]), name="slow", tools=[slow]).run("Wait for another server.")
"""
CONNECT = "await server.sign_out(); print(await server.connect())"


def _form_in(output: Locator) -> Locator:
    form = output.locator("form.nba-form").filter(has_text="sign in at 127.0.0.1").first
    form.wait_for()
    return form


def allow_sign_in(notebook: NotebookPage, form: Locator) -> str:
    """Open the link in a tab and allow the sign-in; return the address to which the browser is redirected."""
    link = form.get_by_role("link")
    expect(link).to_have_text("Sign in at 127.0.0.1 ↗")
    with notebook.page.context.expect_page() as opened:
        link.click()
    page = opened.value
    page.get_by_role("link", name="Allow").click()
    expect(page.get_by_text("go back to the notebook")).to_be_visible()
    address = page.url
    page.close()
    return address


def allow_sign_in_elsewhere(form: Locator) -> str:
    """The redirect address of a browser on another machine than the kernel's, where nothing listens."""
    link = form.get_by_role("link").get_attribute("href") or ""
    with httpx2.Client() as browser:
        consent = browser.get(link).headers["location"]
        return str(browser.get(consent.replace("/consent", "/allow")).headers["location"])


def test_c376_c881_a_person_signs_in_in_a_notebook(server, open_lab, tmp_path: Path):
    """The run waits before its first turn; the redirect or a pasted address closes the form; the page has no token."""
    notes, folder = tmp_path / "notes", str(tmp_path / "kept")
    with signed_in_by(notes) as url:
        cells = [AGENT.format(url=url, folder=folder), RUN + OTHER, CONNECT]
        notebook = open_lab(server.write("sign-in.ipynb", *cells))
        notebook.run_cell(0)
        notebook.run_cell(1)
        output = notebook.output(1)
        form = _form_in(output)
        notebook.shot("mcp-sign-in", output)
        notebook.dark()
        notebook.shot("mcp-sign-in-dark", output)
        notebook.light()
        for number, status in enumerate(("waiting for you", "running")):
            expect(Card(output, number).root.locator(".nba-pill")).to_have_text(status)
        expect(form.get_by_role("button", name="Send")).to_be_hidden()
        expect(form.get_by_role("textbox")).to_be_hidden()
        address = allow_sign_in(notebook, form)
        card = Card(output)
        card.wait_until("completed")
        expect(card.root).to_contain_text("saw up")
        expect(form).to_have_count(0)
        expect(output).to_contain_text("signed in")
        notebook.shot("mcp-sign-in-done", output)

        notebook.run_cell(2)
        form = _form_in(notebook.output(2))
        card, field = Card(notebook.output(2)), form.locator("textarea, input").first
        form.get_by_text("Browser on another machine?").click()
        field.fill(address)
        card.press("Send")
        expect(form).to_contain_text("another sign-in")
        field.fill(allow_sign_in_elsewhere(form))
        card.press("Send")
        expect(notebook.output(2)).to_contain_text("<MCP server guarded: 2 tools")
        notebook.shot("mcp-sign-in-pasted", notebook.output(2))
        notebook.save()
    saved = (server.root / "sign-in.ipynb").read_text()
    (kept,) = (tmp_path / "kept").iterdir()
    tokens = json.loads(kept.read_text())["tokens"]
    code = address.partition("code=")[2].partition("&")[0]
    for secret in (code, tokens["access_token"], tokens["refresh_token"]):
        assert secret not in saved + notebook.page.content()
    assert notes.read_text().count("signed in") == 2
    assert notebook.errors == [], "\n".join(notebook.errors)
