"""Plays each recipe of the cookbook: a script is the model, questions are answered, printed output must match."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nbagent as nb
from nbagent.core.hooks import hooks
from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
FIRST, *PARTS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
RECIPES = {part.partition("\n")[0]: part for part in PARTS}
BLOCKS = re.compile(r"^```(python|output)\n(.*?)^```", re.DOTALL | re.MULTILINE)

call = nb.ScriptedModel.call
CUPS = "SELECT customer, SUM(cups) AS cups FROM {} GROUP BY customer ORDER BY cups DESC"
ASKED = [call("query_data", sql=CUPS.format("orders")), "Grace does, with 10 cups."]
MOODS = '{"value": [{"row": 0, "mood": "good"}, {"row": 1, "mood": "bad"}, {"row": 2, "mood": "mixed"}, {"row": 9, "mood": "bad"}]}'
ROWS = '{"value": [{"customer": "Ada", "cups": 3, "day": "2026-03-02"}, {"customer": "Alan", "cups": 2, "day": null}]}'
BARS = {"title": "Cups", "names": ["Ada", "Grace", "Alan"], "heights": [3, 10, 2]}
SHARE = "orders['share'] = orders.cups / orders.cups.sum()"
SAID = {
    "Ask about a table": ASKED,
    "Classify a column": [MOODS],
    "Extract typed rows": [ROWS.replace("3", "0", 1), ROWS],
    "Approve before saving, with a preview": [
        call("save_unique", columns=["customer", "cups", "day"]),
        "I saved three orders; Grace's was there twice.",
    ],
    "A flow that cleans": [],
    "SQL": [call("query_data", sql=CUPS.format("orders")), "Grace 10, Ada 3, Alan 2."],
    "Charts": [call("bars", **BARS), "Grace's bar is the longest."],
    "Let it write the code": [
        call("run_python", code=SHARE),
        "Done: the column is called share.",
    ],
    "Survive a restart": [call("pay", to="Ada", euros=40), "Ada has her 40 euros."],
    "One page for a colleague": ASKED,
    "Replay in CI": ASKED,
}
"""The model's responses in each recipe."""
ANSWERED = {"A flow that cleans": ["fax"]}
"""The answers that are not approvals."""
MADE = {"One page for a colleague": {"report.html"}, "Replay in CI": {"session.json"}}
"""The files that a recipe leaves and its blocks do not read."""


def test_each_recipe_is_played():
    """Each recipe has a script, and no script is unused."""
    assert [*SAID] == [*RECIPES]


@pytest.mark.parametrize("recipe", RECIPES)
async def test_a_recipe_does_what_its_text_says(recipe, capsys, monkeypatch, tmp_path):
    """Each recipe runs after the page's first block, in its own session; questions between two blocks are approved."""
    monkeypatch.chdir(tmp_path)
    model = nb.ScriptedModel(SAID[recipe])
    monkeypatch.setattr(hooks, "model_named", lambda _name: model)
    monkeypatch.setitem(sys.modules, "__main__", session := ModuleType("__main__"))
    names = vars(session)
    printed = ""
    for kind, block in [*BLOCKS.findall(FIRST), *BLOCKS.findall(RECIPES[recipe])]:
        if kind == "output":
            assert printed == block
            continue
        await answered(names.get("run"), ANSWERED.get(recipe))
        await execute(block, names)
        printed = capsys.readouterr().out
    for value in names.values():
        if isinstance(value, sqlite3.Connection):  # Python 3.13+ warns about an open connection
            value.close()
    made = {path.name for path in tmp_path.iterdir()}
    assert MADE.get(recipe, set()) <= made
    if "report.html" in made:
        assert "Grace does, with 10 cups." in (tmp_path / "report.html").read_text("utf-8")


async def answered(run: nb.Run | None, answer: object) -> None:
    """Approve or answer each question, as a person would."""
    if run is None:
        return
    await run.settled()
    for asked in run.interrupts:
        await (run.approve(asked) if answer is None else run.respond(asked, answer))
