"""The last item of a run: its final answer, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from nbagent.core.base.events import RunCancelled, RunCompleted, RunFailed
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.items import FixedNode, Node, TextNode
from nbagent.notebook.wire import NoticeItem

KEY = "end"


def last_word(
    event: RunCompleted | RunFailed | RunCancelled, said: str, name_of: Callable[[str], str]
) -> Node | None:
    """What stands below all else; None where the last response, ``said``, is the answer already."""
    match event:
        case RunFailed(error=error, message=message):
            text = TEXTS["failed"].format(error=reveal(error), message=reveal(message))
            return FixedNode(NoticeItem(key=KEY, tone="bad", text=text))
        case RunCancelled():
            return FixedNode(NoticeItem(key=KEY, tone="warn", text=_stopped(event, name_of)))
        case RunCompleted(text=text):
            return _answer(text) if text.strip() and text != said else None
        case never:
            assert_never(never)


def _stopped(event: RunCancelled, name_of: Callable[[str], str]) -> str:
    told = TEXTS["cancelled_here" if event.by == "form" else "cancelled"]
    text = told.format(who=reveal(event.by))
    if not event.still_running:
        return text
    tools = ", ".join(reveal(name_of(call_id)) for call_id in event.still_running)
    return f"{text} {TEXTS['still_running'].format(tools=tools)}"


def _answer(text: str) -> Node:
    node = TextNode(KEY)
    node.close(text)
    return node
