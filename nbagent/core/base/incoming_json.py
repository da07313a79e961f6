"""Limits for JSON that others wrote: its parts are counted before Python objects are made.

A text of a few megabytes can have millions of tiny parts. To parse such a text, or make models of it, blocks the
interpreter for seconds and uses a gigabyte. So all text from a model, a server, a file or a page goes through
``within_parts`` first. This module imports only the standard library, because the process beside an MCP server
loads this file by its path.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

R = TypeVar("R")
T = TypeVar("T", str, bytes, str | bytes)

MAX_PARTS = 100_000
"""Maximum objects, lists, keys, strings, numbers and booleans of one JSON text; parsing takes about 20 ms."""
MAX_MODEL_PARTS = 50_000
"""Maximum for text from a model, such as a call's arguments. Such text is parsed and written several times."""
MAX_EVENT_PARTS = 2_000_000
"""Maximum for one event of a journal, which may contain a whole conversation."""
MAX_FILE_PARTS = 5_000_000
"""Maximum for a file that a person names: a recording, an exported run."""


class TooManyParts(ValueError):
    """A JSON text or value has more parts or characters than its limit."""


def within_parts(text: T, most: int = MAX_PARTS) -> T:
    """Return a JSON text as it is, if it has at most ``most`` parts.

    Raises:
        TooManyParts: the text has more parts.
    """
    if len(text) > most and parts_of(text, most) > most:
        raise TooManyParts(f"it has more than {most:,} values")
    return text


def parts_of(text: str | bytes, most: int) -> int:
    """The number of parts of a JSON text, only exact enough to compare with ``most``.

    Each part except the first follows a comma, a colon or an opening bracket. If these are more than ``most``,
    they are counted again without those in strings, piece by piece, until the count exceeds ``most``.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    count = 1 + _marks(data)
    if count <= most:
        return count
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, in_string = 1, 0
    for start in range(0, len(data), _PIECE):
        pieces = data[start : start + _PIECE].split(b'"')
        count += _marks(b"".join(pieces[in_string::2]))
        if count > most:
            break
        in_string ^= (len(pieces) - 1) & 1
    return count


def _marks(data: bytes) -> int:
    return sum(map(data.count, (b",", b":", b"[", b"{")))


_PIECE = 262_144


def read_by(reader: Callable[[T], R], text: T) -> R:
    """The result of a reader. Python's garbage collector is off for a large text, because many parts make it slow."""
    if len(text) <= LARGE or not gc.isenabled():
        return reader(text)
    gc.disable()
    try:
        return reader(text)
    finally:
        gc.enable()


LARGE = 50_000
"""Maximum characters of a text that is read with the garbage collector on."""


def check_parts(value: Any, most: int = MAX_PARTS, *, characters: int | None = None) -> None:
    """Raise if a parsed value has more than ``most`` parts, or more than ``characters`` in all its strings.

    Raises:
        TooManyParts: the value exceeds one of the limits.
    """
    count, size, todo = 1, 0, [value]
    children: Collection[Any]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            count += 2 * len(item)
            children = item.values()
            size += sum(map(len, filter(_is_text, item)))
        elif isinstance(item, list | tuple):
            count += len(item)
            children = item
        else:
            size += len(item) if _is_text(item) else 0
            children = ()
        if count > most:
            raise TooManyParts(f"it has more than {most:,} values")
        if characters is not None and size > characters:
            raise TooManyParts(f"it has more than {characters:,} characters")
        todo += children


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
