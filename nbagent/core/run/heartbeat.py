"""Liveness of processes on different machines: heartbeats in their shared store."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from nbagent.core.base.errors import StoreError
from nbagent.core.base.process import describe_process, fork_safe, has_ended, this_process
from nbagent.core.call.threads import running_loop

BEAT = 5.0
"""Seconds between the heartbeats of a process that drives runs."""
MISSED = 6
"""Number of missed heartbeats after which a process counts as ended."""
UNHEARD = 300.0
"""Seconds without an event after which a process counts as ended, if the store has no heartbeats."""

logger = logging.getLogger("nbagent")


@runtime_checkable
class Beating(Protocol):
    """A store that records heartbeats of processes."""

    def beat(self, process: str) -> None:
        """Record one more heartbeat of a process; from any thread.

        Raises:
            StoreError: the heartbeat could not be written.
        """

    def beats(self, process: str) -> int:
        """Number of heartbeats of a process; 0 if unknown.

        Raises:
            StoreError: the number could not be read.
        """


class OtherProcesses:
    """The liveness of the other processes that a run's events name, as observed by one handle.

    Args:
        store: the run's store.
        run_id: the run's id, for the warning that the run is waiting.
    """

    __slots__ = ("_moved_at", "_run_id", "_store", "_warned", "_watched")

    def __init__(self, store: object, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._moved_at = time.monotonic()
        self._watched: Mapping[str, _Watched] = _NOTHING
        self._warned: tuple[str, ...] = ()

    def moved(self) -> None:
        """Observe anew, because the journal has grown."""
        self._moved_at = time.monotonic()
        self._watched = _NOTHING

    @property
    def silent(self) -> float:
        """Seconds since the journal was last seen to grow."""
        return time.monotonic() - self._moved_at

    def has_ended(self, process: str) -> bool:
        """Whether a process has ended, as far as this process can tell.

        A process on another machine counts as ended if it sent no event and no heartbeat for some time.
        """
        known = has_ended(process)
        if known is not None:
            return known
        return self._is_silent(process, "which cannot be checked from here and")

    def drives_nothing(self, process: str) -> bool:
        """Whether a process drives no run of this store: the process has ended, or sends no heartbeats."""
        if has_ended(process) is not False:
            return self.has_ended(process)
        is_beating = isinstance(self._store, Beating)
        return is_beating and self._is_silent(process, "which is running but does not respond: it")

    def _is_silent(self, process: str, known: str) -> bool:
        """Whether a process was silent for too long. Logs a warning earlier, after ``2 * BEAT`` seconds."""
        silent = self._unheard(process)
        if silent >= 2 * BEAT and process not in self._warned:
            self._warned += (process,)
            logger.warning(
                "run %s is waiting for %s, %s has been silent for %.0f s; after %.0f s of silence, other "
                "processes can continue the run",
                *(self._run_id, describe_process(process), known, silent, self._limit),
            )
        return silent >= self._limit

    @property
    def awaited(self) -> str:
        """The processes that the run waits for and that cannot be checked or were silent, in words; may be empty."""
        now = time.monotonic()
        descriptions = [
            f"{describe_process(p)}, silent for {now - h.at:.0f} s"
            for p, h in self._watched.items()
            if has_ended(p) is None or p in self._warned
        ]
        return "; ".join(descriptions)

    @property
    def _limit(self) -> float:
        return BEAT * MISSED if isinstance(self._store, Beating) else UNHEARD

    def _unheard(self, process: str) -> float:
        now = time.monotonic()
        watched = self._watched.get(process)
        if watched is None:
            watched = _Watched(self._moved_at)
            self._watched = {**self._watched, process: watched}
        if isinstance(self._store, Beating) and now - watched.looked >= BEAT / 2:
            watched.looked = now
            ask = partial(watched.ask, self._store, process)
            if running_loop() is None:
                ask()
            elif not watched.is_asked:  # its result is read at the next check
                watched.is_asked = True
                try:
                    threading.Thread(target=ask, name="nbagent-beats").start()
                except RuntimeError:  # there are no threads, as in a web page
                    ask()
        return now - watched.at


def still_beats(store: object, process: str) -> bool | None:
    """Whether a process sends a heartbeat within ``BEAT * MISSED`` seconds; None if the store has no heartbeats.

    Not for an event loop, because this function waits for that time.

    Raises:
        StoreError: the heartbeats could not be read.
    """
    if not isinstance(store, Beating):
        return None
    before, began = store.beats(process), time.monotonic()
    while time.monotonic() - began < BEAT * MISSED:
        if store.beats(process) != before:
            return True
        time.sleep(BEAT / 10)
    return False


class _Watched:
    """The time of a process's last heartbeat, by this process's clock, because clocks of machines differ."""

    __slots__ = ("at", "beats", "is_asked", "looked")

    def __init__(self, at: float) -> None:
        self.at, self.looked = at, 0.0
        self.beats: int | None = None
        self.is_asked = False
        """True while a thread reads the heartbeats from the store."""

    def ask(self, store: Beating, process: str) -> None:
        """Check for new heartbeats; not for an event loop."""
        try:
            beats = store.beats(process)
            if self.beats not in (None, beats):
                self.at = time.monotonic()
            self.beats = beats
        except StoreError:  # the code that reads the journal reports the error
            return
        finally:
            self.is_asked = False


def start_beating(store: Any) -> Callable[[], None] | None:
    """Send heartbeats to a store until the returned function is called; None if the store has no heartbeats."""
    if not hasattr(store, "beat"):
        return None
    entry = object()  # a store can have several entries
    with _lock:
        _entries[entry] = store
        if not any(map(_is_alive, _beating)):
            thread = threading.Thread(target=_beat, name="nbagent-heartbeat", daemon=True)
            _beating[:] = [thread]
            try:
                thread.start()
            except RuntimeError:  # there are no threads, as in a web page
                _beating[:] = [asyncio.get_running_loop().create_task(_beat_on_loop())]

    def end() -> None:
        with _lock:
            _entries.pop(entry, None)

    return end


def _is_alive(sender: threading.Thread | asyncio.Task[None]) -> bool:
    return sender.is_alive() if isinstance(sender, threading.Thread) else not sender.done()


def _beat() -> None:
    """Send heartbeats until no run is driven; in a thread, because a loop may be blocked for long."""
    time.sleep(BEAT)
    while _beat_once():
        time.sleep(BEAT)


async def _beat_on_loop() -> None:
    """``_beat`` in a task of the event loop, for platforms without threads."""
    await asyncio.sleep(BEAT)
    while _beat_once():  # noqa: ASYNC110 - it waits for nothing but the time
        await asyncio.sleep(BEAT)


def _beat_once() -> bool:
    """Send one heartbeat to each store; returns whether this process still drives a run."""
    with _lock:
        stores = {id(store): store for store in _entries.values()}.values()
        if not stores:
            _beating.clear()
            return False
    for store in stores:
        try:
            store.beat(this_process())
        except Exception as error:  # the next heartbeat may succeed
            logger.warning("the heartbeat could not be written to %r: %s", store, error)
    return True


_NOTHING: Mapping[str, _Watched] = MappingProxyType({})
"""No heartbeats: shared, so that most runs need no dict of their own."""
_lock = fork_safe(threading.Lock())
_entries: dict[object, Beating] = {}
"""The stores of the runs that this process drives, one entry for each run."""
_beating: list[threading.Thread | asyncio.Task[None]] = []
"""The sender of heartbeats, if any. After a fork, the thread in this list is not alive."""
