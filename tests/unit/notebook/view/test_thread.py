"""A chat's thread on a page: a patched page equals a newly opened page."""

from __future__ import annotations

import random

import pytest

import nbagent as nb
from nbagent.core.base.events import ModelResponded, RunStarted
from nbagent.core.base.messages import user
from nbagent.notebook.cards.chat_card import chat_bundle
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import NoticeItem
from tests.unit.notebook.page import Page, Story


@pytest.mark.parametrize("seed", range(25))
def test_a_page_that_got_all_patches_equals_a_new_one(seed):
    """For random runs, random events and random removals of runs."""
    rng = random.Random(seed)
    thread, page, clock, views = ThreadView("outer"), Page(), 0.0, []
    for _ in range(rng.randint(2, 6)):
        view = SingleRunView(f"r{len(views)}", in_thread=True)
        thread.add_run(view)
        views.append(view)
        for event in Story(rng).make():
            view.apply(event)
            if rng.random() < 0.3:
                clock += 5
                page.apply(thread.flush(clock))
        if rng.random() < 0.3:
            thread.keep_first(count := rng.randint(0, len(views)))
            del views[count:]
        while thread.dirty:
            clock += 5
            page.apply(thread.flush(clock))
        page.apply(thread.flush(clock))
        shown = thread.snapshot()
        assert page.view == shown
        keys = [item.key for item in shown.items]
        assert len(keys) == len(set(keys))
        assert all(thread.place(key) is not None for key in keys)


def test_the_frame_of_a_thread_has_the_sums_of_its_runs():
    """The prompts are editable items among the other items."""
    thread = ThreadView("guide")
    assert (thread.snapshot().head.status_text, thread.snapshot().head.chat) == ("ready", True)
    for name in ("one", "two"):
        view = SingleRunView(name, in_thread=True)
        begun = RunStarted(at=0, agent="guide", model="m", messages=[user(name)], max_turns=9)
        view.apply(begun)
        view.apply(ModelResponded(at=1, text="ok", input_tokens=3, output_tokens=2))
        thread.add_run(view)
    head = thread.snapshot().head
    assert (head.run, head.prompt, head.tokens) == ("two", "", 10)
    said = [item for item in thread.snapshot().items if item.type == "message"]
    assert [(item.key, item.text, item.editable) for item in said] == [
        ("t1:m1", "one", True),
        ("t2:m1", "two", True),
    ]


def test_a_prompt_below_a_notice_of_the_notebook_is_still_a_message():
    """The first item may be a notice about the store; the prompt is still a message."""
    view = SingleRunView("r", in_thread=True)
    view.notice("kept", NoticeItem(key="kept", text="Runs are stored in runs.db"))
    view.apply(RunStarted(at=0.0, agent="a", model="m", messages=[user("first")], max_turns=3))
    assert [item.text for item in view.snapshot().items] == ["Runs are stored in runs.db", "first"]


async def test_the_static_thread_has_every_message_and_answer_once():
    """In HTML and plain text; the user's text is escaped."""
    chat = nb.Agent(nb.ScriptedModel(["First **answer**.", "Second."]), name="guide").chat()
    await chat.send(["<b>Hello</b>", nb.File(b"a;b", "text/csv", name="rows.csv")])
    await chat.send("And?")
    bundle = chat_bundle(chat)
    assert bundle["text/html"].count("<section") == 1
    assert 'class="nbagent nba-chat nba-static' in bundle["text/html"]
    assert "&lt;b&gt;Hello&lt;/b&gt;" in bundle["text/html"]
    for each in ("rows.csv", "First <strong>answer</strong>", "And?", "Second."):
        assert bundle["text/html"].count(each) == 1
    lines = [line for line in bundle["text/plain"].splitlines() if line]
    assert lines[0] == "guide · done"
    assert lines.index("And?" if "And?" in lines else "> And?") < lines.index("Second.")
