"""The common parts of the live lists of a store: the filter bar, and reading while a page shows the list."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import traitlets

from nbagent.core.base.errors import StoreError
from nbagent.core.call.threads import run_in_thread
from nbagent.notebook.render.reveal import reveal

from . import front_end

log = logging.getLogger("nbagent")

READ_INTERVAL = 1.0
"""Seconds between two reads of the store."""
MAX_READ_SHARE = 0.2
"""Maximum share of time spent reading. A store with many runs is read less often, as a read takes longer."""
SHOWN_FOR = 45.0
"""Seconds without a message from a page after which no page shows the list."""


class ListBar(front_end.CardWidget):
    """The filters of a list. Pages that show the list send messages to this widget."""

    _esm = front_end.LISTS
    choices = traitlets.Dict().tag(sync=True)
    """The choices of each filter, by name, as value and label."""
    chosen = traitlets.Dict().tag(sync=True)
    """The choice of each filter, by name; empty for all."""
    said = traitlets.Unicode().tag(sync=True)
    """The number of matching entries, in words, for screen readers."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _repr_keys(self) -> Any:
        return iter(())


class StoreReader:
    """A repeated read of a store, in a thread, while a page shows the store's entries.

    Args:
        loop: the kernel's loop.
        read: reads new entries (with True, also if the store has not changed), and returns whether to read more
            without a pause. Called in a thread, once at a time.
        report: called on the loop after each read, with the error of the store; empty for none.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[bool], bool],
        report: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._read = read
        self._report = report
        self._seen_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._turn = asyncio.Lock()

    def seen(self) -> None:
        """Note that a page shows the list: read the store for a while."""
        self._seen_at = time.monotonic()
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._look())

    def soon(self) -> None:
        """Read now, also if the store has not changed."""
        self._again = True
        if self._task is None or self._task.done():
            self.seen()
        else:
            task = self._loop.create_task(self._look_once())
            task.add_done_callback(log_failure)

    async def _look(self) -> None:
        while time.monotonic() - self._seen_at < SHOWN_FOR:
            started_at = time.monotonic()
            if await self._look_once():
                continue
            seconds = time.monotonic() - started_at
            await asyncio.sleep(max(READ_INTERVAL, seconds / MAX_READ_SHARE - seconds))

    async def _look_once(self) -> bool:
        async with self._turn:
            again, self._again = self._again, False
            try:
                more = await run_in_thread(lambda: self._read(again))
            except StoreError as error:
                self._report(reveal(str(error)))
                return False
            self._report("")
            return more


def log_failure(task: asyncio.Task[Any]) -> None:
    """Log why an action of a list failed."""
    if not task.cancelled() and task.exception() is not None:
        log.error("an action of a list failed", exc_info=task.exception())
