"""Which process runs something, in a word that other processes can check."""

from __future__ import annotations

import os
import socket
import sys
import time
from functools import lru_cache
from pathlib import Path

_imported = int(time.time())


def this_process() -> str:
    """This process: ``host:pid:start``."""
    return _owner(os.getpid())  # by id, since a fork is another process


def describe_process(word: str) -> str:
    """An owner as people read it."""
    host, pid, _ = _parts(word)
    return f"process {pid} on {host}"


def has_ended(word: str) -> bool | None:
    """Whether that process has ended; None where it cannot be known, as on another machine."""
    host, pid, start = _parts(word)
    if host != socket.gethostname() or not pid.isdigit():
        return None
    if int(pid) == os.getpid():
        return word != this_process()
    if not _alive(int(pid)):
        return True
    now = _start(int(pid))
    return None if now is None else start != now


@lru_cache(maxsize=1)
def _owner(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start(pid) or _imported}"


def _parts(word: str) -> tuple[str, str, str]:
    host, _, rest = word.partition(":")
    pid, _, start = rest.partition(":")
    return host, pid, start


def _start(pid: int) -> str | None:
    """When a process started, in ticks since the machine did; None where the system doesn't say."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]  # field 22; see proc(5)


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return _alive_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and its parent has not asked how: it runs nothing any more."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] == "Z"


def _alive_on_windows(pid: int) -> bool:
    import ctypes  # noqa: PLC0415 - for Windows alone, where os.kill(pid, 0) sends Ctrl+C

    kernel: object = getattr(ctypes, "windll").kernel32  # noqa: B009 - there on Windows alone
    synchronize, timed_out = 0x00100000, 0x102
    handle = kernel.OpenProcess(synchronize, 0, pid)  # type: ignore[attr-defined]
    if not handle:
        return False
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) == timed_out)  # type: ignore[attr-defined]
    finally:
        kernel.CloseHandle(handle)  # type: ignore[attr-defined]
