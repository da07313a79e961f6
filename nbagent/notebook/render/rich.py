"""A mime bundle of unknown origin as pieces that are safe to draw, because they never run a script or load anything."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbagent.core.base.controls import without_controls
from nbagent.core.base.file_parts import is_image, label
from nbagent.notebook.render import facts
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Rich

from . import foreign, formulas, markdown, sanitize
from .reveal import reveal, terminal

MAX_IMAGE = 6_000_000
"""Characters of an image's base64 text."""
MAX_PICTURES = 12_000_000
"""Characters of the pictures of one message or result together; further pictures are only named."""
MAX_MARKUP = 400_000
"""Characters of HTML, SVG or Markdown."""
MAX_TAGS = 10_000
"""Tags of HTML: a table of some 4,000 cells."""
MAX_BLOCKED = 20
"""Remote images that are named, because they are not loaded."""
MAX_URL = 200

_TAGS = re.compile(r"<[^>]*>")


def render(bundle: Mapping[str, Any]) -> list[Rich]:
    """The richest safe drawing of one displayed object, after a note if something was left out.

    ``bundle`` maps mime types to data, as IPython publishes it. The list is empty if there is nothing to show.
    """
    notes: list[Rich] = []
    for mime, draw in _DRAWN.items():
        if mime not in bundle:
            continue
        drawn = draw(mime, bundle[mime])
        if isinstance(drawn, Rich):
            return [*notes, drawn]
        if drawn:
            notes.append(_text(drawn))
    return notes


def files(parts: Iterable[Mapping[str, Any]], *, sized: bool) -> list[Rich]:
    """Files of a conversation: pictures up to ``MAX_PICTURES`` characters, and other files in words.

    ``parts`` are parts of messages; ``sized`` is whether their sizes are shown.
    """
    drawn: list[Rich] = []
    room = MAX_PICTURES
    for part in parts:
        words = reveal(label(part, sized=sized))
        picture = _pixels(part["media_type"], part["data"]) if is_image(part) else ""
        if isinstance(picture, Rich) and len(picture.data) <= room:
            room -= len(picture.data)
            drawn.append(picture.model_copy(update={"alt": words}))
        else:
            drawn.append(Rich(kind="text", data=words))
    return drawn


def is_rich(bundle: Mapping[str, Any]) -> bool:
    """Whether the bundle holds more than plain text and data."""
    return any(mime in bundle for mime in _DRAWN if mime not in ("text/plain", "application/json"))


def safe_html(markup: str) -> str:
    """HTML of unknown origin, sanitized; remote images are not loaded, but named below."""
    bounded, blocked = foreign.bounded_markup(markup)
    urls = [html.unescape(url[:MAX_URL]) for url in blocked[:MAX_BLOCKED]]
    note = "".join(f'<p class="note">{sanitize.escape(reveal(url))}</p>' for url in urls)
    cleaned = sanitize.clean(bounded)
    return (cleaned if len(cleaned) > MAX_ALIGNED else _TABLE.sub(_aligned, cleaned)) + note


MAX_ALIGNED = 100_000
"""Characters of HTML up to which its tables are searched for columns of numbers."""
_TABLE = re.compile(r"<table[^>]*>(?:(?!<table).)*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>((?:(?!</tr>).)*)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])([^>]*)>((?:(?!</t[hd]>).)*)</t[hd]>", re.DOTALL)
_NUMBER = re.compile(
    r"\s*(?:[-+\u2212]?[$€£]?\d[\d.,_ ]*(?:e[-+]?\d+)?\s*%?|nan|inf|-inf|)\s*", re.IGNORECASE
)


def _aligned(found: re.Match[str]) -> str:
    """A table with its columns of numbers aligned right; unchanged if the table has alignments or spanning cells."""
    markup = found[0]
    if "span=" in markup or "align=" in markup:
        return markup
    rows = [_CELL.findall(row) for row in _ROW.findall(markup)]
    width = max((len(row) for row in rows), default=0)
    body = [row for row in rows if any(tag == "td" for tag, *_ in row)]

    def is_numeric(at: int) -> bool:
        cells = [row[at][2] for row in body if at < len(row) and row[at][0] == "td"]
        return all(map(_NUMBER.fullmatch, cells)) and any(cell.strip() for cell in cells)

    numbers = set(filter(is_numeric, range(width)))

    def row(match: re.Match[str]) -> str:
        at = -1

        def cell(part: re.Match[str]) -> str:
            nonlocal at
            at += 1
            side = ' align="right"' if at in numbers else ""
            return f"<{part[1]}{part[2]}{side}>{part[3]}</{part[1]}>"

        return f"<tr>{_CELL.sub(cell, match[1])}</tr>"

    return _ROW.sub(row, markup)


def _pixels(mime: str, data: Any) -> Rich | str:
    if isinstance(data, bytes | bytearray):
        data = base64.b64encode(data).decode()
    text = "".join(data.split()) if isinstance(data, str) else ""
    if len(text) > MAX_IMAGE:
        return _too_large(mime, len(text))
    url = f"data:{mime};base64,{text}"
    try:
        pixels = sanitize.image_is_safe(url) and base64.b64decode(text, validate=True)
    except binascii.Error:
        pixels = b""
    if not pixels:
        return TEXTS["unshowable"].format(what=mime)
    return Rich(kind="image", data=url, alt="")


def _svg(mime: str, data: Any) -> Rich | str:
    text = _joined(data)
    if len(text) > MAX_MARKUP:
        return _too_large(mime, len(text))
    encoded = base64.b64encode(without_controls(text).encode()).decode()
    return Rich(kind="image", data=f"data:image/svg+xml;base64,{encoded}", alt="")


def _html(mime: str, data: Any) -> Rich | str:
    text = _joined(data)
    if len(text) > MAX_MARKUP or text.count("<") > MAX_TAGS:
        return _too_large(mime, len(text))
    cleaned = safe_html(text)
    # HTML that a script would fill is empty after sanitizing; the next best type shows more
    empty = "<img" not in cleaned and not _TAGS.sub("", cleaned).strip()
    return "" if empty else Rich(kind="html", data=cleaned)


def _markdown(mime: str, data: Any) -> Rich | str:
    text = _joined(data)
    if len(text) > MAX_MARKUP:
        return _too_large(mime, len(text))
    return Rich(kind="html", data=markdown.render(text))


def _latex(_mime: str, data: Any) -> Rich | str:
    text = _joined(data).strip()
    inner = text.removeprefix("$$").removesuffix("$$")
    if inner == text:
        inner = text.removeprefix("$").removesuffix("$")
    inner = inner.strip().removeprefix(r"\displaystyle").strip()
    return Rich(
        kind="html", data=f'<div class="math">{formulas.formula(inner, display=True)}</div>'
    )


def _text(text: str) -> Rich:
    return Rich(kind="text", data=terminal(facts.bounded(text)))


def _joined(data: Any) -> str:
    if isinstance(data, list | tuple):
        return "".join(map(str, data))
    return data if isinstance(data, str) else str(data)


def _too_large(mime: str, size: int) -> str:
    return TEXTS["too_large"].format(what=mime, size=f"{size / 1e6:.1f} MB")


_DRAWN: dict[str, Callable[[str, Any], Rich | str]] = {
    "image/png": _pixels,
    "image/jpeg": _pixels,
    "image/gif": _pixels,
    "image/webp": _pixels,
    "image/svg+xml": _svg,
    "text/html": _html,
    "text/markdown": _markdown,
    "text/latex": _latex,
    "application/json": lambda _mime, data: _text(facts.result(data)),
    "text/plain": lambda _mime, data: _text(_joined(data)),
}
"""The mime types and their drawing functions, best first; the first type that can be drawn is used."""
