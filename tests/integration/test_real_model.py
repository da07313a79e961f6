"""nbagent with a real language model: its streams, limits, grammars and stops pass through the whole product."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.events import ModelResponded
from nbagent.core.base.model import TextDelta
from tests.integration.real_model import CONTEXT, SLOTS, RealModel
from tests.until import PATIENCE

APIS = pytest.mark.parametrize("api", ["chat", "responses"])
LONG = "Write a very long story about a dog and a cat."


@pytest.fixture(scope="module")
def served() -> Iterator[RealModel]:
    """One server for all tests."""
    with RealModel() as server:
        yield server


async def until_busy(served: RealModel, least: int, most: int = SLOTS) -> None:
    """Wait until the server computes so many answers at once."""
    async with asyncio.timeout(PATIENCE):
        while not least <= await asyncio.to_thread(served.busy) <= most:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@APIS
async def test_c714_a_real_stream_arrives_in_pieces_and_says_why_it_ended(
    served: RealModel, api: Any
) -> None:
    """Its pieces are the answer; tokens are counted; an answer that reaches its limit is marked."""
    async with served.model(12, api=api) as model:
        run = nb.Agent(model).run(LONG, attended=False)
        pieces: list[str] = []
        run.subscribe(lambda event: isinstance(event, TextDelta) and pieces.append(event.text))
        result = await run
    assert len(pieces) > 3
    assert "".join(pieces) == result.text
    assert result.usage.output_tokens == 12
    (response,) = (event for event in run.journal if isinstance(event, ModelResponded))
    if api == "chat":  # in Responses, this server calls such an answer completed
        assert response.finish_reason == "length"
        assert "reached its limit of output tokens" in run.to_html()


class Pet(BaseModel):
    """A type with a small grammar."""

    kind: Literal["cat", "dog"]
    legs: Literal[2, 4]
    is_wild: bool


@pytest.mark.parametrize("stream", [True, False])
async def test_c715_a_real_grammar_makes_the_answer_of_a_type(served: RealModel, stream: bool):
    """A model that cannot follow instructions answers with the type, because the server enforces the schema."""
    async with served.model(60) as model:
        run = nb.Agent(model, output_type=Pet, output_retries=0).run("A dog.", attended=False)
        if stream:
            run.subscribe(lambda _event: None)
        assert isinstance((await run).output, Pet)


async def test_c716_a_stop_ends_the_computation_and_keeps_the_text(served: RealModel) -> None:
    """The server's slot is free at once, and the conversation continues after the text."""
    async with served.model(600) as model:
        run = nb.Agent(model).run(LONG, attended=False)
        pieces: list[str] = []
        run.subscribe(lambda event: isinstance(event, TextDelta) and pieces.append(event.text))
        await until_busy(served, 1)
        async with asyncio.timeout(PATIENCE):
            while len(pieces) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await run.cancel()
        await until_busy(served, 0, 0)
    text = run.messages[-1]["content"][0]
    assert text["text"] == "".join(pieces)
    assert text["nbagent"] == {"cut": "stopped"}
    async with served.model(4) as model:
        assert (await nb.Agent(model).run("Go on.", messages=run.messages, attended=False)).text


@APIS
async def test_c717_a_conversation_that_is_too_long_has_an_error_of_this_kind(
    served: RealModel, api: Any
) -> None:
    """The card shows the server's words with both numbers, and another model can answer."""
    words = "word " * (CONTEXT + 100)
    async with served.model(4, api=api) as model:
        run = nb.Agent(model).run(words, attended=False)
        with pytest.raises(nb.errors.ModelError, match="exceeds the available context") as caught:
            await run
        assert caught.value.kind == "too_long"
        assert f"({CONTEXT} tokens)" in run.to_html()
        larger = nb.ScriptedModel(["I have room."], name="larger")
        agent = nb.Agent(nb.Fallback(model, larger, on="too_long"))
        assert (await agent.run(words, attended=False)).text == "I have room."


async def test_c718_rows_are_answered_at_the_same_time(served: RealModel) -> None:
    """Eight rows of a batch use all slots of the server."""
    async with served.model(24) as model:
        rows = [{"n": n} for n in range(8)]
        batch = nb.map(nb.Agent(model), rows, prompt="Count from {n}.", id="n", concurrency=SLOTS)
        await until_busy(served, 2)
        await batch
    assert f"{batch!r}" == "<Batch n: 8 of 8 done>"
    assert batch.usage.output_tokens > 8


async def test_c719_a_chat_of_twenty_turns_shortens_itself(served: RealModel) -> None:
    """The server refuses the whole conversation; with ``history=``, each turn is answered, and all are kept."""
    async with served.model(4) as model:
        agent, run = nb.Agent(model, history=nb.keep()), None
        for turn in range(20):
            run = agent.run(f"Message {turn}. {'word ' * 18}", after=run, attended=False)
            assert (await run).text
        assert run is not None
        (response,) = (event for event in run.journal if isinstance(event, ModelResponded))
        assert "The model did not receive the oldest" in " ".join(response.notes)
        assert len(run.messages) == 40
        with pytest.raises(nb.errors.HistoryTooLong):
            await nb.Agent(model).run("And?", messages=run.messages, attended=False)


@APIS
async def test_c718_calls_and_results_of_another_model_are_read(
    served: RealModel, api: Any
) -> None:
    """The model's template knows no calls, and the server accepts them."""

    def look(city: str) -> str:
        """Look up the weather."""
        return f"Sunny in {city}"

    call = nb.ScriptedModel.call("look", city="Rome")
    scripted = nb.ScriptedModel([[call], "It is sunny."])
    run = nb.Agent(scripted, tools=[look]).run("Weather?", attended=False)
    await run
    async with served.model(8, api=api) as model:
        agent = nb.Agent(model, tools=[look])
        assert (await agent.run("And?", messages=run.messages, attended=False)).text
