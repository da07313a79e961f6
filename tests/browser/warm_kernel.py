"""Kernels that have already loaded nbagent: forked from one process, in a quarter of the usual time.

``Warm(environment)`` runs that process. Its kernel spec starts this file as a program, which represents
the forked kernel towards Jupyter. The program passes on the environment, the folder and the signals, and ends
together with the kernel. In the same way, ``Warm(environment, script, …)`` runs a script, with modules that
are already loaded. Notebooks of the repository itself (the quickstart, the tutorials) name ``python3`` and
therefore get a kernel that is not forked.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
NAME = "warm"
LOADED = (
    "ipykernel.kernelapp",
    "nbagent.notebook.cards.display",
    "nbagent.notebook.host",
    "nbagent.models.demo",
    "nbagent.stores.sqlite",
)
MOST = 1 << 20
"""Most bytes of a request: an environment and a path."""


class Warm(AbstractContextManager["Warm"]):
    """The process that kernels or runs of a script are forked from, while entered."""

    def __init__(self, environment: dict[str, str], *script: str) -> None:
        self._script = script
        self._folder = tempfile.TemporaryDirectory(prefix="warm")  # a socket's path must be short
        self._socket = Path(self._folder.name) / "socket"
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Warm:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "serve", str(self._socket), *self._script],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the process that warm kernels are forked from did not start")
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()

    def command(self) -> list[str]:
        """The command of the program, without the arguments of the kernel or script."""
        return [sys.executable, "-I", "-S", __file__, "start", str(self._socket)]

    def spec(self) -> dict[str, Any]:
        """The content of ``kernel.json``."""
        return {
            "argv": [*self.command(), "{connection_file}"],
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
        }


def serve(path: str, script: str = "", *loaded: str) -> None:
    """Load everything, then fork a kernel for each request; or a run of the script."""
    for name in loaded or LOADED:
        __import__(name)
    import gc  # noqa: PLC0415 - the other half of this file starts in 20 ms
    import threading  # noqa: PLC0415

    assert threading.active_count() == 1, "a process with threads is not forked"
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the kernels
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(32)
        print("ready", flush=True)
        while True:
            asking, _ = until_orphaned(listener, listener.accept)
            asking.setblocking(True)
            text, streams, _, _ = socket.recv_fds(asking, MOST, 3)
            if os.fork() == 0:
                listener.close()
                be(script, asking, json.loads(text), streams)
            asking.close()
            for stream in streams:
                os.close(stream)


def be(script: str, asking: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
    """Become the kernel, like ``python -m ipykernel_launcher``, or run the script."""
    import runpy  # noqa: PLC0415
    import threading  # noqa: PLC0415

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    asking.sendall(str(os.getpid()).encode())

    def end_with_it() -> None:
        asking.recv(1)  # returns only when the other end closes
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_it, name="warm-kernel", daemon=True).start()
    if script:
        sys.argv = [script, *request["arguments"]]
        runpy.run_path(script, run_name="__main__")
        os._exit(0)
    import ipywidgets  # noqa: PLC0415
    from ipykernel.kernelapp import IPKernelApp  # noqa: PLC0415

    sys.argv = ["ipykernel_launcher", "-f", *request["arguments"]]
    app = IPKernelApp.instance()
    app.initialize(sys.argv[1:])
    ipywidgets.register_comm_target()  # as the import of ipywidgets in a kernel does
    app.start()
    os._exit(0)


def start(path: str, *arguments: str) -> None:
    """Request a kernel or a run, and represent it until its end."""
    request = {"environment": dict(os.environ), "folder": os.getcwd(), "arguments": arguments}
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(path)
        socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
        kernel = int(asking.recv(20))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.killpg(kernel, number))
        until_orphaned(asking, lambda: asking.recv(1))


def until_orphaned(waiting: socket.socket, wait: Callable[[], T]) -> T:
    """Wait on a socket, and end this process if its parent has ended."""
    parent = os.getppid()
    waiting.settimeout(1)
    while True:
        try:
            return wait()
        except TimeoutError:
            if os.getppid() != parent:
                sys.exit()


if __name__ == "__main__":
    {"serve": serve, "start": start}[sys.argv[1]](*sys.argv[2:])
