"""Process words, which identify a process by boot and start, never by host name."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nbagent.core.base import process
from nbagent.core.base.process import describe_process, has_ended, this_process

CODE = f"""
import sys
sys.path[:0] = {sys.path!r}
from nbagent.core.base.process import this_process
print(this_process(), flush=True)
input()
"""


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process, and its process word."""
    command = [sys.executable, "-c", CODE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as begun:
        assert begun.stdout is not None
        yield begun, begun.stdout.readline().strip()
        begun.kill()


def test_a_process_is_seen_as_live_or_ended_whatever_the_name_of_the_machine(
    other: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DHCP can rename a laptop during a run."""
    begun, word = other
    monkeypatch.setattr(socket, "gethostname", lambda: "called otherwise by now")
    assert has_ended(word) is False
    begun.kill()
    begun.wait()
    assert has_ended(word) is True


def changed(word: str, **changes: str) -> str:
    """The word with some of its parts changed."""
    parts = dict(zip(("machine", "pid", "start", "host"), word.split(":", 3), strict=True))
    return ":".join({**parts, **changes}.values())


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({}, False),
        ({"host": "other"}, False),
        ({"start": "12"}, True),
        ({"machine": "another"}, None),
        ({"machine": "another", "start": "12"}, None),
        ({"machine": ""}, None),
        ({"pid": str(os.getppid()), "start": "12"}, True),
        ({"pid": "9" * 30}, True),
        ({"pid": "²"}, None),
        ({"pid": ""}, None),
    ],
)
def test_a_process_id_counts_only_with_its_boot_and_its_start(
    changes: dict[str, str], ended: bool | None
) -> None:
    """A restarted container reuses process ids; another machine has its own ids."""
    assert has_ended(changed(this_process(), **changes)) is ended


@pytest.mark.parametrize("word", ["host:12:34", "host:12", "host", "", "a:b:c:d:e"])
def test_any_process_word_is_parsed(word: str) -> None:
    """Older journals have words of another form, with the host's name for the machine."""
    assert has_ended(word) is None
    assert describe_process(word).startswith("process ")


def test_the_repr_for_people_has_the_id_and_the_host() -> None:
    """The machine's id means nothing to people."""
    told = f"process {os.getpid()} on {socket.gethostname()}"
    assert describe_process(this_process()) == told
    assert describe_process("host:12:34") == "process 12 on host"


def test_a_machine_without_any_identity_does_not_count_as_a_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Without a boot id and a network card, two machines would pass for one."""
    process._machine.cache_clear()
    monkeypatch.setattr(
        process, "Path", lambda path: __import__("pathlib").Path(f"{tmp_path}{path}")
    )
    monkeypatch.setattr(process.uuid, "getnode", lambda: 1 << 40)
    try:
        assert process._machine() == ""
        monkeypatch.setattr(process.uuid, "getnode", lambda: 5)
        process._machine.cache_clear()
        assert len(process._machine()) == 16
    finally:
        process._machine.cache_clear()


class Kernel32:
    """Answers of Windows about a process: whether it opens, the error, and whether it has ended."""

    def __init__(self, handle: int, error: int = 0, waited: int = 0) -> None:
        self.OpenProcess = lambda *_: handle
        self.GetLastError = lambda: error
        self.WaitForSingleObject = lambda *_: waited
        self.CloseHandle = lambda _: 1


@pytest.mark.parametrize(
    ("told", "lives"),
    [
        (Kernel32(7, waited=0x102), True),
        (Kernel32(7, waited=0), False),
        (Kernel32(0, error=87), False),
        (Kernel32(0, error=5), True),
    ],
    ids=["runs", "has ended", "is not there", "may not be opened"],
)
def test_on_windows_a_process_of_another_user_counts_as_live(
    told: Kernel32, lives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that may not be opened does not count as ended."""
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=told), raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert process._alive(4) is lives
