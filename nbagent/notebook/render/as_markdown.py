"""The card as Markdown: its sanitized HTML as headings, lists, tables and code that any viewer draws.

Text of models, tools and people is escaped, so that only this module writes markup. A formula is LaTeX, as the model
wrote it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

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
)

from . import formulas, sanitize
from .facts import fenced
from .outline import call_words, form_facts, form_title

MAX_DEPTH = 40
"""Nesting levels of elements; deeper elements become text."""
MAX_SPAN = 100
"""Columns, or rows, that one cell may span."""
_MARKS = {"done": "✓", "failed": "✗", "rejected": "✗", "cancelled": "✗", "waiting": "?"}
_TAG = re.compile(r'<(/?)([a-z][a-z0-9]*+)((?:[^>"]|"[^"]*+")*+)>')
_ATTRIBUTE = re.compile(r'([a-z]+)="([^"]*+)"')
_VOID = sanitize.names("br col hr img wbr")
_BLOCKS = sanitize.names(
    "blockquote caption dd details div dl dt figcaption figure h1 h2 h3 h4 h5 h6 hr li ol p pre "
    "summary table ul"
)
_AROUND = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}


class _Node:
    """An element of sanitized HTML."""

    def __init__(self, tag: str, attributes: dict[str, str], start: int) -> None:
        self.tag, self.attributes, self.start = tag, attributes, start
        self.children: list[_Node | str] = []
        self.markup = ""
        """The element's HTML, if the element is a formula."""

    def text(self) -> str:
        """All text in the element, without escapes."""
        return "".join(each if isinstance(each, str) else each.text() for each in self.children)

    def number(self, name: str) -> int:
        """The value of a numeric attribute; 1 if it is missing or invalid."""
        value = self.attributes.get(name, "")
        return min(int(value), MAX_SPAN) if re.fullmatch(r"[1-9]\d{0,3}", value) else 1


# --- the items of a card


def item_markdown(item: Item) -> str:
    """One item as Markdown; empty for reasoning, and for an item without content."""
    match item:
        case TextItem():
            pieces = [*map(of_html, [*item.blocks, item.tail]), _lines(item.raw)]
        case ReasoningItem():
            pieces = []
        case CallItem():
            pieces = _call(item)
        case FormItem():
            pieces = _form(item)
        case RecordItem():
            pieces = [_facts([_record(item)])]
        case NoticeItem():
            pieces = [f"**!** {_lines(item.text)}"]
        case MessageItem():
            files = (f"[{file.alt or file.data}]" for file in item.files)
            pieces = [quoted("\n".join([item.text, *files]))]
        case never:
            assert_never(never)
    return "\n\n".join(filter(None, pieces))


def quoted(text: str) -> str:
    """A person's message as a quotation."""
    return "\n".join(f"> {_lines(line)}".rstrip() for line in text.strip().splitlines())


def _call(item: CallItem) -> list[str]:
    name, *words = map(escaped, call_words(item))
    head = " · ".join([f"{_MARKS.get(item.state, '…')} **{name}**", *words])
    facts = [*item.input]
    for record in item.decisions:
        facts += [] if record is item.decisions[-1] else [_record(record)]
        facts += record.details
    printed = item.printed.rstrip("\n")
    outputs = [fenced(printed) if printed else "", *map(_rich, item.outputs)]
    return [head, _facts(facts), *outputs, "" if item.result is None else fenced(item.result)]


def _form(item: FormItem) -> list[str]:
    facts = [*item.facts, *form_facts(item)]
    waits = escaped(TEXTS["waiting_static"]) if item.actions else ""
    title = f"{'?' if item.actions else '…'} **{escaped(form_title(item))}**"
    return [title, _lines(item.note or ""), _facts(facts), waits]


def _record(item: RecordItem) -> Fact:
    return Fact(label=item.title, value=item.decision, code=False)


def _rich(output: Rich) -> str:
    match output.kind:
        case "html" | "links":
            return of_html(output.data)
        case "image":
            return escaped(f"[{output.alt or TEXTS['image']}]")
        case "text":
            return fenced(output.data)
        case never:
            assert_never(never)


def _facts(facts: Sequence[Fact]) -> str:
    """Named values as a list; a value of several lines is a code block below its name."""
    lines = []
    for fact in facts:
        before = "" if fact.changed_from is None else f"{fact.changed_from} → "
        value = f"{before}{fact.value}"
        label = f"{escaped(fact.label)}: " if fact.label else ""
        remark = f" {escaped(f'({fact.remark})')}" if fact.remark else ""
        if "\n" in value:
            lines.append(f"- {label.rstrip()}{remark}\n\n{_indented(fenced(value), '  ')}\n")
        else:
            lines.append(f"- {label}{_code(value) if fact.code else escaped(value)}{remark}")
    return "\n".join(lines).rstrip("\n")


def _code(text: str) -> str:
    """A span of code in a line."""
    line = " ".join(without_controls(text).split("\n"))
    if not line.strip():
        return escaped(line)
    ticks = "`" * max([1, *(len(ticks) + 1 for ticks in re.findall("`+", line))])
    padding = " " if line.startswith(("`", " ")) or line.endswith(("`", " ")) else ""
    return f"{ticks}{padding}{line}{padding}{ticks}"


# --- escaped text

_SIGNS = re.compile(r"[\\`*\[\]$|~]|(?<![^\W_])_+|_+(?![^\W_])")
"""Characters that may be markup inside a line, except ``_`` inside a word."""
_ENTITIES = {"$": "&#36;", "\\": "&#92;"}
"""Characters that Jupyter reads as the start of a formula even after a backslash."""
_SPACE = re.compile(r"\s+")
_BEGINS = re.compile(r"(\s*)(?:([#>+\-=])|(\d{1,9})([.)]))")


def escaped(text: str) -> str:
    """Text in one line, escaped so that it contains no Markdown, not even at its start."""
    return _prices(_escape_start(_signs(_SPACE.sub(" ", without_controls(text)).strip())))


def _signs(text: str) -> str:
    def written(found: re.Match[str]) -> str:
        return "".join(_ENTITIES.get(sign, f"\\{sign}") for sign in found[0])

    plain = re.sub(r"&(?=[#\w])", "&amp;", text).replace("<", "&lt;")
    return _SIGNS.sub(written, plain)


def _prices(line: str) -> str:
    """A line whose dollar signs make no formula: each sign is in its own element, else viewers pair any two signs."""
    line = re.sub(r"&#92;(?=\\?[()\[\]])", "<span>&#92;</span>", line)
    several = line.count("&#36;") + line.count("$") > 1
    return line.replace("&#36;", "<span>&#36;</span>") if several else line


def _escape_start(line: str) -> str:
    """The line, escaped so that it does not start a heading, list, quotation or rule."""
    found = _BEGINS.match(line)
    if found is None:
        return line
    space, sign, number, dot = found.groups()
    escaped_mark = f"\\{sign}" if sign else f"{number}\\{dot}"
    return f"{space}{escaped_mark}{line[found.end() :]}"


def _lines(text: str) -> str:
    """Text in which line breaks stay line breaks in Markdown."""
    lines = map(escaped, text.strip().splitlines())
    return "\\\n".join(line or "&nbsp;" for line in lines)


def _indented(text: str, by: str) -> str:
    return "\n".join(f"{by}{line}" if line else "" for line in text.split("\n"))


# --- from HTML


def of_html(markup: str) -> str:
    """Sanitized HTML as Markdown."""
    return "\n\n".join(_blocks(_parsed(without_controls(markup)).children))


def _parsed(markup: str) -> _Node:
    """The elements of sanitized HTML, in which every element is closed."""
    root = _Node("div", {}, 0)
    open_nodes, at = [root], 0
    for tag in _TAG.finditer(markup):
        if tag.start() > at:
            open_nodes[-1].children.append(html.unescape(markup[at : tag.start()]))
        at = tag.end()
        closes, name, attributes = tag.groups()
        if closes:
            if len(open_nodes) > 1 and open_nodes[-1].tag == name:
                open_nodes[-1].markup = markup[open_nodes[-1].start : at] if name == "math" else ""
                open_nodes.pop()
            continue
        if len(open_nodes) > MAX_DEPTH:
            continue
        values = {key: html.unescape(value) for key, value in _ATTRIBUTE.findall(attributes)}
        node = _Node(name, values, tag.start())
        open_nodes[-1].children.append(node)
        if name not in _VOID:
            open_nodes.append(node)
    open_nodes[-1].children.append(html.unescape(markup[at:]))
    return root


def _blocks(nodes: Sequence[_Node | str]) -> list[str]:
    """Each block, and each line of text between blocks."""
    found: list[str] = []
    line: list[_Node | str] = []
    last = ""
    for each in [*nodes, None]:
        if each is not None and (isinstance(each, str) or not _has_block(each)):
            line.append(each)
            continue
        text = _prices(_inline(line, breaks="\n").strip())
        lines = [part for part in map(str.strip, text.split("\n")) if part]
        if lines:
            # a backslash at the start is an escape already
            starts = (part if part.startswith("\\") else _escape_start(part) for part in lines)
            found.append("\\\n".join(starts))
            last = ""
        line = []
        if isinstance(each, _Node):
            drawn = _block(each, last)
            found += [one for one in drawn if one]
            last = "" if last == each.tag else each.tag  # adjacent lists get different marks
    return found


def _has_block(node: _Node) -> bool:
    return node.tag in _BLOCKS or any(
        isinstance(each, _Node) and _has_block(each) for each in node.children
    )


def _block(node: _Node, last: str) -> list[str]:
    match node.tag:
        case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
            return [f"{'#' * int(node.tag[1])} {_line(node.children)}".rstrip()]
        case "hr":
            return ["---"]
        case "pre":
            return [fenced(node.text().strip("\n"))]
        case "blockquote":
            lines = "\n\n".join(_blocks(node.children)).split("\n")
            return ["\n".join(f"> {line}".rstrip() for line in lines)]
        case "ul" | "ol":
            return [_list(node, again=last == node.tag)]
        case "table":
            return _table(node)
        case "dt" | "summary" | "caption" | "figcaption":
            text = _line(node.children)
            return [f"**{text}**" if text else ""]
        case _:
            return _blocks(node.children)


def _list(node: _Node, *, again: bool) -> str:
    """A list; ``again`` if another list of its kind is right above."""
    number, items = node.number("start"), []
    for item in node.children:
        if not isinstance(item, _Node):
            continue
        mark = (
            f"{number}{')' if again else '.'} " if node.tag == "ol" else ("* " if again else "- ")
        )
        number += 1
        blocks = _blocks(item.children if item.tag == "li" else [item])
        loose = any(isinstance(each, _Node) and each.tag == "p" for each in item.children)
        text = _indented(
            ("\n\n" if loose else "\n").join(blocks if loose else _apart(blocks)), " " * len(mark)
        )
        items.append((f"{mark}{text.lstrip(' ')}".rstrip(), loose))
    return ("\n\n" if any(loose for _, loose in items) else "\n").join(text for text, _ in items)


def _apart(blocks: Sequence[str]) -> Iterator[str]:
    """The blocks of an item, with an empty line before a block that would continue the block above."""
    for number, block in enumerate(blocks):
        is_list = re.match(r"(?:[-*]|\d+[.)]) ", block) is not None
        yield block if not number or is_list else f"\n{block}"


class _Cell(NamedTuple):
    text: str = ""
    align: str = ""
    head: bool = False


def _table(node: _Node) -> list[str]:
    """A table in Markdown: a header line, and rows whose cells have no line breaks; the caption is above the table."""
    captions = [each for each in node.children if isinstance(each, _Node) and each.tag == "caption"]
    above = [text for each in captions for text in _block(each, "")]
    rows = [*_rows(node)]
    if not rows:
        return above
    width = max(map(len, rows))
    full = [[*row, *[_Cell()] * (width - len(row))] for row in rows]
    has_head = any(cell.head for cell in full[0])
    head = full[0] if has_head else [_Cell()] * width
    body = full[1:] if has_head else full
    aligned = [
        next((row[at].align for row in (*body[:1], head) if row[at].align), "")
        for at in range(width)
    ]
    rule = [
        {"right": "---:", "center": ":---:", "left": ":---"}.get(each, "---") for each in aligned
    ]
    lines = [[cell.text for cell in head], rule, *([cell.text for cell in row] for row in body)]
    return [*above, "\n".join(f"| {' | '.join(line)} |" for line in lines)]


def _rows(node: _Node) -> Iterator[list[_Cell]]:
    """The rows of a table, with an empty cell for each further place that a cell spans."""
    below: dict[int, int] = {}
    for row in _each(node, "tr"):
        cells: list[_Cell] = []
        for cell in [*row.children, None]:
            if cell is not None and (isinstance(cell, str) or cell.tag not in ("td", "th")):
                continue
            while below.get(len(cells), 0):
                below[len(cells)] -= 1
                cells.append(_Cell())
            if cell is not None:
                text = " ".join(_line(cell.children).split())
                first = _Cell(text, cell.attributes.get("align", ""), cell.tag == "th")
                for at in range(cell.number("colspan")):
                    below[len(cells)] = cell.number("rowspan") - 1
                    cells.append(first if not at else first._replace(text=""))
        yield cells


def _each(node: _Node, tag: str) -> Iterator[_Node]:
    for each in node.children:
        if isinstance(each, _Node):
            if each.tag == tag:
                yield each
            elif each.tag in ("thead", "tbody", "tfoot"):
                yield from _each(each, tag)


def _line(nodes: Sequence[_Node | str]) -> str:
    """Content that must stay on one line, such as a cell or a heading."""
    return _prices(_inline(nodes, breaks=" ").strip())


def _inline(nodes: Sequence[_Node | str], *, breaks: str) -> str:
    return "".join(
        _SPACE.sub(" ", _signs(each)) if isinstance(each, str) else _span(each, breaks)
        for each in nodes
    )


def _span(node: _Node, breaks: str) -> str:
    match node.tag:
        case "br":
            return breaks
        case "code":
            code = _code(node.text())  # in a table, a bar would end the cell
            return code.replace("|", "\\|") if breaks == " " else code
        case "img":
            return _signs(f"[{node.attributes.get('alt', '')}]")
        case "math":
            return _formula(node)
        case _:
            inner = _inline(node.children, breaks=breaks)
    if node.tag in _AROUND:
        return _marked(inner, _AROUND[node.tag])
    if node.tag == "a" and sanitize.link_is_safe(url := node.attributes.get("href", "")):
        plain = _NOT_IN_URLS.sub(
            lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url
        )
        return f"[{inner or 'link'}]({plain})"
    if node.tag == "sup":
        return f"^{inner}"
    return f" {inner} " if node.tag in _BLOCKS else inner


_NOT_IN_URLS = re.compile(r"[()<>\[\]\\|`$\s]")
"""Characters that may be markup in the address of a link."""


_TEX = re.compile(r"(?!.*\]\()[^<>`$|&!\n]+")
"""LaTeX in which a viewer without formulas draws no link, picture or element."""


def _formula(node: _Node) -> str:
    """The formula as LaTeX between dollar signs; if its LaTeX is unknown or unsafe, as MathML."""
    source = formulas.source_of(node.markup)
    if source is not None and _TEX.fullmatch(source):
        dollars = "$$" if node.attributes.get("display") == "block" else "$"
        return f"{dollars}{source}{dollars}"
    return _SPACE.sub(" ", node.markup).replace("$", "&#36;").replace("|", "&#124;")


def _marked(text: str, mark: str) -> str:
    """Text between marks; spaces at the ends of the text stay outside the marks."""
    words = text.strip()
    if not words:
        return text
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before}{mark}{words}{mark}{after}"
