"""The limits of models over a whole cluster: each task carries its share, and the rest waits here.

The process that works on the batch counts what its tasks may use and what ended tasks used, so that requests in any
minute stay within the limit however many workers there are, and however often they are started again.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from nbagent.models.limits import MINUTE, Line, RateLimit, Ticket, Window

LENGTH = MINUTE
"""Seconds that a limit counts over."""
MARGIN = 1.0
"""Seconds that a request counts longer, as it arrives at its server later than it was sent."""
GROWING = 4
"""Among how many tasks a limit is shared while there is no worker yet."""


class Share(NamedTuple):
    """How much of one limit a task may use; None where there is no limit of that kind."""

    concurrency: int | None
    rpm: int | None
    tpm: int | None


class Grant(NamedTuple):
    """What a task may use of each limit of its kit, in the kit's order."""

    shares: tuple[Share, ...] = ()
    length: float = MINUTE
    """Seconds that a share counts over."""


class Went(NamedTuple):
    """A request of a task that has ended."""

    ago: float
    """Seconds before the end of the task."""
    tokens: int


Used = list[list[Went]]
"""What a task used of each limit within its last minute."""


class _Pot:
    """One limit: who may use how much of it, and what ended tasks used within the last minute."""

    def __init__(self, limit: RateLimit) -> None:
        self.total = Share(limit.concurrency, limit.rpm, limit.tpm)
        self._out: dict[int, Share] = {}
        """The shares of tasks under way, by number of the task."""
        self._went: list[tuple[float, int, int]] = []
        """Until when requests count, how many, and their tokens."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was shared yet."""
        return not self._out and not self._went

    def offer(self, among: int, now: float) -> Share | float:
        """A share; or seconds until there may be one, 0 where a task has to end first."""
        self._went = [each for each in self._went if each[0] > now]
        among = max(among, len(self._out) + 1)
        concurrency, rpm, tpm = self.total
        out = self._out.values()
        tasks = _part(concurrency, among, sum(share.concurrency or 0 for share in out))
        if tasks == 0:
            return 0.0
        requests = _part(rpm, among, sum(share.rpm or 0 for share in out) + self._sum(1))
        tokens = _part(tpm, among, sum(share.tpm or 0 for share in out) + self._sum(2))
        # a request larger than its share goes alone: shares of tokens are not cut up
        is_small = tokens is not None and tpm is not None and tokens * 2 < max(1, tpm // among)
        if requests == 0 or is_small:
            return max(0.0, min((each[0] for each in self._went), default=now) - now)
        return Share(tasks, requests, tokens)

    def _sum(self, place: int) -> int:
        return sum(int(each[place]) for each in self._went)

    def give(self, task: int, share: Share) -> None:
        """A task has this share from now on."""
        self._out[task] = share

    def ended(self, task: int, used: Sequence[Went], now: float) -> None:
        """A task has ended, and said what it used."""
        if self._out.pop(task, None) is not None:
            self._went += [(now - ago + LENGTH + MARGIN, 1, tokens) for ago, tokens in used]

    def lost(self, task: int, now: float) -> None:
        """A task has ended without saying what it used: all of its share counts."""
        share = self._out.pop(task, None)
        if share is not None:
            self._went.append((now + LENGTH + MARGIN, share.rpm or 0, share.tpm or 0))

    def hold(self, now: float) -> None:
        """Somebody else may have used all of it just now."""
        self._went.append((now + LENGTH + MARGIN, self.total.rpm or 0, self.total.tpm or 0))


def _part(total: int | None, among: int, taken: int) -> int | None:
    """An equal part, or what is left."""
    return None if total is None else max(0, min(max(1, total // among), total - taken))


_pots: WeakKeyDictionary[RateLimit, _Pot] = WeakKeyDictionary()
"""Of this process: batches that use the same limit share it."""


class Shares:
    """The limits of one kit.

    Args:
        limits: those that travel with it, in order.
    """

    def __init__(self, limits: Sequence[RateLimit]) -> None:
        self._limits = limits  # alive as long as their counts are used
        self._pots = [_pots.setdefault(limit, _Pot(limit)) for limit in limits]
        self._next = 0
        self.most = min(
            (
                n
                for pot in self._pots
                for n in (pot.total.concurrency, pot.total.rpm)
                if n is not None
            ),
            default=None,
        )
        """How many tasks can have a share at a time; None for any number."""

    def give(self, among: int) -> Lease | float:
        """A task's share; or seconds until there may be one, 0 where a task has to end first."""
        now, shares = time.monotonic(), []
        for pot in self._pots:
            offered = pot.offer(among, now)
            if isinstance(offered, float):
                return offered
            shares.append(offered)
        return Lease(self._pots, Grant(tuple(shares), LENGTH + MARGIN))

    def hold(self) -> None:
        """Another process may have used the limits just now: nothing goes for a minute."""
        for pot in self._pots:
            if pot.is_new:
                pot.hold(time.monotonic())


class Lease:
    """The shares of one task, from its submission to its end."""

    _number = 0

    def __init__(self, pots: Sequence[_Pot], grant: Grant) -> None:
        Lease._number += 1
        self._task, self._pots, self.grant = Lease._number, pots, grant
        self.waits: set[str] = set()
        """Keys of rows that may still use it, though the task was lost."""
        for pot, share in zip(pots, grant.shares, strict=True):
            pot.give(self._task, share)

    def ended(self, used: Used) -> None:
        """The task has ended, and said what it used."""
        for pot, went in zip(self._pots, used, strict=True):
            pot.ended(self._task, went, time.monotonic())

    def lost(self) -> None:
        """The task has ended without saying."""
        for pot in self._pots:
            pot.lost(self._task, time.monotonic())


# --- in a worker


class _Counting(Window):
    """A window that can tell what went within its length."""

    def __init__(self, requests: int | None, tokens: int | None, length: float) -> None:
        super().__init__(requests, tokens, length)
        self._stamps: deque[Any] = deque()

    def went(self, now: float, tokens: int) -> Any:
        """As ``Window.went``, and noted."""
        while self._stamps and self._stamps[0].at <= now - self.length:
            self._stamps.popleft()
        stamp = super().went(now, tokens)
        if stamp is not None:
            self._stamps.append(stamp)
        return stamp

    def take_back(self, stamp: Any) -> None:
        """As ``Window.take_back``, and noted."""
        super().take_back(stamp)
        if stamp in self._stamps:
            self._stamps.remove(stamp)

    def told(self) -> list[Went]:
        """What went."""
        now = time.monotonic()
        return [Went(now - stamp.at, stamp.tokens) for stamp in self._stamps]


@dataclass(slots=True)
class Lines:
    """Where the requests of one task wait, by limit of its kit."""

    lines: list[Line] = field(default_factory=list)
    windows: list[_Counting] = field(default_factory=list)

    @classmethod
    def of(cls, grant: Grant, *, is_used: bool) -> Lines:
        """Those of a task.

        Args:
            grant: what it may use.
            is_used: whether an earlier try of the same task may have used all of it just now.
        """
        made = cls()
        for share in grant.shares:
            window = _Counting(share.rpm, share.tpm, grant.length)
            for n in range((share.rpm or 1) if is_used else 0):
                window.went(time.monotonic(), 0 if n else share.tpm or 0)
            made.windows.append(window)
            made.lines.append(Line(share.concurrency, window))
        return made

    def used(self) -> Used:
        """What the task used within the last minute."""
        return [window.told() for window in self.windows]


current: ContextVar[Lines | None] = ContextVar("nbagent_lines", default=None)
"""The lines of the task whose rows this code runs."""


class SharedLimit(RateLimit):
    """A limit in a worker: a request takes its place in the line of its own task.

    Args:
        number: its place among the limits of the kit.
        limits: as of ``RateLimit``.
    """

    def __init__(self, number: int, **limits: int | None) -> None:
        super().__init__(**limits)
        self._number = number

    def ticket(self) -> Ticket:
        """A place at the end of the task's line, for one request."""
        lines = current.get()
        return super().ticket() if lines is None else lines.lines[self._number].ticket()


def _shared(number: int, concurrency: int | None, rpm: int | None, tpm: int | None) -> SharedLimit:
    return SharedLimit(number, concurrency=concurrency, rpm=rpm, tpm=tpm)


def dumped(given: Any) -> tuple[bytes, list[RateLimit]]:
    """It and the models in it as bytes, by cloudpickle, and the limits: of the agent, of inner ones, in a closure.

    Raises:
        ImportError: cloudpickle is not installed.
        Exception: it cannot be pickled.
    """
    found: list[RateLimit] = []
    models: list[Any] = []

    class Packer(import_module("cloudpickle").Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if hasattr(type(obj), "check_ready"):
                models.append(obj)
            if not isinstance(obj, RateLimit):
                return super().reducer_override(obj)
            found.append(obj)
            make: Callable[..., SharedLimit] = _shared
            return make, (len(found) - 1, obj.concurrency, obj.rpm, obj.tpm)

    with io.BytesIO() as file:
        Packer(file).dump((given, models))  # in this order: the models are found in the first
        return file.getvalue(), found
