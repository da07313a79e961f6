"""Typed numbers: exact, no locale, no surprises."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

_INT = re.compile(r"[+-]?[0-9]+(\.0+)?")
_NUM = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
MAX_DIGITS = 1_000
"""Characters of a typed number."""


class NotANumber(ValueError):
    """The text is no such number; the argument is the key of the sentence to say."""


def as_int(text: str) -> int:
    """A whole number; raises NotANumber."""
    plain = text.strip()
    if not _INT.fullmatch(plain):
        raise NotANumber("not_int")
    _short(plain)
    return int(plain.partition(".")[0])


def as_num(text: str) -> int | float:
    """A number, an int where it is written as one; raises NotANumber."""
    plain = text.strip()
    if not _NUM.fullmatch(plain):
        raise NotANumber("not_num")
    _short(plain)
    if plain.lstrip("+-").isdecimal():
        return int(plain)
    number = float(plain)
    if not math.isfinite(number):
        raise NotANumber("too_big")
    return number


def as_decimal(text: str) -> str:
    """The digits as they were typed, in JSON's notation; raises NotANumber."""
    plain = text.strip()
    if not _NUM.fullmatch(plain):
        raise NotANumber("not_num")
    _short(plain)
    return plain.removeprefix("+")


def exact(text: str) -> int | float | None:
    """The JSON number that is exactly this decimal, or None where there is none."""
    try:
        number = as_num(text)
        return number if Decimal(repr(number)) == Decimal(text.strip()) else None
    except (NotANumber, InvalidOperation):
        return None


def _short(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise NotANumber("too_big")
