"""``nb.LiteLLMModel``: any model that LiteLLM supports, in this process, without its proxy.

LiteLLM replaces the openai client. nbagent encodes requests, parses answers, repeats broken streams and
removes credentials as for every other server. LiteLLM's own output is not shown in the notebook.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Self

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.pickling import Made, made_anew

from .limits import RateLimit
from .openai.errors import error_message, is_transport, refused_error, unanswered_error
from .openai.exchange import DEFAULT_RETRIES
from .openai.model import RESERVED, OpenAIModel
from .openai.providers import PROVIDERS, OutputMode
from .openai.stream import BrokenStream

TIMEOUT = 600.0
"""The default of ``timeout``: seconds to wait for more of an answer, as in the openai client."""
_PREFIXES = re.compile(r"(?:litellm\.)?\b[A-Z]\w*(?:Error|Exception)(?: - |: ?)")
"""The class names that LiteLLM puts before a message."""
_NOISE = re.compile(
    r"\s*(?:Traceback \(most recent call last\):| Original exception:|Handle with `litellm\.).*",
    re.DOTALL,
)
"""The text that LiteLLM appends to a message."""
_BYTES = re.compile(r"b(['\"])(\{.*\})\1", re.DOTALL)
"""The JSON of an error in Python's notation of bytes."""
_NO_KEY = re.compile(r"missing\b.*\bapi[ _]key|api[ _]key\b.*must be set", re.IGNORECASE)
_SECRET = re.compile(r"(?:key|token|secret|password|key_id|credentials)$", re.IGNORECASE)
"""The endings of names of options and environment variables with credentials for LiteLLM."""


class LiteLLMModel(OpenAIModel):
    """A model through LiteLLM: ``nb.LiteLLMModel("bedrock/anthropic.claude-…")``.

    This class needs ``pip install "jupyter-nbagent[litellm]"``, and the provider's own requirements.

    Args:
        name: ``provider/model`` in LiteLLM's form: https://docs.litellm.ai/docs/providers.
        max_retries: the maximum number of retries of a failed request or a broken stream.
        vision: as in ``OpenAIModel``, like ``output``, ``tool_choice`` and ``limits``.
        output: the form of a typed answer's schema.
        tool_choice: the tool that the model's first answer calls.
        limits: an ``nb.RateLimit``.
        **options: arguments of ``litellm.acompletion``, such as ``api_key``, ``api_base``,
            ``temperature``, ``timeout`` or ``aws_region_name``.

    Raises:
        ModelConfigError: nbagent sets an option itself, or LiteLLM does not know the name.
    """

    def __init__(
        self,
        name: str,
        *,
        max_retries: int = DEFAULT_RETRIES,
        vision: bool | None = None,
        output: OutputMode | None = None,
        tool_choice: str | None = None,
        limits: RateLimit | None = None,
        **options: Any,
    ) -> None:
        taken = [key for key in options if key in RESERVED]
        if taken:
            raise ModelConfigError(f"{taken[0]}= is set by nbagent itself, so it cannot be passed")
        prefix, colon, model = name.partition(":")
        if colon and prefix in PROVIDERS:
            raise ModelConfigError(
                f'LiteLLM names the model "{prefix}/{model}", not {name!r}. Without LiteLLM, use nb.Agent("{name}")'
            )
        own: dict[str, Any] = {"vision": vision, "output": output, "tool_choice": tool_choice}
        self._given = {**options, **own, "max_retries": max_retries}
        super().__init__(name, client=_Client(name, max_retries, options), limits=limits, **own)

    def __reduce__(self) -> Made:
        given = {key: value for key, value in self._given.items() if not _SECRET.search(key)}
        return made_anew(LiteLLMModel, self.name, limits=self._limits, **given)

    @property
    def reports_cost(self) -> bool:
        """Whether each response reports its cost: LiteLLM has a price, or ``nb.set_prices`` set one."""
        try:
            info = loaded().get_model_info(self.name)
        except Exception:  # LiteLLM raises errors of many types if the model is not in its table
            info = {}
        return info.get("input_cost_per_token") is not None or super().reports_cost


class _Client:
    """LiteLLM in the form of an openai client that has only the typed call."""

    def __init__(self, name: str, max_retries: int, options: dict[str, Any]) -> None:
        self._name = name
        self._options = options
        self.max_retries = max_retries
        self.timeout = options.get("timeout", TIMEOUT)
        """The timeout of reading an answer, in seconds."""
        self.base_url = f"litellm:{name.partition('/')[0]}"
        """The client's name in errors, and the owner of its provider data in a history."""
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    @property
    def secrets(self) -> list[str]:
        """The client's credentials, found by the names of options and environment variables."""
        named = {**os.environ, **self._options}
        return [str(value) for name, value in named.items() if value and _SECRET.search(name)]

    async def _create(self, *, extra_body: dict[str, Any] | None = None, **fields: Any) -> Any:
        litellm = await asyncio.to_thread(loaded)
        arguments = {**fields, **(extra_body or {}), **self._options, "max_retries": 0}
        try:
            with _quiet():
                answer = await litellm.acompletion(**arguments)
            is_complete = not hasattr(answer, "__aiter__")
            return _Priced(answer, self._name) if is_complete else _Chunks(answer, self._name)
        except Exception as error:
            failure = self._error(litellm, error)
        raise failure  # raised outside except, so that LiteLLM's error is not its context

    def _error(self, litellm: Any, error: Exception) -> Exception:
        """The error to raise: nbagent's with a clearer message, or LiteLLM's own."""
        text = _plain(str(getattr(error, "message", None) or error))
        made_of = list(_chain(error))
        broken = next((each for each in made_of if is_transport(each)), None)
        if "LLM Provider NOT provided" in text or isinstance(error, litellm.LiteLLMUnknownProvider):
            return ModelConfigError(
                f"LiteLLM does not know the provider of the model {self._name!r}. Use provider/model, as in "
                "https://docs.litellm.ai/docs/providers"
            )
        if isinstance(error, ImportError) or "No module named" in text:
            return ModelConfigError(
                f"LiteLLM needs another package for the model {self._name!r}: {text}"
            )
        if getattr(error, "status_code", None) == 401 or _NO_KEY.search(text):
            return self._key_missing(litellm, text)
        if broken is not None:  # LiteLLM reports a broken connection as a 500 of the server
            return unanswered_error(text, broken)
        openai = import_module("openai")
        timed_out = isinstance(error, openai.APITimeoutError)
        # LiteLLM may report a server's rejection as a failed connection
        if isinstance(error, openai.APIConnectionError) and not timed_out:
            codes = (getattr(each, "status_code", None) for each in made_of[1:])
            code = next((code for code in codes if isinstance(code, int) and code >= 400), None)
            if code is None:
                return ModelError(f"The model {self._name!r} failed in LiteLLM: {text}")
            return refused_error(code, text)
        if hasattr(error, "message"):
            error.message = text
        error.__cause__, error.__suppress_context__ = None, True
        return error

    def _key_missing(self, litellm: Any, text: str) -> Exception:
        missing = litellm.validate_environment(model=self._name).get("missing_keys") or ()
        if missing and "api_key" not in self._options:
            return ModelConfigError(
                f"The model {self._name!r} needs an API key. Set {' and '.join(missing)}, or pass LiteLLMModel(name, "
                f"api_key=…) ({text})"
            )
        return ModelError(
            f"The model {self._name!r} rejected the API key (401). Check api_key=… or the environment variable ({text})",
            kind="access",
        )


class _Priced:
    """An answer in one piece, or the last piece of a stream, with the cost according to LiteLLM, in US dollars."""

    def __init__(self, answer: Any, name: str) -> None:
        self._answer = answer
        self._name = name

    def model_dump(self) -> dict[str, Any]:
        value: dict[str, Any] = self._answer.model_dump()
        usage = value.get("usage")
        if isinstance(usage, dict) and usage.get("cost") is None:
            hidden = getattr(self._answer, "_hidden_params", None) or {}
            cost = hidden.get("response_cost")
            if cost is None:
                # LiteLLM raises errors of many types if the model is not in its table
                with suppress(Exception), _quiet():
                    cost = loaded().completion_cost(
                        completion_response=self._answer, model=self._name
                    )
            usage["cost"] = cost
        return value


class _Chunks:
    """An answer in pieces; any error while it is read is raised as a broken stream."""

    def __init__(self, chunks: Any, name: str) -> None:
        self._chunks = chunks
        self._name = name

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            with _quiet():
                chunk = await anext(self._chunks)
            return chunk if getattr(chunk, "usage", None) is None else _Priced(chunk, self._name)
        except StopAsyncIteration:
            raise
        except Exception as error:
            text = _plain(str(getattr(error, "message", None) or error))
            status = getattr(error, "status_code", None)
            # by the openai client's rules
            may_help = isinstance(status, int) and (status in {408, 409, 429} or status >= 500)
            raise BrokenStream(f"LiteLLM's answer ended early: {text}", again=may_help) from None

    async def close(self) -> None:
        await self._chunks.aclose()


@cache
def loaded() -> Any:
    """Import LiteLLM without banners, logs and downloads.

    Raises:
        ModelConfigError: LiteLLM is not installed, or is incomplete.
    """
    prices = "LITELLM_LOCAL_MODEL_COST_MAP"  # else LiteLLM downloads a price table each time
    before = os.environ.get(prices)
    os.environ.setdefault(prices, "True")
    try:
        litellm: Any = import_module("litellm")
    except ImportError as error:
        if error.name != "litellm":
            raise ModelConfigError(f"The LiteLLM installation is incomplete: {error}") from error
        raise ModelConfigError(
            'nb.LiteLLMModel needs LiteLLM: pip install "jupyter-nbagent[litellm]"'
        ) from None
    finally:
        if before is None:
            os.environ.pop(prices, None)
    litellm.suppress_debug_info = True
    silence()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).addFilter(_aside)
    return litellm


def silence() -> None:
    """Ignore warnings that only LiteLLM can fix."""
    warnings.filterwarnings("ignore", module=r"litellm(\.|$)")
    types = r"Items? .* on TypedDict class '\w+' (is|are) using the `ReadOnly` qualifier"
    warnings.filterwarnings("ignore", message=types, module=r"pydantic\.")


_asked: ContextVar[bool] = ContextVar("nbagent_litellm_asked", default=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep LiteLLM's log out of the cell, also the log of tasks that LiteLLM starts in this block."""
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


def _aside(_record: logging.LogRecord) -> bool:
    """Remove log records of nbagent's requests, because LiteLLM's handler writes them into the cell."""
    return not _asked.get() or bool(os.environ.get("LITELLM_LOG"))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    each: BaseException | None = error
    for _ in range(20):  # the chain may be a circle
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


def _plain(text: str) -> str:
    bare = _PREFIXES.sub("", _NOISE.sub("", text)).strip()
    return error_message(_BYTES.sub(r"\2", bare)) or bare or text
