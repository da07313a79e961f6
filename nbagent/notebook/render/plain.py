"""The card as text: for terminals, for ``repr``, and for notebooks that are compared run by run.

It is the same for the same run: no ids, no times, no token counts.
"""

from __future__ import annotations

import textwrap
from html.parser import HTMLParser
from typing import assert_never

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

from . import sanitize
from .outline import form_facts

_MARKS = {"done": "✓", "failed": "✗", "rejected": "✗", "cancelled": "-", "waiting": "?"}


def render(view: View) -> str:
    """The run as it stands: prompt, text, calls with input and result, questions and answers."""
    head = view.head
    title = f"{head.agent} · {head.status_text}" if head.agent else head.status_text
    parts = [title, *(f"> {line}" for line in head.prompt.splitlines())]
    drawn = [_item(item) for item in view.items]
    return "\n".join(parts) + "".join(f"\n\n{text}" for text in drawn if text)


def text_of(markup: str) -> str:
    """Sanitized HTML as text: a line for each block, rows of a table with bars between cells."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    lines = (line.rstrip() for line in "".join(reader.out).split("\n"))
    return "\n".join(line for line in lines if line)


def _item(item: Item) -> str:
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
            lines = [f"  {item.title}: {item.decision}", *_facts(item.details)]
            return "\n".join(lines)
        case NoticeItem():
            return _notice(item)
        case MessageItem():
            return _message(item)
        case never:
            assert_never(never)


def _notice(item: NoticeItem) -> str:
    return f"! {item.text}"


def _message(item: MessageItem) -> str:
    return "\n".join(f"> {line}" for line in item.text.splitlines())


def _call(item: CallItem) -> str:
    path = f"{item.path} ▸ " if item.path else ""
    state = f" · {TEXTS[f'state_{item.state}']}" if item.state in _MARKS else ""
    lines = [
        f"{_MARKS.get(item.state, '…')} {path}{item.name}{state if item.state != 'done' else ''}"
    ]
    lines += _facts(item.input)
    if item.printed:
        lines.append(_indented(item.printed.rstrip("\n"), "  | "))
    shown = [*map(_rich, item.outputs), *([] if item.result is None else [item.result])]
    lines += [_indented(text, "  → ") for text in shown if text]
    return "\n".join(lines)


def _rich(output: Rich) -> str:
    match output.kind:
        case "html":
            return text_of(output.data)
        case "image":
            return f"[{output.alt or TEXTS['image']}]"
        case "text":
            return output.data
        case never:
            assert_never(never)


def _form(item: FormItem) -> str:
    lines = [f"? {item.title}", *_facts(item.facts)]
    if item.spec is not None:
        lines += _facts(form_facts(item.spec["root"]))
    return "\n".join([*lines, f"  {TEXTS['waiting_static']}"])


def _facts(facts: list[Fact]) -> list[str]:
    return [_fact(fact) for fact in facts]


def _fact(fact: Fact) -> str:
    was = "" if fact.changed_from is None else f"{fact.changed_from} → "
    value = f"{was}{fact.value}"
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


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._pre = 0
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS or tag == "br":
            self.out.append("\n")
        match tag:
            case "pre":
                self._pre += 1
            case "tr":
                self._cells = 0
            case "td" | "th":
                self.out.append(" | " if self._cells else "")
                self._cells += 1
            case "li":
                self.out.append("- ")
            case "hr":
                self.out.append("---\n")
            case "img":
                self.out.append(dict(attrs).get("alt") or "")
            case _:
                pass

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self._pre -= 1
        if tag in _BLOCKS:
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        if self._pre:
            self.out.append(data)
        elif data.strip() or "\n" not in data:
            self.out.append(data if "\n" not in data else data.replace("\n", " ").strip("\n"))
