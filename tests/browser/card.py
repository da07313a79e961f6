"""A run's card in a page, as a person sees and uses it."""

from __future__ import annotations

import re

from playwright.sync_api import Error, Locator, expect

STOOD_STILL = """(button) => {
  const { x, y, width, height } = button.getBoundingClientRect();
  const place = [x, y, width, height].map(Math.round).join();
  if (button.dataset.testPlace !== place) {
    button.dataset.testPlace = place;
    button.dataset.testSince = String(performance.now());
  }
  return performance.now() - Number(button.dataset.testSince) > 520;
}"""
"""A button that moved a moment ago ignores the press (a person would look first, too)."""
TWO_FRAMES = "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
CELL_FAILED = '.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]'


GIVES_WAY = "from nbagent.notebook.cards import display as _cards; _cards.STAY = 0\n"
"""For a first cell: cards of ended runs become static at once, otherwise only after many newer runs have ended."""


class Card:
    """The card in one cell's output; ``number`` selects one of several cards."""

    def __init__(self, output: Locator, number: int = 0) -> None:
        self.root = output.locator(".nbagent").nth(number)
        self.forms = self.root.locator("form.nba-form")
        self.form = self.forms.first
        decided = "summary:has(> .nba-decided:not([hidden]))"
        self.records = self.root.locator(f".nba-record, {decided}").filter(visible=True)
        page = output.locator("xpath=ancestor::html")  # of the frame that has the card
        self.failures = page.locator(CELL_FAILED)

    def wait_for_question(self, title: str = "") -> Locator:
        """Wait for a form with this title, and return the form; a cell that fails meanwhile fails the test."""
        form = self.forms.filter(has_text=title).first
        form.or_(self.failures).first.wait_for()
        assert self.failures.count() == 0, self.failures.first.inner_text()
        for _ in range(5):  # a form that becomes answerable is replaced: look for the new form
            try:
                form.scroll_into_view_if_needed()
            except Error as error:
                if "not attached" not in str(error):
                    raise
            else:
                return form
        raise AssertionError(f"the form {title!r} is replaced again and again")

    def wait_until(self, status: str) -> None:
        """Wait until the run has this status."""
        expect(self.root).to_have_attribute("data-status", status)

    def wait_until_static(self) -> None:
        """Wait until the live card has become HTML that needs no kernel."""
        expect(self.root).to_have_class(re.compile(r"\bnba-static\b"))

    def button(self, name: str) -> Locator:
        """The button or menu entry with this label."""
        entry = self.root.get_by_role("menuitem", name=re.compile(f"^{re.escape(name)}"))
        return self.root.get_by_role("button", name=name, exact=True).or_(entry)

    def press(self, name: str, *, clicks: int = 1) -> None:
        """Press a button with the pointer, as ``press_still`` does."""
        self.press_still(self.button(name), clicks=clicks)

    def press_still(self, button: Locator, *, clicks: int = 1) -> None:
        """Press this button with the pointer, and again when it is still, if the page says that it moved."""
        button.page.bring_to_front()
        button.scroll_into_view_if_needed()
        button.evaluate(TWO_FRAMES)  # JupyterLab moves its cells after a scroll
        if clicks > 1:
            self._wait_until_still(button)
        button.click(click_count=clicks)
        while self.root.get_by_text("The button just moved. Press it again.").count():
            self._wait_until_still(button)
            button.click(click_count=clicks)

    def _wait_until_still(self, button: Locator) -> None:
        button.evaluate("button => delete button.dataset.testPlace")  # from an earlier wait
        button.page.wait_for_function(STOOD_STILL, arg=button.element_handle())

    def fill(self, label: str, text: str) -> None:
        """Replace the text in the field with this label."""
        self.root.get_by_label(label, exact=True).fill(text)
