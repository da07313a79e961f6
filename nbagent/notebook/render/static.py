"""The card as HTML that needs no kernel: the elements and classes of the live one, and no script.

It is the same for the same run, whoever renders it and whenever: no ids, no times, no token counts.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest
from typing import Any, Literal, TypeAlias, assert_never

from nbagent.notebook.render import facts
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CallItem,
    Fact,
    FormItem,
    Head,
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
from .reveal import reveal
from .sanitize import escape
from .styles import scoped

LONG_PROMPT = 280
"""Characters above which a prompt is folded; the live card has the same number."""
FIRST_LINES = 10
"""Lines of printed text before the fold; the live card has the same number, and the next one."""
FOLDED_FROM = 13
"""Lines from which on printed text is folded: nobody opens a fold for one line."""
MAX_NESTED = 5
"""Levels of a nested answer that are drawn as such."""
MAX_INSIDE = 100
"""Names or rows of one level."""
MAX_COLUMNS = 8
NAMED = ("waiting", "failed", "rejected", "cancelled")
"""Call states that the row names in words."""
MAX_PAIRS = 250_000
"""Pairs of lines that are compared; beyond, what differs is taken as a whole."""

Line: TypeAlias = tuple[Literal[" ", "-", "+"], str]


class Html(str):
    """Markup that is ready: everything else is escaped where it is put in."""

    __slots__ = ()


_Child: TypeAlias = str | Html | None


def render(
    view: View,
    *,
    opened: Collection[str] | None = None,
    style: bool = True,
    frame: bool = True,
    reopen: bool = False,
) -> str:
    """The run as it stands.

    Args:
        view: what is drawn.
        opened: keys of the items that stand open; by default those with a table or a picture.
        style: whether the style sheet comes along.
        frame: whether header and footer are drawn; a form that stands alone has none.
        reopen: whether it is told how a run that has not ended is taken up again from its store.
    """
    items = [_item(item, opened) for item in view.items]
    drawn = (
        _header(view.head) if frame else None,
        _el("div", {"class": "nba-items"}, *items),
        _reopened(view.head) if reopen else None,
        _footer(view.head) if frame else None,
    )
    # Jupyter would typeset "$5 and $6" as a formula; real ones are MathML already
    classes = "nbagent nba-static mathjax_ignore tex2jax_ignore"
    if not style:
        return _card(view.head, classes, *drawn)
    scope, rules = scoped(_card(view.head, classes, *drawn))
    return f"<style>{rules}</style>{_card(view.head, f'{classes} {scope}', *drawn)}"


def _card(head: Head, classes: str, *drawn: _Child) -> Html:
    label = TEXTS["card"].format(agent=head.agent)
    attributes = {"class": classes, "data-status": head.status, "aria-label": label}
    return _el("section", dict(attributes), *drawn)


def _el(tag: str, attributes: dict[str, str | None], *children: _Child) -> Html:
    """An element; attributes of None are left out, children that are not ``Html`` are escaped."""
    known = (f' {name}="{escape(v)}"' for name, v in attributes.items() if v is not None)
    inner = (c if isinstance(c, Html) else escape(c) for c in children if c)
    return Html(f"<{tag}{''.join(known)}>{''.join(inner)}</{tag}>")


def _row(tag: str, attributes: dict[str, str | None], *children: _Child) -> Html:
    """An element whose children stand in a row, and apart where no style is kept."""
    apart = (part for child in children if child for part in (child, Html(" ")))
    return _el(tag, attributes, *apart)


def _auto(tag: str, name: str, *children: _Child) -> Html | None:
    """An element of this class whose text sets its own direction; None without content."""
    return _el(tag, {"class": name, "dir": "auto"}, *children) if any(children) else None


def _header(head: Head) -> Html:
    prompt: Html = _el("span", {}, head.prompt)
    if len(head.prompt) > LONG_PROMPT:
        prompt = _el("details", {}, _el("summary", {}, prompt))
    status = "outside" if head.status == "interrupted" and not head.questions else head.status
    return _row(
        "header",
        {"class": "nba-header"},
        _el("span", {"class": "nba-who", "dir": "auto"}, head.agent),
        _el("span", {"class": "nba-sr"}, ":"),  # for where no style is kept
        _el("span", {"class": "nba-prompt", "dir": "auto"}, prompt),
        _el("span", {"class": "nba-sr"}, "·"),
        _el("span", {"class": "nba-pill", "data-status": status}, status_text(head)),
    )


def status_text(head: Head) -> str:
    """How the run stands; what no kernel goes on with is not at work."""
    return TEXTS["status_unfinished"] if head.status == "running" else head.status_text


def reopened(head: Head) -> str:
    """How a run that has not ended is taken up again."""
    goes_on = head.status in ("running", "interrupted")
    return TEXTS["reopen"].format(run=head.run) if goes_on else ""


def _reopened(head: Head) -> Html | None:
    said, _, code = reopened(head).partition("\n")
    return _el("p", {"class": "nba-gone"}, f"{said} ", _el("code", {}, code)) if said else None


def _footer(head: Head) -> Html:
    parts = [_counted("turns", head.turns), _counted("decisions", head.decisions)]
    return _row(
        "footer", {"class": "nba-footer"}, *(_el("span", {}, part) for part in parts if part)
    )


def _counted(key: str, number: int) -> str:
    text = TEXTS[f"{key}_one" if number == 1 else key]
    return text.format(n=number) if number else ""


def _is_open(item: Item, opened: Collection[str] | None) -> bool:
    if opened is not None:
        return item.key in opened
    return isinstance(item, CallItem) and any(
        rich.kind in ("html", "image") for rich in item.outputs
    )


def _item(item: Item, opened: Collection[str] | None) -> Html:
    match item:
        case TextItem():
            return _text(item)
        case ReasoningItem(text=text):
            summary = _el("summary", {}, TEXTS["reasoning"])
            body = _el("div", {"class": "nba-thought", "dir": "auto"}, text)
            return _details("nba-think", summary, body, is_open=_is_open(item, opened))
        case CallItem():
            return _call(item, opened)
        case FormItem():
            return _form(item)
        case RecordItem():
            return _record(item)
        case NoticeItem():
            return _notice(item)
        case MessageItem():
            return _message(item)
        case never:
            assert_never(never)


def _notice(item: NoticeItem) -> Html:
    text = _el("div", {"class": "nba-text", "dir": "auto"}, item.text)
    return _el("div", {"class": "nba-notice", "data-tone": item.tone}, text)


def _message(item: MessageItem) -> Html:
    files = _el("div", {"class": "nba-files"}, *map(_file, item.files)) if item.files else None
    text = _auto("div", "nba-text", item.text)
    return _el("div", {"class": "nba-message"}, text, files, _auto("div", "nba-help", item.note))


def _file(output: Rich) -> Html:
    """A picture with its name below it; of another file the name."""
    is_picture = output.kind == "image" and sanitize.picture_is_safe(output.data)
    words = output.alt if output.kind == "image" else output.data
    picture = _rich(output) if is_picture else None
    return _el("figure", {"class": "nba-file"}, picture, _auto("figcaption", "nba-help", words))


def _details(name: str, *children: _Child, is_open: bool, state: str | None = None) -> Html:
    attributes = {"class": name, "data-state": state, "open": "" if is_open else None}
    return _el("details", attributes, *children)


def _text(item: TextItem) -> Html:
    raw = _el("p", {}, _el("span", {"class": "nba-raw"}, item.raw)) if item.raw.strip() else None
    blocks = Html("".join([*item.blocks, item.tail]))
    return _el("div", {"class": "nba-say", "dir": "auto"}, blocks, raw)


def _call(item: CallItem, opened: Collection[str] | None) -> Html:
    state = TEXTS[f"state_{item.state}"]
    summary = _row(
        "summary",
        {},
        _el("span", {"class": "nba-dot", "role": "img", "aria-label": state}),
        _auto("span", "nba-path", item.path and f"{item.path} ▸"),
        _el("span", {"class": "nba-name", "dir": "auto"}, item.name),
        _el("span", {"class": "nba-brief", "dir": "auto"}, item.brief),
        _el("span", {"class": "nba-state"}, state if item.state in NAMED else ""),
    )
    outputs = [_rich(output) for output in item.outputs]
    body = _el(
        "div",
        {"class": "nba-body"},
        _el("div", {"class": "nba-input"}, _facts(item.input)) if item.input else None,
        *_printed(item, opened),
        _el("div", {"class": "nba-outputs"}, *outputs) if outputs else None,
        _auto("pre", "nba-result", item.result),
    )
    return _details("nba-call", summary, body, is_open=_is_open(item, opened), state=item.state)


def _printed(item: CallItem, opened: Collection[str] | None) -> list[Html | None]:
    """Printed text: its first lines, and the others behind a fold."""
    lines = item.printed.removesuffix("\n").split("\n")
    if len(lines) < FOLDED_FROM:
        return [_auto("pre", "nba-printed", item.printed)]
    more = TEXTS["more_lines"].format(n=len(lines) - FIRST_LINES)
    rest = _el("pre", {"class": "nba-printed", "dir": "auto"}, "\n".join(lines[FIRST_LINES:]))
    is_open = f"{item.key}:printed" in (opened or ())
    return [
        _auto("pre", "nba-printed", "\n".join(lines[:FIRST_LINES])),
        _details("nba-rest", _el("summary", {}, more), rest, is_open=is_open),
    ]


def _rich(output: Rich) -> Html:
    if output.kind in ("html", "links"):
        return _el("div", {"class": "nba-rich nba-say"}, Html(output.data))
    if output.kind == "image" and sanitize.picture_is_safe(output.data):
        source = f'src="{escape(output.data)}" alt="{escape(output.alt)}"'
        return Html(f'<img class="nba-rich" {source}>')
    text = output.alt if output.kind == "image" else output.data
    return _el("pre", {"class": "nba-rich", "dir": "auto"}, text)


def _facts(listed: list[Fact]) -> Html:
    rows = [part for fact in listed for part in _fact(fact)]
    return _el("dl", {"class": "nba-kv"}, *rows)


def _fact(fact: Fact) -> tuple[Html, Html]:
    how: dict[str, str | None] = {"class": "nba-mono"} if fact.code else {"dir": "auto"}
    term = _el("dt", {"dir": "auto"}, fact.label)
    if fact.changed_from is not None:
        return term, _el("dd", {}, _el("div", how, *_difference(fact.changed_from, fact.value)))
    if fact.whole is not None:
        return term, _el("dd", {}, nested(fact.whole, 0))
    marked = (_el("mark", {"title": fact.remark}, part) for part in fact.parts[1::2])
    pieces = [each for pair in zip_longest(fact.parts[::2], marked) for each in pair]
    remark = _el("small", {"class": "nba-odd", "dir": "auto"}, fact.remark) if fact.remark else None
    return term, _el("dd", {}, _el("div", how, *(pieces or [fact.value]), remark))


def nested(value: Any, level: int = 0) -> Html:
    """A value as it is nested: names as a list of terms, alike rows as a table; JSON where it is large."""
    if level > MAX_NESTED or (isinstance(value, dict | list) and len(value) > MAX_INSIDE):
        return _el("div", {"class": "nba-mono"}, facts.result(value))
    if isinstance(value, dict) and value:
        rows = [part for name, each in value.items() for part in _named(str(name), each, level)]
        return _el("dl", {"class": "nba-kv"}, *rows)
    if isinstance(value, list) and value:
        columns = _columns(value)
        return _table(columns, value) if columns else _rows(value, level)
    return _el("div", {"dir": "auto"}, facts.result(value))


def _named(name: str, value: Any, level: int) -> tuple[Html, Html]:
    return _el("dt", {"dir": "auto"}, reveal(name)), _el("dd", {}, nested(value, level + 1))


def _rows(items: list[Any], level: int) -> Html:
    return _el("ol", {}, *(_el("li", {}, nested(item, level + 1)) for item in items))


def _columns(items: list[Any]) -> list[str]:
    """The names of rows that make a table: few, and with nothing nested under them."""
    if not all(isinstance(item, dict) and item for item in items):
        return []
    columns = list(dict.fromkeys(str(name) for item in items for name in item))
    inner = (each for item in items for each in item.values())
    flat = not any(isinstance(each, dict | list) for each in inner)
    return columns if flat and len(columns) <= MAX_COLUMNS else []


def _table(columns: list[str], items: list[Any]) -> Html:
    head = (_el("th", {"scope": "col", "dir": "auto"}, reveal(name)) for name in columns)
    rows = (
        _el("tr", {}, *(_cell(item[name]) if name in item else _el("td", {}) for name in columns))
        for item in items
    )
    body = (_el("thead", {}, _el("tr", {}, *head)), _el("tbody", {}, *rows))
    return _el("div", {"class": "nba-rich nba-say"}, _el("table", {}, *body))


def _cell(value: Any) -> Html:
    return _el("td", {"dir": "auto"}, facts.result(value))


def _difference(before: str, after: str) -> list[str | Html]:
    """Old and new in one: of several lines, those alike stand once, unmarked."""
    if "\n" not in before + after:
        return [_el("del", {}, before), " ", _el("ins", {}, after)]
    tags = {"-": "del", "+": "ins"}
    parts = [
        line if mark == " " else _el(tags[mark], {}, line)
        for mark, line in line_diff(before, after)
    ]
    return [piece for part in parts for piece in ("\n", part)][1:]


def _record(item: RecordItem) -> Html:
    line = (
        _el("b", {"dir": "auto"}, item.title),
        _el("span", {"class": "nba-sr"}, ": "),  # the style sheet has a dot there
        _el("span", {"class": "nba-decision", "dir": "auto"}, item.decision),
        _el("span", {"class": "nba-time"}),
    )
    if item.details:
        inner = _el("details", {}, _el("summary", {}, *line), _facts(item.details))
    else:
        inner = _el("div", {"class": "nba-line"}, *line)
    return _el("div", {"class": "nba-record", "data-tone": item.tone}, inner)


def _form(item: FormItem) -> Html:
    """A question that nobody has answered: what it asks, without anything to press.

    One without buttons waits for no person, and its title says for what.
    """
    waits = _el("p", {"class": "nba-gone"}, TEXTS["waiting_static"]) if item.actions else None
    outside = {} if item.actions else {"data-outside": ""}
    path = " ▸ ".join(part for part in (item.path, item.tool) if part)
    fields = [] if item.spec is None else form_facts(item.spec["root"])
    return _el(
        "div",
        {"class": "nba-form", **outside},
        _el(
            "div",
            {"class": "nba-asking"},
            _auto("div", "nba-path", path),
            _el("h4", {"class": "nba-title", "dir": "auto"}, item.title),
            _auto("p", "nba-note", item.note),
        ),
        _el("div", {"class": "nba-facts"}, _facts(item.facts)) if item.facts else None,
        _el("div", {"class": "nba-fields"}, _facts(fields)) if fields else None,
        waits,
    )


def line_diff(before: str, after: str) -> list[Line]:
    """Each line with a mark: in both, only in the old text, or only in the new one."""
    old, new = before.split("\n"), after.split("\n")
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    return [
        *((" ", line) for line in new[:head]),
        *_middle(old[head : len(old) - tail], new[head : len(new) - tail]),
        *((" ", line) for line in new[len(new) - tail :]),
    ]


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines at the start are the same."""
    differing = (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


def _middle(old: list[str], new: list[str]) -> list[Line]:
    """The fewest lines to take out and put in."""
    if len(old) * len(new) > MAX_PAIRS:
        return [*(("-", line) for line in old), *(("+", line) for line in new)]
    common = _common(old, new)
    lines: list[Line] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            lines.append((" ", old[i]))
            i, j = i + 1, j + 1
        elif i < len(old) and (j == len(new) or common[i + 1][j] >= common[i][j + 1]):
            lines.append(("-", old[i]))
            i += 1
        else:
            lines.append(("+", new[j]))
            j += 1
    return lines


def _common(old: list[str], new: list[str]) -> list[list[int]]:
    """How many lines the rests from each pair of places have in common."""
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            alike = old[i] == new[j]
            table[i][j] = (
                table[i + 1][j + 1] + 1 if alike else max(table[i + 1][j], table[i][j + 1])
            )
    return table
