"""Characters that a page or terminal does not show, or that change the order of the text around them.

A text with such a character can read differently from what runs. ``frontend/fields/hidden.js`` has the same
patterns, for text that a person types.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .controls import CONTROLS

HIDDEN = (
    f"[{CONTROLS}"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # letters that nobody sees
    "\u200b-\u200f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001345f\U000e0000-\U000e0fff"  # more variation selectors, unassigned ignorables
    "]"
)
EMOJI = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
MARK = (
    "[\u0300-\u034e\u0350-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]"
)
ANY_HIDDEN = re.compile(HIDDEN)
JOINED = re.compile(f"({EMOJI}\ufe0f?)(?:\u200d(?={EMOJI}))?|({HIDDEN})")
"""An emoji with the selector and joiner that shape it, or a hidden character."""
STACKED = re.compile(f"(?<={MARK}{{3}}){MARK}+")
"""Combining marks on one letter, beyond the third."""
_CONTROL_NAMES = {
    "\0": "null",
    "\x08": "backspace",
    "\x0b": "vertical tab",
    "\f": "form feed",
    "\r": "carriage return",
    "\x1b": "escape",
}


def hidden_in(text: str) -> Iterator[tuple[int, str]]:
    """The place and the character of everything in a text that is not shown as it is."""
    if ANY_HIDDEN.search(text):
        for found in JOINED.finditer(text):
            if found[2]:
                yield found.start(), found[2]
    for found in STACKED.finditer(text):
        yield found.start(), found[0][0]


def checked_code(code: str) -> str:
    """The code, which a person reads as it runs. Of hidden characters, it may have only those of Windows line ends.

    Raises:
        ValueError: the code has a hidden character; the message names the character and its line.
    """
    text = code.replace("\r\n", "\n")
    for at, char in hidden_in(text):
        name = _CONTROL_NAMES.get(char) or unicodedata.name(char, "").lower()
        line, described = text.count("\n", 0, at) + 1, f"U+{ord(char):04X} {name}".strip()
        raise ValueError(
            f"line {line} has {described}, which nobody can see. Write the code without it, or as an escape"
        )
    return code
