"""A model's own client reuses connections and closes idle ones; later requests equal the first."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.file_parts import file_part
from nbagent.core.base.messages import text_part, user
from nbagent.core.base.model import Notice, Request
from nbagent.models.openai import connections, transport
from nbagent.models.openai.stream import MAX_ERROR

from .chat_server import Body, ChatServer, Refuse, Reply, Step
from .test_openai_model import HELLO, ask, text

WHOLE = json.dumps(
    {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        ]
    }
).encode()


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
    """Send ``count`` requests at once; all must be answered."""
    answers = await asyncio.gather(
        *(ask(model, Request(HELLO, stream=stream)) for _ in range(count))
    )
    assert [text(answer) for answer in answers] == ["x"] * count


async def open_sockets(server: ChatServer, count: int) -> None:
    """Wait until the server has ``count`` connections."""
    async with asyncio.timeout(30):
        while len(server._sockets) != count:  # noqa: ASYNC110  a server's thread closes them
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_at_once_have_a_connection_each_and_later_ones_use_these(
    stream: bool,
) -> None:
    with ChatServer([together(8)] * 8 + [Reply("x")] * 5) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 8, stream=stream)
            for _ in range(5):
                await ask_at_once(model, 1, stream=stream)
            ports = [seen.connection for seen in server.requests]
            assert len(set(ports[:8])) == 8
            assert set(ports[8:]) <= set(ports[:8])
        await open_sockets(server, 0)


async def test_requests_above_the_maximum_wait_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OPEN", 2)
    with ChatServer(lambda _body: Reply("x", delay=0.01)) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 6, stream=True)
            assert len({seen.connection for seen in server.requests}) == 2


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.1)
    with ChatServer([together(4)] * 4) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 4)
            await open_sockets(server, 0)


async def test_an_error_that_is_too_large_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OPEN", 1)
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
    monkeypatch.setattr(connections, "MAX_OPEN", 1)
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
    """Only the body and its length differ."""
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


def request_heads(server: ChatServer) -> list[dict[str, str]]:
    """The headers of all requests, without those of a connection or body."""
    return [
        {
            name: value
            for name, value in seen.headers.items()
            if name not in ("content-length", "host")
        }
        for seen in server.requests
    ]


@pytest.mark.parametrize("custom", ["", "X-Team: data\nCookie: sso=abc"])
async def test_requests_have_the_headers_of_the_openai_client(
    custom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", custom)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    with ChatServer([Reply("x")] * 3) as server:
        async with nb.OpenAIModel("m", base_url=server.url, api_key="k") as model:
            await ask_at_once(model, 1)
            await ask_at_once(model, 1)
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
        ) as client:
            await ask(nb.OpenAIModel("m", client=client), Request(HELLO, stream=False))
        first, later, plain = request_heads(server)
    assert first == later == plain
    assert first["openai-organization"] == "org-1"
    assert first.get("cookie") == ("sso=abc" if custom else None)


async def test_openai_s_log_has_every_request(caplog: pytest.LogCaptureFixture) -> None:
    with ChatServer([Reply("x")] * 3) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 1)
            with caplog.at_level(logging.DEBUG, "openai._base_client"):
                await ask_at_once(model, 1)
                await ask_at_once(model, 1)
    assert [each.getMessage() for each in caplog.records].count("HTTP Response: POST 200") == 2


async def test_a_request_that_waits_too_long_for_a_connection_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OPEN", 1)
    with ChatServer([Reply("x"), Reply("x" * 10, pieces=10, delay=0.1)]) as server:
        async with nb.OpenAIModel("m", base_url=server.url, max_retries=0, timeout=0.5) as model:
            await ask_at_once(model, 1)
            slow = asyncio.create_task(ask(model, Request(HELLO, stream=True)))
            while len(server.requests) < 2:  # noqa: ASYNC110  the server's thread adds them
                await asyncio.sleep(0.01)
            with pytest.raises(ModelError, match="did not answer in time"):
                await ask_at_once(model, 1)
            assert len(server.requests) == 2
            slow.cancel()
            with suppress(asyncio.CancelledError):
                await slow


async def test_a_failed_connection_is_not_taken_before_those_that_work() -> None:
    with ChatServer([together(4)] * 4 + [Reply("x", cut=0)] + [Reply("x")] * 2) as server:
        async with nb.OpenAIModel("m", base_url=server.url, max_retries=0) as model:
            await ask_at_once(model, 4)
            with pytest.raises(ModelError):
                await ask(model, Request(HELLO, stream=True))
            await ask_at_once(model, 2)
        assert len({seen.connection for seen in server.requests}) == 4


async def test_a_reader_that_stops_at_a_note_leaves_the_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OPEN", 1)
    picture = file_part(b"\x89PNG\r\n\x1a\n" + b"0" * 40, "image/png")
    seen = Request([user([text_part("What is it?"), picture])])
    with ChatServer([Reply("x"), Reply("x")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url, vision=False) as model:
            async with aclosing(model.stream(seen)) as deltas:
                async for delta in deltas:
                    assert isinstance(delta, Notice)
                    break
            async with asyncio.timeout(30):
                await ask_at_once(model, 1)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"GIT_PROXY": "x"}, None),
        ({"HTTPS_PROXY": "http://p"}, None),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "models.example"}, None),
        ({"ALL_PROXY": "http://u:k@p", "HTTP_PROXY": "q:3"}, "http://q:3"),
        ({"ALL_PROXY": "http://u:k@p"}, "http://u:k@p"),
    ],
)
def test_a_proxy_is_used_only_for_its_addresses(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert connections._proxy_of(httpx2.URL("http://models.example/v1")) == proxy


async def test_a_socks_proxy_gets_no_kept_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only httpx2 has SOCKS, but a connection that it keeps takes a surplus answer for the next one."""
    monkeypatch.setenv("ALL_PROXY", "socks5://p")
    assert transport._connections() is None
    monkeypatch.setattr(transport, "_connections", lambda: None)
    monkeypatch.delenv("ALL_PROXY")
    with ChatServer([Reply("x")] * 2) as server:
        async with nb.OpenAIModel("m", base_url=server.url) as model:
            await ask_at_once(model, 1)
            await ask_at_once(model, 1)
        assert len({seen.connection for seen in server.requests}) == 2


async def test_a_client_can_be_copied_and_called_as_its_base() -> None:
    with ChatServer([Reply("x")]) as server:
        async with transport.Client(base_url=server.url, api_key="k") as client:
            answer = await client.with_options(max_retries=0).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}]
            )
    assert answer.choices[0].message.content == "x"


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
) -> AsyncIterator[str]:
    """A server of raw bytes; yield its address."""
    at_work: list[asyncio.Task[Any] | None] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.append(asyncio.current_task())
        with suppress(ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()
    for task in filter(None, at_work):
        task.cancel()
    await asyncio.gather(*filter(None, at_work))


HEAD = b"HTTP/1.1 %d Yes\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
TRICKLING = {
    "the head of an answer": HEAD % 200 + b"X-Odd: ",
    "an error": HEAD % 400 + b"\r\n",
    "an answer in one piece": HEAD % 200 + b'\r\n{"choices": ',
}


@pytest.mark.parametrize("begin", TRICKLING.values(), ids=TRICKLING)
async def test_an_answer_that_arrives_byte_by_byte_times_out(begin: bytes) -> None:
    """The timeout applies to the whole answer, because each single byte arrives in time; then the client hangs up."""
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        with suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        hung_up.set()

    async with serving(serve) as url, asyncio.timeout(60):
        model = nb.OpenAIModel("m", base_url=url, api_key="k", timeout=0.3, max_retries=0)
        with pytest.raises(nb.errors.ModelError):
            await nb.Agent(model).generate("go")
        await model.aclose()
        await hung_up.wait()


@pytest.mark.parametrize("answered", [0, 1])
async def test_an_error_whose_text_breaks_off_is_repeated(answered: int) -> None:
    """A dying gateway answers like this."""
    replies = ["answer"] * answered + ["error", "answer"]
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert size is not None
                await reader.readexactly(int(size[1]))
                kind, asked = replies[asked], asked + 1
                status, length = (b"200", len(WHOLE)) if kind == "answer" else (b"503", 9999)
                writer.write(
                    b"HTTP/1.1 %s X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                    % (status, length)
                    + WHOLE
                )
                await writer.drain()
                if kind == "error":
                    break

    async with serving(serve) as url, nb.OpenAIModel("m", base_url=url) as model:
        for _ in range(answered + 1):
            await ask_at_once(model, 1)
    assert asked == answered + 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1, with its key."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=nbagent"
    made += " -addext subjectAltName=IP:127.0.0.1 -keyout - -out -"
    path.write_bytes(subprocess.run(made.split(), capture_output=True, check=True).stdout)
    return path


def with_tls(server: ChatServer, certificate: Path) -> str:
    """Let a server encrypt; return its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    return server.url.replace("http:", "https:")


@pytest.mark.parametrize("encrypted", [True, False])
async def test_large_requests_and_answers_arrive_whole(
    encrypted: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are larger than the buffers of the sockets."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    question, answer = "question " * 900_000, "answer " * 400_000
    server = ChatServer([Reply(answer)] * 2 + [Reply(answer, pieces=9)] * 2)
    url = with_tls(server, certificate) if encrypted else server.url
    with server:
        async with nb.OpenAIModel("m", base_url=url) as model:
            for stream in (False, False, True, True):
                asked = Request([user(question)], stream=stream)
                assert text(await ask(model, asked)) == answer
        assert len({seen.connection for seen in server.requests}) == 1
        assert {seen.body["messages"][0]["content"] for seen in server.requests} == {question}


async def test_a_certificate_that_is_not_trusted_and_a_server_without_tls_are_reported(
    certificate: Path,
) -> None:
    server = ChatServer()
    url = with_tls(server, certificate)
    with server, pytest.raises(ModelError, match="its certificate is not trusted here"):
        await ask(nb.OpenAIModel("m", base_url=url, max_retries=0), Request(HELLO))
    plain = ChatServer()
    url = plain.url.replace("http:", "https:")
    with plain, pytest.raises(ModelError, match="Is it http:// instead of https"):
        await ask(nb.OpenAIModel("m", base_url=url, max_retries=0), Request(HELLO))


async def test_an_answer_that_is_not_read_is_not_stored() -> None:
    """The server must wait; a stream holds no more than the sockets' buffers."""
    piece, count, sent = b"x" * 1_000_000, 60, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (count * len(piece)))
        for sent in range(count):  # noqa: B007  the test reads it
            writer.write(piece)
            await writer.drain()

    async with (
        serving(serve) as url,
        httpx2.AsyncClient(transport=connections.Connections()) as client,
        client.stream("GET", url) as answer,
    ):
        last = -1
        while sent != last:
            last = sent
            await asyncio.sleep(0.3)
        assert 0 < sent < count / 2
        assert len(await answer.aread()) == count * len(piece)


async def test_a_flood_of_interim_answers_is_an_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for interim in (
            b"HTTP/1.1 103 Early Hints\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
        ):
            writer.write(interim)
            await writer.drain()

    async with serving(serve) as url, nb.OpenAIModel("m", base_url=url, max_retries=0) as model:
        with pytest.raises(ModelError, match="more than 100 interim answers"):
            await ask(model, Request(HELLO))


async def test_a_server_that_takes_no_body_is_given_up() -> None:
    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(serve) as url:
        model = nb.OpenAIModel("m", base_url=url, max_retries=0, timeout=0.2)
        with pytest.raises(ModelError, match="did not answer in time"):
            await ask(model, Request([user("x" * 30_000_000)]))


async def test_a_name_that_no_host_can_have_is_reported() -> None:
    model = nb.OpenAIModel("m", base_url=f"http://{'a' * 70}.com/v1", max_retries=0)
    with pytest.raises(ModelError, match="cannot be reached"):
        await ask(model, Request(HELLO))


async def test_a_connection_whose_answer_was_not_read_is_not_kept() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n" + b"x" * 1_000_000)
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    async with (
        serving(serve) as url,
        httpx2.AsyncClient(transport=connections.Connections()) as client,
    ):
        async with client.stream("GET", url) as answer:
            assert await anext(answer.aiter_bytes())
        async with asyncio.timeout(30):
            await closed.wait()


@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_is_reset_while_idle_is_not_used(
    turns: int, certificate: Path
) -> None:
    """However far asyncio has come with the end, the request gets another connection, or an error of httpx2."""
    trusted = ssl.create_default_context(cafile=str(certificate))
    encrypting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encrypting.load_cert_chain(certificate)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=encrypting)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    held = connections.Connections()
    held._ssl_context = trusted
    async with httpx2.AsyncClient(transport=held) as client:
        assert (await client.get(url)).text == "x"
        raw = writers[0].transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        below: Any = writers[0].transport
        below._ssl_protocol._transport.abort()
        for _ in range(turns):
            await asyncio.sleep(0)
        with suppress(httpx2.HTTPError):
            assert (await client.get(url)).text == "x"
        assert (await client.get(url)).text == "x"
    server.close()
