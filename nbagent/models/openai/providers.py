"""Servers with OpenAI's APIs: their addresses, keys and features; and the provider of a model's name.

Servers outside the table are treated as Chat Completions servers with all features. A model's arguments
override its provider's entry. The comment above each entry has the entry's source.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

from nbagent.core.base.errors import ModelConfigError

ApiName = Literal["chat", "responses"]
OutputMode = Literal["schema", "object", "prompt"]
CallIds = Literal["any", "wide", "nine"]
"""The ids of calls that a server accepts: any, 40 of A-Z, a-z, 0-9, _ and -, or exactly nine letters or digits."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider."""

    name: str
    """The name before the colon of ``nb.Agent("name:model")``."""
    base_url: str | None
    """The address up to and including the version; None if it differs for each person."""
    key: str
    """The environment variable with the API key."""
    output: OutputMode = "schema"
    """The form of a typed answer's schema: a schema field, JSON mode, or the prompt."""
    call_ids: CallIds = "any"
    """The ids of calls that the server accepts, as far as it is known."""
    other_keys: tuple[str, ...] = ()
    """Other environment variables that may have the key."""
    needs_key: bool = True
    """Whether requests need a key."""
    url_variable: str | None = None
    """The environment variable with an address that replaces ``base_url``."""
    path: str = ""
    """The path to append to the address in ``url_variable``, if the address does not end with the path."""
    hosts: tuple[str, ...] = ()
    """The endings of the provider's hosts, if the host differs for each person."""
    called: tuple[str, ...] = ()
    """Other names that people write before the colon."""
    models: tuple[str, ...] = ()
    """Prefixes of the provider's model names; of all providers, the longest prefix counts."""


@dataclass(frozen=True, slots=True)
class OwnModels:
    """Models of OpenAI's own server, by a pattern of their names."""

    pattern: str
    """The pattern, with ``*`` as a wildcard."""
    api: ApiName
    reasons: bool
    """Whether the models reason. If so, requests ask for summaries, and send the reasoning back with the history."""


OWN_HOST = "api.openai.com"
OWN_MODELS = (
    OwnModels("*-chat-latest", "chat", reasons=False),
    OwnModels("*-search-preview*", "chat", reasons=False),
    OwnModels("gpt-3.5*", "chat", reasons=False),
    OwnModels("gpt-4*", "chat", reasons=False),
    OwnModels("gpt-audio*", "chat", reasons=False),
    OwnModels("chatgpt-*", "chat", reasons=False),
    OwnModels("ft:gpt-[34]*", "chat", reasons=False),
    OwnModels("o[0-9]*", "responses", reasons=True),
    OwnModels("gpt-[5-9]*", "responses", reasons=True),
    OwnModels("codex-*", "responses", reasons=True),
    OwnModels("*", "responses", reasons=False),
)
"""The first matching pattern counts. In Chat Completions, models from ``gpt-5.4`` on reject functions if they
reason, and older models that reason lose their reasoning from turn to turn."""


def own_models(name: str) -> OwnModels:
    """The known properties of a model of OpenAI's own server."""
    return next(each for each in OWN_MODELS if fnmatchcase(name, each.pattern))


OPENAI = Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", call_ids="wide")
"""The provider of names that start with ``openai:``."""
PLAIN = replace(OPENAI, url_variable="OPENAI_BASE_URL")
"""The provider of names without a provider."""
ELSEWHERE = Provider("", None, "OPENAI_API_KEY", needs_key=False, url_variable="OPENAI_BASE_URL")
"""An unknown server."""

_KNOWN = (
    OPENAI,
    # platform.claude.com/docs/en/cli-sdks-libraries/libraries/openai-sdk: response_format is ignored
    Provider(
        "anthropic",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        output="prompt",
        call_ids="wide",
        called=("claude",),
        models=("claude",),
    ),
    # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle: the v1 API, for OpenAI's own client
    Provider(
        "azure",
        None,
        "AZURE_OPENAI_API_KEY",
        call_ids="wide",
        other_keys=("AZURE_API_KEY",),
        url_variable="AZURE_OPENAI_ENDPOINT",
        path="/openai/v1",
        hosts=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        called=("azure_openai", "azure-openai", "azureopenai"),
    ),
    # inference-docs.cerebras.ai/resources/openai
    Provider("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    # docs.cohere.com/docs/compatibility-api
    Provider(
        "cohere",
        "https://api.cohere.ai/compatibility/v1",
        "CO_API_KEY",
        other_keys=("COHERE_API_KEY",),
        models=("command-",),
    ),
    # alibabacloud.com/help/en/model-studio: the international endpoint
    Provider(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        output="object",
        called=("qwen", "alibaba", "qwencloud"),
        models=("qwen-", "qwq-"),
    ),
    # api-docs.deepseek.com: only JSON mode
    Provider(
        "deepseek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        output="object",
        models=("deepseek",),
    ),
    # docs.fireworks.ai/tools-sdks/openai-compatibility
    Provider(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        other_keys=("FIREWORKS_AI_API_KEY",),
        called=("fireworks_ai", "fireworks-ai"),
        models=("accounts/",),
    ),
    # ai.google.dev/gemini-api/docs/openai
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        other_keys=("GOOGLE_API_KEY",),
        called=("google", "google_genai", "google-gla"),
        models=("gemini",),
    ),
    # docs.github.com/en/github-models/quickstart
    Provider(
        "github",
        "https://models.github.ai/inference",
        "GITHUB_TOKEN",
        other_keys=("GITHUB_API_KEY",),
        called=("github_models", "github-models"),
    ),
    # console.groq.com/docs/structured-outputs: schemas work neither in streams nor together with tools
    Provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", output="prompt"),
    # huggingface.co/docs/inference-providers
    Provider(
        "huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", called=("hf", "hugging_face")
    ),
    # lmstudio.ai/docs/app/api/endpoints/openai
    Provider(
        "lmstudio",
        "http://localhost:1234/v1",
        "LM_STUDIO_API_KEY",
        needs_key=False,
        called=("lm_studio", "lm-studio"),
    ),
    # docs.mistral.ai/api
    Provider(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        call_ids="nine",
        called=("mistralai",),
        models=(
            *("mistral-", "ministral", "magistral", "codestral", "devstral", "pixtral"),
            "open-mistral",
        ),
    ),
    # platform.moonshot.ai/docs
    Provider(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        output="object",
        called=("moonshotai", "kimi"),
        models=("kimi", "moonshot"),
    ),
    # docs.ollama.com/api/openai-compatibility; Ollama's own programs read OLLAMA_HOST
    Provider(
        "ollama",
        "http://localhost:11434/v1",
        "OLLAMA_API_KEY",
        needs_key=False,
        url_variable="OLLAMA_HOST",
        path="/v1",
        called=("ollama_chat",),
        models=(
            *("llama", "gemma", "phi", "gpt-oss", "qwen", "qwq", "mistral", "mixtral", "granite"),
            *("codellama", "tinyllama", "smollm", "llava", "deepseek-r1:", "nemotron", "olmo"),
        ),
    ),
    # openrouter.ai/docs/quickstart
    Provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    # docs.together.ai/docs/openai-api-compatibility
    Provider(
        "together",
        "https://api.together.ai/v1",
        "TOGETHER_API_KEY",
        other_keys=("TOGETHERAI_API_KEY",),
        called=("together_ai", "together-ai", "togetherai"),
    ),
    # docs.vllm.ai/en/latest/serving/openai_compatible_server
    Provider(
        "vllm",
        "http://localhost:8000/v1",
        "VLLM_API_KEY",
        needs_key=False,
        called=("hosted_vllm",),
    ),
    # docs.x.ai/docs/api-reference
    Provider(
        "xai",
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        called=("grok", "x-ai", "x_ai"),
        models=("grok",),
    ),
    # docs.z.ai/guides/develop/openai/python: only JSON mode
    Provider(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        other_keys=("ZHIPU_API_KEY",),
        output="object",
        called=("z-ai", "zhipu", "zhipuai", "glm", "bigmodel"),
        models=("glm",),
    ),
)
PROVIDERS = {provider.name: provider for provider in _KNOWN}
KEYS = tuple(name for provider in _KNOWN for name in (provider.key, *provider.other_keys))
"""The environment variables with keys."""
WORDS = frozenset({"none", "empty", "dummy", *(w for p in _KNOWN for w in (p.name, *p.called))})
"""Placeholders that people pass as a key if none is needed."""
LITELLM_ALONE = (
    *("bedrock", "vertex_ai", "sagemaker", "watsonx", "databricks", "replicate", "perplexity"),
    *("snowflake", "oci", "sambanova", "nvidia_nim", "nebius", "deepinfra", "volcengine", "ai21"),
)
"""Providers of LiteLLM that people may name and that are not in the table."""


LITELLM = "litellm"
"""The prefix of names for LiteLLM."""
_TAG = re.compile(r"latest|cloud|e?\d[\d.x]*[bm]\b.*|.*-cloud", re.IGNORECASE)
"""Ollama's tag after the colon of a name."""


def provider_of(name: str, *, base_url: str | None, has_client: bool) -> tuple[Provider, str]:
    """The provider of a name, and the model's name there.

    Raises:
        ModelConfigError: the provider is unknown, or the name looks like another provider's; the message says what to
            write. If the server was named (also with ``OPENAI_BASE_URL``), any name is allowed.
    """
    prefix, colon, model = name.partition(":")
    if colon and prefix in PROVIDERS:
        if not model:
            raise ModelConfigError(f"{name!r} has no model name. Use {prefix + ':<model>'!r}")
        return PROVIDERS[prefix], model
    if prefix == LITELLM and colon:
        raise ModelConfigError(f"For LiteLLM's models, use nb.LiteLLMModel({model!r}, …)")
    if base_url is not None:
        return provider_at(base_url), name
    if has_client or not name:
        return ELSEWHERE, name
    if url := os.environ.get(str(PLAIN.url_variable)):
        return replace(provider_at(url), url_variable=PLAIN.url_variable, path=""), name
    if instead := _instead(name):
        raise ModelConfigError(
            f"{name!r} is not an OpenAI model. {instead.removesuffix('?')}{'?' if instead.endswith('?') else '.'} "
            "For another server, use nb.OpenAIModel(name, base_url=…)"
        )
    return PLAIN, name


def provider_at(url: str) -> Provider:
    """The provider of a URL; ``ELSEWHERE`` if it is unknown."""
    try:
        parts = urlsplit(url)
        place, host = parts.netloc.rpartition("@")[2], parts.hostname or ""
    except ValueError:  # not a URL; the client will report it
        return ELSEWHERE
    for provider in PROVIDERS.values():
        if provider.base_url and urlsplit(provider.base_url).netloc == place:
            return provider
        if host.endswith(provider.hosts):
            return provider
    return ELSEWHERE


def address(provider: Provider) -> str | None:
    """The base URL of a provider, from the environment or the table.

    Raises:
        ModelConfigError: the address differs for each person, and the environment has none.
    """
    url = os.environ.get(provider.url_variable or "", "").strip()
    if url:
        return _completed(url, provider)
    if provider.base_url is None and provider.url_variable is not None:
        raise ModelConfigError(
            f"The address of {provider.name} is unknown. Set {provider.url_variable}, or pass "
            f'OpenAIModel("{provider.name}:…", base_url="https://…{provider.path}")'
        )
    return provider.base_url


def _completed(url: str, provider: Provider) -> str:
    """An address completed with the parts that people omit: scheme, port and path."""
    if not provider.path:
        return url
    if "://" not in url:
        usual = urlsplit(provider.base_url or "https://")
        # the address of all interfaces is for listening, not for requests
        host = url.partition("/")[0].replace("0.0.0.0", "127.0.0.1")
        port = f":{usual.port}" if usual.port and ":" not in host else ""
        url = f"{usual.scheme}://{host}{port}"
    url = url.rstrip("/")
    return url if url.endswith(provider.path) else url + provider.path


def _instead(name: str) -> str:
    """A suggestion for a name that OpenAI does not have, or an empty string."""
    if name.startswith("ft:"):  # OpenAI's own names with a colon
        return ""
    prefix, colon, rest = name.partition(":")
    if colon and "/" not in prefix:
        return _for_prefix(name, prefix, rest)
    if "/" in name:
        return _for_path(name)
    provider = _owner_of(name)
    return f"Use {_written(provider, name)}" if provider else ""


def _for_prefix(name: str, prefix: str, rest: str) -> str:
    if _TAG.fullmatch(rest):
        return f"Use {_written('ollama', name)}"
    called = _called(prefix)
    if called:
        return f"Use {_written(called, rest)}"
    if prefix.lower() in LITELLM_ALONE:
        return f"Use {_written(LITELLM, f'{prefix.lower()}/{rest}')}"
    near = get_close_matches(prefix.lower(), PROVIDERS, n=1, cutoff=0.75)
    if near:
        return f"Did you mean {_written(near[0], rest)}?"
    return (
        f"{prefix!r} is not a known provider. Known: {', '.join(sorted(PROVIDERS))}, and others through "
        f"{_written(LITELLM, f'{prefix}/{rest}')}"
    )


def _for_path(name: str) -> str:
    """Suggestions for a name with slashes: for LiteLLM, OpenRouter and Hugging Face."""
    first, _, rest = name.partition("/")
    if first in LITELLM_ALONE:
        return f"Use {_written(LITELLM, name)}"
    if first == LITELLM:
        return f"Use {_written(LITELLM, rest)}"
    own = _called(first)
    if not own and (provider := _owner_of(f"{first}/")):
        return f"Use {_written(provider, name)}"
    suggestions = [_written(own, rest)] if own else []
    if own not in ("openrouter", "ollama", "lmstudio", "vllm", "azure"):
        suggestions.append(_written("openrouter", name))
    if not own:
        suggestions.append(_written("huggingface", name))
    return f"Use {', or '.join([*suggestions, _written(LITELLM, name)])}"


def _called(word: str) -> str | None:
    """The provider with that name, or with that alias."""
    found = (p.name for p in PROVIDERS.values() if word.lower() in (p.name, *p.called))
    return next(found, None)


def _owner_of(name: str) -> str | None:
    """The provider whose models' names start like this one, by the longest prefix."""
    lower = name.lower()
    found = [
        (len(begin), provider.name)
        for provider in PROVIDERS.values()
        for begin in provider.models
        if lower.startswith(begin)
    ]
    return max(found)[1] if found else None


def _written(provider: str, model: str) -> str:
    return f'nb.Agent("{provider}:{model}")'
