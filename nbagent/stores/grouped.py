"""Joins writes of several threads into groups: a write that arrives during a group is in the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 64
"""Writes in one group."""


class Waiting(Generic[T]):
    """One write, and the thread that waits for it."""

    __slots__ = ("error", "is_done", "woken", "write")

    def __init__(self, write: T) -> None:
        self.write = write
        self.is_done = False
        self.error: BaseException | None = None
        """The error if the group failed at its end; the write may or may not have taken effect."""
        self.woken = threading.Event()


class Groups(Generic[T]):
    """Writes in groups, each by the thread of its first write; no thread waits for a group to fill.

    Args:
        write_all: writes a group, and sets ``is_done`` or ``error`` of its writes.
        fits: whether a write can be in one group with these.
    """

    def __init__(
        self,
        write_all: Callable[[Sequence[Waiting[T]]], None],
        fits: Callable[[T, Sequence[Waiting[T]]], bool],
    ) -> None:
        self._write_all, self._fits = write_all, fits
        self._lock = threading.Lock()
        self._waiting: list[Waiting[T]] = []
        self._leader: Waiting[T] | None = None
        """The write whose thread writes a group, or was woken to write the next one."""

    def write(self, write: T) -> bool:
        """Write it with the waiting writes; False if no group included it and nothing was written.

        Raises:
            Exception: the group failed at its end; the write may or may not have taken effect.
        """
        entry = Waiting(write)
        try:
            with self._lock:
                self._waiting.append(entry)
                if self._leader is None:
                    self._leader = entry
            if self._leader is not entry:
                entry.woken.wait()
            if self._leader is entry:
                self._lead(entry)
        except BaseException:  # Ctrl+C, too: other threads must not wait for this one
            with self._lock:
                self._waiting = [one for one in self._waiting if one is not entry]
                if self._leader is entry:
                    self._hand_over()
            raise
        if entry.error is not None:
            raise entry.error
        return entry.is_done

    def _lead(self, leader: Waiting[T]) -> None:
        """Write the group of this write, and wake the leader of the next group."""
        group = [leader]
        try:
            with self._lock:
                rest: list[Waiting[T]] = []
                for one in self._waiting:
                    if one is not leader:
                        taken = len(group) < MOST and self._fits(one.write, group)
                        (group if taken else rest).append(one)
                self._waiting = rest
            self._write_all(group)
        finally:
            with self._lock:
                self._hand_over()
            for one in group:
                one.woken.set()

    def _hand_over(self) -> None:
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None:
            self._leader.woken.set()
