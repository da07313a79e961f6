"""One request and its answer: the place in the line of requests, waits, retries, notes and the price.

The fast way passes a finished body to the client and reads raw bytes. Clients that need the request's fields
(Azure puts the model into the URL) and clients without ``post`` (such as LiteLLM's) get the typed call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from nbagent.core.base.errors import HistoryTooLong, ModelError, NbagentError
from nbagent.core.base.file_parts import files_of, is_image
from nbagent.core.base.messages import calls_of
from nbagent.core.base.model import (
    NOTHING,
    Discarded,
    Finished,
    ModelDelta,
    Notice,
    Request,
    ToolSpec,
    Usage,
    Waiting,
)
from nbagent.models.limits import RateLimit, Ticket
from nbagent.models.prices import price_of

from .chat import ChatApi
from .client import Clients
from .credentials import Keyring, StreamFilter
from .encoding import Settings, chosen
from .errors import (
    MIN_SHOWN_WAIT,
    TOO_LONG,
    broken,
    clear_error,
    is_too_long,
    is_transport,
    refusal_of,
    transport_errors,
)
from .images import BLIND_HINT, blind_note, left_out_note
from .parser import Parser
from .providers import Provider
from .responses import ResponsesApi
from .retries import RetryPause, backoff, pause_after
from .stream import MAX_BODY, Bounded, BrokenStream, UnusableAnswer, bound, parsed

LEFT_OUT = (
    "{provider} continues from here. Data that only {other:.100} can read in its earlier answers, such as "
    "their reasoning, is left out."
)
DEFAULT_RETRIES = 2
"""The number of retries of a request or a broken stream if the client has no setting."""
CUT_OFF = "the server's answer ended in the middle"
NOTHING_SENT = "the server sent nothing for {seconds:g} s, except perhaps keep-alive signals"
NOT_ALL = "the server started its answer but did not finish it within {seconds:g} s"
SLOWEST = 20_000
"""The assumed bytes per second of the slowest connection to a server."""
STANDARD = (None, "auto", "default", "standard", "on_demand")
"""The service tiers with known prices; others cost more or less."""
IGNORED = (
    "The server ignored tool_choice={choice!r}: the model called no tool. Ask for the tool in the instructions, or use "
    "a server that supports tool_choice."
)
LOST = "The server said that the model called a tool, but sent no call."
OF_CONTENT = (400, 404, 415, 422, 500, 501)
"""The statuses with which servers reject a request for its content; for a picture, llama.cpp's has 500."""
DRAIN_SECONDS = 0.1
"""Seconds to read after an answer's end, so that its connection can be reused."""


Api: TypeAlias = ChatApi | ResponsesApi
"""The encoding of one model's requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The settings of every exchange of one model."""

    name: str
    """The model's name in errors and notes."""
    settings: Settings
    api: Api
    provider: Provider | None
    """The provider whose key is sent; None for a client that the caller passed."""
    provider_name: str
    """The provider in the model's name or address, such as ``openai``; empty if it is unknown."""
    limits: RateLimit
    max_wait: float
    """The maximum wait in seconds that a server may set."""
    has_known_prices: bool
    """Whether the known prices apply to the model's requests."""


class Exchange:
    """One request to the server of one client."""

    def __init__(
        self, terms: ModelSettings, clients: Clients, request: Request, keyring: Keyring
    ) -> None:
        self._terms = terms
        self._clients = clients
        self._request = request
        self._keyring = keyring
        self._credentials = keyring.all
        """The secrets that no text of this exchange may contain."""
        self._left_out: str | None = None
        """A note for the person about data that the server rejected."""
        self._breaks, self._unusable = 0, 0
        """The numbers of answers that broke off, and that were complete but unusable."""

    async def deltas(self) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer; if the answer breaks off, repeat the request.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server rejected the request or failed, and retrying did not help.
        """
        client = self._client = await self._clients.get()
        self._host = host_of(client)
        self._owner = self._terms.api.owner(self._host)
        """The owner of the provider data that is sent and received."""
        self._other = _answered_last(self._request, self._owner)
        self._retries: int = getattr(client, "max_retries", DEFAULT_RETRIES)
        self._credentials = self._keyring.of(client, self._request.hosted)
        ticket = self._terms.limits.ticket()
        again = _Attempt(self._body())
        try:
            while True:
                ticket.guess(len(again.body))
                if again.pause is not None or ticket.try_send() is not None:
                    async with aclosing(_wait_until_allowed(ticket, again.pause)) as waits:
                        async for waiting in waits:
                            yield waiting
                answer = await self._ask(again)
                if isinstance(answer, _Attempt):
                    again = answer
                    continue
                public = StreamFilter(self._credentials)
                parser = self._terms.api.parser(self._owner, self._request.tools)
                async with aclosing(self._notices(answer)) as notices:
                    async for notice in notices:
                        yield notice
                try:
                    reading = await _batches(answer, parser, _idle(client))
                    async with aclosing(reading) as batches:
                        async for batch in batches:
                            for delta in public.filtered(batch):
                                yield delta
                    for delta in [*public.rest(), *public.filtered(self._ending(parser, ticket))]:
                        yield delta
                except BrokenStream as error:
                    reason, usage, may_help = self._judged(error, parser, ticket)
                    kind = error.kind
                else:
                    return
                if not may_help:  # outside except, because the cause contains the content
                    text = f"The model {self._terms.name!r}: {reason}"
                    is_length = reason.startswith(TOO_LONG)
                    failure = HistoryTooLong(text) if is_length else ModelError(text, kind=kind)
                    failure.usage = usage
                    raise failure
                ticket.leave()
                yield Discarded(reason, usage)
                await asyncio.sleep(backoff(self._breaks + self._unusable - 1))
                again = _Attempt(self._body())
        finally:
            ticket.leave()

    def _body(self) -> bytes:
        return self._terms.api.body(self._request, self._owner)

    async def _ask(self, request: _Attempt) -> Any:
        """Send the request; return its answer, or the settings of a retry.

        Raises:
            ModelError: the server rejected the request, and a retry does not help.
        """
        body, tries, _ = request
        try:
            answer = await send(self._client, self._terms.api, body)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is not None:
                self._left_out = self._terms.api.adapt(refusal) or self._left_out
                other = self._body()
                if other != body:  # this or another refusal has changed the form
                    return _Attempt(other, tries, RetryPause(0, ""))  # the limits count it again
            pause = pause_after(error, tries)
            is_over = pause is None or tries >= self._retries
            if pause is not None and not is_over and pause.seconds <= self._terms.max_wait:
                return _Attempt(body, tries + 1, pause)
            refused = self._refused(error, pause, tries)
        else:
            if self._clients.given is not None:  # its key may be a function, which was called now
                self._credentials = self._keyring.of(self._client, self._request.hosted)
            return answer
        raise refused  # raised outside except, without the traceback of its cause

    def _judged(
        self, error: BrokenStream, parser: Parser, ticket: Ticket
    ) -> tuple[str, Usage, bool]:
        """The reason why an answer does not count, its usage, and whether the request is repeated.

        An unusable answer cost as much as a good one, so its request is repeated only once.
        """
        usage = NOTHING
        if isinstance(error, UnusableAnswer):
            usage = self._priced(error.end, parser, ticket).usage
            may_help = error.again and not self._unusable
            text = f"the server at {self._base_url} {error}"
            text += ", also when it was asked again" if self._unusable else ""
            self._unusable += 1
        else:
            text = str(error)
            may_help = error.again and self._breaks < self._retries
            if error.is_from_server and is_too_long(text):
                text, may_help = f"{TOO_LONG} ({text})", False
            self._breaks += 1
        reason = self._credentials.remove(text)
        hint = self._hint() if error.is_from_server and not may_help else ""
        return reason + hint, usage, may_help

    def _refused(self, error: Exception, pause: RetryPause | None, tries: int) -> NbagentError:
        return clear_error(
            error,
            model=self._terms.name,
            base_url=self._base_url,
            credentials=self._keyring.of(self._client, self._request.hosted),
            provider=self._terms.provider,
            api=self._terms.api.name,
            tries=tries,
            wait=pause.seconds if pause is not None and pause.is_from_server else 0,
            max_wait=self._terms.max_wait,
            hint=self._hint() if getattr(error, "status_code", None) in OF_CONTENT else "",
        )

    @property
    def _base_url(self) -> str:
        return str(getattr(self._client, "base_url", "its base_url"))

    def _hint(self) -> str:
        """A hint that the server may have rejected pictures; empty if the request has none."""
        files = (file for message in self._request.messages for file in files_of(message))
        return (
            f"; {BLIND_HINT}"
            if self._terms.settings.has_vision and any(map(is_image, files))
            else ""
        )

    async def _notices(self, answer: Any) -> AsyncGenerator[Notice, None]:
        """Yield the notes for the person; if the reader stops at a note, close the answer."""
        terms, messages, other = self._terms, self._request.messages, self._other
        try:
            notes = [
                None if terms.settings.has_vision else blind_note(terms.name, messages),
                LEFT_OUT.format(other=other.name, provider=self._owner)
                if other is not None and other.has_data
                else None,
                None if other is None else left_out_note(messages, terms.api.takes),
                self._left_out,
            ]
            for note in filter(None, notes):
                yield Notice(note)
        except BaseException:
            close = getattr(answer, "aclose", None) or getattr(answer, "close", None)
            if close is not None:
                await close()
            raise

    def _ending(self, parser: Parser, ticket: Ticket) -> list[ModelDelta]:
        """The end of the answer, with its owner and cost, after a note if the server ignored the tool choice.

        If another provider answered last, the end names the new owner, so that the note on left-out data appears once.

        Raises:
            BrokenStream: the answer is not complete, or cannot be used.
        """
        end = parser.finished()
        if end is None:
            raise BrokenStream(CUT_OFF)
        parser.check(end)
        if end.provider is None and self._other is not None:
            end = end._replace(provider={"name": self._owner})
        end = self._priced(end, parser, ticket)
        forced = self._terms.settings.tool_choice
        choice = None if forced is None else chosen(forced, self._request)
        has_to_call = isinstance(choice, ToolSpec) or choice == "required"
        if has_to_call and end.reason in ("stop", "other"):
            return [Notice(IGNORED.format(choice=forced)), end]
        return [Notice(LOST), end] if parser.lost_call else [end]

    def _priced(self, end: Finished, parser: Parser, ticket: Ticket) -> Finished:
        """The end with its cost, if it is known.

        If the server reported no cost, the cost is computed from prices, which do not include hosted tools.
        """
        usage, terms = end.usage, self._terms
        tokens = usage.total_tokens
        ticket.set_tokens(tokens)
        is_known = terms.has_known_prices and parser.tier in STANDARD and not self._request.hosted
        if usage.cost is not None or not tokens or not is_known:
            return end
        served = end.model if isinstance(end.model, str) else None
        price = price_of(self._host, served, terms.settings.model, known_as=terms.provider_name)
        if price is None:
            return end
        return end._replace(usage=replace(usage, cost=price(usage)))


class _Attempt(NamedTuple):
    """A request to send, with its failed attempts and its wait."""

    body: bytes
    tries: int = 0
    """The number of failed attempts."""
    pause: RetryPause | None = None
    """The wait before the request is sent."""


def host_of(client: Any) -> str:
    """A client's host, which identifies provider data in a history."""
    url = getattr(client, "base_url", None)
    return str(getattr(url, "host", url))


class _Other(NamedTuple):
    """The other provider that gave the last answer with an owner."""

    name: str
    has_data: bool
    """Whether the answer has provider data that only this provider can read."""


def _answered_last(request: Request, provider: str) -> _Other | None:
    """The other provider that answered last; None if ``provider`` did, or if no answer has an owner."""
    message = next((each for each in reversed(request.messages) if "provider" in each), None)
    own = None if message is None else message["provider"]
    if message is None or own is None or own["name"] == provider:
        return None
    has_data = "data" in own or any("provider" in call for call in calls_of(message))
    return _Other(own["name"], has_data)


def _idle(client: Any) -> float | None:
    """The client's timeout for the server's next bytes, in seconds; None if there is none."""
    timeout = getattr(client, "timeout", None)
    seconds = getattr(timeout, "read", timeout)
    return seconds if isinstance(seconds, int | float) else None


async def _wait_until_allowed(
    ticket: Ticket, pause: RetryPause | None
) -> AsyncGenerator[Waiting, None]:
    """Wait after a rejection, and until the limits allow a request; yield each new waiting time."""
    if pause is not None and pause.for_all:
        ticket.hold(pause.seconds, pause.reason)
    elif pause is not None:
        ticket.leave()
        if pause.seconds >= MIN_SHOWN_WAIT:
            yield Waiting(pause.seconds, pause.reason, "outage")
        await asyncio.sleep(pause.seconds)
    shown: tuple[float, str] | None = None
    while (wait := ticket.try_send()) is not None:
        end = time.monotonic() + wait.seconds if wait.seconds else 0.0
        is_new = shown is None or wait.reason != shown[1] or abs(end - shown[0]) > MIN_SHOWN_WAIT
        if is_new and not 0 < wait.seconds < MIN_SHOWN_WAIT:
            shown = end, wait.reason
            yield wait
        await ticket.wait(wait.seconds)


# --- sending and reading


async def send(client: Any, api: Api, body: bytes) -> Any:
    """Send a request once, and return its unread answer; the caller decides on retries.

    Raises:
        openai.OpenAIError: the request failed.
    """
    if not is_lean(client):
        once = client.with_options(max_retries=0) if hasattr(client, "with_options") else client
        create, fields = api.typed(once), json.loads(body)
        known = inspect.signature(create).parameters
        extra = {key: fields.pop(key) for key in list(fields) if key not in known}
        return await create(**fields, **({"extra_body": extra} if extra else {}))
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    sending = client.post(
        api.path,
        content=body,
        # the raw response: no type is built, and this module reads the stream
        cast_to=httpx2.Response,
        # also for an answer in one piece, so that this module limits its size
        stream=True,
        stream_cls=openai.AsyncStream[Any],
        options={
            "max_retries": 0,
            "headers": {"Content-Type": "application/json", "Accept-Encoding": "identity"},
            "follow_redirects": False,  # never send the key or the conversation to a redirect's target
            # needed for keys that are functions, as in the typed call
            "security": {"bearer_auth": True},
        },
    )
    try:
        async with asyncio.timeout(_longest(client, len(body))):
            return await sending
    except TimeoutError as error:
        raise openai.APITimeoutError(httpx2.Request("POST", str(client.base_url))) from error
    except httpx2.RequestError as error:  # while the text of a status error was read
        request = httpx2.Request("POST", str(client.base_url))
        raise openai.APIConnectionError(request=request) from error


def _longest(client: Any, size: int) -> float | None:
    """The maximum seconds until an answer starts, or an error is read: the client's timeouts, and time for the body.

    A server that sends single bytes would otherwise never reach a timeout.
    """
    timeout = getattr(client, "timeout", None)
    steps = [getattr(timeout, name, timeout) for name in ("connect", "pool", "write", "read")]
    numbers = [step for step in steps if isinstance(step, int | float)]
    return sum(numbers) + size / SLOWEST if len(numbers) == len(steps) else None


def is_lean(client: Any) -> bool:
    """Whether this client accepts a body as bytes."""
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    return not isinstance(client, openai.AsyncAzureOpenAI) and _takes_bytes(client.__class__)


@cache
def _takes_bytes(kind: type) -> bool:
    post = getattr(kind, "post", None)
    return post is not None and "content" in inspect.signature(post).parameters


async def _batches(
    answer: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """The deltas of an answer, in batches that arrived together; reading them also limits its size and closes it.

    An answer without a delta for ``idle`` seconds counts as broken, even if bytes arrive.

    Raises:
        BrokenStream: while the batches are read, the connection broke, or the data is not an answer.
    """
    if not hasattr(answer, "aiter_bytes"):
        return _typed_batches(answer, parser, idle)
    await bound(answer)
    return _read(answer, parser, idle)


@asynccontextmanager
async def _bytes_of(answer: Any, parser: Parser) -> AsyncGenerator[Any, None]:
    """The decompressed bytes of an answer, as they arrive; at the end, the answer is closed.

    Raises:
        BrokenStream: the connection broke before the answer was complete.
    """
    is_bounded = isinstance(answer.stream, Bounded) and not answer.is_stream_consumed
    try:
        try:
            pieces = aiter(answer.stream) if is_bounded else answer.aiter_bytes()
            async with aclosing(pieces):
                yield pieces
        finally:
            await answer.aclose()
    except transport_errors() as error:
        if parser.finished() is None:
            raise BrokenStream(broken(error)) from error


async def _read(
    answer: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read an answer: events, or one piece. Its first character tells which, because servers send wrong content types.

    Raises:
        BrokenStream: it is a web page, or it is too slow or too large.
    """
    kind = answer.headers.get("content-type", "")
    async with _bytes_of(answer, parser) as arriving:
        if "html" in kind:
            raise BrokenStream(
                f"{answer.url} answered with a web page ({kind}), not with a model's answer. base_url is probably wrong. "
                "Does it end in /v1?",
                again=False,
            )
        begun = await _begun(arriving, idle)
        read = _events if begun[:1] in _OF_EVENTS else _whole
        async with aclosing(read(begun, arriving, parser, idle)) as batches:
            async for batch in batches:
                yield batch


_OF_EVENTS = b"de:ir"
"""The first characters of the lines of events (data, event, id, retry and comments). No JSON object begins so."""
_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which servers may send first."""


async def _begun(arriving: AsyncIterator[bytes], idle: float | None) -> bytes:
    """The first bytes that are not blank; a server may send blank lines first, to keep the connection open."""
    since = monotonic()
    async for data in arriving:
        if begun := data.removeprefix(_MARK).lstrip():
            return begun
        if idle is not None and monotonic() - since > idle:
            raise BrokenStream(NOTHING_SENT.format(seconds=idle))
    return b""


async def _whole(
    begun: bytes, arriving: AsyncIterator[bytes], parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read an answer in one piece, which may take ``idle`` seconds. A router adds the mark of a stream's end to it."""
    pieces, size, since = [begun], len(begun), monotonic()
    async for data in arriving:
        pieces.append(data)
        size += len(data)
        if size > MAX_BODY:
            raise BrokenStream(
                f"The server's answer is larger than {MAX_BODY:,} bytes", again=False
            )
        if idle is not None and monotonic() - since > idle:
            raise BrokenStream(NOT_ALL.format(seconds=idle))
    yield parser.response(b"".join(pieces).rstrip().removesuffix(b"data: [DONE]"))


async def _events(
    begun: bytes, arriving: AsyncIterator[bytes], parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read a stream. The client's timeout detects silence; ``idle`` detects data without deltas."""
    data, last_delta_at = begun, monotonic()
    while True:
        batch = parser.feed(data)
        if batch:
            yield batch
            last_delta_at = monotonic()
        elif idle is not None and monotonic() - last_delta_at > idle:
            if parser.finished() is not None:
                return  # the answer is whole, though nothing marks its end
            raise BrokenStream(NOTHING_SENT.format(seconds=idle))
        if parser.done:
            with suppress(TimeoutError):  # then the connection is closed instead of reused
                async with asyncio.timeout(DRAIN_SECONDS):
                    async for _ in arriving:
                        pass
            return
        try:
            data = await anext(arriving)
        except StopAsyncIteration:
            break
    try:
        batch = parser.feed(b"\n\n")  # proxies leave out the blank line after the last event
    except BrokenStream as error:
        if error.is_from_server:
            raise
        raise BrokenStream(CUT_OFF) from error
    yield batch


async def _typed_batches(
    chunks: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read an answer that the client parses."""
    if not hasattr(chunks, "__aiter__"):
        yield parser.chunk(chunks.model_dump())
        return
    arriving = aiter(chunks)
    try:
        while True:
            try:
                async with asyncio.timeout(idle):
                    chunk = await anext(arriving)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise BrokenStream(NOTHING_SENT.format(seconds=idle)) from error
            except transport_errors() as error:
                if parser.finished() is None:
                    raise BrokenStream(broken(error)) from error
                return
            except BrokenStream:  # LiteLLM's client raises these
                raise
            except Exception as error:
                raise _unreadable(error, parser) from error
            yield parser.chunk(chunk.model_dump())
    finally:
        await chunks.close()


def _unreadable(error: Exception, parser: Parser) -> BrokenStream:
    """The client's error for an event, as if the parser had read the event itself."""
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    try:
        if isinstance(error, openai.APIError):
            parser.chunk({"error": error.body or str(error)})
        elif isinstance(error, json.JSONDecodeError):
            parsed(error.doc.encode("utf-8", "replace"))
    except BrokenStream as broken_stream:
        return broken_stream
    reason = f"the client could not read the server's answer ({type(error).__name__}: {error})"
    return BrokenStream(reason, again=is_transport(error))
