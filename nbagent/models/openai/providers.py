"""What is known of servers that speak OpenAI's APIs: where they are, whose key they take, what they can.

Data, not rules: what is not here is asked as a Chat Completions server that can everything, and each
of these can be said otherwise where a model is made. Behind each stands where that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

ApiName = Literal["chat", "responses"]
OutputMode = Literal["schema", "object", "prompt"]


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider."""

    name: str
    """Before the colon of ``nb.Agent("name:model")``."""
    base_url: str | None
    """Up to and including the version; None where each person has another."""
    key: str | None
    """The environment variable that has the API key; None where none is needed."""
    output: OutputMode = "schema"
    """How it is told the shape of a typed answer: by a schema, by JSON mode, or in words alone."""
    other_keys: tuple[str, ...] = ()
    """Environment variables that people have the key in too."""
    needs_key: bool = True
    """Whether nothing is asked without a key."""
    url_variable: str | None = None
    """The environment variable that says where it is, in the place of ``base_url``."""
    path: str = ""
    """What follows the address in that variable, where it isn't there."""
    hosts: tuple[str, ...] = ()
    """How the names of its hosts end, where each person has another."""
    called: tuple[str, ...] = ()
    """What else people write before the colon."""
    models: tuple[str, ...] = ()
    """How the names of its models begin, where nobody else's do."""


@dataclass(frozen=True, slots=True)
class OwnModels:
    """Models of OpenAI's own server, by how their names begin and end."""

    pattern: str
    """With ``*`` as a wildcard."""
    api: ApiName
    reasons: bool
    """Whether they reason: then summaries of it are asked for, and it goes back with the history."""


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
"""The first that matches counts. From ``gpt-5.4`` on, models refuse functions in Chat Completions unless they
do not reason; older ones that reason lose their reasoning from turn to turn there."""


def own_models(name: str) -> OwnModels:
    """What is known of a model of OpenAI's own server."""
    return next(each for each in OWN_MODELS if fnmatchcase(name, each.pattern))


OPENAI = Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
"""Of names that begin with ``openai:``."""
PLAIN = replace(OPENAI, url_variable="OPENAI_BASE_URL")
"""Of names without a provider."""
ELSEWHERE = Provider("", None, "OPENAI_API_KEY", needs_key=False, url_variable="OPENAI_BASE_URL")
"""A server that nobody here knows."""

_KNOWN = (
    OPENAI,
    # platform.claude.com/docs/en/cli-sdks-libraries/libraries/openai-sdk: response_format is ignored
    Provider(
        "anthropic",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        output="prompt",
        called=("claude",),
        models=("claude",),
    ),
    # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle: the v1 API, for OpenAI's own client
    Provider(
        "azure",
        None,
        "AZURE_OPENAI_API_KEY",
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
    # api-docs.deepseek.com: JSON mode alone
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
    # console.groq.com/docs/structured-outputs: neither streamed nor beside tools
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
    # docs.ollama.com/api/openai-compatibility; OLLAMA_HOST is what its own programs read
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
    # docs.z.ai/guides/develop/openai/python: JSON mode alone
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
KEYS = tuple(
    variable
    for provider in _KNOWN
    for variable in (provider.key, *provider.other_keys)
    if variable is not None
)
"""The environment variables that have keys."""
WORDS = frozenset({"none", "empty", "dummy", *(w for p in _KNOWN for w in (p.name, *p.called))})
"""What people give as a key where none is needed."""
LITELLM_ALONE = (
    *("bedrock", "vertex_ai", "sagemaker", "watsonx", "databricks", "replicate", "perplexity"),
    *("snowflake", "oci", "sambanova", "nvidia_nim", "nebius", "deepinfra", "volcengine", "ai21"),
)
"""Providers of LiteLLM's that people ask for by name and that are not here."""
