"""A batch's report on paper and on narrow screens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from playwright.sync_api import Browser, expect
from pypdf import PdfReader

WRITE = """
import nbagent as nb
call = nb.ScriptedModel.call
agent = nb.Agent(nb.ScriptedModel(lambda m: [call("look", at="x")] if len(m) < 3 else "done " * 40), name="clerk")

@agent.tool(approval=True)
def look(at: str) -> str:
    return "\\n".join(f"line {n} " + "wide " * 80 for n in range(90))

batch = nb.map(agent, ["one", "two"], prompt="{}", id="day", answers={"look": True}).wait()
batch.to_html("report.html")
"""
HIDDEN = """() => [...document.querySelectorAll('main :is(td, th, p, pre, dd, summary:not(.nba-all > summary))')].filter(each => {
  const box = each.getBoundingClientRect();
  const cut = each.scrollWidth > each.clientWidth + 1 && each.clientWidth || each.scrollHeight > each.clientHeight + 1 && each.clientHeight;
  return !box.height || (cut && getComputedStyle(each).overflow !== 'visible');
}).map(each => each.outerHTML.slice(0, 200))"""

TABLE = """() => {
  const rows = Array.from({length: 30}, (_, n) => `<tr><td>${n}</td></tr>`).join("");
  document.querySelector(".nba-long").outerHTML = `<div class="nba-long nba-rich"><table><tbody>${rows}</tbody></table></div>`;
}"""
"""A long table in place of a long text."""


def test_c664_a_printed_report_shows_all_text_and_a_narrow_one_scrolls_its_tables(
    browser: Browser, tmp_path: Path
):
    """Folds are open on paper, and long lines are wrapped; on a narrow screen only the tables scroll."""
    subprocess.run([sys.executable, "-c", WRITE], cwd=tmp_path, check=True, timeout=120)
    context = browser.new_context(viewport={"width": 700, "height": 900})
    try:
        page = context.new_page()
        page.goto((tmp_path / "report.html").as_uri())
        last = page.locator(".row").last.get_by_text("line 89").first
        expect(last).not_to_be_visible()
        page.emulate_media(media="print")
        expect(last).to_be_visible()
        assert page.evaluate(HIDDEN) == []
        page.pdf(path=tmp_path / "report.pdf")
        printed = PdfReader(tmp_path / "report.pdf").pages
        pages = [" ".join(each.extract_text().split()) for each in printed]
        lines = Counter(n for each in pages for n in re.findall(r"line (\d+) wide", each))
        assert lines == dict.fromkeys(map(str, range(90)), 2)
        assert not any("Show all" in each for each in pages)
        page.evaluate(TABLE)
        assert page.evaluate(HIDDEN) == []
        page.emulate_media(media="screen")
        page.set_viewport_size({"width": 360, "height": 700})
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    finally:
        context.close()
