"""``nb.LiteLLMModel``: any model that LiteLLM finds, in this process, without its proxy.

LiteLLM stands in the place of a client: requests are encoded, answers parsed, broken streams repeated and
credentials cut as for every other server. What it says beside its answers stays out of the notebook.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Self

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.travel import Made, made_anew

from .limits import RateLimit
from .openai.errors import is_transport, refused, unanswered, words_in
from .openai.exchange import DEFAULT_RETRIES
from .openai.model import RESERVED, OpenAIModel
from .openai.providers import PROVIDERS, OutputMode
from .openai.stream import BrokenStream

TIMEOUT = 600.0
"""Seconds to wait for more of an answer where no ``timeout`` is given; the openai client's."""
_PREFIXES = re.compile(r"(?:litellm\.)?\b[A-Z]\w*(?:Error|Exception)(?: - |: ?)")
"""The names of classes that LiteLLM puts before what was said."""
_NOISE = re.compile(
    r"\s*(?:Traceback \(most recent call last\):| Original exception:|Handle with `litellm\.).*",
    re.DOTALL,
)
"""What it puts behind that."""
_BYTES = re.compile(r"b(['\"])(\{.*\})\1", re.DOTALL)
"""The JSON of an error as Python writes bytes."""
_NO_KEY = re.compile(r"missing\b.*\bapi[ _]key|api[ _]key\b.*must be set", re.IGNORECASE)
_SECRET = re.compile(r"(?:key|token|secret|password|key_id|credentials)$", re.IGNORECASE)
"""How options and environment variables end that hold what LiteLLM signs in with."""


class LiteLLMModel(OpenAIModel):
    """A model that LiteLLM finds: ``nb.LiteLLMModel("bedrock/anthropic.claude-…")``.

    It needs ``pip install "jupyter-nbagent[litellm]"``, and what the provider needs.

    Args:
        name: ``provider/model``, as LiteLLM writes it: https://docs.litellm.ai/docs/providers.
        max_retries: how often a failed request or a broken stream is repeated.
        vision: as in ``OpenAIModel``, like the next three.
        output: how it is told the shape of a typed answer.
        tool_choice: which tool its first answer calls.
        limits: an ``nb.RateLimit``.
        **options: whatever ``litellm.acompletion`` takes, such as ``api_key``, ``api_base``,
            ``temperature``, ``timeout`` or ``aws_region_name``.

    Raises:
        ModelConfigError: an option is one that nbagent sets itself, or the name is none of LiteLLM's.
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
        self._given = dict(options, max_retries=max_retries, vision=vision, output=output)
        self._given["tool_choice"] = tool_choice
        super().__init__(
            name,
            client=_Client(name, max_retries, options),
            vision=vision,
            output=output,
            tool_choice=tool_choice,
            limits=limits,
        )

    def __reduce__(self) -> Made:
        given = {key: value for key, value in self._given.items() if not _SECRET.search(key)}
        return made_anew(LiteLLMModel, self.name, limits=self._limits, **given)

    @property
    def reports_cost(self) -> bool:
        """Whether each response will say what it cost: LiteLLM knows the price, or ``nb.set_prices`` said one."""
        try:
            info = loaded().get_model_info(self.name)
        except Exception:  # its own, of many kinds: no such model in its table
            info = {}
        return info.get("input_cost_per_token") is not None or super().reports_cost


class _Client:
    """LiteLLM as a client that has the ordinary typed call alone."""

    def __init__(self, name: str, max_retries: int, options: dict[str, Any]) -> None:
        self._name = name
        self._options = options
        self.max_retries = max_retries
        self.timeout = options.get("timeout", TIMEOUT)
        """Seconds, for whoever reads the answer."""
        self.base_url = f"litellm:{name.partition('/')[0]}"
        """What errors call it; and whose data in a history are whose."""
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    @property
    def secrets(self) -> list[str]:
        """What it signs in with, as far as names tell."""
        named = {**os.environ, **self._options}
        return [str(value) for name, value in named.items() if value and _SECRET.search(name)]

    async def _create(self, *, extra_body: dict[str, Any] | None = None, **fields: Any) -> Any:
        litellm = await asyncio.to_thread(loaded)
        told = {**fields, **(extra_body or {}), **self._options, "max_retries": 0}
        try:
            with _quiet():
                answer = await litellm.acompletion(**told)
            whole = not hasattr(answer, "__aiter__")
            return _Priced(answer, self._name) if whole else _Stream(answer, self._name)
        except Exception as error:
            said = self._said(litellm, error)
        raise said  # here, with what it was made of only where that tells more

    def _said(self, litellm: Any, error: Exception) -> Exception:
        """The error in plain words: one of ours where it takes more than LiteLLM's, else its own."""
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
        if broken is not None:  # LiteLLM has it as a 500 of the server
            return unanswered(text, broken)
        openai = import_module("openai")
        timed_out = isinstance(error, openai.APITimeoutError)
        if isinstance(error, openai.APIConnectionError) and not timed_out:  # or as no connection
            codes = (getattr(each, "status_code", None) for each in made_of[1:])
            code = next((code for code in codes if isinstance(code, int) and code >= 400), None)
            if code is None:
                return ModelError(f"The model {self._name!r} failed in LiteLLM: {text}")
            return refused(code, text)
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
            f"The model {self._name!r} rejected the API key (401). Check api_key=… or the environment variable ({text})"
        )


class _Priced:
    """An answer in one piece, or its last piece, with what LiteLLM says that it costs."""

    def __init__(self, answer: Any, name: str) -> None:
        self._answer = answer
        self._name = name

    def model_dump(self) -> dict[str, Any]:
        value: dict[str, Any] = self._answer.model_dump()
        usage = value.get("usage")
        if isinstance(usage, dict) and usage.get("cost") is None:
            usage["cost"] = self._cost()
        return value

    def _cost(self) -> float | None:
        """In US dollars; 0 of what is free, and None where nobody knows."""
        cost: float | None = (getattr(self._answer, "_hidden_params", None) or {}).get(
            "response_cost"
        )
        if cost is not None:
            return cost
        try:
            with _quiet():
                cost = loaded().completion_cost(completion_response=self._answer, model=self._name)
        except Exception:  # its own, of many kinds: no such model in its table
            return None
        return cost


class _Stream:
    """An answer in pieces; whatever breaks it, it is a broken stream."""

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
            raise BrokenStream(
                f"LiteLLM's answer ended early: {text}", again=_may_pass(error)
            ) from None

    async def close(self) -> None:
        await self._chunks.aclose()


@cache
def loaded() -> Any:
    """LiteLLM, with its banners and its logs out of the way, and no download while it loads.

    Raises:
        ModelConfigError: it isn't installed.
    """
    prices = (
        "LITELLM_LOCAL_MODEL_COST_MAP"  # or it asks the network for the newest, here, each time
    )
    told = os.environ.get(prices)
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
        if told is None:
            os.environ.pop(prices, None)
    litellm.suppress_debug_info = True
    silence()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).addFilter(_aside)
    return litellm


def silence() -> None:
    """Ignore the warnings of what only LiteLLM can mend."""
    warnings.filterwarnings("ignore", module=r"litellm(\.|$)")
    types = r"Items? .* on TypedDict class '\w+' (is|are) using the `ReadOnly` qualifier"
    warnings.filterwarnings("ignore", message=types, module=r"pydantic\.")


_asked: ContextVar[bool] = ContextVar("nbagent_litellm_asked", default=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """What LiteLLM logs in here, or in what it starts in here, is not for the cell."""
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


class _Aside(logging.Filter):
    """Keeps what is logged of our own requests from LiteLLM's handler, which writes into the cell."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  as any filter has it
        return not _asked.get() or bool(os.environ.get("LITELLM_LOG"))


_aside = _Aside()


def _may_pass(error: Exception) -> bool:
    """Whether it may go well the next time, as the openai client sees it."""
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in {408, 409, 429} or status >= 500)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was made of."""
    each: BaseException | None = error
    for _ in range(_DEEPEST):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


_DEEPEST = 20
"""Of so many errors one may be made."""


def _plain(text: str) -> str:
    bare = _PREFIXES.sub("", _NOISE.sub("", text)).strip()
    return words_in(_BYTES.sub(r"\2", bare)) or bare or text
