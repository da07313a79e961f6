"""How often cards are patched: the pages of all runs share one connection."""

from __future__ import annotations

import threading

OF_ONE_RUN = 0.1
"""Seconds between two patches of one run."""
OF_ALL_RUNS = 1 / 30
"""Seconds between two patches of all runs together: a server drops messages that come much faster."""


class PatchRate:
    """The time when the next patch may be sent, over all runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def reserve(self, now: float, earliest: float) -> float:
        """A time for one patch, not before ``earliest``."""
        with self._lock:
            at = max(now, earliest, self._next)
            self._next = at + OF_ALL_RUNS
            return at

    def give_back(self, at: float) -> None:
        """Return an unused time; another run may use it, if it was reserved last."""
        with self._lock:
            if self._next == at + OF_ALL_RUNS:
                self._next = at


patch_rate = PatchRate()
