"""The real LiteLLM library in this process, and LiteLLM's real proxy over HTTP."""

from __future__ import annotations

import asyncio
import base64
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Discarded, Finished, Request, TextDelta
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.litellm_proxy import Proxy, use_litellm
from tests.until import until

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
KEY = "sk-a-key-that-nobody-may-see-0123456789"


@nb.tool
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


def model_at(server: ChatServer, name: str = "openai/served", **options) -> nb.LiteLLMModel:
    use_litellm()
    return nb.LiteLLMModel(name, api_base=server.url, api_key=KEY, **options)


async def deltas_of(model: nb.Model, *, stream: bool = True) -> list:
    async with aclosing(model.stream(Request([user("go")], stream=stream))) as deltas:
        return [delta async for delta in deltas]


# --- in this process


async def test_a_call_through_litellm_waits_for_a_person_and_continues() -> None:
    """The history is sent as to any server: system prompt, calls with their ids, results in order."""
    asked = Reply("Let me see.", [("double", {"x": 4}), ("double", {"x": 5})])
    with ChatServer([asked, Reply("8 and 10.")]) as server:
        agent = nb.Agent(
            model_at(server), tools=[double], instructions="Be brief.", policy=[nb.review("double")]
        )
        paused = await agent.generate("go")
        assert [each.tool_name for each in paused.interrupts] == ["double", "double"]
        restarts = [each.restart() for each in paused.interrupts]
        done = await agent.generate(messages=paused.messages, tool_restarts=restarts)
    assert done.text == "8 and 10."
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert [m["content"] for m in server.bodies[1]["messages"][-2:]] == ["8", "10"]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_cost_is_the_litellm_price_and_an_unknown_price_is_not_0(stream) -> None:
    """For streamed and whole answers; without a price, the cost is None."""
    with ChatServer([Reply("hi", usage=(1000, 100)), Reply("hi")]) as server:
        known = (await deltas_of(model_at(server, "openai/gpt-4o-mini"), stream=stream))[-1]
        unknown = (await deltas_of(model_at(server), stream=stream))[-1]
    assert isinstance(known, Finished)
    assert known.usage.cost == pytest.approx(0.00021)
    assert (unknown.usage.total_tokens, unknown.usage.cost) == (15, None)


@pytest.mark.parametrize("stream", [True, False])
async def test_c399_a_free_model_costs_0_and_an_unreachable_server_is_a_connection_error(
    stream,
) -> None:
    """LiteLLM reports both cases differently if streamed; LiteLLM's own failures are not connection errors."""
    with ChatServer([Reply("hi", usage=(1000, 100))]) as server:
        free = (await deltas_of(model_at(server, "mistral/labs-leanstral-1-5"), stream=stream))[-1]
        model = model_at(server, "hosted_vllm/x", max_retries=0)
    assert (isinstance(free, Finished), free.usage.cost) == (True, 0)
    with pytest.raises(ModelError, match="cannot be reached"):
        await deltas_of(model, stream=stream)
    with ChatServer([Reply("hi")]) as server:  # LiteLLM fails on an answer of Groq without a tier
        groq = model_at(server, "groq/openai/gpt-oss-20b", max_retries=0)
        if not stream:
            with pytest.raises(ModelError, match="failed in LiteLLM"):
                await deltas_of(groq, stream=stream)


async def test_a_cost_budget_needs_a_model_with_a_litellm_price() -> None:
    """Otherwise, the error suggests ``nb.set_prices``."""
    with ChatServer([Reply("hi")]) as server:
        budget = nb.Budget(cost=1)
        known = nb.Agent(model_at(server, "openai/gpt-4o-mini"), budget=budget)
        assert (await known.run("go", attended=False)).usage.cost
        with pytest.raises(nb.errors.UsageError, match=r"nb\.set_prices"):
            nb.Agent(model_at(server), budget=budget).run("go", attended=False)


async def test_a_picture_goes_through_litellm_and_is_described_to_models_without_vision() -> None:
    """``vision=False`` works as with any server."""
    picture = nb.File(PIXEL, "image/png", name="dot.png")
    with ChatServer([Reply("red")] * 2) as server:
        for vision in (None, False):
            model = model_at(server, "openai/gpt-4o-mini", vision=vision)
            assert (await nb.Agent(model).generate(["which color?", picture])).text == "red"
    kinds = [
        [part["type"] for part in body["messages"][-1]["content"]]
        for body in server.bodies
        if isinstance(body["messages"][-1]["content"], list)
    ]
    assert kinds[0] == ["text", "image_url"]
    assert all("image_url" not in each for each in kinds[1:])


REFUSALS = {
    400: "400, the request was rejected",
    401: "rejected the API key (401)",
    403: "403, this key cannot use the model",
    404: "404, there is no model",
    429: "429, too many requests",
    500: "500, the server failed",
    503: "503, the server failed",
}


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_through_litellm_is_reported_in_plain_words(status, stream, capfd) -> None:
    """The error has no class name and no key, and nothing is printed; transient errors are retried."""
    with ChatServer([Refuse(status, f"no way, {KEY}")] * 2) as server:
        with pytest.raises(ModelError) as raised:
            await deltas_of(model_at(server, max_retries=1), stream=stream)
        assert len(server.requests) == (2 if status in {429, 500, 503} else 1)
    said = str(raised.value)
    assert REFUSALS[status] in said
    assert "no way, •••" in said
    assert "litellm." not in said
    assert "Error" not in said
    assert capfd.readouterr() == ("", "")


async def test_a_transient_error_is_retried() -> None:
    """The request is repeated before any part of an answer was reported."""
    with ChatServer([Refuse(429), Refuse(500), Reply("fine")]) as server:
        deltas = await deltas_of(model_at(server))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "fine"
    assert not any(isinstance(delta, Discarded) for delta in deltas)


async def test_a_stream_through_litellm_that_breaks_is_discarded_and_repeated() -> None:
    """Only text after the discarded part counts."""
    with ChatServer([Reply("all of it", cut=3), Reply("all of it")]) as server:
        deltas = await deltas_of(model_at(server))
    (at,) = [n for n, delta in enumerate(deltas) if isinstance(delta, Discarded)]
    assert "".join(d.text for d in deltas[at:] if isinstance(d, TextDelta)) == "all of it"


async def test_a_cancelled_run_closes_litellms_connection() -> None:
    """The server loses the connection, and the next request is answered."""
    slow = Reply("word " * 2000, pieces=2000, delay=0.01)
    with ChatServer([slow, Reply("now")]) as server:
        model = model_at(server)
        run = nb.Agent(model).run("go", attended=False)
        seen: list = []
        run.subscribe(seen.append)
        await until(lambda: any(event.type == "text_delta" for event in seen))
        await run.cancel()
        with pytest.raises(nb.errors.Cancelled):
            await run
        await until(lambda: not server._sockets)  # the server's write failed
        assert (await nb.Agent(model).generate("go")).text == "now"


def test_one_model_serves_one_loop_after_the_other() -> None:
    """Each cell of a script may have its own loop."""
    with ChatServer([Reply("yes")] * 3) as server:
        model = model_at(server)
        for _ in range(3):
            assert asyncio.run(nb.Agent(model).generate("go")).text == "yes"
        gc.collect()


async def test_an_unknown_litellm_provider_is_an_error_that_shows_how_names_are_written() -> None:
    use_litellm()
    with pytest.raises(
        ModelConfigError, match="LiteLLM does not know the provider of the model 'nowhere/x'"
    ):
        await deltas_of(nb.LiteLLMModel("nowhere/x"))


async def test_a_missing_key_is_named_by_its_litellm_variable(monkeypatch) -> None:
    use_litellm()
    for name, variable in (
        ("anthropic/claude-opus-4-5", "ANTHROPIC"),
        ("gemini/gemini-3-pro", "G"),
    ):
        with pytest.raises(
            ModelConfigError, match=f"needs an API key. Set {variable}.*_API_KEY"
        ) as raised:
            await deltas_of(nb.LiteLLMModel(name))
        assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("name", ["openai/m", "hosted_vllm/m", "ollama/m"])
async def test_an_unreachable_server_is_reported_in_plain_words(name, capfd) -> None:
    """LiteLLM uses a different HTTP client for each of these providers."""
    with ChatServer() as server:
        url = server.url
    use_litellm()
    with pytest.raises(ModelError, match=r"(?i)connect(ion error| to host)") as raised:
        await deltas_of(nb.LiteLLMModel(name, api_base=url, api_key="k", max_retries=0))
    assert not {"Traceback", "SSLContext", "litellm."} & set(str(raised.value).split())
    assert capfd.readouterr() == ("", "")


async def test_litellms_own_mocks_are_models_too() -> None:
    """``mock_response`` needs no server."""
    use_litellm()
    model = nb.LiteLLMModel("openai/gpt-4o-mini", mock_response="I am a mock.")
    assert (await nb.Agent(model).generate("go")).text == "I am a mock."


def test_an_invalid_name_or_option_is_refused_at_once() -> None:
    """LiteLLM is not loaded."""
    with pytest.raises(ModelConfigError, match=r'LiteLLM names the model "gemini/gemini-3-pro"'):
        nb.LiteLLMModel("gemini:gemini-3-pro")
    with pytest.raises(ModelConfigError, match="messages= is set by nbagent itself"):
        nb.LiteLLMModel("gemini/gemini-3-pro", messages=[])


def test_without_litellm_the_error_says_what_to_install() -> None:
    """The error comes at first use; making the model imports nothing."""
    code = """
import asyncio, sys, nbagent as nb
sys.modules["litellm"] = None
agent = nb.Agent("litellm:bedrock/x")
assert "openai" not in sys.modules
try:
    asyncio.run(agent.generate("go"))
except nb.errors.ModelConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "jupyter-nbagent[litellm]"' in ran.stdout
    assert ran.stderr == ""


def test_a_script_with_litellm_prints_nothing_but_its_own_output(tmp_path: Path) -> None:
    """The output has no banner, log, or warning about an open session."""
    use_litellm()
    code = """
import asyncio, sys, nbagent as nb
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.litellm_proxy import use_litellm
use_litellm()
with ChatServer([Reply("one"), Reply("two"), Refuse(404)]) as server:
    for name in ("openai/served", "hosted_vllm/served", "hosted_vllm/served"):
        model = nb.LiteLLMModel(name, api_base=server.url, api_key="k")
        try:
            print(nb.Agent(model).run_sync("go").text)
        except nb.errors.ModelError as error:
            print("404" in str(error))
"""
    run = [sys.executable, "-c", code]
    ran = subprocess.run(run, check=False, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("one\ntwo\nTrue\n", "")


# --- through the proxy


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ChatServer, Proxy]]:
    """LiteLLM's proxy, and the server of its model ``served``."""
    use_litellm()
    with ChatServer() as server, Proxy(server.url, tmp_path_factory.mktemp("proxy")) as proxy:
        yield server, proxy


def through(proxy: Proxy, name: str = "served", **settings) -> nb.OpenAIModel:
    return nb.OpenAIModel(name, base_url=proxy.url, **{"api_key": proxy.key, **settings})


@pytest.mark.parametrize("stream", [True, False])
async def test_text_arrives_through_the_proxy(behind, stream) -> None:
    """The text is from a server behind the proxy or from the proxy's mock."""
    server, proxy = behind
    server.script.append(Reply("Hello from behind."))
    for name, said in (("served", "Hello from behind."), ("mock", "I am a mock.")):
        async with through(proxy, name) as model:
            deltas = await deltas_of(model, stream=stream)
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == said
        assert deltas[-1].usage.total_tokens > 0


async def test_tools_are_called_and_approved_through_the_proxy(behind) -> None:
    """A whole run with a person: calls, an approval, results, an answer."""
    server, proxy = behind
    server.script += [Reply("", [("double", {"x": 4}), ("double", {"x": 5})]), Reply("8 and 10.")]
    async with through(proxy) as model:
        agent = nb.Agent(model, tools=[double], policy=[nb.review("double")])
        run = agent.run("go", answers={"double": True})
        assert (await run).text == "8 and 10."
    assert [m["content"] for m in server.bodies[-1]["messages"][-2:]] == ["8", "10"]


@pytest.mark.parametrize("status", [401, 404, 429, 500])
async def test_an_error_behind_the_proxy_is_reported_as_its_own_kind(behind, status) -> None:
    """The error has nbagent's message before the proxy's."""
    server, proxy = behind
    server.script.append(Refuse(status, "no way"))
    async with through(proxy, max_retries=0) as model:
        with pytest.raises(ModelError, match=r"no way") as raised:
            await deltas_of(model)
    server.script.clear()
    assert {**REFUSALS, 401: "401, the API key was rejected"}[status] in str(raised.value)


async def test_refusals_of_the_proxy_itself_are_reported(behind) -> None:
    """The key is wrong, or the proxy does not have the model."""
    _, proxy = behind
    wrong = "sk-the-wrong-key-0123456789"
    async with through(proxy, api_key=wrong) as model:
        with pytest.raises(ModelError, match=r"40[01], ") as raised:
            await deltas_of(model)
    assert wrong not in str(raised.value)
    async with through(proxy, "nothing") as model:
        with pytest.raises(ModelError, match="nothing"):
            await deltas_of(model)


async def test_twenty_runs_at_once_go_through_the_proxy(behind) -> None:
    """Each run gets its own answer."""
    server, proxy = behind
    server._every = lambda body: Reply(body["messages"][-1]["content"])
    try:
        async with through(proxy) as model:
            agent = nb.Agent(model)
            asked = [f"number {n}" for n in range(20)]
            results = await asyncio.gather(*(agent.run(text, attended=False) for text in asked))
    finally:
        server._every = None
    assert [result.text for result in results] == asked
