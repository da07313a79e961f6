"""Where the rows of a batch may go on beside this process: a pool of processes or threads, a Dask cluster, or one of your own."""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from nbagent.core.base.errors import UsageError


@runtime_checkable
class Executor(Protocol):
    """Runs functions in other processes. A task may be lost, or run twice: the batch looks in the store."""

    def slots(self) -> int:
        """How many tasks may run at a time, now; 0 where there is no worker yet."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
        """Run ``fn(*args)`` in a worker.

        Args:
            fn: a function of this package.
            args: what it takes; they can be pickled.
            name: what people see it as.
        """

    def is_lost(self, error: BaseException) -> bool:
        """Whether this says that a task was lost, with its worker or without: it is submitted again."""

    def has_ended(self, error: BaseException) -> bool:
        """Whether this says that the process of a task has ended, and not only that nothing is heard of it."""

    def renew(self) -> None:
        """Make anew what has broken, after a task was lost.

        Raises:
            UsageError: it cannot be.
        """

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """What ``fn(*args)`` gives in each worker that there is now; not for an event loop."""


class Pool:
    """A ``concurrent.futures`` pool, or a function that makes one, which can be made anew once it breaks."""

    def __init__(self, given: Any) -> None:
        self._make: Callable[[], Any] | None = (
            None if isinstance(given, concurrent.futures.Executor) else given
        )
        self._pool = given if self._make is None else self._made()

    def _made(self) -> Any:
        assert self._make is not None  # whoever calls has one
        pool = self._make()
        if not isinstance(pool, concurrent.futures.Executor):
            raise UsageError(
                f"The function executor= must return a concurrent.futures.Executor, got {type(pool).__name__}"
            )
        return pool

    def slots(self) -> int:
        """As many as the pool has workers."""
        return int(getattr(self._pool, "_max_workers", 1))

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:  # noqa: ARG002 - Executor
        """Run it in the pool.

        Raises:
            UsageError: the pool was shut down, and cannot be made anew.
        """
        try:
            future: Future[Any] = self._pool.submit(fn, *args)
        except RuntimeError:  # it broke, or was shut down
            self.renew()
            future = self._pool.submit(fn, *args)
        return future

    def is_lost(self, error: BaseException) -> bool:
        """A worker has ended, and with it the pool; or the pool was shut down."""
        lost = (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError)
        return isinstance(error, lost)

    def has_ended(self, error: BaseException) -> bool:
        """A process ended, and the pool ended the others."""
        return isinstance(error, concurrent.futures.BrokenExecutor)

    def renew(self) -> None:
        """Make another pool, where this one takes no more.

        Raises:
            UsageError: it was given as such.
        """
        if not getattr(self._pool, "_broken", False) and not getattr(
            self._pool, "_shutdown", False
        ):
            return
        if self._make is None:
            raise UsageError(
                "The pool of executor= is broken: one of its processes has ended. Call nb.map again with another "
                "pool and the same id. Or pass a function, which is then called again: "
                "executor=lambda: ProcessPoolExecutor(4)"
            )
        self._pool = self._made()

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """As often as there are workers: a process that was not reached is looked at before its first task."""
        is_one = isinstance(self._pool, concurrent.futures.ThreadPoolExecutor)
        probes = [
            self.submit(fn, *args, name="probe") for _ in range(1 if is_one else self.slots())
        ]
        return list({str(told): told for told in (probe.result() for probe in probes)}.values())


class Dask:
    """A ``dask.distributed.Client``."""

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise UsageError("executor= is an asynchronous Dask client. Use a synchronous one")
        self._client = client

    def slots(self) -> int:
        """The threads of all workers."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
        """Run it on the cluster, under a name that its dashboard shows."""
        key = f"{name}-{uuid.uuid4().hex[:8]}"  # a task of an earlier driver may still be there
        task = self._client.submit(fn, *args, key=key, pure=False)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        task.add_done_callback(lambda done: _come_of(done, future))
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Its worker was killed too often, the cluster was restarted, somebody cancelled it, or a connection was lost."""
        return _is_one_of(error, *_LOST)

    def has_ended(self, error: BaseException) -> bool:
        """Its workers were killed. One whose task was cancelled, or whose connection was lost, may live."""
        return _is_one_of(error, "KilledWorker")

    def renew(self) -> None:
        """Nothing to do: the cluster starts workers by itself."""

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """In each worker that there is now, and does not end meanwhile."""
        told = self._client.run(fn, *args, on_error="return")
        failed = {who: one for who, one in told.items() if isinstance(one, BaseException)}
        wrong = [
            (who, f"{type(error).__name__}: {error}")
            for who, error in failed.items()
            if not self.is_lost(error) and not isinstance(error, OSError)
        ]
        return [one for who, one in told.items() if who not in failed] + wrong


_LOST = (
    "KilledWorker",
    "CancelledError",
    "FutureCancelledError",
    "FutureLostError",
    "CommClosedError",
)
"""Errors of Dask's, by name: it is imported where a client was given."""


def _is_one_of(error: BaseException, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _come_of(task: Any, future: Future[Any]) -> None:
    """Give what a task of Dask's came to."""
    try:
        result = task.result()
    except BaseException as error:  # CancelledError is none of Exception
        future.set_exception(error)
    else:
        future.set_result(result)
    task.release()


def executor_of(given: Any) -> Executor:
    """What runs rows in other processes.

    Raises:
        UsageError: it is nothing that can.
    """
    root = type(given).__module__.partition(".")[0]
    if root == "distributed":
        return Dask(given)
    if isinstance(given, Executor):
        return given
    if isinstance(given, concurrent.futures.Executor) or callable(given):
        return Pool(given)
    raise UsageError(
        "executor= must be a dask.distributed.Client, a concurrent.futures.Executor, a function that makes one, or an "
        f"object with the methods of nbagent.batch.executors.Executor, got {given!r:.80}"
    )
