"""JSON as text for a person: named values, one line, or a bounded text, always with hidden characters revealed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from nbagent.core.base.controls import without_controls
from nbagent.notebook.render import lookalikes
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import GRID_TEXTS, TEXTS
from nbagent.notebook.wire import Fact

MAX_TEXT = 20_000
"""Characters of a result, or of all values of an input, that are shown."""
MAX_APPROVED = 100_000
"""Characters that are shown of an input to approve; notes in the input and above the buttons report an omission."""
MAX_NAMES = 500
"""Values of an input that are shown by name."""
MAX_REMARKS = 5
"""Different remarks about a value."""
MAX_BRIEF = 160
MAX_SHORT = 60
"""Characters of one value in a brief line."""
MAX_ROWS = 10
"""Rows that are shown one by one; of more rows, only some are shown."""
SOME_ROWS = 20
MAX_INSIDE = 100
"""Rows of an answer that are shown completely."""
NEAR_ROWS = 50
"""Rows in which an equal row is searched, to tell a changed row from added and removed ones."""
_LINE_BREAK = "⏎ "

_ABSENT: Any = object()


def shown(value: Any, room: int = MAX_APPROVED) -> str:
    """A value as text: a string unchanged, any other value as JSON; beyond ``room``, the middle is left out."""
    return reveal(bounded(_text(value), room))


def facts_of(
    values: Any,
    *,
    before: Any = None,
    room: int = MAX_APPROVED,
    prose: bool = False,
    approved: bool = False,
) -> list[Fact]:
    """One fact for each named value; values that differ from those in ``before`` are marked.

    ``room`` is the number of characters of all facts together. With ``prose``, strings are not in monospace. With
    ``approved``, no value can be mistaken for another: a string that looks like another JSON value is
    in quotes, and characters that look like other characters are marked.
    """
    if not isinstance(values, Mapping):
        return [] if values is None else [Fact(label="value", value=shown(values, room))]
    old = before if isinstance(before, Mapping) else values
    removed = [name for name in old if name not in values]
    facts: list[Fact] = []
    for name in [*values, *removed]:
        if len(facts) == MAX_NAMES or room < 0:
            more = len(values) + len(removed) - len(facts)
            return [*facts, _more(more)]
        fact = _fact(name, values.get(name, _ABSENT), old.get(name, _ABSENT), max(room, MAX_SHORT))
        if prose and isinstance(values.get(name), str):
            fact = fact.model_copy(update={"code": False})
        if approved:
            fact = _unmistakable(fact, values.get(name, _ABSENT))
        facts.append(fact)
        room -= len(fact.label) + len(fact.value) + len(fact.changed_from or "")
    return facts


def is_complete(values: Mapping[str, Any], room: int = MAX_APPROVED) -> bool:
    """Whether the facts of an input show the whole input."""
    if len(values) > MAX_NAMES:
        return False
    return sum(len(str(name)) + len(_text(value)) for name, value in values.items()) <= room


def answer_facts(values: Mapping[str, Any]) -> list[Fact]:
    """One fact for each named value of an answer; nested values stay nested."""
    some = islice(values.items(), MAX_NAMES)
    facts = [nested(shown(str(name), MAX_BRIEF), value) for name, value in some]
    more = len(values) - len(facts)
    return [*facts, _more(more)] if more else facts


def nested(label: str, value: Any) -> Fact:
    """A fact whose value may have parts: JSON text on several lines and, unless it is large, the nested value."""
    if is_rows(value) and (len(value) > MAX_INSIDE or len(_json(value)) > MAX_TEXT):
        return some_rows(label, value[:SOME_ROWS], len(value))
    has_parts = isinstance(value, dict | list) and value
    nested_value = value if has_parts and len(_json(value)) <= MAX_TEXT else None
    text = result(value) if has_parts else shown(value, MAX_TEXT)
    return Fact(label=label, value=text, nested_value=nested_value)


def changes(values: Mapping[str, Any], before: Mapping[str, Any]) -> list[Fact]:
    """Only the facts that a person changed; of many rows, only the rows that differ."""
    both: dict[str, tuple[Any, Any]] = {name: (values[name], before.get(name)) for name in values}
    tables = [
        name
        for name, two in both.items()
        if all(isinstance(each, list) for each in two) and any(map(is_rows, two))
    ]
    rest, old = ({k: v for k, v in of.items() if k not in tables} for of in (values, before))
    found = [fact for fact in facts_of(rest, before=old) if fact.changed_from is not None]
    differ = (name for name in tables if not same_json(*both[name]))
    return found + [_row_changes(name, *both[name]) for name in differ]


def is_rows(value: Any) -> bool:
    """Whether a value is a list of so many objects that only some of them are shown."""
    is_long = isinstance(value, list) and len(value) > MAX_ROWS
    return is_long and all(isinstance(row, dict) for row in value)


def beside_rows(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not lists of many objects, which a form shows as a grid."""
    return {name: value for name, value in values.items() if not is_rows(value)}


def some_rows(label: str, rows: list[dict[str, Any]], total: int) -> Fact:
    """A fact with the first of many rows, and their number."""
    note = GRID_TEXTS["grid_first"].format(n=len(rows), all=f"{total:,}")
    lines = [f"{number}: {brief(row)}" for number, row in enumerate(rows, 1)]
    return Fact(label=label, value="\n".join(lines), nested_value=rows, remark=note)


def _row_changes(name: str, rows: list[Any], before: list[Any]) -> Fact:
    """A fact with the differences between two lists of rows; a changed row has the number that it had before."""
    counts = dict.fromkeys(("grid_changed", "grid_added", "grid_deleted"), 0)
    lines: list[str] = []
    for kind, number, line in _edits(rows, before):
        counts[kind] += 1
        if len(lines) < SOME_ROWS:
            lines.append(f"{GRID_TEXTS['grid_row_is'].format(n=f'{number:,}')} {line()}")
    more = sum(counts.values()) - len(lines)
    lines += [GRID_TEXTS["grid_more"].format(n=f"{more:,}")] if more else []
    texts = [GRID_TEXTS[kind].format(n=f"{n:,}") for kind, n in counts.items() if n]
    head = GRID_TEXTS["grid_of"].format(what=", ".join(texts), all=f"{len(before):,}")
    return Fact(label=shown(str(name), MAX_BRIEF), value="\n".join([head, *lines]), code=False)


def _edits(rows: list[Any], before: list[Any]) -> Iterator[tuple[str, int, Callable[[], str]]]:
    """What turns the earlier rows into the new ones: the kind, the row's number, and the text in words.

    The grid keeps the order of rows. So a row that differs was changed, unless the next equal row is nearby in one of
    the lists.
    """
    new, old = (list(map(_json, each)) for each in (rows, before))
    at = now = 0
    while at < len(old) or now < len(new):
        if at < len(old) and now < len(new) and old[at] == new[now]:
            at, now = at + 1, now + 1
            continue
        is_between = at < len(old) and now < len(new)
        is_alone = is_between and old[at + 1 : at + 2] == new[now + 1 : now + 2] != []
        gone = _distance(old, at, new[now]) if now < len(new) else len(old) - at
        fresh = _distance(new, now, old[at]) if at < len(old) else len(new) - now
        if is_alone or (is_between and not gone and not fresh):
            yield "grid_changed", at + 1, partial(_cell_changes, rows[now], before[at])
            at, now = at + 1, now + 1
        elif gone:
            for index in range(at, at + gone):
                text = partial(_row_text, "grid_row_deleted", before[index])
                yield "grid_deleted", index + 1, text
            at += gone
        else:
            for index in range(now, now + fresh):
                yield "grid_added", index + 1, partial(_row_text, "grid_row_added", rows[index])
            now += fresh


def _distance(rows: list[str], start: int, wanted: str) -> int:
    """How many rows are before the next equal row, 0 if there is none nearby."""
    near = rows[start : start + NEAR_ROWS]
    return near.index(wanted) if wanted in near else 0


def _row_text(key: str, row: Any) -> str:
    return GRID_TEXTS[key].format(row=brief(row) if isinstance(row, dict) else brief_of(row))


def _cell_changes(row: Any, before: Any) -> str:
    if not isinstance(row, dict) or not isinstance(before, dict):
        return f"{brief_of(before)} → {brief_of(row)}"
    differ = [
        name
        for name in {**before, **row}
        if not same_json(row.get(name), before.get(name)) or (name in row) != (name in before)
    ]
    texts = [
        f"{shown(name, MAX_SHORT)}: {_cell(before, name)} → {_cell(row, name)}"
        for name in differ[:SOME_ROWS]
    ]
    return "; ".join(texts)


def _cell(row: dict[str, Any], name: str) -> str:
    return brief_of(row[name]) if name in row else TEXTS["fact_left_out"]


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: ``1``, ``1.0`` and ``true`` differ."""
    return _json(one) == _json(other)


def brief(values: Mapping[str, Any]) -> str:
    """An input on one line: ``name=value, …``, with strings in quotes and line breaks as ``⏎``."""
    some = islice(values.items(), MAX_BRIEF)
    room = max(MAX_SHORT, MAX_BRIEF // max(1, len(values)))
    text = ", ".join(f"{name[:MAX_BRIEF]}={_short(value, room)}" for name, value in some)
    line = " ".join(text.split())
    return reveal(line if len(line) <= MAX_BRIEF else line[: MAX_BRIEF - 1] + "…")


def brief_of(value: Any) -> str:
    """A value on one line."""
    return reveal(" ".join(_short(value).split()))


def result(value: Any, room: int = MAX_TEXT) -> str:
    """A tool's result as text, bounded; JSON of some length on several lines."""
    text = _text(value)
    if isinstance(value, dict | list) and 80 < len(text) <= MAX_TEXT:
        text = _json(value, indent=2)
    return reveal(bounded(text, room))


def code_block(value: Any) -> str:
    """A result as a block of code in Markdown."""
    return fenced(result(value), "json")


def fenced(text: str, language: str = "") -> str:
    """A code block in Markdown, whose fences are longer than any fence in the code."""
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    return f"{fence}{language}\n{without_controls(text)}\n{fence}"


def bounded(text: str, room: int = MAX_TEXT) -> str:
    """The text; if it is very long, without its middle."""
    if len(text) <= room:
        return text
    half = room // 2
    note = TEXTS["left_out_inside"].format(n=f"{len(text) - 2 * half:,}")
    return f"{text[:half]}\n{note}\n{text[-half:]}"


def _more(number: int) -> Fact:
    return Fact(label="…", value=TEXTS["more_facts"].format(n=number), code=False)


def _fact(name: str, value: Any, old: Any, room: int) -> Fact:
    label = shown(str(name), MAX_BRIEF)
    if value is _ABSENT:
        left_out = TEXTS["fact_left_out"]
        return Fact(label=label, value=left_out, code=False, changed_from=shown(old, room))
    changed = None
    if old is _ABSENT:
        changed = TEXTS["fact_left_out"]
    elif old is not value and not same_json(old, value):
        changed = shown(old, room)
    return Fact(label=label, value=shown(value, room), changed_from=changed)


def remarks(value: Any) -> str:
    """Remarks about the characters of a value that look like other characters; empty if there are none."""
    text = "" if value is None else shown(value)
    return _listed([found.description for found in lookalikes.found(text)])


def _unmistakable(fact: Fact, value: Any) -> Fact:
    text, remark = fact.value, []
    if isinstance(value, str) and _reads_as_json(value):
        if len(value) <= MAX_SHORT and not value.strip().startswith(("{", "[")):
            text = reveal(_json(value))
        else:
            remark = [TEXTS["remark_json"]]
    places = lookalikes.found(text)
    parts, at = [], 0
    for start, end, _ in places:
        if start >= at:
            parts += [text[at:start], text[start:end]]
            at = end
    listed = _listed(
        [*remark, *(found.description for found in [*places, *lookalikes.found(fact.label)])]
    )
    pieces = [*parts, text[at:]] if parts else []
    return fact.model_copy(update={"value": text, "parts": pieces, "remark": listed})


def _reads_as_json(text: str) -> bool:
    """Whether a text, without added quotes, reads as JSON; also true for a blank text."""
    if not text.strip() or len(text) > MAX_TEXT or text.strip()[0] not in '-0123456789tfn{["NI':
        return not text.strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _listed(found: list[str]) -> str:
    """The first few different remarks, in one line."""
    different = [*dict.fromkeys(found)]
    more = [TEXTS["remark_more"]] if len(different) > MAX_REMARKS else []
    return ", ".join([*different[:MAX_REMARKS], *more])


def _short(value: Any, room: int = MAX_SHORT) -> str:
    if isinstance(value, str):
        start = value.strip()[: 10 * room]
        value = _LINE_BREAK.join(" ".join(line.split()) for line in start.splitlines())
    text = ""
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > room:
            return text[: room - 1] + "…"
    return text


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
