"""Models behind the openai client: OpenAI's own and those of every server that speaks one of its two APIs.

The client keeps auth, pooling and status errors. The request's body is
joined from bytes (``encode``) and the response is parsed here (``parse``), because the
client's own walk over the history and its typed chunks are nine tenths of a loop's CPU.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import ModelConfigError, ModelError, NbagentError
from nbagent.core.base.keywords import tells
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
from nbagent.models.limits import RateLimit, Turn, limits_of
from nbagent.models.prices import price_of, says_cost

from .api import Api, Parser
from .bounds import BrokenStream
from .chat.api import ChatApi
from .client import Clients, make_client
from .credentials import Credentials, StreamCut
from .errors import explained, refused_for_content
from .files import BLIND_HINT, blind_note, has_images, sees
from .names import address, provider_of
from .output import checked_mode
from .providers import OWN_HOST, ApiName, OutputMode, OwnModels, own_models
from .responses.api import ResponsesApi
from .retries import Pause, backoff, pause_after
from .send import read, send

LEFT_OUT = (
    "{provider} answers from here: what only {other:.100} reads of its earlier answers, such as their "
    "reasoning, is left out."
)
RESERVED = ("model", "messages", "input", "instructions", "tools", "stream")
DEFAULT_RETRIES = 2
"""How often a request or a broken stream is repeated where the client does not say."""
MAX_WAIT = 60.0
"""Seconds that a server may tell a request to wait."""
WORTH_TELLING = 0.5
"""Seconds of waiting from which a person is told."""
STANDARD = (None, "auto", "default", "standard")
"""The service tiers for which prices are known; others cost more or less."""


class OpenAIModel:
    """A model of OpenAI, or of any server that speaks Chat Completions or Responses.

    Args:
        name: the model's name, as the server knows it; before it a provider and a colon, such as
            ``anthropic:``, where it is not OpenAI's.
        base_url: where the server is, up to and including ``/v1``; the provider's where not given.
        api_key: the key; where not given, the provider's environment variable, such as
            ``OPENAI_API_KEY``. A server given by ``base_url`` may need none.
        client: an ``AsyncOpenAI`` (or Azure's) to use as it is, on one event loop only and closed by
            whoever made it; or a function that makes one, called once per event loop, beside which
            ``base_url`` may say where that asks.
        temperature: the sampling temperature, from 0 to 2.
        max_retries: how often a failed request or a broken stream is repeated; the client's 2.
        timeout: seconds to wait for more of the answer, whatever else the server sends; the client's 600.
        extra: more fields of the request, such as ``{"reasoning_effort": "low"}``; in Responses, objects
            are merged into what is sent anyway.
        api: ``"chat"`` for Chat Completions, ``"responses"`` for Responses; ``"auto"`` takes Responses for
            those models of OpenAI's own server that want it, and Chat Completions for all else, and for a
            ``client`` that is yet to be made.
        tool_choice: ``"auto"``, ``"none"``, ``"required"`` or a tool's name; the last two hold for the first
            answer to what a person says, after results the model is free.
        output: how the server is told the shape of a typed answer: by its ``"schema"``, in JSON mode
            (``"object"``) or in words alone (``"prompt"``); where not given, as is known of it. One that refuses a way is asked in the next.
        concurrency: how many requests may be under way at a time, of all agents with this model.
        rpm: how many may begin within any minute.
        tpm: how many tokens they may take within any minute.
        limits: instead of these three, an ``nb.RateLimit`` that several models share.
        max_wait: seconds that a server may tell a request to wait; where it is longer, that is an error
            at once.
        vision: whether the model sees pictures; by its name where not given. One that does not is told of them
            in words, and so are you.

    Raises:
        ModelConfigError: ``extra`` holds a field that nbagent sets itself, ``api`` is none of the three, the
            name is no model's, or ``client`` can't be used or is given with what it has itself.
        UsageError: a limit is no number that it can be.
    """

    @tells("nb.OpenAIModel")
    def __init__(  # noqa: PLR0913 - keyword-only, one for each documented part
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        temperature: float | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
        output: OutputMode | None = None,
        vision: bool | None = None,
        extra: Mapping[str, Any] | None = None,
        api: ApiName | Literal["auto"] = "auto",
        tool_choice: str | None = None,
        concurrency: int | None = None,
        rpm: int | None = None,
        tpm: int | None = None,
        limits: RateLimit | None = None,
        max_wait: float = MAX_WAIT,
    ) -> None:
        taken = [key for key in extra or {} if key in RESERVED]
        if taken:
            raise ModelConfigError(f"extra={{{taken[0]!r}: …}}: nbagent sets {taken[0]!r} itself")
        if client is not None:
            _check_client(
                client,
                base_url=None if _is_maker(client) else base_url,
                api_key=api_key,
                max_retries=max_retries,
                timeout=timeout,
            )
        self.name = name
        where = base_url or _base_url(client)
        self._provider, self._model = provider_of(
            name, base_url=where, has_client=client is not None
        )
        fields = {} if temperature is None else {"temperature": temperature}
        self._fields = {**fields, **(extra or {})}
        self._said_api = checked_api(api)
        self._tool_choice = tool_choice
        self._output = checked_mode(output or self._provider.output)
        self._sees = sees(self._model) if vision is None else vision
        self._host = _host(where, client)
        self._limits = limits_of(limits, concurrency=concurrency, rpm=rpm, tpm=tpm)
        self._max_wait: float = checked_amount("max_wait", max_wait)
        self._is_standard = (extra or {}).get("service_tier") in STANDARD
        """Whether the prices that are known are those of its requests."""
        self._credentials = Credentials([])
        """Of the client as it was last used."""
        self._client = None if client is None or _is_maker(client) else client
        make: Callable[[], Any] = partial(
            make_client,
            name,
            self._provider,
            base_url=base_url,
            api_key=api_key,
            max_retries=max_retries,
            timeout=timeout,
        )
        self._own_client = client is not None
        self._clients = Clients(client if _is_maker(client) else make)

    @cached_property
    def _api(self) -> Api:
        """As it was said, or else as the host and the name tell; known once it is first used."""
        if self._asked_host == OWN_HOST:
            known = own_models(self._model)
        else:
            known = OwnModels("*", "chat", reasons=own_models(self._model).reasons)
        if (known.api if self._said_api == "auto" else self._said_api) == "chat":
            return ChatApi(
                self._model,
                self._fields,
                tool_choice=self._tool_choice,
                output=self._output,
                sees=self._sees,
            )
        return ResponsesApi(
            self._model,
            self._fields,
            reasons=known.reasons,
            tool_choice=self._tool_choice,
            sees=self._sees,
            output=self._output,
        )

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse a hosted tool that this model's API has not.

        Raises:
            ModelConfigError: saying what to do.
        """
        self._api.check_hosted(tool)

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    @property
    def _asked_host(self) -> str:
        """Where it is asked, as far as that is known before it is."""
        try:
            return self._host or _hostname(address(self._provider) or "")
        except ModelConfigError:  # the first request will say so
            return _ANYWHERE

    @property
    def tells_cost(self) -> bool:
        """Whether each response will say what it cost: its server tells, or its price is known."""
        host = self._asked_host
        known = self._is_standard and price_of(host, self._model) is not None
        return known or says_cost(host)

    async def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request; a stream that breaks is repeated as often as the client retries.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server refused or failed, and retrying did not help.
        """
        client = self._client if self._client is not None else await self._clients.get()
        retries = getattr(client, "max_retries", DEFAULT_RETRIES)
        turn = self._limits.turn()
        try:
            for attempt in range(retries + 1):
                try:
                    async with aclosing(self._attempt(client, request, turn, retries)) as batches:
                        async for batch in batches:
                            for delta in batch:
                                yield delta
                except BrokenStream as error:
                    reason, again = self._credentials.cut(str(error)), error.again
                else:
                    return
                if attempt == retries or not again:  # without its cause, which has what was said
                    raise ModelError(f"the model {self.name!r}: {reason}")
                turn.leave()
                yield Discarded(reason)
                await asyncio.sleep(backoff(attempt))
        finally:
            turn.leave()

    async def _attempt(
        self, client: Any, request: Request, turn: Turn, retries: int
    ) -> AsyncGenerator[list[ModelDelta], None]:
        """Ask once, in batches of what arrived together.

        Raises:
            BrokenStream: the answer broke off.
        """
        host = _provider(client)
        provider = self._api.owner(host)
        other = _answered_last(request, provider)
        parser = self._api.parser(provider)
        self._credentials = Credentials.of(client, request.hosted)
        answer: Any = None
        async with aclosing(self._send(client, request, turn, retries)) as steps:
            async for answer in steps:
                if isinstance(answer, Waiting):
                    yield [answer]
        # a key may be a function, which was called by now
        self._credentials = Credentials.of(client, request.hosted)
        public = StreamCut(self._credentials)
        blind = None if self._sees else blind_note(self.name, request.messages)
        if blind is not None:
            yield [Notice(blind)]
        if other is not None and other.wants:
            yield [Notice(LEFT_OUT.format(other=other.name, provider=provider))]
        async with aclosing(read(answer, parser, _idle(client))) as batches:
            async for batch in batches:
                yield public.cut(batch)
        yield public.rest()
        end = _end(parser)
        turn.used(end.usage.total_tokens)
        if other is not None and end.provider is None:
            end = end._replace(provider={"name": provider})  # so that the note stands once
        yield public.cut([end if request.hosted else self._priced(end, host)])

    async def _send(
        self, client: Any, request: Request, turn: Turn, retries: int
    ) -> AsyncGenerator[Any, None]:
        """Each ``Waiting`` as it begins, and at last the answer.

        Raises:
            ModelError: the server refused, and so it did each time that it was asked again.
        """
        provider, tries = self._api.owner(_provider(client)), 0
        body = self._api.body(request, provider)
        while True:
            turn.guess(len(body))
            async with aclosing(_until_it_goes(turn)) as waits:
                async for waiting in waits:
                    yield waiting
            refused, pause, body_before = None, None, body
            try:
                answer = await send(client, self._api, body)
            except Exception as error:
                if self._api.gives_way(error):
                    body = self._api.body(request, provider)
                if body == body_before:
                    pause = pause_after(error, tries)
                    if pause is None or tries >= retries or pause.seconds > self._max_wait:
                        refused = self._refused(error, client, request, pause)
            else:
                yield answer
                return
            if refused is not None:  # here, with no traceback of what it was made of
                raise refused
            if pause is None:
                continue
            tries += 1
            if pause.for_all:
                turn.refused(pause.seconds, pause.reason)
                continue
            turn.leave()
            if pause.seconds >= WORTH_TELLING:
                yield Waiting(pause.seconds, pause.reason)
            await asyncio.sleep(pause.seconds)

    def _refused(
        self, error: Exception, client: Any, request: Request, pause: Pause | None
    ) -> NbagentError:
        said = explained(
            error,
            model=self.name,
            base_url=str(getattr(client, "base_url", "its base_url")),
            credentials=Credentials.of(client, request.hosted),
            provider=None if self._own_client else self._provider,
            api=self._api.name,
            wait=pause.seconds if pause is not None and pause.told else 0,
            max_wait=self._max_wait,
        )
        if self._sees and refused_for_content(error) and has_images(request.messages):
            return type(said)(f"{said}; {BLIND_HINT}")
        return said

    def _priced(self, finished: Finished, provider: str) -> Finished:
        """With what it cost, where the server did not say; what it did beside is not in the prices."""
        usage = finished.usage
        if usage.cost is not None or not usage.total_tokens or not self._is_standard:
            return finished
        served = finished.model if isinstance(finished.model, str) else None
        price = price_of(provider, served, self._model)
        if price is None:
            return finished
        return finished._replace(usage=replace(usage, cost=price.of(usage)))

    def without_credentials(self, text: str) -> str:
        """The text without the key and the other credentials of the client as it was last used."""
        return self._credentials.cut(text)

    async def aclose(self) -> None:
        """Close the connections; a client that was passed in stays open."""
        await self._clients.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _is_maker(client: Any) -> bool:
    return isinstance(client, type) or (callable(client) and not hasattr(client, "chat"))


def _check_client(client: Any, **told: Any) -> None:
    """Refuse what cannot be asked without blocking, and settings that nobody would look at.

    Raises:
        ModelConfigError: naming what to give instead.
    """
    openai = sys.modules.get("openai")  # whoever has a client has loaded it
    kinds = client.__mro__ if isinstance(client, type) else type(client).__mro__
    if openai is not None and openai.OpenAI in kinds:
        kind = type(client).__name__ if not isinstance(client, type) else client.__name__
        raise ModelConfigError(
            f"client= is the synchronous {kind}, which would stop the notebook while it waits: "
            f"give openai.Async{kind.removeprefix('Async')}(…) with the same settings"
        )
    given = [name for name, value in told.items() if value is not None]
    if given:
        raise ModelConfigError(
            f"{given[0]}= is given with client=, which has its own: "
            f"make the client with it, or give client.with_options({given[0]}=…)"
        )


def _base_url(client: Any) -> str | None:
    """Where a client asks, if it says so."""
    url = None if _is_maker(client) else getattr(client, "base_url", None)
    return None if url is None else str(url)


def checked_api(api: Any) -> str:
    """One of the names that ``api=`` takes.

    Raises:
        ModelConfigError: it is none.
    """
    if api in ("auto", "chat", "responses"):
        return str(api)
    raise ModelConfigError(f"api is 'auto', 'chat' or 'responses', not {api!r:.80}")


_ANYWHERE = "anywhere"


def _host(base_url: str | None, client: Any) -> str | None:
    """Where the model is, as far as that is said; None for where the environment says."""
    if client is not None and not _is_maker(client):
        return _provider(client)
    if base_url:
        return _hostname(base_url)
    return None if client is None else _ANYWHERE


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or _ANYWHERE
    except ValueError:  # the client says what is wrong with it
        return _ANYWHERE


def _provider(client: Any) -> str:
    """Whose server a client asks: its host, by which data in a history are told apart."""
    url = getattr(client, "base_url", None)
    return str(getattr(url, "host", url))


class _Other(NamedTuple):
    """Another provider, by the last answer that says whose it is."""

    name: str
    wants: bool
    """Whether that answer has what only it reads."""


def _answered_last(request: Request, provider: str) -> _Other | None:
    """The other provider that answered last, or None where this one did, or nobody knows."""
    for message in reversed(request.messages):
        own = message.get("provider")
        if own is not None:
            wants = "data" in own or any("provider" in call for call in calls_of(message))
            return None if own["name"] == provider else _Other(own["name"], wants)
    return None


def _idle(client: Any) -> float | None:
    """The seconds for which a client waits for the server's next bytes, or None for as long as it takes."""
    said = getattr(client, "timeout", None)
    seconds = getattr(said, "read", said)
    return seconds if isinstance(seconds, int | float) else None


async def _until_it_goes(turn: Turn) -> AsyncGenerator[Waiting, None]:
    """Wait for a request's turn, telling for how long whenever that is new."""
    told: tuple[float, str] | None = None
    while (wait := turn.why_not()) is not None:
        end = time.monotonic() + wait.seconds if wait.seconds else 0.0
        is_new = told is None or wait.reason != told[1] or abs(end - told[0]) > WORTH_TELLING
        if is_new and not 0 < wait.seconds < WORTH_TELLING:
            told = end, wait.reason
            yield Waiting(wait.seconds, wait.reason)
        await turn.wait(wait.seconds)


def _end(parser: Parser) -> Finished:
    finished = parser.finished()
    if finished is None:
        raise BrokenStream("the server's answer ended in the middle")
    return finished
