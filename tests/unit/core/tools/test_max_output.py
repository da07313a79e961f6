"""What is too long of a result is not told to the model, which is told so."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.tools.values import MAX_OUTPUT, cut, for_model
from tests.integration.chat_server import ChatServer, Reply

call = nb.ScriptedModel.call
LONG = "begin" + "x" * 3_000_000 + "end"
NOTE = r"… (\d+) characters left out: the result is too long, ask for a part of it …"


def text() -> str:
    return LONG


def failing() -> None:
    raise ValueError(LONG)


def data() -> list[str]:
    return ["begin", *["x" * 100] * 30_000, "end"]


def pieces() -> Any:
    yield "begin"
    for _ in range(3000):
        yield "x" * 1000
    yield "end"


async def streamed() -> AsyncIterator[str]:
    for piece in pieces():
        yield piece


async def awaited() -> str:
    return LONG


def wrapped() -> nb.ToolResult:
    return nb.ToolResult(LONG)


TOOLS = [text, failing, data, pieces, streamed, awaited, wrapped]


async def told(agent: nb.Agent, name: str) -> tuple[Any, nb.Run]:
    """What the model is told of a call, and the run."""
    agent.model = model = nb.ScriptedModel([[call(name)], "done"])
    run = agent.run("go")
    await run
    [part] = model.requests[-1].messages[-1]["content"]
    return part.get("output", part.get("error")), run


@pytest.mark.parametrize("fn", TOOLS, ids=lambda fn: fn.__name__)
async def test_the_beginning_and_the_end_of_a_long_result_are_told(fn: Any) -> None:
    """Whatever form the tool has, and of a failure too; what code gets is whole."""
    output, run = await told(nb.Agent("demo", tools=[fn]), fn.__name__)
    assert isinstance(output, str)
    assert len(output) < MAX_OUTPUT + 200
    found = re.search(NOTE, output)
    assert found
    assert 2_700_000 < int(found[1]) < 3_200_000
    assert "begin" in output[:100]
    assert "end" in output[-10:]
    assert sum(len(event.model_dump_json()) for event in run.journal) < 4 * MAX_OUTPUT
    if fn is text:
        assert run.calls["text"][0].value == LONG


@pytest.mark.parametrize("limit", [1, 2, 10, None])
async def test_a_tool_may_say_how_much_is_told(limit: int | None) -> None:
    """More for a model that can take it, or less."""
    tool = nb.tool(max_output=limit)(text)
    output, _ = await told(nb.Agent("demo", tools=[tool]), "text")
    assert output == cut(LONG, limit)
    assert (output == LONG) == (limit is None)


async def test_the_answer_of_a_run_is_whole() -> None:
    """A final tool's result goes to code, not to a model."""
    agent = nb.Agent(nb.ScriptedModel([[call("text")]]), tools=[nb.tool(final=True)(text)])
    assert (await agent.run("go")).text == LONG


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10"])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    """Where it is given."""
    with pytest.raises(nb.errors.ToolError, match=r"max_output is a whole number .* above 0"):
        nb.tool(max_output=wrong)


@given(
    value=st.recursive(
        st.integers() | st.text() | st.floats() | st.none(),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
        max_leaves=60,
    ),
    limit=st.integers(1, 300),
)
def test_what_is_told_is_never_longer_and_the_same_where_it_fits(value: Any, limit: int) -> None:
    """By the JSON that is sent, the note aside."""
    whole, bounded = for_model(value), for_model(value, limit)
    if bounded != whole:
        assert isinstance(bounded, str)
        assert re.search(NOTE, bounded)
        assert len(bounded) <= 6 * limit + 100  # lone surrogates are written out
    elif not isinstance(whole, int | float | None):
        assert len(json.dumps(whole, ensure_ascii=False, separators=(",", ":"))) <= 6 * limit + 2


async def test_a_real_server_gets_no_more() -> None:
    """200 MB would be sent again with each turn."""
    with ChatServer([Reply(calls=[("text", {})]), Reply("Done.")]) as server:
        async with nb.OpenAIModel("test", base_url=server.url, api_key="k") as model:
            await nb.Agent(model, tools=[text]).run("go")
        assert len(server.requests[-1].raw) < 2 * MAX_OUTPUT
