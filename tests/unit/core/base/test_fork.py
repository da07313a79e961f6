"""A fork of a process whose other threads were busy: it finds every lock free, and uses stores."""

from __future__ import annotations

import faulthandler
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded:DeprecationWarning"
)  # from Python 3.12 on
KINDS = (type(threading.Lock()), type(threading.RLock()))


def in_fork(body: Callable[[], object], log: Path) -> None:
    """Run ``body`` in a fork of this process; fail with its stacks if it has not returned after ten seconds."""
    pid = os.fork()
    if pid == 0:
        with log.open("w") as file:
            faulthandler.dump_traceback_later(10, exit=True, file=file)
            try:
                result = body()
            except BaseException as error:
                result = error
            file.write("" if result is None else repr(result))
            file.flush()
            os._exit(0)
    os.waitpid(pid, 0)
    assert log.read_text() == ""


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run ``work(is_over)`` in another thread."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def locks() -> dict[str, Any]:
    """All locks that are global variables of nbagent's modules."""
    for module in pkgutil.walk_packages(nb.__path__, "nbagent."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    return {
        f"{module}.{name}": value
        for module in sorted(sys.modules)
        if module.startswith("nbagent.")
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, KINDS)
    }


def test_c665_a_lock_that_another_thread_of_the_parent_holds_is_free_in_a_fork(
    tmp_path: Path,
) -> None:
    """No thread of the fork would ever release it."""
    found, held = locks(), threading.Event()
    assert "nbagent.core.journal.memory._lock" in found

    def hold(is_over: threading.Event) -> None:
        with ExitStack() as stack:
            for lock in found.values():
                stack.enter_context(lock)
            held.set()
            is_over.wait()

    def taken() -> object:
        now = {
            name: getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
            for name in found
        }
        return [name for name, lock in now.items() if not lock.acquire(blocking=False)] or None

    with beside(hold):
        held.wait()
        in_fork(taken, tmp_path / "log")


@pytest.mark.parametrize("kind", ["sqlite", "sql"])
def test_c665_a_fork_uses_a_store_while_other_threads_open_write_and_close_stores(
    kind: str, tmp_path: Path
) -> None:
    """A fork waits for threads in SQLite, whose own locks would be held in the forked process for ever."""

    def store(name: str) -> Any:
        path = tmp_path / f"{name}.db"
        return nb.SQLiteStore(path) if kind == "sqlite" else nb.SQLStore(f"sqlite:///{path}")

    def busy(is_over: threading.Event) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            with store(f"{threading.get_ident()}-{number % 20}") as one:
                one.beat("a")

    def used() -> None:
        with store("child") as one:
            one.beat("b")
            nb.Agent(nb.ScriptedModel(["done"]), store=one).run_sync("go")

    used()  # imports all modules: Python itself holds a lock of a module that another thread imports
    with beside(busy), beside(busy):
        for number in range(25):
            in_fork(used, tmp_path / f"log {number}")
