"""The picture of docs/forms.md: that page's model as drawn in JupyterLab."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from playwright.sync_api import Locator

from tests.browser.card import Card
from tests.browser.notebook_page import NotebookPage

DOCS = Path(__file__).parents[2] / "docs"
MODEL = re.findall(
    r"^```python\n(.*?)^```",
    (DOCS / "forms.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)[0]
ASK = "order = await nb.form(Order, value=PREFILL, title='A field of each kind')"
CUT = """(form) => [...form.querySelectorAll("*")].filter(
  (el) => el.checkVisibility() && el.scrollWidth > el.clientWidth + 1 && el.clientWidth > 0
    && getComputedStyle(el).display !== "inline").map((el) => el.outerHTML.slice(0, 120))"""


def test_the_form_of_the_guide_fits_any_width_in_light_and_dark(server, open_page):
    """Nothing is cut off or overflows, in a narrow window too; the guide shows the form's picture."""
    notebook = open_page(server.write("gallery.ipynb", MODEL, ASK))
    notebook.command("application:toggle-left-area")
    notebook.run_all()
    card = Card(notebook.output(1))
    form = card.wait_for_question("A field of each kind")
    for theme in (notebook.light, notebook.dark):
        theme()
        for width in (540, 1100):
            notebook.page.set_viewport_size({"width": width, "height": 2300})
            assert form.evaluate(CUT) == []
            picture(notebook, form, f"forms-{theme.__name__}", width)
    assert notebook.errors == [], "\\n".join(notebook.errors)


def picture(notebook: NotebookPage, form: Locator, name: str, width: int) -> None:
    """Take a screenshot; if NBAGENT_UPDATE_IMAGES is set, a wide one replaces the guide's picture."""
    shot = notebook.shot(f"{name}-{width}", form)
    if width > 1000 and os.environ.get("NBAGENT_UPDATE_IMAGES"):
        shutil.copy(shot, DOCS / "images" / f"{name}.png")
