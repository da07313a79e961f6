"""Checks of numbers from outside: usage, limits, prices and durations."""

from __future__ import annotations

import math
from typing import Any

from .errors import UsageError

MOST = 1e15
"""The largest valid amount, also of a sum. A larger sum would count as unknown, and so pass every limit."""


def counted(number: int, noun: str) -> str:
    """A number of things in words, such as ``1 column`` or ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(value: Any) -> float | None:
    """A value as an int or float from 0 to ``MOST``; None if it is nan, infinite, negative, larger or not a number."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not 0 <= number <= MOST or not math.isfinite(number):
        return None
    return int(value) if isinstance(value, int) else number


def checked_amount(name: str, value: Any, *, optional: bool = False) -> Any:
    """Return a number that code passed, or None if ``optional``.

    Raises:
        UsageError: the value is nan, infinite, negative, too large or not a number; the message has ``name``.
    """
    if (value is None and optional) or amount(value) is not None:
        return value
    none = " (None means no limit)" if optional else ""
    raise UsageError(f"{name} must be a finite number of at least 0{none}, got {value!r:.80}")
