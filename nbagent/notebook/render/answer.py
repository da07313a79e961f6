"""A typed answer as a person reads it: named values, and a table of rows that are alike, as far as it has arrived."""

from __future__ import annotations

from typing import Any

from nbagent.notebook.texts import TEXTS

from . import facts, markdown, sanitize
from .static import nested

MAX_ROWS = 100
"""Values of one list or object that are drawn."""
MAX_LEVELS = 5
MAX_CHARS = 2_000
"""Characters of one text in it."""
MAX_DRAWN = 40_000
"""Characters of all that is drawn; each value counts as at least ``VALUE``."""
VALUE = 25


def drawn(value: Any, *, is_complete: bool) -> str:
    """A value as sanitized HTML, visibly bounded; with its JSON, folded, once it ``is_complete``."""
    if not is_complete:
        value = _without_open_end(value)
        if value in ({}, []):
            return ""
    pruned = _Pruned()
    html: str = nested(pruned.of(value, 0))
    if pruned.omitted:
        note = TEXTS["more_facts"].format(n=f"{pruned.omitted:,}")
        html = f'{html}<p class="note">{sanitize.escape(note)}</p>'
    if is_complete and value and isinstance(value, dict | list):
        json = markdown.render(facts.code_block(value))
        html = f"{html}<details><summary>JSON</summary>{json}</details>"
    return sanitize.clean_values(html)


def _without_open_end(value: Any) -> Any:
    """A value that grows at its end, without its incomplete last part: an empty row is not a row yet."""
    if not value or not isinstance(value, dict | list):
        return value
    last = next(reversed(value)) if isinstance(value, dict) else len(value) - 1
    trimmed = _without_open_end(value[last])
    known: Any = value.copy()
    if trimmed in ({}, []):
        del known[last]
    else:
        known[last] = trimmed
    return known


class _Pruned:
    """Makes a value small enough to draw, and counts the parts that are left out."""

    def __init__(self) -> None:
        self.omitted = 0
        self._room = MAX_DRAWN

    def of(self, value: Any, level: int) -> Any:
        """The value, without its surplus parts."""
        self._room -= VALUE
        if isinstance(value, str):
            text = facts.bounded(value, MAX_CHARS)
            self._room -= len(text)
            return text
        if not isinstance(value, dict | list):
            return value
        if level == MAX_LEVELS:
            return facts.brief_of(value)
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        kept: dict[Any, Any] = {}
        for name, each in items[:MAX_ROWS]:
            if self._room <= 0:
                break
            kept[name] = self.of(each, level + 1)
        self.omitted += len(items) - len(kept)
        return kept if isinstance(value, dict) else list(kept.values())
