"""The card as text: for terminals, for ``repr``, and for notebooks whose outputs are compared between executions.

The text has no ids, times or token counts, so that the same run always has the same text.
"""

from __future__ import annotations

import html
import re
import textwrap
from typing import Any, assert_never

from nbagent.core.base.controls import without_controls
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CallItem,
    Fact,
    FormItem,
    Item,
    MessageItem,
    NoticeItem,
    ReasoningItem,
    RecordItem,
    Rich,
    TextItem,
    View,
)

from . import sanitize, static
from .outline import call_words, form_facts, form_title

_MARKS = {"done": "✓", "failed": "✗", "rejected": "✗", "cancelled": "-", "waiting": "?"}


def render(view: View, *, reopen: str = "") -> str:
    """The run as text: prompt, text, calls with input and result, questions and answers.

    ``reopen`` is the text about reopening a stored run that has not ended.
    """
    head = view.head
    title = " · ".join(part for part in (head.agent, static.status_text(head)) if part)
    parts = [title, *(f"> {line}" for line in head.prompt.splitlines())]
    drawn = [*map(item_text, view.items), static.reopened(head, reopen) if reopen else ""]
    text = "\n".join(parts) + "".join(f"\n\n{text}" for text in drawn if text)
    return without_controls(text)


def bundle(view: View, *, reopen: str = "", **options: Any) -> dict[str, str]:
    """The run as HTML, drawn with these options of ``static.render``, and as text."""
    html_ = static.render(view, reopen=reopen, **options)
    return {"text/html": html_, "text/plain": render(view, reopen=reopen)}


def text_of(markup: str) -> str:
    """Sanitized HTML as text: a line for each block, rows of a table with bars between cells."""
    out: list[str] = []
    at = pre = cells = 0
    for tag in _TAG.finditer(markup):
        out.append(_data(markup[at : tag.start()], kept=pre > 0))
        closes, name, at = tag[1], tag[2], tag.end()
        out.append("\n" if name in _BLOCKS or name == "br" else "")
        pre += (-1 if closes else 1) if name == "pre" else 0
        if name == "tr":
            cells = 0
        elif name in ("td", "th") and not closes:
            out.append(" | " if cells else "")
            cells += 1
        elif name == "img" and (alt := _ALT.search(tag[0])):
            out.append(html.unescape(alt[1]))
        elif not closes:
            out.append(_MARKED.get(name, ""))
    out.append(_data(markup[at:], kept=pre > 0))
    lines = (line.rstrip() for line in "".join(out).split("\n"))
    return "\n".join(line for line in lines if line)


def _data(text: str, *, kept: bool) -> str:
    """Text between tags: line breaks become spaces, unless they are kept; empty for mere space between blocks."""
    data = html.unescape(text)
    if kept or "\n" not in data:
        return data
    return data.replace("\n", " ").strip("\n") if data.strip() else ""


def item_text(item: Item) -> str:
    """One item as text; empty for reasoning, and for an item without content."""
    match item:
        case TextItem():
            blocks = [text_of(block) for block in (*item.blocks, item.tail)]
            return "\n\n".join(block for block in blocks if block) + item.raw
        case ReasoningItem():
            return ""
        case CallItem():
            return _call(item)
        case FormItem():
            return _form(item)
        case RecordItem():
            return "\n".join([f"  {item.title}: {item.decision}", *map(_fact, item.details)])
        case NoticeItem():
            return f"! {item.text}"
        case MessageItem():
            files = (f"[{file.alt or file.data}]" for file in item.files)
            return "\n".join(f"> {line}" for line in [*item.text.splitlines(), *files])
        case never:
            assert_never(never)


def _call(item: CallItem) -> str:
    lines = [f"{_MARKS.get(item.state, '…')} {' · '.join(call_words(item))}"]
    lines += map(_fact, item.input)
    for record in item.decisions:
        earlier = record is not item.decisions[-1]
        lines += [f"  {record.title}: {record.decision}"] if earlier else []
        lines += map(_fact, record.details)
    if item.printed:
        lines.append(_indented(item.printed.rstrip("\n"), "  | "))
    shown = [*map(_rich, item.outputs), *([] if item.result is None else [item.result])]
    lines += [_indented(text, "  → ") for text in shown if text]
    return "\n".join(lines)


def _rich(output: Rich) -> str:
    match output.kind:
        case "html" | "links":
            return text_of(output.data)
        case "image":
            return f"[{output.alt or TEXTS['image']}]"
        case "text":
            return output.data
        case never:
            assert_never(never)


def _form(item: FormItem) -> str:
    lines = [f"{'?' if item.actions else '…'} {form_title(item)}"]
    lines += [f"    {item.note}"] if item.note else []
    lines += map(_fact, [*item.facts, *form_facts(item)])
    return "\n".join([*lines, *([f"  {TEXTS['waiting_static']}"] if item.actions else [])])


def _fact(fact: Fact) -> str:
    before = "" if fact.changed_from is None else f"{fact.changed_from} → "
    value = f"{before}{fact.value}" + (f" ({fact.remark})" if fact.remark else "")
    if "\n" in value:
        return f"    {fact.label}:\n" + textwrap.indent(value, "      ")
    return f"    {fact.label}: {value}" if fact.label else f"    {value}"


def _indented(text: str, mark: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([mark + first, *(" " * len(mark) + line for line in rest)])


_BLOCKS = sanitize.names(
    "blockquote caption dd details div dl dt figure h1 h2 h3 h4 h5 h6 hr li ol p pre summary table "
    "tr ul"
)
_MARKED = {"li": "- ", "hr": "---\n"}
_TAG = re.compile(r'<(/?)([a-z][a-z0-9]*+)(?:[^>"]|"[^"]*+"?)*+>?')
_ALT = re.compile(r'\balt="([^"]*+)"')
