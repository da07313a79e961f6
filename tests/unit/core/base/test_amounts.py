"""Numbers from models, servers, tools and people: only valid ones count."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.amounts import MOST, amount
from nbagent.core.base.interrupts import Expiry
from nbagent.core.base.model import Finished, Usage
from nbagent.core.run.run import session_of
from nbagent.core.tools.call_output import CallOutput
from nbagent.models.openai.chat import ChatParser

call = nb.ScriptedModel.call
NAN, INFINITE = math.nan, math.inf
UNSOUND = [NAN, INFINITE, -INFINITE, -1, -0.001, 1e300, 10**400, "12", True, [1], {}]
ANYTHING = (
    st.floats()
    | st.integers(-(10**400), 10**400)
    | st.none()
    | st.text(max_size=3)
    | st.booleans()
    | st.lists(st.integers(), max_size=1)
    | st.sampled_from([Decimal("0.5"), Decimal("nan")])
)


def test_an_excessive_sum_is_not_forgotten() -> None:
    """Two responses that each report the maximum add up to the maximum."""
    most = Usage(int(MOST), int(MOST), MOST)
    assert most + most == most
    assert most + Usage(1, 1, 1.0) == most


@given(value=ANYTHING)
def test_an_amount_is_a_finite_number_from_zero(value: Any) -> None:
    """Other values give None and do not raise; sums of amounts stay finite."""
    found = amount(value)
    if found is None:
        assert not (type(value) in (int, float) and 0 <= value <= MOST)
    else:
        assert found == value
        assert 0 <= found <= MOST
        assert math.isfinite(sum([float(found)] * 1000))


@given(said=st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), max_size=5))
def test_usage_is_always_a_sum_of_valid_numbers(said: list[Any]) -> None:
    """One invalid number neither hides nor undoes the others, in any order."""
    total = sum((Usage(*one) for one in said), Usage())
    costs = [amount(cost) for _, _, cost in said]
    known = [cost for cost in costs if cost is not None]
    assert total.known_cost == pytest.approx(min(sum(known), MOST))
    told = [one for one in said if Usage(*one) != Usage()]
    is_known = bool(told) and all(amount(cost) is not None for _, _, cost in told)
    assert total.cost == (total.known_cost if is_known else None)
    assert total.input_tokens == min(sum(int(amount(tokens) or 0) for tokens, _, _ in said), MOST)
    json.dumps([total.total_tokens, total.cost], allow_nan=False)


@given(
    usage=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("prompt_tokens", "completion_tokens", "cost"),
            ANYTHING.filter(lambda v: not isinstance(v, Decimal)),
        ),
    )
    | st.lists(st.integers())
    | st.text(max_size=3)
)
def test_an_answer_counts_whatever_usage_its_server_reports(usage: Any) -> None:
    """An invalid usage does not end the answer."""
    parser = ChatParser()
    parser.chunk(
        {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}
    )
    finished = parser.finished()
    assert finished is not None
    assert finished.usage.total_tokens >= 0


class Priced(nb.ScriptedModel):
    """A model that reports the cost of each response."""

    def __init__(self, *costs: Any) -> None:
        super().__init__([*[[call("look")] for _ in costs], "done"])
        self.costs = [*costs, 0]
        self.reports_cost = True

    async def stream(self, request: Any) -> Any:
        async for delta in super().stream(request):
            if isinstance(delta, Finished):
                yield delta._replace(usage=Usage(cost=self.costs.pop(0)))
            else:
                yield delta


@pytest.mark.parametrize("wrong", UNSOUND, ids=lambda value: f"{value!r:.12}")
async def test_an_invalid_cost_does_not_disable_the_budget(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A person is asked about the unknown cost; then the known cost counts; all events are JSON."""
    model = Priced(0.6, wrong, 0.6, 0.1)
    agent = nb.Agent(model, budget=nb.Budget(cost=1.0))
    agent.add(nb.tool(name="look")(lambda: "seen"))
    run = await agent.run("go", attended=True, show=False).settled()
    [question] = run.interrupts
    assert (question.kind, len(model.costs)) == ("budget", 3)
    assert (run.usage.cost, run.usage.known_cost) == (None, 0.6)
    assert [r.levelname for r in caplog.records if "the value is ignored" in r.getMessage()] != []
    for event in run.journal:
        json.loads(event.model_dump_json(), parse_constant=pytest.fail)
    for more in (*UNSOUND, 0):
        with pytest.raises(nb.errors.InvalidAnswer):
            run.respond(question, more)
    run.respond(question, 5)
    assert (await run).text == "done"
    assert session_of(run).state.granted == {"cost": 5}


@pytest.mark.parametrize("wrong", UNSOUND, ids=lambda value: f"{value!r:.12}")
@pytest.mark.parametrize("name", ["tokens", "cost", "seconds"])
def test_an_invalid_limit_is_refused(name: str, wrong: Any) -> None:
    """The error names the limit."""
    with pytest.raises(nb.errors.UsageError, match=rf"{name}=….*finite number of at least 0"):
        nb.Budget(**{name: wrong})


@pytest.mark.parametrize("wrong", [*UNSOUND, 0, 1e12], ids=lambda value: f"{value!r:.12}")
def test_an_invalid_time_is_refused(wrong: Any) -> None:
    """An invalid time would never come, so a question would never expire."""
    with pytest.raises(ValueError, match="expires_in must be positive and at most 100 years"):
        Expiry.of(wrong, "reject")
    if wrong not in (0, 1e12):
        for make in (nb.Timeout, lambda delay: nb.Retry(delay=delay)):
            with pytest.raises(nb.errors.UsageError, match="finite number"):
                make(wrong)


@given(fraction=ANYTHING)
def test_progress_is_a_fraction_or_unknown(fraction: Any) -> None:
    """An invalid fraction draws no bar and fails no tool."""
    heard: list[Any] = []
    CallOutput("c", heard.append).progress(fraction, "text")
    [progressed] = heard
    at = progressed.fraction
    assert at is None or 0 <= at <= 1
    assert (at is None) == (amount(fraction) is None)
