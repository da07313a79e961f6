"""Scripts as processes of their own, forked from one that has loaded nbagent, in a fifth of the usual time.

A script ends as any other does: Python itself prints its error, waits for its threads and sets its exit code.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.terminal import press

LOADED = (
    "nbagent.batch.batch",
    "nbagent.cli.asking",
    "nbagent.cli.script",
    "nbagent.cli.terminal",
    "nbagent.core.agent",
    "nbagent.core.run.start",
    "nbagent.forms.form",
    "nbagent.models.scripted",
    "nbagent.notebook.export",
    "nbagent.stores.sqlite",
)
"""What most scripts load."""
MOST = 1 << 20
"""Most bytes of a request."""


class Started:
    """A script that was started."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply
        self.pid = int(reply.recv(20))

    def wait(self, seconds: float = 60) -> int:
        """Wait for its end; returns its exit code."""
        with self._reply:
            self._reply.settimeout(seconds)
            return int(self._reply.recv(20))

    def leave(self) -> None:
        """Wait no longer."""
        self._reply.close()


class Scripts:
    """The process that scripts are forked from."""

    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking

    def start(
        self, script: Path, environment: Mapping[str, str], streams: Sequence[int]
    ) -> Started:
        """Start a script in its folder, with these three streams, which are closed here."""
        reply, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"script": str(script), "environment": dict(environment)}
        with other:
            fds = [*streams, other.fileno()]
            socket.send_fds(self._asking, [json.dumps(request).encode()], fds)
        for stream in {*streams}:
            os.close(stream)
        return Started(reply)

    def piped(self, script: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
        """Run without a terminal; returns exit code, output and errors."""
        with (script.parent / "out").open("w+") as out, (script.parent / "err").open("w+") as err:
            files = [os.open(os.devnull, os.O_RDONLY), os.dup(out.fileno()), os.dup(err.fileno())]
            code = self.start(script, environment, files).wait()
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def typed(
        self,
        script: Path,
        environment: Mapping[str, str],
        keys: Sequence[tuple[str, str]],
        *,
        pause: float = 0.0,
        columns: int = 60,
    ) -> tuple[int, str]:
        """Run in a terminal, and type each line once its prompt is shown; returns exit code and screen."""
        terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        started = self.start(script, {**environment, "COLUMNS": str(columns)}, [inside] * 3)
        try:
            screen = press(terminal, keys, pause=pause)
        except BaseException:
            started.leave()
            raise
        return started.wait(), screen


@contextmanager
def scripts() -> Iterator[Scripts]:
    """The process, while entered."""
    asking, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.integration.scripts", str(served.fileno())]
    with (
        asking,
        served,
        subprocess.Popen(
            command, pass_fds=[served.fileno()], cwd=Path(__file__).parents[2]
        ) as process,
    ):
        yield Scripts(asking)
        process.terminate()


def serve(asking: socket.socket) -> None:
    """Load everything, then fork for each request; in the fork, run the script, and return at its end."""
    for name in LOADED:
        __import__(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        text, fds, _, _ = socket.recv_fds(asking, MOST, 4)
        if not text:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asking.close()
            *streams, reply = fds
            if (pid := os.fork()) == 0:
                os.close(reply)
                be(json.loads(text), streams)
                return
            for stream in {*streams}:
                os.close(stream)
            os.write(reply, str(pid).encode())
            os.write(reply, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)


def be(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Become ``python script.py``, in a session of its own and with a terminal if its input is one."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    is_typed = os.isatty(0)
    if is_typed:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    streams_of = [("stdin", "r", -1), ("stdout", "w", 1 if is_typed else -1), ("stderr", "w", 1)]
    for number, (name, mode, size) in enumerate(streams_of):
        stream = open(number, mode, size, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    script = Path(request["script"])
    os.chdir(script.parent)
    sys.argv, sys.path[0] = [script.name], str(script.parent)
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__file__ = script.name
    exec(compile(script.read_text(encoding="utf-8"), script.name, "exec"), vars(main))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
