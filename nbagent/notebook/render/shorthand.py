"""The format of streamed HTML: only the change to the unfinished part, with one character for each common tag.

The page decodes the format (``frontend/shorthand.js``). ``tests/fixtures/wire.json`` has examples that test
both ends.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from .sanitize import names

TAGS = (
    '<span class="k">',
    '<span class="nf">',
    '<span class="nb">',
    '<span class="s">',
    '<span class="c">',
    '<span class="m">',
    "</span>",
    "<p>",
    "</p>",
    "<strong>",
    "</strong>",
    "<em>",
    "</em>",
    "<code>",
    "</code>",
    "<ul>\n<li>",
    "<ol>\n<li>",
    "</li>\n<li>",
    "</li>\n",
    "<table>\n<thead>\n<tr>\n",
    "</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n",
    "</td>\n</tr>\n<tr>\n",
    "</td>\n</tr>\n</tbody>\n</table>",
    "<th>",
    '<th align="right">',
    "</th>\n",
    "<td>",
    '<td align="right">',
    "</td>\n",
    '<pre class="code"><code>',
    "</code></pre>",
)
"""Tags that are sent as one character: the first as U+0081, and so on. U+0080 escapes such a character in the text."""
_QUOTE = "\x80"
_SIGNS = {tag: chr(ord(_QUOTE) + number) for number, tag in enumerate(TAGS, 1)}
_SHORT = re.compile("|".join([*map(re.escape, sorted(TAGS, key=len, reverse=True)), "[\x80-\x9f]"]))
_SPACES = " \n"
"""Characters between tags."""
_ENDS = names("p li ul ol blockquote h4 h5 h6 pre table thead tbody tr td th")


def short(text: str) -> str:
    """The HTML with one character in place of each common tag."""
    return _SHORT.sub(lambda found: _SIGNS.get(found[0]) or _QUOTE + found[0], text)


def open_end(tail: str, raw: str) -> str:
    """The open part as one piece of HTML: the raw text, inserted in the tail's last block."""
    tail = tail or "<p></p>"
    end = _end_of_text(tail)
    return tail[:end] + html.escape(raw, quote=False) + tail[end:]


def _end_of_text(text: str) -> int:
    """The position after the last block's text, before the closing tags."""
    size = len(text)
    while True:
        before = text[:size].rstrip(_SPACES)
        start = before.rfind("<")
        tag = before[start + 2 : -1] if start >= 0 and before.startswith("</", start) else ""
        is_code = tag == "code" and text.startswith("</pre>", size)
        if not (is_code or tag in _ENDS) or not before.endswith(">"):
            return size
        size = start


def common_start(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of characters, lines or others that two sequences of one type have in common at the start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def units(text: str) -> int:
    """The length of a text in UTF-16 units, as a page counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
