"""Runs the Python of the page on durable runs in one session; it must print the expected comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "durable.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


async def test_every_block_of_the_page_does_what_its_text_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Store, start, open again, answer, back up, list who decided, clean up."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in BLOCKS:
            await execute(block, names)
    finally:
        nb.use_store(None)
    told = re.findall(r"^print\(.*  # (.*)$", "".join(BLOCKS), re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == told
