"""Numbers from outside: how much was used, how much may be, how long, how far."""

from __future__ import annotations

import math
from typing import Any

from .errors import UsageError

MOST = 1e15
"""The largest valid amount. A sum stops here, because an unknown sum would not be a limit."""


def amount(value: Any) -> float | None:
    """A number from 0 to ``MOST``, whole ones as int; None for anything else: nan, infinite, negative, no number."""
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
    """A number from code, or None if that is allowed.

    Raises:
        UsageError: it is nan, infinite, negative, too large or not a number; ``name`` is in the message.
    """
    if (value is None and optional) or amount(value) is not None:
        return value
    none = " (None means no limit)" if optional else ""
    raise UsageError(f"{name} must be a finite number of at least 0{none}, got {value!r:.80}")
