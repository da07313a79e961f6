"""The connections of one client, each used by one request at a time.

A request takes the connection that was used last, without a look at the others. The pool of ``httpx2`` looks at
every connection twice a request, which was a third of the CPU time of 200 requests at once.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import NamedTuple

import httpx2

MAX_OPEN = 1000
"""The maximum connections; further requests wait, as with the openai client's own pool."""
MAX_IDLE = 100
"""The maximum open connections without a request, as in the openai client's own pool."""
IDLE_SECONDS = 5.0
"""The seconds after which an idle connection is closed, as in ``httpx2``."""
ONE = httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS)


def connections() -> Connections | None:
    """The connections of a new client; None if requests go through a proxy of the environment, which ``httpx2`` finds."""
    return None if urllib.request.getproxies() else Connections()


class Connections(httpx2.AsyncBaseTransport):
    """A transport whose every connection is a pool of one, taken by a request and put back after its answer."""

    def __init__(self) -> None:
        self._ssl_context = httpx2.create_ssl_context()
        self._room = asyncio.Semaphore(MAX_OPEN)
        self._opened: set[httpx2.AsyncHTTPTransport] = set()
        self._idle: deque[_Idle] = deque()
        """The connections without a request; the one used last is on the right."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Its connection is free again when the answer is closed, or the request fails."""
        await self._room.acquire()
        if self._idle:
            connection = self._idle.pop().connection
        else:
            connection = httpx2.AsyncHTTPTransport(verify=self._ssl_context, limits=ONE)
            self._opened.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._put_back(connection)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, connection, self)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        self._idle.clear()
        while self._opened:
            await self._opened.pop().aclose()

    async def answered(self, connection: httpx2.AsyncHTTPTransport) -> None:
        """Put back the connection of a closed answer, and close those that were idle for too long, or are too many."""
        self._put_back(connection)
        now = monotonic()
        while self._idle and (
            len(self._idle) > MAX_IDLE or now - self._idle[0].since > IDLE_SECONDS
        ):
            old = self._idle.popleft().connection
            self._opened.discard(old)
            await old.aclose()

    def _put_back(self, connection: httpx2.AsyncHTTPTransport) -> None:
        if connection in self._opened:  # not closed meanwhile, with its client
            self._idle.append(_Idle(connection, monotonic()))
        self._room.release()


class _Idle(NamedTuple):
    connection: httpx2.AsyncHTTPTransport
    since: float
    """The monotonic time of its last answer's end."""


class _Body(httpx2.AsyncByteStream):
    """The unread body of an answer; closing it frees the connection."""

    def __init__(
        self,
        body: httpx2.AsyncByteStream,
        connection: httpx2.AsyncHTTPTransport,
        connections: Connections,
    ) -> None:
        self._body = body
        self._connection: httpx2.AsyncHTTPTransport | None = connection
        self._connections = connections

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._body)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await self._body.aclose()
        finally:
            await self._connections.answered(connection)
