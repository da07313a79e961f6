"""Prices: those of genai-prices, each price's provider and model, and prices that a person sets."""

from __future__ import annotations

import math
import socket
from datetime import UTC, datetime
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Usage
from nbagent.models import prices
from nbagent.models.demo.model import InPage
from nbagent.models.prices import price_of, reports_cost

OPENAI = "api.openai.com"
MILLION = Usage(1_000_000, 1_000_000)
SMALL = Usage(1_000, 1_000)
WRONG_NAMES: list[tuple[str, tuple[str | None, ...]]] = [
    (OPENAI, ("gpt-5.1-turbo",)),
    (OPENAI, ("gpt-5.1-20251113x",)),
    (OPENAI, (None,)),
    ("localhost", ("gpt-5.1",)),  # any server may use that name
    ("openai", ("gpt-5.1",)),
    ("api.groq.com", ("gpt-5.1",)),
    (OPENAI, ("text-embedding-3-small",)),  # only its input has a price
]
LISTED: list[tuple[str, tuple[str | None, ...], float]] = [
    (OPENAI, ("gpt-5.1",), 0.01125),
    (OPENAI, ("gpt-5.1-2025-11-13", "gpt-5-pro"), 0.01125),  # the response's name comes first
    (OPENAI, ("something-else", "gpt-5.1"), 0.01125),
    (OPENAI, (None, "gpt-5.1"), 0.01125),
    ("api.anthropic.com", ("claude-haiku-4-5-20251001",), 0.006),
    ("api.groq.com", ("openai/gpt-oss-20b",), 0.000375),
    ("api.mistral.ai", ("codestral-2508",), 0.0012),
    ("generativelanguage.googleapis.com", ("models/gemini-2.5-flash",), 0.0028),
]


@pytest.mark.parametrize(("host", "names", "dollars"), LISTED)
def test_a_listed_price_belongs_to_a_model_of_a_provider(
    host: str, names: tuple[str, ...], dollars: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dated snapshot costs the same as its model; nothing is looked up in the network."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    found = price_of(host, *names)
    assert found is not None
    assert found(SMALL) == pytest.approx(dollars)


@pytest.mark.parametrize(("host", "names"), WRONG_NAMES)
def test_a_similar_name_or_another_server_has_no_price(host: str, names: tuple[str, ...]) -> None:
    """A budget in dollars then asks for the price, and does not guess it."""
    assert price_of(host, *names) is None


def test_the_list_is_loaded_only_for_its_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local server, and one that reports the cost itself, do not pay for it."""
    monkeypatch.setattr(prices, "import_module", None)
    for host in ("localhost", "127.0.0.1", "openrouter.ai", "demo"):
        price_of(host, "gpt-5.1")
    with pytest.raises(TypeError, match="not callable"):
        price_of(OPENAI, "gpt-5.1")


def test_each_listed_provider_has_prices() -> None:
    """Under the name that people use in ``set_prices``, too."""
    snapshot = prices.import_module("genai_prices.data_snapshot").get_snapshot()
    for provider in prices._PROVIDERS.values():
        assert len(snapshot.find_provider(None, provider, None).models) > 5


def test_kinds_of_tokens_have_their_own_prices() -> None:
    """Cached and written input, and requests beyond a number of tokens; more cached than input counts once."""
    sol = price_of(OPENAI, "gpt-5.6-sol")
    assert sol is not None
    assert sol(Usage(100_000, 0)) == pytest.approx(0.4)
    assert sol(Usage(100_000, 0, cached=50_000, written=10_000)) == pytest.approx(0.23)
    assert sol(MILLION) == pytest.approx(38)
    assert sol(Usage(10, 0, cached=50, written=50)) == pytest.approx(10 * 0.4 / 1e6)


def test_a_price_that_its_provider_changes_counts_from_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lowered price of a first year ends with it."""
    found = []
    for year in (2026, 2027):

        class Then(datetime):
            @classmethod
            def now(cls, tz: Any = None, year: int = year) -> datetime:
                return datetime(year, 6, 1, tzinfo=UTC)

        monkeypatch.setattr(prices, "datetime", Then)
        price = price_of("generativelanguage.googleapis.com", "gemini-3.6-flash")
        assert price is not None
        found.append(price(SMALL))
    assert found == pytest.approx([0.0045, 0.009])


@pytest.fixture
def own_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "_own", {})


@pytest.mark.usefixtures("own_prices")
def test_a_person_can_set_and_remove_the_price_of_a_model() -> None:
    """For any server, or only for the named provider; 0 is a known price."""
    nb.set_prices({"mine": {"input": 0, "output": 0}, "openai:gpt-5.1": {"input": 1, "output": 2}})
    assert cost("localhost", "mine") == 0
    assert cost("localhost", "mine-2026-01-02") == 0
    assert cost(OPENAI, "gpt-5.1") == pytest.approx(3)
    assert cost("localhost", "gpt-5.1") is None
    nb.set_prices({"mine": None, "openai:gpt-5.1": None})
    assert cost("localhost", "mine") is None
    assert cost(OPENAI, "gpt-5.1") == pytest.approx(11.25)
    nb.set_prices({"mine": {"input": 2, "output": 10, "cached": 0.5, "written": 3}})
    assert cost("localhost", "mine", Usage(1_000_000, 0, cached=500_000, written=100_000)) == (
        pytest.approx(1.35)
    )
    nb.set_prices({"mine": {"input": 2, "output": 10}})
    assert cost("localhost", "mine", Usage(1_000_000, 0, cached=600_000, written=5)) == 2


def cost(host: str, name: str, usage: Usage = MILLION) -> float | None:
    """What a response costs, if its model has a price."""
    price = price_of(host, name)
    return None if price is None else price(usage)


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


def test_servers_that_report_the_cost_of_a_response_are_listed() -> None:
    """A budget in dollars needs no table for these servers."""
    assert reports_cost("openrouter.ai")
    assert reports_cost("api.x.ai")
    assert not reports_cost(OPENAI)
    assert not reports_cost("localhost")


@pytest.mark.parametrize("model", ["demo", InPage(0)], ids=["in a kernel", "in a web page"])
async def test_the_demo_model_is_free(model: Any) -> None:
    """So it also runs within a budget in dollars."""
    agent = nb.Agent(model, budget=nb.Budget(cost=1))
    assert (await agent.generate("hello")).usage.cost == 0
