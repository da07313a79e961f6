"""Chat Completions: what every compatible server speaks.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.model import Request

from .encode import ChatEncoder
from .parse import ChatParser


class ChatApi:
    """How one model is asked in Chat Completions."""

    name = "chat"
    path = "/chat/completions"

    def __init__(self, model: str, fields: Mapping[str, Any], *, sees: bool = True) -> None:
        self._encoder = ChatEncoder(model, fields, sees=sees)
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

    def gives_way(self, error: Exception) -> bool:
        """Whether a compatible server does not know the field that asks for token counts."""
        refuses = getattr(error, "status_code", None) in {400, 422} and "stream_options" in str(
            error
        )
        if refuses:
            self._asks_usage = False
        return refuses
