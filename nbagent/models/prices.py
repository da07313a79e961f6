"""Prices of models, from ``set_prices`` or from the package genai-prices; None if both lack a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import UsageError, suggest
from nbagent.core.base.model import Usage

_KINDS = ("input", "cached", "written", "output")
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
"""The date that providers append to the name of a model snapshot."""
_MILLION = 1_000_000
_PROVIDERS = {
    "api.anthropic.com": "anthropic",
    "api.cerebras.ai": "cerebras",
    "api.cohere.ai": "cohere",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "gemini",
}
"""The providers with listed prices, by host: those whose prices in genai-prices another list confirms."""
_REPORTING = ("openrouter.ai", "api.x.ai")
"""The hosts of servers that report the cost of each response."""
_FREE = ("demo",)

Price = Callable[[Usage], float]
"""The cost of a response with this usage, in US dollars."""


@dataclass(frozen=True, slots=True)
class _OwnPrice:
    """The price of a model in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None

    def __call__(self, usage: Usage) -> float:
        plain, cached, written = _inputs(usage)
        dollars = (
            plain * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.written is None else self.written)
            + usage.output_tokens * self.output
        )
        return dollars / _MILLION


_own: dict[str, Price] = {}
"""The prices from ``set_prices``, by a model's name or ``provider:name``."""


def set_prices(prices: Mapping[str, Mapping[str, float] | None]) -> None:
    """Set prices of models, in US dollars per million tokens, for responses from now on.

    Args:
        prices: the prices by the model's name, or by ``"provider:name"`` for that provider only. A price has
            ``input`` and ``output``. If they differ from ``input``, add ``cached`` (input from the server's cache)
            and ``written`` (input that the server writes to its cache). 0 is a known price; None removes a price.

    Raises:
        UsageError: a price is missing, or is not a finite number of at least 0; nothing was changed.
    """
    if not isinstance(prices, Mapping):
        raise UsageError(
            f'nb.set_prices takes prices by model: {{"my-model": {{"input": 0.5, "output": 2.0}}}}. Got {prices!r:.80}'
        )
    checked = {
        name: None if price is None else _checked_price(name, price)
        for name, price in prices.items()
    }
    for name, price in checked.items():
        if price is None:
            _own.pop(name, None)
        else:
            _own[name] = price


def price_of(host: str, *names: str | None, known_as: str = "") -> Price | None:
    """The price of a model by the first of its names with a price; 0 for a free server, otherwise None.

    ``known_as`` is the provider's name for prices from ``set_prices``.
    """
    provider = _PROVIDERS.get(host)
    for name in names:
        if name is None:
            continue
        plain = name.removeprefix("models/")
        for each in (plain, _SNAPSHOT.sub("", plain)):
            for key in (f"{provider or host}:{each}", f"{known_as}:{each}", each):
                if key in _own:
                    return _own[key]
        found = None if provider is None else _listed(provider, plain)
        if found is not None:
            return found
    return _OwnPrice(0, 0) if host in _FREE else None


def reports_cost(host: str) -> bool:
    """Whether the server at this host reports the cost of each response."""
    return host in _REPORTING


def _listed(provider: str, name: str) -> Price | None:
    """Today's price in genai-prices, which is imported only here and asks no network."""
    snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
    try:
        _, model = snapshot.find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    prices = model.get_prices(datetime.now(UTC))
    has_both = prices.input_mtok is not None and prices.output_mtok is not None
    return partial(_cost, prices) if has_both else None


def _cost(prices: Any, usage: Usage) -> float:
    _, cached, written = _inputs(usage)
    counts = import_module("genai_prices").Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=usage.output_tokens,
    )
    return float(prices.calc_price(counts)["total_price"])


def _inputs(usage: Usage) -> tuple[int, int, int]:
    """Tokens of the input that are new, from the server's cache, and written to it."""
    cached = min(usage.cached, usage.input_tokens)
    written = min(usage.written, usage.input_tokens - cached)
    return usage.input_tokens - cached - written, cached, written


def _checked_price(name: Any, price: Any) -> _OwnPrice:
    example = f'{{{name!r:.80}: {{"input": 0.5, "output": 2.0}}}}'
    if not isinstance(name, str) or not isinstance(price, Mapping):
        raise UsageError(f"A price must be given as {example}, got {price!r:.80}")
    for kind, dollars in price.items():
        if kind not in _KINDS:
            raise UsageError(
                f"The price of {name!r} has {kind!r}. Allowed: {', '.join(_KINDS)}{suggest(str(kind), _KINDS)}"
            )
        if amount(dollars) is None:
            raise UsageError(
                f"The price {kind!r} of {name!r} must be a finite number of at least 0, in US dollars per million tokens, "
                f"got {dollars!r:.80}"
            )
    missing = [kind for kind in ("input", "output") if kind not in price]
    if missing:
        raise UsageError(f"The price of {name!r} has no {missing[0]!r}. Use {example}")
    return _OwnPrice(**price)
