"""Chat Completions: what every compatible server speaks.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.model import Hosted, Request
from nbagent.models.openai.output import next_mode
from nbagent.models.openai.providers import OutputMode

from .encode import ChatEncoder, Way
from .fields import OF_CALL, OF_FUNCTION, OF_MESSAGE, REASONING, THINKING
from .parse import ChatParser


class ChatApi:
    """How one model is asked in Chat Completions."""

    name = "chat"
    path = "/chat/completions"

    def __init__(
        self,
        model: str,
        fields: Mapping[str, Any],
        *,
        tool_choice: str | None = None,
        output: OutputMode = "schema",
        sees: bool = True,
    ) -> None:
        self._encoder = ChatEncoder(model, fields, tool_choice=tool_choice)
        self._output = output
        self._sees = sees
        self._asks_usage = True
        self._without: frozenset[str] = frozenset()
        """The fields that the server does not take back."""
        self._insisted: frozenset[str] = frozenset()
        """Those that it missed once they were left out."""

    def owner(self, host: str) -> str:
        """The host itself; see ``Api``."""
        return host

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; see ``Api``."""
        always = self._insisted.intersection(REASONING)
        way = Way(provider, self._without, always, sees=self._sees)
        return self._encoder.body(request, way, usage=self._asks_usage, output=self._output)

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
        """Whether another way is tried from now on, since the server refused a field by its name.

        It may not know the field that asks for token counts, or not take back what it said; and it may
        want reasoning in messages that have none.
        """
        if getattr(error, "status_code", None) not in {400, 422}:
            return False
        output = next_mode(self._output, error)
        if output is not None:
            self._output = output
            return True
        said = str(error)
        if "stream_options" in said:
            self._asks_usage = False
            return True
        sent = _sent(error)
        if sent is None:
            return False
        named = [name for name in sent.union(REASONING) if _names(said, name)]
        turned = [self._turns(name, sent=name in sent) for name in named]
        return any(turned)

    def _turns(self, name: str, *, sent: bool) -> bool:
        """Whether a field is now left out that was sent, or sent that was not; each way is tried once."""
        if sent and name not in self._insisted:
            self._without |= {name}
            return True
        if sent or not (name in self._without or name in REASONING):
            return False
        self._without -= {name}
        self._insisted |= {name}
        return True


def _sent(error: Exception) -> frozenset[str] | None:
    """The fields of the refused request that the server said before; None where nobody knows."""
    try:
        messages = json.loads(getattr(error, "request").content)["messages"]  # noqa: B009 - of openai's errors alone
    except (AttributeError, ValueError, KeyError, RuntimeError):  # httpx2's for a body that is gone
        return None
    found: set[str] = set()
    for message in messages:
        if message["role"] != "assistant":
            continue
        found |= message.keys() - OF_MESSAGE
        if isinstance(message["content"], list):
            found |= {part["type"] for part in message["content"]} & {THINKING}
        for call in message.get("tool_calls", ()):
            found |= (call.keys() - OF_CALL) | (call["function"].keys() - OF_FUNCTION)
    return frozenset(found)


def _names(said: str, name: str) -> bool:
    """Whether an error names a field, and not just uses the word."""
    word = re.escape(name)
    return (
        re.search(rf"(?<!\w){word}(?!\w)" if "_" in name else rf"['\"`.\[]{word}(?!\w)", said)
        is not None
    )
