"""The provider of a model's name, and the suggestions for unknown names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError
from nbagent.models.openai.providers import PROVIDERS, address, provider_at, provider_of

MEANT = {
    "gpt-5.1": ("openai", "gpt-5.1"),
    "openai:gpt-5.1": ("openai", "gpt-5.1"),
    "o4-mini": ("openai", "o4-mini"),
    "ft:gpt-4.1-mini-2025-04-14:org::abc": ("openai", "ft:gpt-4.1-mini-2025-04-14:org::abc"),
    "openai:ft:gpt-4.1-mini:org::abc": ("openai", "ft:gpt-4.1-mini:org::abc"),
    "something-new": ("openai", "something-new"),
    "anthropic:claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
    "ollama:qwen3:8b": ("ollama", "qwen3:8b"),
    "openrouter:anthropic/claude-sonnet-4.5": ("openrouter", "anthropic/claude-sonnet-4.5"),
    "huggingface:openai/gpt-oss-120b:cerebras": ("huggingface", "openai/gpt-oss-120b:cerebras"),
    "azure:my-deployment": ("azure", "my-deployment"),
}
INSTEAD = {
    "antropic:claude": 'Did you mean nb.Agent("anthropic:claude")?',
    "Gemini:gemini-3-pro": 'Use nb.Agent("gemini:gemini-3-pro")',
    "google:gemini-3-pro": 'Use nb.Agent("gemini:gemini-3-pro")',
    "claude:claude-opus-4-5": 'Use nb.Agent("anthropic:claude-opus-4-5")',
    "bedrock:anthropic.claude-3": 'Use nb.Agent("litellm:bedrock/anthropic.claude-3")',
    "vendorx:model": 'others through nb.Agent("litellm:vendorx/model")',
    "claude-sonnet-4-5": 'Use nb.Agent("anthropic:claude-sonnet-4-5")',
    "gemini-3-pro": 'Use nb.Agent("gemini:gemini-3-pro")',
    "mistral-large": 'Use nb.Agent("mistral:mistral-large")',
    "mistral": 'Use nb.Agent("ollama:mistral")',
    "deepseek-chat": 'Use nb.Agent("deepseek:deepseek-chat")',
    "grok-4": 'Use nb.Agent("xai:grok-4")',
    "kimi-k2": 'Use nb.Agent("moonshot:kimi-k2")',
    "glm-4.6": 'Use nb.Agent("zai:glm-4.6")',
    "qwen-max": 'Use nb.Agent("dashscope:qwen-max")',
    "command-a-03-2025": 'Use nb.Agent("cohere:command-a-03-2025")',
    "llama3.1": 'Use nb.Agent("ollama:llama3.1")',
    "llama3.1:8b": 'Use nb.Agent("ollama:llama3.1:8b")',
    "qwen3:latest": 'Use nb.Agent("ollama:qwen3:latest")',
    "qwen:qwen-max": 'Use nb.Agent("dashscope:qwen-max")',
    "gpt-oss:20b": 'Use nb.Agent("ollama:gpt-oss:20b")',
    "deepseek-r1:14b": 'Use nb.Agent("ollama:deepseek-r1:14b")',
    "gemma3n:e4b-it": 'Use nb.Agent("ollama:gemma3n:e4b-it")',
    "anthropic/claude-opus-4.5": 'Use nb.Agent("anthropic:claude-opus-4.5"), or nb.Agent("openrouter:anthropic/',
    "openai/gpt-5.1": 'Use nb.Agent("openai:gpt-5.1"), or nb.Agent("openrouter:openai/gpt-5.1")',
    "meta-llama/Llama-3.3-70B": 'nb.Agent("huggingface:meta-llama/Llama-3.3-70B")',
    "openrouter/openai/gpt-5": 'Use nb.Agent("openrouter:openai/gpt-5")',
    "ollama/llama3": 'Use nb.Agent("ollama:llama3")',
    "bedrock/anthropic.claude-v2:1": 'Use nb.Agent("litellm:bedrock/anthropic.claude-v2:1")',
    "accounts/fireworks/models/x": 'Use nb.Agent("fireworks:accounts/fireworks/models/x")',
    "anthropic:": "has no model name. Use 'anthropic:<model>'",
}


@pytest.fixture(autouse=True)
def no_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the configured server."""
    monkeypatch.delenv("OPENAI_BASE_URL")


@pytest.mark.parametrize("name", MEANT)
def test_a_name_means_one_model_of_one_provider(name: str) -> None:
    """Only the first colon after a known provider separates provider and model."""
    provider, model = provider_of(name, base_url=None, has_client=False)
    assert (provider.name, model) == MEANT[name]
    assert nb.Agent(name).model.name == name


@pytest.mark.parametrize("name", INSTEAD)
def test_an_unknown_model_name_says_what_to_write(name: str) -> None:
    """The error comes at once, and never blames a missing OpenAI key."""
    with pytest.raises(ModelConfigError) as raised:
        nb.Agent(name)
    assert INSTEAD[name] in str(raised.value)
    assert "OPENAI_API_KEY" not in str(raised.value)


@pytest.mark.parametrize("name", [name for name in INSTEAD if name != "anthropic:"])
def test_every_suggested_name_is_accepted(name: str) -> None:
    suggested = re.findall(r'nb\.Agent\("([^"]*)"\)', INSTEAD[name])
    for written in suggested:
        assert nb.Agent(written).model.name


@pytest.mark.parametrize("name", [name for name in INSTEAD if name != "anthropic:"])
def test_another_server_accepts_any_model_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other server decides, whether it is set by argument, client or variable."""
    here = "http://localhost:9999/v1"
    assert provider_of(name, base_url=here, has_client=False)[1] == name
    assert provider_of(name, base_url=None, has_client=True)[1] == name
    monkeypatch.setenv("OPENAI_BASE_URL", here)
    provider, model = provider_of(name, base_url=None, has_client=False)
    assert (address(provider), model) == (here, name)


def test_the_address_in_the_environment_is_for_plain_names_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name with a provider uses the provider's address."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9999/v1")
    for name in ("openai:gpt-5.1", "anthropic:claude-sonnet-4-5"):
        provider, _ = provider_of(name, base_url=None, has_client=False)
        assert address(provider) == provider.base_url


ADDRESSES = {
    ("azure", "https://me.openai.azure.com"): "https://me.openai.azure.com/openai/v1",
    ("azure", "https://me.openai.azure.com/"): "https://me.openai.azure.com/openai/v1",
    ("azure", "https://me.openai.azure.com/openai/v1/"): "https://me.openai.azure.com/openai/v1",
    ("ollama", "gpu"): "http://gpu:11434/v1",
    ("ollama", "0.0.0.0:8080"): "http://127.0.0.1:8080/v1",
    ("ollama", "https://gpu.example/v1"): "https://gpu.example/v1",
    ("ollama", ""): "http://localhost:11434/v1",
}


@pytest.mark.parametrize(("name", "told"), ADDRESSES)
def test_an_address_is_accepted_as_people_write_it(name, told, monkeypatch) -> None:
    """An address may have a path, a scheme and a port."""
    monkeypatch.setenv(PROVIDERS[name].url_variable, told)
    assert address(PROVIDERS[name]) == ADDRESSES[name, told]


def test_a_provider_is_recognized_by_its_url() -> None:
    """The provider decides which key is needed and which options work."""
    for provider in PROVIDERS.values():
        if provider.base_url:
            assert provider_at(provider.base_url + "/") is provider
    assert provider_at("https://me.openai.azure.com/openai/v1").name == "azure"
    assert provider_at("https://api.openai.com.evil.example/v1").name == ""
    assert provider_at("http://[::1/v1").name == ""


def test_the_page_lists_every_provider() -> None:
    """The page shows each provider's name, address, key and output format."""
    page = (Path(__file__).parents[4] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+):` \| `([^`]*)` \| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [
        (p.name, p.base_url or f"{p.url_variable}{p.path}", str(p.key), p.output)
        for p in PROVIDERS.values()
    ]


@pytest.mark.parametrize(
    "base_url",
    [
        "http://h\ud800/v1",
        "http://h/\ud800",
        "http://",
        "http://a b/v1",
        "http://h:99999",
        "http://[::1",
        5,
    ],
)
def test_what_is_no_address_is_refused_by_name(base_url: Any) -> None:
    """At once, not at the first request."""
    with pytest.raises(
        nb.errors.ModelConfigError, match=r"base_url='.* (is not an address|must begin)"
    ):
        nb.OpenAIModel("x", base_url=base_url)
