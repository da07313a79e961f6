"""A kernel is killed while tools run: in the next kernel, a person settles each call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import axe_finds

DEFINE = """
import asyncio, os
from pathlib import Path
import nbagent as nb

nb.use_store("lost.db")
call, first = nb.ScriptedModel.call, not Path("lost.db").exists()
agent = nb.Agent(nb.ScriptedModel(["Settled."] * 9), name="banker")

async def at_work(what):
    with open("done.txt", "a") as file:
        print(what, file=file)
    await asyncio.sleep(600 if first else 0)

@agent.tool
async def wire(to: str) -> str:
    "Wire money."
    await at_work(f"wire {to}")
    return f"sent to {to}"

@agent.tool(idempotent=True)
async def look(of: str) -> str:
    "Look at an account."
    await at_work(f"look {of}")
    return f"{of} has 5"
"""
START = """
def begin(tool, **given):
    [who] = given.values()
    asking = nb.Agent(nb.ScriptedModel([call(tool, **given)]), name="banker", tools=list(agent.tools.values()))
    return asking.run(f"{tool} {who}", id=who, show=who == "Ada")

runs = [begin("wire", to=name) for name in ("Ada", "Bob", "Cid", "Dee", "Eve")] + [begin("look", of="Fay")]
while not Path("done.txt").exists() or len(Path("done.txt").read_text().splitlines()) < len(runs):
    await asyncio.sleep(0.01)
print("process", os.getpid())
"""
OPEN = "run = await nb.open_run('{}')\nrun"
INBOX = "nb.inbox()"
CALLS = [f"wire {name}" for name in ("Ada", "Bob", "Cid", "Dee", "Eve")] + ["look Fay"]


def test_a_person_settles_each_call_of_a_killed_kernel(server, open_lab):
    """Run again, given its result, or failed: in the card, the inbox and a shell; idempotent calls just run again."""
    opened = [OPEN.format(name) for name in ("Ada", "Bob", "Cid", "Fay")]
    notebook = open_lab(server.write("lost.ipynb", DEFINE, START, *opened, INBOX))
    done = server.root / "done.txt"
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("process")
    pid = int(notebook.output(1).get_by_text("process").inner_text().split()[-1])
    assert sorted(done.read_text().splitlines()) == sorted(CALLS)
    os.kill(pid, signal.SIGKILL)
    gone = Card(notebook.output(1))
    notebook.page.locator(".jp-Dialog button.jp-mod-accept").click()
    expect(gone.root).to_contain_text(
        'Define the agent again and reopen the run: await nb.open_run("Ada")'
    )
    notebook.wait_for_kernel()
    for cell in (0, 2, 3, 4, 5):
        notebook.run_cell(cell)
    again, given, failed, looked = (Card(notebook.output(cell)) for cell in (2, 3, 4, 5))
    expect(again.wait_for_question("Did wire take effect?")).to_contain_text(
        "If the call took effect, enter its result. If not, run it again"
    )
    notebook.shot("lost-call", again.root)
    again.press("Run again")
    given.wait_for_question("Did wire take effect?")
    given.fill("Result", "sent to Bob, says the bank")
    given.root.get_by_label("Result").press("Enter")
    expect(given.root).to_have_attribute("data-status", "interrupted")
    given.press("Enter its result")
    failed.wait_for_question("Did wire take effect?")
    failed.press("Mark as failed…")
    failed.root.get_by_label("Reason (the agent").fill("the bank knows of nothing")
    failed.press("Mark as failed")
    for card in (again, given, failed, looked):
        card.wait_until("completed")
    expect(given.root).to_contain_text("sent to Bob, says the bank")
    expect(failed.root).to_contain_text("the bank knows of nothing")
    expect(looked.root).to_contain_text("run again · the tool is idempotent")
    assert sorted(done.read_text().splitlines()) == sorted([*CALLS, "wire Ada", "look Fay"])

    notebook.run_cell(6)
    inbox = Card(notebook.output(6))
    expect(inbox.root).to_contain_text("No process is running Dee, Eve.")
    notebook.shot("lost-call-inbox-stranded", inbox.root)
    inbox.press("Continue 2 here")
    expect(inbox.forms).to_have_count(2)
    notebook.shot("lost-call-inbox", inbox.root)
    inbox.forms.nth(0).get_by_label("Result").fill("sent to Dee")
    inbox.press_still(inbox.forms.nth(0).get_by_role("button", name="Enter its result"))
    expect(inbox.forms).to_have_count(1)
    assert axe_finds(notebook.page, "[aria-label^=Inbox]") == []
    answer = ["answer", "Eve", "--text", "sent to Eve", "--store", str(server.root / "lost.db")]
    shell = [sys.executable, "-m", "nbagent", *answer]
    subprocess.run(shell, check=True, timeout=60)
    expect(inbox.forms).to_have_count(0)
    expect(inbox.root).to_contain_text("by command line")
    assert len(done.read_text().splitlines()) == len(CALLS) + 2
