"""Runs the blocks of the page on extending; the contract tests use its classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def page_names() -> dict[str, Any]:
    """The names that the page defines: a custom model and store."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS:
        if "await " not in block:
            exec(compile(block, "extending.md", "exec", dont_inherit=True), names)
    return names


async def test_every_block_of_the_page_does_what_its_text_says(capsys, monkeypatch, tmp_path):
    """A custom model runs tools and gets its data back; a custom store returns the journal."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS:
        await execute(block, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["All done. 2", "Signed before: ['#1']", "True"]
