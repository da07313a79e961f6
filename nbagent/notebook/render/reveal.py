"""Makes characters visible that a person would not see, so that what is approved is what runs."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, separators, bidi
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff"  # lone surrogates: no text can hold them
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # tags, more variation selectors, unassigned ignorables
    "]"
)
_EMOJI = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_JOINED = re.compile(f"({_EMOJI}\ufe0f?)(?:\u200d(?={_EMOJI}))?|({_HIDDEN.pattern})")
"""An emoji with the selector and joiner that shape it, or a hidden character."""

_COLORS = re.compile(r"\x1b\[[0-9;:]*m")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")


def reveal(text: str) -> str:
    """The text with each invisible or direction-changing character as ``⟨U+202E⟩``.

    Newline and tab stay, and so do the selector and the joiner inside an emoji.
    """
    if not _HIDDEN.search(text):
        return text
    return _JOINED.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    hidden = match[2]
    return match[0] if hidden is None else f"⟨U+{ord(hidden):04X}⟩"


def terminal(text: str) -> str:
    """Printed text as a terminal leaves it: overwritten lines and colors gone, the rest revealed."""
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text.replace("\r\n", "\n")).replace("\r", "")
    return reveal(text)
