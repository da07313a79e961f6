"""The contract of every Model: one conversation, played by each kind of model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbagent.core.base.errors import ModelError
from nbagent.core.base.file_parts import file_part
from nbagent.core.base.messages import Message, message, text_part, user
from nbagent.core.base.model import (
    Finished,
    Model,
    ModelDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
)
from nbagent.core.tools.image_bytes import png
from nbagent.models.demo.model import demo_model
from nbagent.models.fallback import Fallback
from nbagent.models.litellm import LiteLLMModel
from nbagent.models.openai.model import OpenAIModel
from nbagent.models.recorded.model import RecordedModel
from nbagent.models.scripted import ScriptedModel
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.litellm_proxy import use_litellm
from tests.integration.responses_server import ResponsesServer
from tests.integration.test_pages import names_of_extending

NUMBER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
TOOLS = [ToolSpec("alpha", "The first.", NUMBER), ToolSpec("beta", "The second.", NUMBER)]
CALL = ScriptedModel.call


@asynccontextmanager
async def scripted() -> AsyncIterator[Model]:
    steps = [[CALL("alpha", x=1), CALL("beta", x=2)], ScriptedModel.slow("All done.", pieces=3)]
    yield ScriptedModel(steps)


@asynccontextmanager
async def over_http() -> AsyncIterator[Model]:
    steps = [Reply("", [("alpha", {"x": 1}), ("beta", {"x": 2})]), Reply("All done.")]
    with ChatServer(steps) as server:
        async with OpenAIModel("served", base_url=server.url) as model:
            yield model


@asynccontextmanager
async def through_litellm() -> AsyncIterator[Model]:
    use_litellm()
    steps = [Reply("", [("alpha", {"x": 1}), ("beta", {"x": 2})]), Reply("All done.")]
    with ChatServer(steps) as server:
        async with LiteLLMModel("openai/served", api_base=server.url, api_key="k") as model:
            yield model


@asynccontextmanager
async def over_responses() -> AsyncIterator[Model]:
    steps = [
        Reply("", [("alpha", {"x": 1}), ("beta", {"x": 2})], reasoning="Both."),
        Reply("All done."),
    ]
    with ResponsesServer(steps) as server:
        async with OpenAIModel("o9-served", base_url=server.url, api="responses") as model:
            yield model


@asynccontextmanager
async def demo() -> AsyncIterator[Model]:
    async with demo_model(pace=0) as model:
        yield model


@asynccontextmanager
async def of_the_page() -> AsyncIterator[Model]:
    yield names_of_extending()["Dutiful"]()


@asynccontextmanager
async def recording() -> AsyncIterator[Model]:
    with tempfile.TemporaryDirectory() as folder:
        async with over_http() as model:
            yield RecordedModel(Path(folder) / "session.json", model, mode="record")


@asynccontextmanager
async def replayed() -> AsyncIterator[Model]:
    """A replay of exchanges over HTTP; the server has stopped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        async with over_http() as model:
            recorded = RecordedModel(path, model, mode="record")
            first = await ask(recorded, [user("go")], stream=True)
            await ask(recorded, [user("go"), *answered(first)], stream=True)
        async with over_http() as model:
            recorded = RecordedModel(path.with_name("other.json"), model, mode="record")
            assert [delta async for delta in recorded.stream(Request([user("go")], tools=TOOLS))]
        async with over_http() as model:
            recorded = RecordedModel(path.with_name("seen.json"), model, mode="record")
            first = await ask(recorded, [user("go")], stream=True)
            await ask(recorded, with_pictures(first), stream=True)
        names = ("session.json", "other.json", "seen.json")
        entries = [json.loads(path.with_name(name).read_text()) for name in names]
        others = (entries[1]["session"][0], entries[2]["session"][1])
        entries[0]["session"] += [other | {"number": 3 + n} for n, other in enumerate(others)]
        path.write_text(json.dumps(entries[0]))
        yield RecordedModel(path)


@asynccontextmanager
async def falling_back() -> AsyncIterator[Model]:
    """The first server is down at every request, the second one answers."""
    down = Refuse(500, "down", {"x-should-retry": "false"})
    with ChatServer(lambda _: down) as server:
        async with over_http() as model:
            first = OpenAIModel("down", base_url=server.url)
            async with Fallback(first, model, cooldown=0) as fallback:
                yield fallback


MODELS = pytest.mark.parametrize(
    "make",
    [
        *(scripted, over_http, over_responses, through_litellm, demo, of_the_page),
        *(recording, replayed, falling_back),
    ],
)
STREAM = pytest.mark.parametrize("stream", [True, False])


async def ask(model: Model, messages: Sequence[Message], *, stream: bool) -> list[ModelDelta]:
    deltas: Any = model.stream(Request(messages, "Be brief.", TOOLS, stream=stream))
    async with aclosing(deltas):
        return [delta async for delta in deltas]


def answered(deltas: Sequence[ModelDelta]) -> tuple[Message, Message]:
    """The assistant's message that the deltas make, and a tool message that answers its calls."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, {"id": "", "name": "", "text": ""})
            call["id"] += delta.id or ""
            call["name"] += delta.name or ""
            call["text"] += delta.arguments
    parts = [
        {"type": "tool_call", "id": c["id"], "name": c["name"], "input": json.loads(c["text"])}
        for _, c in sorted(calls.items())
    ]
    results = [
        {
            "type": "tool_result",
            "id": part["id"],
            "name": part["name"],
            "output": {"seen": part["input"]},
        }
        for part in parts
    ]
    return message("assistant", text_part(text(deltas)), *parts), message("tool", *results)


def with_pictures(deltas: Sequence[ModelDelta]) -> list[Message]:
    """The same history, with a picture from the person and from each tool."""
    picture = file_part(png(np.eye(3)), "image/png", "a.png")
    asked, results = answered(deltas)
    shown = [{**part, "files": [picture]} for part in results["content"]]
    return [user((text_part("go"), picture)), asked, message("tool", *shown)]


def text(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@MODELS
@STREAM
async def test_a_model_calls_tools_and_closes_with_text(make: Any, stream: bool) -> None:
    """Calls have new ids, names that exist and JSON objects; every response ends with one Finished."""
    async with make() as model:
        assert model.name
        first = await ask(model, [user("go")], stream=stream)
        assistant, results = answered(first)
        calls = [part for part in assistant["content"] if part["type"] == "tool_call"]
        last = await ask(model, [user("go"), assistant, results], stream=stream)
    assert [call["name"] for call in calls] == ["alpha", "beta"]
    assert all(call["id"] for call in calls)
    assert len({call["id"] for call in calls}) == 2
    assert all(isinstance(call["input"]["x"], int) for call in calls)
    assert text(last)
    for deltas, reason in ((first, "tool_calls"), (last, "stop")):
        ends = [index for index, delta in enumerate(deltas) if isinstance(delta, Finished)]
        assert ends == [len(deltas) - 1]
        assert deltas[-1].reason == reason
        assert deltas[-1].usage.total_tokens >= 0


@MODELS
async def test_a_model_accepts_a_history_with_pictures(make: Any) -> None:
    """The person and a tool send pictures: the model sees pictures or descriptions, and its answer is complete."""
    async with make() as model:
        first = await ask(model, [user("go")], stream=True)
        last = await ask(model, with_pictures(first), stream=True)
    assert text(last)
    assert isinstance(last[-1], Finished)


@MODELS
@pytest.mark.parametrize("tail", ["no result", "the wrong result"])
async def test_a_model_refuses_a_history_with_a_dangling_call(make: Any, tail: str) -> None:
    """P12: test models are as strict as a server, so no test passes with a history that a server refuses."""
    call = {"type": "tool_call", "id": "a", "name": "alpha", "input": {"x": 1}}
    wrong = {"type": "tool_result", "id": "b", "name": "alpha", "output": "1"}
    history = {
        "no result": [user("go"), message("assistant", call)],
        "the wrong result": [user("go"), message("assistant", call), message("tool", wrong)],
    }[tail]
    async with make() as model:
        with pytest.raises(ModelError):
            await ask(model, history, stream=True)


@MODELS
async def test_an_abandoned_stream_is_closed(make: Any) -> None:
    """Closing a stream after its first delta leaks nothing and leaves the model usable."""
    async with make() as model:
        deltas: Any = model.stream(Request([user("go")], tools=TOOLS))
        async with aclosing(deltas):
            await anext(deltas)
        assert await ask(model, [user("go")], stream=True)
