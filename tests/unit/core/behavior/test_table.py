"""Every case of BEHAVIOR.md is a test named by its number, on every driver it can hold on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[3]

CASES = re.findall(
    r"\d\d+",
    """
    01 02 03 04 05 06 07 08 10 11 13 15 16 17 18 19
    21 22 25 26 27 28 29 30 34 35
    36 37 38 39 40 41 42 43 44 45 46 47 48 49
    51 52 53 54 55 57 58 59 60 61 63 64 65
    66 67 69 70 72 134 135
    73 74 75 76 78 79 80 81 82 83 84 85 87 88 89 90
    92 93 94 98 99 102 103 106 113 117 120 121 122 123 126 128 129 132 133 136
    """,
)

STEPS_ONLY = {
    "15": "return_tool_calls is an option of generate; a run executes what is asked",
    "60": "a run takes prompts and answers by different doors",
}
"""Cases on ``play_steps``: step by step, and as JSON in new processes."""

STORED_ONLY = {
    "57": "the second answer is one to a run; a history resumed twice is C58",
    "122": "only a run has an id",
    "128": "only a run is cancelled",
}
"""Cases on ``play_stored``: in memory, in a file, and reopened by other processes."""

ELSEWHERE = {
    "92": "two processes at once: tests/integration",
    "121": "a store that fails, at every append",
    "123": "the same",
    "126": "journals of other versions: the stores' contract",
    "129": "a thread that outlives its run belongs to one process",
    "132": "two processes at once: tests/integration",
    "136": "a process that is killed: tests/integration (so far it is told, not asked about)",
}
"""Cases that need a set-up of their own."""


def named() -> Iterator[tuple[set[str], set[str]]]:
    """The case numbers in the name of every test, and the fixtures that it takes."""
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                match = re.match(r"test((_c\d+)+)_", node.name)
                if match:
                    arguments = {a.arg for a in node.args.args}
                    yield set(match[1].split("_c")) - {""}, arguments


def test_every_case_of_the_table_is_a_test_on_every_driver_it_can_hold_on():
    """A number that no test carries, or a driver that a case is not played on, is named here."""
    found = list(named())
    special = [*STEPS_ONLY, *STORED_ONLY, *ELSEWHERE]
    assert len(special) == len(set(special))
    on = {
        "play": set(CASES) - set(special),
        "play_steps": set(STEPS_ONLY),
        "play_stored": set(STORED_ONLY),
    }
    for fixture, cases in on.items():
        played = set().union(*(numbers for numbers, taken in found if fixture in taken))
        assert cases - played == set(), fixture
    assert set(ELSEWHERE) - set().union(*(numbers for numbers, _ in found)) == set()
    assert set().union(*(numbers for numbers, _ in found)) - set(CASES) == set(), "no such case"
