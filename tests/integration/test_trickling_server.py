"""A server sends single bytes without end: the run fails in time with an error."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError

HEAD = b"HTTP/1.1 %d Yes\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
BEGINS = {
    "the head of an answer": HEAD % 200 + b"X-Odd: ",
    "an error": HEAD % 400 + b"\r\n",
    "an answer in one piece": HEAD % 200 + b'\r\n{"choices": ',
}
PAUSE = 0.05
"""Seconds between two bytes, less than the client's timeout."""


@asynccontextmanager
async def trickling(begin: bytes) -> AsyncIterator[str]:
    """Run a server that continues ``begin`` byte by byte; yields its URL."""
    serving: set[asyncio.Event] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(over := asyncio.Event())
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            for _ in itertools.count():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(PAUSE)
        writer.close()
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for over in serving:  # until the clients have disconnected
            await over.wait()


@pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS.keys())
async def test_an_answer_that_arrives_byte_by_byte_times_out(begin: bytes) -> None:
    """The timeout applies to the whole answer, because each single byte arrives in time."""
    async with trickling(begin) as url:
        model = nb.OpenAIModel("m", base_url=url, api_key="k", timeout=0.3, max_retries=0)
        async with asyncio.timeout(60):  # only guards the test suite
            with pytest.raises(ModelError):
                await nb.Agent(model).generate("go")
        await model.aclose()
