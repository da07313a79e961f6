"""Typed answers of servers that support JSON Schema, only JSON mode, or neither, on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import nbagent as nb
from tests.integration.chat_server import Body, ChatServer, Refuse, Reply
from tests.integration.test_server_rules import PLAYED, SERVERS, model_at, run_on


class City(BaseModel):
    """A typed answer."""

    name: str
    people: int


GOOD = '{"name": "Rome", "people": 3}'
FENCED = f"Here you are:\n```json\n{GOOD}\n```\n"
REFUSALS = {
    "json_schema": "This response_format type is unavailable now",
    "json_object": "json mode cannot be combined with tool/function calling",
}


def knowing(*known: str) -> Any:
    """A script that refuses all response formats except these."""

    def answer(body: Body) -> Reply | Refuse:
        kind = body.get("response_format", {}).get("type")
        if kind is not None and kind not in known:
            return Refuse(400, REFUSALS[kind])
        return Reply(FENCED if kind is None else GOOD)

    return answer


def kinds(server: ChatServer) -> list[str | None]:
    return [body.get("response_format", {}).get("type") for body in server.bodies]


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (["json_schema", "json_object"], ["json_schema", "json_schema"]),
        (["json_object"], ["json_schema", "json_object", "json_object"]),
        ([], ["json_schema", "json_object", None, None]),
    ],
)
async def test_after_a_refusal_the_next_way_to_ask_for_json_is_used(known, asked):
    """The change is permanent; a schema that is not in a field is in the instructions."""
    with ChatServer(knowing(*known)) as server:
        model = nb.OpenAIModel("m", base_url=server.url)
        agent = nb.Agent(model, instructions="Be brief.", output_type=City)
        for _ in range(2):
            assert (await agent.run("go")).output == City(name="Rome", people=3)
        await model.aclose()
        assert kinds(server) == asked
        for body in server.bodies:
            told = body["messages"][0]["content"]
            assert told.startswith("Be brief.")
            in_field = body.get("response_format", {}).get("type") == "json_schema"
            assert ("JSON Schema" in told) is not in_field


async def test_concurrent_requests_step_down_together():
    """Several refusals of one format count as one step."""
    with ChatServer(knowing("json_object")) as server:
        model = nb.OpenAIModel("m", base_url=server.url)
        agent = nb.Agent(model, output_type=City)
        await asyncio.gather(*(agent.run("go") for _ in range(4)))
        await model.aclose()
        assert set(kinds(server)) == {"json_schema", "json_object"}


@pytest.mark.parametrize(("output", "kind"), [("object", "json_object"), ("prompt", None)])
async def test_the_way_can_be_chosen(output: Any, kind: str | None):
    """With ``output=``, no request is refused first; a list is requested as an object in the instructions too."""
    with ChatServer([Reply('{"value": ["a"]}')]) as server:
        model = nb.OpenAIModel("m", base_url=server.url, output=output)
        run = nb.Agent(model, output_type=list[Literal["a", "b"]]).run("go")
        assert (await run).output == ["a"]
        await model.aclose()
        assert kinds(server) == [kind]
        schema = server.bodies[0]["messages"][0]["content"].partition("\n")[2]
        assert json.loads(schema)["properties"]["value"]["type"] == "array"


async def test_a_text_answer_needs_no_way_to_ask_for_json():
    """A request for plain text mentions no JSON, and a refusal does not change the format."""
    with ChatServer([Reply("hello"), Refuse(400, "no such response_format")]) as server:
        model = nb.OpenAIModel("m", base_url=server.url, output="prompt")
        agent = nb.Agent(model, output_type=str)
        assert (await agent.run("go")).output == "hello"
        with pytest.raises(nb.errors.ModelError, match="no such response_format"):
            await agent.run("go")
        await model.aclose()
        assert [len(body["messages"]) for body in server.bodies] == [1, 1]


def test_an_unknown_way_is_refused():
    """The error lists the known ways."""
    with pytest.raises(nb.errors.ModelConfigError, match="'schema', 'object', 'prompt'"):
        nb.OpenAIModel("m", output="json")  # type: ignore[arg-type]


@PLAYED
async def test_c713_a_server_that_ignores_the_schema_gets_it_in_words(
    api: str, stream: bool
) -> None:
    """After the first wrong answer, because such a server reports no error; a right answer needs no words."""
    steps = [Reply("Rome has 3 people."), Reply(FENCED), Reply(GOOD)]
    with SERVERS[api](steps) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model, output_type=City)
            runs = [await run_on(agent, "Which city?", stream=stream) for _ in range(2)]
    assert [(await run).output for run in runs] == [City(name="Rome", people=3)] * 2
    assert ["matches this JSON Schema" in str(body) for body in server.bodies] == [
        False,
        True,
        False,
    ]
    assert all("json_schema" in str(body) for body in server.bodies)
