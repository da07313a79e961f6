"""Unusual but real answers of servers: each ends in the right answer or a clear error."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.messages import results_of
from tests.integration.chat_server import REPEATED, problem_with

STREAM, JSON = "text/event-stream", "application/json"
DEEP = "[" * 5_000 + "]" * 5_000
LONG = "x" * 10_000_000
HALF = "\\ud83d"
"""Half of a surrogate pair, in JSON."""


def chunk(delta: Any, finish: Any = None, **more: Any) -> bytes:
    """An event of a stream."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def call(arguments: Any = "{}", *, name: Any = "look", **more: Any) -> dict[str, Any]:
    """A call, or a piece of a call; ``more`` has its id and index, if any."""
    function = {} if name is None else {"name": name}
    return {"type": "function", "function": {**function, "arguments": arguments}, **more}


def calls(*each: dict[str, Any]) -> list[bytes]:
    """A stream of calls, one event for each piece."""
    return [*(chunk({"tool_calls": [piece]}) for piece in each), chunk({}, "tool_calls"), DONE]


def whole(message: Any, finish: Any = "stop", **more: Any) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()


def calls_response(*each: dict[str, Any]) -> bytes:
    """A whole answer with calls."""
    return whole({"role": "assistant", "content": None, "tool_calls": list(each)}, "tool_calls")


DONE = event(b"[DONE]")
FINE = [chunk({"content": "fine"}), chunk({}, "stop"), DONE]
UMLAUT = event('{"choices":[{"delta":{"content":"fine ü"},"finish_reason":"stop"}]}'.encode())
HALFWAY = UMLAUT.index("ü".encode()) + 1
A, B = call('{"x":1}', id="a", index=0), call('{"x":2}', id="b", index=1)
SAME = {**A, "id": REPEATED}


@dataclass(frozen=True)
class Corner:
    """An answer of a server, streamed and whole, and the expected outcome."""

    stream: Sequence[bytes]
    whole: bytes | None = None
    ran: Sequence[Any] = ()
    """The inputs of the tool's runs."""
    told: str = ""
    """A pattern of the result for a call that was not run."""
    says: str = "fine"
    """The answer's text; unused after calls."""
    fails: str = ""
    """A pattern of the error."""
    fails_whole: str | None = None
    """A pattern of the error for the whole answer, if different."""
    finish: str = "stop"


def call_corner(arguments: Any, **end: Any) -> Corner:
    """An answer with one call with these arguments."""
    one = call(arguments, id="a", index=0)
    return Corner(calls(one), calls_response(one), **end)


CORNERS = {
    # --- which call is which
    "one id at two indexes": Corner(
        calls(SAME, {**B, "id": REPEATED}), calls_response(SAME, {**B, "id": REPEATED}), ran=[1, 2]
    ),
    "one id at two indexes, in pieces that alternate": Corner(
        calls(
            call("", id=REPEATED, index=0),
            call("", id=REPEATED, index=1),
            call('{"x"', name=None, index=0),
            call('{"x":', name=None, index=1),
            call(":1}", name=None, index=0),
            call("2}", name=None, index=1),
        ),
        ran=[1, 2],
    ),
    "no ids": Corner(
        calls(call('{"x":1}', index=0), call('{"x":2}', index=1)),
        calls_response(call('{"x":1}'), call('{"x":2}')),
        ran=[1, 2],
    ),
    "empty ids": Corner(
        calls({**A, "id": ""}, {**B, "id": ""}),
        calls_response({**A, "id": ""}, {**B, "id": ""}),
        ran=[1, 2],
    ),
    "no indexes": Corner(calls(call('{"x":1}', id="a"), call('{"x":2}', id="b")), ran=[1, 2]),
    "neither ids nor indexes": Corner(calls(call('{"x":1}'), call('{"x":2}')), ran=[1, 2]),
    "one id twice without indexes": Corner(
        calls(call('{"x":1}', id=REPEATED), call('{"x":2}', id=REPEATED)), ran=[1, 2]
    ),
    "index 0 everywhere, with ids": Corner(
        calls(A, {**B, "index": 0}), calls_response(A, {**B, "index": 0}), ran=[1, 2]
    ),
    "one call several times, at one index": Corner(
        calls(SAME, SAME), calls_response(SAME, SAME), ran=[1]
    ),
    "one call several times, at other indexes": Corner(
        calls(A, {**A, "index": 1}, {**A, "index": 2}), calls_response(A, A, A), ran=[1]
    ),
    "one call whole, and then in pieces at another index": Corner(
        calls(
            A,
            call("", id="a", index=1),
            call('{"x"', name=None, index=1),
            call(":1}", name=None, index=1),
        ),
        ran=[1],
    ),
    "one call without an id, twice at one index": Corner(
        calls(call('{"x":1}', index=0), call('{"x":1}', index=0)), ran=[1]
    ),
    "two calls without ids at two indexes": Corner(
        calls(call('{"x":1}', index=0), call('{"x":1}', index=1)), ran=[1, 1]
    ),
    "two calls with two ids": Corner(
        calls(A, {**A, "id": "b", "index": 1}), calls_response(A, {**A, "id": "b"}), ran=[1, 1]
    ),
    "the whole message at the end": Corner(
        [
            chunk({"content": "fi"}),
            chunk({"content": "ne"}),
            event(whole({"content": "fine"})),
            DONE,
        ],
    ),
    "the whole message with its call at the end": Corner(
        [
            chunk({"tool_calls": [A]}),
            event(calls_response({**A, "index": 4})),
            DONE,
        ],
        ran=[1],
    ),
    "the whole message with its call, without ids": Corner(
        [
            chunk({"tool_calls": [call('{"x":1}', index=0)]}),
            event(calls_response(call('{"x":1}'))),
            DONE,
        ],
        ran=[1],
    ),
    "arguments at another index": Corner(
        calls(
            call("", id="a", index=0),
            call('{"x"', name=None, index=1),
            call(":5}", name=None, index=2),
        ),
        ran=[5],
    ),
    "arguments without a name, with their id": Corner(
        calls(
            call("", id="a", index=0),
            call("", id="b", index=1),
            call('{"x":2}', name=None, id="b", index=2),
            call('{"x":1}', name=None, id="a", index=3),
        ),
        ran=[1, 2],
    ),
    "arguments with another id in each piece": Corner(
        calls(
            call("", id="a", index=0),
            call('{"x"', name=None, id="b", index=0),
            call(":1}", name="", id="c", index=0),
            call("", name=None, id="d", index=0),
        ),
        ran=[1],
    ),
    "arguments of one of two calls": Corner(
        calls(
            call("", id="a", index=0),
            call("", id="b", index=1),
            call('{"x":1}', name=None, index=2),
        ),
        says="after",
    ),
    "arguments with a name but without an id": Corner(
        calls(call("", id="a", index=0), call('{"x":1}', index=1)), says="after"
    ),
    "the id and the name in each piece": Corner(
        calls(
            call('{"x"', id="a", index=0),
            call(":1}", id="a", index=0),
            call("", id="a", index=0),
        ),
        ran=[1],
    ),
    "an index that is a list": Corner(calls({**A, "index": [0]}), ran=[1]),
    "ids that are numbers": Corner(
        calls({**A, "id": 7}, {**B, "id": 8}),
        calls_response({**A, "id": 7}, {**B, "id": 8}),
        ran=[1, 2],
    ),
    "no name": Corner(
        calls(call("{}", name=None, id="a", index=0)),
        calls_response(call("{}", name=None, id="a")),
        says="after",
    ),
    # --- arguments
    "arguments in fragments": Corner(
        calls(
            call("", id="a", index=0),
            *(call(c, name=None, index=0) for c in '{"x": 12, "note": "ü"}'),
        ),
        ran=[12],
    ),
    "arguments as a value": call_corner({"x": 3}, ran=[3]),
    "no arguments": call_corner(None, ran=[0]),
    "null as arguments (OpenDeepWiki 392)": call_corner("null", ran=[0]),
    "blank arguments": call_corner(" ", ran=[0]),
    "arguments that are no JSON": call_corner('{"x": 1', told="not a JSON object .*: {.x.: 1"),
    "arguments that are a list": call_corner("[1]", told="not a JSON object"),
    "arguments that are a text in a text": call_corner('"{}"', ran=[0]),
    "a list that is a text": call_corner('"[1]"', told="not a JSON object"),
    "two objects as arguments": call_corner('{"x":1}{"x":2}', told="not a JSON object"),
    "NaN": call_corner('{"x": NaN}', told="not a JSON object"),
    "a number beyond all": call_corner('{"x": 1e999}', told="not a JSON object"),
    "one key twice": call_corner('{"x": 1, "x": 2}', ran=[2]),
    "half a pair in arguments": call_corner(f'{{"note": "{HALF}"}}', told="not a JSON object"),
    "5,000 levels in arguments": call_corner(f'{{"x": {DEEP}}}', told="at most 100 levels"),
    "10 MB of arguments": Corner(
        calls(
            call('{"note": "', id="a", index=0),
            *(call(LONG[:1_000_000], name=None, index=0) for _ in range(10)),
            call('"}', name=None, index=0),
        ),
        calls_response(call(json.dumps({"note": LONG}), id="a")),
        ran=[0],
        fails_whole="larger than 8,000,000 bytes",
    ),
    # --- why it ended
    "the limit of tokens": Corner(
        [chunk({"content": "fine"}), chunk({}, "length"), DONE],
        whole({"content": "fine"}, "length"),
        finish="length",
    ),
    "the limit of tokens inside a call": Corner(
        [chunk({"tool_calls": [call('{"x": 1', id="a", index=0)]}), chunk({}, "length"), DONE],
        whole({"tool_calls": [call('{"x": 1', id="a")]}, "length"),
        told="Your answer was cut off at its token limit, so this call was not run",
    ),
    "the limit of tokens before the arguments": Corner(
        [chunk({"tool_calls": [call("", id="a", index=0)]}), chunk({}, "length"), DONE],
        whole({"tool_calls": [call("", id="a")]}, "length"),
        told="cut off at its token limit",
    ),
    "the limit of tokens after null": Corner(
        [chunk({"tool_calls": [call("null", id="a", index=0)]}), chunk({}, "length"), DONE],
        told="cut off at its token limit",
    ),
    "a content filter": Corner(
        [chunk({"content": "fine"}), chunk({}, "content_filter"), DONE],
        whole({"content": "fine"}, "content_filter"),
        finish="content_filter",
    ),
    "a content filter inside a call": Corner(
        [chunk({"tool_calls": [call('{"x', id="a", index=0)]}), chunk({}, "content_filter"), DONE],
        whole({"tool_calls": [call('{"x', id="a")]}, "content_filter"),
        told="content filter cut off",
    ),
    "a reason of its own": Corner(
        [chunk({"content": "fine"}), chunk({}, "eos"), DONE],
        whole({"content": "fine"}, "eos"),
        finish="other",
    ),
    "a reason that is an object": Corner(
        [chunk({"content": "fine"}), chunk({}, {"why": "stop"}), DONE],
        whole({"content": "fine"}, {"why": "stop"}),
        finish="other",
    ),
    "a limit under another name": Corner(
        [chunk({"content": "fine"}), chunk({}, "MAX_TOKENS"), DONE],
        whole({"content": "fine"}, "MAX_TOKENS"),
        finish="length",
    ),
    "a reason that is a failure": Corner(
        [chunk({"content": "fi"}), chunk({}, "insufficient_system_resource"), DONE],
        whole({"content": "fi"}, "error"),
        fails=r"could not finish its answer \((insufficient_system_resource|error)\)",
    ),
    "a call that is malformed": Corner(
        [chunk({"tool_calls": [A]}), chunk({}, "MALFORMED_FUNCTION_CALL"), DONE],
        whole({"tool_calls": [A]}, "function_call_filter: MALFORMED_FUNCTION_CALL"),
        says="after",
    ),
    "no reason": Corner([FINE[0], DONE], whole({"content": "fine"}, None)),
    "no [DONE]": Corner(FINE[:2]),
    # --- what is there, and what is not
    "empty choices before and after": Corner(
        [event({"choices": []}), FINE[0], event({"choices": None}), *FINE[1:]],
    ),
    "empty choices alone": Corner(
        [event({"choices": []})],
        b'{"choices": []}',
        fails="ended in the middle",
        fails_whole="has no choices",
    ),
    "usage that is null": Corner(
        [chunk({"content": "fine"}, usage=None), *FINE[1:]], whole({"content": "fine"}, usage=None)
    ),
    "usage that is odd": Corner(
        [*FINE[:2], event({"choices": [], "usage": {"prompt_tokens": "many"}}), DONE],
        whole({"content": "fine"}, usage={"prompt_tokens": "many"}),
    ),
    "no content": Corner(
        [chunk({"role": "assistant"}), chunk({}, "stop"), DONE],
        whole({"role": "assistant", "content": None}),
        says="after",
    ),
    "only white space and reasoning": Corner(
        [chunk({"content": "\n", "reasoning": "hm"}), chunk({}, "stop"), DONE],
        whole({"content": " ", "reasoning": "hm"}),
        says="after",
    ),
    "no content at the limit of tokens": Corner(
        [chunk({"reasoning": "hm"}), chunk({}, "length"), DONE],
        whole({"reasoning": "hm"}, "length"),
        fails="gave no answer: its limit of tokens was reached before any text",
    ),
    "a second choice": Corner(
        [
            event({"choices": [{"index": 1, "delta": {"content": "no", "tool_calls": [A]}}]}),
            *FINE,
        ],
        json.dumps(
            {
                "choices": [
                    {
                        "index": n,
                        "message": {"content": text, "tool_calls": made},
                        "finish_reason": "stop",
                    }
                    for n, text, made in ((0, "fine", []), (1, "no", [A]))
                ]
            }
        ).encode(),
    ),
    "nothing at all": Corner([], b"", fails="ended in the middle"),
    "null": Corner([event(None)], b"null", fails="instead of a chat chunk"),
    "choices that are a text": Corner(
        [event({"choices": "x"})], b'{"choices": "x"}', fails="not a list of objects"
    ),
    "a delta that is a list": Corner([chunk([1])], whole([1]), fails="not an object"),
    "calls that are texts": Corner(
        [chunk({"tool_calls": ["look"]})],
        whole({"tool_calls": ["look"]}),
        fails="not a list of obj",
    ),
    "a function that is a text": Corner(
        [chunk({"tool_calls": [{"function": "look"}]})],
        whole({"tool_calls": [{"function": "look"}]}),
        fails="not an object",
    ),
    "an error in its place": Corner(
        [FINE[0], event({"error": {"message": "overloaded"}})],
        b'{"error": {"message": "overloaded"}}',
        fails="overloaded",
    ),
    "an error in a field of its own (coddy-agent 106, llama.cpp before 2026)": Corner(
        [FINE[0], b'error: {"code": 500, "message": "disk full"}\n\n', DONE],
        fails="reported: disk full",
    ),
    "an error beside the reason for the end (genkit 6259)": Corner(
        [event({"choices": [{"finish_reason": "error", "error": {"message": "disk full"}}]}), DONE],
        b'{"choices": [{"finish_reason": "error", "error": {"message": "disk full"}}]}',
        fails="reported: disk full",
    ),
    # --- bytes
    "comments, keep-alives and other fields": Corner(
        [
            b": hello\n\n",
            b"data:\n\n",
            b"\n\n",
            b"event: message\nid: 1\n",
            FINE[0],
            b":\n",
            b"retry: 1\n\n",
            *FINE[1:],
        ]
    ),
    "blank lines before the answer": Corner(
        [b"\n" * 50, *FINE], b"\n" * 50 + whole({"content": "fine"})
    ),
    "line ends of the old kind": Corner(
        [part.replace(b"\n", b"\r\n").replace(b"data: ", b"data:") for part in FINE]
    ),
    "a character cut in half": Corner(
        [UMLAUT[:HALFWAY], UMLAUT[HALFWAY:], DONE],
        '{"choices":[{"message":{"content":"fine ü"},"finish_reason":"stop"}]}'.encode(),
        says="fine ü",
    ),
    "a pair in two pieces": Corner(
        [
            event(b'{"choices":[{"delta":{"content":"\\ud83d"}}]}'),
            event(b'{"choices":[{"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}'),
            DONE,
        ],
        b'{"choices":[{"message":{"content":"\\ud83d\\ude00"},"finish_reason":"stop"}]}',
        says="😀",
    ),
    "half a pair": Corner(
        [event(b'{"choices":[{"delta":{"content":"\\ude00!"},"finish_reason":"stop"}]}'), DONE],
        b'{"choices":[{"message":{"content":"\\ude00!"},"finish_reason":"stop"}]}',
        says="\N{REPLACEMENT CHARACTER}!",
    ),
    "bytes that are no text": Corner(
        [event(b'{"choices":[{"delta":{"content":"\xff"}}]}')],
        b'{"choices":[{"message":{"content":"\xff"}}]}',
        fails="which is not JSON",
    ),
    "cut off": Corner(
        [FINE[0]],
        whole({"content": "fine"})[:-5],
        fails="ended in the middle",
        fails_whole="not JSON",
    ),
    "cut off inside an event": Corner([FINE[0], FINE[1][:20]], fails="ended in the middle"),
    "cut off inside a call": Corner(
        [chunk({"tool_calls": [A]})],
        calls_response(A)[:-5],
        fails="in the middle",
        fails_whole="not JSON",
    ),
    "5,000 levels around": Corner(  # Python 3.13's JSON parser accepts this depth
        [event(DEEP.encode())], DEEP.encode(), fails="nested too deep|instead of a chat"
    ),
    "5,000 levels in a field of its own": Corner(
        [event(b'{"choices":[{"delta":{"odd":' + DEEP.encode() + b"}}]}")],
        b'{"choices":[{"message":{"odd":' + DEEP.encode() + b"}}]}",
        fails="nested (too deep|more than 100 levels deep)",
    ),
    "300 levels in a field of its own": Corner(
        [event(b'{"choices":[{"delta":{"odd":' + b"[" * 300 + b"]" * 300 + b"}}]}")],
        b'{"choices":[{"message":{"odd":' + b"[" * 300 + b"]" * 300 + b"}}]}",
        fails="sent 'odd', which is not JSON: it is nested more than 100 levels deep",
    ),
    "NaN in a field of its own": Corner(
        [event(b'{"choices":[{"delta":{"odd":NaN}}]}')],
        b'{"choices":[{"message":{"odd":NaN}}]}',
        fails="sent 'odd', which is not JSON",
    ),
}


@dataclass
class Server:
    """A server that sends the given pieces first, and then another answer."""

    pieces: Iterable[bytes]
    kind: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    """The number of requests that get the pieces."""
    bodies: list[Any] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""
    without_end: bool = False
    """Whether the pieces are repeated until the client disconnects."""


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Run the server; yields its base URL."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.bodies.append(body)
            server.seen.append({key.lower(): value for key, value in self.headers.items()})
            problem = problem_with(body)
            if problem:
                return self.answer(
                    400, JSON, [json.dumps({"error": {"message": problem}}).encode()]
                )
            if len(server.bodies) > server.times and not server.without_end:
                last = [b'{"choices":[{"message":{"content":"after"},"finish_reason":"stop"}]}']
                return self.answer(200, JSON, last)
            return self.answer(server.status, server.kind, server.pieces)

        def answer(self, status: int, kind: str, pieces: Iterable[bytes]) -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, **server.headers}.items():
                self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                while server.without_end and not closing.wait(0.02):
                    for piece in pieces:
                        self.wfile.write(piece)
            except OSError:
                return  # the client disconnected

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        closing.set()
        http.shutdown()
        http.server_close()
        thread.join()


async def run_at(url: str, *, live: bool, **settings: Any) -> tuple[nb.Run, list[Any]]:
    """An ended or failed run, and the inputs that its tool ran with."""
    ran: list[Any] = []
    given = {"api_key": "sk-of-this-test-only", "max_retries": 0, **settings}
    async with nb.OpenAIModel("m", base_url=url, **given) as model:
        agent = nb.Agent(model)

        @agent.tool
        def look(x: int = 0, note: str = "") -> str:
            ran.append(x)
            return f"{x} {len(note)}"

        run = agent.run("go", attended=False)
        if live:
            run.subscribe(lambda _event: None)
        async with asyncio.timeout(60):
            await run.settled()
    return run, ran


ALL = [
    (name, way)
    for name, corner in CORNERS.items()
    for way in ("streamed", *(["in one piece"] if corner.whole is not None else []))
]


@pytest.mark.parametrize(("name", "way"), ALL)
async def test_c173_an_edge_case_ends_in_the_right_answer_or_a_clear_error(
    name: str, way: str
) -> None:
    """No hang, no internal exception, and no call with an unintended input."""
    corner = CORNERS[name]
    in_one = way != "streamed"
    pieces = [corner.whole] if in_one and corner.whole is not None else corner.stream
    server = Server(pieces, JSON if in_one else STREAM)
    with serving(server) as url:
        run, ran = await run_at(url, live=not in_one)
    fails = corner.fails if not in_one or corner.fails_whole is None else corner.fails_whole
    if fails:
        with pytest.raises(ModelError) as caught:
            run.result  # noqa: B018 - it raises
        assert re.search(fails, str(caught.value)), str(caught.value)
        assert not re.search(r"\w+Error\b", str(caught.value))
        assert ran == []
        return
    assert (run.status, ran) == ("completed", list(corner.ran))
    after = bool(corner.ran or corner.told)
    assert run.result.text == ("after" if after else corner.says)
    assert run.result.finish_reason == corner.finish
    results = [part for item in run.messages for part in results_of(item)]
    assert len(results) == len(corner.ran) + bool(corner.told)
    assert not corner.told or re.search(corner.told, results[-1]["output"]), results


UNUSABLE = {
    "arguments of one of two calls": "sent calls that were not run, because a call has no name",
    "arguments with a name but without an id": "because the arguments of a call of 'look' arrived apart",
    "no name": "sent calls that were not run, because a call has no name",
    "a call that is malformed": "ended its answer with '.*malformed_function_call'",
    "no content": r"gave no answer: no text and no call \(stop\)",
}


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", UNUSABLE)
async def test_c496_an_unusable_answer_is_asked_for_once_more_and_then_an_error(
    name: str, live: bool
) -> None:
    """Its calls never run. The error names the server and the reason."""
    corner = CORNERS[name]
    server = Server(corner.stream, STREAM, times=5)
    if not live and corner.whole is not None:
        server = Server([corner.whole], JSON, times=5)
    with serving(server) as url:
        run, ran = await run_at(url, live=live, max_retries=2)
    with pytest.raises(ModelError, match=UNUSABLE[name]) as caught:
        run.result  # noqa: B018 - it raises
    assert f"The model 'm': the server at {url}" in str(caught.value)
    assert "also when it was asked again" in str(caught.value)
    assert (len(server.bodies), ran) == (2, [])


ENDLESS = {
    "comments": (STREAM, b": still here\n\n"),
    "chunks that say nothing": (STREAM, event({"choices": []}) + chunk({"role": "assistant"})),
    "an event that does not end": (STREAM, b"data: x\n"),
    "blank lines before an answer in one piece": (JSON, b"\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_c174_a_stream_of_only_keep_alives_ends(name: str) -> None:
    """``timeout`` counts from the last content; keep-alive signals do not extend it."""
    kind, piece = ENDLESS[name]
    with serving(Server([piece], kind, without_end=True)) as url:
        run, _ = await run_at(url, live=kind == STREAM, timeout=0.3)
    with pytest.raises(ModelError, match=r"nothing for 0.3 s, except perhaps keep-alive signals"):
        run.result  # noqa: B018 - it raises


async def test_c174_a_stream_with_occasional_content_continues() -> None:
    """Keep-alive signals between pieces of content do no harm."""
    pieces = [FINE[0], *[b": still here\n\n"] * 10, *FINE[1:]]
    with serving(Server(pieces, STREAM)) as url:
        run, _ = await run_at(url, live=True, timeout=5)
    assert run.result.text == "fine"


async def test_a_stream_of_keep_alives_after_its_answer_is_that_answer() -> None:
    """It is not asked for again, although nothing marks its end."""

    def pieces() -> Iterator[bytes]:
        yield from FINE[:2]
        for _ in range(40):
            time.sleep(0.05)
            yield b": still here\n\n"

    server = Server(pieces(), STREAM)
    with serving(server) as url:
        run, _ = await run_at(url, live=True, timeout=0.3, max_retries=1)
    assert (run.result.text, len(server.bodies)) == ("fine", 1)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("live", [True, False])
async def test_c174_neither_key_nor_conversation_follows_a_redirect(
    status: int, live: bool
) -> None:
    """The error names the target of a redirect; no request is sent there."""
    other = Server(FINE, STREAM)
    with serving(other) as elsewhere:
        target = elsewhere.replace("127.0.0.1", "localhost") + "/chat/completions"
        with serving(Server([], JSON, status, {"location": target})) as url:
            run, _ = await run_at(url, live=live)
    with pytest.raises(ModelError, match=f"{status}. The server redirects to {target}.*base_url"):
        run.result  # noqa: B018 - it raises
    assert other.bodies == []


@pytest.mark.parametrize("live", [True, False])
async def test_a_web_page_in_place_of_an_answer_is_reported_as_a_wrong_base_url(live: bool) -> None:
    """The answer is not reported as interrupted, and the request is not repeated."""
    server = Server([b"<!doctype html><title>Chat</title>"], "text/html; charset=utf-8")
    with serving(server) as url:
        without_path = url.removesuffix("/v1")
        run, _ = await run_at(without_path, live=live, max_retries=2)
    with pytest.raises(ModelError, match=r"a web page .*Does it end in /v1\?") as raised:
        run.result  # noqa: B018 - it raises
    assert without_path in str(raised.value)
    assert len(server.bodies) == 1
