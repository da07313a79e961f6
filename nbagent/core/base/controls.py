"""Control characters in a text of others: never raw where it may reach a terminal."""

from __future__ import annotations

import re
from functools import cache

_CONTROLS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # invisible, or turning the direction
    "\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
    "\ud800-\udfff"  # half characters
    "]"
)
"""Unicode's categories Cc, Cf, Cs, Zl and Zp, but tab and newline."""

_BLOCKS = [
    *((0x0, 0x1000), (0x1800, 0x2100), (0xD800, 0xE000), (0xFE00, 0x11100)),
    *((0x13400, 0x13500), (0x1BC00, 0x1BD00), (0x1D100, 0x1D200), (0xE0000, 0xE0080)),
]
"""Where they are."""


def escaped(text: str) -> str:
    r"""The text with each control character as Python writes it, ``\x1b``; newline and tab stay."""
    return text if _CONTROLS.search(text) is None else text.translate(_written())


@cache
def _written() -> dict[int, str]:
    """How each of them is written; made when one is first met."""
    every = [chr(code) for first, end in _BLOCKS for code in range(first, end)]
    return {ord(c): c.encode("unicode_escape").decode() for c in every if _CONTROLS.match(c)}
