"""HTML of unknown origin, rewritten so that the sanitizer's time is proportional to the HTML's length.

For most tags, the parser of a browser or of the sanitizer walks through all open elements. The parser repeats
unclosed formatting in each block that follows, and compares every attribute of a tag with all others. The
rewritten HTML is nested a few levels deep, closes every tag, and has few attributes in a tag. It is not sanitized
yet.
"""

from __future__ import annotations

import re
from itertools import islice

from .sanitize import ATTRIBUTES, DROPPED, MATH, PROSE, names

MAX_DEPTH = 64
"""Levels of elements; the tags of deeper elements are left out, but not their content."""
MAX_FORMATS = 8
"""Levels of elements for formatting, such as ``b``."""
MAX_ATTRIBUTES = 20
"""Attributes of a tag that are looked at."""

_TAG = re.compile(
    r"<!--(?:[^-]|-(?!->))*+(?:-->)?|<[!?][^>]*+>?"
    r"""|<(?P<close>/?)(?P<name>[A-Za-z][\w:-]*+)(?P<attributes>(?:[^>"']|"[^"]*+"?|'[^']*+'?)*+)>?"""
)
"""A tag or a comment. Text that starts like a tag counts as a tag; a tag that never ends takes the rest of the text."""
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"'<>]++))?""")
_REMOTE = re.compile(r"(?:https?:)?//", re.IGNORECASE)

_VOID = names("br col embed hr img wbr")
_RAW = names("iframe noscript script style textarea title")
"""Elements whose content contains no tags; only their own end tag ends them."""
_FORMATS = names("a b code em i s small strong u")
_CLOSING = names(
    "blockquote details div dl figcaption figure h1 h2 h3 h4 h5 h6 hr ol p pre summary table ul"
)
"""Elements that end an open paragraph."""
_IMPLIED = {
    "li": (names("li"), names("ol ul")),
    "dt": (names("dd dt"), names("dl")),
    "dd": (names("dd dt"), names("dl")),
    "td": (names("td th"), names("table tr")),
    "th": (names("td th"), names("table tr")),
    "tr": (names("tr"), names("table")),
    "tbody": (names("tbody tfoot thead"), names("table")),
    "tfoot": (names("tbody tfoot thead"), names("table")),
    "thead": (names("tbody tfoot thead"), names("table")),
}
"""Elements whose start ends an element of the first set, unless an element of the second set is between them."""


class _Rewriter:
    """A reader that rewrites the markup."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.remote: dict[str, None] = {}
        self._open: list[str] = []
        self._formats = 0

    def feed(self, markup: str) -> None:
        """Read and rewrite all of the markup."""
        at = 0
        while tag := _TAG.search(markup, at):
            self.out.append(markup[at : tag.start()].replace("<", "&lt;"))
            name = (tag["name"] or "").lower()
            at = tag.end()
            if name in DROPPED and not tag["close"] and name not in _VOID:
                at = _after(markup, name, at)
            elif not tag["close"] and (name in PROSE or name in MATH):
                self._start(name, tag["attributes"])
            elif tag["close"] and name in self._open:
                self._end(len(self._open) - 1 - self._open[::-1].index(name))
        self.out.append(markup[at:].replace("<", "&lt;"))
        self._end(0)

    def _start(self, name: str, attributes: str) -> None:
        if name in _CLOSING:
            self._imply(names("p"), PROSE - _FORMATS - names("p span"))
        if name in _IMPLIED:
            self._imply(*_IMPLIED[name])
        if name not in _VOID:
            if len(self._open) >= MAX_DEPTH or (name in _FORMATS and self._formats >= MAX_FORMATS):
                return
            self._open.append(name)
            self._formats += name in _FORMATS
        kept: dict[str, str] = {}
        for found in islice(_ATTRIBUTE.finditer(attributes), MAX_ATTRIBUTES):
            key, value = found[1].lower(), (found[2] or "").strip()
            value = value[1:-1] if value[:1] in ("'", '"') else value
            if key in ATTRIBUTES:
                kept.setdefault(key, value.replace('"', "&quot;"))
        if name == "img" and _REMOTE.match(kept.get("src", "")):
            self.remote[kept.pop("src")] = None
        drawn = "".join(f' {key}="{value}"' for key, value in kept.items())
        self.out.append(f"<{name}{drawn}>")

    def _imply(self, ended: frozenset[str], kept: frozenset[str]) -> None:
        for level in range(len(self._open) - 1, -1, -1):
            if self._open[level] in ended:
                self._end(level)
                return
            if self._open[level] in kept:
                return

    def _end(self, level: int) -> None:
        """Close the elements that are open from this level on."""
        for name in reversed(self._open[level:]):
            self.out.append(f"</{name}>")
            self._formats -= name in _FORMATS
        del self._open[level:]


def _after(markup: str, name: str, at: int) -> int:
    """The end of an element that is removed with its content."""
    if name in _RAW:
        end = re.compile(rf"</{name}\b[^>]*+>?", re.IGNORECASE).search(markup, at)
        return len(markup) if end is None else end.end()
    depth = 1
    for tag in _TAG.finditer(markup, at):
        if (tag["name"] or "").lower() == name:
            depth += -1 if tag["close"] else 1
        if depth == 0:
            return tag.end()
    return len(markup)


def bounded_markup(markup: str) -> tuple[str, list[str]]:
    """The markup in a form that is fast to sanitize, and the addresses of remote images, which are removed."""
    reader = _Rewriter()
    reader.feed(markup)
    return "".join(reader.out), [*reader.remote]
