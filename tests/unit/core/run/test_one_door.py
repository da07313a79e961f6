"""Only ``run/answers.py`` creates the event that answers a question."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nbagent
from nbagent.core.base.events import Resolved

PACKAGE = Path(nbagent.__file__).parent
DOOR = "core/run/answers.py"
FORM_RECORD = "notebook/cards/form_card.py"
"""The record of a form without a run, which is displayed and never stored."""


def resolutions_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that create a ``Resolved``: by its name, through ``made``, or through a class method."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        holder = function.value if isinstance(function, ast.Attribute) else None
        makers = [function, holder, *node.args[:1]] if _named(function) == "made" else [function]
        makers += [holder] if str(_named(function)).startswith("model_") else []
        if any(_named(maker) == Resolved.__name__ for maker in makers):
            yield node


def _named(node: ast.AST | None) -> str | None:
    return getattr(node, "id", None) or getattr(node, "attr", None)


def test_the_search_finds_every_way_to_make_one():
    """By name, by module, unchecked, parsed, and as the engine makes events."""
    ways = ["Resolved(a=1)", "events.Resolved(a=1)", "Resolved.model_construct(a=1)"]
    ways += ["Resolved.model_validate(a)", "made(Resolved, a=1)"]
    assert [len(list(resolutions_in(ast.parse(way)))) for way in ways] == [1] * len(ways)
    assert not list(
        resolutions_in(ast.parse("match e:\n case Resolved(by=by): pass\nisinstance(e, Resolved)"))
    )


def test_p2_no_other_module_makes_an_answer():
    """Not by live or nested runs, records, ``generate``, inbox, shell, tokens or deadlines."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(resolutions_in(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {DOOR, FORM_RECORD}


def test_p2_no_other_module_bypasses_the_single_entry_of_answers():
    """No module imports the functions that check whether an answer is in time and fits."""
    tree = ast.parse((PACKAGE / DOOR).read_text(encoding="utf-8"))
    makers = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(resolutions_in(node))
    }
    assert makers == {"_settled", "run_again"}
    callers = {
        path.relative_to(PACKAGE).as_posix(): name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("answers")
        for name in (alias.name for alias in node.names)
        if name.startswith("_") or name == "run_again"
    }
    assert callers == {"core/run/lost_calls.py": "run_again"}
