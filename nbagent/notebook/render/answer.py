"""A typed answer as HTML for a person: named values, and similar rows as a table. The answer may be incomplete."""

from __future__ import annotations

from typing import Any

from nbagent.notebook.texts import TEXTS

from . import facts, markdown, sanitize
from .static import nested

MAX_ROWS = 100
"""Values of one list or object that are drawn."""
MAX_LEVELS = 5
MAX_CHARS = 2_000
"""Characters of one string in the answer."""
MAX_DRAWN = 40_000
"""Characters of all that is drawn; each value counts as at least ``VALUE``."""
VALUE = 25


def drawn(value: Any, *, is_complete: bool) -> str:
    """A value as sanitized HTML, with a note if parts are left out; a complete value is followed by folded JSON."""
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
    """An incomplete value without the empty lists and objects at its end, which have no content yet."""
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
    """A reduction of a value to a size that can be drawn, with the number of omitted parts."""

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
