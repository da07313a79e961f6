"""The process of a server: its start, and the last lines of its error stream."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

from nbagent.core.base import incoming_json
from nbagent.core.base.errors import McpError

from . import guard
from .address import Command

MAX_LINE = 16_000_000
"""Bytes of one message of a server."""
LAST = 8_000
"""Bytes at the end of a process's error stream that are stored."""
GONE = 25
"""The number of checks, 20 ms apart, whether the error stream of an ended process is fully read."""


class ErrorOutput:
    """The error stream of a process: it is read completely, and its end is stored."""

    def __init__(self) -> None:
        self._end = b""
        self._is_read = True

    def follow(self, source: int) -> None:
        """Read a pipe to its end, in a thread of its own, and close it."""
        self._is_read = False
        name = "nbagent-mcp-stderr"
        threading.Thread(target=self._read_pipe, args=(source,), name=name, daemon=True).start()

    def _read_pipe(self, source: int) -> None:
        with open(source, "rb", buffering=0) as pipe:
            while piece := pipe.read(4_096):
                self._end = (self._end + piece)[-LAST:]
        self._is_read = True

    async def wait_until_read(self) -> None:
        """Wait briefly until the stream of an ended process is read; a child process may keep the pipe open."""
        for _ in range(GONE):
            if self._is_read:
                return
            await asyncio.sleep(0.02)

    def last(self) -> str:
        """The last eight lines that are not blank."""
        text = self._end.decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-8:])


@asynccontextmanager
async def process(command: Command, error_output: ErrorOutput) -> AsyncGenerator[Any, None]:
    """Start the server and yield its streams; at the end, ask the server to stop, then end its process.

    Raises:
        McpError: the program does not exist.
    """
    environment = get_default_environment() | command.env
    program = command.argv[0]
    if shutil.which(program, path=environment.get("PATH")) is None and command.cwd is None:
        raise McpError(
            f"The program {program!r}, which starts the server, was not found. Install it, or use its full path"
        )
    argv = list(command.argv)
    # on Windows, mcp itself has the system end the server when this process ends
    if os.name == "posix" and sys.executable:
        script = str(Path(guard.__file__))
        bounds = [str(MAX_LINE), str(incoming_json.MAX_PARTS), str(Path(incoming_json.__file__))]
        argv = [sys.executable, "-I", "-S", script, *bounds, *argv]
    parameters = StdioServerParameters(
        command=argv[0], args=argv[1:], env=command.env, cwd=command.cwd
    )
    source, target = os.pipe()
    error_output.follow(source)
    errors = os.fdopen(target, "w", encoding="utf-8")
    try:
        async with stdio_client(parameters, errlog=errors) as streams:
            errors.close()
            yield streams
    finally:
        errors.close()
