"""The client of a model without ``client=``: an ``AsyncOpenAI`` that sends the same requests with less CPU time.

It builds the request of a path once, and sends every further body in a copy. Building was a sixth of a request's time.
A request takes the connection that was used last, without a look at the others. The pool of ``httpx2`` looks at
every connection twice a request, which was a third of the time of 200 requests at once.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import urllib.request
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any, NamedTuple

import anyio
import httpx2
import openai

from .stream import bound

MAX_OPEN = 1000
"""The maximum connections; further requests wait, as with the openai client's own pool."""
MAX_IDLE = 100
"""The maximum open connections without a request, as in the openai client's own pool."""
IDLE_SECONDS = 5.0
"""The seconds after which an idle connection is closed, as in ``httpx2``."""
ONE = httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS)


class Client(openai.AsyncOpenAI):
    """The client. Its key, address and headers stay as they were for the first request."""

    def __init__(self, **settings: Any) -> None:
        # a proxy in the environment, or a web page's fetch function, needs httpx2's own transport
        is_direct = sys.platform != "emscripten" and not urllib.request.getproxies()
        transport = Connections() if is_direct else None
        # AsyncOpenAI's own http client would close itself on whichever loop is running
        http_client = openai.DefaultAsyncHttpxClient(
            event_hooks={"response": [bound]}, transport=transport
        )
        super().__init__(http_client=http_client, **settings)
        self._built: dict[str, _Built] = {}
        """The request of each path that was answered."""

    async def post(self, path: str, *, content: bytes, **options: Any) -> Any:  # type: ignore[override]
        """Send a body, without retries; return the unread response. This is the only call that a model makes.

        Raises:
            openai.OpenAIError: the request failed.
        """
        built = self._built.get(path)
        if built is None:
            response: httpx2.Response = await super().post(path, content=content, **options)
            self._built[path] = _Built.of(response.request)
            return response
        request = httpx2.Request(
            "POST", built.url, headers=built.headers, content=content, extensions=built.extensions
        )
        if self._client.cookies:
            self._client.cookies.set_cookie_header(request)
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream) as error:
            raise openai.APIConnectionError(request=request) from error
        if not response.is_success:
            await response.aread()
            raise self._make_status_error_from_response(response)
        return response


class _Built(NamedTuple):
    """A request without its body and its cookies."""

    url: httpx2.URL
    headers: httpx2.Headers
    extensions: dict[str, Any]
    """The timeouts."""

    @classmethod
    def of(cls, request: httpx2.Request) -> _Built:
        headers = request.headers.copy()
        for name in ("content-length", "cookie"):
            headers.pop(name, None)
        return cls(request.url, headers, dict(request.extensions))


class Connections(httpx2.AsyncBaseTransport):
    """A transport of connections, each a pool of size one. A request takes one and returns it after the answer."""

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
        """Put back the connection of a closed answer, and close idle connections that are too many or too old."""
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
