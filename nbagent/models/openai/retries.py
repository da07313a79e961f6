"""The rules of retries: whether a rejected request is sent again, and after how many seconds."""

from __future__ import annotations

import email.utils
import math
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .errors import is_too_long, server_behavior
from .stream import UNPARSED

FIRST = 0.5
"""Seconds before the first retry if the server sets no time."""
LAST = 8.0
"""The maximum seconds before a retry; the seconds double each time."""
_CLOCK = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
"""A duration such as ``1h2m0.5s`` or ``20ms``."""
_UNITS = (86400, 3600, 60, 1, 0.001)


class RetryPause(NamedTuple):
    """The wait before a request is sent again."""

    seconds: float
    reason: str
    is_from_server: bool = False
    """Whether the server set the time."""
    for_all: bool = False
    """Whether the wait applies to every request to this server."""


def pause_after(error: Exception, attempt: int) -> RetryPause | None:
    """The wait after the client's error and ``attempt`` earlier ones; None if a retry does not help."""
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    match error:
        case openai.APITimeoutError():
            return RetryPause(FIRST + backoff(attempt), "the server did not answer in time")
        case openai.APIConnectionError():
            reached = server_behavior(error) is not None
            return RetryPause(
                backoff(attempt),
                "the server gave no answer" if reached else "the server cannot be reached",
            )
        case openai.APIStatusError(status_code=status, response=response):
            headers = response.headers
            if not _worth_it(status, headers, getattr(error, "code", None)) or is_too_long(error):
                return None
            wait = wait_from_headers(headers, time.time())
            if wait is None:
                wait = wait_in(getattr(error, "body", None))
            full = status == 429 or (status == 503 and wait is not None)
            seconds = backoff(attempt) if wait is None else wait
            reason = "too many requests (429)" if status == 429 else f"the server failed ({status})"
            return RetryPause(seconds, reason, wait is not None, full)
        case _:
            return None


def backoff(attempt: int) -> float:
    """Seconds to wait if the server sets no time; the same as in the openai client."""
    return min(FIRST * 2.0 ** min(attempt, 10), LAST) * random.uniform(0.75, 1)


def _worth_it(status: int, headers: Mapping[str, str], code: Any) -> bool:
    should_retry = headers.get("x-should-retry")
    if should_retry in ("true", "false"):
        return should_retry == "true"
    if code == "insufficient_quota":
        return False  # a 429 that waiting does not solve
    return status in (408, 409, 429) or status >= 500 or code == UNPARSED


def wait_from_headers(headers: Mapping[str, str], now: float) -> float | None:
    """The wait in seconds from a server's headers, in any of their forms; None if there is none. ``now`` is in Unix seconds."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _duration(headers.get(name), unit)
        if seconds is not None:
            return seconds
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    if date is not None:
        with suppress(ValueError, OverflowError):
            return max(0.0, email.utils.mktime_tz(date) - now)
    resets = {kind: _reset(headers.get(f"x-ratelimit-reset{kind}"), now) for kind in _KINDS}
    known = {kind: seconds for kind, seconds in resets.items() if seconds is not None}
    used_up = [known[kind] for kind in known if headers.get(f"x-ratelimit-remaining{kind}") == "0"]
    return max(used_up or known.values(), default=None)


_KINDS = ("", "-requests", "-tokens")


def wait_in(body: Any, depth: int = 4) -> float | None:
    """The wait in seconds from a server's error, in Google's form (``retryDelay``); None if there is none."""
    if isinstance(body, Mapping) and isinstance(body.get("retryDelay"), str):
        return _duration(body["retryDelay"])
    parts = body if isinstance(body, list) else ()
    if isinstance(body, Mapping):
        parts = [body.get("error"), body.get("details")]
    waits = (wait_in(part, depth - 1) for part in parts if depth)
    return next((wait for wait in waits if wait is not None), None)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number >= 0 and not math.isnan(number) else None


def _duration(text: str | None, unit: float = 1.0) -> float | None:
    """Seconds from ``6m0s``, or from a number of ``unit`` seconds."""
    number = _number(text)
    if number is not None:
        return number * unit
    match = _CLOCK.fullmatch(text or "-")
    if match is None:
        return None
    return sum(float(n or 0) * unit for n, unit in zip(match.groups(), _UNITS, strict=True))


def _reset(text: str | None, now: float) -> float | None:
    """Seconds until a reset, from ``6m0s``, seconds, or a Unix time in seconds or milliseconds."""
    number = _number(text) or 0.0
    for unit in (1000.0, 1.0):
        if number / unit > now / 2:  # a Unix time, not a duration
            return max(0.0, number / unit - now)
    return _duration(text)
