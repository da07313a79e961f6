"""Every notebook in ``notebooks/`` has short cells, saved outputs and a place in the list of tutorials."""

from __future__ import annotations

import re

import pytest

from tests.integration.tutorials import INDEX, NOTEBOOKS, TUTORIALS, WIDGET, saved_notebook

CODE_LINES = 40
WORDS = 110


def test_the_list_names_every_notebook_once():
    """The list has every tutorial and no other link."""
    (cell,) = saved_notebook(INDEX).cells
    named = re.findall(r"\]\((\w+\.ipynb)\)", cell.source)
    assert sorted(named) == [path.name for path in TUTORIALS]
    assert named[0] == "01_quickstart.ipynb"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_has_short_steps(path):
    """A notebook begins with a title, its cells are short, and its links exist."""
    cells = saved_notebook(path).cells
    assert cells[0].source.startswith("# ")
    for cell in cells:
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= CODE_LINES, cell.id
            continue
        assert len(cell.source.split()) <= WORDS, cell.id
        for target in re.findall(r"\]\((?!\w+:)([^)#]+)", cell.source):
            assert (NOTEBOOKS / target).exists(), target


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_with_its_outputs(path):
    """A page without a kernel shows the outputs: in order, without widgets, errors or our folders."""
    code = [cell for cell in saved_notebook(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    for output in outputs:
        assert output.output_type != "error"
        assert WIDGET not in output.get("data", {})
        assert str(NOTEBOOKS.parent) not in str(output)
