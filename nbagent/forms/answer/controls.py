"""Functions that convert the draft of one control to its JSON value."""

from __future__ import annotations

import base64
import binascii
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from nbagent.forms.nodes import Choice, Leaf, Node
from nbagent.forms.texts import text_for
from nbagent.forms.values import Json, equality_key, has_lone_surrogates, is_number, loads

_INT = re.compile(r"[+-]?[0-9]+(\.0+)?")
_NUM = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
MAX_DIGITS = 1_000
"""Characters of a typed number."""


class Refused(ValueError):
    """A draft cannot be read; the message is for the person."""

    def __init__(self, key: str, **parts: object) -> None:
        super().__init__(text_for(key, **parts))


def as_num(text: str) -> int | float:
    """The number in a text, as an int if it is written as an int; raises Refused."""
    plain = _digits(text, _NUM, "not_num")
    if plain.lstrip("+-").isdecimal():
        return int(plain)
    number = float(plain)
    if not math.isfinite(number):
        raise Refused("too_big")
    return number


def exact(text: str) -> int | float | None:
    """The JSON number that is exactly this decimal, or None if there is none."""
    try:
        number = as_num(text)
        return number if Decimal(repr(number)) == Decimal(text.strip()) else None
    except (Refused, InvalidOperation):
        return None


def _digits(text: str, pattern: re.Pattern[str], problem: str) -> str:
    """The text without blanks around it, if it is a number of bounded length."""
    plain = text.strip()
    if not pattern.fullmatch(plain):
        raise Refused(problem)
    if len(plain) > MAX_DIGITS:
        raise Refused("too_big")
    return plain


MAX_FILE = 32 * 2**20
"""Bytes of a file that a form takes."""


def read_leaf(node: Leaf, draft: dict[str, Any]) -> Json:
    """The value of a control.

    Raises:
        Refused: the draft does not fit this kind of control, or its text is not a valid value.
    """
    if node.kind == "bool":
        if isinstance(draft.get("bool"), bool):
            return draft["bool"]
        raise Refused("unreadable")
    if node.kind == "file" and "file" in draft:
        return _file(node, draft)
    text = "" if draft.get("empty") is True else draft.get("text")
    if not isinstance(text, str):
        raise Refused("unreadable")
    return read_text(node, text)


def read_text(node: Node, text: str) -> Json:
    """The JSON value of a text that was typed into a field; raises Refused."""
    if has_lone_surrogates(text):
        raise Refused("broken_text")
    match node.kind:
        case "int":
            return int(_digits(text, _INT, "not_int").partition(".")[0])
        case "num":
            return as_num(text)
        case "decimal":
            digits = _digits(text, _NUM, "not_num").removeprefix("+")  # a string, which is exact
            number = exact(text) if is_number(node.shows) else None
            return digits if number is None else number
        case "json":
            return read_json(text)
        case _:
            return text


def read_json(text: Any) -> Json:
    """The value of a typed JSON text; raises Refused."""
    if not isinstance(text, str):
        raise Refused("unreadable")
    if has_lone_surrogates(text):
        raise Refused("broken_text")
    try:
        return loads(text)
    except ValueError as problem:
        raise Refused("not_json", problem=problem) from None


def _file(node: Leaf, draft: dict[str, Any]) -> str:
    data = draft["file"]
    if not isinstance(data, str):
        raise Refused("not_file")
    if len(data) > MAX_FILE * 4 // 3 + 4:
        raise Refused("file_too_big", limit=MAX_FILE)
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("not_file") from None
    if node.format == "base64url":
        return data.replace("+", "-").replace("/", "_")
    return f"data:application/octet-stream;base64,{data}" if node.format == "data-url" else data


def read_choice(node: Choice, draft: dict[str, Any]) -> Json:
    """The chosen option's value, or the write-in; raises Refused."""
    if "other" in draft:
        return _write_in(node, draft["other"])
    return _option(node, draft.get("option"))


def read_multi(node: Choice, draft: dict[str, Any]) -> list[Json]:
    """The chosen options' values in the order given, then the write-ins; raises Refused."""
    indices, others = draft.get("options", []), draft.get("others", [])
    if (
        not isinstance(indices, list)
        or not isinstance(others, list)
        or draft.keys().isdisjoint(("options", "others"))
    ):
        raise Refused("unreadable")
    values = [_option(node, index) for index in indices]
    values += [_write_in(node, text) for text in others]
    return list({equality_key(value): value for value in reversed(values)}.values())[::-1]


def _option(node: Choice, index: Any) -> Json:
    if isinstance(index, bool) or not isinstance(index, int):
        raise Refused("unreadable")
    if not 0 <= index < len(node.options):
        raise Refused("no_option")
    return node.options[index].value


def _write_in(node: Choice, text: Any) -> Json:
    if node.other is None:
        raise Refused("no_other")
    if not isinstance(text, str):
        raise Refused("unreadable")
    if not text.strip():
        raise Refused("answer")
    return read_text(node.other, text)
