"""The process between nbagent and a server: it ends the server with whoever started it, and bounds its lines.

Run as a script, by its path, with ``MOST COMMAND…``: ``MOST`` is how many bytes a line may have. It imports the
standard library alone, since nothing of nbagent is there where it runs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

LOOK = 0.2
"""Seconds between looks at whether the process that started it is still there."""
GRACE = 2.0
"""Seconds that a server has to end by itself, once its input is closed or it is told to."""
CHUNK = 65_536


def main(most: int, command: list[str]) -> int:
    """Run the command to its end; its exit code."""
    parent = os.getppid()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # the group is told: this ends when the server has
    assert child.stdout is not None
    source, line = child.stdout.fileno(), 0
    while True:
        if os.getppid() != parent:
            return _end(child)
        ready, _, _ = select.select([source], [], [], LOOK)
        if not ready:
            if child.poll() is not None:  # a child of its own may hold the pipe
                return _code(child)
            continue
        data = os.read(source, CHUNK)
        if not data:
            return _code(child)
        last = data.rfind(b"\n")
        line = line + len(data) if last < 0 else len(data) - last - 1
        if line > most:
            told = f"nbagent: a line of the server has more than {most:,} bytes; it was ended\n"
            os.write(2, told.encode())
            return _end(child)
        try:
            _write(data)
        except OSError:  # nobody reads it any more
            return _end(child)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def _code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a server that closed its output."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(GRACE)
    return _end(child)


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the server, and what it started in its group, this process too."""
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    if child.poll() is None:
        os.killpg(0, signal.SIGKILL)
    return child.wait()


if __name__ == "__main__":
    try:
        code = main(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"nbagent: the server could not be started: {error}\n")
        code = 127
    sys.exit(code if code >= 0 else 128 - code)
