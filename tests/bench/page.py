"""Costs of cards in a page: JupyterLab in Chromium, on a server of its own.

Run as ``python -m tests.bench.page``. Prints for each case the long tasks of the page (over 50 ms) while the
card is live, and after it has ended; the layout shift as web vitals count it (a shift within half a second
after a key does not count) and what moved; and the bytes that the kernel sent. Then prints the time from a
click on Approve to the tool's first line. Nothing here passes or fails.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.card import GIVES_WAY, Card
from tests.browser.conftest import CHROMIUM_FLAGS, chromium_path
from tests.browser.notebook_page import VIEWPORT, NotebookPage
from tests.browser.server import JupyterServer

SETUP = (
    GIVES_WAY
    + """
import asyncio, time
import nbagent as nb
from tests.bench import view
call = nb.ScriptedModel.call
held = [0.0]

async def watch():
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        held[0] = max(held[0], time.perf_counter() - began - 0.005)

watching = asyncio.ensure_future(watch())

def agent(*steps):
    made = nb.Agent(nb.ScriptedModel(list(steps)), name="clerk", max_turns=1_000, max_calls=1_000)

    @made.tool
    def look(n: int) -> str:
        "Look."
        return f"row {n}: " + "x" * 400

    return made

began = []

def asking(count):
    made = nb.Agent(nb.ScriptedModel([*[[call("act", n=n)] for n in range(count)], "Done."]), max_turns=1_000)

    @made.tool(approval=True)
    def act(n: int) -> str:
        "Act."
        began.append(time.time() * 1e3)
        return "ok"

    return made
"""
)
CASES = {
    "nothing": "run = agent('Done.').run('Go')",
    "a second card": "run = agent('Done.').run('Go')",
    "20,000 tokens of prose": "run = agent(nb.ScriptedModel.slow(''.join(view.prose()), delay=0.0002, pieces=20_000)).run('Go')",
    "500 calls, 10 a turn": "run = agent(*[[call('look', n=10 * t + n) for n in range(10)] for t in range(50)], 'Done.').run('Go')",
    "500 calls at once": "run = agent([call('look', n=n) for n in range(500)], 'Done.').run('Go')",
    "20 runs at once": """
runs = [agent(nb.ScriptedModel.slow('word ' * 400, delay=0.005, pieces=400)).run(f'Go {n}') for n in range(20)]
for each in runs:
    nb.show(each) if hasattr(nb, "show") else each.show()
run = runs[0]
""",
}
WATCH = """() => {
  const seen = (window.seen = { tasks: [], shift: 0, moved: {} });
  const name = ({ node }) => node?.closest?.(".nbagent") ? `.${node.className}`
    : node?.closest?.(".jp-Cell") ? "cells below" : "something else";
  window.watching?.forEach((one) => one.disconnect());
  const tasks = new PerformanceObserver((list) =>
    list.getEntries().forEach(({ startTime, duration }) => seen.tasks.push([startTime, duration])));
  const shifts = new PerformanceObserver((list) =>
    list.getEntries().forEach(({ value, sources, hadRecentInput }) => {
      if (hadRecentInput) return;
      seen.shift += value;
      for (const kind of new Set(sources.map(name))) seen.moved[kind] = (seen.moved[kind] ?? 0) + value;
    }));
  tasks.observe({ type: "longtask" });
  shifts.observe({ type: "layout-shift" });
  window.watching = [tasks, shifts];
}"""


def measure(notebook, cell):
    """Play the case in this cell; return long tasks before and after the card's end, shift, and bytes."""
    notebook.turn_to(cell)
    notebook.page.wait_for_timeout(1_000)
    notebook.page.evaluate(WATCH)
    before = notebook.received
    notebook.page.keyboard.press("Control+Enter")
    card = Card(notebook.output(cell))
    card.wait_until("completed")
    ended = notebook.page.evaluate("() => performance.now()")
    card.wait_until_static()
    notebook.page.wait_for_timeout(2_000)
    seen = notebook.page.evaluate("() => window.seen")
    live = [round(ms) for at, ms in seen["tasks"] if at < ended]
    still = [round(ms) for at, ms in seen["tasks"] if at >= ended]
    moved = ", ".join(f"{kind} {value:.3f}" for kind, value in seen["moved"].items())
    return live, still, f"{seen['shift']:.3f} ({moved})", notebook.received - before


CLICKS = 30
CLICK = """(button) => {
  button.addEventListener("click", () => (window.clicked = performance.timeOrigin + performance.now()));
}"""


def press(notebook, cell):
    """Median and 95th percentile, in milliseconds, from a click on Approve to the first line of the tool."""
    notebook.run_cell(cell)
    card = Card(notebook.output(cell))
    clicked = []
    for number in range(CLICKS):
        card.root.get_by_text(f"n={number}").or_(
            card.form.get_by_text(str(number))
        ).first.wait_for()
        notebook.page.wait_for_timeout(700)
        button = card.button("Approve").first
        button.evaluate(CLICK)
        button.click()
        clicked.append(notebook.page.evaluate("() => window.clicked"))
    card.wait_until("completed")
    notebook.run_cell(cell + 1)
    notebook.wait_for_kernel()
    told = notebook.output(cell + 1).get_by_text("]")
    began = json.loads(told.inner_text())
    took = sorted(at - since for at, since in zip(began, clicked, strict=True))
    return statistics.median(took), took[int(len(took) * 0.95)]


def main():
    """Print the table."""
    wanted = [name for name in CASES if all(word in name for word in sys.argv[1:])]
    cells = [SETUP]
    for name in wanted:
        cells += [CASES[name], "held[0] = 0.0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        JupyterServer(Path(folder) / "home") as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
        context = browser.new_context(viewport=VIEWPORT)
        notebook = NotebookPage(context, server)
        cells += [f"run = asking({CLICKS}).run('Go')\nrun", "print(began)", "print(held)"]
        notebook.open(server.write("bench.ipynb", *cells))
        notebook.run_cell(0)
        notebook.wait_for_kernel()
        for number, name in enumerate(wanted):
            cell = 1 + 2 * number
            live, still, shift, sent = measure(notebook, cell)
            print(f"{name}: live {live} ms, static {still} ms, shift {shift}, {sent:,} bytes")
            notebook.run_cell(cell + 1)
            notebook.wait_for_kernel()
        if not sys.argv[1:] or "click" in sys.argv[1:]:
            middle, late = press(notebook, 1 + 2 * len(wanted))
            print(f"click to first line: p50 {middle:.0f} ms, p95 {late:.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
