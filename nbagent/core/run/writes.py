"""What a session has on its way to the store, and what it does once that is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.journal.journal import finished, under_way

T = TypeVar("T")
R = TypeVar("R")


class WritingRun(Protocol):
    """What ``Writes`` need of the run that is written."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""

    def lost(self, why: BaseException | None) -> None:
        """Note why the run cannot go on; called on its loop."""

    def notify(self) -> None:
        """Tell those who wait for the run to look again."""


class Writes:
    """What waits to be written of one run, and what comes of it. It is true while anything does."""

    __slots__ = ("_run", "_under_way")

    def __init__(self, run: WritingRun) -> None:
        self._run = run
        self._under_way: tuple[Future[Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def then(
        self,
        written: Future[T],
        go_on: Callable[[T], R],
        failed: Callable[[BaseException], None] | None = None,
    ) -> Future[R]:
        """What comes once this is written: now, or on the thread that writes it.

        Where it fails later, it is the run's ``error``, unless ``failed`` takes it, on the run's loop.

        Raises:
            Exception: it has failed already.
        """
        if written.done():
            return finished(go_on(written.result()))
        after: Future[R] = under_way()
        with _lock:
            self._under_way += (after,)

        def settle(done: Future[T]) -> None:
            try:
                after.set_result(go_on(done.result()))
            except BaseException as error:
                after.set_exception(error)
                self._run.call_soon(partial(failed or self._run.lost, error))
            with _lock:
                self._under_way = tuple(one for one in self._under_way if one is not after)
            self._run.notify()

        written.add_done_callback(settle)
        return after

    def attempt(
        self,
        submit: Callable[[], Future[T]],
        go_on: Callable[[T], object],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """``then`` for what the run does by itself, on its loop: it fails alike now and later."""
        try:
            self.then(submit(), go_on, failed)
        except (StoreError, UsageError) as error:
            (failed or self._run.lost)(error)


_lock = threading.Lock()
"""Held for a moment while something begins to wait to be written, or is written."""
