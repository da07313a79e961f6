"""One connection to a server, on one event loop; the connection's own task opens and closes it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.methods import parse_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import TypeAdapter, ValidationError

from nbagent.core.base.errors import HumanInputRequired, McpError, Rejected
from nbagent.core.base.incoming_json import MAX_PARTS, TooManyParts, check_parts, within_parts
from nbagent.core.run.host import current_host

from .address import Address, Command, McpSignIn, remove_secrets
from .exchange import CANCEL, MAX_QUESTIONS, Asked, McpExchange, TooLate, current
from .process import MAX_LINE, ErrorOutput, process
from .results import ASKS_MIDWAY, MAX_CONTENT, asks_midway
from .sign_in import SignIn, SignInQuestion, misfit

T = TypeVar("T")

UNCLEAR = 1.0
"""Seconds that a question waits for other calls of its run to end, if the server does not say which call asks."""
CHECK = 0.02
"""Seconds between two checks whether other calls have ended."""

logger = logging.getLogger("nbagent")
for _name in ("mcp", "client"):  # mcp's log must not appear in cells unless it is configured
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_PAGES = 100
"""Pages of a list of tools."""
MAX_TOOLS = 1_000
"""Tools of one server."""
_PAGE = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0}
"""The other fields of a list of tools, in the newest version."""
MAX_ASKED = 5_000
"""Values in the messages, or in the tools, of a server's request to a model."""
MAX_WHY = 1_000
"""Characters of a server's reason."""
MAX_SEARCHED = 20_000
"""Bytes of an HTTP error, or characters of a reason, that are searched; the reason in them is shorter."""
ERROR_BODY_TIMEOUT = 2.0
"""Seconds to read the reason of an HTTP error."""
_LONGER = "(to wait longer, use nb.mcp(…, connect_timeout=…): a first start may have to download something)"
_CLOSED = "Connection closed"
"""The client's message for a connection that has ended. Its error code, -32000, does not identify it: servers use this
code for any error."""
_LOST, _NO_SESSION = re.compile(r"session|not initialized", re.IGNORECASE), -32001
"""The words of servers that no longer have a session, with HTTP status 400 or 404, and their error code in an answer."""
_STAND_INS = ("Server returned an error response", "Not Found")
"""The client's messages for an HTTP error without a protocol error in its body."""
_OTHER_URL = (
    "Is this its URL of streamable HTTP, such as https://mcp.example/mcp? nbagent does not support the old "
    "transport, whose URLs often end in /sse"
)
_LOGGERS = (
    "httpx2",
    "mcp.client.streamable_http",
    "httpcore2.connection",
    "httpcore2.http11",
    "mcp.client.auth.oauth2",
)
"""The loggers of requests to a URL, and of failed sign-ins."""
_Answer = types.CallToolResult | types.InputRequiredResult
_ANSWER: TypeAdapter[Any] = TypeAdapter(_Answer)


class ServerOptions(NamedTuple):
    """The options of a connection."""

    name: str
    connect_timeout: float
    roots: tuple[Path, ...] = ()
    samples: bool = False
    """Whether the server may ask a model."""
    protocol: str | None = None
    """The version of the protocol to use; None for the newest version that both sides support."""


class Connection:
    """One connection to a server. A connection is opened once, and ends when the server ends.

    With ``takes_turns``, calls of different runs are sent one after the other, because the server asks during calls and
    does not say which call asks.
    """

    def __init__(self, address: Address, options: ServerOptions, *, takes_turns: bool) -> None:
        self.is_over = False
        """Whether the connection has ended or is retired, so that no further call is sent."""
        self.has_no_session = False
        """Whether the server has lost the session, so that a new connection may help at once."""
        self.takes_turns = takes_turns
        self.is_stale = True
        """Whether the server's tools may have changed since they were last listed."""
        self.refused: list[str] = []
        """The listed entries that are not tools, with the reasons."""
        self.listing = asyncio.Lock()
        """A lock for listing the server's tools, so that all known tools are from one list."""
        self._listed = 0
        """The number of listed entries, tools or not."""
        self.name = options.name
        self._address = address
        self._options = options
        self._error_output = ErrorOutput()
        self._status: int | None = None
        """The last HTTP error status."""
        self._reason = ""
        """The text of the last HTTP error response."""
        self._exchanges: list[McpExchange] = []
        self._abandoned: set[tuple[str, ...]] = set()
        """The runs of calls that ended here without the server's result; the server may still run such a call."""
        self._unclear = 0
        """The number of questions for which no call is chosen yet."""
        self._client: Client | None = None
        self.loop = asyncio.get_running_loop()
        """The connection's event loop."""
        self._sign_in: SignIn | None = None
        if not isinstance(address, Command) and isinstance(address.auth, McpSignIn):
            where = f"the MCP server {self.name}"
            self._sign_in = SignIn(address, address.auth, where, self._asked_to_sign_in)
        self._waiting = 0
        """The number of tasks that wait outside of calls; such a task can ask a person to sign in."""
        self._wanted: tuple[SignInQuestion, asyncio.Future[str]] | None = None
        """The open sign-in question, with its answer."""
        self._asked_question: SignInQuestion | None = None
        self._wakeup = asyncio.Event()
        self._leave = asyncio.Event()
        self._opened: asyncio.Future[None] = self.loop.create_future()
        # the error is retrieved, so that asyncio does not log it if no task waits
        self._opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self._task = self.loop.create_task(self._run_connection(), context=Context())

    # --- opening and closing

    async def wait_until_open(self) -> None:
        """Wait until the connection is open.

        Raises:
            McpError: the connection cannot be opened; the message contains the server's reason.
        """
        seconds = self._options.connect_timeout
        try:
            await self._in_time(asyncio.shield(self._opened), seconds)
        except TimeoutError:
            self.leave()
            self._task.cancel()
            raise self.failure(f"it did not answer for {seconds:g} seconds {_LONGER}") from None

    def leave(self) -> None:
        """Start closing the connection; call this method on the connection's loop."""
        self.is_over = True
        self._leave.set()

    def retire(self) -> None:
        """Send no further call, and close the connection when its running calls have ended."""
        self.is_over = True
        if not self._exchanges:
            self.leave()

    @property
    def is_closed(self) -> bool:
        """Whether nothing of the connection is left."""
        return self._task.done() or self.loop.is_closed()

    async def _run_connection(self) -> None:
        try:
            async with Client(
                self._transport(),
                cache=None,
                elicitation_callback=self._answer_in_call,
                sampling_callback=self._sampled if self._options.samples else None,
                logging_callback=self._logged,
                log_level="info",
                message_handler=self._on_message,
                list_roots_callback=self._roots if self._options.roots else None,
                client_info=types.Implementation(
                    name="nbagent", version=str(sys.modules["nbagent"].__version__)
                ),
                mode=self._mode,
            ) as client:
                self._client = client
                listening = self.loop.create_task(self._listen(client))
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

    @property
    def _mode(self) -> str:
        """The client's mode for the protocol's version; all older versions start the same way."""
        wanted = self._options.protocol
        return "legacy" if wanted in HANDSHAKE_PROTOCOL_VERSIONS else wanted or "auto"

    def _streams(self, read: Any, write: Any) -> tuple[Any, Any]:
        """Wrap the streams: watch incoming messages, and offer an older version if that is requested."""
        wanted = self._options.protocol
        watched = _Incoming(read, self.leave, self._is_tool, self._fail_unreadable)
        return watched, _Outgoing(write, wanted) if self._mode == "legacy" and wanted else write

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any, None]:
        address = self._address
        if isinstance(address, Command):
            async with process(address, self._error_output) as (read, write):
                yield self._streams(read, write)
            return
        timeout = httpx2.Timeout(30.0, read=None, connect=self._options.connect_timeout)
        auth = address.auth if self._sign_in is None else self._sign_in
        with _hide_in_logs(self._secrets):
            async with (
                httpx2.AsyncClient(
                    headers={**address.headers, "Accept-Encoding": "identity"},
                    auth=auth,
                    timeout=timeout,
                    event_hooks={"response": [self._noted]},
                ) as client,
                streamable_http_client(
                    address.url, http_client=client, max_sse_event_size=MAX_LINE
                ) as (read, write),
            ):
                yield self._streams(read, write)

    # --- signing in

    def _secrets(self) -> list[str]:
        """The secrets that no text may contain."""
        return self._address.secrets if self._sign_in is None else self._sign_in.secrets

    async def _asked_to_sign_in(self, question: SignInQuestion) -> str:
        """Ask a person to sign in, in the call that needs it or in a waiting task, and return the pasted text."""
        if current.get() is not None:
            return await self._ask(question)
        if self._sign_in is not None and self._sign_in.failure and not self._opened.done():
            # the client tries several ways to connect, but a person is asked once
            raise McpError(self._sign_in.failure)
        if not self._waiting:
            raise McpError("the run that asked you to sign in has ended. The next run asks again")
        answer: asyncio.Future[str] = self.loop.create_future()
        self._wanted = question, answer
        self._wakeup.set()
        try:
            return await answer
        finally:
            self._wanted = None

    async def _in_time(self, work: Awaitable[T], seconds: float) -> T:
        """Return the result of ``work`` within ``seconds``; a person's time to sign in does not count."""
        if self._sign_in is None:
            return await asyncio.wait_for(work, seconds)
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._wakeup.set())
        self._waiting += 1
        end = self.loop.time() + seconds
        try:
            while not task.done():
                if self._wanted is not None:
                    since = self.loop.time()
                    with current_host().signing_in():
                        await self._ask_once(*self._wanted)
                    end += self.loop.time() - since
                    continue
                self._wakeup.clear()
                async with asyncio.timeout(max(0.0, end - self.loop.time())):
                    await self._wakeup.wait()
            return task.result()
        finally:
            self._waiting -= 1
            task.cancel()

    async def _ask_once(self, question: SignInQuestion, answer: asyncio.Future[str]) -> None:
        """Ask a person to sign in, once for all waiting tasks; if the asking task is cancelled, the next one asks."""
        if question is self._asked_question:
            await asyncio.wait({answer}, timeout=ERROR_BODY_TIMEOUT)
            return
        self._asked_question = question
        asking = self.loop.create_task(self._ask(question))
        try:
            await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                answer.set_result(asking.result())
        except asyncio.CancelledError:
            self._asked_question = None
            if self._waiting == 1:  # no other task waits; the next run connects again
                if not answer.done():
                    ended = "the run that asked you to sign in has ended. The next run asks again"
                    answer.set_exception(McpError(ended))
                if not self._opened.done():
                    self.leave()
                    self._task.cancel()
            raise
        except Exception as error:
            answer.set_exception(error)
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        await asyncio.sleep(0)  # lets the task that waits for the answer continue

    async def _ask(self, question: SignInQuestion) -> str:
        """Ask in the current call, or else in a separate form."""
        exchange = current.get()
        if exchange is not None:
            pasted = await exchange.ask(question)
            if not isinstance(pasted, str):
                raise McpError(f"nobody signed in at {question.host}")
            return pasted
        try:
            answer = await current_host().ask(question.reply, question.message, link=question.link)
        except Rejected:
            raise McpError(f"nobody signed in at {question.host}: the form was cancelled") from None
        except HumanInputRequired:
            raise McpError(
                f"you must sign in at {question.host}, and no person can answer here. In a notebook or a terminal, run "
                "`await server.connect()` once; later runs use its tokens. In a script, use nb.mcp(url, auth='TOKEN'), "
                "or auth=nb.McpSignIn(answer=…)"
            ) from None
        return str(answer.address.get_secret_value())

    async def _noted(self, response: httpx2.Response) -> None:
        """Record the status and text of an HTTP error, and limit the size of the response's body."""
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "none"):  # a small compressed body may become large
            raise httpx2.DecodingError(
                f"its answer is compressed as {packing!r:.40}, which nbagent did not accept"
            )
        self._status, self._reason = None, ""
        kind = response.headers.get("content-type", "")
        kept = _Events() if kind.startswith("text/event-stream") else _Message()
        response.stream = _Bounded(response.stream, kept)  # type: ignore[arg-type]
        if response.status_code >= 400:
            self._status = response.status_code
            # the last two are for an encoding that is unknown, or is not one of text
            with suppress(
                httpx2.HTTPError, httpx2.StreamError, TimeoutError, LookupError, ValueError
            ):
                async with asyncio.timeout(ERROR_BODY_TIMEOUT):
                    body = await response.aread()
                text = body[:MAX_SEARCHED].decode(response.encoding or "utf-8", "replace")
                self._reason = " ".join(text.split())

    def _is_tool(self, listed: Any) -> bool:
        """Whether a listed entry is a valid tool and within ``MAX_TOOLS``; an invalid tool must not hide the others."""
        self._listed += 1
        if self._listed > MAX_TOOLS:
            if self._listed == MAX_TOOLS + 1:
                self.refused.append(f"the tools after the first {MAX_TOOLS:,}")
            return False
        entry = listed if isinstance(listed, dict) else {}
        entry.pop("icons", None)  # icons are never shown
        version = self._client.protocol_version if self._client else LATEST_HANDSHAKE_VERSION
        of_objects = ("inputSchema", "outputSchema")[: 1 + (version in HANDSHAKE_PROTOCOL_VERSIONS)]
        for schema in [entry[name] for name in of_objects if isinstance(entry.get(name), dict)]:
            schema.setdefault("type", "object")  # many servers omit it
            if schema.get("properties") == []:  # an empty object, as PHP writes it
                schema["properties"] = {}
        try:
            parse_server_result("tools/list", version, {**_PAGE, "tools": [listed]})
        except ValidationError as error:
            why = misfit(error).removeprefix("tools.0.")
            self.refused.append(f"{entry.get('name')!s:.100}: it is not a valid MCP tool: {why}")
            return False
        return True

    async def _listen(self, client: Client) -> None:
        """Listen for changed tools, if the protocol has a stream for that."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.is_stale = True
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError) as error:
            logger.debug("the MCP server %s does not report changes: %s", self.name, error)

    # --- requests

    async def tools(self) -> list[types.Tool]:
        """The server's tools.

        Raises:
            McpError: the server cannot list its tools.
        """
        client = await self._here()
        self.is_stale = False
        self.refused = []
        self._listed = 0
        found: dict[str, types.Tool] = {}
        cursors: list[str | None] = [None]
        try:
            while self._listed <= MAX_TOOLS and len(cursors) <= MAX_PAGES:
                params = types.PaginatedRequestParams(cursor=cursors[-1])
                listing = client.session.list_tools(params=params)
                page = await self._in_time(listing, self._options.connect_timeout)
                # a server may send its first page again for the cursor of its last one
                found |= {one.model_dump_json(): one for one in page.tools}
                if page.next_cursor in cursors:
                    break
                cursors.append(page.next_cursor)
        except Exception as error:
            self.is_stale = True
            if isinstance(error, TimeoutError):
                self.retire()
            raise self._why(error, "its tools cannot be listed") from None
        return [*found.values()]

    def may_send(self, run: tuple[str, ...]) -> bool:
        """Whether a call of this run can be sent now, because no running call of another run may begin to ask.

        A call that already waits for a person does not delay others. If the server may still run a call that
        another run has abandoned, the connection is retired.
        """
        if not self.takes_turns:
            return True
        if self._abandoned - {run}:
            self.retire()
            return False
        latest = self.loop.time() - UNCLEAR
        others = [one.asks_since for one in self._exchanges if one.run != run]
        return all(since is not None and since <= latest for since in others)

    async def call(self, exchange: McpExchange, params: types.CallToolRequestParams) -> _Answer:
        """Send one call, without repeating it. After an exceeded time limit, the connection is retired.

        Raises:
            McpError: the server rejects the call, has ended or exceeds a time limit, or its answer is not a result.
        """
        self._exchanges.append(exchange)
        try:
            return await exchange.wait(self._send(exchange, params))
        except TooLate as error:
            self.retire()
            raise self.failure(str(error)) from None
        finally:
            self._exchanges.remove(exchange)
            if self.is_over:
                self.retire()

    async def _send(self, exchange: McpExchange, params: types.CallToolRequestParams) -> _Answer:
        client = await self._here()
        request = types.CallToolRequest(params=params)
        try:
            answer: _Answer = await client.session.send_request(
                request, _ANSWER, progress_callback=exchange.progress
            )
        except asyncio.CancelledError:
            self._abandoned.add(exchange.run)
            raise
        except Exception as error:
            if isinstance(error, MCPError) and error.message == _CLOSED:
                await self._error_output.wait_until_read()
            raise self._why(error) from None  # the cause may contain a credential
        return answer

    def _fail_unreadable(self, error: Exception) -> None:
        """Handle a line that cannot be read: if the line is an answer and only one call is open, this call fails."""
        if not isinstance(error, ValidationError) or len(self._exchanges) != 1:
            return
        first = error.errors(include_url=False)[0]
        line = first["input"] if isinstance(first["input"], str) else ""
        if '"jsonrpc"' in line and '"result"' in line:
            self._exchanges[0].fail(f"sent an answer that cannot be read: {first['msg'][:MAX_WHY]}")

    async def _here(self) -> Client:
        await self.wait_until_open()
        if self._client is None:
            raise self.failure("the connection is closed")
        return self._client

    # --- requests of the server

    async def _sampled(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        answer = await self._answer_in_call(context, params)
        if isinstance(answer, types.ElicitResult):
            return types.ErrorData(code=types.INVALID_REQUEST, message="no person can answer")
        return answer

    async def _answer_in_call(self, context: Any, params: Asked) -> Any:
        """The answer to a server's question, asked in the call that the question belongs to; declined if no call runs.

        A server on pipes does not say which call asks. A question that may belong to calls of several runs waits for
        calls to end, and is cancelled if all of them wait. Among the calls of one run, the question waits up to
        ``UNCLEAR`` seconds, and is then asked in one call. If this call ends without an answer, another one asks.
        """
        del context
        if (exchange := current.get()) is not None:
            return await exchange.ask(params) or CANCEL
        asking = list(self._exchanges)
        if not asking:
            logger.warning(
                "the MCP server %s asked a question outside a call; it was declined", self.name
            )
            return types.ElicitResult(action="decline")
        self.takes_turns = True
        if not await self._is_of_one_run(asking):
            for each in self._exchanges:
                each.log(
                    f"The MCP server {self.name} asked a question while calls of several runs were running, and does not "
                    "say which call asks. The question was cancelled"
                )
            return CANCEL
        while remaining := [one for one in asking if one in self._exchanges]:
            chosen = next((one for one in remaining if one.asks_since is None), remaining[0])
            asking.remove(chosen)
            count = len(remaining)
            note = f" (in one of {count} running calls; the server does not say which)"
            with ExitStack() as paused:
                for each in remaining:
                    paused.enter_context(each.paused())
                answer = await chosen.ask(params, note=note if count > 1 else "")
            if answer is not None:
                return answer
        return CANCEL

    async def _is_of_one_run(self, asking: list[McpExchange]) -> bool:
        """Wait until a question of one of these calls can be asked; return False if it may belong to several runs."""
        until = self.loop.time() + UNCLEAR
        self._unclear += 1
        try:
            while remaining := [one for one in asking if one in self._exchanges]:
                runs = {one.run for one in remaining}
                with_question = sum(one.asks_since is not None for one in remaining)
                if len(runs | self._abandoned) > 1:
                    if len(runs) == 1 or self._unclear >= len(self._exchanges):
                        return False
                elif len(remaining) <= self._unclear + with_question or self.loop.time() >= until:
                    return True
                await asyncio.sleep(CHECK)  # calls end without an event, and this is rare
            return True
        finally:
            self._unclear -= 1

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        text = _in_words(params.data)
        exchange = current.get() or next(iter(self._exchanges), None)
        if exchange is None:
            logger.debug("%s: %s", self.name, text[:MAX_WHY])
        else:
            exchange.log(f"{params.level}: {text}")

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.is_stale = True

    async def _roots(self, context: Any) -> types.ListRootsResult | types.ErrorData:
        del context
        roots = [
            types.Root.model_validate({"uri": path.resolve().as_uri(), "name": path.name})
            for path in self._options.roots
        ]
        return types.ListRootsResult(roots=roots)

    # --- failures

    def failure(self, why: str) -> McpError:
        """The error for a failure of this connection, with the server's last output."""
        last = self._error_output.last()
        output = f"\nIts last output:\n{last}" if last else ""
        # before a cut could divide a secret
        shown = remove_secrets(why[:MAX_SEARCHED], self._secrets())[:MAX_WHY]
        return McpError(
            remove_secrets(f"The MCP server {self.name}: {shown}{output}", self._secrets())
        )

    def _why(self, error: BaseException, action: str = "") -> McpError:
        if isinstance(error, McpError):
            return error
        why = self._refusal(error) or self._trouble(error)
        if "unsupported protocol version" in why.lower():
            why += ". A version that both sides have can be chosen with nb.mcp(…, protocol=…)"
        return self.failure(f"{action}: {why}" if action else why)

    def _refusal(self, error: BaseException) -> str:
        """The reason of a server that answered with an HTTP error; empty if it did not."""
        status = self._status
        if status is None or not isinstance(error, MCPError | httpx2.HTTPError):
            return ""
        reason = message = error.message if isinstance(error, MCPError) else str(error)
        if self._reason and message in _STAND_INS:
            reason = remove_secrets(self._reason, self._secrets())[: MAX_WHY // 2]
        if status in (401, 403):
            failed = "" if self._sign_in is None else self._sign_in.failure
            advice = f", and signing in failed: {failed}. You can also pass" if failed else ". Pass"
            return f"it rejected the request (HTTP {status}){advice} credentials, as in nb.mcp(url, headers={{'Authorization': 'Bearer …'}})"
        if status in (404, 405, 406, 415) and not self._opened.done():
            return f"there is no MCP server at this URL (HTTP {status}: {reason}). {_OTHER_URL}"
        code = getattr(error, "code", None)
        if code == types.URL_ELICITATION_REQUIRED or asks_midway(message) or message == _CLOSED:
            return ""
        if self._opened.done() and status in (400, 404) and _LOST.search(reason):
            return self._ended(f"HTTP {status}: {reason}")
        return f"it rejected the request (HTTP {status}): {reason}"

    def _ended(self, why: str) -> str:
        """Retire the connection, and return the reason for the end of a call."""
        self.has_no_session = why != _CLOSED
        self.retire()
        return f"its connection ended ({why}). This call is not repeated. The next call reconnects"

    def _trouble_by_protocol(self, error: MCPError) -> str:
        is_opening = not self._opened.done()
        if error.message == _CLOSED and is_opening:
            return (
                f"it ended before it was connected ({error.message}). Does this command start a server that speaks MCP on "
                "its input and output?"
            )
        if error.message == _CLOSED or (error.code == _NO_SESSION and _LOST.search(error.message)):
            return self._ended(error.message)
        if asks_midway(error.message):
            return f"{error.message} ({ASKS_MIDWAY})"
        if error.code == types.URL_ELICITATION_REQUIRED:
            found = error.data.get("elicitations") if isinstance(error.data, dict) else None
            urls = [one.get("url") for one in found or () if isinstance(one, dict)]
            pages = ", ".join(str(url)[:500] for url in urls[:5]) or "it does not say which"
            return f"a person must open a page first: {pages}"
        if is_opening and error.message.startswith("Unexpected content type"):
            return f"there is no MCP server at this URL ({error.message}). {_OTHER_URL}"
        return error.message

    def _trouble(self, error: BaseException) -> str:
        """The problem and what to do, if no HTTP error explains it."""
        match error:
            case MCPError():
                return self._trouble_by_protocol(error)
            case ValidationError():
                return f"its answer is not a valid result: {misfit(error)}"
            case TimeoutError() | httpx2.TimeoutException():
                return f"it did not answer in time {_LONGER}"
            case httpx2.ConnectError():
                return f"it cannot be reached ({error}). Is it running, and is its URL right?"
            case httpx2.RemoteProtocolError() | httpx2.ReadError():
                return (
                    f"it closed the connection ({error}). It may be starting, busy, or not an MCP server. This call is not "
                    "repeated. The next call reconnects"
                )
            case _:
                return f"{type(error).__name__}: {error}"


@contextmanager
def _hide_in_logs(secrets: Callable[[], list[str]]) -> Iterator[None]:
    """Keep credentials and tracebacks out of the HTTP client's log."""

    def cut(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        record.exc_info = None
        if (public := remove_secrets(message, secrets())) != message:
            record.msg, record.args = public, ()
        return True

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(cut)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(cut)


class _Pipe:
    """A stream of ``mcp``, of which a subclass changes one method."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Incoming(_Pipe):
    """A read stream that reports its end and unreadable lines, removes invalid tools, and limits messages."""

    def __init__(
        self,
        inner: Any,
        ended: Callable[[], None],
        is_tool: Callable[[Any], bool],
        cannot_read: Callable[[Exception], None],
    ) -> None:
        super().__init__(inner)
        self._ended = ended
        self._is_tool = is_tool
        self._fail_unreadable = cannot_read

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        if isinstance(item, Exception):
            self._fail_unreadable(item)
        message = getattr(item, "message", None)
        result = getattr(message, "result", None)
        params = getattr(message, "params", None)
        if isinstance(params, dict):
            _without_excess(params)
        if isinstance(result, dict):
            _shorten(result)
            if isinstance(result.get("tools"), list):
                result["tools"] = [one for one in result["tools"] if self._is_tool(one)]
        return item


class _Outgoing(_Pipe):
    """A write stream that offers the requested protocol version, where the client offers its newest older version."""

    def __init__(self, inner: Any, version: str) -> None:
        super().__init__(inner)
        self._version = version

    async def send(self, item: Any) -> None:
        message = getattr(item, "message", None)
        params = getattr(message, "params", None)
        if getattr(message, "method", None) == "initialize" and isinstance(params, dict):
            params["protocolVersion"] = self._version
        await self._inner.send(item)


def _shorten(result: dict[str, Any]) -> None:
    """Shorten a result to its limits, before each part becomes a pydantic model."""
    if result.get("content") is None and result.keys() & {"structuredContent", "isError"}:
        result["content"] = []  # other clients take it for empty
    content, requests = result.get("content"), result.get("inputRequests")
    if isinstance(content, list) and len(content) > MAX_CONTENT:
        note = f"[{len(content) - MAX_CONTENT:,} more parts were left out]"
        result["content"] = [*content[:MAX_CONTENT], {"type": "text", "text": note}]
    if isinstance(requests, dict):  # the first request beyond the limit is declined, with a note
        result["inputRequests"] = dict(islice(requests.items(), MAX_QUESTIONS + 1))


def _without_excess(params: dict[str, Any]) -> None:
    """Clear each list that is too long in a server's request to a model; without a prompt, the request is rejected."""
    for name in ("messages", "tools"):
        try:
            check_parts(params.get(name), MAX_ASKED)
        except TooManyParts:
            params[name] = []


class _Message:
    """Limits a message that is the whole body of a response."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def count(self, piece: bytes) -> None:
        """Add a piece of the body; raise TooManyParts if the body is too long."""
        self._buffer += piece
        if len(self._buffer) > MAX_LINE:
            raise TooManyParts(f"it has more than {MAX_LINE:,} bytes")

    def end(self) -> None:
        """Count the parts of the complete body; raise TooManyParts if there are too many."""
        within_parts(bytes(self._buffer))


class _Events(_Message):
    """Limits the messages in a stream of events; each event is counted before the reader receives the event's end."""

    def count(self, piece: bytes) -> None:
        """Add a piece of the stream, and count the events that the piece completes."""
        searched = max(len(self._buffer) - 3, 0)
        self._buffer += piece
        end = 0
        for found in _BLANK.finditer(self._buffer, searched):
            self._count(end, found.start())
            end = found.end()
        del self._buffer[:end]
        if len(self._buffer) > MAX_LINE:
            raise TooManyParts(f"an event has more than {MAX_LINE:,} bytes")

    def end(self) -> None:
        """Do nothing: each event was counted at its own end."""

    def _count(self, start: int, end: int) -> None:
        if end - start <= MAX_PARTS:
            return
        event = bytes(self._buffer[start:end])
        if event.count(b"\n") + event.count(b"\r") > MAX_PARTS:
            raise TooManyParts(f"an event has more than {MAX_PARTS:,} lines")
        lines = event.replace(b"\r", b"\n").split(b"\n")
        within_parts(b"".join(line[5:] for line in lines if line.startswith(b"data:")))


_BLANK = re.compile(rb"\n\n|\r\r|\r\n\r\n|\n\r|\r\n\n")
"""The end of an event: two line ends of any kind."""


class _Bounded(httpx2.AsyncByteStream):
    """A response body that raises an error if a message in it is too large."""

    def __init__(self, inner: httpx2.AsyncByteStream, messages: _Message) -> None:
        self._inner = inner
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                self._messages.count(piece)
                yield piece
            self._messages.end()
        except TooManyParts as error:
            raise httpx2.ReadError(f"its answer is too large to read: {error}") from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def _in_words(logged: Any) -> str:
    """A server's log entry as a line: its message, which some libraries wrap in an object, and its other fields."""
    if not isinstance(logged, dict):
        return logged if isinstance(logged, str) else json.dumps(logged, default=str)
    name = next((one for one in ("msg", "message") if isinstance(logged.get(one), str)), None)
    rest = {
        one: value for one, value in logged.items() if one != name and value not in (None, {}, "")
    }
    if set(rest) == {"extra"} and isinstance(rest["extra"], dict):
        rest = rest["extra"]
    others = json.dumps(rest, default=str, ensure_ascii=False) if rest else ""
    return " ".join(filter(None, ("" if name is None else logged[name], others)))


def _first(error: BaseException) -> BaseException:
    """The first error in groups of groups, as task groups raise them."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
