"""The parser of an answer in either API: from its bytes to deltas, and whether it can be used."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from nbagent.core.base.model import Finished, ModelDelta, TextDelta, Usage

from .calls import StreamedCalls
from .stream import MAX_EVENT, BrokenStream, DeltaBatch, SSEDecoder, UnusableAnswer, parsed

_FAILED = re.compile(r"malformed|unexpected_tool|invalid|fail|error")
"""Words in finish reasons of answers that cannot be used, such as Gemini's ``MALFORMED_FUNCTION_CALL``."""
_CUT = {
    "length": "its limit of tokens was reached before any text. Raise the limit, such as max_tokens",
    "content_filter": "the provider's content filter removed it",
}
"""The reasons for an empty answer that would be empty again."""


class Parser(ABC):
    """Parses one response into deltas, without I/O, so that tests can split the bytes anywhere.

    Texts that arrive together become one delta. Provider data is marked with the owner's name, ``provider``.
    """

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._sse = SSEDecoder()
        self._batch = DeltaBatch()
        self._calls = StreamedCalls()
        self._has_hosted = False
        """Whether the answer has calls of hosted tools."""
        self._why: str | None = None
        """The server's own reason for the end."""
        self._usage = Usage()
        self._model: str | None = None
        self.done = False
        """Whether the server has marked the end."""
        self.tier: Any = None
        """The service tier in which the server answered; None if the server reported none."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: the bytes contain an error, or an event that is not of this API.
        """
        payloads = self._sse.feed(data)
        for payload in payloads:
            if payload.startswith(b"[DONE]"):
                self._mark_end()
                break
            self._take(parsed(payload))
        if not payloads and self._sse.pending_size > MAX_EVENT:
            raise BrokenStream(
                f"An event of the server's answer is larger than {MAX_EVENT:,} bytes", again=False
            )
        return self._batch.taken()

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one event that the client has parsed, or of a whole response.

        Raises:
            BrokenStream: the value is an error, or not an event of this API.
        """
        self._take(value)
        return self._batch.taken()

    @abstractmethod
    def response(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response in one piece.

        Raises:
            BrokenStream: the data is not a response of this API.
        """

    @abstractmethod
    def finished(self) -> Finished | None:
        """The end of the response, or None if it is not complete."""

    def check(self, end: Finished) -> None:
        """Check that the complete response is an answer.

        Raises:
            UnusableAnswer: it is malformed or empty, or its calls cannot be told apart.
        """
        reason = self._why or end.reason
        if _FAILED.search(reason):
            raise UnusableAnswer(f"ended its answer with {reason!r}", end)
        try:
            has_calls = bool(self._calls.parts and self._calls.put_together())
        except ValueError as error:
            raise UnusableAnswer(f"sent calls that were not run, because {error}", end) from None
        if has_calls or self._has_hosted or self._batch.has(TextDelta):
            return
        if (why := _CUT.get(end.reason)) is not None:
            raise UnusableAnswer(f"gave no answer: {why} ({reason})", end, again=False)
        raise UnusableAnswer(f"gave no answer: no text and no call ({reason})", end)

    @abstractmethod
    def _take(self, value: Any) -> None:
        """Add the deltas of one parsed event to the batch."""

    def _mark_end(self) -> None:
        self.done = True
