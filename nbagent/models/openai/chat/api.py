"""Chat Completions: what every compatible server speaks.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.model import Hosted, Request
from nbagent.models.openai.api import Settings
from nbagent.models.openai.errors import Refusal
from nbagent.models.openai.output import next_mode

from .encode import ChatEncoder, Way
from .fields import OF_CALL, OF_FUNCTION, OF_MESSAGE, REASONING, THINKING
from .parse import ChatParser


class ChatApi:
    """How one model is asked in Chat Completions."""

    name = "chat"
    path = "/chat/completions"

    def __init__(self, settings: Settings) -> None:
        self._encoder = ChatEncoder(settings)
        self._output = settings.output
        self._sees = settings.sees
        self._asks_usage = True
        self._without: frozenset[str] = frozenset()
        """The fields that the server does not take back."""
        self._insisted: frozenset[str] = frozenset()
        """Those that it missed, most of them once they were left out."""
        self._tried: set[tuple[str, str]] = set()
        """What was tried of a field, by its name."""

    def owner(self, host: str) -> str:
        """The host itself; see ``Api``."""
        return host

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; see ``Api``."""
        always = self._insisted.intersection(REASONING)
        way = Way(
            provider,
            self._without,
            always,
            sees=self._sees,
            usage=self._asks_usage,
            output=self._output,
        )
        return self._encoder.body(request, way)

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

    def give_way(self, refusal: Refusal) -> None:
        """See ``Api``.

        It may not know the field that asks for token counts, or not take back what it said; and it may
        want reasoning in messages that have none.
        """
        output = next_mode(self._output, refusal)
        if output is not None:
            self._output = output
            return
        said = refusal.said
        if "stream_options" in said:
            self._asks_usage = False
            return
        if refusal.request is None:
            return
        sent = _said_before(refusal.request)
        for name in sent.union(REASONING):
            if _names(said, name):
                self._turn(name, sent=name in sent)

    def _turn(self, name: str, *, sent: bool) -> None:
        """Leave out a field that was sent, or the other way; each is tried once.

        What helped stays; where nothing did, all is again as it was at first.
        """
        way = (name, "without" if sent else "always")
        if name in (self._without if sent else self._insisted):
            return  # another request, which went out before this one came back, has turned it
        known = name in self._without | self._insisted
        self._without -= {name}
        self._insisted -= {name}
        if way in self._tried or not (sent or known or name in REASONING):
            return
        self._tried.add(way)
        if sent:
            self._without |= {name}
        else:
            self._insisted |= {name}


def _said_before(request: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a request that the server said in earlier answers."""
    found: set[str] = set()
    for message in request["messages"]:
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
