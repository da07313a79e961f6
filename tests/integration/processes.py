"""Real processes on one store, controlled by lines of JSON; ``process_worker`` has their code."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[2]


class Process:
    """A worker process, controlled by lines of JSON."""

    def __init__(self, folder: Path, *machine: str) -> None:
        self._database = folder / "runs.db"
        files = (self._database, folder / "effects")
        command = ["-m", "tests.integration.process_worker", *files, *machine]
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Call a method of the worker and return its reply."""
        self.tell(verb, **arguments)
        return self.hear()

    def tell(self, verb: str, **arguments: Any) -> None:
        """Call a method of the worker without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The worker's next reply; an error after 60 s without one."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], 60)[0], "no reply for a minute"
        return json.loads(self._process.stdout.readline())

    def died(self) -> None:
        """Wait until the process has ended by itself."""
        self._process.wait(60)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def stop(self) -> None:
        """Suspend the process, like a laptop that sleeps."""
        suspend(self._process.pid, self._database)

    def go_on(self) -> None:
        """Continue the suspended process."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, like ``kill -9``."""
        with self._process:
            self._process.send_signal(signal.SIGKILL)


Begin: TypeAlias = Callable[..., Process]


@contextmanager
def beginning(folder: Path) -> Iterator[Begin]:
    """A function that starts processes on a folder's store, on this or another machine; they are killed at the end."""
    begun: list[Process] = []

    def new(*machine: str) -> Process:
        begun.append(Process(folder, *machine))
        return begun[-1]

    yield new
    for process in begun:
        process.kill()


def suspend(pid: int, database: Path) -> None:
    """Suspend a process outside of its transactions: in one, it would lock the database for all other processes."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        connection = sqlite3.connect(database, timeout=1)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        else:
            return
        finally:
            connection.close()


def effects(folder: Path) -> list[str]:
    """The effects of tool bodies, in all processes."""
    path = folder / "effects"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(effect: str, folder: Path) -> None:
    """Wait until any process has written this effect."""
    until = time.monotonic() + 60
    while effect not in effects(folder):
        assert time.monotonic() < until, f"nobody did {effect!r}"
        time.sleep(0.02)
