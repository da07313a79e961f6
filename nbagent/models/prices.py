"""What models cost: a table with its date, what a person says instead, and nothing where neither knows."""

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
"""What a provider adds to the name of a model that it froze on a day."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Of input that the server had in its cache; the input's where not given."""
    written: float | None = None
    """Of input that the server put into its cache; the input's where not given."""
    from_tokens: int | None = None
    """Input tokens above which ``long`` holds for all of a response."""
    long: Price | None = None

    def of(self, usage: Usage) -> float:
        """What a response with these tokens cost."""
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
"""By a model's name, or ``provider:name``: what a person said."""


def set_prices(prices: Mapping[str, Mapping[str, float] | None]) -> None:
    """Say what models cost, in US dollars per million tokens; it counts for responses from now on.

    Args:
        prices: by the model's name, or ``"provider:name"`` for that provider alone: ``input`` and
            ``output``, and where they differ ``cached`` (input that the server had already) and
            ``written`` (input that it put into its cache). 0 is a known price; None takes back what was said.

    Raises:
        UsageError: a price is missing, or is no finite number of at least 0; nothing was changed.
    """
    if not isinstance(prices, Mapping):
        raise UsageError(
            f'nb.set_prices takes prices by model: {{"my-model": {{"input": 0.5, "output": 2.0}}}}. Got {prices!r:.80}'
        )
    said = {name: None if price is None else _said(name, price) for name, price in prices.items()}
    for name, price in said.items():
        if price is None:
            _own.pop(name, None)
        else:
            _own[name] = price


def price_of(provider: str, *names: str | None) -> Price | None:
    """What is known of the first of a model's names that is known at all, or None.

    Args:
        provider: the host that is asked, such as ``api.openai.com``, or the provider's name.
        names: how the model is called, as its server says first.
    """
    table = _table()
    provider = table["hosts"].get(provider, provider)
    for name in names:
        found = None if name is None else _named(provider, name.removeprefix("models/"))
        if found is not None:
            return found
    return Price(0, 0) if provider in table["free"] else None


def reports_cost(provider: str) -> bool:
    """Whether this provider's server tells with each response what it cost."""
    table = _table()
    return table["hosts"].get(provider, provider) in table["reports_cost"]


def price_date() -> str:
    """The day of which the table is, as ``YYYY-MM-DD``."""
    date: str = _table()["date"]
    return date


def _named(provider: str, name: str) -> Price | None:
    """By its name, or else by that of the model of which it is the state of one day."""
    known = _table()["models"].get(provider, {})
    for each in (name, _SNAPSHOT.sub("", name)):
        own = _own.get(f"{provider}:{each}", _own.get(each))
        if own is not None:
            return own
        if each in known:
            return _listed(known[each])
    return None


def _listed(told: Mapping[str, Any]) -> Price | None:
    if told.get("until", "9999") < datetime.now(UTC).date().isoformat():
        return None  # its provider has said that it costs something else since
    price = Price(**{kind: told[kind] for kind in _KINDS if kind in told})
    above = told.get("above")
    if above is None:
        return price
    long = Price(**{kind: above[kind] for kind in _KINDS if kind in above})
    return replace(price, from_tokens=above["tokens"], long=long)


def _said(name: Any, price: Any) -> Price:
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
    """Read late, and once."""
    text = files("nbagent.models").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
