"""The tutorials as a person uses them in JupyterLab: from the list, through a form, to the result."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from nbagent.cli.demo import without_outputs
from tests.browser.card import Card
from tests.integration.tutorials import INDEX, NOTEBOOKS, TUTORIALS, saved_notebook

DATA = "06_data_analysis.ipynb"


def place(name: str, cell_id: str) -> int:
    """The index of a cell in its notebook."""
    return [cell["id"] for cell in saved_notebook(NOTEBOOKS / name).cells].index(cell_id)


@pytest.fixture
def folder(server):
    """The notebooks as in a checkout, without outputs."""
    there = server.root / "tutorials"
    there.mkdir(exist_ok=True)
    for path in TUTORIALS:
        (there / path.name).write_bytes(without_outputs(path))
    shutil.copy(INDEX, there)
    return there.name


def test_a_person_follows_the_list_to_a_corrected_table(folder, open_lab):
    """The list's link opens the notebook in Lab; the change is shown before its approval, and made once."""
    notebook = open_lab(f"{folder}/{INDEX.name}")
    notebook.shot("tutorials-index")
    notebook.cell(0).get_by_role("link", name="Your table, and somebody to ask").click()
    expect(notebook.page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible()
    notebook.wait_for_kernel()
    notebook.run_all()
    asked, after = place(DATA, "run"), place(DATA, "after")
    notebook.cell(asked).scroll_into_view_if_needed()
    card = Card(notebook.output(asked))
    form = card.wait_for_question()
    expect(form).to_contain_text("new price")
    expect(form).to_contain_text("3.5")
    notebook.shot("tutorial-data-asks")
    notebook.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    notebook.page.set_viewport_size({"width": 480, "height": 900})
    form.scroll_into_view_if_needed()
    notebook.shot("tutorial-data-asks-narrow")
    notebook.page.set_viewport_size({"width": 1100, "height": 900})
    notebook.dark()
    form.scroll_into_view_if_needed()
    notebook.shot("tutorial-data-asks-dark")
    notebook.light()
    card.press("Approve")
    card.wait_until("completed")
    expect(notebook.output(asked).locator(".nbagent")).to_have_count(1)
    expect(card.root.locator("img").first).to_be_visible()
    notebook.wait_until_all_ran()
    notebook.cell(after).scroll_into_view_if_needed()
    expect(notebook.output(after)).not_to_contain_text("350")
    notebook.shot("tutorial-data-done")
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c441_a_person_answers_after_a_restart_in_the_tutorial_on_durable_runs(folder, open_lab):
    """The kernel restarts while a question waits; the reopened run's card waits for the person, and nobody else."""
    name = "10_durable_runs.ipynb"
    cells = saved_notebook(NOTEBOOKS / name).cells
    code = [n for n, cell in enumerate(cells) if cell.cell_type == "code"]
    restart = next(n for n in code if "after-restart" in cells[n].metadata.get("tags", ()))
    opened = next(n for n in code if "nb.open_run" in cells[n].source)
    notebook = open_lab(f"{folder}/{name}")
    for index in (n for n in code if n < restart):
        notebook.run_cell(index)
    expect(notebook.output(code[code.index(restart) - 1])).to_contain_text("interrupted · pay")
    notebook.restart_kernel()
    for index in (n for n in code if restart <= n <= opened):
        notebook.run_cell(index)
    card = Card(notebook.output(opened))
    card.wait_for_question()
    card.fill("Amount", "90")
    notebook.shot("tutorial-durable-asks")
    card.press("Approve with changes")
    card.wait_until("completed")
    for index in (n for n in code if n > opened):
        notebook.run_cell(index)
    expect(notebook.output(opened)).to_contain_text("90 to Ada")
    expect(notebook.output(code[-1])).to_contain_text("{'amount': (120, 90)} by form")
    assert notebook.errors == [], "\n".join(notebook.errors)
