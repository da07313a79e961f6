"""The harness itself, with a widget of three lines: reported actions did happen."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.notebook_page import App, take_picture

# Jupyter's own button: a widget of anywidget may lose its messages in a slow page, which is not what is tried here.
WIDGET = """
import ipywidgets

counter = ipywidgets.Button(description="pressed 0")
counter.add_class("counter")
presses = iter(range(1, 100))
counter.on_click(lambda button: setattr(button, "description", f"pressed {next(presses)}"))
counter
"""


@pytest.mark.parametrize("app", App)
def test_a_click_goes_to_python_and_back_in_both_front_ends_and_themes(app, server, open_page):
    """The harness drives real front ends: after a click, the kernel changes the widget."""
    notebook = open_page(server.write(f"counter-{app}.ipynb", WIDGET, "print(6 * 7)"), app=app)
    notebook.run_all()
    button = notebook.output(0).locator("button.counter")
    for count, theme in enumerate((notebook.light, notebook.dark), start=1):
        theme()
        button.click()
        expect(button).to_have_text(f"pressed {count}")
        assert notebook.shot(f"harness-{app}-{theme.__name__}").stat().st_size > 1000
    notebook.wait_until_all_ran()
    expect(notebook.output(1)).to_contain_text("42")
    assert notebook.errors == [], "\n".join(notebook.errors)


REPLACED_FOR_A_WHILE = """
<div id="card"><p>old</p></div>
<script>
  let left = 300;
  const replace = () => {
    document.querySelector("#card").innerHTML = left ? "<p>new</p>" : "<p>newest</p>";
    if (left--) setTimeout(replace, 1);
  };
  replace();
</script>
"""


def test_a_screenshot_of_a_replaced_element_shows_the_new_element(browser, tmp_path):
    """A card may become static at any moment; the picture shows the current element."""
    page = browser.new_page()
    page.set_content(REPLACED_FOR_A_WHILE)
    take_picture(page.locator("#card p"), tmp_path / "card.png")
    assert (tmp_path / "card.png").stat().st_size > 0
    page.close()
