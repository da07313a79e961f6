"""Runs the notebook on durable runs in two halves, with a real restart of its kernel."""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path
from typing import Any

from nbclient import NotebookClient

from tests.integration.tutorials import NOTEBOOKS, saved_notebook

NAME = "10_durable_runs.ipynb"


def output_texts(cell: Any) -> list[str]:
    """The texts of a cell's outputs, without HTML; a busy kernel may send a line in two parts."""
    texts: list[str] = []
    for kind, outputs in groupby(cell.outputs, lambda output: output.get("name")):
        shown = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
        texts += ["".join(shown)] if kind else shown
    return [text for text in texts if text]


async def test_c303_the_notebook_continues_after_a_real_restart_of_its_kernel(
    tmp_path: Path,
) -> None:
    """The second half, in a new kernel, shows the saved outputs; only one payment is made."""
    shutil.copy(NOTEBOOKS / NAME, tmp_path)
    notebook, saved = saved_notebook(tmp_path / NAME), saved_notebook(NOTEBOOKS / NAME)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=120, resources=resources)
    restarts = 0
    async with client.async_setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if "after-restart" in cell.metadata.get("tags", ()):
                restarts += 1
                await client.km.restart_kernel(now=True)
                await client.kc.wait_for_ready(timeout=60)
            await client.async_execute_cell(cell, number)
    assert restarts == 1
    code = [n for n, cell in enumerate(saved.cells) if cell.cell_type == "code"]
    assert [output_texts(notebook.cells[n]) for n in code] == [
        output_texts(saved.cells[n]) for n in code
    ]
    assert (tmp_path / "durable_payments.txt").read_text() == "100 to Ada\n"
