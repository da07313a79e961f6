"""P14: no step of drawing what a model or tool sends blocks the kernel's loop for long."""

from __future__ import annotations

import gc
import time

import pytest

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    MessageQueued,
    ModelResponded,
    Resolved,
    RunCompleted,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.base.messages import user
from nbagent.core.base.model import Discarded, ReasoningDelta, TextDelta, ToolCallDelta
from nbagent.core.tools.call_output import Displayed, Printed, Progressed
from nbagent.notebook.render import plain, static
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.view import SingleRunView

SIZE = 1_000_000
FACTOR = 10
"""Allowed duration of a step, in multiples of ``calibrated``. Real faults take seconds to hours."""

UNITS = {
    "words": "word and word ",
    "one word": "a",
    "newlines": "\n",
    "returns": "\r",
    "returned lines": "a\rb\n",
    "short lines": "a\n",
    "blanks": " ",
    "blank lines": " \n",
    "brackets": "[",
    "images": "![",
    "links": "[a](",
    "link definitions": "[a]: x\n",
    "open brackets": "[\n",
    "emphasis": "*a **a _a ",
    "strong": "**a",
    "struck": "~~a",
    "ticks": "`a",
    "quotes": "> ",
    "lists": "- ",
    "list": "1. a\n",
    "headings": "# a\n",
    "rules": "---\n",
    "fences": "```\n",
    "python": "```python\n\n ",
    "table": "|a|b|\n|-|-|\n",
    "columns": "|-",
    "formulas": "$x^2$ ",
    "open formulas": "$$a ",
    "formula blocks": "$$\n",
    "bracket formulas": "\\(a\\) ",
    "open bracket formulas": "\\[ a\n",
    "backslashes": "\\",
    "entities": "&amp;",
    "angles": "<",
    "images of html": "<img ",
    "nested": "<div>",
    "formatting": "<b><p>",
    "cells": "<td>1",
    "attributes": "<a b c d e f g h ",
    "comments": "<!--",
    "colors": "\x1b[31m",
    "escapes": "\x1b",
    "hidden": "\u202e",
    "emoji": "\U0001f469\u200d",
    "marks": "\u0301",
    "json": '{"a":',
    "digits": "1.1",
    "percent": "1%|",
}


def calibrated() -> float:
    """Seconds for a loop that took 25 ms on the machine where the bounds were measured."""
    start = time.thread_time()
    sum(number * number for number in range(700_000))
    return time.thread_time() - start


def deep(text: str) -> object:
    """The text inside nested objects and lists."""
    return {"a": [{"b": [text]}]}


def steps(text: str):
    """The steps on the loop for a run whose messages, calls, outputs and questions contain ``text``."""
    view = SingleRunView("r")
    words = {"text": text, text[:1_000]: deep(text), **{f"n{i}": i for i in range(5_000)}}
    call = CallRequested(id="c", name="act", input=words)
    asked = CallRequested(id="d", name="act", input=words)
    told = CallRequested(id="e", name="act", input={})
    now = iter(range(1_000_000))
    mimes = ("text/html", "text/markdown", "text/latex", "text/plain", "application/json")
    bundles = [{mime: text} for mime in mimes]
    bundles += [{"image/svg+xml": text}, {"image/png": text}, {"application/json": deep(text)}]
    events = [
        RunStarted(at=0, agent="a", model="m", messages=[user(text)], max_turns=3),
        ReasoningDelta(text),
        TextDelta(text[:30_000]),
        *(TextDelta(text[i : i + 20_000]) for i in range(30_000, len(text), 20_000)),
        ToolCallDelta(0, text, "c", text),
        Discarded(text),
        ModelResponded(at=1, text=text, reasoning=text, calls=(call, asked, told)),
        ToolStarted(at=1, call_id="c", attempt=1, owner="o", input={"text": text[1:]}),
        Printed("c", "stdout", text),
        *(Displayed("c", bundle) for bundle in bundles),
        ToolFinished(at=2, call_id="c", output=words, printed=text[:20_000]),
        Interrupted(
            at=3, id="i", call_id="d", tool_name="act", kind="approval", expects="approval",
            input=words, metadata={"message": text, "why": deep(text)}, note=text[:1_000],
        ),
        Progressed("d", 0.5, text),
        MessageQueued(at=4, text=text, by="me"),
        Resolved(at=5, id="i", call_id="d", resolution=Reject(reason=text), by="me"),
        Interrupted(
            at=5, id="j", call_id="e", tool_name="act", kind="ask", expects="value", input={},
            metadata=deep(text),
        ),
        Resolved(at=6, id="j", call_id="e", resolution=Respond(output=words), by="me"),
        RunCompleted(at=7, text=text + "."),
    ]  # fmt: skip
    for event in events:
        yield type(event).__name__, lambda event=event: view.apply(event)
        yield "flush", lambda: [op.model_dump(mode="json") for op in view.flush(next(now)) or ()]
    yield "snapshot", lambda: view.snapshot().model_dump(mode="json")
    snapshot = view.snapshot()
    assert len(snapshot.model_dump_json()) < 5 * SIZE
    yield "static", lambda: static.render(snapshot)
    yield "plain", lambda: plain.render(snapshot)


@pytest.mark.variant
@pytest.mark.parametrize("name", UNITS)
def test_no_step_of_drawing_a_megabyte_blocks_the_loop(name):
    """The longest step takes about as long as a calibrated loop, not as long as a pattern's worst case."""
    unit = UNITS[name]
    text = (unit * (SIZE // len(unit) + 1))[:SIZE]
    gc.collect()
    gc.disable()  # otherwise collecting other tests' garbage could be the longest step
    try:
        for _ in range(3):  # a real fault is slow every time; a busy machine is not
            longest = ("", 0.0)
            for step, do in steps(text):
                start = time.thread_time()
                do()
                longest = max(longest, (step, time.thread_time() - start), key=lambda one: one[1])
            if longest[1] < FACTOR * calibrated():
                return
    finally:
        gc.enable()
    raise AssertionError(longest)


LARGE = "word " * 2_000_000


def sent(*events) -> tuple[int, int, int]:
    """Characters sent to an open page, to a page opened afterwards, and into the notebook."""
    view, patches = SingleRunView("r"), 0
    for now, event in enumerate(events):
        view.apply(event)
        patches += sum(len(op.model_dump_json()) for op in view.flush(now) or ())
    snapshot = view.snapshot()
    return patches, len(snapshot.model_dump_json()), len(static.render(snapshot, style=False))


def beginning(arguments: str) -> list[object]:
    """The first events of a run whose model calls a tool with these arguments."""
    call = CallRequested(id="c", name="act", input={"text": arguments})
    pieces = [arguments[at : at + 100_000] for at in range(0, len(arguments), 100_000)]
    return [
        RunStarted(at=0, agent="a", model="m", messages=[user("hi")], max_turns=3),
        *(ToolCallDelta(0, piece, "c", "act") for piece in pieces),
        ModelResponded(at=1, text="", calls=(call,)),
    ]


def test_a_call_of_ten_megabytes_is_not_sent_to_the_page():
    """The page shows the beginning and end of arguments and output, and counts the omitted characters."""
    started = ToolStarted(at=2, call_id="c", attempt=1, owner="o", input={"text": LARGE})
    ended = ToolFinished(at=3, call_id="c", output=LARGE)
    assert max(sent(*beginning(LARGE), started, ended)) < 200_000


@pytest.mark.parametrize("expects", ["approval", "edit"])
def test_an_approval_of_ten_megabytes_says_that_it_does_not_show_all(expects):
    """The call can be approved, with a note about the omitted input, but not edited in a form."""
    asked = Interrupted(
        at=2, id="i", call_id="c", tool_name="act", kind="approval", expects=expects,
        editable=expects == "edit", input={"text": LARGE}, metadata={"message": "Run it?"},
    )  # fmt: skip
    assert max(sent(*beginning(LARGE), asked)) < 400_000
    view = SingleRunView("r")
    for event in (*beginning(LARGE), asked):
        view.apply(event)
    form = view.snapshot().items[-1]
    assert form.spec is None
    assert form.note == TEXTS["not_whole"]
    assert "9,900,000 characters left out" in form.facts[-1].value
    assert TEXTS["not_whole"] in plain.render(view.snapshot())
    assert view.question("i").resolve("approve") == Restart()
