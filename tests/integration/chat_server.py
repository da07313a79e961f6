"""A Chat Completions server on loopback, scripted per test and as strict as the real one.

    with ChatServer([Reply(calls=[("get_balance", {"account": "A"})]), Reply("You have $5.")]) as server:
        model = OpenAIModel("test", base_url=server.url)

A history that a real server refuses gets a 400 with the reason. ``python -m tests.integration.chat_server``
serves ``looping`` replies in its own process, for benchmarks.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from typing import Any, Self

Body = dict[str, Any]


REPEATED = "call_1"
"""The id of every call, for servers whose ids are not unique."""


@dataclass(frozen=True)
class Reply:
    """One answer, and its faults."""

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any] | str]] = ()
    """Tool name and input; a str is sent as the arguments, even if invalid."""
    reasoning: str = ""
    reasoning_name: str = "reasoning_content"
    fields: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the message."""
    deltas: Sequence[dict[str, Any]] | None = None
    """The deltas of ``fields`` in a stream; None sends one delta."""
    call_fields: Sequence[dict[str, Any]] = ()
    """Additional fields of each call."""
    pieces: int = 3
    """The number of deltas for a text or an argument string."""
    usage: tuple[int, int] | None = (10, 5)
    finish: str | None = None
    """The finish reason; None selects "tool_calls" or "stop"."""
    ids: bool | None = True
    """Whether calls have ids; None gives all of them ``REPEATED``."""
    cut: int | None = None
    """The number of events after which the connection breaks."""
    ends_early: int | None = None
    """The number of events after which the response ends as if complete, with ``connection: close``."""
    stall: int | None = None
    """The number of events after which the server is silent until it closes."""
    done: bool = True
    """Whether ``[DONE]`` ends the stream."""
    delay: float = 0.0
    """Seconds between events."""


@dataclass(frozen=True)
class Refuse:
    """An HTTP error."""

    status: int
    message: str = "refused by the script"
    headers: dict[str, str] = field(default_factory=lambda: {"retry-after-ms": "1"})


@dataclass(frozen=True)
class Raw:
    """An answer with any bytes."""

    data: bytes
    kind: str = "application/json"
    """The content type; "" sends none."""
    status: int = 200


Answer = Reply | Refuse | Raw
Step = Answer | Callable[[Body], Answer]


@dataclass(frozen=True)
class Seen:
    body: Body
    raw: bytes
    headers: dict[str, str]
    connection: int
    """The client's port, the same for requests over one connection."""


class ChatServer:
    """A server of ``script``, one step per valid request."""

    path = "/v1/chat/completions"

    def __init__(self, script: Sequence[Step] | Callable[[Body], Answer] = ()) -> None:
        self._every = script if callable(script) else None
        self.script: list[Step] = [] if callable(script) else list(script)
        self.requests: list[Seen] = []
        self.refused: list[str] = []
        self.rule: Callable[[Body], str] = lambda _body: ""
        """Why this kind of server refuses a request that others accept, or ""."""
        self.knows_usage = True
        """Whether the server accepts ``stream_options``; many compatible servers refuse it."""
        self.asked = threading.Event()
        """Set by the first request."""
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        handler = type("Handler", (_Handler,), {"chat": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The ``base_url`` of a model."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def bodies(self) -> list[Body]:
        """The bodies of all requests, including refused ones."""
        return [seen.body for seen in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        with self._lock:
            for connection in self._sockets:
                with suppress(OSError):  # the client has closed it meanwhile
                    connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()
        self._thread.join()

    def problem_with(self, body: Body) -> str:
        """Why a real server refuses this request, or ""."""
        return problem_with(body)

    def whole(self, body: Body, reply: Reply) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        return whole(body, reply)

    def events(self, body: Body, reply: Reply) -> Iterator[bytes]:
        """The events of a streamed reply, as they are sent."""
        return (b"data: " + event + b"\n\n" for event in events(body, reply))

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)

    def answer(self, seen: Seen) -> Answer:
        """The step for a request, or an error if the request is refused."""
        problem = self.problem_with(seen.body) or self.rule(seen.body)
        if not self.knows_usage and "stream_options" in seen.body:
            problem = "Unknown field: stream_options"
        with self._lock:
            self.requests.append(seen)
            self.asked.set()
            if problem:
                self.refused.append(problem)
                return Refuse(400, problem)
            if self._every is not None:
                step: Step = self._every
            elif self.script:
                step = self.script.pop(0)
            else:
                return Refuse(418, "the script is over")
        return step if isinstance(step, Answer) else step(seen.body)


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for the threads, so that no thread remains
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but not that a client left; it may be one that looks for a server that had this port."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    chat: ChatServer

    def setup(self) -> None:
        super().setup()
        self.chat.opened(self.connection)

    def finish(self) -> None:
        self.chat.closed(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.path != self.chat.path:
            return self._json(404, {"error": {"message": f"no such path: {self.path}"}})
        headers = {key.lower(): value for key, value in self.headers.items()}
        seen = Seen(json.loads(raw), raw, headers, self.client_address[1])
        reply = self.chat.answer(seen)
        try:
            if isinstance(reply, Refuse):
                error = {"message": reply.message, "type": "scripted", "code": reply.status}
                self._json(reply.status, {"error": error}, reply.headers)
            elif isinstance(reply, Raw):
                self._send(reply.status, reply.data, {"content-type": reply.kind})
            elif seen.body.get("stream"):
                self._stream(seen.body, reply)
            else:
                self._json(200, self.chat.whole(seen.body, reply))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # some tests make the client disconnect

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        named = {"content-type": "application/json", **(headers or {})}
        self._send(status, json.dumps(value).encode(), named)

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, text in headers.items():
            if text:
                self.send_header(key, text)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: Body, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        chunked = reply.ends_early is None
        self.send_header(
            *(("transfer-encoding", "chunked") if chunked else ("connection", "close"))
        )
        self.end_headers()
        for number, event in enumerate(self.chat.events(body, reply)):
            if number == reply.stall:
                self.chat.closing.wait(30)
            if number in (reply.cut, reply.stall, reply.ends_early):
                self.close_connection = True
                return
            if reply.delay:
                time.sleep(reply.delay)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event) if chunked else event)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")


def events(body: Body, reply: Reply) -> Iterator[bytes]:
    """The data of a streamed reply's events, ``[DONE]`` included."""
    base = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for delta in _deltas(reply, _calls(body, reply)):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield json.dumps({**base, "choices": [choice]}).encode()
    choice = {"index": 0, "delta": {}, "finish_reason": _finish(reply)}
    yield json.dumps({**base, "choices": [choice]}).encode()
    if reply.usage and body.get("stream_options", {}).get("include_usage"):
        yield json.dumps({**base, "choices": [], "usage": _usage(reply.usage)}).encode()
    if reply.done:
        yield b"[DONE]"


def _deltas(reply: Reply, calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    yield from ({reply.reasoning_name: piece} for piece in _pieces(reply.reasoning, reply.pieces))
    yield from filter(None, [reply.fields] if reply.deltas is None else reply.deltas)
    yield from ({"content": piece} for piece in _pieces(reply.text, reply.pieces))
    pieces: list[list[str]] = []
    for index, call in enumerate(calls):
        function = call["function"]
        pieces.append(list(_pieces(function["arguments"], reply.pieces)))
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
    for row in zip_longest(*pieces):  # the deltas of parallel calls are interleaved
        for index, piece in enumerate(row):
            if piece is not None:
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def whole(body: Body, reply: Reply) -> dict[str, Any]:
    """The body of a reply that is not streamed."""
    calls = _calls(body, reply)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message[reply.reasoning_name] = reply.reasoning
    message |= reply.fields
    if calls:
        message["tool_calls"] = calls
    answer = {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
    }
    return {**answer, "usage": _usage(reply.usage)} if reply.usage else answer


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _id(reply: Reply, usual: str) -> str:
    if reply.ids is None:
        return REPEATED
    return usual if reply.ids else ""


def _calls(body: Body, reply: Reply) -> list[dict[str, Any]]:
    more = [*reply.call_fields, *({} for _ in reply.calls)]
    return [
        {
            **more[index],
            "id": _id(reply, f"call_{len(body['messages'])}_{index}"),
            "type": "function",
            "function": {
                "name": name,
                "arguments": value if isinstance(value, str) else json.dumps(value),
            },
        }
        for index, (name, value) in enumerate(reply.calls)
    ]


def _pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // count))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _usage(counts: tuple[int, int]) -> dict[str, int]:
    sent, got = counts
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}


def problem_with(body: Body) -> str:
    """Why a real server refuses this request, or ""."""
    messages = body.get("messages")
    if not isinstance(body.get("model"), str) or not messages:
        return "model and messages are required"
    if "stream_options" in body and not body.get("stream"):
        return "stream_options is only allowed when stream is enabled"
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    bad = [name for name in names if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)]
    if bad or len(set(names)) != len(names) or ("tools" in body and not names):
        return f"invalid or repeated tool names: {names!r}"
    return _problem_with_history(messages)


def _problem_with_history(messages: list[dict[str, Any]]) -> str:
    waiting: list[str] = []
    for index, message in enumerate(messages):
        problem = _problem_with_message(message, waiting)
        if problem:
            return f"messages[{index}]: {problem}"
        if message["role"] == "tool":
            waiting = waiting[1:]
        else:
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    return f"the tool calls {waiting!r} have no answer" if waiting else ""


def _problem_with_message(message: dict[str, Any], waiting: list[str]) -> str:
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        return f"unknown role {role!r}"
    if role == "tool":
        if message.get("tool_call_id") not in waiting[:1]:
            return f"an answer to {message.get('tool_call_id')!r}, expected {waiting[:1]!r}"
        return "" if isinstance(content, str) else "a tool message's content must be a string"
    if waiting:
        return f"the tool calls {waiting!r} before it have no answer"
    calls = message.get("tool_calls", ())
    if not isinstance(content, str | list) and not calls:
        return "no content"
    return _problem_with_calls(calls, [call["id"] for call in calls])


def _problem_with_calls(calls: Sequence[dict[str, Any]], ids: list[str]) -> str:
    own = [one for one in ids if one != REPEATED]  # a server that repeats an id accepts it twice
    if len(set(own)) != len(own) or not all(ids):
        return f"tool call ids must be unique and not empty: {ids!r}"
    for call in calls:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            return f"the arguments of {call['id']!r} are no JSON"
        if not isinstance(arguments, dict):
            return f"the arguments of {call['id']!r} are not a JSON object"
    return ""


def looping(turns: int, text: str = "done", pieces: int = 1) -> Callable[[Body], Reply]:
    """Call the first tool until there are ``turns`` results after the last user message."""

    def reply(body: Body) -> Reply:
        done = 0
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                break
            done += message["role"] == "tool"
        if done >= turns:
            return Reply(text, pieces=pieces)
        return Reply(calls=[(body["tools"][0]["function"]["name"], {"n": done})])

    return reply


if __name__ == "__main__":
    tokens = int(sys.argv[2])
    words = "".join(f"w{number % 90 + 10} " for number in range(tokens))
    with ChatServer(looping(int(sys.argv[1]), words, tokens)) as chat:
        print(chat.url, flush=True)
        sys.stdin.read()  # until the parent process closes the pipe
