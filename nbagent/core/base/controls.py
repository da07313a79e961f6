"""Escapes of control characters in text from others, before it reaches a terminal, a log, a name, a page or a file.

``escaped`` is for text in the form of Python: reprs, errors, logs, terminals. ``without_controls`` is for prose on a
page or in an exported document; it keeps the invisible characters that scripts and emoji need.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cache
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)

CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls except tab and newline
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # invisible, or changing the text's direction
    "\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
    "\ud800-\udfff"  # half characters
)
"""Unicode's categories Cc, Cf, Cs, Zl and Zp, except tab and newline; to be used in the brackets of a pattern."""
_CONTROLS = re.compile(f"[{CONTROLS}]")

_BLOCKS = [
    *((0x0, 0x1000), (0x1800, 0x2100), (0xD800, 0xE000), (0xFE00, 0x11100)),
    *((0x13400, 0x13500), (0x1BC00, 0x1BD00), (0x1D100, 0x1D200), (0xE0000, 0xE0080)),
]
"""Ranges of code points that contain all ``CONTROLS``."""


def escaped(text: str) -> str:
    r"""The text with each control character as Python writes it, such as ``\x1b``; newline and tab stay."""
    return text if _CONTROLS.search(text) is None else text.translate(_written())


@cache
def _written() -> dict[int, str]:
    """The escape of each control character, by its code point; made on first use."""
    every = [chr(code) for first, end in _BLOCKS for code in range(first, end)]
    return {ord(c): c.encode("unicode_escape").decode() for c in every if _CONTROLS.match(c)}


_PROSE = re.compile("[\n\t -~\xa0-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\U0010ffff]*+")
"""Text without control characters (except tab and newline), half characters, separators and changes of direction."""


def without_controls(text: str) -> str:
    """The text with ``⟨U+001B⟩`` for each character that moves, colors, ends or reverses the text around it.

    A carriage return becomes a newline. Joiners, marks and other invisible letters stay: scripts and emoji need them.
    """
    if _PROSE.fullmatch(text) is not None:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_signs("⟨U+{:04X}⟩"))


def json_without_controls(text: str) -> str:
    """A JSON document with control characters as JSON escapes, which do not change its value."""
    return text if _PROSE.fullmatch(text) is not None else text.translate(_signs("\\u{:04x}"))


@cache
def _signs(form: str) -> dict[int, str]:
    """The sign for each character, by its code point, in this form."""
    codes = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))
    codes += (*range(0x2066, 0x206A), *range(0xD800, 0xE000))
    return {code: form.format(code) for code in codes if chr(code) not in "\t\n"}


def escaped_repr(cls: _Class) -> _Class:
    """A class decorator that escapes control characters in the repr, for a class with values from others."""
    original: Callable[..., str] = cls.__repr__

    def __repr__(self: object) -> str:  # noqa: N807 - it becomes the class's own
        return escaped(original(self))

    cls.__repr__ = __repr__  # type: ignore[assignment]  # a class decorator sets it
    return cls


class _Log(logging.Filter):
    """A log filter that escapes control characters in each record and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (plain := escaped(message)) != message:
            record.msg, record.args = plain, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = escaped(logging.Formatter().formatException(record.exc_info))
        return True


logging.getLogger("nbagent").addFilter(_Log())
