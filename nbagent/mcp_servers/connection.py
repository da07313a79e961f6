"""One connection to a server, on one event loop: a task of its own enters and leaves it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from nbagent.core.base.errors import McpError

from .address import Address, Command, cut
from .exchange import Answer, Asked, Exchange, current
from .process import MAX_LINE, Said, process

logger = logging.getLogger("nbagent")
for _name in ("mcp", "client"):  # what mcp logs is for who asks for it, and not for a cell
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_PAGES = 100
"""Pages of a list of tools."""
MAX_TOOLS = 1_000
"""Tools of one server."""
MAX_WHY = 1_000
"""Characters of a reason that a server gives."""
_LOGGERS = ("httpx2", "mcp.client.streamable_http", "httpcore2.connection", "httpcore2.http11")
"""Who logs requests to a URL."""
_Answer = types.CallToolResult | types.InputRequiredResult
_ANSWER: TypeAdapter[Any] = TypeAdapter(_Answer)


class Options(NamedTuple):
    """How a server is met."""

    name: str
    connect_timeout: float
    roots: tuple[Path, ...] = ()
    samples: bool = False
    """Whether it may ask a model."""


class Connection:
    """One connection. It is made once, and over once the server is gone."""

    def __init__(self, address: Address, options: Options) -> None:
        self.is_over = False
        """Whether nothing can be sent any more."""
        self.is_stale = True
        """Whether the server's tools may be others than when they were listed last."""
        self.refused: list[str] = []
        """What was listed and is no tool, and why."""
        self._listed = 0
        """How many were listed, tools or not."""
        self.name = options.name
        self._address = address
        self._options = options
        self._said = Said()
        self._status: int | None = None
        """The last HTTP status that says no."""
        self._exchanges: list[Exchange] = []
        self._client: Client | None = None
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(_seen)
        self._task = self._loop.create_task(self._live(), context=Context())

    # --- opening and closing

    async def opened(self) -> None:
        """Wait until it stands.

        Raises:
            McpError: it cannot, with what the server said.
        """
        seconds = self._options.connect_timeout
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), seconds)
        except TimeoutError:
            self.leave()
            self._task.cancel()
            raise self.failure(f"it did not answer for {seconds:g} seconds") from None

    def leave(self) -> None:
        """Have it closed; to be called on its loop."""
        self.is_over = True
        self._leave.set()

    async def close(self) -> None:
        """Close it, and wait for that; on its loop."""
        self.leave()
        await asyncio.wait({self._task})

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it lives on."""
        return self._loop

    async def _live(self) -> None:
        try:
            async with self._made() as client:
                self._client = client
                listening = self._loop.create_task(self._listen(client))
                try:
                    if not self._opened.done():
                        self._opened.set_result(None)
                    await self._leave.wait()
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        except asyncio.CancelledError:
            self._fail(self.failure("the connection was closed"))
            raise
        except BaseException as error:
            failure = self._why(_first(error))
            self._fail(failure)
            if not isinstance(error, Exception):
                raise
            logger.debug("%s", failure)
        finally:
            self.is_over = True
            self._client = None

    def _fail(self, failure: McpError) -> None:
        self.is_over = True
        if not self._opened.done():
            self._opened.set_exception(failure)

    def _made(self) -> AbstractAsyncContextManager[Client]:
        return Client(
            self._transport(),
            cache=None,
            elicitation_callback=self._elicited,
            sampling_callback=self._sampled if self._options.samples else None,
            logging_callback=self._logged,
            log_level="info",
            message_handler=self._heard,
            list_roots_callback=self._roots if self._options.roots else None,
            client_info=types.Implementation(name="nbagent", version=_version()),
        )

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any, None]:
        address = self._address
        if isinstance(address, Command):
            async with process(address, self._said) as (read, write):
                yield _Watched(read, self.leave, self._is_tool), write
            return
        timeout = httpx2.Timeout(30.0, read=None)
        with _cut_from_logs(address.secrets):
            async with (
                httpx2.AsyncClient(
                    headers={**address.headers, "Accept-Encoding": "identity"},
                    timeout=timeout,
                    event_hooks={"response": [self._noted]},
                ) as client,
                streamable_http_client(
                    address.url, http_client=client, max_sse_event_size=MAX_LINE
                ) as (read, write),
            ):
                yield _Watched(read, self.leave, self._is_tool), write

    async def _noted(self, response: httpx2.Response) -> None:
        """Remember a refusal, and bound what comes."""
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        if packing != "identity":  # little may become much, in one go
            raise httpx2.DecodingError(
                f"its answer is packed as {packing!r:.40}, which it was asked not to"
            )
        self._status = response.status_code if response.status_code >= 400 else None
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):  # whose events are bounded one by one
            response.stream = _Bounded(response.stream)  # type: ignore[arg-type]

    def _is_tool(self, listed: Any) -> bool:
        """Whether it is a tool at all: one that is not must not hide the others. Beyond ``MAX_TOOLS`` nothing is."""
        self._listed += 1
        if self._listed > MAX_TOOLS:
            if self._listed == MAX_TOOLS + 1:
                self.refused.append(f"what it lists beyond {MAX_TOOLS:,} tools")
            return False
        try:
            if isinstance(listed, dict) and isinstance(listed.get("inputSchema"), dict):
                listed["inputSchema"].setdefault("type", "object")  # which many leave out
            found = types.Tool.model_validate(listed, by_name=False)
            fits = found.input_schema.get("type") == "object"
            why = "its inputSchema is not of type object"
        except ValidationError as error:
            fits, why = False, _misfit(error)
        if not fits:
            name = listed.get("name") if isinstance(listed, dict) else None
            self.refused.append(f"{name!s:.100}: it is no tool of the protocol: {why}")
        return fits

    async def _listen(self, client: Client) -> None:
        """Hear of other tools, where the protocol has that as a stream of its own."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.is_stale = True
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError) as error:
            logger.debug("the MCP server %s tells no changes: %s", self.name, error)

    # --- what it is asked

    async def tools(self) -> list[types.Tool]:
        """The server's tools.

        Raises:
            McpError: it cannot tell them.
        """
        client = await self._here()
        self.is_stale = False
        self.refused = []
        self._listed = 0
        found: list[types.Tool] = []
        cursor: str | None = None
        seconds = self._options.connect_timeout
        try:
            for _ in range(MAX_PAGES):
                params = types.PaginatedRequestParams(cursor=cursor)
                page = await asyncio.wait_for(client.session.list_tools(params=params), seconds)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None or self._listed > MAX_TOOLS:
                    break
        except Exception as error:
            self.is_stale = True
            raise self._why(error, "its tools cannot be listed") from None
        return found

    async def call(
        self,
        exchange: Exchange,
        name: str,
        arguments: dict[str, Any],
        responses: dict[str, Any] | None,
        state: str | None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Send one call, once.

        Raises:
            McpError: the server refuses it, is gone, or answers with what is no result.
        """
        client = await self._here()
        params = types.CallToolRequestParams(
            name=name, arguments=arguments, input_responses=responses, request_state=state
        )
        request = types.CallToolRequest(params=params)
        self._exchanges.append(exchange)
        try:
            answer: _Answer = await client.session.send_request(
                request, _ANSWER, progress_callback=exchange.progress
            )
        except Exception as error:
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                await self._said.heard()
            raise self._why(error) from None  # what it follows from may tell a credential
        finally:
            self._exchanges.remove(exchange)
        return answer

    async def _here(self) -> Client:
        await self.opened()
        if self._client is None:
            raise self.failure("the connection is closed")
        return self._client

    # --- what it asks and tells

    async def _elicited(
        self, context: Any, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        del context
        said = await self._asked(params)
        if isinstance(said, types.ElicitResult | types.ErrorData):
            return said
        return types.ElicitResult(action="decline")

    async def _sampled(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        said = await self._asked(params)
        if isinstance(said, types.CreateMessageResult | types.ErrorData):
            return said
        return types.ErrorData(code=types.INVALID_REQUEST, message="nobody answers")

    async def _asked(self, params: Asked) -> Answer | None:
        """What is said to a question, in the call that asks; None where none does."""
        exchange = current.get()
        note = ""
        if exchange is None and self._exchanges:
            exchange = self._exchanges[0]
            count = len(self._exchanges)
            note = f" (in one of {count} calls that run, and does not say in which)"
            note = note if count > 1 else ""
        if exchange is None:
            logger.warning(
                "the MCP server %s asked a question outside of any call: declined", self.name
            )
            return None
        return await exchange.ask(params, note=note)

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        said = params.data if isinstance(params.data, str) else json.dumps(params.data, default=str)
        exchange = current.get() or next(iter(self._exchanges), None)
        if exchange is None:
            logger.debug("%s: %s", self.name, said[:MAX_WHY])
        else:
            exchange.log(f"{params.level}: {said}")

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.is_stale = True

    async def _roots(self, context: Any) -> types.ListRootsResult | types.ErrorData:
        del context
        roots = [
            types.Root.model_validate({"uri": path.resolve().as_uri(), "name": path.name})
            for path in self._options.roots
        ]
        return types.ListRootsResult(roots=roots)

    # --- why it failed

    def failure(self, why: str) -> McpError:
        """The error of what has failed here, with what the server said last."""
        last = self._said.last()
        said = f"\nIts last words:\n{last}" if last else ""
        return McpError(
            cut(f"the MCP server {self.name}: {why[:MAX_WHY]}{said}", self._address.secrets)
        )

    def _why(self, error: BaseException, what: str = "") -> McpError:
        if isinstance(error, McpError):
            return error
        told = f"{what}: " if what else ""
        if self._status in (401, 403):
            return self.failure(
                f"{told}it refuses what it was sent (HTTP {self._status}): give credentials, as in "
                "nb.mcp(url, headers={'Authorization': 'Bearer …'})"
            )
        if isinstance(error, MCPError):
            if error.code == types.CONNECTION_CLOSED or error.message == "Session terminated":
                self.leave()
                return self.failure(
                    f"{told}it is gone ({error.message}); the next call starts anew, this one is not repeated"
                )
            if error.code == types.URL_ELICITATION_REQUIRED:
                return self.failure(f"{told}a person has to open a page first: {_pages(error)}")
            status = "" if self._status is None else f" (HTTP {self._status})"
            return self.failure(f"{told}{error.message}{status}")
        if isinstance(error, ValidationError):
            return self.failure(f"{told}it answered with what is no result: {_misfit(error)}")
        if isinstance(error, TimeoutError):
            return self.failure(f"{told}it did not answer in time")
        return self.failure(f"{told}{type(error).__name__}: {error}")


class _Cut(logging.Filter):
    """Takes credentials out of what is logged."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the record's text is without them."""
        said = record.getMessage()
        if (told := cut(said, self._secrets)) != said:
            record.msg, record.args = told, ()
        return True


@contextmanager
def _cut_from_logs(secrets: list[str]) -> Iterator[None]:
    """Keep credentials out of what the HTTP client logs of its requests."""
    found, loggers = _Cut(secrets), [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(found)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(found)


class _Watched:
    """A read stream that tells its end, and lets no tool through that is none."""

    def __init__(
        self, inner: Any, ended: Callable[[], None], is_tool: Callable[[Any], bool]
    ) -> None:
        self._inner = inner
        self._ended = ended
        self._is_tool = is_tool

    @property
    def last_context(self) -> Any:
        """The context of whoever sent what came last."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return await self._inner.receive()

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = [one for one in result["tools"] if self._is_tool(one)]
        return item

    async def __aenter__(self) -> _Watched:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Bounded(httpx2.AsyncByteStream):
    """A body of a response that ends with an error where it is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for piece in self._inner:
            length += len(piece)
            if length > MAX_LINE:
                raise httpx2.ReadError(f"an answer has more than {MAX_LINE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _misfit(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _first(error: BaseException) -> BaseException:
    """The first error in groups of groups, as task groups raise them."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _seen(opened: asyncio.Future[None]) -> None:
    """What it failed with is told to whoever waits, and to nobody where nobody does."""
    if not opened.cancelled():
        opened.exception()


def _pages(error: MCPError) -> str:
    data = error.data if isinstance(error.data, dict) else {}
    found = data.get("elicitations")
    urls = [one.get("url") for one in found if isinstance(one, dict)] if found else []
    return ", ".join(str(url)[:500] for url in urls[:5]) or "it does not say which"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("jupyter-nbagent")
    except PackageNotFoundError:
        return "0"
