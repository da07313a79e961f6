"""Models behind the openai client: OpenAI's own and every server that speaks one of its two APIs.

The client keeps auth, pooling, retries before a stream and status errors. The request's body is
joined from bytes (``encode``) and the response is parsed here (``parse``), because the
client's own walk over the history and its typed chunks are nine tenths of a loop's CPU.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.messages import calls_of
from nbagent.core.base.model import Discarded, Finished, Hosted, ModelDelta, Notice, Request

from .api import Api, Parser
from .bounds import BrokenStream
from .chat.api import ChatApi
from .client import Clients, make_client
from .credentials import Credentials, StreamCut
from .errors import explained
from .providers import OWN_HOST, ApiName, OwnModels, own_models
from .responses.api import ResponsesApi
from .send import read, send

LEFT_OUT = (
    "Answers of {other:.100} in this conversation have data that only its models read: they are left out, "
    "as {provider} answers now."
)
RESERVED = ("model", "messages", "input", "instructions", "tools", "stream")
DEFAULT_RETRIES = 2
"""How often a broken stream is repeated where the client does not say."""


class OpenAIModel:
    """A model of OpenAI, or of any server that speaks Chat Completions or Responses.

    Args:
        name: the model's name, as the server knows it.
        base_url: where the server is, up to and including ``/v1``; OpenAI where not given.
        api_key: the key; where not given, the environment variable ``OPENAI_API_KEY``. A server given
            by ``base_url`` may need none.
        client: an ``AsyncOpenAI`` (or Azure's) to use as it is, on one event loop only and closed by
            whoever made it; or a function that makes one, called once per event loop.
        temperature: the sampling temperature, from 0 to 2.
        max_retries: how often a failed request or a broken stream is repeated; the client's 2.
        timeout: seconds to wait for more of the answer, whatever else the server sends; the client's 600.
        extra: more fields of the request, such as ``{"reasoning_effort": "low"}``; in Responses, objects
            are merged into what is sent anyway.
        api: ``"chat"`` for Chat Completions, ``"responses"`` for Responses; ``"auto"`` takes Responses for
            those models of OpenAI's own server that want it, and Chat Completions for all else.
        tool_choice: ``"auto"``, ``"none"``, ``"required"`` or a tool's name; the last two hold for the first
            answer to what a person says, after results the model is free.

    Raises:
        ModelConfigError: ``extra`` holds a field that nbagent sets itself, or ``api`` is none of the three.
    """

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
        extra: Mapping[str, Any] | None = None,
        api: ApiName | Literal["auto"] = "auto",
        tool_choice: str | None = None,
    ) -> None:
        taken = [key for key in extra or {} if key in RESERVED]
        if taken:
            raise ModelConfigError(f"extra={{{taken[0]!r}: …}}: nbagent sets {taken[0]!r} itself")
        self.name = name
        fields = {} if temperature is None else {"temperature": temperature}
        self._fields = {**fields, **(extra or {})}
        self._said_api = checked_api(api)
        self._tool_choice = tool_choice
        self._base_url = base_url
        self._credentials = Credentials([])
        """Of the client as it was last used."""
        self._client = None if client is None or _is_maker(client) else client
        make: Callable[[], Any] = partial(
            make_client,
            name,
            base_url=base_url,
            api_key=api_key,
            max_retries=max_retries,
            timeout=timeout,
        )
        self._clients = Clients(client if _is_maker(client) else make)

    @cached_property
    def _api(self) -> Api:
        """As it was said, or else as the host and the name tell; known once it is first used."""
        host = _host(self._base_url, self._client)
        if host == OWN_HOST:
            known = own_models(self.name)
        else:
            known = OwnModels("*", "chat", reasons=own_models(self.name).reasons)
        if (known.api if self._said_api == "auto" else self._said_api) == "chat":
            return ChatApi(self.name, self._fields, tool_choice=self._tool_choice)
        return ResponsesApi(
            self.name, self._fields, reasons=known.reasons, tool_choice=self._tool_choice
        )

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse a hosted tool that this model's API has not.

        Raises:
            ModelConfigError: saying what to do.
        """
        self._api.check_hosted(tool)

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
            other = _answered_last(request, provider)
            parser = self._api.parser(provider)
            self._credentials = Credentials.of(client)
            answer = await self._send(client, request, provider)
            # a key may be a function, which was called by now
            self._credentials = credentials = Credentials.of(client)
            public = StreamCut(credentials)
            if other is not None and other.wants:
                yield Notice(LEFT_OUT.format(other=other.name, provider=provider))
            try:
                async with aclosing(read(answer, parser, _idle(client))) as batches:
                    async for batch in batches:
                        for delta in public.cut(batch):
                            yield delta
                for delta in public.rest():
                    yield delta
                end = _end(parser)
                if other is not None and end.provider is None:
                    end = end._replace(provider={"name": provider})  # so that the note stands once
                for delta in public.cut([end]):
                    yield delta
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
                        api=self._api.name,
                    )
            if refused is not None:  # here, with no traceback of what it was made of
                raise refused

    async def _wait(self, attempt: int) -> None:
        # the client's own backoff
        await asyncio.sleep(min(0.5 * 2**attempt, 8) * random.uniform(0.75, 1))

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
    return callable(client) and not hasattr(client, "chat")


def checked_api(api: Any) -> str:
    """One of the names that ``api=`` takes.

    Raises:
        ModelConfigError: it is none.
    """
    if api in ("auto", "chat", "responses"):
        return str(api)
    raise ModelConfigError(f"api is 'auto', 'chat' or 'responses', not {api!r:.80}")


def _host(base_url: str | None, client: Any) -> str | None:
    """Where the model is, as far as that is known before it is used."""
    if client is not None:
        return _provider(client)
    return urlsplit(base_url or os.environ.get("OPENAI_BASE_URL") or f"//{OWN_HOST}").hostname


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


def _end(parser: Parser) -> Finished:
    finished = parser.finished()
    if finished is None:
        raise BrokenStream("the server's answer ended in the middle")
    return finished
