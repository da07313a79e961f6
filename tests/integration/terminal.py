"""A command in a real terminal: a person's keys, and the screen."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def typed(
    command: Sequence[str],
    keys: Sequence[tuple[str, str]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    pause: float = 0.0,
    columns: int = 60,
) -> tuple[int, str]:
    """Run a command in a terminal, and type each line once its prompt is shown.

    Args:
        command: the program and its arguments.
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
        os.execve(command[0], command, {**environment, "COLUMNS": str(columns)})
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
            time.sleep(max(pause, 0.5 if line == "\x03" else 0.0))
            os.write(terminal, line.encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.replace("\r", "")
