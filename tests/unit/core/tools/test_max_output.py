"""Results that are too long: the model gets a part and a note."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.tools.result_text import MAX_OUTPUT, MAX_SHOWN, for_model, shortened_text
from nbagent.notebook.view.view import SingleRunView
from tests.integration.chat_server import ChatServer, Reply

call = nb.ScriptedModel.call
LONG = "begin" + "x" * 3_000_000 + "end"
NOTE = r"… ([\d,]+) of [\d,]+ characters left out: the result is too long. To see more, [^…]+ …"


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


async def text_to_model(agent: nb.Agent, name: str) -> tuple[Any, nb.Run]:
    """The output of a call for the model, and the run."""
    agent.model = model = nb.ScriptedModel([[call(name)], "done"])
    run = agent.run("go")
    await run
    [part] = model.requests[-1].messages[-1]["content"]
    return part.get("output", part.get("error")), run


@pytest.mark.parametrize("fn", TOOLS, ids=lambda fn: fn.__name__)
async def test_a_long_result_is_sent_as_its_beginning_and_end(fn: Any) -> None:
    """For every kind of tool, and for failures too; code gets the whole result."""
    output, run = await text_to_model(nb.Agent("demo", tools=[fn]), fn.__name__)
    assert isinstance(output, str)
    assert len(output) < MAX_OUTPUT + 200
    found = re.search(NOTE, output)
    assert found
    assert 2_900_000 < int(found[1].replace(",", "")) < 3_200_000
    assert "begin" in output[:100]
    assert "end" in output[-10:]
    assert sum(len(event.model_dump_json()) for event in run.journal) < 2 * MAX_SHOWN
    if fn is text:
        assert run.calls["text"][0].value == LONG


def page(start: int = 0, rows: int = 5_000) -> list[str]:
    return [f"line {n}" for n in range(start, start + rows)]


async def test_c418_a_model_learns_how_to_get_the_rest_and_the_person_sees_more() -> None:
    """Some 8,000 tokens by default; the note names the tool's parameters, and a call with them gives a part."""
    model = nb.ScriptedModel([[call("page")], [call("page", start=4_000, rows=2)], "done"])
    run = nb.Agent(model, tools=[page, text]).run("go")
    await run
    first, second = (one.output for one in run.calls["page"])
    assert isinstance(first, str)
    assert len(first) < 33_000
    assert (
        "call page again so that it returns less, or a part of it (it takes start, rows)" in first
    )
    assert second == ["line 4000", "line 4001"]
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    view.flush(time.monotonic())
    shown = next(item for item in view.snapshot().items if item.type == "call").result
    assert shown.startswith("(The model received 32,")
    assert '"line 2500"' in shown
    assert '"line 2500"' not in first
    output, _ = await text_to_model(nb.Agent("demo", tools=[text]), "text")
    assert "text has no parameter to select a part" in output


@pytest.mark.parametrize("limit", [1, 2, 10, None])
async def test_a_tool_can_set_the_limit_of_its_output(limit: int | None) -> None:
    """More or less than the default."""
    tool = nb.tool(max_output=limit)(text)
    output, _ = await text_to_model(nb.Agent("demo", tools=[tool]), "text")
    assert re.sub(NOTE, "", output) == re.sub(NOTE, "", shortened_text(LONG, limit))
    assert (output == LONG) == (limit is None)


async def test_the_answer_of_a_run_is_not_truncated() -> None:
    """A final tool's result goes to code, not to a model."""
    agent = nb.Agent(nb.ScriptedModel([[call("text")]]), tools=[nb.tool(final=True)(text)])
    assert (await agent.run("go")).text == LONG


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10"])
def test_an_invalid_limit_is_refused(wrong: Any) -> None:
    with pytest.raises(nb.errors.ToolError, match=r"max_output must be a positive number"):
        nb.tool(max_output=wrong)


@given(
    value=st.recursive(
        st.integers() | st.text() | st.floats() | st.none(),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
        max_leaves=60,
    ),
    limit=st.integers(1, 300),
)
def test_a_truncated_result_is_never_longer_and_a_fitting_one_is_unchanged(
    value: Any, limit: int
) -> None:
    """Measured by the JSON that is sent, without the note."""
    whole, bounded = for_model(value), for_model(value, limit)
    if bounded != whole:
        assert isinstance(bounded, str)
        assert re.search(NOTE, bounded)
        assert len(bounded) <= 6 * limit + 120  # lone surrogates are written out
    elif not isinstance(whole, int | float | None):
        assert len(json.dumps(whole, ensure_ascii=False, separators=(",", ":"))) <= 6 * limit + 2


async def test_a_real_server_gets_only_the_truncated_result() -> None:
    """3 MB would be sent again with each turn."""
    with ChatServer([Reply(calls=[("text", {})]), Reply("Done.")]) as server:
        async with nb.OpenAIModel("test", base_url=server.url, api_key="k") as model:
            await nb.Agent(model, tools=[text]).run("go")
        assert len(server.requests[-1].raw) < 2 * MAX_OUTPUT
