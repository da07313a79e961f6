"""Runs the quickstart without a person, like nbconvert and Binder's readers."""

from __future__ import annotations

import nbformat
from nbclient import NotebookClient

from nbagent.cli.demo import copy_quickstart, quickstart


def outputs(notebook: nbformat.NotebookNode) -> list[list[dict]]:
    """The outputs of the code cells."""
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def test_the_quickstart_shows_the_same_each_time_and_needs_no_kernel_to_read():
    """The outputs are static HTML and text, without ids, times or counts that differ between runs."""
    saved, again = (nbformat.read(quickstart(), as_version=4) for _ in range(2))
    NotebookClient(again, timeout=120).execute()
    assert outputs(again) == outputs(saved)
    cards = [output.data for cell in outputs(again) for output in cell if "data" in output]
    assert any("text/html" in card for card in cards)
    for card in cards:
        assert not any("widget" in mime for mime in card)
    shown = "\n".join(str(card["text/plain"]) for card in cards)
    for text in ("chosen: Italian · by code", "sent 200.0 to ABC123", "ada@example.com"):
        assert text in shown


def test_the_demo_opens_the_quickstart_without_outputs(tmp_path):
    """A newcomer sees the cells run; the saved page shows their results."""
    saved = nbformat.read(quickstart(), as_version=4)
    copy, _ = copy_quickstart(tmp_path)
    begun = nbformat.read(copy, as_version=4)
    assert [cell.source for cell in begun.cells] == [cell.source for cell in saved.cells]
    assert any(cell.outputs for cell in saved.cells if cell.cell_type == "code")
    for cell in begun.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
