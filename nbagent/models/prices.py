"""Prices of models, from ``set_prices`` or from a dated table; None if both lack a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import UsageError, suggest
from nbagent.core.base.model import Usage

_KINDS = ("input", "cached", "written", "output")
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
"""The date that providers append to the name of a model snapshot."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """The price of input from the server's cache; by default ``input``."""
    written: float | None = None
    """The price of input that the server writes to its cache; by default ``input``."""
    from_tokens: int | None = None
    """The number of input tokens above which ``long`` applies to the whole response."""
    long: Price | None = None

    def of(self, usage: Usage) -> float:
        """The cost of a response with this usage, in US dollars."""
        if self.long is not None and usage.input_tokens > (self.from_tokens or 0):
            return self.long.of(usage)
        cached = min(usage.cached, usage.input_tokens)
        written = min(usage.written, usage.input_tokens - cached)
        dollars = (
            (usage.input_tokens - cached - written) * self.input
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


def price_of(provider: str, *names: str | None, known_as: str = "") -> Price | None:
    """The price of a model by the first of its names with a price; 0 for free providers, otherwise None.

    Args:
        provider: the server's host, such as ``api.openai.com``, or the provider's name.
        names: the model's names, the server's first.
        known_as: another name of the provider, for prices from ``set_prices``.
    """
    table = _table()
    provider = table["hosts"].get(provider, provider)
    for name in names:
        found = None if name is None else _named(provider, known_as, name.removeprefix("models/"))
        if found is not None:
            return found
    return Price(0, 0) if provider in table["free"] else None


def reports_cost(provider: str) -> bool:
    """Whether this provider's server reports the cost of each response."""
    table = _table()
    return table["hosts"].get(provider, provider) in table["reports_cost"]


def price_date() -> str:
    """The date of the price table, as ``YYYY-MM-DD``."""
    date: str = _table()["date"]
    return date


def _named(provider: str, known_as: str, name: str) -> Price | None:
    """The price by the model's name, or else by its name without the snapshot's date."""
    known = _table()["models"].get(provider, {})
    for each in (name, _SNAPSHOT.sub("", name)):
        for key in (f"{provider}:{each}", f"{known_as}:{each}", each):
            if key in _own:
                return _own[key]
        if each in known:
            return _listed(known[each])
    return None


def _listed(entry: Mapping[str, Any]) -> Price | None:
    if entry.get("until", "9999") < datetime.now(UTC).date().isoformat():
        return None  # the provider announced another price from then on
    price = Price(**{kind: entry[kind] for kind in _KINDS if kind in entry})
    above = entry.get("above")
    if above is None:
        return price
    long = Price(**{kind: above[kind] for kind in _KINDS if kind in above})
    return replace(price, from_tokens=above["tokens"], long=long)


def _checked_price(name: Any, price: Any) -> Price:
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
    return Price(**price)


@cache
def _table() -> dict[str, Any]:
    """The table of prices, read on first use."""
    text = files("nbagent.models").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
