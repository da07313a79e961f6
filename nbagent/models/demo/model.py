"""The model ``"demo"``: it needs no key, and answers the real openai client inside this process.

Only the network is replaced: the real code encodes requests, parses streams and reports errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.messages import dumps
from nbagent.core.base.model import ModelDelta, Request
from nbagent.models.openai.chat import ChatApi
from nbagent.models.openai.encoding import Settings
from nbagent.models.openai.model import OpenAIModel

from .brain import Reply, reply
from .talk import Malformed, parse_talk

SPEED = "NBAGENT_DEMO_SPEED"
"""The environment variable with the speed: 2 is twice as fast, 0 means without pauses."""
URL = "http://demo/v1"
PACE = 0.03
"""Seconds between words, about as fast as a hosted model."""


def demo_model(*, pace: float | None = None) -> OpenAIModel | InPage:
    """The model behind ``nb.Agent("demo")``.

    Raises:
        ModelConfigError: ``NBAGENT_DEMO_SPEED`` is not a number, or is negative.
    """
    seconds = _pace() if pace is None else pace
    if sys.platform == "emscripten":  # a web page may not have the openai client
        return InPage(seconds)

    def client() -> Any:
        import httpx2  # noqa: PLC0415  as below
        import openai  # noqa: PLC0415  the client loads for 0.6 s

        async def answer(request: httpx2.Request) -> httpx2.Response:
            body = json.loads(request.content)
            try:
                response = reply(parse_talk(body))
            except Malformed as error:
                return httpx2.Response(400, json={"error": {"message": str(error)}})
            return httpx2.Response(
                200,
                headers={"content-type": "text/event-stream"},
                content=_paced(body, response, seconds),
            )

        return openai.AsyncOpenAI(
            api_key="demo",
            base_url=URL,
            http_client=openai.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(answer)),
        )

    return OpenAIModel("demo", base_url=URL, client=client)


class InPage:
    """The demo model without the openai client, for web pages; its requests and answers are the same."""

    name = "demo"
    reports_cost = True

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._api = ChatApi(Settings(self.name))

    async def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request.

        Raises:
            ModelError: a strict server would reject the request's history.
        """
        body = json.loads(self._api.body(request, self.name))
        try:
            response = reply(parse_talk(body))
        except Malformed as error:
            raise ModelError(f"The model {self.name!r}: {error}") from error
        parser = self._api.parser(self.name, request.tools)
        async for data in _paced(body, response, self._pace):
            for delta in parser.feed(data):
                yield delta
        finished = parser.finished()
        assert finished is not None  # the last of the events ends the response
        yield finished._replace(usage=replace(finished.usage, cost=0.0))


def _pace() -> float:
    setting = os.environ.get(SPEED, "1")
    try:
        speed = float(setting)
    except ValueError:
        speed = -1
    if not speed >= 0:
        raise ModelConfigError(f"{SPEED}={setting!r}: expected a number, 0 for no pauses")
    return PACE / speed if speed else 0.0


async def _paced(body: Mapping[str, Any], response: Reply, pace: float) -> AsyncIterator[bytes]:
    for event in _events(body, response):
        if pace and body["stream"]:
            await asyncio.sleep(pace)
        yield b"data: " + event.encode() + b"\n\n"


def _events(body: Mapping[str, Any], response: Reply) -> Iterator[str]:
    """The events of an answer; also if no stream is asked for, because the client reads them then too."""
    for delta in _deltas(body, response):
        yield dumps(_chunk(body, {"delta": delta, "finish_reason": None}))
    end = "tool_calls" if response.calls else "stop"
    yield dumps(_chunk(body, {"delta": {}, "finish_reason": end}))
    yield dumps({**_chunk(body), "usage": _usage(body, response)})
    yield "[DONE]"


def _deltas(body: Mapping[str, Any], response: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for word in re.findall(r"\s*\S+\s*", response.text):
        yield {"content": word}
    for index, (name, value) in enumerate(response.calls):
        call_id = f"call_{len(body['messages'])}_{index}"
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        yield {"tool_calls": [call]}
        for piece in re.findall(r".{1,12}", dumps(value), re.DOTALL):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(body: Mapping[str, Any], choice: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": f"demo-{len(body['messages'])}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, **choice}] if choice else [],
    }


def _usage(body: Mapping[str, Any], response: Reply) -> dict[str, int]:
    # about four characters make a token
    input_tokens = len(dumps(body["messages"])) // 4
    output_tokens = (
        len(response.text) + sum(len(dumps(value)) for _, value in response.calls)
    ) // 4
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
