"""Runs the guide's Python as a reader would: block after block, in one session."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.test_readme import execute

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


async def test_every_block_of_the_guide_does_what_its_text_says(capsys):
    """Tools, typed answers, policy, middleware, questions inside tools, inner agents, time limits, step by step."""
    names: dict = {"__name__": "__main__"}
    for block in BLOCKS:
        await execute(block, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
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
    ]
