"""The process between nbagent and a server: it limits the server's lines, and ends with the process that started it.

When the server ends for any reason, its child processes are ended too: all processes of the process group, which
this process leads. A process that has left the group, such as a daemon, continues.

Run this file as a script, by its path, with ``BYTES PARTS READER COMMAND…``: the maximum bytes of a line, and the
maximum parts as counted by ``READER``, the path of ``core/base/incoming_json.py``. The script imports only the standard
library, because nbagent is not available in this process. The script passes on whole lines only.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple

LOOK = 0.2
"""Seconds between checks that the parent process still exists."""
GRACE = 2.0
"""Seconds in which a server can end by itself, after its output is closed or the server is asked to end."""
CHUNK = 65_536


class Bounds(NamedTuple):
    """The limits of one line."""

    bytes: int
    parts: int
    reader: str
    """The path of the module that counts parts; the module is loaded for each line that may have too many."""

    def misfit(self, buffer: bytearray, length: int, *, is_complete: bool) -> str:
        """The reason not to pass on the first line, of which ``length`` bytes are known; empty to pass it on."""
        if length > self.bytes:
            return f"more than {self.bytes:,} bytes"
        if not is_complete or length <= self.parts:
            return ""
        found = runpy.run_path(self.reader)["parts_of"](bytes(buffer[:length]), self.parts)
        return f"more than {self.parts:,} values" if found > self.parts else ""


def main(bounds: Bounds, command: list[str]) -> int:
    """Run the command to its end and return its exit code."""
    parent = os.getppid()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    # the group gets the signal; this process ends after the server
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert child.stdout is not None
    source, buffer, exited_at = child.stdout.fileno(), bytearray(), 0.0
    while True:
        if os.getppid() != parent:
            return _end(child)
        has_exited = child.poll() is not None
        if has_exited and not exited_at:
            exited_at = time.monotonic()
        ready, _, _ = select.select([source], [], [], LOOK)
        if has_exited and (not ready or time.monotonic() - exited_at > GRACE):
            return _end(child)  # all output is read, or a child process still writes to the pipe
        if not ready:
            continue
        data = os.read(source, CHUNK)
        if not data:  # the server has ended, or is about to
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
            return _end(child)
        end = data.find(b"\n")
        is_complete = end >= 0
        # of the first line; later lines in the data are shorter than CHUNK
        length = len(buffer) + (end if is_complete else len(data))
        buffer += data
        if misfit := bounds.misfit(buffer, length, is_complete=is_complete):
            message = f"nbagent: a line of the server has {misfit}; the server was stopped\n"
            os.write(2, message.encode())
            return _end(child)
        if is_complete:
            last = buffer.rfind(b"\n") + 1
            try:
                _write(buffer[:last])
            except OSError:  # the reader has closed the pipe
                return _end(child)
            del buffer[:last]


def _write(data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the server and the processes that are still in the group; return the server's exit code.

    This process is in the group too, and ignores SIGTERM. If SIGKILL is needed, SIGKILL ends this process too. This
    process closes its output first, so that a reader does not wait for the end of the group.
    """
    os.close(1)
    if child.poll() is None or _others(child.pid):
        os.killpg(0, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while child.poll() is None or _others(child.pid):
            if time.monotonic() > until:
                os.killpg(0, signal.SIGKILL)
            time.sleep(LOOK / 10)
    return child.wait()


def _others(server: int) -> bool:
    """Whether processes other than the server and this process run in the group."""
    group, own_pids = os.getpgrp(), {os.getpid(), server}
    try:
        listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # a system without /proc, such as macOS
        return _others_by_ps(group, own_pids)
    return any(_runs_in(group, pid) for pid in listed if pid not in own_pids)


def _runs_in(group: int, pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _parent, found = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):  # the process has ended meanwhile
        return False
    return int(found) == group and state not in (b"Z", b"X")


def _others_by_ps(group: int, own_pids: set[int]) -> bool:
    command = ["ps", "-A", "-o", "pid=,pgid=,stat="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ps:
        assert ps.stdout is not None
        rows = [line.split()[:3] for line in ps.stdout]
    known = own_pids | {ps.pid}
    return any(
        int(one[0]) not in known and int(one[1]) == group and not one[2].startswith(b"Z")
        for one in rows
        if len(one) == 3
    )


if __name__ == "__main__":
    try:
        code = main(Bounds(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]), sys.argv[4:])
    except OSError as error:
        sys.stderr.write(f"nbagent: the server could not be started: {error}\n")
        code = 127
    sys.exit(code if code >= 0 else 128 - code)
