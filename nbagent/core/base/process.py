"""Identifiers of processes: strings that other processes can check."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

_T = TypeVar("_T")
FORK_WAIT = 1.0
"""The maximum number of seconds that a fork waits for the threads that use a store's database."""
_imported = int(time.time())


@cache
def this_process() -> str:
    """The identifier of this process: ``machine:pid:start:host``; the host's name is only for people."""
    return _owner(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.cache_clear)  # a fork is another process


def fork_safe(lock: _T) -> _T:
    """Return the lock, which a forked process finds free, even if another thread of its parent held it."""
    if hasattr(os, "register_at_fork"):
        renew = cast(Any, lock)._at_fork_reinit  # noqa: SLF001 - as the standard library does
        os.register_at_fork(after_in_child=renew)
    return lock


def describe_process(identifier: str) -> str:
    """The text for people that names a process."""
    _, pid, _, host = _parts(identifier)
    return f"process {pid} on {host}"


def has_ended(identifier: str) -> bool | None:
    """Whether a process has ended; None if unknown, as for a process on another machine."""
    machine, pid, start, _ = _parts(identifier)
    if not machine or machine != _machine() or not pid.isdecimal():
        return None
    if int(pid) == os.getpid():
        return start != _parts(this_process())[2]
    if not _alive(int(pid)):
        return True
    now = _start(int(pid))
    return None if now is None else start != now


def _owner(pid: int) -> str:
    return f"{_machine()}:{pid}:{_start(pid) or _imported}:{socket.gethostname()}"


def _parts(identifier: str) -> tuple[str, str, str, str]:
    """Machine, pid, start, host; an identifier of three parts, from an older version, has no machine."""
    parts = identifier.split(":", 3)
    if len(parts) == 4:
        return parts[0], parts[1], parts[2], parts[3]
    host, pid, start = (*parts, "", "")[:3]
    return "", pid, start, host


@cache
def _machine() -> str:
    """A digest of the scope in which a process id is unique: on Linux, boot and container; else the hardware.

    Host names can change, and two machines can have the same name. Empty if the scope is unknown.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        scope = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, UnicodeDecodeError):
        number = uuid.getnode()
        if number >> 40 & 1:  # random, because there is no network card
            return ""
        scope = f"{number}"
    return hashlib.sha256(scope.encode()).hexdigest()[:16]


def _start(pid: int) -> str | None:
    """Start time of a process in ticks since boot; None if the system does not provide it."""
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
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it exists, and belongs to another user
        return True
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] != "Z"  # ended, but not reaped by its parent


def _alive_on_windows(pid: int) -> bool:
    import ctypes  # noqa: PLC0415 - for Windows alone, where os.kill(pid, 0) sends Ctrl+C

    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - there on Windows alone
    synchronize, no_such_process, has_ended_ = 0x00100000, 87, 0
    handle = kernel.OpenProcess(synchronize, 0, pid)
    if not handle:  # with another error, it exists, and belongs to another user
        return bool(kernel.GetLastError() != no_such_process)
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) != has_ended_)
    finally:
        kernel.CloseHandle(handle)
