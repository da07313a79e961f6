"""A command in a real terminal: a person's keys, and the screen."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn


def typed(
    command: Sequence[str] | Callable[[], int],
    keys: Sequence[tuple[str, str]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    pause: float = 0.0,
    columns: int = 60,
) -> tuple[int, str]:
    """Run a command in a terminal, and type each line once its prompt is shown.

    Args:
        command: the program and its arguments; or a function, which runs in a fork of this process.
        keys: each prompt, with the line to type.
        folder: the working directory.
        environment: the environment variables.
        pause: seconds before each line is typed.
        columns: the width of the terminal.

    Returns:
        The exit code, and the screen.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
        os.chdir(folder)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        environment = {**environment, "COLUMNS": str(columns)}
        if not callable(command):
            os.execve(command[0], command, environment)
        as_program(command, environment)
    screen = press(terminal, keys, pause=pause)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


def press(terminal: int, keys: Sequence[tuple[str, str]], *, pause: float = 0.0) -> str:
    """Type each line once its prompt is shown, and close the terminal once nothing writes to it; returns the screen."""
    decoder, new, seen = codecs.getincrementaldecoder("utf-8")(), "", ""
    for prompt, line in [*keys, ("", "")]:
        while not prompt or prompt not in new:
            assert select.select([terminal], [], [], 60)[0], f"no {prompt!r} in {seen + new}"
            try:
                new += decoder.decode(os.read(terminal, 4096))
            except OSError:  # the process has ended
                assert not prompt, f"no {prompt!r} in {seen + new}"
                break
        before, _, new = new.partition(prompt) if prompt else (new, "", "")
        seen += before + prompt
        if prompt:
            # Python misses a Ctrl+C between a prompt and the read that follows it
            time.sleep(max(pause, 0.5 if line.endswith("\x03") else 0.0))
            os.write(terminal, line.encode())
    os.close(terminal)
    return seen.replace("\r", "")


def as_program(run: Callable[[], int], environment: Mapping[str, str]) -> NoReturn:
    """Run the function in this fork as if it were the main function of a process that has just started."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path.insert(0, "")
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", 1), open(2, "w", 1)  # noqa: SIM115
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
