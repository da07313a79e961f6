"""Responses: what OpenAI's own newest models want, with reasoning that goes along and tools that it hosts.

Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.model import Hosted, Request
from nbagent.models.openai.errors import Refusal
from nbagent.models.openai.output import next_mode
from nbagent.models.openai.providers import OutputMode

from .encode import ENCRYPTED, ResponsesEncoder
from .hosted import check
from .parse import ResponsesParser


class ResponsesApi:
    """How one model is asked in Responses."""

    name = "responses"
    path = "/responses"

    def __init__(
        self,
        model: str,
        fields: Mapping[str, Any],
        *,
        reasons: bool = False,
        tool_choice: str | None = None,
        sees: bool = True,
        output: OutputMode = "schema",
    ) -> None:
        self._encoder = ResponsesEncoder(
            model, fields, reasons=reasons, tool_choice=tool_choice, sees=sees, output=output
        )

    def owner(self, host: str) -> str:
        """See ``Api``."""
        return f"{host}/responses"

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; see ``Api``."""
        return self._encoder.body(request, provider)

    def parser(self, provider: str) -> ResponsesParser:
        """What reads the answer; see ``Api``."""
        return ResponsesParser(provider)

    def typed(self, client: Any) -> Any:
        """The client's own method for it."""
        return client.responses.create

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse what is no hosted tool of this API; see ``Api``."""
        check(tool)

    def gives_way(self, refusal: Refusal) -> bool:
        """See ``Api``.

        It may have no summaries for this key, no encrypted reasoning of this model, or not this way to say
        the shape of an answer.
        """
        output = next_mode(self._encoder.output, refusal)
        if output is not None:
            self._encoder.output = output
            return True
        said = refusal.said
        if self._encoder.summary and ("reasoning.summary" in said or "reasoning summar" in said):
            self._encoder.summary = False
        elif self._encoder.encrypted and (ENCRYPTED in said or "Encrypted content" in said):
            self._encoder.encrypted = False
        else:
            return False
        return True
