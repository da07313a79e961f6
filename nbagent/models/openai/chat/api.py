"""Chat Completions: what every compatible server speaks.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.model import Hosted, Request

from .encode import ChatEncoder
from .parse import ChatParser


class ChatApi:
    """How one model is asked in Chat Completions."""

    name = "chat"
    path = "/chat/completions"

    def __init__(
        self, model: str, fields: Mapping[str, Any], *, tool_choice: str | None = None
    ) -> None:
        self._encoder = ChatEncoder(model, fields, tool_choice=tool_choice)
        self._asks_usage = True

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; see ``Api``."""
        return self._encoder.body(request, provider, usage=self._asks_usage)

    def parser(self, provider: str) -> ChatParser:
        """What reads the answer; see ``Api``."""
        return ChatParser(provider)

    def typed(self, client: Any) -> Any:
        """The client's own method for it."""
        return client.chat.completions.create

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse it: see ``Api``.

        Raises:
            ModelConfigError: always.
        """
        raise ModelConfigError(
            f"{tool.name!r} is a hosted tool, which Chat Completions has not: use OpenAIModel(name, "
            "api='responses') where the server has the Responses API, or give a function of your own"
        )

    def gives_way(self, error: Exception) -> bool:
        """Whether a compatible server does not know the field that asks for token counts."""
        refuses = getattr(error, "status_code", None) in {400, 422} and "stream_options" in str(
            error
        )
        if refuses:
            self._asks_usage = False
        return refuses
