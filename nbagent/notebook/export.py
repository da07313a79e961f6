"""A run or a chat as one document to send: HTML, Markdown or a notebook. The run may still be waiting.

The output of models and tools is sanitized as in the card, so that no document runs or loads anything.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from nbagent.core.agent import Agent
from nbagent.core.base.events import StoredEvent
from nbagent.core.base.messages import Message, text_of
from nbagent.core.call.body import Raised
from nbagent.core.chat import Chat, thread_of
from nbagent.core.flow import Flow
from nbagent.core.journal.default import is_default, reported_place
from nbagent.core.registry import known_named
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.session import Session
from nbagent.core.tools.tool import Tool

from . import kernel
from .render import as_markdown, facts, static
from .render.reveal import reveal
from .render.sanitize import escape
from .texts import TEXTS
from .view.question_kinds import Types
from .view.thread import ThreadView
from .view.view import SingleRunView
from .wire import Item, NoticeItem, TextItem, View

Format = Literal["html", "markdown", "notebook"]
Piece: TypeAlias = tuple[Literal["markdown", "code"], str]
"""A piece of Markdown; or of Python that the model wrote and nobody has run."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 24px 16px; background: Canvas; color: CanvasText; }}
main {{ max-width: {width}; margin: 0 auto; }}
{style}@media print {{
  body {{ padding: 0; }}
  main {{ max-width: none; }}
  thead {{ display: table-header-group; }}
  tr, summary {{ break-inside: avoid; }}
  h1, h2, summary {{ break-after: avoid; }}
  ::details-content {{ display: block; content-visibility: visible; block-size: auto; }}
  main pre, main code {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
  main * {{ max-height: none !important; overflow: visible !important; }}
}}
</style>
</head>
<body><main>{content}</main></body>
</html>
"""
_PYTHON = re.compile(r"^```(?:i?python3?|py)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r'<pre class="code"><code>(.*?)</code></pre>', re.DOTALL)
_TAG = re.compile(r"<[^>]*+>")


def reopening(run: Run) -> str:
    """The text about reopening the run; empty if the run is not stored."""
    return text_of_store(session_of(run), "reopen_default", "reopen")


def text_of_store(session: Session, in_default: str, elsewhere: str) -> str:
    """The text of one of these keys, by the run's store; empty if the run is not stored.

    It has the notebook's own names of the run's agent and store, if the notebook has them.
    """
    if not session.is_stored:
        return ""
    if is_default(session.journal.store):
        return TEXTS[in_default]
    text, known = TEXTS[elsewhere], kernel.variables()
    kind: Any = Flow if session.spec.model is None else Agent
    names = {"agent": known_named(kind, session.spec.agent), "store": session.journal.store}
    for word, value in names.items():
        name = next((name for name, one in known.items() if one is value), word)
        text = text.replace(f"{word}={word}", f"{word}={name}")
    return text


def view_of(run: Run, *, with_place: bool = False) -> View:
    """The view of the run; ``with_place`` adds the place of the store, which a document to send must not contain."""
    view = empty_view_of(run, with_place=with_place)
    view.apply(*run.journal)
    return view.snapshot()


def empty_view_of(run: Run, *, in_thread: bool = False, with_place: bool = True) -> SingleRunView:
    """A view of the run, still without events, with the types of its tools as they are defined now."""
    view = SingleRunView(
        run.id,
        types_of=partial(types_of, run),
        traceback_of=partial(traceback_of_call, run),
        in_thread=in_thread,
    )
    place = reported_place(run.id, session_of(run).journal.store) if with_place else None
    if place is not None:  # this is the first run in the default store
        text = TEXTS["stored_in"].format(place=reveal(place))
        view.notice("kept", NoticeItem(key="kept", text=text))
    return view


def view_of_events(run_id: str, events: Iterable[StoredEvent]) -> View:
    """The view of a run that is not open, from its journal."""
    view = SingleRunView(run_id)
    view.apply(*events)
    return view.snapshot()


def view_of_chat(chat: Chat, *, with_place: bool = False) -> View:
    """The view of the thread; ``with_place`` as in ``view_of``."""
    thread = ThreadView(reveal(thread_of(chat).spec().agent))
    for run in chat.runs:
        view = empty_view_of(run, in_thread=True, with_place=with_place)
        view.apply(*run.journal)
        thread.add_run(view)
    return thread.snapshot()


def types_of(run: Run, name: str) -> Types | None:
    """The types of a run's tool as it is defined now; None if this process has no such tool."""
    return types_in(session_of(run).spec.tools, name)


def types_in(tools: Mapping[str, Tool[..., Any]], name: str) -> Types | None:
    """The types of the tool with this name; None if there is none."""
    tool = tools.get(name)
    # each call of ``ctx.approve`` has its own schema, in its question
    return None if tool is None or tool.options.asks is not None else Types.of(tool)


def traceback_of_call(run: Run, call_id: str) -> str:
    """The traceback of this call's tool; empty if this process has none."""
    value = session_of(run).values.get(call_id)
    return value.traceback if isinstance(value, Raised) else ""


def exported(shown: Run | Chat, form: Format) -> str:
    """The run or chat as one whole document."""
    if isinstance(shown, Chat):
        view, reopen = view_of_chat(shown), ""
    else:
        view, reopen = view_of(shown), reopening(shown)
    if form == "html":
        title = " · ".join(part for part in (view.head.agent, view.head.prompt[:80]) if part)
        return page(title, static.render(view, reopen=reopen, all_turns=True))
    cells = list(_cells(view, shown.messages, reopen=reopen))
    if form == "markdown":
        pieces = (facts.fenced(text, "python") if kind == "code" else text for kind, text in cells)
        return "\n\n".join(pieces) + "\n"
    return json.dumps(_notebook(cells), ensure_ascii=False, indent=1) + "\n"


def page(title: str, content: str, *, style: str = "", width: str = "860px") -> str:
    """A page with this content, which is HTML."""
    return _PAGE.format(
        policy=_POLICY, title=escape(title), content=content, style=style, width=width
    )


def _cells(view: View, messages: Sequence[Message], *, reopen: str) -> Iterator[Piece]:
    """The document in pieces."""
    head = view.head
    yield (
        "markdown",
        f"# {' · '.join(map(as_markdown.escaped, filter(None, (head.agent, static.status_text(head)))))}",
    )
    yield from pieces(view, messages)
    reopened = static.reopened(head, reopen) if reopen else ""
    if reopened:
        sentence, _, code = reopened.partition("\n")
        yield "markdown", f"{sentence}\n\n    {code}"


def pieces(view: View, messages: Sequence[Message] = ()) -> Iterator[Piece]:
    """The prompt and the items; Python in these messages of the model is code."""
    if view.head.prompt:
        yield "markdown", as_markdown.quoted(view.head.prompt)
    answers = (text_of(message) for message in messages if message["role"] == "assistant")
    python = {code.strip() for text in answers for code in _PYTHON.findall(text)}
    for item in view.items:
        yield from _pieces(item, python)


def _pieces(item: Item, python: set[str]) -> Iterator[Piece]:
    if not isinstance(item, TextItem):
        text = as_markdown.item_markdown(item)
        if text:
            yield "markdown", text
        return
    for block in [*item.blocks, item.tail]:
        code = _code(block)
        if code in python:
            yield "code", code
        elif text := as_markdown.of_html(block):
            yield "markdown", text
    rest = as_markdown.item_markdown(TextItem(key=item.key, raw=item.raw))
    if rest:
        yield "markdown", rest


def _code(block: str) -> str | None:
    """The code of a block that is only code; None for other blocks."""
    found = _CODE.fullmatch(block.strip())
    return html.unescape(_TAG.sub("", found[1])).strip() if found else None


def _notebook(pieces: list[Piece]) -> dict[str, Any]:
    """A notebook with the pieces as cells; adjacent Markdown pieces are one cell."""
    cells: list[dict[str, Any]] = []
    for kind, text in pieces:
        if kind == "markdown" and cells and cells[-1]["cell_type"] == kind:
            cells[-1]["source"] += f"\n\n{text}"
            continue
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{len(cells)}",
            "metadata": {},
            "source": text,
        }
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        cells.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
