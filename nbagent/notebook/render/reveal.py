"""Visible forms of invisible characters, so that the text that a person approves is the text that runs."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

from nbagent.core.base.controls import CONTROLS
from nbagent.notebook.texts import TEXTS

_HIDDEN = re.compile(
    f"[{CONTROLS}"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # letters that nobody sees
    "\u200b-\u200f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001345f\U000e0000-\U000e0fff"  # more variation selectors, unassigned ignorables
    "]"
)
_EMOJI = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_JOINED = re.compile(f"({_EMOJI}\ufe0f?)(?:\u200d(?={_EMOJI}))?|({_HIDDEN.pattern})")
"""An emoji with the selector and joiner that shape it, or a hidden character."""

_MARK = (
    "[\u0300-\u034e\u0350-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]"
)
_STACKED = re.compile(f"(?<={_MARK}{{3}}){_MARK}+")
FEW = 20
"""The number of different hidden characters up to which each is replaced separately."""
_SHAPING = re.compile("[\u200d\ufe0f]")
_COLORS = re.compile(r"\x1b\[[0-9;:]*m")


def reveal(text: str) -> str:
    """The text with each invisible or direction-changing character as ``⟨U+202E⟩``.

    Newline and tab stay, and so do the selector and the joiner inside an emoji. Of the combining marks on
    one letter, three stay, and the other marks are counted.
    """
    if _STACKED.search(text):
        text = _STACKED.sub(lambda found: TEXTS["stacked"].format(n=len(found[0])), text)
    if not _HIDDEN.search(text):
        return text
    if _SHAPING.search(text):
        return _JOINED.sub(_shown, text)
    hidden = [each for each in set(text) if ord(each) in _signs()]
    if len(hidden) > FEW:
        return text.translate(_signs())
    for each in hidden:  # one pass for each, however often it occurs
        text = text.replace(each, _sign(each))
    return text


@cache
def _signs() -> dict[int, str]:
    """The visible form of each hidden character."""
    planes = (
        range(0x14000),
        range(0x1B000, 0x1E000),
        range(0xE0000, 0xE1000),
    )  # other planes have no hidden characters
    every = "".join(map(chr, chain(*planes)))
    return {ord(hidden): _sign(hidden) for hidden in _HIDDEN.findall(every)}


def _sign(hidden: str) -> str:
    return f"⟨U+{ord(hidden):04X}⟩"


def _shown(match: re.Match[str]) -> str:
    hidden = match[2]
    return match[0] if hidden is None else _sign(hidden)


def terminal(text: str) -> str:
    """Printed text as a terminal finally shows it: without overwritten lines and colors; hidden characters revealed."""
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return reveal(text)
