"""Runs the Python of each page as a reader would: block after block, in one session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from tests.integration.test_readme import execute

DOCS = Path(__file__).parents[2] / "docs"
PRINTED: dict[str, list[str] | None] = {
    "durable": None,
    "extending": ["All done. 2", "Signed before: ['#1']", "True"],
    "forms": ["Ada Lovelace 19.90 card [2, 1]", "True", "{'days': 5}", "by van to Oslo"],
    "guide": [
        "[3, 'two parts']",
        "total",
        "8",
        "16",
        "Created: double (list of 2).",
        "Rome",
        "1400000",
        "approval transfer A large one",
        "Done.",
        "XYZ",
        "Clean. ['allow wipe']",
        "paid 5000.0, approved: True",
        "Sent. mail to ada (logged)",
        "wood",
        "3 nights at Stella, Rome",
        "['name', 'age']",
        "You are in. False",
        "boss ▸ banker ▸ transfer",
        "All settled.",
        "office ▸ check ▸ checker ▸ approve",
        "Order 7 is fine.",
        "not signed",
        "started on 3 rows",
        "The accuracy is 0.9.",
        "Stella",
        "Coal it is.",
    ],
    "many": None,
}
"""The lines that a page prints; None where the comment of each ``print`` has its line."""


def blocks_of(page: str) -> list[str]:
    """The blocks of Python of a page."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def names_of_extending() -> dict[str, Any]:
    """The names that the page on extending defines, for contract tests: a custom model and store."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of("extending"):
        if "await " not in block:
            exec(compile(block, "extending.md", "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("page", PRINTED)
async def test_every_block_of_a_page_does_what_its_text_says(
    page: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The blocks run in order, and print what the page says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = blocks_of(page)
    try:
        for block in blocks:
            await execute(block, names)
    finally:
        nb.use_store(None)
    said = re.findall(r"^print\(.*  # (.*)$", "".join(blocks), re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == (PRINTED[page] or said)
