"""OpenAIModel against a real HTTP server on loopback, through the real openai client."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import openai
import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.messages import Message, message, text_part, user
from nbagent.core.base.model import (
    Discarded,
    Finished,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from nbagent.models.openai.exchange import is_lean
from nbagent.models.resolve import resolve
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.responses_server import ResponsesServer

ADD = ToolSpec("add", "Add two numbers", {"type": "object", "properties": {}})
HELLO = [user("hello")]


class Quick(nb.OpenAIModel):
    """A model that repeats a broken stream without waiting."""

    async def _wait(self, attempt: int) -> None:
        pass


def model_at(server: ChatServer, **settings: Any) -> Quick:
    return Quick("test-model", base_url=server.url, **settings)


async def ask(model: nb.OpenAIModel, request: Request) -> list[ModelDelta]:
    async with aclosing(model.stream(request)) as deltas:
        return [delta async for delta in deltas]


def after_discards(deltas: list[ModelDelta]) -> list[ModelDelta]:
    at = max((i for i, delta in enumerate(deltas) if isinstance(delta, Discarded)), default=-1)
    return deltas[at + 1 :]


def text(deltas: list[ModelDelta]) -> str:
    return "".join(d.text for d in after_discards(deltas) if isinstance(d, TextDelta))


def calls(deltas: list[ModelDelta]) -> list[tuple[str | None, str | None, str]]:
    """The id, name and whole arguments of each call, in order of index."""
    found: dict[int, tuple[str | None, str | None, str]] = {}
    for delta in after_discards(deltas):
        if isinstance(delta, ToolCallDelta):
            call_id, name, arguments = found.get(delta.index, (None, None, ""))
            assert not (call_id and delta.id), "an id comes once"
            assert not (name and delta.name), "a name comes once"
            whole = arguments + delta.arguments
            found[delta.index] = (call_id or delta.id, name or delta.name, whole)
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("stream", [True, False])
async def test_text_reasoning_parallel_calls_and_usage_arrive(stream: bool) -> None:
    """All parts of a response arrive, streamed or whole."""
    reply = Reply("Adding…", [("add", {"a": 1}), ("add", {"b": "ü"})], reasoning="hm")
    with ChatServer([reply]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD], stream=stream))
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "hm"
    assert text(deltas) == "Adding…"
    assert [(n, json.loads(a)) for _, n, a in calls(deltas)] == [
        ("add", {"a": 1}),
        ("add", {"b": "ü"}),
    ]
    assert len({call_id for call_id, _, _ in calls(deltas)}) == 2
    own = {"name": "127.0.0.1", "data": {"reasoning": "reasoning_content"}}
    assert deltas[-1] == Finished("tool_calls", Usage(10, 5), "test-model", own)


async def test_a_history_is_sent_in_the_format_of_the_server() -> None:
    """Results become tool messages in order; invalid arguments become {}; internal fields are not sent."""
    history = [
        message("system", text_part("Be kind.")),
        message("user", text_part("one"), text_part("two")),
        message(
            "assistant",
            {"type": "reasoning", "text": "secret"},
            text_part("Let me see."),
            {"type": "tool_call", "id": "a", "name": "add", "input": {"x": "ü"}},
            {"type": "tool_call", "id": "b", "name": "add", "input": {}, "raw": "[oops"},
        ),
        message(
            "tool",
            {
                "type": "tool_result",
                "id": "a",
                "name": "add",
                "output": {"sum": 3},
                "nbagent": {"k": 1},
            },
            {
                "type": "tool_result",
                "id": "b",
                "name": "add",
                "output": "bad \ud800",
                "error": True,
            },
        ),
        message("assistant", text_part("Three.")),
        user("thanks"),
    ]
    schema = {"title": "Sum up!", "type": "object"}
    with ChatServer([Reply("ok")]) as server:
        async with model_at(server, temperature=0.5, extra={"seed": 7}) as model:
            request = Request(history, "Instructions", [ADD], schema)
            assert text(await ask(model, request)) == "ok"
        body = server.bodies[0]
    assert body["messages"] == [
        {"role": "system", "content": "Instructions"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "two")]},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "add", "arguments": arguments},
                }
                for call_id, arguments in (("a", '{"x":"ü"}'), ("b", "{}"))
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"sum":3}'},
        {"role": "tool", "tool_call_id": "b", "content": "bad ?"},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "thanks"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add two numbers",
                "parameters": ADD.input_schema,
            },
        }
    ]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "Sum_up_", "schema": schema},
    }
    assert (body["temperature"], body["seed"], body["stream"]) == (0.5, 7, True)


SERVERS = {"chat": ChatServer, "responses": ResponsesServer}


@pytest.mark.parametrize("api", SERVERS)
async def test_a_turn_encodes_only_the_new_messages(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is encoded once; the bytes equal those of a fresh encoding."""
    module = importlib.import_module(f"nbagent.models.openai.{api}")
    encode, encoded = module.encode_message, []

    def counted(value: Message, **how: Any) -> bytes:
        encoded.append(value)
        return encode(value, **how)

    monkeypatch.setattr(module, "encode_message", counted)
    history: list[Message] = [user("hello")]
    with SERVERS[api]([Reply("x")] * 11) as server:
        async with model_at(server, api=api) as model:
            for turn in range(10):
                await ask(model, Request(history, "system", [ADD]))
                assert len(encoded) == 2 * turn + 1
                history += [message("assistant", text_part(f"answer {turn}")), user(f"more {turn}")]
            history = history[:-2]
            fresh = [Message(dict(item)) for item in history]
            await ask(model, Request(fresh, "system", [ADD]))
        assert server.requests[-1].raw == server.requests[-2].raw


async def test_requests_share_one_connection() -> None:
    """Each answer is read to its end, so the next request reuses the connection."""
    with ChatServer([Reply("x")] * 3) as server:
        async with model_at(server) as model:
            for _ in range(3):
                await ask(model, Request(HELLO))
        assert len({seen.connection for seen in server.requests}) == 1


async def test_a_server_without_usage_counts_is_no_longer_asked_for_them() -> None:
    """After a refusal, stream_options is never sent again."""
    with ChatServer([Reply("a"), Reply("b")]) as server:
        server.knows_usage = False
        async with model_at(server) as model:
            for expected in "ab":
                deltas = await ask(model, Request(HELLO))
                assert (text(deltas), deltas[-1]) == (
                    expected,
                    Finished("stop", Usage(), "test-model"),
                )
        assert ["stream_options" in body for body in server.bodies] == [True, False, False]


async def test_calls_without_ids_stay_apart() -> None:
    """C19: two calls without ids are two calls."""
    with ChatServer([Reply(calls=[("add", {"a": 1}), ("add", {"a": 2})], ids=False)] * 2) as server:
        async with model_at(server) as model:
            for stream in (True, False):
                deltas = await ask(model, Request(HELLO, tools=[ADD], stream=stream))
                found = [
                    (call_id, json.loads(arguments)) for call_id, _, arguments in calls(deltas)
                ]
                assert found == [(None, {"a": 1}), (None, {"a": 2})]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_transient_error_is_retried_before_the_stream(status: int) -> None:
    """The client's retries apply; nothing was streamed, so nothing is discarded."""
    with ChatServer([Refuse(status), Reply("fine")]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO))
    assert text(deltas) == "fine"
    assert not any(isinstance(delta, Discarded) for delta in deltas)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (400, "the request was rejected"),
        (401, "OPENAI_API_KEY"),
        (403, "cannot use"),
        (404, "there is no model 'test-model'"),
        (429, "too many requests"),
        (500, "the server failed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_says_what_to_do(status: int, says: str, stream: bool) -> None:
    """Each HTTP error is a ModelError with the server's message and nbagent's."""
    with ChatServer([Refuse(status, "no way")] * 2) as server:
        async with model_at(server, max_retries=1) as model:
            with pytest.raises(ModelError, match="no way") as caught:
                await ask(model, Request(HELLO, stream=stream))
        assert len(server.requests) == (2 if status in {429, 500} else 1)
    assert says in str(caught.value)
    assert server.url in str(caught.value)


async def test_an_unreachable_server_is_named() -> None:
    """The error names the base_url."""
    with ChatServer() as server:
        url = server.url
    async with nb.OpenAIModel("m", base_url=url, max_retries=0) as model:
        with pytest.raises(ModelError, match=url):
            await ask(model, Request(HELLO))


async def test_a_missing_key_is_reported_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the model needs no key; the error at first use names the variable and the demo."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    model = resolve("gpt-5")
    with pytest.raises(ModelConfigError, match="OPENAI_API_KEY") as caught:
        [delta async for delta in model.stream(Request(HELLO))]
    assert 'nb.Agent("demo")' in str(caught.value)


GOOD = Reply("all of it", [("add", {"a": 1})])
BROKEN = {
    "torn": Reply("all of it", cut=3),
    "torn before the first delta": Reply("all of it", cut=0),
    "torn inside arguments": Reply("", [("add", {"a": 1, "b": 2})], cut=3),
    "ends as if complete": Reply("all of it", ends_early=3),
    "stalled": Reply("all of it", stall=3),
    "a call cut off by a clean end": Reply("", [("add", {"a": 1})], ends_early=2),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_stream_that_breaks_is_discarded_and_repeated(kind: str) -> None:
    """C135: the partial answer is discarded; only the next attempt counts."""
    with ChatServer([BROKEN[kind], GOOD]) as server:
        async with model_at(server, timeout=0.3) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD]))
        assert len(server.requests) == 2
    assert [type(delta) for delta in deltas].count(Discarded) == 1
    assert text(deltas) == "all of it"
    assert [(name, json.loads(arguments)) for _, name, arguments in calls(deltas)] == [
        ("add", {"a": 1})
    ]
    assert isinstance(deltas[-1], Finished)


async def test_a_stream_that_keeps_breaking_is_an_error() -> None:
    """Broken streams count as retries; then a ModelError describes the failure."""
    with ChatServer([BROKEN["torn"]] * 3) as server:
        async with model_at(server, max_retries=2) as model:
            with pytest.raises(ModelError, match="in the middle"):
                await ask(model, Request(HELLO))
        assert len(server.requests) == 3


async def test_servers_that_leave_out_done_are_understood() -> None:
    """A finish reason is enough, because many compatible servers send no [DONE]."""
    with ChatServer([Reply("fine", done=False)]) as server:
        async with model_at(server, max_retries=0) as model:
            assert text(await ask(model, Request(HELLO))) == "fine"


async def test_an_abandoned_answer_closes_its_connection() -> None:
    """Closing the stream early leaks no connection, and the model stays usable."""
    with ChatServer([Reply("abc", stall=2), Reply("next")]) as server:
        async with model_at(server) as model:
            async with aclosing(model.stream(Request(HELLO))) as deltas:
                assert isinstance(await anext(deltas), TextDelta)
            assert text(await ask(model, Request(HELLO))) == "next"


async def test_cancelling_a_stalled_answer_ends_at_once() -> None:
    """Cancelling the task cancels the request; the model stays usable."""
    with ChatServer([Reply("abc", stall=2), Reply("next")]) as server:
        async with model_at(server) as model:
            task = asyncio.create_task(ask(model, Request(HELLO)))
            await asyncio.to_thread(server.asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert text(await ask(model, Request(HELLO))) == "next"


def test_one_model_serves_three_loops_and_leaks_no_socket() -> None:
    """Each loop has its own client, which is closed when the loop ends."""
    with ChatServer([Reply("x")] * 4) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_at(server)

        async def twice() -> None:
            await ask(model, Request(HELLO))

        for _ in range(3):
            asyncio.run(twice())
            gc.collect()
            assert len(model._clients._opened) <= 1

        async def dropped() -> None:
            await ask(model_at(server), Request(HELLO))
            gc.collect()

        asyncio.run(dropped())
        gc.collect()


def test_two_loops_at_once_each_have_their_client() -> None:
    """Two threads share a model; closing the model in one loop also closes the other loop's client."""
    with ChatServer([Reply("x")] * 20) as server:
        model = model_at(server)
        used = threading.Barrier(2, timeout=30)
        closed = threading.Event()

        async def five() -> int:
            for _ in range(5):
                await ask(model, Request(HELLO))
            used.wait()
            count = len(model._clients._opened)
            used.wait()
            return count

        async def closes() -> int:
            count = await five()
            await model.aclose()
            closed.set()
            return count

        async def stays() -> int:
            client = await model._clients.get()
            count = await five()
            await asyncio.to_thread(closed.wait, 30)
            while not client.is_closed():  # noqa: ASYNC110  it has no event to wait for
                await asyncio.sleep(0.01)
            return count

        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(asyncio.run, run()) for run in (closes, stays)]
            assert [run.result(60) for run in runs] == [2, 2]


@pytest.mark.filterwarnings("ignore")  # the first loop leaves sockets open on purpose
def test_a_client_passed_by_the_caller_reports_that_it_belongs_to_another_loop() -> None:
    """The error replaces a bare "Event loop is closed"."""
    with ChatServer([Reply("x")] * 2) as server:
        client = openai.AsyncOpenAI(
            base_url=server.url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
        )
        model = nb.OpenAIModel("m", client=client)
        asyncio.run(ask(model, Request(HELLO)))
        with pytest.raises(ModelConfigError, match="another event loop"):
            asyncio.run(ask(model, Request(HELLO)))
        del client, model
        gc.collect()


async def test_a_client_passed_by_the_caller_is_used_and_left_open() -> None:
    """client= accepts a client, or a function that makes a client for each loop."""
    with ChatServer([Reply("x")] * 2) as server:

        def make() -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(
                base_url=server.url,
                api_key="mine",
                http_client=openai.DefaultAsyncHttpxClient(),
            )

        async with make() as client:
            async with nb.OpenAIModel("m", client=client) as model:
                await ask(model, Request(HELLO))
            assert not client.is_closed()
        async with nb.OpenAIModel("m", client=make) as model:
            await ask(model, Request(HELLO))
        assert [seen.headers["authorization"] for seen in server.requests] == ["Bearer mine"] * 2


class _NoPost:
    """A wrapper with only the documented calls."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self.chat, self.responses, self.base_url = client.chat, client.responses, client.base_url


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", SERVERS)
async def test_a_client_without_post_gets_the_ordinary_call(api: str, stream: bool) -> None:
    """The fast path is an optimization; without it, requests and answers are the same."""
    reply = Reply("hi", [("add", {"a": 1})], reasoning="hm")
    extra = {"top_k": 3} if api == "chat" else {}
    answers: list[list[ModelDelta]] = []
    with SERVERS[api]([reply, reply]) as server:
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
        ) as client:
            for used in (client, _NoPost(client)):
                model = nb.OpenAIModel("m", client=used, extra=extra, api=api)
                answers.append(await ask(model, Request(HELLO, tools=[ADD], stream=stream)))
        assert server.bodies[0] == server.bodies[1]
    lean, typed = answers
    assert text(typed) == text(lean) == "hi"
    assert calls(typed) == calls(lean)
    assert typed[-1]._replace(provider=None) == lean[-1]._replace(provider=None)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_answer_in_another_service_tier_has_no_known_cost(
    api: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project setting may choose the tier, so only the response shows it."""
    monkeypatch.setattr("nbagent.models.prices._own", {})
    nb.set_prices({"test-model": {"input": 1e5, "output": 0}})
    server = {"chat": ChatServer, "responses": ResponsesServer}[api]([Reply("hi")] * 3)
    tiers = [None, "default", "priority"]
    whole, events = server.whole, server.events

    def tiered(data: bytes) -> bytes:
        tier = json.dumps(tiers[len(server.requests) - 1]).encode()
        return data.replace(b'"model": ', b'"service_tier": ' + tier + b', "model": ')

    server.whole = lambda *given: json.loads(tiered(json.dumps(whole(*given)).encode()))
    server.events = lambda *given: map(tiered, events(*given))
    with server:
        async with model_at(server, api=api) as model:
            ends = [(await ask(model, Request(HELLO, stream=stream)))[-1] for _ in tiers]
    assert [end.usage.cost for end in ends] == [1, 1, None]


async def test_azure_puts_the_model_into_the_url() -> None:
    """Azure's client reads the model from the body, so nbagent uses the ordinary call."""
    with ChatServer([Reply("x")]) as server:
        async with openai.AsyncAzureOpenAI(
            azure_endpoint=server.url,
            api_key="k",
            api_version="1",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(),
        ) as client:
            with pytest.raises(ModelError, match="deployments/gpt/chat/completions"):
                await ask(nb.OpenAIModel("gpt", client=client), Request(HELLO))


async def test_the_installed_client_supports_the_fast_path() -> None:
    """If a new openai changed ``post``, the slow path would make loops ten times slower."""
    typed: list[Any] = []
    with ChatServer([Reply("x")]) as server:
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
        ) as client:
            assert is_lean(client)
            client._process_response_data = lambda **data: typed.append(data)
            assert text(await ask(nb.OpenAIModel("m", client=client), Request(HELLO))) == "x"
        assert typed == []
        sent = server.requests[0]
    assert sent.headers["content-type"] == "application/json"
    assert sent.raw.startswith(b'{"model":"m","messages":[{"role":"user"')


@pytest.mark.parametrize("field", ["model", "messages", "tools", "stream"])
def test_extra_cannot_replace_what_nbagent_sets(field: str) -> None:
    """A field in ``extra`` that nbagent sets is an error at once."""
    with pytest.raises(ModelConfigError, match=field):
        nb.OpenAIModel("m", extra={field: 1})


IN_A_SCRIPT = """
import sys, time
import nbagent as nb

agent = nb.Agent(nb.OpenAIModel("test", base_url=sys.argv[1], api_key="k"))

@agent.tool(approval=True)
def pay(amount: int) -> str:
    return "paid"

run = agent.run("Go")
while run.status == "running":
    time.sleep(0.01)
print(run.status)
"""


@pytest.mark.parametrize(
    ("reply", "status", "exit_code"),
    [(Reply("Done."), "completed", 0), (Reply(calls=[("pay", {"amount": 1})]), "interrupted", 3)],
    ids=["ended", "paused"],
)
def test_a_script_leaves_no_connection_open_at_its_end(
    reply: Reply, status: str, exit_code: int
) -> None:
    """Without the caller's loop, a run uses a private loop, which closes its connections when the process ends."""
    with ChatServer([reply]) as server:
        command = [sys.executable, "-W", "always::ResourceWarning", "-c", IN_A_SCRIPT, server.url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.returncode) == (f"{status}\n", exit_code), ran.stderr
    assert ran.stderr.count("nbagent: the program ended before its run") == (exit_code == 3)
    assert "Warning" not in ran.stderr


def test_importing_models_does_not_load_the_client() -> None:
    """The import of the client alone takes 0.6 s."""
    code = (
        "import sys, nbagent.models.resolve as m, nbagent.models.openai.model, "
        "nbagent.models.openai.exchange, nbagent.models.scripted, nbagent.models.demo.model; m.resolve('gpt-5'); m.resolve('demo'); "
        "print([n for n in ('openai', 'aiohttp', 'httpx2', 'httpx', 'anyio', 'IPython') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("how", ["live", "json"])
async def test_c141_a_server_gets_its_own_ids_back_even_where_they_are_not_unique(
    how: str,
) -> None:
    """Calls with the same id, in one turn or two, are distinguished here and sent back with their original id."""
    turn = Reply(calls=[("add", {"a": 1}), ("ask", {})], ids=None)
    with ChatServer([turn, turn, Reply("done")]) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model, tools=[nb.interrupt_tool("ask", output=str)])

            @agent.tool
            def add(a: int) -> int:
                return a

            if how == "live":
                answers = {"ask": ["b", "c"]}
                messages = (await agent.run("go", answers=answers, attended=False)).messages
            else:
                response = await agent.generate("go")
                for answer in ("b", "c"):
                    kept = json.loads(json.dumps(response.messages))
                    replies = [i.respond(answer) for i in agent.interrupts(kept)]
                    response = await agent.generate(messages=kept, tool_responses=replies)
                messages = response.messages
    ids = [p["id"] for m in messages for p in m["content"] if p["type"] == "tool_call"]
    assert len(set(ids)) == 4
    sent = server.bodies[-1]["messages"]
    told = [(m["tool_call_id"], m["content"]) for m in sent if m["role"] == "tool"]
    assert told == [("call_1", "1"), ("call_1", "b"), ("call_1", "1"), ("call_1", "c")]
    asked = [call["id"] for m in sent for call in m.get("tool_calls", ())]
    assert asked == ["call_1"] * 4
