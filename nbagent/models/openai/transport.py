"""The client of a model without ``client=``: an ``AsyncOpenAI`` that sends the same requests with less CPU time.

It builds the request of a path once, and sends every further body in a copy. Building was a sixth of a request's time.
A request takes the connection that was used last, without a look at the others. The pool of ``httpx2`` looks at
every connection twice a request, which was a third of the time of 200 requests at once.
A connection is ``httpcore2``'s, on a stream of asyncio. ``httpcore2``'s own streams, of anyio, let the event loop
turn at each write, which was a fifth of a request's time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import ssl
import sys
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from typing import Any, NamedTuple, cast

import httpcore2
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
OTHER_ADDRESS = 0.25
"""The seconds after which a connection also tries the next address of the host (RFC 8305), as with ``httpx2``."""
MAX_UNREAD = 262_144
"""The received bytes from which on a stream takes no more, until they are read."""
LARGE = 65_536
"""The bytes of a body from which on it is sent apart from the request's head."""


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
        if self._client.cookies:
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
        headers = self._headers.copy()
        headers["content-length"] = str(len(content))
        body = httpx2.ByteStream(content)
        request = httpx2.Request(
            "POST", self._url, headers=headers, stream=body, extensions=self._timeouts
        )
        request.read()  # errors that the client raises contain the body
        return request


class Connections(httpx2.AsyncBaseTransport):
    """A transport of connections. A request takes one and returns it after the answer."""

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
            connection = await self._used_last(request.url)
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
            if connection.is_reusable:
                self._idle.append(_Idle(connection, monotonic()))
            else:
                self._opened.discard(connection)
        self._room.release()
        await self._close_idle()

    async def _used_last(self, url: httpx2.URL) -> _Connection:
        """The idle connection to this server that was used last, else a new one."""
        port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
        origin = httpcore2.Origin(url.raw_scheme, url.raw_host, port)
        while self._idle:
            connection = self._idle.pop().connection
            if connection.is_open and connection.origin == origin:
                return connection
            self._opened.discard(connection)
            await connection.aclose()
        connection = _Connection(origin, self._ssl_context)
        self._opened.add(connection)
        return connection

    async def _close_idle(self) -> None:
        """Close the idle connections that are too many, or were idle for too long."""
        oldest = monotonic() - IDLE_SECONDS
        while self._idle and (len(self._idle) > MAX_IDLE or self._idle[0].since < oldest):
            connection = self._idle.popleft().connection
            self._opened.discard(connection)
            await connection.aclose()


class _Connection(httpx2.AsyncHTTPTransport):
    """A connection to one server, without a pool around it."""

    def __init__(self, origin: httpcore2.Origin, ssl_context: ssl.SSLContext) -> None:
        super().__init__(ssl_context)
        self.origin = origin
        """The scheme, host and port of the server."""
        self._connection = httpcore2.AsyncHTTPConnection(
            origin, ssl_context, network_backend=_Network()
        )
        self._pool = cast("Any", self._connection)  # the base class sends requests to it

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer was read to the end, and leaves the connection open."""
        return self._connection.is_available()

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed the reusable connection meanwhile."""
        return not self._connection.has_expired()


class _Network(httpcore2.AsyncNetworkBackend):
    """Opens streams of asyncio."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore2 passes it
        local_address: str | None = None,  # noqa: ARG002  None in a connection of this module
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002  as above
    ) -> _Stream:
        """Connect to a server.

        Raises:
            httpcore2.ConnectTimeout: the server did not answer in time.
            httpcore2.ConnectError: the host is unknown, or the connection was refused.
        """
        loop = asyncio.get_running_loop()
        is_asyncio = isinstance(loop, asyncio.BaseEventLoop)  # uvloop has no such option
        options: Any = {"happy_eyeballs_delay": OTHER_ADDRESS} if is_asyncio else {}
        try:
            async with asyncio.timeout(timeout):
                stream: _Stream
                _, stream = await loop.create_connection(_Stream, host, port, **options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
            # no number for several addresses, and a negative one for a host without an address
            number = getattr(error, "errno", 0)
            is_known = number and number > 0 and os.name == "posix"
            text = os.strerror(number) if is_known else str(error)
            raise httpcore2.ConnectError(
                "all addresses failed" if number is None else text
            ) from error
        return stream


class _Stream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """The bytes to and from a server."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._unsent = bytearray()
        """The bytes of a request that are sent when its answer is read, in one piece."""
        self._unread = bytearray()
        self._has_ended = False
        self._error: Exception | None = None
        """The reason for the end; None if the server has closed the connection."""
        self._is_full = False
        """Whether asyncio takes no more bytes to send."""
        self._changed: asyncio.Future[None] | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  as above
        """Send what was written, and return the next bytes; none at the end.

        Raises:
            httpcore2.ReadTimeout: nothing arrived in time.
            httpcore2.ReadError: the connection broke.
        """
        if self._unsent:
            self._send(b"")
        while not (self._unread or self._has_ended):
            await self._change(timeout, httpcore2.ReadTimeout)
        if self._error is not None and not self._unread:
            raise httpcore2.ReadError(str(self._error)) from self._error
        data = bytes(self._unread[:max_bytes])
        was_full = len(self._unread) >= MAX_UNREAD
        del self._unread[:max_bytes]
        if was_full and len(self._unread) < MAX_UNREAD:
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  as above
        """Send these bytes, at the latest when the answer is read.

        Raises:
            httpcore2.WriteTimeout: the server did not take them in time.
            httpcore2.WriteError: the connection broke.
        """
        if len(buffer) < LARGE:
            self._unsent += buffer
            return
        self._send(buffer)
        while self._is_full and not self._has_ended:
            await self._change(timeout, httpcore2.WriteTimeout)
        if self._has_ended:
            raise httpcore2.WriteError(str(self._error or "")) from self._error

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
    ) -> _Stream:
        """Encrypt all further bytes.

        Raises:
            httpcore2.ConnectTimeout: the server did not answer in time.
            httpcore2.ConnectError: the connection broke, or TLS failed.
        """
        loop = asyncio.get_running_loop()
        encrypted = None
        try:
            async with asyncio.timeout(timeout):
                if not self._has_ended:
                    encrypted = await loop.start_tls(
                        self._transport, self, ssl_context, server_hostname=server_hostname
                    )
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise httpcore2.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError):
                raise httpcore2.ConnectError(str(error)) from error
            raise
        if encrypted is None:
            await self.aclose()
            raise httpcore2.ConnectError("the server closed the connection") from self._error
        self._transport = encrypted
        return self

    async def aclose(self) -> None:
        """Close the connection."""
        self._unread.clear()
        self._transport.abort()
        await asyncio.sleep(0)  # asyncio closes the socket at the next turn of the loop

    def get_extra_info(self, info: str) -> Any:
        """Whether something can be read, else a property of asyncio's transport."""
        if info == "is_readable":
            return self._has_ended or bool(self._unread) or self._has_arrived()
        return self._transport.get_extra_info(info)

    def _has_arrived(self) -> bool:
        """Whether the socket has bytes, or an end, that asyncio has not read yet."""
        socket = self._transport.get_extra_info("socket")
        number = -1 if socket is None else socket.fileno()
        if number < 0:  # closed, which asyncio reports in its next turn
            return True
        if not hasattr(select, "poll"):  # on Windows
            return bool(select.select([number], [], [], 0)[0])
        arrivals = select.poll()
        arrivals.register(number, select.POLLIN)
        return bool(arrivals.poll(0))

    def _send(self, data: bytes) -> None:
        if not self._has_ended:  # uvloop raises
            for each in filter(None, (bytes(self._unsent), data)):
                self._transport.write(each)
        self._unsent.clear()

    async def _change(self, seconds: float | None, error: type[Exception]) -> None:
        """Wait until asyncio reports something."""
        self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._changed
        except TimeoutError as cause:
            raise error from cause
        finally:
            self._changed = None

    def _report_change(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) >= MAX_UNREAD:
            self._transport.pause_reading()
        self._report_change()

    def eof_received(self) -> None:
        self._has_ended = True
        self._report_change()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._has_ended:
            self._error = exc
        self._has_ended = True
        self._report_change()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._report_change()


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
