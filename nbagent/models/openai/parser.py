"""The parser of an answer in either API: from its bytes to deltas, and whether it can be used."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from nbagent.core.base.model import (
    Finished,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolSpec,
    Usage,
)

from .calls import StreamedCalls
from .encoding import own_names
from .stream import MAX_EVENT, BrokenStream, DeltaBatch, SSEDecoder, UnusableAnswer, parsed

_FAILED = re.compile(r"malformed|unexpected_tool|invalid|fail|error")
"""Words in finish reasons of answers that cannot be used, such as Gemini's ``MALFORMED_FUNCTION_CALL``."""
_CUT = {
    "length": "its limit of tokens was reached before any text. Raise the limit, such as max_tokens",
    "content_filter": "the provider's content filter removed it",
}
"""The reasons for an empty answer that would be empty again."""


Split: TypeAlias = tuple[type[TextDelta] | type[ReasoningDelta], str]
"""A piece of reasoning or of the answer."""
_OPENING = ("<think>", "<thought>", "[THINK]")
"""The tags of most models, of Gemini and of Mistral."""
_TAGS = (*_OPENING, "</think>", "</thought>", "[/THINK]")
_TAG = re.compile("|".join(map(re.escape, _TAGS)))
_FIRST = re.compile(rf"\s*(?:{'|'.join(map(re.escape, _OPENING))})")
MAX_BLANK, MAX_TAGS = 1_000, 1_000
"""The maximum characters of white space before a tag, and of tags in one text; the rest is text."""


class ThinkTags:
    """Splits a text that begins with a tag such as ``<think>`` into reasoning and the answer after ``</think>``.

    The tags may be nested, and cut anywhere. Tags in any other place are text.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether the rest is the answer."""
        self._depth = self._seen = 0
        """The number of open tags, and of all tags inside the reasoning."""
        self._held = ""
        """White space, or what may be the beginning of a tag."""
        self._has_tags = self._has_thought = False
        self._after: list[str] | None = None
        """The reasoning after the last closing tag, if another tag is still open; it may be the answer."""

    def split(self, text: str) -> Iterator[Split]:
        """The reasoning and the text in the next piece."""
        text, self._held = self._held + text, ""
        place = 0
        while place < len(text) and not self.is_over:
            if self._depth:
                tag = _TAG.search(text, place)
                end = tag.start() if tag else _end_of_text(text)
                yield from self._thought(text[place:end])
                if tag is None:
                    self._held = text[end:]
                    return
                self._depth += 1 if tag[0] in _OPENING else -1
                self._after = None if tag[0] in _OPENING or not self._depth else []
                place, self._seen = tag.end(), self._seen + 1
                self.is_over = self._seen > MAX_TAGS
            elif (first := _FIRST.match(text, place)) is not None:
                self._depth, self._has_tags, place = 1, True, first.end()
            else:
                rest = text[place:]
                begun = rest.lstrip()
                is_cut = any(tag.startswith(begun) for tag in _OPENING)
                if is_cut and len(rest) < MAX_BLANK:
                    self._held = rest
                    return
                self.is_over, text, place = True, begun if self._has_tags else rest, 0
        if place < len(text):
            yield TextDelta, text[place:]

    def rest(self) -> Iterator[Split]:
        """The rest at the end of the text."""
        held, self._held = self._held, ""
        if self._depth:
            yield from self._thought(held)
            answer, self._after = "".join(self._after or ()).strip(), None
            if answer:
                yield TextDelta, answer
        elif held:
            yield TextDelta, held

    def _thought(self, text: str) -> Iterator[Split]:
        text = text if self._has_thought else text.lstrip()
        self._has_thought |= bool(text)
        if self._after is not None:
            self._after.append(text)
        if text:
            yield ReasoningDelta, text


def _end_of_text(text: str) -> int:
    """The end of the text before what may be the beginning of a tag."""
    start = max(text.rfind("<"), text.rfind("["))
    is_cut = start >= 0 and any(tag.startswith(text[start:]) for tag in _TAGS)
    return start if is_cut else len(text)


class Parser(ABC):
    """Parses one response into deltas, without I/O, so that tests can split the bytes anywhere.

    Texts that arrive together become one delta. Provider data is marked with the owner's name, ``provider``.
    """

    def __init__(self, provider: str = "", tools: Iterable[ToolSpec] = ()) -> None:
        self._provider = provider
        self._sse = SSEDecoder()
        self._batch = DeltaBatch()
        self._calls = StreamedCalls(own_names(tools))
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
        self.lost_call = False
        """Whether the server reported the call of a tool as the reason for the end, but sent none."""

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
            empty = UnusableAnswer(f"gave no answer: {why} ({reason})", end, again=False)
            empty.kind = "refusal" if end.reason == "content_filter" else None
            raise empty
        raise UnusableAnswer(f"gave no answer: no text and no call ({reason})", end)

    @abstractmethod
    def _take(self, value: Any) -> None:
        """Add the deltas of one parsed event to the batch."""

    def _mark_end(self) -> None:
        self.done = True
