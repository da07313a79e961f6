"""Executes the notebooks in ``notebooks/`` without a person, for readers without a kernel.

``python -m tests.integration.tutorials [NAME …]`` writes their new outputs into them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
INDEX = NOTEBOOKS / "index.ipynb"
TUTORIALS = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


def saved_notebook(path: Path) -> nbformat.NotebookNode:
    """The saved notebook."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new kernel."""
    notebook = saved_notebook(path)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=120, resources=resources, record_timing=False).execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)  # a page without a kernel cannot draw it
    notebook.metadata.language_info = {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
    }
    return notebook


if __name__ == "__main__":
    for each in TUTORIALS:
        if not sys.argv[1:] or any(each.name.startswith(name) for name in sys.argv[1:]):
            nbformat.write(executed(each), each)
            print(each.name)
