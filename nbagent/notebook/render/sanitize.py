"""The last step of all HTML: only the elements that this module lists reach a page.

All markup for ``innerHTML`` and for static HTML has passed
``clean``. Images load only from ``data:`` URLs, links lead only to the web and to mail, and no
attribute can contain script, style or an id.
"""

from __future__ import annotations

import html
import inspect
import re
import sys
from typing import Any, Protocol

from nbagent.core.base.controls import without_controls


def names(text: str) -> frozenset[str]:
    """Names that are separated by spaces."""
    return frozenset(text.split())


PROSE = names(
    "a abbr b blockquote br caption cite code col colgroup dd del details dfn div dl dt em "
    "figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp small span "
    "strong sub summary sup table tbody td tfoot th thead tr u ul var wbr"
)
MATH = names(
    "math maction menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom "
    "mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder "
    "munderover none semantics"
)
TOKENS = names("k s m c nf nb gi gd gh")
"""Classes of colored code, short as Pygments has them: keyword, string, number, comment,
name, builtin, inserted, deleted, heading."""

_CLASSES = {
    "span": {*TOKENS, "math"},
    "div": {"math"},
    "pre": {"code"},
    "table": {"dataframe"},
    "p": {"note"},
}
_ATTRIBUTES = {
    "a": names("href title"),
    "abbr": names("title"),
    "col": names("span"),
    "colgroup": names("span"),
    "img": names("alt height src width"),
    "ol": names("start"),
    "td": names("colspan rowspan"),
    "th": names("colspan rowspan"),
}
_MATH_ATTRIBUTES = {
    "math": names("display xmlns"),
    "menclose": names("notation"),
    "mfrac": names("linethickness"),
    "mi": names("mathvariant mathcolor"),
    "mn": names("mathvariant"),
    "mo": names(
        "accent fence form largeop lspace maxsize minsize movablelimits rspace separator stretchy "
        "symmetric"
    ),
    "mover": names("accent"),
    "mpadded": names("depth height lspace voffset width"),
    "mspace": names("depth height linebreak width"),
    "mstyle": names("displaystyle mathbackground mathcolor scriptlevel"),
    "mtable": names("columnalign columnlines columnspacing displaystyle frame rowlines rowspacing"),
    "mtd": names("columnalign columnspan rowspan"),
    "mtext": names("mathvariant"),
    "munder": names("accentunder"),
    "munderover": names("accent accentunder"),
}
ATTRIBUTES = names("align class scope").union(*_ATTRIBUTES.values(), *_MATH_ATTRIBUTES.values())
"""The names of all attributes that some element keeps."""
_ALIGN = {"left", "right", "center"}
DROPPED = names(
    "button embed iframe noscript object script select style svg template textarea title"
)
"""Elements that are removed with their content; the text of all other elements stays."""

IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/]*={0,2}")
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]+", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,4}%?")
_PLAIN = re.compile(r"[A-Za-z0-9#%+. _:/-]{1,200}")


def link_is_safe(url: str) -> bool:
    """Whether a link may have this address: only the web or a mail address."""
    return _LINK.fullmatch(url) is not None


def image_is_safe(url: str) -> bool:
    """Whether an image may be drawn: its pixels must be included, not fetched."""
    return IMAGE.fullmatch(url) is not None


def picture_is_safe(url: str) -> bool:
    """Whether a picture of nbagent may have this source: pixels, or SVG, which runs no script in an ``img``."""
    return _PICTURE.fullmatch(url) is not None


def _attribute(tag: str, name: str, value: str) -> str | None:
    match name:
        case "href":
            return value if link_is_safe(value) else None
        case "src":
            return value if image_is_safe(value) else None
        case "xmlns":
            return value if value == "http://www.w3.org/1998/Math/MathML" else None
        case "width" | "height" if tag == "img":
            return value if _SIZE.fullmatch(value) else None
        case _ if tag in MATH:
            return value if _PLAIN.fullmatch(value) else None
        case _:
            return value


class _Cleaner(Protocol):
    def clean(self, html: str) -> str: ...


class _TextAlone:
    """A replacement for a missing sanitizer: the text of the markup, without elements."""

    def clean(self, markup: str) -> str:
        return html.escape(html.unescape(_TAG.sub("", _END.sub("\n", markup))))


_TAG = re.compile(r"<[^<>]*>")
_END = re.compile(r"</(?:blockquote|d[dt]|div|h[1-6]|li|p|pre|t[dhr])>|<br>")
"""Tags that end a line or a word."""


def _new_cleaner(tags: frozenset[str], **kept: Any) -> _Cleaner:
    try:
        import nh3  # noqa: PLC0415 - it may not be there
    except ImportError:
        if sys.platform == "emscripten":  # Pyodide may be without nh3
            return _TextAlone()
        raise
    if "url_relative" not in inspect.signature(nh3.Cleaner).parameters:  # new in 0.3.5
        kept.pop("url_relative", None)  # the attribute filter removes relative addresses too
    cleaner: _Cleaner = nh3.Cleaner(tags=set(tags), clean_content_tags=set(DROPPED), **kept)
    return cleaner


def _cleaner(classes: dict[str, set[str]]) -> _Cleaner:
    return _new_cleaner(
        PROSE | MATH,
        attributes={k: set(v) for k, v in (_ATTRIBUTES | _MATH_ATTRIBUTES).items()},
        tag_attribute_values={
            "td": {"align": _ALIGN},
            "th": {"align": _ALIGN, "scope": {"row", "col"}},
        },
        allowed_classes=classes,
        attribute_filter=_attribute,
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes={"http", "https", "mailto", "data"},
        url_relative="deny",
    )


_HTML = _cleaner(_CLASSES)
_VALUES = _cleaner({**_CLASSES, "dl": {"nba-kv"}})
_FORMULA = _new_cleaner(MATH, attributes={k: set(v) for k, v in _MATH_ATTRIBUTES.items()})


_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PARAGRAPH = re.compile(r"<(blockquote|caption|d[dt]|h[1-6]|ol|p|summary|t[dh]|ul)(?=[ >])")


def clean(markup: str) -> str:
    """The markup with only the elements, attributes and addresses of the lists above."""
    return directed(without_controls(_HTML.clean(without_controls(markup))))


def directed(cleaned: str) -> str:
    """If some text is written from right to left, each paragraph, list and cell sets its own direction."""
    if _RIGHT_TO_LEFT.search(cleaned) is None:
        return cleaned
    return _PARAGRAPH.sub(r'<\1 dir="auto"', cleaned)


def clean_values(markup: str) -> str:
    """Like ``clean``, for HTML that nbagent makes of escaped values: lists may have the class of the card's lists."""
    return directed(without_controls(_VALUES.clean(without_controls(markup))))


def clean_formula(markup: str) -> str:
    """Only MathML: HTML elements inside a formula are removed."""
    return without_controls(_FORMULA.clean(without_controls(markup)))


def escape(text: str) -> str:
    """Text as HTML text or as an attribute's value."""
    return html.escape(without_controls(text), quote=True)
