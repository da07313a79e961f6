"""The parser of an answer in either API: from its bytes to deltas, and whether it can be used."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
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


Split: TypeAlias = TextDelta | ReasoningDelta
"""A piece of reasoning or of the answer."""
_OPENING = ("<think>", "<thought>", "[THINK]")
"""The tags of most models, of Gemini and of Mistral."""
_CLOSING = ("</think>", "</thought>", "[/THINK]")
_TAGS = (*_OPENING, *_CLOSING)
_TAG = re.compile("|".join(map(re.escape, _TAGS)))
_FIRST = re.compile(rf"\s*(?:{'|'.join(map(re.escape, _OPENING))})")
_ALONE = re.compile(rf"^[ \t]*(?:{'|'.join(map(re.escape, _CLOSING))})[ \t]*\n", re.MULTILINE)
"""A line with nothing but a closing tag."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
MAX_BLANK, MAX_TAGS = 1_000, 1_000
"""The maximum characters of white space before a tag, and of tags in one text; the rest is text."""


class ThinkTags:
    """Splits a text with tags such as ``<think>`` into the reasoning at its beginning and the answer.

    The tags may be nested, and cut anywhere. The opening tag may be missing, because a server's template has it in the
    prompt: then the closing tag is alone on a line, outside of code. Tags in any other place are text.

    Args:
        is_first: whether no other text comes before; only then may the opening tag be missing.
    """

    def __init__(self, *, is_first: bool = True) -> None:
        self.is_over = False
        """Whether the rest is the answer."""
        self._is_first = is_first
        self._depth = self._seen = 0
        """The number of open tags, and of all tags inside the reasoning."""
        self._held = ""
        """White space, or what may be the beginning of a tag."""
        self._has_tags = self._has_thought = False
        self._after: list[str] | None = None
        """The reasoning after the last closing tag, if another tag is still open; it may be the answer."""
        self._said: list[str] | None = None
        """The text so far, if it began without a tag: it may turn out to be reasoning."""

    def passes(self, text: str) -> bool:
        """Whether the next piece is text without a part of a tag, as most are; if so, it counts as split."""
        if self._said is None or self._held or "<" in text or "[" in text:
            return False
        self._said.append(text)
        return True

    def split(self, text: str) -> Iterator[Split]:
        """The reasoning and the text in the next piece."""
        text, self._held = self._held + text, ""
        place = 0
        while place < len(text) and not self.is_over:
            if self._said is not None:
                place = yield from self._up_to_closing_line(text)
            elif self._depth:
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
                if self._is_first and not self._has_tags:
                    self._said = []
                else:
                    self.is_over, text, place = True, begun if self._has_tags else rest, 0
        if place < len(text):
            yield TextDelta(text[place:])

    def _up_to_closing_line(self, text: str) -> Generator[Split, None, int]:
        """The text up to a closing tag without an opening one, as reasoning; returns the place after the tag."""
        assert self._said is not None  # as the caller has checked
        said = self._said
        is_blank = _is_last_line_blank(said)
        line = text.rfind("\n") + 1
        begun = text[line:].strip(" \t")
        may_close = bool(begun) and any(each.startswith(begun) for each in _CLOSING)
        is_cut = may_close and (line > 0 or is_blank) and len(text) - line < MAX_BLANK
        alone = _ALONE.search(text, 0 if is_blank else text.find("\n") + 1 or line)
        if alone is None:
            end = line if is_cut else len(text)
            if is_cut and not said and not text[:end].strip():
                end = 0  # nothing was said yet
            self._held = text[end:]
            if end:
                said.append(text[:end])
                yield TextDelta(text[:end])
            return len(text)
        yield from self._as_thought(text[: alone.start()])
        return 0 if self.is_over else alone.end()

    def _as_thought(self, end: str) -> Iterator[Split]:
        """The text so far, with its end, as reasoning, unless the closing tag is inside a block of code."""
        so_far = "".join([*(self._said or ()), end])
        self._said = None
        self.is_over = len(_FENCE.findall(so_far)) % 2 == 1
        self._has_tags = not self.is_over
        if self._has_tags and so_far.strip():
            yield ReasoningDelta(so_far.strip(), replaces_text=True)

    def rest(self) -> Iterator[Split]:
        """The rest at the end of the text."""
        held, self._held = self._held, ""
        if self._depth:
            yield from self._thought(held)
            answer, self._after = "".join(self._after or ()).strip(), None
            if answer:
                yield TextDelta(answer)
        elif self._said is not None and held.strip() in _CLOSING:
            yield from self._as_thought("")
            if self.is_over:
                yield TextDelta(held)
        elif held:
            yield TextDelta(held)

    def _thought(self, text: str) -> Iterator[Split]:
        text = text if self._has_thought else text.lstrip()
        self._has_thought |= bool(text)
        if self._after is not None:
            self._after.append(text)
        if text:
            yield ReasoningDelta(text)


def _is_last_line_blank(pieces: Sequence[str]) -> bool:
    """Whether the last line of a text in pieces is blank so far."""
    for piece in reversed(pieces):
        _, newline, line = piece.rpartition("\n")
        if newline or line.strip():
            return not line.strip()
    return True


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

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: the bytes contain an error, or an event that is not of this API.
        """
        payloads = self._sse.feed(data)
        for payload in map(bytes.strip, payloads):
            if payload.startswith(b"[DONE]"):
                self._mark_end()
                break
            if payload:
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

    @property
    def lost_call(self) -> bool:
        """Whether the server reported the call of a tool as the reason for the end, but sent none."""
        return False

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
