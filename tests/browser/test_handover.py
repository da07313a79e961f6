"""A live card becomes static HTML without a jump: same height, same place, same scroll position."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = r'''
import nbagent as nb
from nbagent.core.base.model import ReasoningDelta

from nbagent.notebook.cards import display

S = nb.ScriptedModel
display.RETRY_FOR = 0.0  # a failed run gives way like any other
display.STAY = 0  # and at once,
display.QUIET = 0.2  # but none that the test holds: what it moves itself must not come with the handover
held, quiet = set(), display._is_quiet
display._is_quiet = lambda card: not held and quiet(card)

class Squares:
    def __init__(self, n):
        self.n = n

    def _repr_html_(self):
        rows = "".join(f"<tr><td>{i}</td><td>{i * i}</td></tr>" for i in range(self.n))
        return f"<table><tr><th>n<th>square{rows}</table>"

def agent(*steps):
    made = nb.Agent(S(list(steps)), name="analyst")

    @made.tool
    def look(region: str, lines: int = 3) -> dict:
        "Look."
        for n in range(lines):
            print("row", n, "of", region, "x" * 40)
        return {"region": region, "margin": -42_908, "rows": list(range(40))}

    @made.tool
    def table(n: int) -> nb.ToolResult:
        "A table."
        return nb.ToolResult(n, display=Squares(n))

    @made.tool
    def pay(to: str, amount: float, ctx: nb.ToolContext) -> str:
        "Pay."
        if not ctx.resumed:
            ctx.interrupt(nb.Edit(message="Pay?"))
        return f"paid {amount}"

    @made.tool
    def broken(why: str) -> str:
        "Fail."
        raise ValueError(why)

    return made

TEXT = r"""## What I found

Only **South** lost money, see `sales.margin`[^1]. The formula is $m = \frac{r - c}{r}$, or

$$\sum_{i=1}^{n} x_i^2 = \alpha \begin{pmatrix} a & b \\ c & d \end{pmatrix}$$

- first, the *price list*
- then the invoices
  1. of the third quarter
  2. and of the fourth

  with a paragraph of their own
- last

> Quoted, over
> two lines.

| region | revenue | margin |
|:-------|--------:|-------:|
| North  | 1,204,330 | 188,020 |
| South  | 871,115 | -42,908 |

```python
total = sum(row.margin for row in rows if row.region == "South")  # a long line that goes on and on
print(total)
```

---

A last paragraph, long enough to be broken over several lines wherever it stands, because the width
of the card is not that of the page, and with a [link](https://example.org) in it.
"""
LONG = "Which of our regions lost money last quarter? Fix the wrong discounts. " * 6
call = S.call
'''
SCENES = {
    "text": "run = agent(S.slow(TEXT, delay=0.01, pieces=40)).run('Which region?')",
    "prompt": "run = agent([ReasoningDelta('Hm. ' * 40), 'Short.']).run(LONG)",
    "calls": """
run = agent(
    ["Looking.", call("look", region="South " * 20), call("look", region="N", lines=40),
     call("table", n=3)],
    ["Once more.", call("broken", why="no such table: x")],
    TEXT,
).run("Look")
""",
    "records": """
run = agent(["Paying.", *[call("pay", to=f"account {n}", amount=n) for n in range(4)]], "Done.").run("Pay")
await run.settled()
first, second, third, fourth = run.interrupts
await run.restart(first, new_input={"to": "account 0", "amount": 7.5})
await run.reject(second, "not before Monday, and " * 6)
await run.restart(third)
await run.reject(fourth)
""",
    "fifteen": """
run = agent(
    [*[call("look", region=f"R{n}") for n in range(9)],
     *[call("pay", to=f"account {n}", amount=n) for n in range(6)]],
    "Done: four were paid.",
).run("Look at all regions, and pay")
await run.settled()
asked = run.interrupts
await run.restart(asked[0], new_input={"to": "account 0", "amount": 7.5})
for each in asked[1:4]:
    await run.restart(each)
await run.reject(asked[4], "not before Monday, and " * 6)
await run.reject(asked[5])
""",
    "failed": """
run = agent(["Looking.", call("look", region="S")], RuntimeError("broke " * 30)).run("Go")
""",
    "stopped": """
run = agent(["Paying.", call("pay", to="A", amount=1)]).run("Pay")
await run.settled()
agent("x").run("And hurry, please", after=run, pending="queue")
await run.cancel()
""",
}
WATCH = """
(cell) => {
  const seen = window.seen = { live: null, still: null, calm: 0, shifts: [] };
  window.observer?.disconnect();
  window.observer = new PerformanceObserver((list) => {
    for (const { startTime, value, sources } of list.getEntries())
      seen.shifts.push({ at: startTime, value, of: sources.map(moved) });
  });
  window.observer.observe({ type: "layout-shift" });
  const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
  const moved = ({ node, previousRect, currentRect }) =>
    `${node?.className || node?.nodeName}: ${box(previousRect)} to ${box(currentRect)}`;
  const parts = ".nba-header, .nba-items > *, .nba-body > *, .nba-say > *, .nba-footer";
  const measure = () => {
    const card = document.querySelector(`[data-windowed-list-index="${cell}"] .nbagent`);
    const next = document.querySelector(`[data-windowed-list-index="${cell + 1}"]`);
    if (card && next) {
      const box = card.getBoundingClientRect();
      const now = {
        height: box.height,
        width: box.width,
        next: next.getBoundingClientRect().top,
        scroll: document.querySelector(".jp-WindowedPanel-outer").scrollTop,
        at: performance.now(),
        parts: [...card.querySelectorAll(parts)]
          .map((el) => [el.className || el.tagName, el.getBoundingClientRect().height])
          .filter(([, height]) => height > 0),
      };
      const ended = ["completed", "failed", "cancelled"].includes(card.dataset.status);
      if (card.classList.contains("nba-static")) {
        seen.still = now;
        seen.calm += 1;
      } else if (ended) seen.live = now;
    }
    if (window.seen === seen) requestAnimationFrame(measure);
  };
  measure();
}
"""
"""Measures the page in the last frame of the live card, and in the last frame of the static card;
``calm`` counts the frames of the static card."""


def open_rows(card):
    """Open rows and the fold of printed output, as a person may have done."""
    rows = card.root.locator("details.nba-call")
    for index in (0, 1):
        rows.nth(index).locator("> summary").click()
    rows.nth(1).locator(".nba-rest:not(.nba-all):visible > summary").click()
    expect(card.root.locator("details[open]")).to_have_count(4)  # a table opens by itself


def parts(measured):
    return [f"{name}: {height:.1f}" for name, height in measured["parts"]]


@pytest.mark.parametrize("width", [800, pytest.param(400, marks=pytest.mark.variant)])
def test_the_static_card_has_the_same_place_and_height_as_the_live_one(width, server, open_lab):
    """In every scene, the card's heights differ by at most 2 px, and nothing scrolls or shifts."""
    cells = [
        cell for name in SCENES for cell in (f"held.add({name!r})\n{SCENES[name]}", "held.clear()")
    ]
    notebook = open_lab(server.write(f"handover-{width}.ipynb", SETUP, *cells))
    place = f".jp-OutputArea-output {{ flex: none !important; width: {width}px !important; }}"
    notebook.style(place)
    notebook.page.set_viewport_size({"width": 1300, "height": 900})
    notebook.run_cell(0)
    for index, name in enumerate(SCENES):
        cell = 1 + 2 * index
        notebook.turn_to(cell)
        notebook.page.evaluate(WATCH, cell)
        notebook.run_cell(cell)
        card = Card(notebook.output(cell))
        notebook.page.wait_for_function("() => window.seen.live !== null")
        if name == "calls":
            # the page reports open rows a moment after the last press
            with notebook.sending(':printed"'):
                open_rows(card)
        if name == "fifteen" and width == 800:
            expect(card.records).to_have_count(6)
            expect(card.root.locator(".nba-stretch")).to_contain_text("\u00d7 9")
        notebook.shot(f"handover-{name}-{width}-live", card.root)
        notebook.turn_to(cell + 1)
        notebook.run_cell(cell + 1)
        notebook.page.wait_for_function("() => window.seen.calm > 20")
        seen = notebook.page.evaluate("() => window.seen")
        notebook.shot(f"handover-{name}-{width}-static", card.root)
        live, still = seen["live"], seen["still"]
        told = f"{name}: {parts(live)} became {parts(still)}"
        if name == "fifteen" and width == 800:
            assert live["height"] <= 400, f"a long run is not seen at once: {told}"
        assert abs(live["height"] - still["height"]) <= 2, told
        assert abs(live["width"] - still["width"]) <= 1, told
        assert abs(live["next"] - still["next"]) <= 2, told
        assert live["scroll"] == still["scroll"], told
        shifts = [shift for shift in seen["shifts"] if shift["at"] > live["at"]]
        assert sum(shift["value"] for shift in shifts) < 0.01, (live, still, seen["shifts"])
    assert notebook.errors == [], "\n".join(notebook.errors)
