"""Connections to a model's server, by aiohttp. An answer belongs to its request.

A connection is used again only if nothing arrived on it but the answers to its requests. aiohttp looks at the end of an
answer, but not at what arrives later. ``openai.DefaultAioHttpClient`` has no place for this check, and reports a refused
connection as a timeout.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import aiohttp
import httpx2
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

MAX_OPEN = 1000
"""The maximum connections; further requests wait, as with the openai client's own pool."""
IDLE_SECONDS = 5.0
"""The seconds after which an idle connection is closed, as in ``httpx2``."""
LARGE = 262_144
"""The bytes of a body from which on the event loop turns while it is sent."""
PIECE = 65_536
"""The maximum bytes that are read at once."""
STEP = 16_384
"""The bytes that are parsed before the interim answers in them are counted."""
MAX_INTERIM = 100
"""The maximum answers that have arrived and not been read, such as ``100 Continue``; each takes time to parse."""
PROBE = b"HTTP/1.1 100 probe\r\n\r\n"
"""An answer that a parser reads as such only if it has read nothing of another."""


class Connections(httpx2.AsyncBaseTransport):
    """Sends requests, and keeps their connections for later ones."""

    def __init__(self) -> None:
        self._ssl_context = httpx2.create_ssl_context()
        self._connector: _Connector | None = None
        self._proxy: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Its connection is free again when the answer is closed, or the request fails."""
        if self._connector is None:  # it belongs to the running loop
            self._proxy = _proxy_of(request.url)
            self._connector = _Connector(
                limit=MAX_OPEN, keepalive_timeout=IDLE_SECONDS, ssl=self._ssl_context
            )
        # credentials in the address are a header of the request
        url = request.url.copy_with(userinfo=b"") if request.url.userinfo else request.url
        body = await request.aread()
        seconds = request.extensions["timeout"]
        # a session that outlives its request would complain when a model is forgotten
        session = aiohttp.ClientSession(
            connector=self._connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        try:
            with _httpx2_errors():
                answer = await session.request(
                    request.method,
                    yarl.URL(str(url), encoded=True),
                    headers=request.headers.multi_items(),
                    data=io.BytesIO(body) if len(body) >= LARGE else body or None,
                    allow_redirects=False,
                    proxy=self._proxy,
                    timeout=aiohttp.ClientTimeout(
                        connect=seconds["pool"],
                        sock_connect=seconds["connect"],
                        sock_read=seconds["read"],
                    ),
                )
        finally:
            session.detach()
        return httpx2.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=_Body(answer),
            extensions={"reason_phrase": (answer.reason or "").encode("utf-8", "surrogateescape")},
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._connector is not None:
            await self._connector.close()


class _Body(httpx2.AsyncByteStream):
    """The unread body of an answer; closing it frees the connection."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx2_errors():
            while data := await self._answer.content.read(PIECE):
                yield data

    async def aclose(self) -> None:
        self._answer.release()


class _Connector(aiohttp.TCPConnector):
    """A pool that lends no connection on which something arrived that no request asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory = cast("Any", partial(_Held, loop=self._loop))

    async def connect(self, *request: Any, **settings: Any) -> Connection:
        """A connection for a request.

        Raises:
            aiohttp.ClientConnectionError: there is none, or the server sent something on a new one.
        """
        while True:
            connection = await super().connect(*request, **settings)
            held = cast("_Held", connection.protocol)
            is_new = held.is_new
            if not held.has_unasked:
                return connection
            connection.close()
            if is_new:
                raise aiohttp.ClientConnectionError("the server sent data before the request")

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        protocol.is_asked = False
        super()._release(key, protocol, should_close=should_close)

    def __del__(self, *_modules: Any) -> None:
        """Nothing: the client is closed with its loop, or when its model is forgotten."""


class _Held(ResponseHandler):
    """A connection. What arrives without a request closes it."""

    is_asked = False
    """Whether a request is under way."""

    @property
    def is_new(self) -> bool:
        """Whether no request has used this connection."""
        return self._parser is None

    @property
    def has_unasked(self) -> bool:
        """Whether something, or the end, has arrived or is about to arrive, without a request that asked for it."""
        if self.transport is None or self.transport.is_closing() or self.should_close:
            return True
        if self.is_new:  # a new encrypted connection is readable: the server sends tickets
            encrypted = self.transport.get_extra_info("sslcontext") is not None
            return not encrypted and _is_readable(self.transport)
        return _is_amid_answer(self._parser) or _is_readable(self.transport)

    def set_response_params(self, **settings: Any) -> None:
        """Prepare for the answer to the request that is sent next."""
        super().set_response_params(**settings)
        self.is_asked = True

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data) or 1, STEP):
            if self.is_asked:
                super().data_received(data[start : start + STEP])
            elif data:
                self.close()
            if len(self) > MAX_INTERIM:
                self.close()
                reason = f"the server sent more than {MAX_INTERIM} interim answers at once"
                self.set_exception(aiohttp.ClientConnectionError(reason))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.start_timeout()  # aiohttp waits forever until the server takes the request

    def close(self) -> None:
        """Close, without waiting until the server takes the rest of a request."""
        self.abort()


def _is_amid_answer(parser: Any) -> bool:
    """Whether a parser has read the beginning of another answer."""
    try:
        messages, *_ = parser.feed_data(PROBE)
    except aiohttp.http.HttpProcessingError:
        return True
    found = [(each.code, each.reason, each.raw_headers) for each, _ in messages]
    return found != [(100, "probe", ())]


def _is_readable(transport: asyncio.BaseTransport) -> bool:
    """Whether the socket has bytes, or an end, that asyncio has not read yet."""
    number = transport.get_extra_info("socket").fileno()
    if number < 0:  # closed, which asyncio reports in its next turn
        return True
    if not hasattr(select, "poll"):  # on Windows
        return bool(select.select([number], [], [], 0)[0])
    arrivals = select.poll()
    arrivals.register(number, select.POLLIN)
    return bool(arrivals.poll(0))


def _proxy_of(url: httpx2.URL) -> str | None:
    """The environment's proxy for an address."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@contextmanager
def _httpx2_errors() -> Iterator[None]:
    """Raise the errors of aiohttp as those of ``httpx2``."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError) as error:
        kind = next(kind for known, kind in _ERRORS if isinstance(error, known))
        cause = error.__cause__ or error
        text = str(getattr(cause, "message", cause))
        if isinstance(cause, ConnectionError) and cause.errno:
            text = os.strerror(cause.errno)
        raise kind(" ".join(text.split())) from error


_ERRORS: tuple[tuple[Any, type[httpx2.TransportError]], ...] = (
    (TimeoutError, httpx2.TimeoutException),
    ((aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError), httpx2.ProxyError),
    # the last is for a name that no host can have
    ((aiohttp.ClientConnectorError, aiohttp.InvalidURL, UnicodeError), httpx2.ConnectError),
    ((aiohttp.ClientPayloadError, OSError), httpx2.ReadError),
    (aiohttp.ClientError, httpx2.RemoteProtocolError),
    (ValueError, httpx2.LocalProtocolError),  # a header with a line break
)
