"""P19: an answer belongs to its request, whatever a server sends, and whenever it sends it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Request
from nbagent.models.openai import connections

from .test_openai_model import ask, text
from .test_transport import serving

EXCHANGES = int(os.environ.get("NBAGENT_THOROUGH", "300"))
SEED = 35
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def body(words: str) -> bytes:
    message = {"role": "assistant", "content": words}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()


def whole(words: str) -> bytes:
    data = body(words)
    return HEAD + b"content-length: %d\r\n\r\n" % len(data) + data


def chunked(words: str) -> bytes:
    data = body(words)
    parts = [data[:7], data[7:30], data[30:], b""]
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + pieces


def closing(words: str) -> bytes:
    return HEAD + b"connection: close\r\n\r\n" + body(words)


FAKE = whole("surplus")
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@dataclass
class Plan:
    """What the server sends for one request, and when."""

    answer: bytes
    surplus: bytes = b""
    """Sent with the answer."""
    late: bytes = b""
    """Sent when the client has the answer, and has not sent the next request."""
    cuts: tuple[int, ...] = ()
    """The places at which the server interrupts the answer and surplus."""
    has_answer: bool = True
    """Whether the client must understand the answer; else it may report an error."""


@dataclass
class Server:
    """A server that follows a plan for each request, whose body contains its number."""

    plan_of: Callable[[int], Plan]
    greeting: bytes = b""
    """What it sends on a new connection, before the request."""
    greeted: queue.Queue[bytes] = field(default_factory=queue.Queue)
    """What it has sent before requests."""
    received: dict[int, threading.Event] = field(default_factory=dict)
    """Set when the client has an answer or error, by number."""
    sent: queue.Queue[int] = field(default_factory=queue.Queue)
    """The numbers of the requests whose plan is done."""
    connections: int = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threads: list[threading.Thread] = []

            def accept() -> None:
                with suppress(OSError):
                    while True:
                        threads.append(
                            threading.Thread(target=self.serve, args=listening.accept()[:1])
                        )
                        threads[-1].start()

            accepting = threading.Thread(target=accept)
            accepting.start()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            listening.shutdown(socket.SHUT_RDWR)
            for thread in [accepting, *threads]:
                thread.join(30)

    def serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        with connection, suppress(ConnectionError):
            connection.sendall(self.greeting)
            self.greeted.put(self.greeting)
            unread = b""
            while data := connection.recv(65_536):
                unread += data
                head, end, rest = unread.partition(b"\r\n\r\n")
                size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                if not end or size is None or len(rest) < int(size[1]):
                    continue
                number = int(json.loads(rest[: int(size[1])])["messages"][0]["content"])
                unread = b""
                try:
                    is_open = self.answer(connection, number)
                finally:
                    self.sent.put(number)
                if not is_open:
                    return

    def answer(self, connection: socket.socket, number: int) -> bool:
        """Send what is planned; return whether the connection stays open."""
        plan = self.plan_of(number)
        data = plan.answer + plan.surplus
        stays = b"connection: close" not in plan.answer
        try:
            for start, end in pairwise([0, *plan.cuts, len(data)]):
                connection.sendall(data[start:end])
                if end < len(data):
                    threading.Event().wait(0.0005)  # most pieces are then read separately
            if not stays:
                connection.shutdown(socket.SHUT_WR)
        finally:
            self.received[number].wait(30)
        connection.sendall(plan.late)
        return stays


async def outcome(server: Server, model: Any, number: int) -> str | None:
    """The answer to a request; None for an error."""
    server.received[number] = threading.Event()
    try:
        return text(await ask(model, Request([user(str(number))], stream=False)))
    except ModelError:
        return None
    finally:
        server.received[number].set()


WAYS = {
    "a surplus answer": Plan(whole("0"), surplus=FAKE),
    "a surplus answer apart from its first one's head": Plan(whole("0"), surplus=FAKE, cuts=(90,)),
    "half a surplus answer": Plan(whole("0"), surplus=FAKE[:20]),
    "a body longer than its length": Plan(whole("0"), surplus=b"}", has_answer=False),
    "a body after a 204": Plan(NO_CONTENT, surplus=FAKE, has_answer=False),
    "an answer before the request": Plan(whole("0"), late=FAKE),
    "half an answer before the request": Plan(whole("0"), late=FAKE[:20]),
    "an interim answer before the request": Plan(whole("0"), late=EARLY_HINTS),
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_request_takes_an_answer_that_it_did_not_ask_for(way: str) -> None:
    """After it, the next requests get their own answers on another connection."""
    plan = WAYS[way]
    server = Server(lambda number: Plan(whole(str(number))) if number else plan)
    with server.running() as url:
        async with nb.OpenAIModel("m", base_url=url, max_retries=0) as model:
            found = []
            for number in range(3):
                found.append(await outcome(server, model, number))
                server.sent.get(timeout=30)  # blocks the event loop, which reads nothing of it yet
    assert found[0] in (["0"] if plan.has_answer else ["0", None])
    assert found[1:] == ["1", "2"]
    assert server.connections == 2


async def test_a_new_connection_that_answers_before_the_request_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is there before the request is sent."""
    server = Server(lambda number: Plan(whole(str(number))), greeting=FAKE)
    connect = connections._Connector._create_connection

    async def connected(*request: Any) -> Any:
        held = await connect(*request)
        server.greeted.get(timeout=30)  # blocks the event loop, which reads nothing yet
        return held

    monkeypatch.setattr(connections._Connector, "_create_connection", connected)
    with server.running() as url:
        async with nb.OpenAIModel("m", base_url=url, max_retries=0) as model:
            assert await outcome(server, model, 0) is None


async def test_an_idle_connection_on_which_something_arrives_is_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer to no request ends its connection, although it is well-formed."""
    monkeypatch.setattr(connections, "IDLE_SECONDS", 600)
    is_idle, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        writer.write(whole("x"))
        await is_idle.wait()
        writer.write(whole("y"))
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    async with serving(serve) as url, nb.OpenAIModel("m", base_url=url) as model:
        assert text(await ask(model, Request([user("go")], stream=False))) == "x"
        is_idle.set()
        async with asyncio.timeout(30):
            await closed.wait()


def words_of(number: int) -> str:
    """The text of a request's own answer, short or long."""
    return str(number) * random.Random(number).choice([1, 1, 20, 5_000])


def random_plan(number: int) -> Plan:
    """A plan of a request: the form of its answer, what follows when, and the pieces."""
    rng = random.Random(f"{SEED} {number}")
    answer = rng.choice([whole, whole, chunked, closing])(words_of(number))
    has_answer = True
    match rng.randrange(10):
        case 0:
            answer, has_answer = NO_CONTENT, False
        case 1:
            answer = answer.replace(b"200 OK", b"503 Busy", 1)
            has_answer = False
        case 2:  # it breaks off
            cut = answer[: rng.randrange(len(answer))] + b"\r\nconnection: close"
            return Plan(cut, has_answer=False)
        case 3:
            answer = EARLY_HINTS * rng.randrange(1, 4) + answer
    surplus = random_surplus(rng, number) if rng.random() < 0.4 else b""
    late = random_surplus(rng, number) if rng.random() < 0.3 else b""
    cuts = [rng.randrange(len(answer + surplus)) for _ in range(rng.randrange(4))]
    # an error right behind an answer, in one read, makes aiohttp refuse both
    return Plan(answer, surplus, late, tuple(sorted(cuts)), has_answer and not surplus)


def random_surplus(rng: random.Random, number: int) -> bytes:
    """Bytes that answer no request; some pretend to answer the next one."""
    fake = rng.choice([whole, chunked, closing])(rng.choice(["surplus", str(number), "x" * 9_000]))
    options = [
        fake,
        fake[: rng.randrange(1, len(fake))],
        fake * 2,
        b"}",
        b"0\r\n\r\n",
        b"\r\n",
        EARLY_HINTS,
        EARLY_HINTS + fake,
        NO_CONTENT,
        rng.randbytes(rng.randrange(1, 50)),
    ]
    return rng.choice(options)


async def test_no_answer_of_a_random_server_is_given_to_another_request() -> None:
    """Up to three requests are under way at once. ``NBAGENT_THOROUGH=10000`` runs 10,000 exchanges."""
    rng, server = random.Random(SEED), Server(random_plan)
    answered = 0
    with server.running() as url:
        async with nb.OpenAIModel("m", base_url=url, max_retries=0) as model:
            left = iter(range(EXCHANGES))
            while numbers := list(islice(left, rng.randrange(1, 4))):
                found = await asyncio.gather(*(outcome(server, model, each) for each in numbers))
                for number, one in zip(numbers, found, strict=True):
                    server.sent.get(timeout=30)  # blocks the event loop, which reads nothing yet
                    may_fail = not random_plan(number).has_answer
                    assert one == words_of(number) or (one is None and may_fail), number
                    answered += one is not None
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
    print(f"{EXCHANGES} exchanges, {answered} answered")
    assert answered > EXCHANGES / 2
