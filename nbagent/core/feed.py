"""What one reader of a run's events has not read yet."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable

from .journal import Heard
from .model import TextDelta


class Feed:
    """Events on their way to a reader on ``loop``, from any thread; unread text is held joined."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unread: deque[Heard] = deque()
        self._there = asyncio.Event()
        self._lock = threading.Lock()

    def begin(self, past: Iterable[Heard]) -> None:
        """Put in what happened before; it comes before what was put in meanwhile."""
        with self._lock:
            self._unread.extendleft(reversed(list(past)))
        self._there.set()

    def put(self, heard: Heard) -> None:
        """Take one more."""
        with self._lock:
            last = self._unread[-1] if self._unread else None
            if isinstance(heard, TextDelta) and isinstance(last, TextDelta):
                self._unread[-1] = TextDelta(last.text + heard.text)
                return
            self._unread.append(heard)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._there.set)

    async def get(self) -> Heard:
        """The next one."""
        while True:
            self._there.clear()
            with self._lock:
                if self._unread:
                    return self._unread.popleft()
            await self._there.wait()
