"""The documents name only paths, layers, names and documents that exist."""

from __future__ import annotations

import builtins
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BASES = ("", "nbagent", "nbagent/core", "tests")
"""Folders in which a path in code quotes may begin."""
MADE = {"tests/browser/shots/", "runs.db"}
"""Paths that exist only after somebody made them."""
PATH = re.compile(r"(\.?\w[\w.-]*/)*(\w[\w.-]*/|[\w.-]+\.(py|js|css|md|json|toml|ipynb|db))")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def paths(page: Path) -> Iterator[tuple[str, bool]]:
    """The paths that a page names, and whether each exists."""
    text = prose(page)
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
    targets += re.findall(r"^\[\w+\]: (\S+)$", text, re.MULTILINE)
    for target in targets:
        yield target, (page.parent / target).exists()
    for quoted in re.findall(r"`([^`\n]+)`", text):
        for word in quoted.split():
            if PATH.fullmatch(word) and word not in MADE:
                yield word, any((ROOT / base / word).exists() for base in BASES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path):
    """Links, and file and folder names in code quotes."""
    assert [path for path, there in paths(page) if not there] == []


def test_the_layers_in_the_design_page_are_the_checked_ones():
    """The page contains each import-linter contract word for word."""
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            assert " > ".join(contract["layers"]) in design, contract["name"]


def test_every_name_in_design_and_decisions_is_in_the_code():
    """The failure lists the names that are missing."""
    words = set(dir(builtins))
    for source in (ROOT / "nbagent").rglob("*.py"):
        with source.open("rb") as file:
            words |= {token.string for token in tokenize.tokenize(file.readline)}
    named = re.findall(r"`(\w+)[`(]", prose(ROOT / "docs" / "design.md"))
    named += re.findall(r"`[A-Z]\w+\.(\w+)`", prose(ROOT / "docs" / "decisions.md"))
    assert sorted(set(named) - words) == []


def test_the_code_refers_to_no_missing_document():
    """The source of the package and its tests is searched."""
    for source in (*(ROOT / "nbagent").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        for name in re.findall(r"[\w/.-]+\.md\b", source.read_text(encoding="utf-8")):
            folders = ROOT, ROOT / "docs", ROOT / "nbagent" / "frontend"
            assert any((folder / name).exists() for folder in folders), f"{source}: {name}"
