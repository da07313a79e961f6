"""Who waits for a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


class Waiters:
    """Futures that are done as soon as what they wait for holds; from any thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []
        self._lock = threading.Lock()

    def when(self, holds: Callable[[], bool]) -> Future[None]:
        """Done once ``holds`` does, which is looked at now and whenever somebody notifies."""
        future: Future[None] = Future()
        with self._lock:
            if holds():
                future.set_result(None)
            else:
                self._waiting.append((holds, future))
        return future

    def notify(self) -> None:
        """Look who has waited long enough."""
        with self._lock:
            ready = [(h, f) for h, f in self._waiting if h()]
            self._waiting = [w for w in self._waiting if w not in ready]
        for _, future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
