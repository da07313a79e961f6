"""Models behind the openai client: OpenAI's own, and those of every server that is compatible.

The client keeps auth, pooling, retries before a stream and status errors. The request's body is
joined from bytes (``encode``) and the response is parsed here (``parse``), because the
client's own walk over the history and its typed chunks are nine tenths of a loop's CPU.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.model import Discarded, Finished, ModelDelta, Request

from .api import Api, Parser
from .bounds import BrokenStream
from .chat.api import ChatApi
from .client import Clients, make_client
from .credentials import Credentials, StreamCut
from .errors import explained
from .names import provider_of
from .send import read, send

RESERVED = ("model", "messages", "tools", "stream")
DEFAULT_RETRIES = 2
"""How often a broken stream is repeated where the client does not say."""


class OpenAIModel:
    """A model of OpenAI, or of any server that speaks Chat Completions.

    Args:
        name: the model's name, as the server knows it; before it a provider and a colon, such as
            ``anthropic:``, where it is not OpenAI's.
        base_url: where the server is, up to and including ``/v1``; the provider's where not given.
        api_key: the key; where not given, the provider's environment variable, such as
            ``OPENAI_API_KEY``. A server given by ``base_url`` may need none.
        client: an ``AsyncOpenAI`` (or Azure's) to use as it is, on one event loop only and closed by
            whoever made it; or a function that makes one, called once per event loop.
        temperature: the sampling temperature, from 0 to 2.
        max_retries: how often a failed request or a broken stream is repeated; the client's 2.
        timeout: seconds to wait for the server's next bytes; the client's 600.
        extra: more fields of the request, such as ``{"reasoning_effort": "low"}``.

    Raises:
        ModelConfigError: ``extra`` holds a field that nbagent sets itself, the name is no model's, or
            ``client`` can't be used or is given with what it has itself.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        temperature: float | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        taken = [key for key in extra or {} if key in RESERVED]
        if taken:
            raise ModelConfigError(f"extra={{{taken[0]!r}: …}}: nbagent sets {taken[0]!r} itself")
        if client is not None:
            _check_client(
                client,
                base_url=base_url,
                api_key=api_key,
                max_retries=max_retries,
                timeout=timeout,
            )
        self.name = name
        where = base_url or _base_url(client)
        self._provider, model = provider_of(name, base_url=where, has_client=client is not None)
        fields = {} if temperature is None else {"temperature": temperature}
        self._api: Api = ChatApi(model, {**fields, **(extra or {})})
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

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    async def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request; a stream that breaks is repeated as often as the client retries.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server refused or failed, and retrying did not help.
        """
        client = self._client if self._client is not None else await self._clients.get()
        retries = getattr(client, "max_retries", DEFAULT_RETRIES)
        for attempt in range(retries + 1):
            provider = _provider(client)
            parser = self._api.parser(provider)
            self._credentials = Credentials.of(client)
            answer = await self._send(client, request, provider)
            # a key may be a function, which was called by now
            self._credentials = credentials = Credentials.of(client)
            public = StreamCut(credentials)
            try:
                async with aclosing(read(answer, parser)) as batches:
                    async for batch in batches:
                        for delta in public.cut(batch):
                            yield delta
                for delta in public.rest():
                    yield delta
                yield _end(parser)
            except BrokenStream as error:
                reason, again = credentials.cut(str(error)), error.again
            else:
                return
            if attempt == retries or not again:  # without its cause, which has what the server said
                raise ModelError(f"the model {self.name!r}: {reason}")
            yield Discarded(reason)
            await self._wait(attempt)

    async def _send(self, client: Any, request: Request, provider: str) -> Any:
        body = self._api.body(request, provider)
        while True:
            refused, body_before = None, body
            try:
                return await send(client, self._api, body)
            except Exception as error:
                if self._api.gives_way(error):
                    body = self._api.body(request, provider)
                if body == body_before:
                    base_url = str(getattr(client, "base_url", "its base_url"))
                    credentials = Credentials.of(client)
                    refused = explained(
                        error,
                        model=self.name,
                        base_url=base_url,
                        credentials=credentials,
                        provider=None if self._own_client else self._provider,
                    )
            if refused is not None:  # here, with no traceback of what it was made of
                raise refused

    async def _wait(self, attempt: int) -> None:
        # the client's own backoff
        await asyncio.sleep(min(0.5 * 2**attempt, 8) * random.uniform(0.75, 1))

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


def _provider(client: Any) -> str:
    """Whose server a client asks: its host, by which data in a history are told apart."""
    url = getattr(client, "base_url", None)
    return str(getattr(url, "host", url))


def _end(parser: Parser) -> Finished:
    finished = parser.finished()
    if finished is None:
        raise BrokenStream("the server's answer ended in the middle")
    return finished
