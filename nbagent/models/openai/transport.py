"""The client of a model without ``client=``: an ``AsyncOpenAI`` that sends the same requests with less CPU time.

It builds the request of a path once, and sends every further body in a copy. Building was a sixth of a request's time.
A request takes the connection that was used last, without a look at the others. The pool of ``httpx2`` looks at
every connection twice a request, which was a third of the time of 200 requests at once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import urllib.request
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any, NamedTuple

import httpx2
import openai

from .errors import transport_errors
from .stream import bound

MAX_OPEN = 1000
"""The maximum connections; further requests wait, as with the openai client's own pool."""
MAX_IDLE = 100
"""The maximum open connections without a request, as in the openai client's own pool."""
IDLE_SECONDS = 5.0
"""The seconds after which an idle connection is closed, as in ``httpx2``."""
LOG = logging.getLogger("openai._base_client")
"""The openai client's log of its requests (``OPENAI_LOG=debug``)."""
ONE = httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS)


class Client(openai.AsyncOpenAI):
    """The client. Its key, address and headers stay as they were for the first request."""

    def __init__(self, **settings: Any) -> None:
        if "http_client" not in settings:
            # httpx2 finds a proxy of the environment, and the fetch of a web page, but only for connections of its own
            proxies = urllib.request.getproxies()
            has_proxy = any(proxies.get(kind) for kind in ("http", "https", "all"))
            transport = None if has_proxy or sys.platform == "emscripten" else Connections()
            # AsyncOpenAI's own http client would close itself on whichever loop is running
            settings["http_client"] = openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [bound]}, transport=transport
            )
        super().__init__(**settings)
        self._built: dict[str, _Built] = {}
        """The request of each path that was answered."""

    @property
    def user_agent(self) -> str:
        """As the base class sends it; there it contains the name of the class."""
        return f"AsyncOpenAI/Python {openai.__version__}"

    async def post(self, path: str, *, content: bytes | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Send a body, without retries; return the unread response.

        Raises:
            openai.OpenAIError: the request failed.
        """
        built = self._built.get(path)
        if built is None or content is None or LOG.isEnabledFor(logging.DEBUG):
            response: httpx2.Response = await super().post(path, content=content, **options)
            if content is not None:
                has_cookie = any(name.lower() == "cookie" for name in self._custom_headers)
                self._built[path] = _Built(response.request, keeps_cookie=has_cookie)
            return response
        request = built.with_body(content)
        self._client.cookies.set_cookie_header(request)
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except transport_errors() as error:
            raise openai.APIConnectionError(request=request) from error
        if not response.is_success:
            await response.aread()
            raise self._make_status_error_from_response(response)
        return response


class _Built:
    """A request without its body, and without the cookies that a server set. Its ``repr`` shows no secrets."""

    def __init__(self, request: httpx2.Request, *, keeps_cookie: bool) -> None:
        self._url = request.url
        self._headers = request.headers.copy()
        self._timeouts = dict(request.extensions)
        for name in ("content-length", *(() if keeps_cookie else ("cookie",))):
            self._headers.pop(name, None)

    def with_body(self, content: bytes) -> httpx2.Request:
        """The request with a body."""
        return httpx2.Request(
            "POST", self._url, headers=self._headers, content=content, extensions=self._timeouts
        )


class Connections(httpx2.AsyncBaseTransport):
    """A transport of connections, each a pool of size one. A request takes one and returns it after the answer."""

    def __init__(self) -> None:
        self._ssl_context = httpx2.create_ssl_context()
        self._room = asyncio.Semaphore(MAX_OPEN)
        self._opened: set[_Connection] = set()
        self._idle: deque[_Idle] = deque()
        """The connections without a request; the one used last is on the right."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Its connection is free again when the answer is closed, or the request fails."""
        if not self._room.locked():
            await self._room.acquire()
        else:
            try:
                async with asyncio.timeout(request.extensions["timeout"]["pool"]):
                    await self._room.acquire()
            except TimeoutError as error:
                text = f"{MAX_OPEN} requests are under way"
                raise httpx2.PoolTimeout(text, request=request) from error
        try:
            await self._close_idle()
            if self._idle:
                connection = self._idle.pop().connection
            else:
                connection = _Connection(verify=self._ssl_context, limits=ONE)
                self._opened.add(connection)
            try:
                response = await connection.handle_async_request(request)
            except BaseException:
                self._opened.discard(connection)  # it has closed itself
                raise
        except BaseException:
            self._room.release()
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, connection, self)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        self._idle.clear()
        while self._opened:
            await self._opened.pop().aclose()

    async def put_back(self, connection: _Connection) -> None:
        """Put back the connection of a closed answer."""
        if connection in self._opened:  # not closed meanwhile, with its client
            if connection.is_open:
                self._idle.append(_Idle(connection, monotonic()))
            else:
                self._opened.discard(connection)
        self._room.release()
        await self._close_idle()

    async def _close_idle(self) -> None:
        """Close the idle connections that are too many, or were idle for too long."""
        oldest = monotonic() - IDLE_SECONDS
        while self._idle and (len(self._idle) > MAX_IDLE or self._idle[0].since < oldest):
            connection = self._idle.popleft().connection
            self._opened.discard(connection)
            await connection.aclose()


class _Connection(httpx2.AsyncHTTPTransport):
    @property
    def is_open(self) -> bool:
        """Whether the connection can be used again; False if its last answer was not read to the end."""
        return bool(self._pool.connections)


class _Idle(NamedTuple):
    connection: _Connection
    since: float
    """The monotonic time of its last answer's end."""


class _Body(httpx2.AsyncByteStream):
    """The unread body of an answer; closing it frees the connection."""

    def __init__(
        self,
        body: httpx2.AsyncByteStream,
        connection: _Connection,
        connections: Connections,
    ) -> None:
        self._body = body
        self._connection: _Connection | None = connection
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
            await self._connections.put_back(connection)
