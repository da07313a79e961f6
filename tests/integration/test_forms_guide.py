"""Runs the forms guide's Python as a reader would: block after block, in one session."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "forms.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


async def test_every_block_of_the_forms_guide_does_what_its_text_says(capsys):
    """The pictured model validates its default values; types, schemas and tools ask in the same way."""
    names: dict = {"__name__": "__main__"}
    for block in BLOCKS:
        await execute(block, names)
    assert capsys.readouterr().out.splitlines() == [
        "Ada Lovelace 19.90 card [2, 1]",
        "True",
        "{'days': 5}",
        "by van to Oslo",
    ]
