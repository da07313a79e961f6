"""Checks the page on models by section: printed output must match, and names in unexecuted blocks must exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nbagent as nb
from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
BLOCKS = re.compile(r"^```(python|py|output)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("section", SECTIONS)
async def test_every_block_of_a_section_does_what_its_text_says(
    section, capsys, monkeypatch, tmp_path
):
    """``python`` blocks run in one session per section and print the ``output`` block that follows."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    printed = ""
    for kind, block in BLOCKS.findall(SECTIONS[section]):
        if kind == "python":
            await execute(block, names)
            printed = capsys.readouterr().out
        elif kind == "output":
            assert printed == block


@pytest.mark.parametrize("section", SECTIONS)
def test_a_block_that_needs_a_key_or_a_network_uses_existing_names(section):
    """``py`` blocks are not run, but they are valid Python, and every ``nb.`` name in them exists."""
    for kind, block in BLOCKS.findall(SECTIONS[section]):
        if kind != "py":
            continue
        tree = compile(block, section, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "nb" or hasattr(nb, node.attr), node.attr
