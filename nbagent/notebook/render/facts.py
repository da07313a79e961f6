"""JSON as a person reads it: named values, one line, or a bounded text. All of it revealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.wire import Fact

MAX_TEXT = 20_000
"""Characters of a result that are shown; approved values are never cut."""
MAX_BRIEF = 160
MAX_SHORT = 60
"""Characters of one value in a brief line."""
_LINE_BREAK = "⏎ "

_ABSENT: Any = object()


def shown(value: Any) -> str:
    """A value as text: a string as it is, everything else as JSON."""
    return reveal(value if isinstance(value, str) else _json(value))


def facts_of(values: Any, *, before: Any = None) -> list[Fact]:
    """One fact for each named value; with ``before``, marked where a value differs from there."""
    if not isinstance(values, Mapping):
        return [] if values is None else [Fact(label="value", value=shown(values))]
    old = before if isinstance(before, Mapping) else values
    facts = [_fact(name, value, old.get(name, _ABSENT)) for name, value in values.items()]
    gone = [name for name in old if name not in values]
    return facts + [
        Fact(label=reveal(name), value="(left out)", code=False, changed_from=shown(old[name]))
        for name in gone
    ]


def answer_facts(values: Mapping[str, Any]) -> list[Fact]:
    """One fact for each named value of an answer, nested ones as they are nested."""
    return [nested(reveal(str(name)), value) for name, value in values.items()]


def nested(label: str, value: Any) -> Fact:
    """A fact whose value may hold others; as text it is JSON on several lines."""
    whole = value if isinstance(value, dict | list) and value else None
    text = shown(value) if whole is None else result(value)
    return Fact(label=label, value=text, whole=whole)


def changes(values: Mapping[str, Any], before: Mapping[str, Any]) -> list[Fact]:
    """The facts that a person changed, and those alone."""
    return [fact for fact in facts_of(values, before=before) if fact.changed_from is not None]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: ``1``, ``1.0`` and ``true`` differ."""
    return _json(one) == _json(other)


def brief(values: Mapping[str, Any]) -> str:
    """An input on one line: ``name=value, …``, texts in quotes, their line breaks as a sign."""
    text = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
    line = " ".join(text.split())
    return reveal(line if len(line) <= MAX_BRIEF else line[: MAX_BRIEF - 1] + "…")


def result(value: Any) -> str:
    """A tool's result as text, bounded."""
    if isinstance(value, dict | list) and len(_json(value)) > 80:
        return bounded(reveal(_json(value, indent=2)))
    return bounded(shown(value))


def bounded(text: str) -> str:
    """The text, its middle left out where it is very long."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _fact(name: str, value: Any, old: Any) -> Fact:
    changed = None
    if old is _ABSENT:
        changed = "(left out)"
    elif old is not value and not same(old, value):
        changed = shown(old)
    return Fact(label=reveal(str(name)), value=shown(value), changed_from=changed)


def _short(value: Any) -> str:
    if isinstance(value, str):
        value = _LINE_BREAK.join(" ".join(line.split()) for line in value.strip().splitlines())
    text = _json(value)
    return text if len(text) <= MAX_SHORT else text[: MAX_SHORT - 1] + "…"


def _json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
