"""An answer's bytes: their limits, events and JSON, and the usage of a response.

Because of the limits, a server cannot fill the memory of this process.
Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic_core import from_json

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import ErrorKind
from nbagent.core.base.incoming_json import TooManyParts, within_parts
from nbagent.core.base.model import Finished, ModelDelta, ReasoningDelta, TextDelta, Usage


class SSEDecoder:
    """Splits bytes, in any pieces, into the data of server-sent events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the lines with the data."""
        self._after_cr = False

    @property
    def pending_size(self) -> int:
        """Bytes of an incomplete event, including its line ends."""
        return len(self._rest) + self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that these bytes complete."""
        if (
            data.startswith(b"data: {")
            and data.endswith(b"}\n\n")
            and data.find(b"\n") == len(data) - 2
            and not (self._after_cr or self._rest or self._data or b"\r" in data)
        ):
            return [data[6:-2]]  # one complete event, the usual case
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += data
        if b"\n" not in data:
            return []
        lines = bytes(self._rest).split(b"\n")
        self._rest = bytearray(lines.pop())
        return list(self._events(lines))

    def _events(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            if line.startswith((b"data:", b"error:")):  # the second is llama.cpp's before 2026
                self._data.append(line.partition(b":")[2].removeprefix(b" "))
                self._size += len(line) + 1
            elif not line and self._data:
                yield self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data, self._size = [], 0


class DeltaBatch:
    """Collects deltas and joins neighboring texts."""

    __slots__ = ("_deltas", "_kind", "_said", "_texts")

    def __init__(self) -> None:
        self._said: set[type[ModelDelta]] = set()
        """The kinds of text that were more than white space."""
        self._deltas: list[ModelDelta] = []
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        self._texts: list[str] = []

    def add_text(self, kind: type[TextDelta] | type[ReasoningDelta], text: str) -> None:
        """Add text of this kind."""
        if kind is not self._kind:
            self._join()
            self._kind = kind
        self._texts.append(text)

    def add_split(self, piece: TextDelta | ReasoningDelta) -> None:
        """Add a piece of text or of reasoning, which may be the text so far."""
        if isinstance(piece, ReasoningDelta) and piece.replaces_text:
            self.add(piece)
            self._said = {ReasoningDelta}
        else:
            self.add_text(type(piece), piece.text)

    def add(self, delta: ModelDelta) -> None:
        """Add a delta that is not text."""
        self._join()
        self._deltas.append(delta)

    def has(self, kind: type[TextDelta] | type[ReasoningDelta]) -> bool:
        """Whether the answer so far has text of this kind, other than white space."""
        self._join()
        return kind in self._said

    def taken(self) -> list[ModelDelta]:
        """Return all deltas since the last call, including the last text."""
        self._join()
        deltas, self._deltas = self._deltas, []
        return deltas

    def _join(self) -> None:
        if self._texts:
            text = "".join(self._texts)
            self._texts.clear()
            if text:
                self._deltas.append(self._kind(text))
                if self._kind not in self._said and not text.isspace():
                    self._said.add(self._kind)


def parsed(payload: bytes) -> Any:
    """The JSON of an event or a response.

    Raises:
        BrokenStream: the payload is not JSON, or is too large.
    """
    try:
        return from_json(within_parts(payload))  # three times as fast as json
    except TooManyParts as error:
        reason = f"The server sent {payload[:80]!r}, which is too large to read: {error}"
        raise BrokenStream(reason, again=False) from None
    except ValueError:
        pass  # half of a surrogate pair is not Unicode, but json accepts it
    try:
        return json.loads(payload)
    except ValueError as error:
        raise BrokenStream(f"The server sent {payload[:80]!r}, which is not JSON") from error
    except RecursionError as error:
        reason = f"The server sent {payload[:80]!r}, which is nested too deeply"
        raise BrokenStream(reason, again=False) from error


MAX_BODY = 8_000_000
"""The maximum bytes of an answer in one piece, decompressed."""
MAX_ERROR = 400_000
"""The maximum bytes of an error, decompressed. The openai client reads errors, without a limit on their values."""
MAX_EVENT = 8_000_000
"""The maximum bytes of one event of a stream."""
MAX_STREAM = 1_000_000_000
"""The maximum bytes of a stream, decompressed."""
MAX_DATA = 8_000_000
"""The maximum characters of one answer's provider data."""
MAX_CHARACTERS = 2_000
"""The maximum characters of an error, or of another reason, in the server's words."""
_PIECE = 8_192
"""The maximum bytes of a stream that are parsed, and their deltas used, in one step."""
_PACKINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The window bits of zlib by content encoding."""


class BrokenStream(Exception):
    """The stream contains data that is not an answer."""

    kind: ErrorKind | None = "outage"
    """The kind of the ``ModelError`` for it."""

    def __init__(self, reason: str, *, again: bool = True, is_from_server: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        """Whether a retry may help."""
        self.is_from_server = is_from_server
        """Whether the error is from the server itself."""


class UnusableAnswer(BrokenStream):
    """The server's answer is complete, but malformed or empty. It is asked for once more, and both are paid for."""

    def __init__(self, reason: str, end: Finished, *, again: bool = True) -> None:
        super().__init__(reason, again=again)
        self.end = end
        """The end that the answer would have, for its usage."""


def reported(error: Any) -> BrokenStream:
    """An error that the server sent inside its answer; a retry may help unless the request itself is wrong."""
    refused, words, marks = False, in_brief(error), ""
    if isinstance(error, Mapping):
        marks = f"{error.get('type')} {error.get('code')}"[:MAX_CHARACTERS]
        refused = error.get("code") != UNPARSED and _REFUSED.search(marks) is not None
        words = in_brief(error.get("message") or error)
        if error.get("code") == "context_length_exceeded":
            words = f"{words} (context_length_exceeded)"
    failure = BrokenStream(f"The server reported: {words}", again=not refused, is_from_server=True)
    failure.kind = kind_in(f"{marks} {words}") or (None if refused else "outage")
    return failure


def in_brief(words: object, most: int = MAX_CHARACTERS) -> str:
    """A server's words as text, cut."""
    text = str(words)
    return text if len(text) <= most else f"{text[:most]}…"


UNPARSED = "tool_use_failed"
"""Groq's code for a call of the model that it cannot read; another answer may be better."""
_REFUSED = re.compile(
    r"invalid|unsupported|image|context_length|insufficient_quota|policy|content_filter"
    r"|\b4(?:00|01|03|04|13|22)\b"
)
"""The types and codes of errors that the same request would get again."""


def kind_in(words: str) -> ErrorKind | None:
    """The kind of a server's error by its code, type or message; None if they do not tell it."""
    begin = words[:MAX_CHARACTERS]  # a search of megabytes takes seconds
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(begin)), None)


_KINDS: dict[ErrorKind, re.Pattern[str]] = {
    "outage": re.compile(UNPARSED),
    "rate_limit": re.compile(
        r"rate.?limit|quota|too many requests|insufficient.balance|\b429\b", re.IGNORECASE
    ),
    "too_long": re.compile(
        r"context.?(?:length|size|window|limit)|context the overflows"
        r"|(?:prompt|input|request|conversation) (?:is )?too (?:long|large)|request_too_large"
        r"|request body too large|(?:input|prompt) length.{0,30} exceeds the maximum"
        r"|maximum (?:prompt|model|context|input) length|too many tokens|reduce the length"
        r"|token count .{0,40}(?:exceeds|only supports)|longer than the maximum|request exceeds the maximum size"
        r"|exceeded model token limit|prompt exceeds max|range of input length|max_new_tokens`? must be <="
        r"|must be less than (?:or equal to )?max_seq_len",
        re.IGNORECASE,
    ),
    "refusal": re.compile(
        r"content.?(?:filter|policy|management)|responsible.?ai|invalid_prompt|data_?inspection_?failed"
        r"|\bflagged\b|moderation|usage polic|safety (?:system|filter|reason)",
        re.IGNORECASE,
    ),
}


async def bound(response: Any) -> None:
    """Limit the decompressed size of a response, by its content type and status.

    The response is any httpx response with an unread body; reading more bytes raises ``BrokenStream``.
    The bytes are decompressed and passed on in steps, because httpx would do so with each chunk at once.
    """
    if response.is_stream_consumed or response.is_closed or isinstance(response.stream, Bounded):
        return
    headers = response.headers
    kind = headers.get("content-type", "")
    packing = "identity"
    if "content-encoding" in headers:
        packing = headers.pop("content-encoding").strip().lower()
    # clients may use another httpx
    library = sys.modules[type(response).__module__.partition(".")[0]]
    made = _bounded(library.AsyncByteStream)
    in_one_piece = "json" in kind or "html" in kind
    limit = MAX_ERROR if response.status_code >= 400 else MAX_BODY if in_one_piece else MAX_STREAM
    response.stream = made(response.stream, packing, limit)


class Bounded:
    """The decompressed bytes of a response, up to a limit."""

    def __init__(self, packed: Any, packing: str, limit: int) -> None:
        self._packed = packed
        self._packing = packing
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpack = _unpacking(self._packing)
        read = 0
        async for data in self._packed:
            rest: bytes | memoryview = memoryview(data)
            while rest:
                piece, rest = (
                    (bytes(rest[:_PIECE]), rest[_PIECE:]) if unpack is None else unpack(rest)
                )
                read += len(piece)
                if read > self._limit:
                    raise BrokenStream(
                        f"The server's answer is larger than {self._limit:,} bytes", again=False
                    )
                yield piece
                if rest:  # other tasks run between the events of a large read
                    await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Close the stream of compressed bytes."""
        await self._packed.aclose()


@cache
def _bounded(base: type) -> Callable[[Any, str, int], Any]:
    """A subclass that httpx accepts as a stream."""
    return type("Bounded", (Bounded, base), {})


def _unpacking(packing: str) -> Callable[[bytes | memoryview], tuple[bytes, bytes]] | None:
    """A function from bytes to decompressed bytes and the rest; None if nothing is compressed."""
    if packing in ("", "identity", "none"):
        return None
    if packing not in _PACKINGS:
        raise BrokenStream(
            f"The server compressed its answer as {packing!r}, which nbagent did not accept",
            again=False,
        )
    unpacker = zlib.decompressobj(_PACKINGS[packing])

    def unpack(data: bytes | memoryview) -> tuple[bytes, bytes]:
        try:
            return unpacker.decompress(data, _PIECE), unpacker.unconsumed_tail
        except zlib.error as error:
            raise BrokenStream(f"The server's compressed answer is damaged ({error})") from error

    return unpack


TICKS = 10_000_000_000
"""The parts of one US dollar in xAI's unit."""


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """The usage of one response, in Chat Completions or the Responses API.

    Output includes hidden tokens: some servers count them only in the total.
    """
    input_tokens = _first(usage, "prompt_tokens", "input_tokens")
    output_tokens = _first(usage, "completion_tokens", "output_tokens")
    input_details = _part(usage, "prompt_tokens_details", "input_tokens_details")
    output_details = _part(usage, "completion_tokens_details", "output_tokens_details")
    total = usage.get("total_tokens")
    if None not in map(amount, (total, input_tokens, output_tokens)):
        output_tokens = max(output_tokens, total - input_tokens)
    cached = _first(input_details, "cached_tokens") or _first(
        usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"
    )
    return Usage(
        input_tokens,
        output_tokens,
        _cost(usage),
        cached=cached,
        reasoning=_first(output_details, "reasoning_tokens") or _first(usage, "reasoning_tokens"),
        written=_first(input_details, "cache_write_tokens")
        or _first(usage, "cache_creation_input_tokens"),
    )


def _first(values: Mapping[str, Any], *names: str) -> Any:
    """The first value under these names that is not None, else 0."""
    for name in names:
        found = values.get(name)
        if found is not None:
            return found
    return 0


def _part(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    part = _first(values, *names)
    return part if isinstance(part, Mapping) else {}


def _cost(usage: Mapping[str, Any]) -> Any:
    """The server's reported cost in US dollars; None if it reports none."""
    ticks = usage.get("cost_in_usd_ticks")
    if ticks is not None and (known := amount(ticks)) is not None:
        return known / TICKS
    cost = usage.get("cost")
    if isinstance(cost, Mapping):
        return cost.get("total_cost")
    if usage.get("is_byok") is True:  # only the router's own part: the provider bills the rest
        own = amount(cost)
        upstream = amount(_part(usage, "cost_details").get("upstream_inference_cost"))
        return None if own is None or upstream is None else own + upstream
    return cost
