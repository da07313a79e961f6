"""Bytes from a Responses server to deltas; no I/O, so any chunking can be tested.

Format: https://platform.openai.com/docs/api-reference/responses-streaming. An event of a kind that is not
known is passed over; what an item holds counts from its last event, whether it was streamed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from nbagent.core.base.model import (
    Citation,
    Finished,
    FinishReason,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from nbagent.models.openai.batch import Batch, parsed
from nbagent.models.openai.bounds import MAX_EVENT, BrokenStream
from nbagent.models.openai.sse import SSEDecoder
from nbagent.models.openai.usage import usage_of

from .hosted import HERE, hosted_call
from .kept import Kept, Span

_APART = "\n\n"
"""Between two messages, and between two parts of reasoning."""
_INCOMPLETE: dict[Any, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
_PASSING = (None, "server_error", "rate_limit_exceeded", "vector_store_timeout")
"""Codes of errors that a retry may help against."""


class ResponsesParser:
    """Turns one response into deltas; texts that arrive together become one delta."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._sse = SSEDecoder()
        self._text = _Told()
        self._reasoning = _Told()
        self._calls: dict[int, _Call] = {}
        """By the number of the item."""
        self._kept: dict[int, Any] = {}
        """What goes back with the history, by the number of the item; the items that are whole."""
        self._reason: FinishReason | None = None
        self._usage = Usage()
        self._model: str | None = None
        self.done = False
        """Whether the server said that nothing follows."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: they hold an error or something that is no event of a response.
        """
        batch = Batch()
        for payload in self._sse.feed(data):
            if payload[:6] == b"[DONE]":
                self.done = True
                break
            self._take(parsed(payload), batch)
        if self._sse.held > MAX_EVENT:
            raise BrokenStream(
                f"an event of the server's answer is larger than {MAX_EVENT:,} bytes", again=False
            )
        return batch.flushed()

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one event that somebody else took out of the stream, or of a whole response.

        Raises:
            BrokenStream: it is an error, or neither.
        """
        batch = Batch()
        is_whole = isinstance(value, dict) and "output" in value
        self._take({"type": "response.whole", "response": value} if is_whole else value, batch)
        return batch.flushed()

    def whole(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response that came in one piece.

        Raises:
            BrokenStream: it is no response.
        """
        value = parsed(data)
        if isinstance(value, Mapping) and not value.get("error") and "output" not in value:
            raise BrokenStream(f"the server's answer has no output: {data[:200]!r}", again=False)
        return self.chunk(value)

    def finished(self) -> Finished | None:
        """What ends the response, or None where it is not whole."""
        if self._reason is None:
            return None
        reason = self._reason
        if self._calls and reason in {"stop", "other"}:
            reason = "tool_calls"
        items = [item for _, item in sorted(self._kept.items())]
        kept = Kept(items, self._text.size, self._reasoning.size)
        return Finished(reason, self._usage, self._model, kept.provider(self._provider))

    def _take(self, value: Any, batch: Batch) -> None:
        if not isinstance(value, dict):
            raise BrokenStream(f"the server sent {value!r:.80} instead of an event of a response")
        kind = value.get("type")
        if kind == "error" or (value.get("error") and "response" not in value):
            raise _reported(value.get("error") or value)
        handle = self._handlers.get(kind)
        if handle is None:
            return
        try:
            handle(self, value, batch)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BrokenStream(
                f"the server's event {kind!r} is not as it is in this API ({error!r:.80})",
                again=False,
            ) from error

    # --- while an item streams

    def _text_delta(self, event: Mapping[str, Any], batch: Batch) -> None:
        self._say(event["output_index"], event.get("content_index", 0), event["delta"], batch)

    def _say(self, item: int, part: int, text: str, batch: Batch) -> None:
        batch.say(TextDelta, self._text.more((item, part), text, apart=self._text.item != item))

    def _summary_delta(self, event: Mapping[str, Any], batch: Batch) -> None:
        key = (event["output_index"], "summary", event.get("summary_index", 0))
        self._think(key, event["delta"], batch)

    def _thought_delta(self, event: Mapping[str, Any], batch: Batch) -> None:
        key = (event["output_index"], "content", event.get("content_index", 0))
        self._think(key, event["delta"], batch)

    def _think(self, key: tuple[Any, ...], text: str, batch: Batch) -> None:
        batch.say(ReasoningDelta, self._reasoning.more(key, text, apart=True))

    def _arguments_delta(self, event: Mapping[str, Any], batch: Batch) -> None:
        call = self._call(event["output_index"])
        call.begun = True
        batch.add(ToolCallDelta(call.index, event["delta"]))

    def _call(self, item: int) -> _Call:
        return self._calls.setdefault(item, _Call(len(self._calls)))

    # --- items

    def _item_added(self, event: Mapping[str, Any], batch: Batch) -> None:
        item, number = event["item"], event["output_index"]
        if item["type"] == "function_call":
            self._name_call(number, item, batch)
        else:
            self._tell_hosted(number, item, batch)

    def _item_done(self, event: Mapping[str, Any], batch: Batch) -> None:
        self._take_item(event["output_index"], event["item"], batch)

    def _take_item(self, number: int, item: Mapping[str, Any], batch: Batch) -> None:
        """An item that is whole: what was not streamed of it is told, and what goes back is kept."""
        match item["type"]:
            case "message":
                self._message_done(number, item, batch)
            case "reasoning":
                self._reasoning_done(number, item, batch)
            case "function_call":
                self._call_done(number, item, batch)
            case kind if kind in HERE:
                raise BrokenStream(
                    f"the model asks that a {kind} be done here, which nbagent does not: leave out "
                    "the tool of the provider that it comes from",
                    again=False,
                )
            case _:
                self._tell_hosted(number, item, batch)
                self._kept[number] = Kept.item(item)

    def _message_done(self, number: int, item: Mapping[str, Any], batch: Batch) -> None:
        spans: list[Span] = []
        for part, content in enumerate(item.get("content") or ()):
            refused = content["type"] == "refusal"
            text = content["refusal" if refused else "text"]
            if text and (number, part) not in self._text.spans:
                self._say(number, part, text, batch)
            start, end = self._text.spans.get((number, part), (self._text.size,) * 2)
            spans.append(("refusal" if refused else "output_text", start, end))
            for note in content.get("annotations") or ():
                citation = _citation(note)
                if citation is not None:
                    batch.add(citation)
        self._kept[number] = Kept.message(spans, item.get("phase"))

    def _reasoning_done(self, number: int, item: Mapping[str, Any], batch: Batch) -> None:
        spans: list[Span] = []
        for kind in ("summary", "content"):
            for part, said in enumerate(item.get(kind) or ()):
                key = (number, kind, part)
                if said["text"] and key not in self._reasoning.spans:
                    self._think(key, said["text"], batch)
                spans.append((kind, *self._reasoning.spans.get(key, (0, 0))))
        self._kept[number] = Kept.reasoning_of(spans, item.get("encrypted_content"))

    def _name_call(self, number: int, item: Mapping[str, Any], batch: Batch) -> _Call:
        call = self._call(number)
        if not call.named:
            call.named = True
            batch.add(ToolCallDelta(call.index, "", item.get("call_id") or None, item["name"]))
        return call

    def _call_done(self, number: int, item: Mapping[str, Any], batch: Batch) -> None:
        call = self._name_call(number, item, batch)
        if not call.begun and item.get("arguments"):
            batch.add(ToolCallDelta(call.index, item["arguments"]))
        self._kept[number] = Kept.call(call.index, item)

    def _tell_hosted(self, number: int, item: Mapping[str, Any], batch: Batch) -> None:
        told = hosted_call(item, str(number))
        if told is not None:
            batch.add(told)

    # --- the end

    def _over(self, event: Mapping[str, Any], batch: Batch) -> None:
        response = event["response"]
        status = response.get("status") or event["type"].partition(".")[2]
        for number, item in enumerate(response.get("output") or ()):
            if number not in self._kept:
                self._take_item(number, item, batch)
        usage, model = response.get("usage"), response.get("model")
        self._usage = usage_of(usage) if usage else self._usage
        self._model = model or self._model
        if status in {"failed", "cancelled"}:
            raise _reported(response.get("error") or {"message": f"the response was {status}"})
        if status in {"in_progress", "queued"}:
            raise BrokenStream(f"the server's answer is {status}: it is no whole one", again=False)
        why = (response.get("incomplete_details") or {}).get("reason")
        self._reason = _INCOMPLETE.get(why, "other") if status == "incomplete" else "stop"
        self.done = True

    _handlers: ClassVar[dict[Any, Callable[..., None]]] = {
        "response.output_text.delta": _text_delta,
        "response.refusal.delta": _text_delta,
        "response.reasoning_summary_text.delta": _summary_delta,
        "response.reasoning_text.delta": _thought_delta,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.completed": _over,
        "response.incomplete": _over,
        "response.failed": _over,
        "response.whole": _over,
    }
    """By the event's type; the last stands for a response that came in one piece."""


class _Told:
    """The text of one kind that was told, and which piece of it each part of an item is."""

    def __init__(self) -> None:
        self.spans: dict[Any, tuple[int, int]] = {}
        """Where each part begins and ends."""
        self.size = 0
        self.item: Any = None
        """The item that was told last."""

    def more(self, key: tuple[Any, ...], text: str, *, apart: bool) -> str:
        """What to tell of one more piece of a part: a new one may stand apart from the one before."""
        span = self.spans.get(key)
        before = _APART if span is None and apart and self.size else ""
        start = self.size + len(before) if span is None else span[0]
        self.size += len(before) + len(text)
        self.spans[key] = (start, self.size)
        self.item = key[0]
        return before + text


class _Call:
    """One function call: its number among the calls, and what was told of it."""

    __slots__ = ("begun", "index", "named")

    def __init__(self, index: int) -> None:
        self.index = index
        self.named = False
        self.begun = False
        """Whether some of its arguments were streamed."""


def _citation(note: Mapping[str, Any]) -> Citation | None:
    """What an annotation of the text names; None where it names no page and no file."""
    url, title, name = (_text(note.get(each)) for each in ("url", "title", "filename"))
    if url:
        return Citation(title or url, url)
    return Citation(name) if name else None


def _text(value: Any) -> str | None:
    """A text; None of anything else."""
    return value if isinstance(value, str) else None


def _reported(error: Any) -> BrokenStream:
    if not isinstance(error, Mapping):
        return BrokenStream(f"the server reported: {error}")
    refused = error.get("type") == "invalid_request_error"
    again = error.get("code") in _PASSING and not refused
    return BrokenStream(f"the server reported: {error.get('message') or error}", again=again)
