"""One request until it is answered: its place in the line, its waits and tries, its notes and its price.

The lean way hands the client a finished body and reads raw bytes. Clients that look into the body
(Azure puts the model into the URL) and doubles without ``post`` get the ordinary typed call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import Any, NamedTuple, Protocol

from nbagent.core.base.errors import ModelError, NbagentError
from nbagent.core.base.messages import calls_of
from nbagent.core.base.model import (
    Discarded,
    Finished,
    Hosted,
    ModelDelta,
    Notice,
    Request,
    Waiting,
)
from nbagent.models.limits import RateLimit, Ticket
from nbagent.models.prices import price_of

from .client import Clients
from .credentials import Keyring, StreamCut
from .encoding import BLIND_HINT, blind_note, has_images
from .errors import (
    Pause,
    Refusal,
    backoff,
    broken,
    explained,
    pause_after,
    refusal_of,
    refused_for_content,
    transport_errors,
)
from .providers import Provider
from .stream import Bounded, BrokenStream, bound

LEFT_OUT = (
    "{provider} continues from here. Data that only {other:.100} can read in its earlier answers, such as "
    "their reasoning, is left out."
)
DEFAULT_RETRIES = 2
"""How often a request or a broken stream is repeated where the client does not say."""
WORTH_TELLING = 0.5
"""Seconds of waiting from which a person is told."""
NOTHING_SAID = "the server sent no part of its answer for {seconds:g} s, only keep-alive signals"
NOT_ALL = "the server started its answer but did not finish it within {seconds:g} s"
SLOWEST = 20_000
"""Bytes in a second that go to a server on the slowest line."""
DRAIN_SECONDS = 0.1
"""How long to read on after an answer's end, so that its connection can be used again."""


class Parser(Protocol):
    """Turns one response into deltas; no I/O, so any chunking can be tested."""

    done: bool
    """Whether the server said that nothing follows."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: they hold an error, or what is no event of this API.
        """

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one event that somebody else took out of the stream, or of a whole response.

        Raises:
            BrokenStream: it is an error, or no event of this API.
        """

    def whole(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response that came in one piece.

        Raises:
            BrokenStream: it is no response of this API.
        """

    def finished(self) -> Finished | None:
        """What ends the response, or None where it is not whole."""


class Api(Protocol):
    """How one model is asked in one API; what it encoded once it keeps."""

    name: str
    """``chat`` or ``responses``."""
    path: str
    """Below the base URL."""

    def owner(self, host: str) -> str:
        """The name of what this server wants back in this API: another API of it reads other data."""

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request.

        Args:
            request: what to encode.
            provider: whose server it goes to: data of that name go back, that of others is left out.
        """

    def parser(self, provider: str) -> Parser:
        """What reads the answer, and names its data after the provider."""

    def typed(self, client: Any) -> Any:
        """The client's own method for it, for clients that want to look into the body."""

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse a hosted tool that this API has not.

        Raises:
            ModelConfigError: saying what to do.
        """

    def give_way(self, refusal: Refusal) -> None:
        """Ask in another way from now on, where the server refused a field by its name and there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every exchange of one model."""

    name: str
    """What errors and notes call it."""
    model: str
    """What its server calls it."""
    api: Api
    provider: Provider | None
    """Whose key is sent; None where the client is somebody's own."""
    limits: RateLimit
    max_wait: float
    """Seconds that a server may tell a request to wait."""
    sees: bool
    """Whether it takes pictures."""
    has_known_prices: bool
    """Whether the prices that are known are those of its requests."""


class Exchange:
    """One request to the server of one client."""

    def __init__(self, terms: Terms, clients: Clients, request: Request, keyring: Keyring) -> None:
        self._terms = terms
        self._clients = clients
        self._request = request
        self._keyring = keyring
        self._credentials = keyring.all
        """What no text of it may tell."""

    async def deltas(self) -> AsyncGenerator[ModelDelta, None]:
        """The answer; one that breaks off is asked for again.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server refused or failed, and retrying did not help.
        """
        client = self._client = await self._clients.get()
        self._host = host_of(client)
        self._owner = self._terms.api.owner(self._host)
        """Whose data in the history go along, and whose come back."""
        self._other = _answered_last(self._request, self._owner)
        self._retries: int = getattr(client, "max_retries", DEFAULT_RETRIES)
        self._credentials = self._keyring.of(client, self._request.hosted)
        ticket = self._terms.limits.ticket()
        again, breaks = _Again(self._body()), 0
        try:
            while True:
                ticket.guess(len(again.body))
                if again.pause is not None or ticket.why_not() is not None:
                    async with aclosing(_until_it_goes(ticket, again.pause)) as waits:
                        async for waiting in waits:
                            yield waiting
                answer = await self._ask(again)
                if isinstance(answer, _Again):
                    again = answer
                    continue
                # a key may be a function, which was called by now
                self._credentials = self._keyring.of(client, self._request.hosted)
                public = StreamCut(self._credentials)
                parser = self._terms.api.parser(self._owner)
                for note in self._notes():
                    yield Notice(note)
                try:
                    if await _is_in_one(answer):
                        for delta in public.cut(await _whole(answer, parser, _idle(client))):
                            yield delta
                    else:
                        streamed = _streamed(answer, parser, public, _idle(client))
                        async with aclosing(streamed) as deltas:
                            async for delta in deltas:
                                yield delta
                    for delta in [*public.rest(), *public.cut([self._end(parser, ticket)])]:
                        yield delta
                except BrokenStream as error:
                    reason, may_help = self._credentials.cut(str(error)), error.again
                    hint = self._hint() if error.said else ""
                else:
                    return
                self._check_repeats(breaks, reason + hint, may_help=may_help)
                ticket.leave()
                yield Discarded(reason)
                await asyncio.sleep(backoff(breaks))
                again, breaks = _Again(self._body()), breaks + 1
        finally:
            ticket.leave()

    def _body(self) -> bytes:
        return self._terms.api.body(self._request, self._owner)

    async def _ask(self, request: _Again) -> Any:
        """Send the request: its answer, or how it is sent again.

        Raises:
            ModelError: the server refused, and asking again is no use.
        """
        body, tries, _ = request
        try:
            return await send(self._client, self._terms.api, body)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is not None:
                self._terms.api.give_way(refusal)
                other = self._body()
                if other != body:  # whoever has found another way, it is tried
                    return _Again(other, tries)
            pause = pause_after(error, tries)
            is_over = pause is None or tries >= self._retries
            if pause is not None and not is_over and pause.seconds <= self._terms.max_wait:
                return _Again(body, tries + 1, pause)
            refused = self._refused(error, pause)
        raise refused  # here, with no traceback of what it was made of

    def _check_repeats(self, breaks: int, reason: str, *, may_help: bool) -> None:
        """Refuse to ask once more for an answer that broke off.

        Raises:
            ModelError: that is no use, or was done often enough; without its cause, which has what was said.
        """
        if breaks == self._retries or not may_help:
            raise ModelError(f"The model {self._terms.name!r}: {reason}")

    def _refused(self, error: Exception, pause: Pause | None) -> NbagentError:
        said = explained(
            error,
            model=self._terms.name,
            base_url=str(getattr(self._client, "base_url", "its base_url")),
            credentials=self._keyring.of(self._client, self._request.hosted),
            provider=self._terms.provider,
            api=self._terms.api.name,
            wait=pause.seconds if pause is not None and pause.told else 0,
            max_wait=self._terms.max_wait,
        )
        hint = self._hint() if refused_for_content(error) else ""
        return type(said)(f"{said}{hint}") if hint else said

    def _hint(self) -> str:
        """What may help where a server refused pictures; nothing where there are none."""
        told = self._terms.sees and has_images(self._request.messages)
        return f"; {BLIND_HINT}" if told else ""

    def _notes(self) -> list[str]:
        """What the person should know of this answer before it begins."""
        terms, other = self._terms, self._other
        blind = None if terms.sees else blind_note(terms.name, self._request.messages)
        notes = [] if blind is None else [blind]
        if other is not None and other.wants:
            notes.append(LEFT_OUT.format(other=other.name, provider=self._owner))
        return notes

    def _end(self, parser: Parser, ticket: Ticket) -> Finished:
        """What ends the answer, with whose it is and what it cost.

        Where another provider answered last, it says whose it is, so that the note on that comes once. Where
        the server named no cost, prices tell; no price has hosted tools in it.

        Raises:
            BrokenStream: it is not whole.
        """
        end = parser.finished()
        if end is None:
            raise BrokenStream("the server's answer ended in the middle")
        usage, terms = end.usage, self._terms
        tokens = usage.total_tokens
        ticket.used(tokens)
        if end.provider is None and self._other is not None:
            end = end._replace(provider={"name": self._owner})
        is_known = terms.has_known_prices and not self._request.hosted
        if usage.cost is not None or not tokens or not is_known:
            return end
        served = end.model if isinstance(end.model, str) else None
        price = price_of(self._host, served, terms.model)
        if price is None:
            return end
        return end._replace(usage=replace(usage, cost=price.of(usage)))


class _Again(NamedTuple):
    """A request, and how it is sent."""

    body: bytes
    tries: int = 0
    """How often the server has failed it."""
    pause: Pause | None = None
    """How long to wait before."""


def host_of(client: Any) -> str:
    """The host that a client asks, by which data in a history are told apart."""
    url = getattr(client, "base_url", None)
    return str(getattr(url, "host", url))


class _Other(NamedTuple):
    """Another provider, by the last answer that says whose it is."""

    name: str
    wants: bool
    """Whether that answer has what only it reads."""


def _answered_last(request: Request, provider: str) -> _Other | None:
    """The other provider that answered last, or None where this one did, or nobody knows."""
    said = next((each for each in reversed(request.messages) if "provider" in each), None)
    own = None if said is None else said["provider"]
    if said is None or own is None or own["name"] == provider:
        return None
    wants = "data" in own or any("provider" in call for call in calls_of(said))
    return _Other(own["name"], wants)


def _idle(client: Any) -> float | None:
    """The seconds for which a client waits for the server's next bytes, or None for as long as it takes."""
    said = getattr(client, "timeout", None)
    seconds = getattr(said, "read", said)
    return seconds if isinstance(seconds, int | float) else None


async def _until_it_goes(ticket: Ticket, pause: Pause | None) -> AsyncGenerator[Waiting, None]:
    """Wait as a refusal says, and until a request may go, telling for how long whenever that is new."""
    if pause is not None and pause.for_all:
        ticket.refused(pause.seconds, pause.reason)
    elif pause is not None:
        ticket.leave()
        if pause.seconds >= WORTH_TELLING:
            yield Waiting(pause.seconds, pause.reason)
        await asyncio.sleep(pause.seconds)
    told: tuple[float, str] | None = None
    while (wait := ticket.why_not()) is not None:
        end = time.monotonic() + wait.seconds if wait.seconds else 0.0
        is_new = told is None or wait.reason != told[1] or abs(end - told[0]) > WORTH_TELLING
        if is_new and not 0 < wait.seconds < WORTH_TELLING:
            told = end, wait.reason
            yield Waiting(wait.seconds, wait.reason)
        await ticket.wait(wait.seconds)


# --- sending and reading


async def send(client: Any, api: Api, body: bytes) -> Any:
    """Send a request; returns its answer, not read yet.

    Raises:
        openai.OpenAIError: it failed. It is tried once: whoever calls knows when to try again.
    """
    if not is_lean(client):
        once = client.with_options(max_retries=0) if hasattr(client, "with_options") else client
        return await _send_typed(api.typed(once), body)
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    sending = client.post(
        api.path,
        content=body,
        # the raw response: no type is built, and a stream is left for us to read
        cast_to=httpx2.Response,
        # also where the answer comes in one piece: how much of it is read is for us to say
        stream=True,
        stream_cls=_stream_class(),
        options={
            "max_retries": 0,
            "headers": {"Content-Type": "application/json", "Accept-Encoding": "identity"},
            "follow_redirects": False,  # neither key nor conversation go where nobody sent them
            # as the typed call says, for keys that are functions
            "security": {"bearer_auth": True},
        },
    )
    try:
        async with asyncio.timeout(_longest(client, len(body))):
            return await sending
    except TimeoutError as error:
        raise openai.APITimeoutError(httpx2.Request("POST", str(client.base_url))) from error


def _longest(client: Any, size: int) -> float | None:
    """Seconds until an answer has begun, or an error is read: all that the client may wait for, one after the other.

    A server that sends byte after byte would keep each of its waits short, and end none.
    """
    said = getattr(client, "timeout", None)
    steps = [getattr(said, name, said) for name in ("connect", "pool", "write", "read")]
    numbers = [step for step in steps if isinstance(step, int | float)]
    return sum(numbers) + size / SLOWEST if len(numbers) == len(steps) else None


def is_lean(client: Any) -> bool:
    """Whether this client takes a body as bytes."""
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    return not isinstance(client, openai.AsyncAzureOpenAI) and _takes_bytes(client.__class__)


@cache
def _stream_class() -> Any:
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    return openai.AsyncStream[Any]


@cache
def _takes_bytes(kind: type) -> bool:
    post = getattr(kind, "post", None)
    return post is not None and "content" in inspect.signature(post).parameters


async def _is_in_one(answer: Any) -> bool:
    """Whether an answer comes in one piece and not as a stream; from here on it is bounded."""
    if not hasattr(answer, "aiter_bytes"):
        return not hasattr(answer, "__aiter__")
    await bound(answer)
    kind = _kind(answer)
    return "json" in kind or "html" in kind


def _kind(response: Any) -> str:
    stream = response.stream
    kind: str = (
        stream.kind if isinstance(stream, Bounded) else response.headers.get("content-type", "")
    )
    return kind


def _bytes(response: Any) -> Any:
    """The bytes of a response as they come; its client has nothing to unpack any more."""
    if isinstance(response.stream, Bounded) and not response.is_stream_consumed:
        return aiter(response.stream)
    return response.aiter_bytes()


async def _whole(answer: Any, parser: Parser, idle: float | None) -> list[ModelDelta]:
    """Read an answer that comes in one piece; before it, a server may send blank lines to stay alive.

    Raises:
        BrokenStream: the connection broke, nothing else came for ``idle`` seconds, or not the rest of it
            once it had begun; or it is no answer.
    """
    if not hasattr(answer, "aiter_bytes"):
        return parser.chunk(answer.model_dump())
    batch: list[ModelDelta] = []
    try:
        try:
            if "html" in (kind := _kind(answer)):
                raise BrokenStream(
                    f"{answer.url} answered with a web page ({kind}), not with a model's answer. base_url is probably wrong. "
                    "Does it end in /v1?",
                    again=False,
                )
            pieces: list[bytes] = []
            said, begun = monotonic(), False
            async with aclosing(_bytes(answer)) as arriving:
                async for data in arriving:
                    pieces.append(data)
                    if not begun and not data.isspace():
                        said, begun = monotonic(), True
                    elif idle is not None and monotonic() - said > idle:
                        raise BrokenStream(
                            (NOT_ALL if begun else NOTHING_SAID).format(seconds=idle)
                        )
            batch = parser.whole(b"".join(pieces))
        finally:
            await answer.aclose()
    except transport_errors() as error:
        if parser.finished() is None:
            raise BrokenStream(broken(error)) from error
        # all of the answer came, the connection broke behind it
    return batch


async def _streamed(
    answer: Any, parser: Parser, public: StreamCut, idle: float | None
) -> AsyncGenerator[ModelDelta, None]:
    """Read a stream, and close it.

    Args:
        answer: what ``send`` returned.
        parser: what makes deltas of it.
        public: what cuts credentials from them.
        idle: seconds without a delta after which the answer counts as broken, whatever comes.

    Raises:
        BrokenStream: the connection broke, or what came is no answer.
    """
    if not hasattr(answer, "aiter_bytes"):
        async with aclosing(_typed_batches(answer, parser, idle)) as batches:
            async for batch in batches:
                for delta in public.cut(batch):
                    yield delta
        return
    try:
        try:
            said = monotonic()  # silence is the client's to notice, and what says nothing ours
            async with aclosing(_bytes(answer)) as pieces:
                async for data in pieces:
                    batch = parser.feed(data)
                    if batch:
                        for delta in public.cut(batch):
                            yield delta
                        said = monotonic()
                    elif idle is not None and monotonic() - said > idle:
                        raise BrokenStream(NOTHING_SAID.format(seconds=idle))
                    if parser.done:
                        await _drain(pieces)
                        break
        finally:
            await answer.aclose()
    except transport_errors() as error:
        if parser.finished() is None:
            raise BrokenStream(broken(error)) from error
        # all of the answer came, the connection broke behind it


async def _typed_batches(
    chunks: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read a stream that its client takes apart, in batches of what arrived together, and close it."""
    arriving = aiter(chunks)
    try:
        while True:
            try:
                async with asyncio.timeout(idle):
                    chunk = await anext(arriving)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise BrokenStream(NOTHING_SAID.format(seconds=idle)) from error
            except transport_errors() as error:
                if parser.finished() is None:
                    raise BrokenStream(broken(error)) from error
                return
            yield parser.chunk(chunk.model_dump())
    finally:
        await chunks.close()


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass
    except TimeoutError:
        return  # the answer is whole; the connection is closed instead of used again


async def _send_typed(create: Any, body: bytes) -> Any:
    fields = json.loads(body)
    known = inspect.signature(create).parameters
    extra = {key: fields.pop(key) for key in list(fields) if key not in known}
    return await create(**fields, **({"extra_body": extra} if extra else {}))
