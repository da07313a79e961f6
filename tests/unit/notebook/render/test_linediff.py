"""Line diffs: examples shared with the page's tests, and properties of any two texts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.notebook.render import static as linediff
from nbagent.notebook.render.static import line_diff, render, word_diff
from nbagent.notebook.wire import CardHead, Fact, RecordItem, View

CASES = json.loads((Path(__file__).parents[3] / "fixtures" / "diff.json").read_text())
HEAD = CardHead(
    run="r", agent="a", prompt="p", status="completed", status_text="done", started_at=0.0
)
WORDS = st.text(alphabet="ab ,.\t(é😀", max_size=30)
TEXTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map("\n".join)


@pytest.mark.parametrize("case", CASES)
def test_the_line_diff_equals_that_of_the_page(case):
    """The live card and the static one show the same change."""
    assert [list(line) for line in line_diff(case["before"], case["after"])] == case["lines"]
    fact = Fact(label="text", value=case["after"], changed_from=case["before"], code=True)
    record = RecordItem(key="a:1", title="t", decision="d", tone="good", details=[fact])
    card = render(View(head=HEAD, items=[record]), style=False)
    assert f'<div class="nba-mono">{case["html"]}</div></dd>' in card


@given(TEXTS, TEXTS, st.sampled_from([0, 10_000]))
def test_a_diff_contains_both_texts(before, after, pairs):
    """No line is lost or invented, whether compared line by line or as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "MAX_PAIRS", pairs)
        lines = line_diff(before, after)
    assert "\n".join(line for mark, line in lines if mark != "+") == before
    assert "\n".join(line for mark, line in lines if mark != "-") == after


@given(WORDS, WORDS)
def test_marked_words_add_up_to_the_line(before, after):
    """Whatever is marked in a changed line, both sides keep their text."""
    was, now = word_diff(before, after)
    assert "".join(text for _, text in was) == before
    assert "".join(text for _, text in now) == after
