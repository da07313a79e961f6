"""A model's own client: each request has a connection, used again and closed when idle; later requests are as the first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Request
from nbagent.models.openai import transport
from nbagent.models.openai.stream import MAX_ERROR

from .chat_server import Body, ChatServer, Refuse, Reply, Step
from .test_openai_model import HELLO, ask, text


def together(count: int) -> Callable[[Body], Reply]:
    """A script: the first ``count`` requests are answered when all have arrived, later ones at once."""
    arrived = threading.Barrier(count)
    left = iter(range(count))

    def answer(_body: Body) -> Reply:
        if next(left, None) is not None:
            arrived.wait(30)
        return Reply("x")

    return answer


async def ask_at_once(model: nb.OpenAIModel, count: int, *, stream: bool = False) -> None:
    """So many requests at the same time, all answered."""
    answers = await asyncio.gather(
        *(ask(model, Request(HELLO, stream=stream)) for _ in range(count))
    )
    assert [text(answer) for answer in answers] == ["x"] * count


async def open_sockets(server: ChatServer, count: int) -> None:
    """Wait until the server has so many connections."""
    async with asyncio.timeout(30):
        while len(server._sockets) != count:  # noqa: ASYNC110  a server's thread closes them
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_at_once_have_a_connection_each_and_later_ones_use_the_last(
    stream: bool,
) -> None:
    with ChatServer([together(8)] * 8 + [Reply("x")] * 5) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 8, stream=stream)
            for _ in range(5):
                await ask_at_once(model, 1, stream=stream)
            ports = [seen.connection for seen in server.requests]
            assert len(set(ports[:8])) == 8
            assert len(set(ports[8:])) == 1
            assert ports[8] in ports[:8]
        await open_sockets(server, 0)


async def test_requests_above_the_maximum_wait_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_OPEN", 2)
    with ChatServer(lambda _body: Reply("x", delay=0.01)) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 6, stream=True)
            assert len({seen.connection for seen in server.requests}) == 2


@pytest.mark.parametrize(("name", "value"), [("MAX_IDLE", 1), ("IDLE_SECONDS", 0.0)])
async def test_idle_connections_are_closed(
    name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer([together(4)] * 4 + [Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 4)
            await open_sockets(server, 4)
            monkeypatch.setattr(transport, name, value)
            await ask_at_once(model, 1)
            await open_sockets(server, int(value))


async def test_an_error_that_is_too_large_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_OPEN", 1)
    with ChatServer([Reply("x"), Refuse(400, "long" * MAX_ERROR), Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url, max_retries=0) as model:
            await ask_at_once(model, 1)
            with pytest.raises(Exception, match="larger than"):
                await ask_at_once(model, 1)
            async with asyncio.timeout(30):
                await ask_at_once(model, 1)


async def test_a_cancelled_request_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_OPEN", 1)
    with ChatServer([Reply("x", stall=1), Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            asking: asyncio.Task[Any] = asyncio.create_task(ask(model, Request(HELLO, stream=True)))
            await asyncio.to_thread(server.asked.wait, 30)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(30):
                await ask_at_once(model, 1)


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer([Reply("x")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        proxy.path = "http://models.example/v1/chat/completions"
        async with nb.OpenAIModel("m", base_url="http://models.example/v1") as model:
            await ask_at_once(model, 1)


async def test_later_requests_are_as_the_client_builds_the_first() -> None:
    """Only the body and its length differ; a path of its own is built anew."""
    with ChatServer([Reply("x"), Reply("x"), Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url, api_key="k") as model:
            for words in ("hello", "hello again", "and again"):
                await ask(model, Request([user(words)]))
        first, *others = server.requests
        assert first.headers["authorization"] == "Bearer k"
        assert first.headers["content-type"] == "application/json"
        for other in others:
            assert other.headers["content-length"] == str(len(other.raw))
            assert other.headers | {"content-length": ""} == first.headers | {"content-length": ""}
            assert len(other.raw) > len(first.raw)


async def test_a_cookie_that_the_server_set_is_sent_back() -> None:
    """Gateways use cookies to send a client to the same server again."""
    sets = Refuse(503, "busy", {"set-cookie": "to=7", "retry-after-ms": "1"})
    with ChatServer([sets, Reply("x"), Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 1)
            await ask_at_once(model, 1)
        assert [seen.headers.get("cookie") for seen in server.requests] == [None, "to=7", "to=7"]


@pytest.mark.parametrize(
    "step",
    [
        Refuse(400, "no such field"),
        Refuse(401, "wrong key"),
        Refuse(404, "no such model"),
        Refuse(429, "slow down", {"retry-after": "1000"}),
        Refuse(500, "broken"),
        Refuse(302, "elsewhere", {"location": "http://127.0.0.1:9/"}),
        Reply("x", cut=0),
        Reply("x", stall=0),
        lambda _body: time.sleep(1) or Reply("x"),
    ],
    ids=["400", "401", "404", "429", "500", "302", "cut", "silent", "late"],
)
async def test_a_later_request_fails_as_the_first_would(step: Step) -> None:
    async def error_after(answered: int) -> tuple[type[Exception], str]:
        with ChatServer([*[Reply("x")] * answered, step]) as server:
            model = nb.OpenAIModel("m", base_url=server.url, max_retries=0, timeout=0.5)
            async with model:
                for _ in range(answered):
                    await ask_at_once(model, 1)
                with pytest.raises(ModelError) as caught:
                    await ask(model, Request(HELLO, stream=isinstance(step, Reply)))
            return type(caught.value), str(caught.value).replace(server.url, "URL")

    assert await error_after(1) == await error_after(0)


async def test_a_server_that_is_gone_is_reported_as_at_the_first_request() -> None:
    async def error_after(answered: int) -> str:
        with ChatServer([Reply("x")] * answered) as server:
            model = nb.OpenAIModel("m", base_url=server.url, max_retries=0)
            for _ in range(answered):
                await ask_at_once(model, 1)
        with pytest.raises(ModelError) as caught:
            await ask(model, Request(HELLO))
        await model.aclose()
        return str(caught.value).replace(server.url, "URL")

    assert await error_after(1) == await error_after(0)
