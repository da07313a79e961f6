"""Files in the card: a prompt's below its text, a tool's in its row; each once, bounded, named."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

import nbagent as nb
from nbagent.core.base.file_parts import file_part
from nbagent.core.run.run import session_of
from nbagent.core.tools.image_bytes import png
from nbagent.notebook.render import plain, rich, static
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import CallItem, MessageItem

SQUARE = png(np.eye(4))
URL = f"data:image/png;base64,{base64.b64encode(SQUARE).decode()}"
PDF = nb.File(b"%PDF-1.4" + b"0" * 120_000, name="scan.pdf")


def drawn(run: nb.Run) -> SingleRunView:
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    return view


async def test_a_prompt_shows_its_files_below_its_text():
    """Pictures are drawn, others have name and size; live, in static HTML and as text."""
    run = nb.Agent(nb.ScriptedModel(["Nothing."])).run(
        ["What is odd?", nb.File(SQUARE, name="scan.png"), PDF]
    )
    await run
    view = drawn(run).snapshot()
    assert view.head.prompt == "What is odd?"
    item = view.items[0]
    assert isinstance(item, MessageItem)
    assert [(f.kind, f.alt or f.data) for f in item.files] == [
        ("image", f"image scan.png, {len(SQUARE)} bytes"),
        ("text", "file scan.pdf, 120 kB"),
    ]
    markup = static.render(view)
    assert f'src="{URL}"' in markup
    assert "file scan.pdf, 120 kB" in markup
    text = plain.render(view)
    assert (
        f"> What is odd?\n\n> [image scan.png, {len(SQUARE)} bytes]\n> [file scan.pdf, 120 kB]"
        in text
    )


async def test_a_picture_of_a_tool_is_in_its_row_and_its_placeholder_word_is_not():
    """Beside the tool's other output; open in static HTML, and named in text."""

    @nb.tool
    def alone() -> nb.File:
        """Draw."""
        return nb.File(SQUARE, name="a.png")

    @nb.tool
    def both() -> nb.ToolResult:
        """Draw."""
        return nb.ToolResult("a square", files=[nb.File(SQUARE, name="b.png"), PDF])

    call = nb.ScriptedModel.call
    model = nb.ScriptedModel([[call("alone"), call("both")], "Done."])
    run = nb.Agent(model, tools=[alone, both]).run("Go")
    await run
    view = drawn(run).snapshot()
    rows = [item for item in view.items if isinstance(item, CallItem)]
    assert [row.result for row in rows] == [None, "a square"]
    assert [[o.alt or o.data for o in row.outputs] for row in rows] == [
        ["image a.png"],
        ["image b.png", "file scan.pdf"],
    ]
    assert rows[0].outputs[0].data == URL
    assert "→ [image a.png]" in plain.render(view)
    assert static.render(view).count(URL) == 2


async def test_a_live_view_with_files_equals_the_view_of_the_journal():
    """For a prompt, a queued message and a continued history: the view is a fold over events."""
    ask = nb.interrupt_tool("ask", output=str)
    call = nb.ScriptedModel.call
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "Done."]), tools=[ask])
    run = agent.run(["Go", SQUARE], attended=True, show=False)
    live = SingleRunView(run.id)
    for event in session_of(run).journal.subscribe(live.apply):
        live.apply(event)
    await run.settled()
    agent.run(["And this", PDF], after=run, pending="queue")
    messages = [item for item in live.snapshot().items if isinstance(item, MessageItem)]
    assert [len(item.files) for item in messages] == [1, 1]
    assert live.snapshot().items == drawn(run).snapshot().items
    saved = json.loads(json.dumps(run.messages))
    again = agent.run(messages=saved, attended=True, show=False)
    await again.settled()
    messages = [i for i in drawn(again).snapshot().items if isinstance(i, MessageItem)]
    assert [(i.text, len(i.files)) for i in messages] == [("", 1), ("And this", 1)]
    await again.cancel()
    run.respond(run.interrupts[0], "yes")
    await run


async def test_the_frequently_sent_head_has_no_file_in_it():
    """The head is sent whenever a count changes; a picture is sent once."""
    run = nb.Agent(nb.ScriptedModel(["Done."])).run(["Look", SQUARE])
    view = SingleRunView(run.id)
    await run
    sent = ""
    for event in run.journal:
        view.apply(event)
        sent += "".join(op.model_dump_json() for op in view.flush(0.0) or [])
    assert sent.count(URL) == 1


def test_pictures_beyond_the_limit_of_a_page_are_named():
    """Saved notebooks and snapshots have a size limit."""
    large = file_part(SQUARE + b"0" * 4_000_000, "image/png", "large.png")
    kinds = [piece.kind for piece in rich.files([large] * 4, sized=True)]
    assert kinds == ["image", "image", "text", "text"]


@pytest.mark.parametrize(
    "part",
    [
        {"media_type": "image/svg+xml", "data": "PHN2Zz4="},
        {"media_type": "image/png", "data": 'x" onerror="alert(1)'},
        {"media_type": "text/html", "data": "PHNjcmlwdD4=", "name": "<script>alert(1)</script>"},
    ],
)
def test_data_that_is_not_a_picture_is_never_drawn_as_one(part):
    """Drawings with scripts, damaged data and names with markup are shown as text."""
    [piece] = rich.files([{"type": "file", **part}], sized=True)
    assert piece.kind == "text"
    item = MessageItem(key="m", text="", files=[piece])
    assert "<script>" not in static._message(item)
    assert "onerror=" not in static._message(item).replace("&quot;", '"').split(">", 2)[1]
