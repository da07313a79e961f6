"""Visible forms of invisible characters, so that the text that a person approves is the text that runs."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

from nbagent.core.base.hidden import ANY_HIDDEN, JOINED, STACKED
from nbagent.notebook.texts import TEXTS

FEW = 20
"""The number of different hidden characters up to which each is replaced separately."""
_SHAPING = re.compile("[\u200d\ufe0f]")
_COLORS = re.compile(r"\x1b\[[0-9;:]*m")


def reveal(text: str) -> str:
    """The text with each invisible or direction-changing character as ``⟨U+202E⟩``.

    Newline and tab stay, and so do the selector and the joiner inside an emoji. Of the combining marks on
    one letter, three stay, and the other marks are counted.
    """
    if STACKED.search(text):
        text = STACKED.sub(lambda found: TEXTS["stacked"].format(n=len(found[0])), text)
    if not ANY_HIDDEN.search(text):
        return text
    if _SHAPING.search(text):
        return JOINED.sub(_shown, text)
    hidden = [each for each in set(text) if ord(each) in _signs()]
    if len(hidden) > FEW:
        return text.translate(_signs())
    for each in hidden:  # one pass for each, however often it occurs
        text = text.replace(each, _sign(each))
    return text


@cache
def _signs() -> dict[int, str]:
    """The visible form of each hidden character."""
    # other planes have no hidden characters
    planes = (range(0x14000), range(0x1B000, 0x1E000), range(0xE0000, 0xE1000))
    every = "".join(map(chr, chain(*planes)))
    return {ord(hidden): _sign(hidden) for hidden in ANY_HIDDEN.findall(every)}


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
