"""The limits of models for a whole cluster: each task receives a share, and other tasks wait for a free share.

The driver of the batch counts the shares of running tasks and the requests of ended tasks. So the requests of any
minute stay within the limits, for any number of workers and restarts.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from nbagent.models.limits import MINUTE, Line, RateLimit, Ticket, Window

LENGTH = MINUTE
"""Seconds for which a request counts against a limit."""
MARGIN = 1.0
"""Additional seconds for which a request counts, because a request reaches its server some time after it is sent."""
TASKS_WITHOUT_WORKERS = 4
"""The number of tasks that share a limit while there is no worker yet."""


class Share(NamedTuple):
    """A task's part of one limit; None for a kind of limit that is not set."""

    concurrency: int | None
    rpm: int | None
    tpm: int | None


class Grant(NamedTuple):
    """A task's share of each limit in its ``workers.Kit``, in order."""

    shares: tuple[Share, ...] = ()
    length: float = MINUTE
    """Seconds for which a request counts against a share."""


class SentRequest(NamedTuple):
    """A request that an ended task sent."""

    ago: float
    """Seconds from the request to the end of the task."""
    tokens: int


Used = list[list[SentRequest]]
"""The requests of a task's last minute, for each limit."""


class _LimitShares:
    """One limit: the shares of running tasks, and the requests of ended tasks within the last minute."""

    def __init__(self, limit: RateLimit) -> None:
        self.total = Share(limit.concurrency, limit.rpm, limit.tpm)
        self.leased: dict[Lease, Share] = {}
        """The shares of running tasks."""
        self._sent: list[tuple[float, int, int]] = []
        """Counted requests, as tuples: the time when they stop counting, their number, and their tokens."""

    def offer(self, task_count: int, now: float) -> Share | float:
        """Return a share, or the seconds until a share may be free; 0 if a task must end first."""
        self._sent = [each for each in self._sent if each[0] > now]
        task_count = max(task_count, len(self.leased) + 1)
        concurrency, rpm, tpm = self.total
        leased = self.leased.values()
        tasks = _part(concurrency, task_count, sum(share.concurrency or 0 for share in leased))
        if tasks == 0:
            return 0.0
        requests = _part(rpm, task_count, sum(share.rpm or 0 for share in leased) + self._sum(1))
        tokens = _part(tpm, task_count, sum(share.tpm or 0 for share in leased) + self._sum(2))
        # a task sends even a request that is larger than its share, so a small rest is not leased
        is_small = tokens is not None and tpm is not None and tokens * 2 < max(1, tpm // task_count)
        if requests == 0 or is_small:
            return max(0.0, min((each[0] for each in self._sent), default=now) - now)
        return Share(tasks, requests, tokens)

    def _sum(self, place: int) -> int:
        return sum(int(each[place]) for each in self._sent)

    def record_used(self, task: Lease, used: Sequence[SentRequest], now: float) -> None:
        """Replace the share of an ended task by the requests that it reported."""
        if self.leased.pop(task, None) is not None:
            self._sent += [(now - ago + LENGTH + MARGIN, 1, tokens) for ago, tokens in used]

    def record_lost(self, task: Lease, now: float) -> None:
        """Count the whole share of a task that ended without a report."""
        self._count(self.leased.pop(task), now)

    def hold(self, now: float) -> None:
        """Count an unused limit as used now, because another process may have used it."""
        if not self.leased and not self._sent:
            self._count(self.total, now)

    def _count(self, share: Share, now: float) -> None:
        self._sent.append((now + LENGTH + MARGIN, share.rpm or 0, share.tpm or 0))


def _part(total: int | None, task_count: int, taken: int) -> int | None:
    """Return an equal part of the total, or less if less is left."""
    return None if total is None else max(0, min(max(1, total // task_count), total - taken))


_known_limits: WeakKeyDictionary[RateLimit, _LimitShares] = WeakKeyDictionary()
"""The limits of this process. Batches with the same limit share the limit's counts."""


class Shares:
    """The limits in one ``workers.Kit``, in order."""

    def __init__(self, limits: Sequence[RateLimit]) -> None:
        self._limits = limits  # without this reference, `_known_limits` would drop the counts
        self._limit_shares = [
            _known_limits.setdefault(limit, _LimitShares(limit)) for limit in limits
        ]
        numbers = (n for limit in limits for n in (limit.concurrency, limit.rpm) if n is not None)
        self.max_tasks = min(numbers, default=None)
        """The maximum number of tasks that can have a share at the same time; None means no maximum."""

    def lease(self, task_count: int) -> Lease | float:
        """Return the lease of a new task, or the seconds until a share may be free; 0 if a task must end first."""
        now, shares = time.monotonic(), []
        for each in self._limit_shares:
            offered = each.offer(task_count, now)
            if isinstance(offered, float):
                return offered
            shares.append(offered)
        return Lease(self._limit_shares, Grant(tuple(shares), LENGTH + MARGIN))

    def hold(self) -> None:
        """Count unused limits as used for a minute, because another process may just have used them."""
        for each in self._limit_shares:
            each.hold(time.monotonic())


class Lease:
    """The shares of one task, from its submission to its end."""

    def __init__(self, limit_shares: Sequence[_LimitShares], grant: Grant) -> None:
        self._limit_shares, self.grant = limit_shares, grant
        self.users: set[str] = set()
        """Keys of rows that may still use the shares of a lost task."""
        for each, share in zip(limit_shares, grant.shares, strict=True):
            each.leased[self] = share

    def record_used(self, used: Used) -> None:
        """Free the shares of a task that ended and reported its requests."""
        for each, requests in zip(self._limit_shares, used, strict=True):
            each.record_used(self, requests, time.monotonic())

    def record_lost(self) -> None:
        """Count all shares of a task that ended without a report as used."""
        for each in self._limit_shares:
            each.record_lost(self, time.monotonic())


# --- in a worker


class _RequestWindow(Window):
    """A window that lists the requests within its length."""

    def sent_requests(self) -> list[SentRequest]:
        """Return the requests within the window."""
        now = time.monotonic()
        ages = ((now - stamp.at, stamp.tokens) for stamp in self._sent)
        return [SentRequest(ago, tokens) for ago, tokens in ages if ago < self.length]


class RequestQueues:
    """The lines in which the requests of one task wait: one line for each limit of the task's kit.

    With ``is_used``, an earlier attempt of the same task may have used all shares just now.
    """

    def __init__(self, grant: Grant, *, is_used: bool) -> None:
        self.lines: list[Line] = []
        self.windows: list[_RequestWindow] = []
        for share in grant.shares:
            window = _RequestWindow(share.rpm, share.tpm, grant.length)
            for n in range((share.rpm or 1) if is_used else 0):
                window.add(time.monotonic(), 0 if n else share.tpm or 0)
            self.windows.append(window)
            self.lines.append(Line(share.concurrency, window))

    def used(self) -> Used:
        """Return the task's requests of the last minute, for each limit."""
        return [window.sent_requests() for window in self.windows]


current: ContextVar[RequestQueues | None] = ContextVar("nbagent_lines", default=None)
"""The lines of the current task."""


class SharedLimit(RateLimit):
    """A limit in a worker: each request waits in the line of its own task, at the limit's position in the kit."""

    def __init__(self, number: int, limits: Share) -> None:
        super().__init__(**limits._asdict())
        self._number = number

    def ticket(self) -> Ticket:
        """Return a place at the end of the task's line, for one request."""
        lines = current.get()
        return super().ticket() if lines is None else Ticket(lines.lines[self._number])


def dumped(given: Any) -> tuple[bytes, list[RateLimit]]:
    """Pickle an object and the models in it with cloudpickle. Return the bytes and all rate limits in the object.

    Models and limits are found in the agent, in inner agents and in closures.

    Raises:
        ImportError: cloudpickle is not installed.
        Exception: the object cannot be pickled.
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
            return SharedLimit, (len(found) - 1, Share(obj.concurrency, obj.rpm, obj.tpm))

    with io.BytesIO() as file:
        Packer(file).dump((given, models))  # in this order: pickling `given` finds the models
        return file.getvalue(), found
