"""Real processes on one store, spoken to in lines; what they are is in ``process_worker``."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[2]


class Process:
    """A worker process, spoken to in lines."""

    def __init__(self, folder: Path, *machine: str) -> None:
        files = (folder / "runs.db", folder / "effects")
        command = ["-m", "tests.integration.process_worker", *files, *machine]
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Have it do one thing, and give what it says."""
        self.tell(verb, **arguments)
        return self.hear()

    def tell(self, verb: str, **arguments: Any) -> None:
        """Have it do one thing, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Its next reply; one that does not come is an error, and no hang."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], 60)[0], "no reply for a minute"
        return json.loads(self._process.stdout.readline())

    def died(self) -> None:
        """Wait until it has ended by itself."""
        self._process.wait(60)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def stop(self) -> None:
        """Have it stand still, as a laptop that sleeps does."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it go on where it was stopped."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it on the spot, as ``kill -9`` does."""
        with self._process:
            self._process.send_signal(signal.SIGKILL)


Begin: TypeAlias = Callable[..., Process]


@contextmanager
def beginning(folder: Path) -> Iterator[Begin]:
    """Begins processes on the store in a folder, on this machine or one so called, and ends them."""
    begun: list[Process] = []

    def new(*machine: str) -> Process:
        begun.append(Process(folder, *machine))
        return begun[-1]

    yield new
    for process in begun:
        process.kill()


def effects(folder: Path) -> list[str]:
    """What the bodies did, in whatever process."""
    path = folder / "effects"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(effect: str, folder: Path) -> None:
    """Wait until some process has done this."""
    until = time.monotonic() + 60
    while effect not in effects(folder):
        assert time.monotonic() < until, f"nobody did {effect!r}"
        time.sleep(0.02)
