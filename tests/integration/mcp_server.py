"""An MCP server on the package ``mcp``, for the tests: ``python mcp_server.py NOTES [http PORT TOKEN]``.

Each tool with an effect writes a line to the file NOTES. The tests run this script by its path.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse

NOTES = Path(sys.argv[1])
KEYS = RequestStateSecurity(keys=["the same in every process of it "])
server = MCPServer("tester", log_level="CRITICAL", request_state_security=KEYS)


def note(text: str) -> None:
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def hints(**given: bool) -> types.ToolAnnotations:
    return types.ToolAnnotations.model_validate(given)


class Size(BaseModel):
    size: int


class Sum(BaseModel):
    total: int


async def size_of() -> Any:
    return Elicit("Which size?", Size)


@server.tool(annotations=hints(readOnlyHint=True), structured_output=False)
def look(what: str) -> str:
    """Look at something."""
    note(f"look {what}")
    return f"saw {what}"


@server.tool(annotations=hints(readOnlyHint=False, destructiveHint=True), structured_output=False)
def drop(table: str) -> str:
    """Drop a table."""
    note(f"drop {table}")
    return f"dropped {table}"


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add."""
    return Sum(total=a + b)


@server.tool()
def count(words: list[str]) -> int:
    """Count words."""
    return len(words)


@server.tool()
def sort(words: list[str]) -> list[str]:
    """Sort words."""
    return sorted(words)


@server.tool()
def join(words: list[str]) -> str:
    """Join words."""
    return " ".join(words)


@server.tool(structured_output=False)
def fails() -> str:
    """Fail."""
    raise ValueError("the disk is full")


@server.tool(structured_output=False)
async def slow(ctx: Context, seconds: float = 0.2) -> str:
    """Tell how far it is."""
    await ctx.report_progress(1, 2, "half")
    await asyncio.sleep(seconds)
    await ctx.report_progress(2, 2, "whole")
    return "slow"


@server.tool(structured_output=False)
async def order(size: Annotated[Size, Resolve(size_of)]) -> str:
    """Order in a size that is asked for."""
    note(f"order {size.size}")
    return f"ordered {size.size}"


@server.tool(structured_output=False)
def dies() -> str:
    """End the server."""
    note("dies")
    sys.stderr.write("out of memory, says the server\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool(structured_output=False)
async def hangs() -> str:
    """Never answer."""
    note("hangs")
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled")
    return ""


@server.tool(structured_output=False)
async def blocks() -> str:
    """Block the whole server."""
    sys.stderr.write("waiting for a lock, says the server\n")
    sys.stderr.flush()
    time.sleep(600)  # noqa: ASYNC251 - this is the fault
    return ""


@server.tool(structured_output=False)
def environment() -> str:
    """What the process was given."""
    return "\n".join(sorted(os.environ))


@server.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    """Have one tool more."""

    def grown() -> str:
        """A new tool."""
        return "grown"

    server.add_tool(grown, structured_output=False)
    await ctx.notify_tools_changed()
    return "one more"


class Guarded(BaseHTTPMiddleware):
    """Rejects requests without the token."""

    async def dispatch(self, request: Any, call_next: Any) -> Any:
        if request.headers.get("authorization") != f"Bearer {sys.argv[4]}":
            return PlainTextResponse("who are you?", status_code=401)
        return await call_next(request)


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    if len(sys.argv) > 2:
        import uvicorn

        app = server.streamable_http_app()
        app.add_middleware(Guarded)
        uvicorn.run(app, port=int(sys.argv[3]), log_level="critical")
    else:
        server.run()
