"""Limits on simultaneous requests, and on requests and tokens per minute; and the line of waiting requests.

    model = nb.OpenAIModel("gpt-5", rpm=500, tpm=200_000, concurrency=8)

If several models share a key, pass one ``nb.RateLimit(…)`` as ``limits=`` to all of these models.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from bisect import insort
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Literal

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import UsageError
from nbagent.core.base.model import Waiting
from nbagent.core.base.pickling import Made, Travels, made_anew

MINUTE = 60.0
BYTES = 4
"""Bytes of a request that count as one token."""
SPACING = 0.05
"""Average seconds between requests after a server rejected one."""
JITTER = 0.25
"""After a rejection a process waits up to this fraction of ``SPACING`` longer, at random, so that processes do not
send at the same moment."""


class Ticket:
    """One request's place in the line, and then its share of the limits; from ``RateLimit.ticket``."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.number = next(line.numbers)
        self.tokens = 1
        """The request's estimated tokens."""
        self.loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.stamp: _Stamp | None = None
        self.status: Literal["outside", "in line", "granted", "under way"] = "outside"
        """``outside``: the request is new, was rejected or has ended. ``in line``: it waits.
        ``granted``: it counts as sent, and its own loop is woken to send it. ``under way``: it is sent."""

    def __lt__(self, other: Ticket) -> bool:
        return self.number < other.number

    def guess(self, size: int) -> None:
        """Estimate the tokens of a request from its size in bytes."""
        self.tokens = max(1, size // BYTES)

    def try_send(self) -> Waiting | None:
        """Return None if the request can be sent now, and count it as sent; otherwise return why it has to wait.

        The seconds are a minimum; 0 if it is unknown. Also releases all other requests that can be sent, so that no
        event loop waits for another loop.
        """
        line = self._line
        with line.lock:
            if self.status == "outside":
                self.status = "in line"
                insort(line.waiting, self)
            now = time.monotonic()
            line.release_ready(now, awake=self)
            if self.status == "granted":
                self.status = "under way"
            if self.status == "under way":
                return None
            wait = line.in_the_way(self, now) or Waiting(0.0, "other requests are ahead")
            ahead = line.waiting.index(self) if line.one_by_one and wait.seconds else 0
            return wait._replace(seconds=wait.seconds + ahead * SPACING)

    async def wait(self, seconds: float) -> None:
        """Wait until the line wakes the request, at most ``seconds``; 0 means no limit."""
        with suppress(TimeoutError):  # the caller calls ``try_send`` again
            async with asyncio.timeout(seconds or None):
                await self.changed.wait()
        self.changed.clear()

    def set_tokens(self, tokens: int) -> None:
        """Set the request's real tokens; with 0 (unknown), the estimate still counts."""
        with self._line.lock:
            if self.stamp is not None and tokens > 0:
                self._line.window.correct(self.stamp, tokens)

    def hold(self, seconds: float, reason: str) -> None:
        """Send no request for ``seconds``, because the server rejected this one, which keeps its place in the line.

        Then requests are sent with a short time between them.
        """
        line = self._line
        with line.lock:
            self._give_back()
            until = time.monotonic() + seconds + SPACING * random.uniform(0, JITTER)
            if until > line.pause[0]:
                line.pause = (until, reason)
            line.one_by_one = True
            for each in line.waiting:  # so that each shows the new wait
                _wake(each)

    def leave(self) -> None:
        """Free the request's place, because it has ended or no longer waits, and its share if it was never sent."""
        line = self._line
        with line.lock:
            self._give_back()
            if line.waiting:
                line.release_ready(time.monotonic())
                for first in line.waiting[:1]:  # the reason why it waits has changed
                    _wake(first)

    def _give_back(self) -> None:
        if self.status == "in line":
            self._line.waiting.remove(self)
        elif self.status != "outside":
            self._line.under_way -= 1
            if self.status == "granted" and self.stamp is not None:
                self._line.window.take_back(self.stamp)  # the request was never sent
        self.status = "outside"


@dataclass(eq=False, slots=True)
class _Stamp:
    """The time and the tokens of a sent request."""

    at: float
    tokens: int


class Window:
    """The requests of the last ``length`` seconds, and limits on their number and on their tokens together.

    Callers pass the current time.
    """

    def __init__(
        self, max_requests: int | None, max_tokens: int | None, length: float = MINUTE
    ) -> None:
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.length = length
        self._sent: deque[_Stamp] = deque()
        self._sum = 0

    def delay(self, now: float, tokens: int) -> tuple[float, str]:
        """Seconds until a request with this number of tokens can be sent, and the limit that delays it."""
        while self._sent and self._sent[0].at <= now - self.length:
            self._sum -= self._sent.popleft().tokens
        at, reason, sent_requests, sent_tokens = now, "", len(self._sent), self._sum
        for stamp in self._sent:
            over = (
                f"at most {self.max_requests:,} requests per minute (rpm)"
                if self.max_requests is not None and sent_requests >= self.max_requests
                # a request with more tokens than the limit waits until no other request counts
                else f"at most {self.max_tokens:,} tokens per minute (tpm)"
                if self.max_tokens is not None and sent_tokens + tokens > self.max_tokens
                else ""
            )
            if not over:
                break
            at, reason = stamp.at + self.length, over
            sent_requests, sent_tokens = sent_requests - 1, sent_tokens - stamp.tokens
        return max(0.0, at - now), reason

    def add(self, now: float, tokens: int) -> _Stamp | None:
        """Count a request that is sent now; return None if there is no limit."""
        if self.max_requests is None and self.max_tokens is None:
            return None
        stamp = _Stamp(now, tokens)
        self._sent.append(stamp)
        self._sum += tokens
        return stamp

    def correct(self, stamp: _Stamp, tokens: int) -> None:
        """Set the real tokens of a request."""
        if self._sent and self._sent[0].at <= stamp.at:  # else the request no longer counts
            self._sum += tokens - stamp.tokens
        stamp.tokens = tokens

    def take_back(self, stamp: _Stamp) -> None:
        """Remove a counted request that was not sent."""
        if stamp in self._sent:
            self._sent.remove(stamp)
            self._sum -= stamp.tokens


class Line:
    """The waiting requests in order, and the number of running ones, of all threads and event loops.

    Its tickets use it, with the lock held.
    """

    def __init__(self, concurrency: int | None, window: Window) -> None:
        self._concurrency = concurrency
        self.window = window
        self.lock = threading.Lock()
        self.numbers = count()
        self.waiting: list[Ticket] = []
        """The requests in line, in order of arrival."""
        self.under_way = 0
        self.pause: tuple[float, str] = (0.0, "")
        """The monotonic time until which no request is sent, and the reason."""
        self.one_by_one = False
        """Whether waiting requests are sent with time between them."""

    def release_ready(self, now: float, *, awake: Ticket | None = None) -> None:
        """Release the requests that can be sent, in order, and wake them.

        The request ``awake`` is not woken, because its task is the caller.
        """
        while self.waiting:
            first = self.waiting[0]
            is_gone = first.loop.is_closed()  # its waiter has ended
            if not is_gone and self.in_the_way(first, now) is not None:
                return
            del self.waiting[0]
            first.status = "outside"
            if is_gone:
                continue
            first.status = "granted"
            first.stamp = self.window.add(now, first.tokens)
            self.under_way += 1
            if self.one_by_one:
                self.one_by_one = bool(self.waiting)
                self.pause = (now + SPACING * random.uniform(0.5, 1.5), self.pause[1])
            if first is not awake:
                _wake(first)

    def in_the_way(self, ticket: Ticket, now: float) -> Waiting | None:
        """The reason why this request has to wait even if it is first in line."""
        until, reason = self.pause
        if until > now:
            return Waiting(until - now, reason, "rate_limit")
        if self._concurrency is not None and self.under_way >= self._concurrency:
            return Waiting(0.0, f"at most {self._concurrency} requests at a time (concurrency)")
        delay, limit = self.window.delay(now, ticket.tokens)
        return Waiting(delay, limit) if delay > 0 else None


class RateLimit(Travels):
    """Limits for all requests of one model, or of several, in all runs, threads and event loops of this process.

    Requests are sent in order of arrival. If a server reports too many requests, all requests wait until
    the time in its answer. Then they are sent with a short time between them.

    Args:
        concurrency: the maximum number of running requests.
        rpm: the maximum number of requests per minute.
        tpm: the maximum number of tokens per minute; a request counts by its size until its
            response reports its tokens.

    Raises:
        UsageError: a limit is not an integer of at least 1.
    """

    def __init__(
        self, *, concurrency: int | None = None, rpm: int | None = None, tpm: int | None = None
    ) -> None:
        self._limits = {"concurrency": concurrency, "rpm": rpm, "tpm": tpm}
        for name, value in self._limits.items():
            is_valid = isinstance(value, int) and not isinstance(value, bool) and amount(value)
            if value is not None and not is_valid:
                raise UsageError(
                    f"{name} must be an integer of at least 1 (None means no limit), got {value!r:.80}"
                )
        self.concurrency = concurrency
        self.rpm = rpm
        self.tpm = tpm
        self._line = Line(concurrency, Window(rpm, tpm))

    def __repr__(self) -> str:
        given = [f"{name}={value}" for name, value in self._limits.items() if value is not None]
        return f"RateLimit({', '.join(given)})"

    def __reduce__(self) -> Made:
        """Pickle the limits; another process counts only its own requests."""
        return made_anew(RateLimit, **self._limits)

    def ticket(self) -> Ticket:
        """Return a place at the end of the line, for one request."""
        return Ticket(self._line)


def limits_of(
    limits: RateLimit | None, *, concurrency: int | None, rpm: int | None, tpm: int | None
) -> RateLimit:
    """The limits of one model, from its arguments.

    Raises:
        UsageError: the limits are invalid, or passed both as ``limits`` and as numbers.
    """
    if limits is None:
        return RateLimit(concurrency=concurrency, rpm=rpm, tpm=tpm)
    if not isinstance(limits, RateLimit):
        raise UsageError(
            f"limits must be an nb.RateLimit(rpm=…), which models can share, got {limits!r:.80}"
        )
    if not concurrency is rpm is tpm is None:
        raise UsageError(
            "Got both limits= and concurrency, rpm or tpm. Pass only limits=nb.RateLimit(…), or only the others"
        )
    return limits


def _wake(ticket: Ticket) -> None:
    """Wake the waiting request on its own loop."""
    with suppress(RuntimeError):  # the loop was closed, and its waiters have ended
        ticket.loop.call_soon_threadsafe(ticket.changed.set)
