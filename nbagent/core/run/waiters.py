"""Who waits for a run, and for what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

Holds: TypeAlias = Callable[[], bool]
"""Whether what somebody waits for has come; quick, and from any thread."""


class Waiters:
    """Those who wait for one run, on any thread."""

    __slots__ = ("_waiting", "were_any")

    def __init__(self) -> None:
        self.were_any = False
        """Whether anybody ever waited."""
        self._waiting: tuple[tuple[Holds, Future[None]], ...] = ()

    def when(self, holds: Holds) -> Future[None]:
        """Done once this holds, which is looked at now and whenever the run has moved."""
        self.were_any = True
        future: Future[None] = Future()
        with _lock:
            if holds():
                future.set_result(None)
                return future
            self._waiting += ((holds, future),)
        future.add_done_callback(self._gone)
        return future

    def tell(self) -> None:
        """The run has moved: look who has waited long enough."""
        if not self._waiting:
            return
        with _lock:
            ready = [(holds, future) for holds, future in self._waiting if holds()]
            self._waiting = tuple(one for one in self._waiting if one not in ready)
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)

    def _gone(self, future: Future[None]) -> None:
        """It is done, or nobody waits any more."""
        with _lock:
            self._waiting = tuple(one for one in self._waiting if one[1] is not future)


_lock = threading.Lock()
"""Held for a moment while somebody begins to wait, or has waited long enough."""
