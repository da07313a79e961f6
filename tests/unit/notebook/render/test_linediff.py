"""Line diffs: the examples that the page checks too, and what holds for any two texts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.notebook.render import static as linediff
from nbagent.notebook.render.static import line_diff

CASES = json.loads((Path(__file__).parents[3] / "fixtures" / "diff.json").read_text())
TEXTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map("\n".join)


@pytest.mark.parametrize("case", CASES)
def test_the_lines_are_those_that_the_page_finds(case):
    """The live card and the static one show the same change."""
    assert [list(line) for line in line_diff(case["before"], case["after"])] == case["lines"]


@given(TEXTS, TEXTS, st.sampled_from([0, 10_000]))
def test_a_diff_holds_both_texts(before, after, pairs):
    """No line gets lost or invented, whether compared line by line or as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "MAX_PAIRS", pairs)
        lines = line_diff(before, after)
    assert "\n".join(line for mark, line in lines if mark != "+") == before
    assert "\n".join(line for mark, line in lines if mark != "-") == after
