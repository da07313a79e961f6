"""Loops of one's own in JupyterLab: the tutorial, and agents of the real frameworks with one line for ``nb.watch``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from nbagent.cli.demo import without_outputs
from tests.browser.card import GIVES_WAY, Card
from tests.browser.test_group import Table
from tests.integration import install_others

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "12_your_own_loop.ipynb"
SETUP, RUN = (1, 3, 5), 6


def test_a_loop_of_ones_own_writes_asks_and_shows_its_calls(server, open_lab):
    """The edited input is what the loop runs, in one row with the approval; the returned text is drawn once."""
    (server.root / NOTEBOOK.name).write_bytes(
        without_outputs(NOTEBOOK)
        .replace(
            b'clerk.with_options(answers={\\"pay\\": nb.Restart(input={\\"euros\\": 100})}).run(\\"Settle bill 7\\")\\n',
            b'clerk.run(\\"Settle bill 7\\")\\n',
        )
        .replace(b'"await run\\n",\n    "run.journal"', b'"run"')
    )
    notebook = open_lab(NOTEBOOK.name)
    for index in (*SETUP, RUN):
        notebook.run_cell(index)
    card = Card(notebook.output(RUN))
    card.wait_for_question("pay")
    notebook.shot("own-loop-asks", card.root)
    card.root.locator(".nba-form input").first.fill("100")
    notebook.shot("own-loop-edit", card.root)
    card.press_still(card.root.get_by_role("button", name="Approve").first)
    card.wait_until("completed")
    expect(card.root.locator(".nba-name")).to_have_text(["read_bill", "pay", "clerk"])
    expect(card.root.get_by_text("settled")).to_have_count(1)
    expect(card.root).to_contain_text("paid 100")
    notebook.shot("own-loop-done", card.root)
    notebook.dark()
    notebook.shot("own-loop-done-dark", card.root)
    notebook.light()
    assert notebook.errors == [], "\n".join(notebook.errors)


FOLDER, ROOT = str(install_others.folder()), str(Path(__file__).parents[2])
SETUP_OTHERS = f"""{GIVES_WAY}
import sys, warnings
sys.path += [{FOLDER!r}, {ROOT!r}]
warnings.simplefilter("ignore")
import nbagent as nb
from tests.integration import others_child as scripted

def look(path: str) -> int:
    \"\"\"Read a bill.\"\"\"
    return 3

def pay(amount: int) -> str:
    \"\"\"Pay euros.\"\"\"
    return f"paid {{amount}}"
"""
TUTORIALS = {
    "langgraph": """
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver

agent = create_agent(
    model=scripted.model(),
    tools=[look, pay],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True, "look": False})],
    checkpointer=InMemorySaver(),
)
run = nb.watch(agent, name="clerk").run("Pay the bills")
run
""",
    "openai_agents": """
from agents import Agent, function_tool

agent = Agent(
    name="clerk",
    model=scripted.openai_agent().model,
    tools=[function_tool(look), function_tool(pay, needs_approval=True)],
)
run = nb.watch(agent).run("Pay the bills")
run
""",
    "pydantic_ai": """
from pydantic_ai import Agent, DeferredToolRequests

agent = Agent(scripted.pydantic_ai_agent().model, output_type=[str, DeferredToolRequests], name="clerk")
agent.tool_plain(look)
agent.tool_plain(pay, requires_approval=True)
run = nb.watch(agent).run("Pay the bills")
run
""",
}
"""Each framework's tutorial on approvals, as published but for the model, the tools, and the line with ``nb.watch``."""


@pytest.mark.skipif(
    not install_others.is_installed() and not os.environ.get("CI"),
    reason="python tests/integration/install_others.py installs the frameworks",
)
def test_agents_of_the_real_frameworks_are_edited_approved_and_rejected_in_their_cards(
    server, open_lab
):
    """One line is added to each tutorial. The card is saved in the notebook, and as a page of its own."""
    pages = [f"pages = run.to_html('{kind}.html')" for kind in TUTORIALS]
    cells = [each for pair in zip(TUTORIALS.values(), pages, strict=True) for each in pair]
    name = server.write("others.ipynb", SETUP_OTHERS, *cells)
    notebook = open_lab(name)
    notebook.run_cell(0)
    for place, kind in enumerate(TUTORIALS):
        notebook.run_cell(2 * place + 1)
        card = Card(notebook.output(2 * place + 1))
        table = Table(card)
        table.wait("2 calls of pay are waiting")
        paid, press = 5, "Approve"
        if kind != "openai_agents":  # whose approvals change no input
            paid, press = 7, "Approve with changes"
            table.button(0, "Open").click()
            table.under(0).get_by_label("Amount", exact=True).fill("7")
            table.button(0, "Close").click()
        notebook.shot(f"others-{kind}-asks", card.root)
        card.press_still(table.button(0, press))
        card.press_still(table.button(1, "Reject"))
        reason = table.under(1).locator(".nba-reason")
        card.press_still(reason.get_by_role("button", name="Reject"))
        card.wait_until("completed")
        names = card.root.locator(".nba-name")
        expect(names.filter(has_text="pay")).to_have_count(2)
        expect(card.root.get_by_text("Results:")).to_have_count(1)
        expect(card.root).to_contain_text(f"paid {paid}")
        notebook.shot(f"others-{kind}-done", card.root)
        notebook.run_cell(2 * place + 2)
    notebook.dark()
    notebook.shot("others-dark", card.root)
    notebook.light()
    notebook.save()
    saved = json.loads((server.root / name).read_text())["cells"]
    for place, kind in enumerate(TUTORIALS):
        (output,) = saved[2 * place + 1]["outputs"]
        page = (server.root / f"{kind}.html").read_text()
        for text in ("".join(output["data"]["text/html"]), page):
            assert "rejected" in text
            assert "paid 5" in text if kind == "openai_agents" else "paid 7" in text
    assert notebook.errors == [], "\n".join(notebook.errors)
