"""Responses: what OpenAI's own newest models want, with reasoning that goes along and tools that it hosts.

Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nbagent.core.base.model import Hosted, Request
from nbagent.models.openai.api import Settings
from nbagent.models.openai.errors import Refusal
from nbagent.models.openai.output import next_mode

from .encode import ENCRYPTED, ResponsesEncoder, Way
from .hosted import check
from .parse import ResponsesParser


class ResponsesApi:
    """How one model is asked in Responses."""

    name = "responses"
    path = "/responses"

    def __init__(self, settings: Settings, *, reasons: bool = False) -> None:
        self._encoder = ResponsesEncoder(settings)
        self._way = Way(
            "",
            summary=reasons,
            encrypted=reasons or "reasoning" in self._encoder.given,
            output=settings.output,
        )

    def owner(self, host: str) -> str:
        """See ``Api``."""
        return f"{host}/responses"

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; see ``Api``."""
        return self._encoder.body(request, replace(self._way, provider=provider))

    def parser(self, provider: str) -> ResponsesParser:
        """What reads the answer; see ``Api``."""
        return ResponsesParser(provider)

    def typed(self, client: Any) -> Any:
        """The client's own method for it."""
        return client.responses.create

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse what is no hosted tool of this API; see ``Api``."""
        check(tool)

    def give_way(self, refusal: Refusal) -> None:
        """See ``Api``.

        It may have no summaries for this key, no encrypted reasoning of this model, or not this way to say
        the shape of an answer.
        """
        said, way = refusal.said, self._way
        output = next_mode(way.output, refusal)
        if output is not None:
            self._way = replace(way, output=output)
        elif way.summary and ("reasoning.summary" in said or "reasoning summar" in said):
            self._way = replace(way, summary=False)
        elif way.encrypted and (ENCRYPTED in said or "Encrypted content" in said):
            self._way = replace(way, encrypted=False)
