"""Prices: the table, each price's provider and model, and prices that a person sets."""

from __future__ import annotations

import datetime
import json
import math
from importlib.resources import files
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Usage
from nbagent.models.prices import Price, price_date, price_of, reports_cost

OPENAI = "api.openai.com"
TABLE = json.loads(files("nbagent.models").joinpath("prices.json").read_text(encoding="utf-8"))
LISTED = [(provider, name) for provider, models in TABLE["models"].items() for name in models]


def test_the_price_table_has_a_date_and_only_valid_prices() -> None:
    """Every model has input and output prices; cached input costs no more than other input."""
    assert datetime.date.fromisoformat(price_date()) <= datetime.date(2100, 1, 1)
    assert len(LISTED) > 50
    for provider, name in LISTED:
        told = TABLE["models"][provider][name]
        for price in (told, told.get("above", told)):
            assert {"input", "output"} <= set(price)
            assert all(0 < price[kind] < 1000 for kind in ("input", "output"))
            assert price.get("cached", 0) <= price["input"] <= price.get("written", math.inf)


CASES: list[tuple[str, tuple[str | None, ...], str | None]] = [
    (OPENAI, ("gpt-5.1",), "gpt-5.1"),
    ("openai", ("gpt-5.1",), "gpt-5.1"),
    (OPENAI, ("gpt-5.1-2025-11-13", "gpt-5"), "gpt-5.1"),  # the response's name comes first
    (OPENAI, ("something-else", "gpt-5.1"), "gpt-5.1"),
    (OPENAI, (None, "gpt-5.1"), "gpt-5.1"),
    (OPENAI, ("gpt-5.1-turbo",), None),
    (OPENAI, ("gpt-5.1-20251113x",), None),
    ("localhost", ("gpt-5.1",), None),  # any server may use that name
    ("api.groq.com", ("gpt-5.1",), None),
    ("api.anthropic.com", ("claude-haiku-4-5-20251001",), "claude-haiku-4-5"),
    ("generativelanguage.googleapis.com", ("models/gemini-2.5-flash",), "gemini-2.5-flash"),
]


@pytest.mark.parametrize(("host", "names", "listed"), CASES)
def test_a_price_belongs_to_a_model_of_a_provider(
    host: str, names: tuple[str, ...], listed: str | None
) -> None:
    """A dated snapshot costs the same as its model; a similar name is another model."""
    found = price_of(host, *names)
    if listed is None:
        assert found is None
    else:
        (told,) = {json.dumps(TABLE["models"][p][n]) for p, n in LISTED if n == listed}
        assert found is not None
        assert (found.input, found.output) == (
            json.loads(told)["input"],
            json.loads(told)["output"],
        )


def test_the_cost_of_a_response_is_the_sum_over_its_kinds_of_tokens() -> None:
    """Cached and written tokens are parts of the input with their own prices; long requests have other prices."""
    price = Price(2, 10, cached=0.5, written=3, from_tokens=1_000_000, long=Price(4, 20))
    assert price.of(Usage(1_000_000, 100_000)) == pytest.approx(3.0)
    assert price.of(Usage(1_000_000, 0, cached=500_000, written=100_000)) == pytest.approx(1.35)
    assert price.of(Usage(1_000_001, 0)) == pytest.approx(4.000004)
    assert price.of(Usage(10, 0, cached=50, written=50)) == pytest.approx(10 * 0.5 / 1e6)
    assert Price(2, 10).of(Usage(1_000_000, 0, cached=1_000_000, written=5)) == pytest.approx(2.0)


@pytest.fixture
def own_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbagent.models.prices._own", {})


@pytest.mark.usefixtures("own_prices")
def test_a_person_can_set_and_remove_the_price_of_a_model() -> None:
    """For any server, or only for the named provider; 0 is a known price."""
    nb.set_prices({"mine": {"input": 0, "output": 0}, "openai:gpt-5.1": {"input": 1, "output": 2}})
    assert price_of("localhost", "mine") == Price(0, 0)
    assert price_of("localhost", "mine-2026-01-02") == Price(0, 0)
    assert price_of(OPENAI, "gpt-5.1") == Price(1, 2)
    assert price_of("localhost", "gpt-5.1") is None
    nb.set_prices({"mine": None, "openai:gpt-5.1": None})
    assert price_of("localhost", "mine") is None
    assert price_of(OPENAI, "gpt-5.1") != Price(1, 2)


WRONG: list[tuple[Any, str]] = [
    ([], "takes prices by model"),
    ({"m": 3}, "must be given as"),
    ({"m": {"input": 1}}, "no 'output'"),
    ({"m": {"input": 1, "output": -1}}, "'output' of 'm' must be a finite number"),
    ({"m": {"input": math.nan, "output": 1}}, "'input' of 'm' must be a finite number"),
    ({"m": {"input": 1, "output": 1, "cache": 1}}, "Did you mean 'cached'"),
]


@pytest.mark.usefixtures("own_prices")
@pytest.mark.parametrize(("prices", "says"), WRONG)
def test_an_invalid_price_is_refused_as_a_whole(prices: Any, says: str) -> None:
    """The error names the price and the fix, and valid prices beside it are not set."""
    both = {"good": {"input": 1, "output": 1}, **prices} if isinstance(prices, dict) else prices
    with pytest.raises(nb.errors.UsageError, match=says):
        nb.set_prices(both)
    assert price_of("localhost", "good") is None


def test_a_price_that_its_provider_ends_is_unknown_after_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An old price never counts as today's."""
    told = {"m": {"input": 1, "output": 2, "until": "2020-01-01"}}
    monkeypatch.setitem(TABLE["models"], "openai", told)
    monkeypatch.setattr("nbagent.models.prices._table", lambda: TABLE)
    assert price_of(OPENAI, "m") is None
    told["m"]["until"] = "2999-01-01"
    assert price_of(OPENAI, "m") == Price(1, 2)


def test_servers_that_report_the_cost_of_a_response_are_listed() -> None:
    """A budget in dollars needs no table for these servers."""
    assert reports_cost("openrouter.ai")
    assert reports_cost("api.x.ai")
    assert not reports_cost(OPENAI)
    assert not reports_cost("localhost")
