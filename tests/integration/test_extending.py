"""The page on extending: its blocks run, and its classes are taken into the contract tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def page_names() -> dict[str, Any]:
    """What the page defines: a model and a store of one's own."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS:
        if "await " not in block:
            exec(compile(block, "extending.md", "exec", dont_inherit=True), names)
    return names


async def test_every_block_of_the_page_does_what_its_text_says(capsys, monkeypatch, tmp_path):
    """A model of one's own runs tools and has its data back; a store of one's own gives the journal back."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS:
        await execute(block, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["All done. 2", "Signed before: ['#1']", "True"]
