"""From a model's name to its provider; and what to write instead of a name that is nobody's."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from difflib import get_close_matches
from urllib.parse import urlsplit

from nbagent.core.base.errors import ModelConfigError

from .providers import ELSEWHERE, LITELLM_ALONE, PLAIN, PROVIDERS, Provider

LITELLM = "litellm"
"""Before the colon of a name that LiteLLM is to find."""
_OWN = ("ft:",)
"""How names of OpenAI's begin that have a colon."""
_TAG = re.compile(r"latest|cloud|e?\d[\d.x]*[bm]\b.*|.*-cloud", re.IGNORECASE)
"""What Ollama has behind the colon of a name."""


def provider_of(name: str, *, base_url: str | None, has_client: bool) -> tuple[Provider, str]:
    """Whose model a name means, and what it is called there.

    Args:
        name: ``provider:model``, or the model alone.
        base_url: where the server is, if that was said.
        has_client: whether the client is somebody's own.

    Raises:
        ModelConfigError: it is no provider, or the name looks like another provider's; with what to
            write. Where the server was said (``OPENAI_BASE_URL`` counts too), any name goes.
    """
    prefix, colon, model = name.partition(":")
    if colon and prefix in PROVIDERS:
        if not model:
            raise ModelConfigError(f"{name!r} names no model: write {prefix + ':<model>'!r}")
        return PROVIDERS[prefix], model
    if prefix == LITELLM and colon:
        raise ModelConfigError(f"LiteLLM's models are nb.LiteLLMModel({model!r}, …)")
    if base_url is not None:
        return provider_at(base_url), name
    if has_client or not name:
        return ELSEWHERE, name
    if told := os.environ.get(str(PLAIN.url_variable)):
        return replace(provider_at(told), url_variable=PLAIN.url_variable, path=""), name
    if instead := _instead(name):
        raise ModelConfigError(
            f"the model {name!r} is none of OpenAI's: {instead} (with base_url= or client= any name goes)"
        )
    return PLAIN, name


def provider_at(url: str) -> Provider:
    """Whose server is at a URL; ``ELSEWHERE`` where nobody knows."""
    try:
        parts = urlsplit(url)
        place, host = parts.netloc.rpartition("@")[2], parts.hostname or ""
    except ValueError:  # no URL, as the client will say
        return ELSEWHERE
    for provider in PROVIDERS.values():
        if provider.base_url and urlsplit(provider.base_url).netloc == place:
            return provider
        if host.endswith(provider.hosts):
            return provider
    return ELSEWHERE


def address(provider: Provider) -> str | None:
    """The base URL of a provider, as the environment says or as it is known.

    Raises:
        ModelConfigError: each person has another, and none is said.
    """
    told = os.environ.get(provider.url_variable or "", "").strip()
    if told:
        return _whole(told, provider)
    if provider.base_url is None and provider.url_variable is not None:
        raise ModelConfigError(
            f"where is {provider.name}? Set {provider.url_variable}, or pass "
            f'OpenAIModel("{provider.name}:…", base_url="https://…{provider.path}")'
        )
    return provider.base_url


def _whole(told: str, provider: Provider) -> str:
    """An address with what people leave out: the scheme and the port of a host, the path."""
    if not provider.path:
        return told
    if "://" not in told:
        usual = urlsplit(provider.base_url or "https://")
        # all interfaces are where a server listens, and no place to ask
        host = told.partition("/")[0].replace("0.0.0.0", "127.0.0.1")
        port = f":{usual.port}" if usual.port and ":" not in host else ""
        told = f"{usual.scheme}://{host}{port}"
    told = told.rstrip("/")
    return told if told.endswith(provider.path) else told + provider.path


def _instead(name: str) -> str:
    """What to write for a name that OpenAI's models don't have, or nothing."""
    if name.startswith(_OWN):
        return ""
    prefix, colon, rest = name.partition(":")
    if colon and "/" not in prefix:
        return _for_prefix(name, prefix, rest)
    if "/" in name:
        return _for_path(name)
    whose = _whose(name)
    return f"write {_written(whose, name)}" if whose else ""


def _for_prefix(name: str, prefix: str, rest: str) -> str:
    if _TAG.fullmatch(rest):
        return f"write {_written('ollama', name)}"
    called = _called(prefix)
    if called:
        return f"write {_written(called, rest)}"
    if prefix.lower() in LITELLM_ALONE:
        return f"write {_written(LITELLM, f'{prefix.lower()}/{rest}')}"
    near = get_close_matches(prefix.lower(), PROVIDERS, n=1, cutoff=0.75)
    if near:
        return f"did you mean {_written(near[0], rest)}?"
    return (
        f"{prefix!r} is no provider that nbagent knows; it knows {', '.join(sorted(PROVIDERS))}, "
        f"and others through {_written(LITELLM, f'{prefix}/{rest}')}"
    )


def _for_path(name: str) -> str:
    """Names as LiteLLM, OpenRouter and Hugging Face have them."""
    first, _, rest = name.partition("/")
    if first in LITELLM_ALONE:
        return f"write {_written(LITELLM, name)}"
    if first == LITELLM:
        return f"write {_written(LITELLM, rest)}"
    own = _called(first)
    if not own and (whose := _whose(f"{first}/")):
        return f"write {_written(whose, name)}"
    roads = [_written(own, rest)] if own else []
    if own not in ("openrouter", "ollama", "lmstudio", "vllm", "azure"):
        roads.append(_written("openrouter", name))
    if not own:
        roads.append(_written("huggingface", name))
    return f"write {', or '.join([*roads, _written(LITELLM, name)])}"


def _called(word: str) -> str | None:
    """The provider of that name, or whom people call so."""
    word = word.lower()
    for provider in PROVIDERS.values():
        if word == provider.name or word in provider.called:
            return provider.name
    return None


def _whose(name: str) -> str | None:
    """The provider whose models' names begin as this one, by what tells most."""
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
