"""What a server says that a response used, in the words of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.amounts import amount
from nbagent.core.base.model import Usage

TICKS = 10_000_000_000
"""Of one US dollar, as xAI counts them."""


def usage_of(told: Mapping[str, Any]) -> Usage:
    """The usage of one response, of Chat Completions or of the Responses API.

    Output counts what nobody reads too: some servers leave it out of the output and put it into the total.
    """
    sent = _first(told, "prompt_tokens", "input_tokens")
    got = _first(told, "completion_tokens", "output_tokens")
    of_sent = _part(told, "prompt_tokens_details", "input_tokens_details")
    of_got = _part(told, "completion_tokens_details", "output_tokens_details")
    total = amount(told.get("total_tokens"))
    if total is not None and amount(sent) is not None and amount(got) is not None:
        got = max(got, total - sent)
    cached = _first(of_sent, "cached_tokens") or _first(
        told, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"
    )
    return Usage(
        sent,
        got,
        _cost(told),
        cached=cached,
        reasoning=_first(of_got, "reasoning_tokens") or _first(told, "reasoning_tokens"),
        written=_first(of_sent, "cache_write_tokens")
        or _first(told, "cache_creation_input_tokens"),
    )


def _first(told: Mapping[str, Any], *names: str) -> Any:
    """The first of these that was told, else 0."""
    return next((told[name] for name in names if told.get(name) is not None), 0)


def _part(told: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    part = _first(told, *names)
    return part if isinstance(part, Mapping) else {}


def _cost(told: Mapping[str, Any]) -> Any:
    """What the server says that it cost, in US dollars; None where it says nothing."""
    ticks = amount(told.get("cost_in_usd_ticks"))
    if ticks is not None:
        return ticks / TICKS
    cost = told.get("cost")
    if isinstance(cost, Mapping):
        return cost.get("total_cost")
    upstream = amount(_part(told, "cost_details").get("upstream_inference_cost"))
    if told.get("is_byok") is True:  # the router's own part alone: the provider bills the rest
        own = amount(cost)
        return None if own is None or upstream is None else own + upstream
    return cost
