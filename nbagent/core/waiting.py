"""Who waits for a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

_lock = threading.Lock()
"""One for all: it is held for a moment."""


class Waiters:
    """Futures that are done as soon as what they wait for holds; from any thread."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: tuple[tuple[Callable[[], bool], Future[None]], ...] = ()

    def when(self, holds: Callable[[], bool]) -> Future[None]:
        """Done once ``holds`` does, which is looked at now and whenever somebody notifies."""
        future: Future[None] = Future()
        with _lock:
            if holds():
                future.set_result(None)
            else:
                self._waiting += ((holds, future),)
        return future

    def notify(self) -> None:
        """Look who has waited long enough."""
        with _lock:
            ready = [(h, f) for h, f in self._waiting if h()]
            self._waiting = tuple(w for w in self._waiting if w not in ready)
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
