"""docs/behavior.md, docs/design.md and docs/security.md name existing tests, and every numbered test.

A link's words are a test's name: ``[a tool that asks pauses the conversation][pausing]`` is
``test_c01_a_tool_that_asks_pauses_the_conversation`` in the file that the page calls ``pausing``.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[3]
DOCS = TESTS.parent / "docs"
PLAYED = {"play": "every", "play_steps": "steps", "play_stored": "stored"}
"""The table's names of the fixtures that drive a conversation; other tests are "own"."""


class Link(NamedTuple):
    """A test as a page names it."""

    file: Path
    words: str


class Row(NamedTuple):
    """A row of a table, and the tests it names."""

    number: str
    cells: list[str]
    links: list[Link]


@cache
def numbered() -> dict[Link, tuple[set[str], set[str]]]:
    """Every test by file and words: the numbers in its name (``C36``, ``P1``), the fixtures it takes."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                match = re.fullmatch(r"test((?:_[cp]\d+)*)_(\w+)", node.name)
                if match:
                    link = Link(path, match[2].replace("_", " "))
                    assert link not in found, f"two tests of one name: {link}"
                    numbers = set(match[1].upper().split("_")) - {""}
                    found[link] = numbers, {a.arg for a in node.args.args}
    return found


def linked(page: str) -> list[Link]:
    """The tests that a page names."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return _links(text, _files(text))


def rows(page: str, number: str) -> list[Row]:
    """The rows of a page whose first cell has such numbers; promises not kept are left out."""
    text = (DOCS / page).read_text(encoding="utf-8")
    kept = re.split(r"^(?:## Not yet|Not kept today)", text, flags=re.MULTILINE)[0]
    found, files = [], _files(text)
    for line in kept.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(rf"{number}(, {number})*", cells[0]):
            found += [Row(one, cells, _links(line, files)) for one in cells[0].split(", ")]
    return found


def _files(text: str) -> dict[str, str]:
    """The files behind the names in a page's links."""
    return dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, re.MULTILINE))


def _links(line: str, files: dict[str, str]) -> list[Link]:
    named = re.findall(r"\[([^\]]+)\]\[(\w+)\]", line)
    return [Link((DOCS / files[file]).resolve(), words) for words, file in named]


CASES = rows("behavior.md", r"C\d+")


@pytest.mark.parametrize("page", ["behavior.md", "design.md", "security.md"])
def test_every_test_that_a_page_names_exists(page: str):
    """Tests that were renamed or moved are listed."""
    assert [link for link in linked(page) if link not in numbered()] == []


def test_every_case_has_a_test_of_its_number_on_the_listed_drivers():
    """The column *played* matches the tests' fixtures, and no case is in the table twice."""
    assert len(CASES) == len({row.number for row in CASES})
    for row in CASES:
        taken = [numbered()[link][1] for link in row.links if row.number in numbered()[link][0]]
        assert taken, f"{row.number} has no test"
        drivers = [name for fixture, name in PLAYED.items() if any(fixture in t for t in taken)]
        assert (row.number, row.cells[3]) == (row.number, [*drivers, "own"][0])


def test_every_numbered_test_is_in_the_row_of_its_number():
    """Cases are in docs/behavior.md, promises in docs/design.md."""
    cases = {(row.number, link) for row in CASES for link in row.links}
    promises = {row.number for row in rows("design.md", r"P\d+")}
    for link, (numbers, _) in numbered().items():
        assert {(n, link) for n in numbers if n.startswith("C")} <= cases
        assert {n for n in numbers if n.startswith("P")} <= promises, link


def test_every_promise_names_its_tests():
    """Each number is a promise, kept or "not kept today"; each kept promise has a test."""
    promises = rows("design.md", r"P\d+")
    numbers = [int(row.number[1:]) for row in promises]
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    named = {int(number) for number in re.findall(r"^\| P(\d+) \|", text, re.MULTILINE)}
    assert numbers == sorted(set(numbers))
    assert named == set(range(1, len(named) + 1))
    assert [row.number for row in promises if not row.links] == []


def test_every_road_names_a_test_or_is_marked_as_not_applicable():
    """Each cell of the road tables in docs/security.md names a test, or is a dash; each road has a test."""
    text = (DOCS / "security.md").read_text(encoding="utf-8")
    section = text.split("\n## Roads and promises\n")[1].split("\n## ")[0]
    lines, files = [line for line in section.splitlines() if line.startswith("| ")], _files(text)
    roads = [line for line in lines if not line.startswith("| road ")]
    assert len(roads) > 20
    for line in roads:
        name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        assert [cell for cell in cells if cell != "—" and not _links(cell, files)] == [], name
        assert _links(line, files), name
