"""Models through the openai client: OpenAI's own and those of every server with one of its two APIs.

The client does authentication, connection pooling and status errors. nbagent itself joins the
request's body from bytes and parses the response, because the client's encoding of the history
and its typed chunks would take nine tenths of the CPU time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from nbagent.core.base.amounts import amount, checked_amount
from nbagent.core.base.errors import ModelConfigError, UsageError
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import Hosted, ModelDelta, Request
from nbagent.core.base.pickling import Made, Travels, cannot_travel, made_anew
from nbagent.models.limits import RateLimit, limits_of
from nbagent.models.prices import price_of, reports_cost

from .chat import ChatApi
from .client import Clients, make_client
from .credentials import Keyring
from .encoding import MODES, Settings
from .exchange import STANDARD, Api, Exchange, ModelSettings, host_of
from .images import has_vision
from .providers import OWN_HOST, ApiName, OutputMode, address, own_models, provider_of
from .responses import ResponsesApi

RESERVED = ("model", "messages", "input", "instructions", "tools", "stream")
MAX_WAIT = 60.0
"""The maximum wait in seconds that a server may set."""


class OpenAIModel(Travels):
    """A model of OpenAI, or of any server with Chat Completions or Responses.

    Args:
        name: the model's name at the server; if the model is not OpenAI's, with a provider and a
            colon before the name, such as ``anthropic:``.
        base_url: the server's address, up to and including ``/v1``; by default the provider's.
        api_key: the key; by default the provider's environment variable, such as
            ``OPENAI_API_KEY``. A server in ``base_url`` may need none.
        client: an ``AsyncOpenAI`` (or Azure's), used on one event loop only and closed by
            its owner; or a function that creates one, called once per event loop. With a function,
            ``base_url`` can name the server.
        temperature: the sampling temperature, from 0 to 2.
        max_retries: the number of retries of a failed request or a broken stream; by default 2, as in the client.
        timeout: seconds to wait for more of the answer, even if the server sends other data; by default 600, as in
            the client.
        extra: additional fields of the request, such as ``{"reasoning_effort": "low"}``; in Responses, objects
            are merged into the request's own.
        api: ``"chat"`` for Chat Completions, ``"responses"`` for Responses; ``"auto"`` uses Responses for
            the models of OpenAI's own server that need it, and Chat Completions for all others, and for a
            ``client`` function.
        tool_choice: ``"auto"``, ``"none"``, ``"required"`` or a tool's name; the last two apply only to the first
            answer to a prompt, not after results.
        output: the form of a typed answer's schema: a ``"schema"`` field, JSON mode
            (``"object"``) or the prompt (``"prompt"``); by default the server's known form. If the server rejects
            a form, the next one is used.
        concurrency: the maximum number of running requests, of all agents with this model.
        rpm: the maximum number of requests per minute.
        tpm: the maximum number of tokens per minute.
        limits: instead of ``concurrency``, ``rpm`` and ``tpm``, an ``nb.RateLimit`` that several models share.
        max_wait: the maximum wait in seconds that a server may set; a longer one raises an error
            at once.
        vision: whether the model accepts pictures; by default from its name. Otherwise they are described
            in words, and a note tells you so.

    Raises:
        ModelConfigError: ``extra`` has a field that nbagent sets itself, ``api`` or the name is unknown, or
            ``client`` cannot be used or is combined with settings that the client has itself.
        UsageError: a limit, ``max_retries`` or ``timeout`` is invalid.
    """

    @checks_keywords("nb.OpenAIModel")
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
        of_client: dict[str, Any] = {
            "base_url": base_url,
            "max_retries": max_retries,
            "timeout": timeout,
        }
        is_maker = client is not None and _is_maker(client)
        if client is not None:
            own = {**of_client, "api_key": api_key}
            if is_maker:  # then it names the server
                del own["base_url"]
            _check_client(client, **own)
        _check_numbers(max_retries, timeout)
        self.name = name
        self._remade = partial(
            made_anew,
            OpenAIModel,
            name,
            **of_client,
            client=client,
            temperature=temperature,
            output=output,
            vision=vision,
            extra=extra,
            api=api,
            tool_choice=tool_choice,
            max_wait=max_wait,
        )
        """The arguments for another process; not the key, which the other process has in its environment."""
        where = _checked_url(base_url) or _base_url(client)
        self._provider, self._model = provider_of(
            name, base_url=where, has_client=client is not None
        )
        fields = {} if temperature is None else {"temperature": temperature}
        self._settings = Settings(
            self._model,
            {**fields, **(extra or {})},
            tool_choice,
            output=_checked("output", output or self._provider.output, MODES),
            call_ids=self._provider.call_ids,
            has_vision=has_vision(self._model) if vision is None else vision,
        )
        self._given_api = _checked("api", api, ("auto", "chat", "responses"))
        self._host = _host(where, client)
        self._limits = limits_of(limits, concurrency=concurrency, rpm=rpm, tpm=tpm)
        self._max_wait = checked_amount("max_wait", max_wait)
        self._has_known_prices = (extra or {}).get("service_tier") in STANDARD
        """Whether the known prices apply to the model's requests."""
        self._keyring = Keyring()
        self._has_given_client = client is not None
        if client is None:
            make = partial(make_client, name, self._provider, api_key=api_key, **of_client)
            self._clients = Clients(make)
        else:
            self._clients = Clients(client) if is_maker else Clients(given=client)

    @cached_property
    def _api(self) -> Api:
        """The API from the argument ``api``, or else from the host and the name; determined on first use."""
        known, api = own_models(self._model), self._given_api
        if api == "auto":
            api = known.api if self._asked_host == OWN_HOST else "chat"
        if api == "chat":
            return ChatApi(self._settings)
        return ResponsesApi(self._settings, reasons=known.reasons)

    @cached_property
    def _terms(self) -> ModelSettings:
        return ModelSettings(
            name=self.name,
            settings=self._settings,
            api=self._api,
            provider=None if self._has_given_client else self._provider,
            provider_name=self._provider.name,
            limits=self._limits,
            max_wait=self._max_wait,
            has_known_prices=self._has_known_prices,
        )

    async def check_ready(self) -> None:
        """Raise if this process cannot send a request.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
        """
        await self._clients.get()

    def check_hosted(self, tool: Hosted) -> None:
        """Raise if this model's API does not have the hosted tool.

        Raises:
            ModelConfigError: the API does not have the tool; the message says what to do.
        """
        self._api.check_hosted(tool)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> Made:
        client = self._remade.keywords["client"]
        if client is not None and not _is_maker(client):
            cannot_travel(
                repr(self),
                "its client= has connections and a key. Pass a function that creates the client",
            )
        return self._remade(limits=self._limits)

    @property
    def _asked_host(self) -> str:
        """The server's host, if it is known before the first request."""
        try:
            return self._host or _hostname(address(self._provider) or "")
        except ModelConfigError:  # the first request will raise the error
            return _ANYWHERE

    @property
    def reports_cost(self) -> bool:
        """Whether each response has a cost: the server reports it, or the model's price is known."""
        host = self._asked_host
        price = price_of(host, self._model, known_as=self._provider.name)
        return (self._has_known_prices and price is not None) or reports_cost(host)

    def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request; a broken stream is repeated as often as the client retries.

        Raises:
            ModelConfigError: there is no key, or the client is misconfigured.
            ModelError: the server rejected the request or failed, and retrying did not help.
        """
        return Exchange(self._terms, self._clients, request, self._keyring).deltas()

    def without_credentials(self, text: str) -> str:
        """Remove the keys and other credentials of all requests so far from a text."""
        return self._keyring.all.remove(text)

    async def aclose(self) -> None:
        """Close the connections; a client that you passed stays open."""
        await self._clients.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


def _is_maker(client: Any) -> bool:
    return isinstance(client, type) or (callable(client) and not hasattr(client, "chat"))


def _check_numbers(max_retries: Any, timeout: Any) -> None:
    """Check the retries and the timeout now; at the first request, they would look like errors of the server."""
    if max_retries is not None and (not isinstance(max_retries, int) or max_retries < 0):
        raise UsageError(f"max_retries must be an integer of at least 0, got {max_retries!r:.80}")
    if timeout is not None and not amount(timeout):
        raise UsageError(f"timeout must be a number of seconds above 0, got {timeout!r:.80}")


def _check_client(client: Any, **others: Any) -> None:
    """Check that a client is asynchronous, and that no setting would be ignored."""
    openai = sys.modules.get("openai")  # with a client, the library is already loaded
    kinds = client.__mro__ if isinstance(client, type) else type(client).__mro__
    if openai is not None and openai.OpenAI in kinds:
        kind = type(client).__name__ if not isinstance(client, type) else client.__name__
        raise ModelConfigError(
            f"client= is the synchronous {kind}, which would block the notebook. Pass "
            f"openai.Async{kind.removeprefix('Async')}(…) with the same settings"
        )
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ModelConfigError(
            f"Got both {given[0]}= and client=, which has its own. Set it when you create the client, or pass "
            f"client.with_options({given[0]}=…)"
        )


def _checked_url(base_url: Any) -> str | None:
    """An address with its scheme and host."""
    if base_url in (None, ""):
        return None
    text = str(base_url)
    shown = text.rpartition("@")[2].partition("?")[0]  # it may contain a key
    if not text.startswith(("http://", "https://")):
        raise ModelConfigError(f"base_url={shown!r:.100} must begin with 'http://' or 'https://'")
    try:
        text.encode()
        url = urlsplit(text)
        is_whole = bool(url.hostname) and url.port != 0 and not re.search(r"\s", text)
    except ValueError:  # also of half of a surrogate pair
        is_whole = False
    if not is_whole:
        raise ModelConfigError(
            f"base_url={shown!r:.100} is not an address. It must look like 'https://example.org/v1'"
        )
    return text


def _base_url(client: Any) -> str | None:
    """A client's base URL, if it has one."""
    url = None if _is_maker(client) else getattr(client, "base_url", None)
    return None if url is None else str(url)


def _checked(option: str, value: Any, known: Sequence[str]) -> Any:
    """The value of an option, if it is one of these words.

    Raises:
        ModelConfigError: it is not; the message lists the words.
    """
    if value in known:
        return value
    words = ", ".join(map(repr, known))
    raise ModelConfigError(f"{option} must be one of {words}, got {value!r:.80}")


_ANYWHERE = "anywhere"


def _host(base_url: str | None, client: Any) -> str | None:
    """The model's host from the arguments; None if the environment determines it."""
    if client is not None and not _is_maker(client):
        return host_of(client)
    if base_url:
        return _hostname(base_url)
    return None if client is None else _ANYWHERE


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or _ANYWHERE
    except ValueError:  # the client reports the error
        return _ANYWHERE
