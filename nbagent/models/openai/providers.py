"""What is known of servers that speak OpenAI's APIs: where they are, whose key they take, what they can.

Data, not rules: what is not here is asked as a Chat Completions server that can everything, and each
of these can be said otherwise where a model is made.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    api: ApiName = "chat"
    """What its models are asked in, where it speaks both."""
    output: OutputMode = "schema"
    """How it is told the shape of a typed answer: by a schema, by JSON mode, or in words alone."""


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


PROVIDERS = {
    provider.name: provider
    for provider in (Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),)
}
