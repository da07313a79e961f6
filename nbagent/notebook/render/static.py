"""The card as HTML that needs no kernel: the elements and classes of the live card, without scripts.

The HTML has no ids, times or token counts, so that the same run always has the same HTML.
With ``measured``, it has the times and counts that a person saw on the live card.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, zip_longest
from typing import Any, Literal, TypeAlias, assert_never

from nbagent.notebook.render import facts
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CallItem,
    CallState,
    CardHead,
    Fact,
    FormItem,
    Item,
    MessageItem,
    NoticeItem,
    ReasoningItem,
    RecordItem,
    Rich,
    Span,
    TextItem,
    View,
)

from . import amounts, sanitize
from .outline import form_facts, state_word
from .reveal import reveal
from .sanitize import escape
from .shorthand import common_start, units
from .styles import scoped

LONG_PROMPT = 280
"""Characters above which a prompt is folded; the live card has the same number."""
FIRST_LINES = 10
"""Lines of printed text before the fold; the live card has the same values for this and the next constant."""
FOLDED_FROM = 13
"""Lines from which on printed text is folded: nobody opens a fold for one line."""
LONG_TABLE, LONG_TEXT, LONG_HTML = 12, 23, 40
"""Sizes above which a result is folded: rows of a table, lines of text, blocks of other HTML; as on the live card."""
LINE = 110
"""Characters of about one line."""
MANY_TURNS, NEWEST_TURNS = 8, 4
"""The number of turns above which a saved chat folds its earlier turns, and the number of turns that stay unfolded."""
MAX_NESTED = 5
"""Nesting levels of an answer that are drawn as lists and tables; deeper levels are JSON."""
MAX_INSIDE = 100
"""Names of one object, or values of one list; a larger value is JSON."""
MAX_COLUMNS = 8
MAX_PAIRS = 250_000
"""Pairs of lines that are compared; a larger difference has all lines as removed and added."""
STRETCH = 3
"""The number of successive calls of one tool that become one row; the live card has the same number."""
CROWD = 40
"""More calls of one tool in a turn are one row while they run, too; the live card has the same number."""
_UNSETTLED = ("preparing", "running")
ROWS = 100
"""Calls in such a row that are drawn as rows; the other calls are one text, because many rows make a page slow."""
NOTCH = 0.04
"""The width of a long wait in the time strip, as a part of the work; the live card has the same number."""
LANES = ("wait", "model", "tool", "inner")
"""The lanes of the time strip, the last on top."""
MAX_WORD_PAIRS = 2_500
"""Pairs of words that are compared in a changed line; in longer lines, no words are marked."""
MAX_WORD_LINES = 40
"""Lines in which words are compared."""
CONTEXT_LINES = 3
"""Unchanged lines that are shown before and after a change; the live card has the same number."""
_BLOCK = re.compile(r"<(?:p|li|tr|br|h[1-6]|dt)\b")
_BLANK = " \t"
_TAG = re.compile(r"<[^>]*>")
_WORDS = re.compile(r"([ \t]+|[!-/:-@\[-^`{-~])")
"""Words are the parts between blanks and punctuation."""

Line: TypeAlias = tuple[Literal[" ", "-", "+"], str]


class Html(str):
    """Finished markup; any other string is escaped when it is inserted."""

    __slots__ = ()


_Child: TypeAlias = str | Html | None
_APART = Html(" ")
_HEADING: dict[str, str | None] = {"role": "heading", "aria-level": "3"}
"""A card's heading: no element of a heading, which Jupyter would list in its table of contents."""


class _OwnLine(Html):
    """Markup that differs from run to run. In a row it is on a line of its own, so that a diff shows it alone."""

    __slots__ = ()


_LINE_END = Html("\n")


@dataclass(frozen=True, slots=True)
class _Options:
    """The drawing options of a run, for all its items."""

    opened: Collection[str] | None
    measured: bool
    speaker: str | None = None
    """The agent, whose name its text has in a chat."""

    def is_open(self, key: str) -> bool:
        """Whether the part with this key is open in the page."""
        return key in (self.opened or ())

    def duration(self, seconds: float | None) -> str:
        """A duration, if durations are shown."""
        return amounts.duration(seconds) if self.measured and seconds is not None else ""

    def time(self, seconds: float | None) -> Html:
        """The element with a duration, if durations are shown."""
        text = self.duration(seconds)
        shown = _el("span", {"class": "nba-time"}, text)
        return _OwnLine(shown) if text else shown


def render(
    view: View,
    *,
    opened: Collection[str] | None = None,
    style: bool = True,
    frame: bool = True,
    reopen: str = "",
    measured: bool = False,
    all_turns: bool = False,
) -> str:
    """The run as HTML.

    Args:
        view: the view to draw.
        opened: keys of the open items; by default those with a table or a picture.
        style: whether the style sheet is included.
        frame: whether header and footer are drawn; a form without a run has none.
        reopen: the text about reopening a stored run that has not ended.
        measured: whether values that differ from run to run are drawn: times, tokens, cost, tracebacks.
        all_turns: whether all turns of a long chat are open, as in an exported document.
    """
    options = _Options(opened, measured, view.head.agent if view.head.chat else None)
    turns = [at for at, item in enumerate(view.items) if isinstance(item, MessageItem)]
    is_folded = view.head.chat and not all_turns and len(turns) > MANY_TURNS
    newest = turns[-NEWEST_TURNS] if is_folded else 0
    earlier, items = (
        [_drawn(stretch, options) for stretch in stretches(part)]
        for part in (view.items[:newest], view.items[newest:])
    )
    if is_folded:
        more = TEXTS["earlier_turns"].format(n=len(turns) - NEWEST_TURNS)
        fold = _el("summary", {}, more), _el("div", {"class": "nba-earlier"}, *earlier)
        items.insert(0, _details("nba-rest", *fold, is_open=False))
    gone, _, code = (reopened(view.head, reopen) if reopen else "").partition("\n")
    drawn = (
        _header(view, options) if frame else None,
        _el("div", {"class": "nba-items"}, *items),
        _el("p", {"class": "nba-gone"}, f"{gone} ", _el("code", {}, code)) if gone else None,
        _footer(view.head, options) if frame else None,
    )
    # Jupyter would typeset "$5 and $6" as a formula; real ones are MathML already
    chat = " nba-chat" if view.head.chat else ""
    classes = f"nbagent{chat} nba-static mathjax_ignore tex2jax_ignore"
    if not style:
        return _card(view.head, classes, *drawn)
    scope, rules = scoped(_card(view.head, classes, *drawn))
    end = _LINE_END if measured else ""
    return f"<style>{rules}</style>{end}{_card(view.head, f'{classes} {scope}', *drawn)}"


def _card(head: CardHead, classes: str, *drawn: _Child) -> Html:
    template = TEXTS["chat_card" if head.chat else "card"]
    label = template.format(agent=head.agent, prompt=head.prompt[:80])
    attributes = {"class": classes, "data-status": head.status, "aria-label": label}
    return _el("section", dict(attributes), *drawn)


def _el(tag: str, attributes: dict[str, str | None], *children: _Child) -> Html:
    """An element; attributes of None are left out, children that are not ``Html`` are escaped."""
    inner = [c if isinstance(c, Html) else escape(c) for c in children if c]
    return Html(f"{_opening(tag, *attributes.items())}{''.join(inner)}</{tag}>")


@lru_cache(maxsize=256)
def _opening(tag: str, *attributes: tuple[str, str | None]) -> str:
    """The opening tag; cached, because a long run repeats the same few hundred tags."""
    known = [f' {name}="{escape(v)}"' for name, v in attributes if v is not None]
    return f"<{tag}{''.join(known)}>"


def _row(tag: str, attributes: dict[str, str | None], *children: _Child) -> Html:
    """An element whose children are in a row, with spaces between them for viewers without styles."""
    spaced: list[_Child] = []
    for child in children:
        if isinstance(child, _OwnLine):
            spaced[-1:] = (_LINE_END, child, _LINE_END)
        elif child:
            spaced += (child, _APART)
    return _el(tag, attributes, *spaced)


def _unstyled(text: str) -> Html:
    """Text for viewers without styles, such as GitHub, and Jupyter for notebooks that are not trusted."""
    return _el("span", {"class": "nba-sr"}, text)


def _dotted(*children: _Child) -> list[_Child]:
    """The children, with a dot between children that have text, for viewers without styles."""
    present = [child for child in children if child]
    have_text = [bool(_TAG.sub("", child)) for child in present]
    dots = (
        _unstyled("·") if shows_text and any(have_text[:at]) else None
        for at, shows_text in enumerate(have_text)
    )
    return [part for pair in zip(dots, present, strict=True) for part in pair]


def _auto(tag: str, name: str, *children: _Child) -> Html | None:
    """An element of this class whose text sets its own direction; None without content."""
    return _el(tag, {"class": name, "dir": "auto"}, *children) if any(children) else None


def _header(view: View, options: _Options) -> Html:
    head = view.head
    prompt: Html = _el("span", {}, head.prompt)
    if len(head.prompt) > LONG_PROMPT:
        prompt = _el("details", {}, _el("summary", {}, prompt))
    status = "outside" if head.status == "interrupted" and not head.questions else head.status
    return _row(
        "header",
        {"class": "nba-header"},
        _el("strong", {"class": "nba-who", "dir": "auto", **_HEADING}, head.agent),
        *_dotted(
            _el("span", {"class": "nba-prompt", "dir": "auto"}, prompt),
            _plan(head) if head.plan else None,
            _el("span", {"class": "nba-pill", "data-status": status}, status_text(head)),
        ),
        *(map(_OwnLine, (_strip(view), _legend(head))) if options.measured and head.spans else ()),
    )


def _plan(head: CardHead) -> Html:
    """The plan in one row: its current step; opened, all steps."""
    now = next((step.text for step in head.plan if step.state == "now"), "")
    done = sum(step.state == "done" for step in head.plan)
    count = TEXTS["plan_of"].format(n=done, m=len(head.plan))
    steps = (
        _el(
            "li",
            {"data-state": step.state, "dir": "auto"},
            step.text,
            _unstyled(f" ({TEXTS[f'plan_{step.state}']})"),
        )
        for step in head.plan
    )
    marks = (_el("i", {"data-state": step.state}) for step in head.plan)
    summary = _el(
        "summary",
        {},
        _el("span", {"class": "nba-marks", "aria-hidden": "true"}, *marks),
        _unstyled(f"{count} ") if now else None,
        _auto("span", "nba-now", now or count),
    )
    return _details("nba-plan", summary, _el("ol", {}, *steps), is_open=False)


def status_text(head: CardHead) -> str:
    """The status of the run, as it stays true once the kernel has stopped: nothing runs or waits there."""
    if head.status == "interrupted" and head.questions:
        return TEXTS["unanswered"]
    is_open = head.status in ("running", "interrupted")
    return TEXTS["status_unfinished"] if is_open else head.status_text


def reopened(head: CardHead, text: str) -> str:
    """The text about reopening a run; empty if the run has ended."""
    is_unfinished = head.status in ("running", "interrupted")
    return text.format(run=head.run) if is_unfinished else ""


def _strip(view: View) -> Html:
    """The time strip, a segment for each span; an unfinished span is drawn up to the last known event."""
    head = view.head
    end = max([0.001, *(span.end or span.start for span in head.spans)])
    pieces = _unfolded(amounts.periods(head), end)
    length = sum(width for *_, width in pieces)

    def at(seconds: float) -> float:
        inside = (w * min(1, max(0, seconds - a) / ((b - a) or 1)) for a, b, w in pieces)
        return sum(inside) / length

    def segment(span: Span) -> Html:
        stop, name = span.end or end, names.get(span.key)
        title = " ".join(filter(None, (name, amounts.duration(stop - span.start))))
        place = f"--l:{at(span.start):.2%};--r:{1 - at(stop):.2%}"
        return _el("i", {"data-lane": span.lane, "title": title, "style": place})

    names = {item.key: item.name for item in view.items if isinstance(item, CallItem)}
    spans = sorted(head.spans, key=lambda span: LANES.index(span.lane))
    return _el("div", {"class": "nba-strip", "aria-hidden": "true"}, *map(segment, spans))


def _unfolded(work: list[tuple[float, float]], end: float) -> list[tuple[float, float, float]]:
    """The pieces of the strip: start, end and width. Between work, a wait is at most as wide as a notch."""
    notch = NOTCH * sum(b - a for a, b in work) or end
    pieces, last = [], 0.0
    for a, b in [*work, (end, end)]:
        if a > last:
            pieces.append((last, a, min(a - last, notch)))
        pieces.append((a, b, b - a))
        last = b
    return pieces


def _legend(head: CardHead) -> Html:
    """The meaning and the duration of each color; shown while the pointer is on the strip."""
    labels = [
        _el(
            "span",
            {"data-lane": lane},
            TEXTS[f"lane_{lane}"].format(t=amounts.duration(amounts.busy(head, [lane]))),
        )
        for lane in ("model", "tool", "inner", "wait")
        if any(span.lane == lane for span in head.spans)
    ]
    return _row("div", {"class": "nba-legend", "aria-hidden": "true"}, *_dotted(*labels))


def _footer(head: CardHead, options: _Options) -> Html:
    seconds = amounts.busy(head) if head.spans and not head.chat else None
    measures = (
        [options.duration(seconds), amounts.tokens(head.tokens), amounts.cost(head)]
        if options.measured
        else []
    )
    parts = [head.model, *measures, amounts.decided(head)]
    spans = [_el("span", {}, part) for part in parts if part]
    lines = map(_OwnLine, spans) if options.measured else spans
    return _row("footer", {"class": "nba-footer"}, *_dotted(*lines))


def _is_open(item: Item, options: _Options) -> bool:
    if options.opened is not None:
        return options.is_open(item.key)
    return isinstance(item, CallItem) and _is_rich(item)


def _is_rich(item: CallItem) -> bool:
    """Whether the call has a table or a picture, so that its row is opened."""
    return any(rich.kind in ("html", "image") for rich in item.outputs)


def stretches(items: Iterable[Item]) -> list[list[Item]]:
    """The items in drawing order; ``STRETCH`` or more successive calls of one tool are one row.

    A call has its own row if it failed, was decided, or shows a table or a picture, or if a call of that tool still
    runs in the same turn, unless these are more than ``CROWD``. ``frontend/items/stretch.js`` returns the same.
    """
    items = list(items)
    calls = [item for item in items if isinstance(item, CallItem)]
    counts = Counter(map(_tool_of, calls))
    unsettled = {_tool_of(call) for call in calls if call.state in _UNSETTLED}

    def kind(at: int) -> Any:
        item = items[at]
        if not isinstance(item, CallItem):
            return at
        if _tool_of(item) in unsettled and counts[_tool_of(item)] <= CROWD:
            return at
        is_usual = item.state == "done" or item.state in _UNSETTLED
        quiet = is_usual and not item.decisions and not _is_rich(item)
        return (item.path, item.name) if quiet else at

    groups = [[items[at] for at in group] for _, group in groupby(range(len(items)), kind)]
    return [
        part
        for group in groups
        for part in ([group] if len(group) >= STRETCH else [[item] for item in group])
    ]


def _tool_of(item: CallItem) -> tuple[str, str]:
    """The key of the call's turn, and the tool's name."""
    return item.key.rpartition(".")[0], item.name


def _drawn(items: list[Item], options: _Options) -> Html:
    first, *others = items
    if not others or not isinstance(first, CallItem):
        return _item(first, options)
    calls = [item for item in items if isinstance(item, CallItem)]
    times = [call.elapsed for call in calls if call.elapsed is not None]
    brief = " · ".join(c.brief for c in calls[:9])
    done = sum(call.state not in _UNSETTLED for call in calls)
    state: CallState = "running" if done < len(calls) else "done"
    counted = TEXTS["times_of" if done < len(calls) else "times"]
    summary = _summary(
        first.model_copy(update={"state": state}),
        _el("span", {"class": "nba-times"}, counted.format(n=done, m=len(calls))),
        _el("span", {"class": "nba-brief", "dir": "auto"}, brief),
        options.time(sum(times) if times else None),
    )
    is_row = [n < ROWS or bool(c.outputs) or _is_open(c, options) for n, c in enumerate(calls)]
    rows = [c for n, c in enumerate(calls) if is_row[n]]
    rest = [_call_text(c, options) for n, c in enumerate(calls) if not is_row[n]]
    body = _el(
        "div",
        {"class": "nba-body"},
        *(_item(call, options) for call in rows),
        _auto("pre", "nba-result", "\n".join(rest)),
    )
    is_open = options.is_open(f"f:{first.key}")
    return _details("nba-call nba-stretch", summary, body, is_open=is_open, state=state)


def _call_text(call: CallItem, options: _Options) -> str:
    """A call that displays nothing, as text."""
    input_ = ", ".join(f"{fact.label}: {fact.value}" for fact in call.input)
    first = " · ".join(part for part in (input_, options.duration(call.elapsed)) if part)
    outputs = [part.rstrip("\n") for part in (call.printed, call.result) if part]
    return "\n".join([first, *outputs])


def _item(item: Item, options: _Options) -> Html:
    match item:
        case TextItem():
            blocks = Html("".join([*item.blocks, item.tail]))
            end = _el("p", {}, _el("span", {"class": "nba-raw"}, item.raw))
            shown = (blocks, end if item.raw.strip() else None)
            by = {"role": "group", "aria-label": options.speaker} if options.speaker else {}
            return _el("div", {"class": "nba-say", "dir": "auto", **by}, *shown)
        case ReasoningItem(text=text):
            summary = _el("summary", {}, TEXTS["reasoning"])
            body = _el("div", {"class": "nba-thought", "dir": "auto"}, text)
            return _details("nba-think", summary, body, is_open=_is_open(item, options))
        case CallItem():
            return _call(item, options)
        case FormItem():
            return _form(item)
        case RecordItem():
            return _record(item, options)
        case NoticeItem():
            content = _el("div", {"class": "nba-text", "dir": "auto"}, item.text)
            return _el("div", {"class": "nba-notice", "data-tone": item.tone}, content)
        case MessageItem():
            return _message(item)
        case never:
            assert_never(never)


def _message(item: MessageItem) -> Html:
    files = _el("div", {"class": "nba-files"}, *map(_file, item.files)) if item.files else None
    text = _auto("div", "nba-text", item.text)
    who = _el("strong", {"class": "nba-sr"}, TEXTS["you"])
    return _el(
        "div", {"class": "nba-message"}, who, text, files, _auto("div", "nba-help", item.note)
    )


def _file(output: Rich) -> Html:
    """A picture with its name below, or the name of another file."""
    is_picture = output.kind == "image" and sanitize.picture_is_safe(output.data)
    words = output.alt if output.kind == "image" else output.data
    picture = _rich(output) if is_picture else None
    return _el("figure", {"class": "nba-file"}, picture, _auto("figcaption", "nba-help", words))


def _details(name: str, *children: _Child, is_open: bool, state: str | None = None) -> Html:
    attributes = {"class": name, "data-state": state, "open": "" if is_open else None}
    return _el("details", attributes, *children)


def _summary(call: CallItem, *parts: _Child) -> Html:
    """The line of a call, or of several calls of its tool: the state and the tool, then the parts."""
    state = TEXTS["unanswered" if call.state == "waiting" else f"state_{call.state}"]
    return _row(
        "summary",
        {},
        _el("span", {"class": "nba-dot", "role": "img", "aria-label": state}),
        _auto("span", "nba-path", call.path and f"{call.path} ▸"),
        _el("strong", {"class": "nba-name", "dir": "auto"}, call.name),
        *_dotted(*parts),
    )


def _call(item: CallItem, options: _Options) -> Html:
    summary = _summary(
        item,
        _el("span", {"class": "nba-brief", "dir": "auto"}, item.brief),
        _decision(item.decisions[-1], options) if item.decisions else None,
        _el("span", {"class": "nba-state"}, word) if (word := state_word(item)) else None,
        options.time(item.elapsed),
    )
    records = [*item.decisions[:-1], *(last for last in item.decisions[-1:] if last.details)]
    outputs = [
        part
        for n, output in enumerate(item.outputs)
        for part in _folded(_rich(output), output, f"{item.key}:all{n}", options)
    ]
    body = _el(
        "div",
        {"class": "nba-body"},
        _el("div", {"class": "nba-input"}, _facts(item.input)) if item.input else None,
        _el("div", {"class": "nba-decisions"}, *(_record(record, options) for record in records))
        if records
        else None,
        *_printed(item, options),
        _el("div", {"class": "nba-outputs"}, *outputs) if outputs else None,
        _result(item, options),
        _rest(TEXTS["traceback"], item.traceback, f"{item.key}:traceback", options)
        if item.traceback and options.measured
        else None,
    )
    return _details("nba-call", summary, body, is_open=_is_open(item, options), state=item.state)


def _decision(record: RecordItem, options: _Options) -> Html:
    words = _el("span", {"dir": "auto"}, record.decision)
    after = _after(record, options)
    shown = _el("span", {"class": "nba-decided", "data-tone": record.tone}, words, after)
    return _OwnLine(shown) if options.measured else shown


def _after(record: RecordItem, options: _Options) -> Html:
    known = options.measured and (record.after or 0) >= 1
    seconds = amounts.duration(record.after or 0, whole_seconds=True)
    text = TEXTS["after"].format(t=seconds) if known else ""
    return _el("span", {"class": "nba-time"}, text)


def _rest(label: str, text: str, key: str, options: _Options) -> Html:
    """A fold with printed text."""
    pre = _el("pre", {"class": "nba-printed", "dir": "auto"}, text)
    summary = _el("summary", {}, label)
    return _details("nba-rest", summary, pre, is_open=options.is_open(key))


def _printed(item: CallItem, options: _Options) -> list[Html | None]:
    """Printed text: its first lines, and the others behind a fold."""
    lines = item.printed.removesuffix("\n").split("\n")
    if len(lines) < FOLDED_FROM:
        return [_auto("pre", "nba-printed", item.printed)]
    first, rest = "\n".join(lines[:FIRST_LINES]), "\n".join(lines[FIRST_LINES:])
    more = TEXTS["more_lines"].format(n=len(lines) - FIRST_LINES)
    return [_auto("pre", "nba-printed", first), _rest(more, rest, f"{item.key}:printed", options)]


def _result(item: CallItem, options: _Options) -> Html | None:
    result = _auto("pre", "nba-result", item.result)
    if result is None:
        return None
    output = Rich(kind="text", data=item.result or "")
    return _el(
        "div", {"class": "nba-outputs"}, *_folded(result, output, f"{item.key}:all", options)
    )


def _folded(drawn: Html, output: Rich, key: str, options: _Options) -> list[Html]:
    """A result; if it is long, with the button that shows all of it. Viewers without styles always show all of it."""
    label = _long(output)
    if not label:
        return [drawn]
    drawn = Html(drawn.replace(' class="', ' class="nba-long ', 1))
    summary = _el("summary", {"data-less": TEXTS["all_less"]}, _el("span", {}, label))
    return [drawn, _details("nba-rest nba-all", summary, is_open=options.is_open(key))]


def _long(output: Rich) -> str:
    """The label of the button that shows all of a result; empty if the result is short."""
    data = output.data
    if output.kind == "image":
        return ""
    if output.kind != "text":
        rows = max((body.count("<tr") for body in data.split("<tbody")[1:]), default=0)
        if rows > LONG_TABLE:
            return TEXTS["all_rows"].format(n=f"{rows:,}")
        return TEXTS["all_of"] if len(_BLOCK.findall(data)) > LONG_HTML else ""
    lines = data.removesuffix("\n").count("\n") + 1
    if lines > LONG_TEXT:
        return TEXTS["all_lines"].format(n=f"{lines:,}")
    return TEXTS["all_of"] if len(data) > LONG_TEXT * LINE else ""


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
    attributes: dict[str, str | None] = {"class": "nba-mono"} if fact.code else {"dir": "auto"}
    term = _el("dt", {"dir": "auto"}, fact.label)
    if fact.changed_from is not None:
        return term, _el(
            "dd", {}, _el("div", attributes, *_difference(fact.changed_from, fact.value))
        )
    remark = _el("small", {"class": "nba-odd", "dir": "auto"}, fact.remark) if fact.remark else None
    if fact.nested_value is not None:
        return term, _el("dd", {}, nested(fact.nested_value, 0), remark)
    if fact.html:
        return term, _el("dd", {}, _el("div", {"class": "nba-wide nba-say"}, Html(fact.html)))
    marked = (_el("mark", {"title": fact.remark}, part) for part in fact.parts[1::2])
    pieces = [each for pair in zip_longest(fact.parts[::2], marked) for each in pair]
    return term, _el("dd", {}, _el("div", attributes, *(pieces or _lines(fact.value)), remark))


def _lines(text: str) -> list[str | Html]:
    """Text whose line breaks stay in viewers without styles."""
    first, *others = text.split("\n")
    return [first, *(part for line in others for part in (Html("<br>"), line))]


def nested(value: Any, level: int = 0) -> Html:
    """A value with its nesting: names as a list of terms, similar rows as a table; JSON if it is large."""
    if level > MAX_NESTED or (isinstance(value, dict | list) and len(value) > MAX_INSIDE):
        return _el("div", {"class": "nba-mono"}, facts.result(value))
    if isinstance(value, dict) and value:
        rows: list[Html] = []
        for name, each in value.items():
            rows.append(_el("dt", {"dir": "auto"}, reveal(str(name))))
            rows.append(_el("dd", {}, nested(each, level + 1)))
        return _el("dl", {"class": "nba-kv"}, *rows)
    if isinstance(value, list) and value:
        if columns := _columns(value):
            return _table(columns, value)
        return _el("ol", {}, *(_el("li", {}, nested(each, level + 1)) for each in value))
    return _el("div", {"dir": "auto"}, facts.result(value))


def _columns(items: list[Any]) -> list[str]:
    """The column names of rows that can be a table; empty for too many columns or nested values."""
    if not all(isinstance(item, dict) and item for item in items):
        return []
    columns = list(dict.fromkeys(str(name) for item in items for name in item))
    inner = (each for item in items for each in item.values())
    flat = not any(isinstance(each, dict | list) for each in inner)
    return columns if flat and len(columns) <= MAX_COLUMNS else []


def _table(columns: list[str], items: list[Any]) -> Html:
    align: dict[str, str | None] = {}
    for name in columns:
        values = [item[name] for item in items if item.get(name) is not None]
        is_numeric = values and all(type(value) in (int, float) for value in values)
        align[name] = "right" if is_numeric else None
    head = (
        _el("th", {"scope": "col", "dir": "auto", "align": align[name]}, reveal(name))
        for name in columns
    )

    def cell(item: dict[str, Any], name: str) -> Html:
        if name not in item:
            return _el("td", {})
        return _el("td", {"dir": "auto", "align": align[name]}, facts.result(item[name]))

    rows = (_el("tr", {}, *(cell(item, name) for name in columns)) for item in items)
    table = _el("table", {}, _el("thead", {}, _el("tr", {}, *head)), _el("tbody", {}, *rows))
    return _el("div", {"class": "nba-rich nba-say"}, table)


def _difference(before: str, after: str) -> list[str | Html]:
    """The old and the new text as one difference, as the live card draws it: only changed lines and a few around them."""
    if "\n" not in before + after:
        was, now = word_diff(before, after)
        return [_side("del", was), " ", _side("ins", now)]
    lines = line_diff(before, after)
    words = _changed_words(lines)
    near = [
        any(mark != " " for mark, _ in lines[max(0, at - CONTEXT_LINES) : at + CONTEXT_LINES + 1])
        for at in range(len(lines))
    ]
    parts: list[str | Html] = []
    for at, (mark, line) in enumerate(lines):
        if near[at]:
            side = words.get(at, [(" ", line)])
            tag = {"-": "del", "+": "ins"}.get(mark)
            parts.append(_el("div", {}, line if tag is None else _side(tag, side)))
        elif at == 0 or near[at - 1]:
            parts.append(_el("div", {"class": "nba-gap"}, "⋯"))
    return parts


def _side(tag: str, parts: list[Line]) -> Html:
    """One side of a changed line, with the words that differ as ``b``."""
    return _el(tag, {}, *(text if mark == " " else _el("b", {}, text) for mark, text in parts))


def _changed_words(lines: list[Line]) -> dict[int, list[Line]]:
    """The words of each removed line and of the added line that replaces it, by line number."""
    found: dict[int, list[Line]] = {}
    remaining, at = MAX_WORD_LINES, 0
    while at < len(lines):
        middle = _end_of_run(lines, "-", at)
        end = _end_of_run(lines, "+", middle)
        for was, now in islice(zip(range(at, middle), range(middle, end), strict=False), remaining):
            found[was], found[now] = word_diff(lines[was][1], lines[now][1])
            remaining -= 1
        at = max(end, at + 1)
    return found


def _end_of_run(lines: list[Line], mark: str, start: int) -> int:
    while start < len(lines) and lines[start][0] == mark:
        start += 1
    return start


def _record(item: RecordItem, options: _Options) -> Html:
    line = (
        _el("b", {"dir": "auto"}, item.title),
        _unstyled(": "),  # the style sheet has a dot there
        _el("span", {"class": "nba-decision", "dir": "auto"}, item.decision),
        _after(item, options),
    )
    if item.details:
        inner = _el("details", {}, _el("summary", {}, *line), _facts(item.details))
    else:
        inner = _el("div", {"class": "nba-line"}, *line)
    return _el("div", {"class": "nba-record", "data-tone": item.tone}, inner)


def _form(item: FormItem) -> Html:
    """An unanswered question: its content, without buttons.

    A question that has no actions waits for another system, which its title names.
    """
    waits = _el("p", {"class": "nba-gone"}, TEXTS["waiting_static"]) if item.actions else None
    is_danger = any(action.danger and action.primary for action in item.actions)
    kind = {"data-danger": ""} if is_danger else {} if item.actions else {"data-outside": ""}
    path = " ▸ ".join(part for part in (item.path, item.tool) if part)
    fields = form_facts(item)
    return _el(
        "div",
        {"class": "nba-form", **kind},
        _el(
            "div",
            {"class": "nba-asking"},
            _el("h4", {"class": "nba-title", "dir": "auto"}, item.title),
            _auto("div", "nba-path", path),
            _auto("p", "nba-note", item.note),
        ),
        _el("div", {"class": "nba-facts"}, _facts(item.facts)) if item.facts else None,
        _el("div", {"class": "nba-fields"}, _facts(fields)) if fields else None,
        waits,
    )


def line_diff(before: str, after: str) -> list[Line]:
    """Each line with a mark: in both, only in the old text, or only in the new one."""
    return _diff(before.split("\n"), after.split("\n"))


def word_diff(before: str, after: str) -> tuple[list[Line], list[Line]]:
    """An old and a new line, as parts that are equal or differ; one part each if less than a third is equal."""
    old, new = ([word for word in _WORDS.split(line) if word] for line in (before, after))
    if len(old) * len(new) <= MAX_WORD_PAIRS:
        words = _diff(old, new)
        equal_units = sum(units(word.strip(_BLANK)) for mark, word in words if mark == " ")
        if equal_units * 3 >= max(units(before), units(after)):
            return _joined(words, "-"), _joined(words, "+")
    return [(" ", before)], [(" ", after)]


def _joined(words: list[Line], side: str) -> list[Line]:
    """One side of a changed line, with adjacent parts of the same kind joined."""
    side_words = [word for word in words if word[0] in (" ", side)]
    return [
        (mark, "".join(text for _, text in parts))
        for mark, parts in groupby(side_words, lambda w: w[0])
    ]


def _diff(old: list[str], new: list[str]) -> list[Line]:
    head = common_start(old, new)
    tail = common_start(old[head:][::-1], new[head:][::-1])
    return [
        *((" ", line) for line in new[:head]),
        *_middle(old[head : len(old) - tail], new[head : len(new) - tail]),
        *((" ", line) for line in new[len(new) - tail :]),
    ]


def _middle(old: list[str], new: list[str]) -> list[Line]:
    """The difference with the fewest removed and added lines; for too many lines, all old and all new lines."""
    if len(old) * len(new) > MAX_PAIRS:
        return [*(("-", line) for line in old), *(("+", line) for line in new)]
    # for each pair of places, the maximum number of common lines (in order) from there on
    common = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            if old[i] == new[j]:
                common[i][j] = common[i + 1][j + 1] + 1
            else:
                common[i][j] = max(common[i + 1][j], common[i][j + 1])
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
