"""A summary of many questions shows every value that one answer covers, and lists the others by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.base.messages import canonical
from nbagent.notebook.view import covers
from nbagent.notebook.view.covers import FEW, MAX_VALUE, MIN, Summary

USUAL = [10, 11, 12, 13, 14, 15, 16, 17]
WORDS = [f"word {n}" for n in range(8)]
CASES = [
    ("numbers that are near", [*USUAL, 28], {}),
    ("a number far above", [*USUAL, 987_654_321], {"987654321": "far from the others"}),
    ("a number far below", [*USUAL, -50], {"-50": "far from the others"}),
    ("a number that is too large to count with", [*USUAL, 10**400], {str(10**400): "far from"}),
    ("equal numbers, and one of their size", [5] * 9 + [20], {}),
    ("equal numbers, and one far above", [5] * 9 + [21], {"21": "far from the others"}),
    ("a truth value is not a number", [*USUAL, True], {"true": "another type"}),
    ("text that looks like the numbers", [*USUAL, "13"], {'"13"': "another type"}),
    ("nothing is no other type", [*USUAL, None, None], {}),
    ("texts", WORDS, {}),
    ("a text with a letter of another script", [*WORDS, "p\u0430y"], {"p\u0430y": "Cyrillic"}),
    ("a text with a hidden character", [*WORDS, "a\u200bb"], {"a⟨U+200B⟩b": "hidden"}),
    ("a text much longer", [*WORDS, "x" * 41], {"x" * 41: "much longer"}),
    ("texts that are cut", [f"{n}{'x' * MAX_VALUE}" for n in "ab"], {"x" * 9: "161 characters"}),
    ("a list that is cut", [[*range(100)]], {"[0, 1": "291 characters"}),
    ("too few to differ", [1, 987_654_321, 2, 3], {}),
]


@pytest.mark.parametrize(("column", "odd"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_odd_values_are_listed_with_the_reason(column, odd):
    """All others are covered without being opened."""
    summary = Summary({n: {"it": value} for n, value in enumerate(column)})
    assert len(summary.odd) == (2 if "x" * 9 in odd else len(odd))
    for one in summary.odd:
        [why] = [why for text, why in odd.items() if text in one.fact.value]
        assert why in one.why
    keys = {key for one in summary.odd for key in one.keys}
    assert [key for key in range(len(column)) if key not in keys] == summary.covered(())
    assert len(summary.covered([one.id for one in summary.odd])) == len(column)


def test_few_values_are_counted_numbers_have_a_range_and_texts_are_listed():
    """Left out values and null are counted too."""
    questions: dict[int, dict[str, Any]] = {
        n: {"to": f"ACC-{n}", "amount": n, "why": ("duplicate", "broken")[n % 3 > 0]}
        for n in range(1, 31)
    }
    del questions[1]["amount"], questions[2]["why"]
    questions[3]["amount"] = None
    found = Summary(questions).covers(())
    to, why, amount = found.inputs
    assert found.n == 30
    assert (to.text, len(to.listed), to.more) == ("30 different values of 5 to 6 characters", 30, 0)
    assert amount.text == "2 to 30, sum 461"
    assert amount.values == [("null", 1), ("(left out)", 1)]
    assert (len(amount.bars), sum(amount.bars)) == (12, 28)
    assert why.values == [("broken", 19), ("duplicate", 10), ("(left out)", 1)]


def test_text_that_is_not_judged_has_no_marks():
    """Latin letters and common signs are fast, as there may be thousands of texts."""
    chars = map(chr, range(0x20, 0x2100))
    texts = [text for c in chars for text in (c, f"{c}a", f"a{c}", f"a{c}b", f"b {c}")]
    plain = [text for text in texts if covers._PLAIN.fullmatch(text)]
    assert len(plain) > 1_000
    assert [text for text in plain if covers._shown(text) != (text, "")] == []


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3),
)  # fmt: skip


@given(st.lists(st.fixed_dictionaries({}, optional={"a": VALUES, "b": VALUES}), max_size=30))
def test_each_covered_value_is_in_the_summary(rows):
    """As one of few values, in a range, or among listed texts."""
    summary = Summary(dict(enumerate(rows)))
    keys, found = summary.covered(()), summary.covers(())
    assert found.n == len(keys)
    for spread in found.inputs:
        inside = [rows[key][spread.name] for key in keys if spread.name in rows[key]]
        counted = sum(n for _, n in [*spread.values, *spread.listed]) + sum(spread.bars)
        assert counted == len(keys)
        if len({*map(canonical, inside)}) <= FEW or len(rows) < MIN:
            assert not spread.bars
