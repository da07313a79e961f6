"""Budgets of cost, for models whose cost is known and for models whose cost is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Finished, Usage

call = nb.ScriptedModel.call


def working(*usages: Usage, **budget: Any) -> nb.Agent:
    """An agent whose model calls a tool in each turn but the last, and reports these usages."""
    steps: list[Any] = [[call("work"), Finished("tool_calls", usage)] for usage in usages[:-1]]
    model = nb.ScriptedModel([*steps, ["done", Finished("stop", usages[-1])]], usage=Usage(1, 1, 0))
    agent = nb.Agent(model, budget=nb.Budget(**budget))
    agent.add(nb.tool(name="work")(lambda: "worked"))
    return agent


async def test_c204_a_model_with_unknown_cost_is_not_started_with_a_cost_budget() -> None:
    """The error names the model and the remedy; no request is sent, live or step by step."""
    model = nb.ScriptedModel(["never"], name="mine", usage=Usage())
    agent = nb.Agent(model, budget=nb.Budget(cost=1))
    says = r"the price of the model 'mine' is unknown, .*package genai-prices. Upgrade it, .*nb.set_prices\(\{'mine'"
    with pytest.raises(nb.errors.UsageError, match=says):
        agent.run("go", attended=False)
    with pytest.raises(nb.errors.UsageError, match=says):
        await agent.generate("go")
    assert model.requests == []


@pytest.mark.parametrize("name", ["gpt-5.1", "gpt-5.1-2025-11-13"])
def test_c204_a_model_with_a_price_is_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider's models have a price by name; other servers and other service tiers have none."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert nb.OpenAIModel(name).reports_cost
    assert not nb.OpenAIModel(name, base_url="http://localhost:1/v1").reports_cost
    assert nb.OpenAIModel("any/thing", base_url="https://openrouter.ai/api/v1").reports_cost
    assert not nb.OpenAIModel(name, extra={"service_tier": "flex"}).reports_cost


def test_c204_a_price_set_by_a_person_for_another_server_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A price of 0 is a price too."""
    monkeypatch.setattr("nbagent.models.prices._own", {})
    model = nb.OpenAIModel("llama", base_url="http://localhost:1/v1")
    assert not model.reports_cost
    nb.set_prices({"llama": {"input": 0, "output": 0}})
    assert model.reports_cost


async def test_c205_an_inner_agent_without_a_price_is_not_started_in_a_cost_budget() -> None:
    """The inner agent's call fails with the reason; the outer run continues."""
    asked = nb.ScriptedModel(["never"], name="unpriced", usage=Usage())
    inner = nb.Agent(asked, name="inner")
    model = nb.ScriptedModel([call("inner", prompt="go"), "done"], usage=Usage(1, 1, 0.1))
    agent = nb.Agent(model, tools=[inner.as_tool()], budget=nb.Budget(cost=1))
    result = await agent.run("go", attended=False)
    assert (result.text, asked.requests) == ("done", [])
    (told,) = [p for m in result.messages if m["role"] == "tool" for p in m["content"]]
    assert "the price of the model 'unpriced' is unknown" in told["output"]
    assert result.usage.cost == pytest.approx(0.2)


UNTOLD = [
    ({"cost": 1.0}, Usage(10, 1), "cost of the run is unknown", 0.5),
    ({"tokens": 100}, Usage(), "number of tokens used is unknown", 5),
]


@pytest.mark.parametrize(("budget", "untold", "says", "more"), UNTOLD)
async def test_c206_a_response_without_usage_makes_a_person_decide_about_the_budget(
    budget: dict[str, Any], untold: Usage, says: str, more: float
) -> None:
    """A person is asked once; then the known usage counts against the budget plus the added amount."""
    says = {"cost": "The cost of the run is unknown", "tokens": says}[next(iter(budget))]
    known = Usage(10, 1, 0.1)
    agent = working(known, untold, known, known, **budget)
    run = await agent.run("go", attended=True, show=False).settled()
    [question] = run.interrupts
    assert says in str(question.metadata)
    assert len(agent.model.requests) == 2
    run.respond(question, more)
    result = await run
    assert result.text == "done"
    assert result.usage.known_cost == pytest.approx(0.3)


@pytest.mark.parametrize(("budget", "untold"), [u[:2] for u in UNTOLD])
async def test_c206_step_by_step_unknown_usage_ends_the_run_with_the_history_so_far(
    budget: dict[str, Any], untold: Usage
) -> None:
    """No person can be asked; without such a budget the run continues."""
    known = Usage(10, 1, 0.1)
    with pytest.raises(nb.errors.BudgetExceeded, match="is unknown") as caught:
        await working(known, untold, known, **budget).generate("go")
    assert caught.value.messages[-1]["role"] == "tool"
    assert (await working(known, untold, known).generate("go")).usage.cost is None


async def test_unknown_usage_stays_unknown_across_a_pause_in_json() -> None:
    """The known part and ``partial`` are both kept."""
    steps: list[Any] = [
        [call("work"), Finished("tool_calls", Usage(10, 1, 0.1))],
        [call("work"), Finished("tool_calls", Usage())],
        [call("gate"), Finished("tool_calls", Usage(10, 1))],
        "done",
    ]
    agent = nb.Agent(nb.ScriptedModel(steps))
    agent.add(nb.tool(name="work")(lambda: "worked"))

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        return "ok"

    paused = await agent.generate("go")
    history = json.loads(json.dumps(paused.messages))
    [found] = agent.interrupts(history)
    response = await agent.generate(messages=history, tool_restarts=[nb.tool_restart(found)])
    usage = response.usage
    assert (usage.cost, usage.known_cost, usage.partial) == (None, 0.1, True)
    assert usage.input_tokens == 20


async def test_a_scripted_model_uses_nothing_unless_it_says_so() -> None:
    """An agent with budgets can be tested with a scripted model: nobody is asked about its cost."""
    agent = nb.Agent(nb.ScriptedModel(["done"]), budget=nb.Budget(tokens=100, cost=0.5))
    run = await agent.run("go", attended=True, show=False).settled()
    assert (run.status, run.usage.cost, run.usage.partial) == ("completed", 0.0, False)
