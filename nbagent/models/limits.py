"""How many requests go to a server at a time and in a minute, and who waits for how long.

    model = nb.OpenAIModel("gpt-5", rpm=500, tpm=200_000, concurrency=8)

or, where several models share a key, ``limits=nb.RateLimit(…)``, given to each of them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from bisect import insort
from collections import deque
from contextlib import suppress
from itertools import count
from typing import Literal, NamedTuple

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import UsageError
from nbagent.core.base.travel import Made, Travels, made_anew

MINUTE = 60.0
BYTES = 4
"""Of a request that are taken for a token."""
SPACING = 0.05
"""Seconds between the requests that go on after a server had refused one, on average."""
LATE = 0.25
"""Of the spacing, how much later the first goes than the server said; so that two processes differ."""


class Wait(NamedTuple):
    """Why a request does not go yet."""

    seconds: float
    """How long it will be at least; 0 where nobody can say."""
    reason: str


class Ticket:
    """One request's place in the line, and then its share of the limits; made by ``RateLimit.ticket``."""

    def __init__(self, line: Line, number: int) -> None:
        self._line = line
        self.number = number
        self.tokens = 1
        """What it is counted as, until it is known."""
        self.loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.stamp: _Stamp | None = None
        self.place: Literal["outside", "in line", "granted", "under way"] = "outside"

    def __lt__(self, other: Ticket) -> bool:
        return self.number < other.number

    def guess(self, size: int) -> None:
        """Count a request of so many bytes."""
        self.tokens = max(1, size // BYTES)

    def why_not(self) -> Wait | None:
        """Why it cannot go now; None where it goes, and is counted from here on."""
        return self._line.ask(self)

    async def wait(self, seconds: float) -> None:
        """Wait until something changes, or so long; 0 is for any change."""
        try:
            async with asyncio.timeout(seconds or None):
                await self.changed.wait()
        except TimeoutError:
            pass  # its time has come: who waits asks again
        self.changed.clear()

    def used(self, tokens: int) -> None:
        """How many tokens it really took; 0 where that is not known, and the guess stands."""
        self._line.correct(self, tokens)

    def refused(self, seconds: float, reason: str) -> None:
        """The server had no room for it: nobody goes for so long, and it has its old place in the line."""
        self._line.hold(self, seconds, reason)

    def leave(self) -> None:
        """It is over, or waits no more, or not yet again: its place is free."""
        self._line.leave(self)


class _Stamp:
    """A request that went: when, and its tokens."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens


class Window:
    """What went within the last ``length`` seconds, against limits of requests and tokens; no clock of its own."""

    def __init__(self, requests: int | None, tokens: int | None, length: float = MINUTE) -> None:
        self.requests = requests
        self.tokens = tokens
        self.length = length
        self._went: deque[_Stamp] = deque()
        self._sum = 0

    def delay(self, now: float, tokens: int) -> tuple[float, str]:
        """Seconds until a request with so many tokens may go, and which limit it waits for."""
        while self._went and self._went[0].at <= now - self.length:
            self._sum -= self._went.popleft().tokens
        at, why, left, room = now, "", len(self._went), self._sum
        for stamp in self._went:
            over = (
                f"at most {self.requests:,} requests per minute (rpm)"
                if self.requests is not None and left >= self.requests
                # more than a minute's tokens at once: it goes alone
                else f"at most {self.tokens:,} tokens per minute (tpm)"
                if self.tokens is not None and room + tokens > self.tokens
                else ""
            )
            if not over:
                break
            at, why = stamp.at + self.length, over
            left, room = left - 1, room - stamp.tokens
        return max(0.0, at - now), why

    def went(self, now: float, tokens: int) -> _Stamp | None:
        """Count a request that goes now; None where nothing is counted."""
        if self.requests is None and self.tokens is None:
            return None
        stamp = _Stamp(now, tokens)
        self._went.append(stamp)
        self._sum += tokens
        return stamp

    def correct(self, stamp: _Stamp, tokens: int) -> None:
        """The tokens of a request are known now."""
        if self._went and self._went[0].at <= stamp.at:  # else it is not counted any more
            self._sum += tokens - stamp.tokens
        stamp.tokens = tokens

    def take_back(self, stamp: _Stamp) -> None:
        """A request that was counted did not go."""
        if stamp in self._went:
            self._went.remove(stamp)
            self._sum -= stamp.tokens


class Line:
    """Who waits and who is under way, in every thread and event loop."""

    def __init__(self, concurrency: int | None, window: Window) -> None:
        self._concurrency = concurrency
        self._window = window
        self._lock = threading.Lock()
        self._numbers = count()
        self._line: list[Ticket] = []
        self._under_way = 0
        self._held: tuple[float, str] = (0.0, "")
        """Until when nobody goes, by the monotonic clock, and why."""
        self._one_by_one = False
        """Whether those in line go with some time between them."""

    def ticket(self) -> Ticket:
        """A place at the end, for one request."""
        return Ticket(self, next(self._numbers))

    def ask(self, ticket: Ticket) -> Wait | None:
        """Why this one does not go yet; whoever asks lets all go that can, so that no loop waits for another."""
        with self._lock:
            if ticket.place == "outside":
                ticket.place = "in line"
                insort(self._line, ticket)
            now = time.monotonic()
            self._let_go(now, asking=ticket)
            if ticket.place == "granted":
                ticket.place = "under way"
            return None if ticket.place == "under way" else self._wait(ticket, now)

    def _let_go(self, now: float, *, asking: Ticket | None = None) -> None:
        """Let go who can, in order; with the lock. Who asks is awake, and waking is a write to its loop."""
        while self._line:
            first = self._line[0]
            is_gone = first.loop.is_closed()  # nobody waits there any more
            if not is_gone and self._in_the_way(first, now) is not None:
                return
            del self._line[0]
            first.place = "outside"
            if is_gone:
                continue
            first.place = "granted"
            first.stamp = self._window.went(now, first.tokens)
            self._under_way += 1
            if self._one_by_one:
                self._one_by_one = bool(self._line)
                self._held = (now + SPACING * random.uniform(0.5, 1.5), self._held[1])
            if first is not asking:
                _wake(first)

    def _in_the_way(self, ticket: Ticket, now: float) -> Wait | None:
        """Why it could not go if it were the first in line; with the lock."""
        until, why = self._held
        if until > now:
            return Wait(until - now, why)
        if self._concurrency is not None and self._under_way >= self._concurrency:
            return Wait(0.0, f"at most {self._concurrency} requests at a time (concurrency)")
        delay, limit = self._window.delay(now, ticket.tokens)
        if delay > 0:
            return Wait(delay, limit)
        return None

    def _wait(self, ticket: Ticket, now: float) -> Wait:
        """What one in line waits for; with the lock."""
        wait = self._in_the_way(ticket, now)
        if wait is None:
            return Wait(0.0, "other requests are first")
        ahead = self._line.index(ticket) if self._one_by_one else 0
        return wait._replace(seconds=wait.seconds + ahead * SPACING) if wait.seconds else wait

    def hold(self, ticket: Ticket, seconds: float, reason: str) -> None:
        """Let nobody go for so long, and then one after the other."""
        with self._lock:
            self._give_back(ticket)
            until = time.monotonic() + seconds + SPACING * random.uniform(0, LATE)
            if until > self._held[0]:
                self._held = (until, reason)
            self._one_by_one = True
            for each in self._line:  # to tell how long it is now
                _wake(each)

    def correct(self, ticket: Ticket, tokens: int) -> None:
        """The tokens of a request are known, where they are more than 0."""
        with self._lock:
            if ticket.stamp is not None and tokens > 0:
                self._window.correct(ticket.stamp, tokens)

    def leave(self, ticket: Ticket) -> None:
        """Its place is free, and so is its share of the limits where it never went."""
        with self._lock:
            self._give_back(ticket)
            if self._line:
                self._let_go(time.monotonic())
                for first in self._line[:1]:  # it waits for something else from here on
                    _wake(first)

    def _give_back(self, ticket: Ticket) -> None:
        if ticket.place == "in line":
            self._line.remove(ticket)
        elif ticket.place != "outside":
            self._under_way -= 1
            if ticket.place == "granted" and ticket.stamp is not None:
                self._window.take_back(ticket.stamp)  # it never went
        ticket.place = "outside"


class RateLimit(Travels):
    """Limits that all requests of one model, or of several, share: in every run, thread and event loop here.

    Requests go in the order in which they came. When a server says that there were too many, all wait until
    the time it told, and then go one after the other.

    Args:
        concurrency: how many requests may be under way at a time.
        rpm: how many may begin within any minute.
        tpm: how many tokens they may take within any minute; a request is counted by its size until its
            response tells.

    Raises:
        UsageError: a limit is no whole number of at least 1.
    """

    def __init__(
        self, *, concurrency: int | None = None, rpm: int | None = None, tpm: int | None = None
    ) -> None:
        for name, value in {"concurrency": concurrency, "rpm": rpm, "tpm": tpm}.items():
            is_whole = isinstance(value, int) and not isinstance(value, bool) and amount(value)
            if value is not None and not is_whole:
                raise UsageError(
                    f"{name} must be an integer of at least 1 (None means no limit), got {value!r:.80}"
                )
        self.concurrency = concurrency
        self.rpm = rpm
        self.tpm = tpm
        self._line = Line(concurrency, Window(rpm, tpm))

    def __repr__(self) -> str:
        told = {"concurrency": self.concurrency, "rpm": self.rpm, "tpm": self.tpm}
        given = ", ".join(f"{name}={value}" for name, value in told.items() if value is not None)
        return f"RateLimit({given})"

    def __reduce__(self) -> Made:
        """Another process has the same limits, and counts its own requests alone."""
        return made_anew(RateLimit, concurrency=self.concurrency, rpm=self.rpm, tpm=self.tpm)

    def ticket(self) -> Ticket:
        """A place at the end of the line, for one request."""
        return self._line.ticket()


def limits_of(
    limits: RateLimit | None, *, concurrency: int | None, rpm: int | None, tpm: int | None
) -> RateLimit:
    """The limits of one model, from what it was given.

    Raises:
        UsageError: they are no limits, or are told twice.
    """
    if limits is None:
        return RateLimit(concurrency=concurrency, rpm=rpm, tpm=tpm)
    if not isinstance(limits, RateLimit):
        raise UsageError(
            f"limits must be an nb.RateLimit(rpm=…), which models can share, got {limits!r:.80}"
        )
    if not concurrency is rpm is tpm is None:
        raise UsageError(
            "Got both limits= and concurrency, rpm or tpm. Pass either limits=nb.RateLimit(…) or the others"
        )
    return limits


def _wake(ticket: Ticket) -> None:
    """Have whoever waits look again, on its own loop."""
    with suppress(RuntimeError):  # the loop was closed, and nobody waits there any more
        ticket.loop.call_soon_threadsafe(ticket.changed.set)
