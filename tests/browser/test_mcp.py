"""An MCP server in a notebook: an approved tool, an answered question, pictures and progress."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card
from tests.integration import install_mcp_servers

AGENT = f"""
import nbagent as nb

call = nb.ScriptedModel.call
model = nb.ScriptedModel([
    [call("get-tiny-image"), call("get-sum", a=2, b=3), call("trigger-long-running-operation", duration=1, steps=4)],
    call("trigger-elicitation-request"),
    call("get-env"),
    "All of it worked.",
])
server = nb.mcp(
    [{str(install_mcp_servers.everything())!r}],
    name="everything",
    approval=lambda _, call: call.tool_name.startswith("get-env"),
)
agent = nb.Agent(model, name="collector", tools=[server])
run = agent.run("Show me what the server can do.")
"""


def test_an_mcp_server_is_used_in_a_notebook(server, open_lab):
    """From the first connection to ``aclose()``, on the kernel's loop."""
    if not install_mcp_servers.everything().exists():
        assert os.environ.get("CI", "").lower() != "true", "the reference server must be installed"
        pytest.skip("python tests/integration/install_mcp_servers.py installs it")
    notebook = open_lab(server.write("mcp.ipynb", AGENT, "print(server); await server.aclose()"))
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    form = card.wait_for_question("The MCP server everything asks")
    expect(card.root.locator("img")).to_have_count(1)
    notebook.shot("mcp-question", card.root)
    form.get_by_role("textbox").first.fill("Ada")
    card.press("Send")
    card.wait_for_question("get-env")
    expect(card.root).to_contain_text("Nobody has verified this.")
    notebook.shot("mcp-approval", card.root)
    card.press("Approve")
    card.wait_until("completed")
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("<MCP server everything: ")
    notebook.shot("mcp-done", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)
