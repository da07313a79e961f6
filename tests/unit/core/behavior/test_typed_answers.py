"""docs/behavior.md, typed answers: a misfit goes back to the model, on every driver."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.events import OutputRefused, RunRetried
from nbagent.core.base.model import Finished, TextDelta

call = nb.ScriptedModel.call


class City(BaseModel):
    """A typed answer."""

    name: str
    people: int


GOOD = '{"name": "Rome", "people": 2800000}'
BAD = '{"name": "Rome", "people": "many"}'


def truncated_response(text: str) -> list[Any]:
    """A response that the server ended at its limit."""
    return [TextDelta(text), Finished("length")]


def messages_to_the_model(session: Any) -> list[str]:
    """The messages to the model that no person wrote."""
    return [
        part["text"]
        for item in session.messages
        for part in item["content"]
        if item["role"] == "user" and "nbagent" in part
    ]


async def test_c184_an_answer_that_does_not_fit_is_sent_back_to_the_model(play):
    """The message says what is wrong, without the value; the next fitting answer counts."""
    s = await play([BAD, "Sorry!", GOOD], output_type=City)
    assert (s.status, s.requests, json.loads(s.text)) == ("completed", 3, json.loads(GOOD))
    first, second = messages_to_the_model(s)
    assert "people: Input should be a valid integer" in first
    assert "it is not JSON" in second
    assert "many" not in first


async def test_c185_a_pause_between_answers_does_not_use_up_the_retries(play, tools):
    """A call in between resets the count, as does JSON, which has no count."""
    s = await play([BAD, BAD, call("ask"), BAD, BAD, GOOD], tools, output_type=City)
    assert s.status == "interrupted"
    await s.answer(respond={0: "b"})
    assert (s.status, s.requests) == ("completed", 6)


async def test_c186_a_retry_asks_the_model_again(play, tools):
    """The run fails with the misfit, and a retry has the full number of tries."""
    s = await play([call("ask"), BAD, BAD, "soup", BAD, GOOD], tools, output_type=City)
    with pytest.raises(nb.errors.ModelError, match="does not match output_type: it is not JSON"):
        await s.answer(respond={0: "b"})
    assert s.requests == 4
    await s.retry()
    assert (s.status, s.requests) == ("completed", 6)
    assert len(messages_to_the_model(s)) == 4


async def test_c187_a_truncated_answer_is_not_requested_again(play, tools):
    """The error says that it was cut off; a retry asks again."""
    s = await play([call("ask"), truncated_response('{"name": "Ro'), GOOD], tools, output_type=City)
    with pytest.raises(
        nb.errors.ModelError, match="incomplete: its JSON was cut off at the length limit"
    ):
        await s.answer(respond={0: "b"})
    assert s.requests == 2
    await s.retry()
    assert (s.status, s.requests) == ("completed", 3)


async def test_c188_answers_that_do_not_fit_count_as_turns(play_stored):
    """After two responses a person is asked, as at any turn limit."""
    s = await play_stored([BAD, BAD, GOOD], output_type=City, max_turns=2)
    assert (s.status, s.requests) == ("interrupted", 2)
    await s.answer(respond={0: 1})
    assert (s.status, s.requests) == ("completed", 3)


async def test_c189_a_text_beside_a_call_is_not_an_answer(play, tools):
    """The text is not refused, whatever it says."""
    s = await play([["Let me look …", call("plain", x=1)], GOOD], tools, output_type=City)
    assert (s.status, s.requests, messages_to_the_model(s)) == ("completed", 2, [])


async def test_an_inner_agent_has_its_own_retries():
    """Misfits go back to the inner model; a failure is the call's result."""
    inner = nb.Agent(nb.ScriptedModel([BAD, GOOD]), name="inner", output_type=City)
    outer = nb.Agent(nb.ScriptedModel([call("inner", prompt="x"), "done"]), tools=[inner.as_tool()])
    run = outer.run("go")
    await run
    assert run.calls["inner"][-1].output == json.loads(GOOD)
    assert [e.scope for e in run.journal if isinstance(e, OutputRefused)] == [("call_1",)]
    inner = nb.Agent(nb.ScriptedModel([BAD] * 3), name="inner", output_type=City)
    outer = nb.Agent(nb.ScriptedModel([call("inner", prompt="x"), "done"]), tools=[inner.as_tool()])
    run = outer.run("go")
    assert (await run).text == "done"
    assert "does not match output_type" in (run.calls["inner"][-1].error or "")


async def test_a_fork_has_the_remaining_retries():
    """The fork of a failed run starts the count again."""
    agent = nb.Agent(nb.ScriptedModel([BAD, BAD, BAD, BAD, GOOD]), output_type=City)
    run = agent.run("go")
    with pytest.raises(nb.errors.ModelError):
        await run
    fork = run.fork()
    assert (await fork).output == City(name="Rome", people=2_800_000)
    assert sum(isinstance(e, RunRetried) for e in fork.journal) == 1


async def test_the_message_about_a_wrong_answer_is_bounded():
    """A type of thousands of choices does not fill the history."""
    many = Literal[tuple(f"choice {n}" for n in range(5_000))]
    run = nb.Agent(nb.ScriptedModel(['"x"', '"choice 7"']), output_type=many).run("go")
    assert (await run).output == "choice 7"
    (refused,) = [e for e in run.journal if isinstance(e, OutputRefused)]
    assert len(refused.errors) < 2_100
    assert refused.errors.endswith("…")


async def test_with_no_retries_the_first_wrong_answer_fails():
    """``output_retries`` can be 0, but not negative."""
    agent = nb.Agent(nb.ScriptedModel([BAD]), output_type=City, output_retries=0)
    with pytest.raises(nb.errors.ModelError, match="people"):
        await agent.run("go")
    with pytest.raises(nb.errors.UsageError, match="output_retries"):
        nb.Agent("demo", output_retries=-1)
