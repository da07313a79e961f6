"""Bytes from a Chat Completions server to deltas; no I/O, so any chunking can be tested.

Format: https://platform.openai.com/docs/api-reference/chat-streaming, with what compatible servers do
differently: reasoning under two names, call indexes that are missing or all 0, calls without ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from nbagent.core.base.messages import dumps
from nbagent.core.base.model import (
    Finished,
    FinishReason,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from nbagent.models.openai.bounds import MAX_EVENT, BrokenStream
from nbagent.models.openai.sse import SSEDecoder
from nbagent.models.openai.usage import usage_of

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


class ChatParser:
    """Turns one response into deltas; texts that arrive together become one delta."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._sse = SSEDecoder()
        self._calls = _Calls()
        self._reason: str | None = None
        self._usage = Usage()
        self._model: str | None = None
        self._half = ""
        self.done = False
        """Whether the server said that nothing follows."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: they hold an error or something that is no chat chunk.
        """
        batch = _Batch()
        for payload in self._sse.feed(data):
            if payload[:6] == b"[DONE]":
                self.done = True
                break
            self._take(_parsed(payload), batch)
        if self._sse.held > MAX_EVENT:
            raise BrokenStream(
                f"an event of the server's answer is larger than {MAX_EVENT:,} bytes", again=False
            )
        return batch.flushed()

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one chunk that somebody else took out of the stream.

        Raises:
            BrokenStream: it is an error or no chat chunk.
        """
        batch = _Batch()
        self._take(value, batch)
        return batch.flushed()

    def whole(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response that came in one piece.

        Raises:
            BrokenStream: it is no chat completion.
        """
        value = _parsed(data)
        if isinstance(value, Mapping) and not value.get("error") and not value.get("choices"):
            raise BrokenStream(f"the server's answer has no choices: {data[:200]!r}", again=False)
        self.done = True
        return self.chunk(value)

    def finished(self) -> Finished | None:
        """What ends the response, or None where it is not whole."""
        if self._reason is None and not self.done:
            return None
        reason = _REASONS.get(self._reason or "stop", "other")
        if self._calls.count and reason in {"stop", "other"}:
            reason = "tool_calls"
        return Finished(reason, self._usage, self._model)

    def _take(self, value: Any, batch: _Batch) -> None:
        if not isinstance(value, dict) or value.get("error"):
            raise _no_chunk(value)
        usage = value.get("usage")
        if isinstance(usage, Mapping) and usage:
            self._usage = usage_of(usage)
        if self._model is None:
            self._model = value.get("model")
        for choice in value.get("choices") or ():
            if choice.get("index"):
                continue  # an alternative answer, asked for by somebody's own fields
            reason = choice.get("finish_reason")
            if reason:
                self._reason = reason
            whole = choice.get("message")
            delta = choice.get("delta") or (whole and _numbered(whole))
            if delta:
                self._take_delta(delta, batch)

    def _take_delta(self, delta: Mapping[str, Any], batch: _Batch) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            batch.say(ReasoningDelta, _text(reasoning))
        text = delta.get("content") or delta.get("refusal")
        if text:
            text = _text(text)
            batch.say(TextDelta, text if text.isascii() else self._whole_characters(text))
        for call in delta.get("tool_calls") or ():
            batch.add(self._calls.delta(call))

    def _whole_characters(self, text: str) -> str:
        """The text with the halves of surrogate pairs joined that servers cut between two chunks."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._half)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Batch:
    """Collects deltas and joins neighboring texts."""

    __slots__ = ("_deltas", "_kind", "_texts")

    def __init__(self) -> None:
        self._deltas: list[ModelDelta] = []
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        self._texts: list[str] = []

    def say(self, kind: type[TextDelta] | type[ReasoningDelta], text: str) -> None:
        if kind is not self._kind:
            self.flushed()
            self._kind = kind
        self._texts.append(text)

    def add(self, delta: ToolCallDelta) -> None:
        self.flushed().append(delta)

    def flushed(self) -> list[ModelDelta]:
        if self._texts:
            text = "".join(self._texts)
            self._texts.clear()
            if text:
                self._deltas.append(self._kind(text))
        return self._deltas


class _Call:
    """One tool call while it streams."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.arguments: list[str] = []

    def is_whole(self) -> bool:
        try:
            json.loads("".join(self.arguments))
        except ValueError:
            return False
        return True


class _Calls:
    """Tells the calls of one response apart, whatever the server numbers them."""

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[Any, _Call] = {}

    def delta(self, raw: Mapping[str, Any]) -> ToolCallDelta:
        function = raw.get("function") or {}
        key, call_id, name = raw.get("index"), raw.get("id") or None, function.get("name") or None
        call = self._open.get(key)
        if call is None or _starts_another(call, key, call_id, name):
            call = self._open[key] = _Call(self.count)
            self.count += 1
        new_id, new_name = (None if call.id else call_id), (None if call.name else name)
        call.id, call.name = call.id or call_id, call.name or name
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = dumps(arguments)
        call.arguments.append(arguments)
        return ToolCallDelta(call.index, arguments, new_id, new_name)


def _numbered(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message that came in one piece: what it lists are calls, whatever their ids, and no pieces of one."""
    calls = [{"index": n, **call} for n, call in enumerate(whole.get("tool_calls") or ())]
    return {**whole, "tool_calls": calls}


def _starts_another(call: _Call, key: Any, call_id: str | None, name: str | None) -> bool:
    if call_id is not None and call_id != call.id:
        return key is None or call.id is not None
    # without ids, a name that comes after a whole JSON value is the next call
    return call_id is None and name is not None and call.name is not None and call.is_whole()


def _parsed(payload: bytes) -> Any:
    try:
        return from_json(payload)  # three times as fast as json
    except ValueError:
        pass  # half of a surrogate pair is no Unicode, but json takes it
    try:
        return json.loads(payload)
    except ValueError as error:
        raise BrokenStream(f"the server sent {payload[:80]!r}, which is no JSON") from error


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # some servers send content as parts
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return str(value)


def _no_chunk(value: Any) -> BrokenStream:
    if not isinstance(value, dict):
        return BrokenStream(f"the server sent {value!r:.80} instead of a chat chunk")
    error = value["error"]
    if not isinstance(error, dict):
        return BrokenStream(f"the server reported: {error}")
    refused = error.get("type") == "invalid_request_error"
    return BrokenStream(f"the server reported: {error.get('message') or error}", again=not refused)
