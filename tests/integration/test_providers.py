"""Providers by name: their addresses, keys and errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import openai
import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.models.openai.client import make_client
from nbagent.models.openai.providers import PROVIDERS
from tests.integration.chat_server import ChatServer, Refuse, Reply

NAMES = list(PROVIDERS)
KEY = "key-of-this-provider-0123456789"
OTHER = "key-of-another-provider-0123456789"


@pytest.mark.parametrize("name", NAMES)
async def test_a_provider_is_asked_at_its_address_with_its_own_key(name, monkeypatch) -> None:
    """No other key is sent, although the environment has OpenAI's."""
    provider = PROVIDERS[name]
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com")
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)
    monkeypatch.setenv(str(provider.key), KEY)
    settings = {"base_url": None, "api_key": None, "max_retries": None, "timeout": None}
    client = make_client(f"{name}:m", provider, **settings)
    place = provider.base_url or f"https://me.openai.azure.com{provider.path}"
    assert (str(client.base_url).rstrip("/"), client.api_key) == (place, KEY)
    await client.close()
    with ChatServer([Reply("yes")]) as server:
        async with nb.OpenAIModel(f"{name}:m:x", base_url=server.url, temperature=0) as model:
            assert (await nb.Agent(model).generate("go")).text == "yes"
    (seen,) = server.requests
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert (seen.body["model"], seen.body["temperature"]) == ("m:x", 0)


@pytest.mark.parametrize("name", NAMES)
async def test_a_missing_key_error_names_the_key_of_the_provider(name, monkeypatch) -> None:
    """The error comes at first use and never names OpenAI's key by mistake; local servers need no key."""
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com")
    provider = PROVIDERS[name]
    if provider.needs_key:
        with pytest.raises(ModelConfigError) as raised:
            await nb.Agent(f"{name}:m").generate("go")
        assert f"Set the environment variable {provider.key}, or" in str(raised.value)
        assert ("OPENAI_API_KEY," in str(raised.value)) == (name in ("openai", "azure"))
    with ChatServer([Refuse(401, "who are you")]) as server:
        model = nb.OpenAIModel(f"{name}:m", base_url=server.url, api_key="none")
        with pytest.raises(ModelError, match=f"Check {provider.key} or api_key="):
            await nb.Agent(model).generate("go")
        await model.aclose()


async def test_available_keys_are_listed_where_one_is_missing(monkeypatch) -> None:
    """The error says how to use another provider's key that is set."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("ANTHROPIC_API_KEY", OTHER)
    with pytest.raises(ModelConfigError) as raised:
        await nb.Agent("gpt-5.1").generate("go")
    assert 'ANTHROPIC_API_KEY is set: to use it, write nb.Agent("anthropic:…")' in str(raised.value)
    assert OTHER not in str(raised.value)


async def test_an_unreachable_server_of_the_person_is_reported_as_probably_not_started() -> None:
    """A local server was most likely not started."""
    with ChatServer() as server:
        url = server.url
    async with nb.OpenAIModel("ollama:m", base_url=url, max_retries=0) as model:
        with pytest.raises(ModelError, match=r"cannot be reached .*Is ollama running there\?"):
            await nb.Agent(model).generate("go")


async def test_the_azure_endpoint_comes_from_the_person() -> None:
    """Without an endpoint, the error names the variable and its format."""
    with pytest.raises(ModelConfigError, match=r"Set AZURE_OPENAI_ENDPOINT, or pass .*/openai/v1"):
        await nb.Agent("azure:gpt").generate("go")


async def test_a_server_from_the_environment_accepts_any_name_and_needs_no_key(monkeypatch) -> None:
    """Many programs find local servers in this way."""
    with ChatServer([Reply("yes")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        agent = nb.Agent("llama3.1:8b")
        assert (await agent.generate("go")).text == "yes"
        await agent.model.aclose()
    assert server.bodies[0]["model"] == "llama3.1:8b"


async def test_no_provider_leaks_the_key_of_another(monkeypatch) -> None:
    """A gateway may repeat another provider's key in an error; a word used as a placeholder key stays."""
    monkeypatch.setenv("MISTRAL_API_KEY", OTHER)
    with ChatServer([Refuse(400, f"upstream refused {OTHER} of ollama")]) as server:
        model = nb.OpenAIModel("ollama:m", base_url=server.url, api_key="ollama")
        with pytest.raises(ModelError, match="upstream refused ••• of ollama"):
            await nb.Agent(model).generate("go")
        await model.aclose()


async def test_a_price_for_a_provider_counts_for_its_models(monkeypatch) -> None:
    """The prefix of the name decides, as in the error that asks for a price; other providers' models have no price."""
    monkeypatch.setattr("nbagent.models.prices._own", {})
    nb.set_prices({"deepseek:m": {"input": 1e6, "output": 0}})
    with ChatServer([Reply("yes")] * 3) as server:
        for name, cost in (("deepseek:m", 10), ("zai:m", None), ("m", None)):
            model = nb.OpenAIModel(name, base_url=server.url, api_key=KEY)
            assert model.reports_cost == (cost is not None)
            assert (await nb.Agent(model).generate("go")).usage.cost == cost
            await model.aclose()
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    assert nb.OpenAIModel("m", base_url="https://api.deepseek.com").reports_cost


@pytest.mark.parametrize("kind", ["OpenAI", "AzureOpenAI"])
def test_a_blocking_client_is_refused_with_the_async_one(kind) -> None:
    """The synchronous client is passed as an object or a class."""
    made = {"api_key": "k", "base_url": "http://localhost:1/v1"}
    if kind == "AzureOpenAI":
        made = {"api_key": "k", "azure_endpoint": "http://localhost:1", "api_version": "1"}
    with getattr(openai, kind)(**made) as client:
        for given in (client, getattr(openai, kind)):
            with pytest.raises(ModelConfigError, match=rf"Pass openai\.Async{kind}"):
                nb.OpenAIModel("m", client=given)


@pytest.mark.parametrize("setting", ["base_url", "api_key", "max_retries", "timeout"])
def test_a_setting_beside_a_client_is_refused(setting) -> None:
    """The setting would have no effect."""
    with pytest.raises(ModelConfigError, match=rf"{setting}= and client="):
        nb.OpenAIModel("m", client=SimpleNamespace(chat=None), **{setting: 1})


async def test_any_ready_client_is_used_as_it_is(monkeypatch) -> None:
    """A client with its own headers and http client, a copy of the client, and a function."""
    with ChatServer([Reply("yes")] * 3) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        http = openai.DefaultAsyncHttpxClient(headers={"x-mine": "1"})
        async with openai.AsyncOpenAI(http_client=http) as client:
            for given in (client, client.with_options(max_retries=0), lambda: client):
                model = nb.OpenAIModel("any/name:x", client=given)
                assert (await nb.Agent(model).generate("go")).text == "yes"
    assert [seen.headers["x-mine"] for seen in server.requests] == ["1"] * 3


async def test_a_refused_key_of_a_client_is_reported_as_the_key_of_the_client() -> None:
    """The error names no variable, because none was read."""
    with ChatServer([Refuse(401)]) as server:
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
        ) as client:
            with pytest.raises(ModelError, match="Check the key of client="):
                await nb.Agent(nb.OpenAIModel("m", client=client)).generate("go")


class City(BaseModel):
    """A typed answer."""

    name: str


FORMATS = {"schema": "json_schema", "object": "json_object", "prompt": None}


@pytest.mark.parametrize("name", NAMES)
async def test_the_shape_of_an_answer_is_requested_as_the_provider_supports_it(name) -> None:
    """The request has a schema, JSON mode, or only instructions; ``output=`` has priority."""
    mode = PROVIDERS[name].output
    with ChatServer([Reply('{"name": "Rome"}')] * 2) as server:
        for output in (None, "schema"):
            model = nb.OpenAIModel(f"{name}:m", base_url=server.url, api_key="k", output=output)
            async with model:
                done = await nb.Agent(model, output_type=City).generate("go")
            assert done.output == City(name="Rome")
    formats = [body.get("response_format", {}).get("type") for body in server.bodies]
    assert formats == [FORMATS[mode], "json_schema"]


def test_one_agent_moves_from_one_provider_to_another() -> None:
    """People first try the same agent with another model name."""

    async def main() -> list[str]:
        with ChatServer([Reply("one")]) as first, ChatServer([Reply("two")]) as second:
            said = []
            for name, server in (("anthropic:claude-x", first), ("ollama:qwen3:8b", second)):
                async with nb.OpenAIModel(name, base_url=server.url, api_key="k") as model:
                    said.append((await nb.Agent(model).generate("go")).text)
            said += [first.bodies[0]["model"], second.bodies[0]["model"]]
            return said

    assert asyncio.run(main()) == ["one", "two", "claude-x", "qwen3:8b"]
