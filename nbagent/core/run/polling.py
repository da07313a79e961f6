"""Shared polling of a store for all runs that wait for writes of others. If nothing was written, no run is read."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Protocol

from nbagent.core.base.errors import StoreError
from nbagent.core.journal.journal import is_slow
from nbagent.core.journal.rows import Archive
from nbagent.core.journal.store import Store

POLL = 0.25
"""Seconds between checks of a store without notifications."""


class Planned(Protocol):
    """Something that is called later, unless it is cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class SharedPolling:
    """The shared polling of one store on one event loop.

    Args:
        store: a store whose stamp shows quickly whether it has changed.
    """

    def __init__(self, store: Archive) -> None:
        self._store = store
        self._stamp: object = None
        """The store's stamp before the last looks; None if unknown."""
        self._waiting: list[_Waiting] = []
        self._is_planned = False

    def wait(self, look: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Planned:
        """Call ``look`` after the store has changed since the previous looks, or soon if that is unknown."""
        self._waiting.append(waiting := _Waiting(look))
        if not self._is_planned:
            self._is_planned = True
            loop.call_later(POLL, self._look, loop)
        return waiting

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            stamp = self._store.stamp()
        except StoreError:  # the code that reads a run reports the error
            stamp = None
        has_changed = stamp is None or stamp != self._stamp
        self._stamp = stamp
        due = self._waiting if has_changed else []
        for one in due:  # in separate steps; each look may wait again
            loop.call_soon(one.look)
        self._waiting = [one for one in self._waiting if not (has_changed or one.is_cancelled)]
        if due or self._waiting:
            loop.call_later(POLL, self._look, loop)
        else:  # so that the store can be garbage-collected
            del _polled[loop][id(self._store)]


class _Waiting:
    __slots__ = ("_look", "is_cancelled")

    def __init__(self, look: Callable[[], None]) -> None:
        self._look: Callable[[], None] = look
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def look(self) -> None:
        if not self.is_cancelled:
            self._look()


def call_when_written(
    store: Store | None, look: Callable[[], None], loop: asyncio.AbstractEventLoop
) -> Planned:
    """Call ``look`` once others may have written to the store. Call this function on ``loop``."""
    known: object = store
    if is_slow(known) or not isinstance(known, Archive):
        return loop.call_later(POLL, look)
    polled = _polled.setdefault(loop, {})
    return polled.setdefault(id(store), SharedPolling(known)).wait(look, loop)


_polled: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, SharedPolling]] = (
    weakref.WeakKeyDictionary()
)
"""The shared pollings in use, by loop and by the id of their store."""
