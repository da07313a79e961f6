"""Executors that run the rows of a batch: a pool of processes or threads, a Dask cluster, or your own class."""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from nbagent.core.base.errors import UsageError


@runtime_checkable
class Executor(Protocol):
    """An executor, which runs functions in other processes.

    A task may be lost or run twice, because the batch reads its results from the store.
    """

    def slots(self) -> int:
        """The number of tasks that can run at the same time, now; 0 if there is no worker yet."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
        """Run ``fn(*args)`` in a worker.

        Args:
            fn: a function of this package.
            args: the arguments of ``fn``, which can be pickled.
            name: a name that people see.
        """

    def is_lost(self, error: BaseException) -> bool:
        """Whether the error means that a task was lost, with or without its worker. Lost rows are submitted again."""

    def has_ended(self, error: BaseException) -> bool:
        """Whether the error means that the task's process has ended. A lost connection is not enough."""

    def renew(self) -> None:
        """Replace a broken pool or connection, after a task was lost.

        Raises:
            UsageError: the broken part cannot be replaced.
        """

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """Return the result of ``fn(*args)`` from each current worker. Blocks."""


class Pool:
    """A ``concurrent.futures`` pool, or a function that makes one. With a function, a broken pool is replaced."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._pool = self._made()

    def _made(self) -> Any:
        is_pool = isinstance(self._given, concurrent.futures.Executor)
        pool = self._given if is_pool else self._given()
        if not isinstance(pool, concurrent.futures.Executor):
            raise UsageError(
                f"The function executor= must return a concurrent.futures.Executor, got {type(pool).__name__}"
            )
        return pool

    def slots(self) -> int:
        """The number of workers of the pool."""
        return int(getattr(self._pool, "_max_workers", 1))

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:  # noqa: ARG002 - Executor
        """Run ``fn(*args)`` in the pool.

        Raises:
            UsageError: the pool was shut down, and cannot be replaced.
        """
        try:
            future: Future[Any] = self._pool.submit(fn, *args)
        except RuntimeError:  # the pool broke, or was shut down
            self.renew()
            future = self._pool.submit(fn, *args)
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Whether a worker has ended and broke the pool, or the pool was shut down."""
        lost = (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError)
        return isinstance(error, lost)

    def has_ended(self, error: BaseException) -> bool:
        """Whether a process ended; the pool then ends all its other processes."""
        return isinstance(error, concurrent.futures.BrokenExecutor)

    def renew(self) -> None:
        """Make another pool, if the current pool accepts no more tasks.

        Raises:
            UsageError: ``executor=`` was a pool, not a function that makes one.
        """
        if not any(getattr(self._pool, name, False) for name in ("_broken", "_shutdown")):
            return
        if self._pool is self._given:
            raise UsageError(
                "The pool of executor= is broken: one of its processes has ended. Call nb.map again with another "
                "pool and the same id. Or pass a function, which is then called again: "
                "executor=lambda: ProcessPoolExecutor(4)"
            )
        self._pool = self._made()

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """Run ``fn(*args)`` once per worker. A process that ran no probe is checked before its first task."""
        is_one = isinstance(self._pool, concurrent.futures.ThreadPoolExecutor)
        n = 1 if is_one else self.slots()
        probes = [self.submit(fn, *args, name="probe") for _ in range(n)]
        return [*{str(found): found for found in (each.result() for each in probes)}.values()]


class Dask:
    """A ``dask.distributed.Client``."""

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise UsageError("executor= is an asynchronous Dask client. Use a synchronous one")
        self._client = client

    def slots(self) -> int:
        """The number of threads of all workers."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., Any], /, *args: Any, name: str) -> Future[Any]:
        """Run ``fn(*args)`` on the cluster, with a name for its dashboard."""
        key = f"{name}-{uuid.uuid4().hex[:8]}"  # the cluster may still have a task of an earlier driver
        task = self._client.submit(fn, *args, key=key, pure=False)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def copy(done: Any) -> None:
            try:
                future.set_result(done.result())
            except BaseException as error:  # CancelledError is not an Exception
                future.set_exception(error)
            done.release()

        task.add_done_callback(copy)
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Whether workers were killed too often, the cluster restarted, the task was cancelled or a connection was lost."""
        names = ("CancelledError", "FutureCancelledError", "FutureLostError", "CommClosedError")
        return self.has_ended(error) or _is_one_of(error, *names)

    def has_ended(self, error: BaseException) -> bool:
        """Whether the task's workers were killed. A worker may survive a cancelled task or a lost connection."""
        return _is_one_of(error, "KilledWorker")

    def renew(self) -> None:
        """Do nothing: the cluster itself starts new workers."""

    def probe(self, fn: Callable[..., Any], /, *args: Any) -> list[Any]:
        """Run ``fn(*args)`` in each current worker. A worker that ends meanwhile is left out."""
        results = self._client.run(fn, *args, on_error="return")
        failed = {worker: one for worker, one in results.items() if isinstance(one, BaseException)}
        wrong = [
            (worker, f"{type(error).__name__}: {error}")
            for worker, error in failed.items()
            if not self.is_lost(error) and not isinstance(error, OSError)
        ]
        return [one for worker, one in results.items() if worker not in failed] + wrong


def _is_one_of(error: BaseException, *names: str) -> bool:
    """Whether an error of Dask has one of these names: Dask is imported only by callers that pass a client."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def executor_of(given: Any) -> Executor:
    """Return the executor for the argument ``executor=``.

    Raises:
        UsageError: the argument is not an executor.
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
