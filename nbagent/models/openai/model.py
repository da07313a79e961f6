"""Models behind the openai client: OpenAI's own and those of every server that speaks one of its two APIs.

The client keeps auth, pooling and status errors. The request's body is
joined from bytes (``encode``) and the response is parsed here (``parse``), because the
client's own walk over the history and its typed chunks are nine tenths of a loop's CPU.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.keywords import tells
from nbagent.core.base.model import Hosted, ModelDelta, Request
from nbagent.core.base.travel import Made, Travels, cannot_travel, made_anew
from nbagent.models.limits import RateLimit, limits_of
from nbagent.models.prices import price_of, says_cost

from .chat import ChatApi
from .client import Clients, make_client
from .credentials import Keyring
from .encoding import Settings, checked_mode, sees
from .exchange import Api, Exchange, Terms, host_of
from .providers import OWN_HOST, ApiName, OutputMode, OwnModels, address, own_models, provider_of
from .responses import ResponsesApi

RESERVED = ("model", "messages", "input", "instructions", "tools", "stream")
MAX_WAIT = 60.0
"""Seconds that a server may tell a request to wait."""
STANDARD = (None, "auto", "default", "standard")
"""The service tiers for which prices are known; others cost more or less."""


class OpenAIModel(Travels):
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
            raise ModelConfigError(
                f"nbagent sets {taken[0]!r} itself, so extra={{{taken[0]!r}: …}} is not allowed"
            )
        if client is not None:
            _check_client(
                client,
                base_url=None if _is_maker(client) else base_url,
                api_key=api_key,
                max_retries=max_retries,
                timeout=timeout,
            )
        self.name = name
        self._remade = partial(
            made_anew,
            OpenAIModel,
            name,
            base_url=base_url,
            client=client,
            temperature=temperature,
            max_retries=max_retries,
            timeout=timeout,
            output=output,
            vision=vision,
            extra=extra,
            api=api,
            tool_choice=tool_choice,
            max_wait=max_wait,
        )
        """What another process makes it from: without the key, which is in that process's environment."""
        where = _checked_url(base_url) or _base_url(client)
        self._provider, self._model = provider_of(
            name, base_url=where, has_client=client is not None
        )
        fields = {} if temperature is None else {"temperature": temperature}
        self._settings = Settings(
            self._model,
            {**fields, **(extra or {})},
            tool_choice,
            output=checked_mode(output or self._provider.output),
            sees=sees(self._model) if vision is None else vision,
        )
        self._said_api = checked_api(api)
        self._host = _host(where, client)
        self._limits = limits_of(limits, concurrency=concurrency, rpm=rpm, tpm=tpm)
        self._max_wait = checked_amount("max_wait", max_wait)
        self._has_known_prices = (extra or {}).get("service_tier") in STANDARD
        """Whether the prices that are known are those of its requests."""
        self._keyring = Keyring()
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
        if client is None or _is_maker(client):
            self._clients = Clients(client or make)
        else:
            self._clients = Clients(given=client)

    @cached_property
    def _api(self) -> Api:
        """As it was said, or else as the host and the name tell; known once it is first used."""
        if self._asked_host == OWN_HOST:
            known = own_models(self._model)
        else:
            known = OwnModels("*", "chat", reasons=own_models(self._model).reasons)
        if (known.api if self._said_api == "auto" else self._said_api) == "chat":
            return ChatApi(self._settings)
        return ResponsesApi(self._settings, reasons=known.reasons)

    @cached_property
    def _terms(self) -> Terms:
        return Terms(
            name=self.name,
            model=self._model,
            api=self._api,
            provider=None if self._own_client else self._provider,
            limits=self._limits,
            max_wait=self._max_wait,
            sees=self._settings.sees,
            has_known_prices=self._has_known_prices,
        )

    async def check_ready(self) -> None:
        """Refuse where no request can be sent from this process.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
        """
        await self._clients.get()

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse a hosted tool that this model's API has not.

        Raises:
            ModelConfigError: saying what to do.
        """
        self._api.check_hosted(tool)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> Made:
        client, url = (self._remade.keywords[name] for name in ("client", "base_url"))
        if client is not None and not _is_maker(client):
            cannot_travel(
                repr(self), "its client= has connections and a key; give a function that makes one"
            )
        if url and "@" in urlsplit(url).netloc:
            cannot_travel(repr(self), "its base_url= holds a password; give it without")
        return self._remade(limits=self._limits)

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
        known = self._has_known_prices and price_of(host, self._model) is not None
        return known or says_cost(host)

    def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request; a stream that breaks is repeated as often as the client retries.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server refused or failed, and retrying did not help.
        """
        return Exchange(self._terms, self._clients, request, self._keyring).deltas()

    def without_credentials(self, text: str) -> str:
        """The text without the keys and the other credentials of all that was asked so far."""
        return self._keyring.all.cut(text)

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
            f"client= is the synchronous {kind}, which would block the notebook. Pass "
            f"openai.Async{kind.removeprefix('Async')}(…) with the same settings"
        )
    given = [name for name, value in told.items() if value is not None]
    if given:
        raise ModelConfigError(
            f"Got both {given[0]}= and client=, which has its own. Set it when you create the client, or pass "
            f"client.with_options({given[0]}=…)"
        )


def _checked_url(base_url: str | None) -> str | None:
    """An address that says how it is reached.

    Raises:
        ModelConfigError: it does not.
    """
    if not base_url or base_url.startswith(("http://", "https://")):
        return base_url
    told = base_url.rpartition("@")[2].partition("?")[0]  # a key may stand around it
    raise ModelConfigError(f"base_url={told!r:.100} must begin with 'http://' or 'https://'")


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
    raise ModelConfigError(f"api must be 'auto', 'chat' or 'responses', got {api!r:.80}")


_ANYWHERE = "anywhere"


def _host(base_url: str | None, client: Any) -> str | None:
    """Where the model is, as far as that is said; None for where the environment says."""
    if client is not None and not _is_maker(client):
        return host_of(client)
    if base_url:
        return _hostname(base_url)
    return None if client is None else _ANYWHERE


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or _ANYWHERE
    except ValueError:  # the client says what is wrong with it
        return _ANYWHERE
