"""The tutorial about a loop of one's own: its text among the rows, an edited approval, and a rejected one."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from nbagent.cli.demo import without_outputs
from tests.browser.card import Card

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
