"""``nb.set_locale``: every text that nbagent shows, in another language or other words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from string import Formatter
from typing import Final, Protocol
from weakref import WeakSet

from nbagent.core.base.errors import UsageError
from nbagent.forms.texts import TEXTS as FORM_TEXTS

from .texts import BATCH_TEXTS, GRID_TEXTS, TEXTS

PREFIX = "form."
"""The prefix of the keys of the form layer's texts."""

ENGLISH: Final[Mapping[str, str]] = {
    **TEXTS,
    **BATCH_TEXTS,
    **GRID_TEXTS,
    **{f"{PREFIX}{key}": text for key, text in FORM_TEXTS.items()},
}
"""Every key with its English text. Names in braces are replaced."""


class OpenCard(Protocol):
    """A card that a page shows."""

    loop: asyncio.AbstractEventLoop

    def greet(self) -> object:
        """Send the card's pages the whole view, with all texts."""


open_cards: WeakSet[OpenCard] = WeakSet()
"""The open cards of this process; each card adds itself."""


def set_locale(mapping: Mapping[str, str]) -> None:
    """Use these texts in every card of this process, and English for all other keys.

    ``nb.set_locale({})`` restores English. Open cards use the new texts for everything that they
    draw from then on. The keys, with their English texts, are ``nbagent.notebook.locale.ENGLISH``.

    Args:
        mapping: key to text; a text may use the names in braces of its English text, such as ``{n}``.

    Raises:
        UsageError: a key is not known, or a text uses an unknown name; nothing was changed.
    """
    if not isinstance(mapping, Mapping):
        raise UsageError(
            f"set_locale takes sentences by key, such as {{'approve': 'Zulassen'}}, got {mapping!r:.40}. nbagent "
            "contains only English. nbagent.notebook.locale.ENGLISH has the keys with their English sentences"
        )
    problems = [problem for key, text in mapping.items() if (problem := _problem(key, text))]
    if problems:
        raise UsageError("set_locale: " + "; ".join(problems))
    texts = {**ENGLISH, **mapping}
    # update each mapping in place and in one step, so that another thread never misses a key
    for known in (TEXTS, BATCH_TEXTS, GRID_TEXTS):
        known.update({key: texts[key] for key in known})
    FORM_TEXTS.update({key: texts[f"{PREFIX}{key}"] for key in FORM_TEXTS})
    for card in list(open_cards):
        if not card.loop.is_closed():
            card.loop.call_soon_threadsafe(card.greet)


def _problem(key: object, text: object) -> str:
    if not isinstance(key, str) or key not in ENGLISH:
        return f"unknown key {key!r}"
    if not isinstance(text, str):
        return f"the sentence {key!r} must be a string, got {type(text).__name__}"
    try:
        unknown = _names(text) - _names(ENGLISH[key])
    except ValueError as error:
        return f"the sentence {key!r} has invalid braces: {error}"
    if unknown:
        known = ", ".join(sorted(_names(ENGLISH[key]))) or "nothing"
        return f"the sentence {key!r} uses {', '.join(sorted(unknown))}. Available: {known}"
    return ""


def _names(text: str) -> set[str]:
    """The names that a text has in braces."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}
