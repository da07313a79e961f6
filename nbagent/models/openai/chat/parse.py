"""Bytes from a Chat Completions server to deltas; no I/O, so any chunking can be tested.

Format: https://platform.openai.com/docs/api-reference/chat-streaming, with what compatible servers do
differently: reasoning under two names, call indexes that are missing or all 0, calls without ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.messages import MAX_DEPTH, check_depth, dumps
from nbagent.core.base.model import (
    Finished,
    FinishReason,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from nbagent.models.openai.batch import Batch, parsed
from nbagent.models.openai.bounds import MAX_DATA, MAX_EVENT, BrokenStream
from nbagent.models.openai.sse import SSEDecoder
from nbagent.models.openai.usage import usage_of

from .fields import REASONING, THINKING, Pieces, of_call, of_message

LOOKED_AT = 100_000
"""Characters of arguments up to which the end of a call is seen without an id or an index that tells."""
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral's, of the whole conversation
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_BREAKS = frozenset({"error", "insufficient_system_resource"})
"""Reasons of servers that could not go on, Mistral's and DeepSeek's."""


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
        self._fields = Pieces()
        """What the server may want back with the message."""
        self._reasoning: str | None = None
        """The name under which its reasoning came."""
        self._kept = 0
        """Characters of what may be wanted back."""
        self.done = False
        """Whether the server said that nothing follows."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: they hold an error or something that is no chat chunk.
        """
        batch = Batch()
        for payload in self._sse.feed(data):
            if payload[:6] == b"[DONE]":
                self.done = True
                self._calls.tell(batch)
                break
            self._take(parsed(payload), batch)
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
        batch = Batch()
        self._take(value, batch)
        return batch.flushed()

    def whole(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response that came in one piece.

        Raises:
            BrokenStream: it is no chat completion.
        """
        value = parsed(data)
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
        return Finished(reason, self._usage, self._model, self._own())

    def _own(self) -> dict[str, Any] | None:
        """What goes back with the message, and whose it is; see ``Finished.provider``."""
        data: dict[str, Any] = {} if self._reasoning is None else {"reasoning": self._reasoning}
        if self._fields:
            data["fields"] = self._fields.whole()
        if data:
            return {"name": self._provider, "data": data}
        return {"name": self._provider} if self._calls.wanting else None

    def _take(self, value: Any, batch: Batch) -> None:
        if not isinstance(value, dict) or value.get("error"):
            raise _no_chunk(value)
        usage = value.get("usage")
        if isinstance(usage, Mapping) and usage:
            self._usage = usage_of(usage)
        model = value.get("model")
        if self._model is None and isinstance(model, str):
            self._model = model
        for choice in _objects(value, "choices"):
            if choice.get("index"):
                continue  # an alternative answer, asked for by somebody's own fields
            reason = choice.get("finish_reason")
            if reason:
                self._reason = str(reason).lower()
                if self._reason in _BREAKS:
                    raise BrokenStream(f"the server could not finish its answer ({reason})")
            whole = _object(choice, "message")
            delta = _object(choice, "delta") or (whole and _numbered(whole))
            if delta:
                self._take_delta(delta, batch, in_one=delta is not choice.get("delta"))
        if self._reason is not None:
            self._calls.tell(batch)

    def _take_delta(self, delta: Mapping[str, Any], batch: Batch, *, in_one: bool) -> None:
        if not delta.keys().isdisjoint(REASONING):
            self._take_reasoning(delta, batch)
        text = delta.get("content") or delta.get("refusal")
        if text:
            if isinstance(text, list):
                self._think("".join(map(_thought, text)), THINKING, batch)
            text = _text(text)
            batch.say(TextDelta, text if text.isascii() else self._whole_characters(text))
        for call in _objects(delta, "tool_calls"):
            batch.add(self._calls.delta(call))
            if wanted := of_call(call):
                self._keep(self._calls.wants(), wanted, in_one=in_one)
        if wanted := of_message(delta):
            self._keep(self._fields, wanted, in_one=in_one)

    def _take_reasoning(self, delta: Mapping[str, Any], batch: Batch) -> None:
        for name in REASONING:
            said = delta.get(name)
            if isinstance(said, str | list):
                self._reasoning = self._reasoning or name  # also an empty one is wanted back
                self._think(_text(said), name, batch)
                if said:
                    return  # under both names it is the same

    def _think(self, text: str, name: str, batch: Batch) -> None:
        if text:
            self._reasoning = name
            batch.say(ReasoningDelta, text)

    def _keep(self, fields: Pieces, piece: dict[str, Any], *, in_one: bool) -> None:
        """Keep what may be wanted back.

        Raises:
            BrokenStream: it is more than anybody wants back, or no JSON.
        """
        try:
            said = dumps(piece)
            check_depth(said.encode("utf-8", "replace"), MAX_DEPTH)
        except (ValueError, RecursionError) as error:
            names = ", ".join(map(repr, piece))
            raise BrokenStream(
                f"the server sent {names:.200} as no JSON: {error}", again=False
            ) from error
        self._kept += (fields.take if in_one else fields.add)(piece)
        if self._kept > MAX_DATA:
            raise BrokenStream(
                f"what the server wants back is longer than {MAX_DATA:,} characters", again=False
            )

    def _whole_characters(self, text: str) -> str:
        """The text with the halves of surrogate pairs joined that servers cut between two chunks."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._half)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Call:
    """One tool call while it streams."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.arguments: list[str] = []
        self.fields = Pieces()
        """What the server may want back with it."""

    def is_whole(self) -> bool:
        """Whether its arguments are one whole JSON value, and short enough to look time and again."""
        text = "".join(self.arguments).strip()
        if not text.endswith("}") or len(text) > LOOKED_AT:
            return False
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True


class _Calls:
    """Tells the calls of one response apart, whatever the server numbers them."""

    def __init__(self) -> None:
        self.count = 0
        self.wanting = False
        """Whether a server may want something back with one of them."""
        self._open: dict[Any, _Call] = {}
        self._last = _Call(0)
        self._untold: dict[int, _Call] = {}

    def wants(self) -> Pieces:
        """What may be wanted back with the call of the last delta, which has more of it."""
        self.wanting = True
        self._untold[self._last.index] = self._last
        return self._last.fields

    def tell(self, batch: Batch) -> None:
        """Tell what goes back with each call, once all of it has come."""
        for call in self._untold.values():
            batch.add(ToolCallDelta(call.index, provider={"fields": call.fields.whole()}))
        self._untold.clear()

    def delta(self, raw: Mapping[str, Any]) -> ToolCallDelta:
        function = _object(raw, "function") or {}
        key, call_id, name = raw.get("index"), _label(raw, "id"), _label(function, "name")
        key = key if isinstance(key, int | str) else None
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = _dumped(arguments)
        call = self._open.get(key)
        if call is None or _starts_another(call, key, call_id, name, arguments):
            call = self._open[key] = _Call(self.count)
            self.count += 1
        self._last = call
        new_id, new_name = (None if call.id else call_id), (None if call.name else name)
        call.id, call.name = call.id or call_id, call.name or name
        call.arguments.append(arguments)
        return ToolCallDelta(call.index, arguments, new_id, new_name)


def _numbered(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message that came in one piece: what it lists are calls, whatever their ids, and no pieces of one."""
    calls = [{**call, "index": n} for n, call in enumerate(_objects(whole, "tool_calls"))]
    return {**whole, "tool_calls": calls}


def _starts_another(
    call: _Call, key: Any, call_id: str | None, name: str | None, arguments: str
) -> bool:
    if call_id is not None and call_id != call.id:
        return key is None or call.id is not None
    # with no id that tells, a name that comes with something after a whole JSON value is the next call
    if name is None or call.name is None or (name == call.name and not arguments.strip()):
        return False
    return call.is_whole()


def _objects(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects that may be missing.

    Raises:
        BrokenStream: it is something else.
    """
    found = value.get(name)
    if not found:
        return []
    if isinstance(found, list) and all([isinstance(item, dict) for item in found]):  # noqa: C419 - faster
        return found
    raise BrokenStream(f"the server sent {name!r} that are no list of objects: {found!r:.80}")


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """An object that may be missing.

    Raises:
        BrokenStream: it is something else.
    """
    found = value.get(name)
    if not found:
        return None
    if isinstance(found, dict):
        return found
    raise BrokenStream(f"the server sent {name!r} that is no object: {found!r:.80}")


def _label(value: Mapping[str, Any], name: str) -> str | None:
    """A short text, whatever kind of value it was written as; None where there is none."""
    found = value.get(name)
    return None if found is None or found == "" else str(found)


def _dumped(arguments: Any) -> str:
    """Arguments that came as a value as the text that they stand for; what is no JSON stays none."""
    try:
        return dumps(arguments)
    except (ValueError, RecursionError):
        return str(arguments)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # some servers send content as parts
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return str(value)


def _thought(part: Any) -> str:
    """The reasoning that is a part of the content."""
    if not isinstance(part, Mapping) or part.get("type") != THINKING:
        return ""
    return _text(part.get(THINKING) or "")


def _no_chunk(value: Any) -> BrokenStream:
    if not isinstance(value, dict):
        return BrokenStream(f"the server sent {value!r:.80} instead of a chat chunk")
    error = value["error"]
    if not isinstance(error, dict):
        return BrokenStream(f"the server reported: {error}")
    refused = error.get("type") == "invalid_request_error"
    return BrokenStream(f"the server reported: {error.get('message') or error}", again=not refused)
