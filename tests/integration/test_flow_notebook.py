"""Runs the flow notebook with a person, in a real kernel that is killed between the two questions."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import nbformat

from tests.integration.kernels import FrontEnd, front_end
from tests.integration.test_runs_in_kernels import Page

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_flow.ipynb"


def cells() -> list[str]:
    """The notebook's code cells."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def up_to(kernel: FrontEnd, folder: Path, name: str) -> None:
    """Run the notebook's cells up to the definition of ``name``, as a person does after a restart."""
    kernel.must_run(f"import os; os.chdir({str(folder)!r})")
    for cell in cells():
        kernel.must_run(cell)
        if f"def {name}(" in cell:
            return


def the_cell(text: str) -> str:
    """The cell that contains a text."""
    (found,) = [cell for cell in cells() if text in cell]
    return found


def test_c161_a_flow_in_a_notebook_survives_its_killed_kernel(tmp_path: Path) -> None:
    """One form is answered before the kernel is killed, and one after; each step runs once."""
    with front_end() as kernel:
        page = Page(kernel)
        up_to(kernel, tmp_path, "clean")
        page.start(the_cell("clean.with_options"))
        card = page.card()
        first = page.question(card)
        assert "mostly empty" in page.forms(card)[-1]["title"]
        assert page.receipt(card, page.press(card, first, "submit", drafts={"options": [0]}))["ok"]
        kernel.read_until(lambda: page.forms(card)[-1]["interrupt"] != first)
        assert "cannot be right" in page.forms(card)[-1]["title"]
        done = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("flow_files/*.csv")}
        os.kill(int(kernel.must_run("print(os.getpid())")), signal.SIGKILL)

    with front_end() as kernel:
        page = Page(kernel)
        up_to(kernel, tmp_path, "clean")
        page.start(the_cell("nb.open_run"))
        card = page.card()
        second = page.question(card)
        assert "cannot be right" in page.forms(card)[-1]["title"]
        ages = {"added": 0, "deleted": [], "cells": {"age": [[0, 1], ["37", "72"]]}}
        sent = page.press(card, second, "submit", drafts={"grid": ages})
        assert page.receipt(card, sent)["ok"]
        page.status(card, "completed")
        for cell in cells()[-2:]:  # the cells that show the result
            kernel.must_run(cell)
        assert kernel.must_run("print(run.result.output.shape)") == "(4, 3)\n"
        for name in ("1_loaded.csv", "2_slim.csv"):  # written before the kernel was killed
            assert (tmp_path / "flow_files" / name).stat().st_mtime_ns == done[name]
