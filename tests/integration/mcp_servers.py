"""Real MCP servers for the tests: our own ones over stdio and HTTP, and published ones if installed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nbagent as nb
from nbagent.mcp_servers.server import McpServer
from tests.browser.warm_kernel import Warm
from tests.integration import install_mcp_servers

HERE = Path(__file__).parent
TOKEN = "sesame-open-1234"
made: list[McpServer] = []
"""The servers that a test has made; the fixture ``notes`` closes them, as no process may outlive its event loop."""


def _made(server: McpServer) -> McpServer:
    made.append(server)
    return server


@cache
def warm() -> Warm:
    """The process from which our servers are forked; it ends with this one."""
    script = (str(HERE / "mcp_server.py"), "mcp.server.mcpserver", "mcp.server.request_state")
    return Warm(dict(os.environ), *script).__enter__()


def honest(notes: Path, **options: Any) -> McpServer:
    """Our server with ``mcp``, over stdio; it writes its effects to ``notes``."""
    options = {"approval": False, "name": "tester"} | options
    return _made(nb.mcp([*warm().command(), str(notes)], **options))


def scripts_own(notes: Path) -> McpServer:
    """The same server for a script, without a process to fork it from."""
    command = [sys.executable, str(HERE / "mcp_server.py"), str(notes)]
    return _made(nb.mcp(command, approval=False, name="tester"))


def liar(how: str, **options: Any) -> McpServer:
    """The server that implements the protocol by hand, with one fault."""
    options = {"approval": False, "name": "liar"} | options
    return _made(nb.mcp([sys.executable, str(HERE / "mcp_liar.py"), how], **options))


def everything(**options: Any) -> McpServer:
    """The protocol's reference server, from npm."""
    return nb.mcp(
        [str(install_mcp_servers.everything())],
        **{"approval": False, "name": "everything"} | options,
    )


def done(notes: Path) -> list[str]:
    """The effects of the server, without its starts."""
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    return [line for line in lines if not line.startswith(("started ", "child "))]


def pids(notes: Path, what: str = "started") -> list[int]:
    """The ids of the server's processes; with "child", of the processes that it started."""
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(f"{what} ")]


def lives(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    status = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
    except ProcessLookupError:  # also while its status is read
        return False


def free_port() -> int:
    """A free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def by_http(notes: Path, port: int) -> Iterator[str]:
    """The URL of our server with ``mcp`` over HTTP, which requires ``TOKEN``."""
    command = [sys.executable, str(HERE / "mcp_server.py"), str(notes), "http", str(port), TOKEN]
    with subprocess.Popen(command, cwd=notes.parent) as process:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@contextmanager
def signed_in_by(notes: Path, seconds: int = 3600) -> Iterator[str]:
    """The URL of our server with ``mcp`` that requires a sign-in by OAuth."""
    port = free_port()
    command = [sys.executable, str(HERE / "mcp_sign_in_server.py"), str(notes), str(port)]
    with subprocess.Popen([*command, str(seconds)], cwd=notes.parent) as process:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    for _ in range(3_000):
        with socket.socket() as one:
            one.settimeout(1)
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError("the server does not listen")
