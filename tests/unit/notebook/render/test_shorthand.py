"""Streamed text is sent about once, and a page with all patches equals the kernel's view."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.base.events import ModelResponded, RunStarted
from nbagent.core.base.messages import user
from nbagent.core.base.model import TextDelta
from nbagent.notebook.render import shorthand
from nbagent.notebook.view.view import SingleRunView
from tests.unit.notebook.page import Page, long

PIECES = st.sampled_from(
    [
        *[
            "word ",
            "a",
            "\n",
            "\n\n",
            "\r",
            " ",
            "    ",
            "# ",
            "- ",
            "1. ",
            "> ",
            "```\n",
            "$$",
            "$x$",
        ],
        *[
            "| a | b |\n|---|--:|\n",
            "| 1 | 2 |\n",
            "**",
            "`",
            "[l](https://x.y)",
            "<b>",
            "&",
            "\U0001f600",
        ],
        *["\x80", "\x85", "\x9f", "\u202e", "\ud800", "def f(x): return 'x' * 2\n", "word " * 500],
    ]
)
SENTENCE = "The **margin** of the south fell by `4.2` points, since discounts were wrong there. "
TEXTS = {
    "prose": SENTENCE * 5 + "\n\n## Next\n\n" + SENTENCE * 2 + "\n\n",
    "list": SENTENCE + "\n\n" + "- the price list of the second quarter\n" * 6 + "\n",
    "table": SENTENCE
    + "\n\n| region | revenue | margin |\n|:--|--:|--:|\n"
    + "| North | 1,204,330 | 188,020 |\n" * 9
    + "\n",
    "code": "Look:\n\n```python\n"
    + "def margin(rows):\n    return sum(r['m'] for r in rows)  # all\n\n" * 6
    + "```\n\n",
}


def started():
    """The view of a run whose model is about to answer, and its page."""
    view, page = SingleRunView("r"), Page()
    view.apply(RunStarted(at=0, agent="a", model="m", messages=[user("go")], max_turns=5))
    page.apply(view.flush(0.0))
    return view, page


@settings(max_examples=300)
@given(st.lists(st.tuples(PIECES, st.sampled_from([0, 0.06, 0.3])), max_size=40))
def test_a_page_equals_the_kernel_after_every_patch(steps):
    """For any pieces and any sending times."""
    (view, page), now = started(), 0.0
    for piece, wait in steps:
        view.apply(TextDelta(piece))
        if wait:
            now += wait
            page.apply(view.flush(now))
            assert page.view == view.snapshot()
    view.apply(ModelResponded(at=now, text="".join(piece for piece, _ in steps)))
    page.apply(view.flush(now + 1))
    assert page.view == view.snapshot()


@given(
    st.lists(st.sampled_from(["\x80", "\x81", "\x9f", "a", "</td>\n", "<td>", "<p>"])).map("".join)
)
def test_any_text_survives_its_shorthand(text):
    """Characters that the shorthand itself uses survive in a text."""
    assert long(shorthand.short(text)) == text


@pytest.mark.parametrize("pace", [100, 100_000])
@pytest.mark.parametrize(
    ("kind", "most"), [("prose", 1.5), ("list", 1.5), ("table", 2), ("code", 2)]
)
def test_text_is_sent_about_once_whether_it_arrives_slowly_or_in_a_burst(kind, most, pace):
    """With tags: at most 1.5 times the text's size, or twice the size of tables and code."""
    (view, _), sent, due = started(), 0, 0.0
    text = TEXTS[kind] * 10
    for number, at in enumerate(range(0, len(text), 4)):
        view.apply(TextDelta(text[at : at + 4]))
        now = number / pace
        if now >= due:
            due = now + 0.05
            sent += size(view.flush(now))
    view.apply(ModelResponded(at=1, text=text))
    sent += size(view.flush(due + 1))
    assert sent <= most * len(text)


def size(ops):
    """Bytes of the texts in these operations."""
    told = json.dumps([op.model_dump(mode="json") for op in ops or () if op.op != "head"])
    names = ("text", "html", "raw", "tail")
    found = []
    json.loads(told, object_hook=lambda o: found.extend(o.get(name) for name in names))
    return sum(len(part.encode()) for part in found if isinstance(part, str))
