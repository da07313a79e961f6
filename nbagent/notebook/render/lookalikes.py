"""Parts of a text that can deceive a reader: letters of another script, unusual spaces, blanks at the text's ends."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from nbagent.notebook.texts import TEXTS

MAX_FOUND = 50
"""Places of one text that are marked."""

_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_SIGN = re.compile("[\u2010\u2011\u2024\u2044\u2215\u2236\ua4f8\ua789]")
"""Hyphens, dots, slashes and colons that are not the keyboard's."""
_CYRILLIC = frozenset(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u0501\u04bb\u04cf\u051b\u051d\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405"
)
_GREEK = frozenset(
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03b9\u03bd"
)
_OTHER = frozenset("\u0585\u0578\u057d\u0581\u0570\u04c0\u0510\u051d\u13c0\u13aa\u13ac\u13e2\u13a2")
_ALIKE = _CYRILLIC | _GREEK | _OTHER
"""Letters of other scripts that look like letters from a to z."""
_STYLED = ("<font>", "<wide>", "<circle>", "<compat>")


class Found(NamedTuple):
    """A place in a text, and a description of it in words."""

    start: int
    end: int
    description: str


def found(text: str) -> list[Found]:
    """The marked places of this text, in order; most texts have none."""
    return sorted(islice(_found(text), MAX_FOUND))


def _found(text: str) -> Iterator[Found]:
    start, end = len(text) - len(text.lstrip(" \t")), len(text.rstrip(" \t"))
    if start and start < len(text):
        yield Found(0, start, _blanks("remark_start", start))
    if max(start, end) < len(text):
        yield Found(end, len(text), _blanks("remark_end", len(text) - end))
    if text.endswith("\n") and text.find("\n") == len(text) - 1:
        yield Found(len(text) - 1, len(text), TEXTS["remark_break"])
    if text.isascii():
        return
    for sign in chain(_SPACE.finditer(text), _SIGN.finditer(text)):
        yield Found(*sign.span(), _name(sign[0]))
    words = [word for word in _WORD.finditer(text) if not word[0].isascii()]
    latin = re.search("[A-Za-z]", text) is not None
    foreign = any(_is_foreign(word[0]) for word in words)
    for word in words:
        mixed = re.search("[A-Za-z]", word[0]) is not None
        alike = latin and not foreign and all(c in _ALIKE or c.isdigit() for c in word[0])
        for at, char in enumerate(word[0], word.start()):
            if (
                _is_styled(char)
                or ((mixed or alike) and char in _ALIKE)
                or (mixed and _script(char) == "CYRILLIC")
            ):
                yield Found(at, at + 1, _name(char))


def _is_foreign(word: str) -> bool:
    """Whether a word clearly belongs to another script, because it has letters that do not look like Latin ones."""
    scripts = {_script(char) for char in word if char not in _ALIKE and char.isalpha()}
    return bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}) and "LATIN" not in scripts


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def _is_styled(char: str) -> bool:
    """Whether a character is an ASCII letter or digit in another style, such as full width."""
    if char.isascii() or not unicodedata.decomposition(char).startswith(_STYLED):
        return False
    plain = unicodedata.normalize("NFKC", char)
    return len(plain) == 1 and plain.isascii() and plain.isalnum()


def _name(char: str) -> str:
    """A letter with its script, or the name of another character, such as ``no-break space``."""
    script, _, rest = unicodedata.name(char, f"U+{ord(char):04X}").partition(" ")
    if "LETTER" in rest:
        return f"{script.capitalize()} {char}"
    return f"{script} {rest}".strip().lower() + ("" if _SPACE.match(char) else f" {char}")


def _blanks(key: str, number: int) -> str:
    return TEXTS[key if number > 1 else f"{key}_one"].format(n=number)
