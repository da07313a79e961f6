"""What is known of servers that speak OpenAI's APIs: where they are, whose key they take, what they can.

Data, not rules: what is not here is asked as a Chat Completions server that can everything, and each
of these can be said otherwise where a model is made.
"""

from __future__ import annotations

from dataclasses import dataclass
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


PROVIDERS = {
    provider.name: provider
    for provider in (Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),)
}
