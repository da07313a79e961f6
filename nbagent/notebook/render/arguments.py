"""The values of a call's input as HTML: code with colors, nested values as a tree that opens."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Fact

from . import facts, sanitize
from .highlight import highlighted

SHORT = 72
"""Characters of JSON up to which a nested value stays on its line."""
MAX_LEVELS = 6
MAX_INSIDE = 50
"""Values of one list or object that are drawn."""
MAX_VALUES = 400
"""Values of one tree that are drawn."""

_BY_NAME = {
    name: language
    for language, called in {
        "python": "code python source script cell",
        "sql": "sql statement",
        "bash": "command cmd bash shell",
        "json": "json",
        "html": "html xml svg",
        "css": "css",
        "javascript": "javascript js typescript",
        "yaml": "yaml",
        "diff": "diff patch",
    }.items()
    for name in called.split()
}
"""The language of a text, by the last word of the input's name."""
_SQL = re.compile(
    r"\s*(?:select|insert\s+into|update|delete\s+from|create|alter|drop|with)\b.*\b(?:from|into|set|table|as)\b",
    re.IGNORECASE | re.DOTALL,
)


def drawn(listed: list[Fact], values: Mapping[str, Any]) -> list[Fact]:
    """The facts of an input; a value that reads better as code or as a tree has HTML too."""
    some = islice(values.items(), facts.MAX_NAMES)
    known = {facts.shown(str(name), facts.MAX_BRIEF): value for name, value in some}
    return [_drawn(fact, known.get(fact.label)) for fact in listed]


def colored(listed: list[Fact], values: Mapping[str, Any]) -> list[Fact]:
    """The facts of an input that is approved; code has colors, if coloring changes no character."""
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    pairs = zip(listed, drawn(listed, texts), strict=True)
    return [
        new if new.html and _text_of(new.html) == fact.value.rstrip("\n") else fact
        for fact, new in pairs
    ]


def tint(text: str, language: str) -> str:
    """Code with colors, if coloring changes no character; else empty."""
    markup = sanitize.clean_values(highlighted(text, language))
    return markup if _text_of(markup) == text.rstrip("\n") else ""


def _text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).rstrip("\n")


def _drawn(fact: Fact, value: Any) -> Fact:
    if fact.changed_from is not None or fact.parts or fact.remark:
        return fact  # the HTML would not have the fact's marks
    markup = ""
    if isinstance(value, str):
        language = _language(fact.label, value)
        markup = highlighted(fact.value, language) if language or "\n" in value else ""
    elif isinstance(value, dict | list) and len(fact.value) > SHORT:
        markup = _Tree().of(value, 0)
    return fact.model_copy(update={"html": sanitize.clean_values(markup)}) if markup else fact


def _language(name: str, text: str) -> str:
    """The language of a text, by the name of the input or by the text's start; empty for prose."""
    last = re.split(r"[^a-z]+", name.lower())[-1] if len(name) < 60 else ""
    known = _BY_NAME.get(last, "")
    return known or ("sql" if _SQL.match(text[:2_000]) and text.lstrip()[:6].isupper() else "")


class _Tree:
    """The drawing of a nested value, with a note where parts are left out."""

    def __init__(self) -> None:
        self._room = MAX_VALUES

    def of(self, value: Any, level: int) -> str:
        """The named or numbered parts of a value, one below the other; nested parts are folded."""
        parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value, 1))
        rows: list[str] = []
        for name, each in parts[:MAX_INSIDE]:
            if self._room <= 0:
                break
            self._room -= 1
            rows.append(f"<dt>{_text(str(name))}</dt><dd>{self._part(each, level + 1)}</dd>")
        omitted = len(parts) - len(rows)
        more = TEXTS["more_facts"].format(n=f"{omitted:,}") if omitted else ""
        note = f'<p class="note">{sanitize.escape(more)}</p>' if more else ""
        return f'<dl class="nba-kv">{"".join(rows)}</dl>{note}'

    def _part(self, value: Any, level: int) -> str:
        has_parts = isinstance(value, dict | list) and value
        line = facts.brief_of(value)
        if not has_parts or level >= MAX_LEVELS or len(line) < facts.MAX_SHORT:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return f"<code>{_text(text)}</code>"
        tree = self.of(value, level)
        return f"<details><summary><code>{_text(line)}</code></summary>{tree}</details>"


def _text(text: str) -> str:
    return sanitize.escape(facts.shown(text, facts.MAX_TEXT))
