"""Responses, the API of OpenAI's newest models: encodes requests and parses answers, without I/O.

The history only grows at its end, so a body is joined from the bytes of earlier turns. The server stores
nothing (``store`` is false): each request has all that the model needs, with the items of each response in
order. A message of the history has the items' texts and calls; its provider data records which text or call is an item.
If the message and its provider data no longer match (the history was changed), plain text and calls are sent.
The server would look up each id in a request, but has stored none: requests leave out ids, except of most hosted calls.
Events of unknown kinds are ignored; the last event of an item has its full contents, streamed or not.
Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from nbagent.core.base.messages import Message, calls_of, object_in, results_of, text_of
from nbagent.core.base.model import (
    Citation,
    Finished,
    FinishReason,
    Hosted,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolSpec,
)

from .calls import StreamedCall, arguments_in
from .encoding import (
    OTHER_MODE,
    EncodingCache,
    Settings,
    answer_format,
    arguments_of,
    chosen,
    filled,
    id_at_server,
    in_words,
    is_strict,
    json_bytes,
    name_at_server,
    next_call_ids,
    next_mode,
    text_of_result,
)
from .errors import Refusal, error_in
from .hosted import HERE, INCLUDE, check, hosted_call, if_text
from .images import described, responses_part, responses_takes
from .parser import Parser, Split, ThinkTags
from .providers import CallIds, OutputMode
from .stream import (
    MAX_CHARACTERS,
    BrokenStream,
    UnusableAnswer,
    parsed,
    reported,
    usage_of,
)


class ResponsesApi:
    """The encoding of one model's requests in Responses, with its cache.

    Additional fields of the model are merged into the request's own objects.
    """

    name = "responses"
    path = "/responses"
    takes = staticmethod(responses_takes)
    check_hosted = staticmethod(check)

    def __init__(self, settings: Settings, *, reasons: bool = False) -> None:
        self._head = b'{"model":' + json_bytes(settings.model) + b',"input":['
        self._given: dict[str, Any] = {}
        """The additional fields of the model; those of Chat Completions are in the form of this API."""
        for name, value in settings.fields.items():
            own: Any = value
            for step in reversed(_OF_CHAT.get(name, (name,))):
                own = {step: own}
            self._given = merged(self._given, own)
        self._tool_choice = settings.tool_choice
        self._form = ResponsesForm(
            has_vision=settings.has_vision,
            summary=reasons,
            encrypted=reasons or "reasoning" in self._given,
            output=settings.output,
            call_ids=settings.call_ids,
        )
        self.cache = EncodingCache(partial(described, takes=responses_takes))

    def owner(self, host: str) -> str:
        """The host with the API's name, because each API of a server has its own provider data."""
        return f"{host}/responses"

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; only provider data of this owner is sent back.

        Raises:
            ModelConfigError: the request does not have the tool of ``tool_choice``.
        """
        form = self._form
        request = in_words(request, form.output)
        messages = self.cache.messages(
            request.messages,
            f"{WIRE} {provider} {form.call_ids} {hash(form.unreadable)}",
            partial(encode_message, provider=provider, form=form),
        )
        joined = b",".join(filter(None, messages))  # a message without content is not an item
        tools = self.cache.tools((*request.tools, *request.hosted), partial(_tools, request))
        instructions = self.cache.instructions(
            request.instructions, lambda text: b',"instructions":' + json_bytes(text)
        )
        return b"".join((self._head, joined, b"]", instructions, tools, self._tail(request, form)))

    def _tail(self, request: Request, form: ResponsesForm) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream, "store": False}
        include = [ENCRYPTED] if form.encrypted else []
        include += [INCLUDE[tool.kind] for tool in request.hosted if tool.kind in INCLUDE]
        if include:
            fields["include"] = list(dict.fromkeys(include))
        if form.summary:
            fields["reasoning"] = {"summary": "auto"}
        choice = chosen(self._tool_choice, request)
        if choice is not None:
            fields["tool_choice"] = _choice(choice)
        format_ = answer_format(request, form.output)
        if format_ is not None:
            fields["text"] = {"format": format_}
        return b"," + json_bytes(merged(fields, self._given))[1:]

    def parser(self, provider: str, tools: Iterable[ToolSpec]) -> ResponsesParser:
        """The parser of the answer, which marks provider data with the owner's name."""
        return ResponsesParser(provider, tools)

    def typed(self, client: Any) -> Any:
        """The client's typed method, for clients that read the body."""
        return client.responses.create

    def adapt(self, refusal: Refusal) -> str | None:
        """Use another form of request from now on, if the server rejected a part by name and there is another form.

        Return a note for the person if data of the history is left out, or a typed answer is asked for in another way.
        The server may not offer summaries for this key, encrypted reasoning for this model, or this form
        of an answer's schema. It cannot read the encrypted reasoning of another organization.
        """
        text, form = refusal.text, self._form
        output = next_mode(form.output, refusal)
        if output is not None:
            self._form = replace(form, output=output)
            return OTHER_MODE[output]
        if (ids := next_call_ids(form.call_ids, refusal)) is not None:
            self._form = replace(form, call_ids=ids)
        elif _UNREADABLE.search(text):
            items = (refusal.request or {}).get("input") or ()
            encrypted = (each["encrypted_content"] for each in items if "encrypted_content" in each)
            sent = frozenset(map(str, encrypted))
            self._form = replace(form, unreadable=form.unreadable | sent)
            return LEFT_OUT if sent else None
        elif form.summary and ("reasoning.summary" in text or "reasoning summar" in text):
            self._form = replace(form, summary=False)
        elif form.encrypted and (ENCRYPTED in text or "Encrypted content" in text):
            self._form = replace(form, encrypted=False)
        return None


LEFT_OUT = (
    "The server could not read the encrypted reasoning in its earlier answers, so it is left out."
)
_UNREADABLE = re.compile(
    r"encrypted.content\b.*could not be (?:verified|decrypted)|invalid_encrypted_content",
    re.IGNORECASE | re.DOTALL,
)
"""The error for encrypted reasoning of another organization or with an old key."""


WIRE = "openai-responses"
"""The name of this encoding in ``Message.wire``; the provider's name follows."""
ENCRYPTED = "reasoning.encrypted_content"
_OF_CHAT: Mapping[str, tuple[str, ...]] = {
    "reasoning_effort": ("reasoning", "effort"),
    "verbosity": ("text", "verbosity"),
    "max_tokens": ("max_output_tokens",),
    "max_completion_tokens": ("max_output_tokens",),
}
"""Fields of Chat Completions, and their paths in this API."""


@dataclass(frozen=True, slots=True)
class ResponsesForm:
    """The form of requests to a server, without the fields that it rejected."""

    has_vision: bool = True
    """Whether the model accepts pictures; otherwise they are described in words."""
    summary: bool = False
    """Whether requests ask for summaries of the reasoning."""
    encrypted: bool = False
    """Whether requests ask for the encrypted reasoning."""
    output: OutputMode = "schema"
    """The form of a typed answer's schema."""
    unreadable: frozenset[str] = frozenset()
    """The encrypted reasoning that the server could not read."""
    call_ids: CallIds = "any"
    """The ids of calls that the server accepts."""


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` merged with ``given``: objects are merged, ``include`` lists joined, other values replaced."""
    both = dict(own)
    for name, value in given.items():
        known = both.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            both[name] = merged(known, value)
        elif name == "include" and isinstance(known, list) and isinstance(value, list | tuple):
            both[name] = list(dict.fromkeys([*known, *value]))
        else:
            both[name] = value
    return both


def encode_message(message: Message, provider: str, form: ResponsesForm = ResponsesForm()) -> bytes:
    """One message as items joined by commas, with the data of its provider for this one only; empty if it has no content.

    Raises:
        ModelError: this API does not support a file.
        TypeError, ValueError: a part contains a value that is not JSON.
    """
    if message["role"] == "tool":
        items = [_result(part, form) for part in results_of(message)]
    elif message["role"] == "assistant":
        items = [
            item
            for item in _assistant(message, provider, form)
            if str(item.get("encrypted_content")) not in form.unreadable
        ]
    else:
        items = [{"role": message["role"], "content": _content(message["content"], form)}]
    return b",".join(map(json_bytes, items))


def _content(parts: Sequence[Mapping[str, Any]], form: ResponsesForm) -> str | list[dict[str, Any]]:
    visible = [part for part in parts if part["type"] in ("text", "file")]
    if all(part["type"] == "text" for part in visible) and len(visible) <= 1:
        return "".join(part["text"] for part in visible)
    return [responses_part(part, has_vision=form.has_vision) for part in visible]


def _assistant(message: Message, provider: str, form: ResponsesForm) -> list[dict[str, Any]]:
    calls = [_call(part, form) for part in calls_of(message)]
    text = text_of(message)
    source = message.get("provider") or {}
    if source.get("name") == provider:
        thought = "".join(p["text"] for p in message["content"] if p["type"] == "reasoning")
        items = items_of(source.get("data"), text, thought, calls)
        if items is not None:
            return items
    item = {"type": "message", "role": "assistant", "content": text}  # llama.cpp requires the type
    messages = [item] if text.strip() else []
    return [*messages, *calls]


def _call(part: Mapping[str, Any], form: ResponsesForm) -> dict[str, Any]:
    own = {"call_id": id_at_server(part, form.call_ids), "name": name_at_server(part["name"])}
    return {"type": "function_call", **own, "arguments": arguments_of(part)}


def _result(part: Mapping[str, Any], form: ResponsesForm) -> dict[str, Any]:
    output: Any = filled(text_of_result(part))
    files = part.get("files")
    if files:
        text = [{"type": "text", "text": output}] if part["output"] != "" else []
        output = [responses_part(each, has_vision=form.has_vision) for each in (*text, *files)]
    call_id = id_at_server(part, form.call_ids)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _tools(request: Request) -> bytes:
    hosted = ({"type": tool.kind, **tool.options} for tool in request.hosted)
    return b',"tools":' + json_bytes([*map(_tool, request.tools), *hosted])


def _tool(tool: ToolSpec) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    schema = tool.input_schema
    own = {"name": name_at_server(tool.name), **description, "parameters": schema}
    return {"type": "function", **own, "strict": is_strict(schema)}


def _choice(choice: str | ToolSpec | Hosted) -> Any:
    if isinstance(choice, ToolSpec):
        return {"type": "function", "name": name_at_server(choice.name)}
    if isinstance(choice, Hosted):
        label = choice.options.get("server_label")
        return {"type": choice.kind, **({"server_label": label} if label else {})}
    return choice


_APART = "\n\n"
"""The separator of messages, and of parts of reasoning."""
_INCOMPLETE: dict[Any, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


class ResponsesParser(Parser):
    """Parses one response of the API."""

    def __init__(self, provider: str = "", tools: Iterable[ToolSpec] = ()) -> None:
        super().__init__(provider, tools)
        self._tags: dict[tuple[int, int], ThinkTags] = {}
        """The tags in each part of a message."""
        self._text = _EmittedText()
        self._reasoning = _EmittedText()
        self._named: dict[int, StreamedCall] = {}
        """The calls by the number of their items."""
        self._begun: dict[int, Any] = {}
        """The arguments with which each of these items began; usually none."""
        self._kept: dict[int, Any] = {}
        """The complete items to send back with the history, by number."""
        self._numbers: dict[Any, int] = {}
        """The numbers of the items by their ids."""
        self._last_number = -1
        """The highest number of an item."""
        self._reason: FinishReason | None = None

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one event that the client has parsed, or of a whole response; see ``Parser``."""
        is_response = isinstance(value, dict) and "output" in value
        return super().chunk(
            {"type": "response.whole", "response": value} if is_response else value
        )

    def response(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response in one piece; see ``Parser``."""
        value = parsed(data)
        if isinstance(value, Mapping) and not value.get("error") and "output" not in value:
            raise error_in(value) or BrokenStream(
                f"The server's answer has no output: {data[:200]!r}", again=False
            )
        return self.chunk(value)

    def finished(self) -> Finished | None:
        """The end of the response, or None if it is not complete."""
        if self._reason is None:
            return None
        reason = self._reason
        if self._calls.parts and reason == "stop":
            reason = "tool_calls"
        kept = Kept(self._items(), self._text.size, self._reasoning.size)
        return Finished(reason, self._usage, self._model, kept.provider(self._provider))

    def _items(self) -> list[Any]:
        """The items to send back with the history, without repeated calls."""
        numbers = self._calls.numbers()
        items: list[Any] = []
        sent: set[int | None] = {None}  # None is a call of which nothing arrived
        for _, item in sorted(self._kept.items()):
            if item is not None and "call" in item:
                number = numbers.get(item["call"])
                if number in sent:
                    continue
                sent.add(number)
                item = {**item, "call": number}  # noqa: PLW2901 - among the calls that run
            items.append(item)
        return items

    def _take(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise BrokenStream(f"The server sent {value!r:.80} instead of an event of a response")
        kind = str(value.get("type"))
        if kind == "error" or (value.get("error") and "response" not in value):
            raise reported(value.get("error") or value)
        handle = self._handlers.get(kind)
        if handle is None:
            failure = None if kind.startswith("response.") else error_in(value)
            if failure is not None:
                raise failure
            return
        try:
            if type(value.get("output_index")) is not int and "response" not in value:
                value = {**value, "output_index": self._number(value)}
            handle(self, value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BrokenStream(
                f"The server sent an event {kind!r} that does not match the Responses API ({error!r:.80})",
                again=False,
            ) from error

    def _number(self, event: Mapping[str, Any]) -> int:
        """The item number for an event that has none, as in llama.cpp's server: by item id, in order of arrival."""
        own = _id(event["item"]) if "item" in event else event["item_id"]
        if own not in self._numbers:
            self._last_number += 1
            self._numbers[own] = self._last_number
        return self._numbers[own]

    # --- while an item streams

    def _text_delta(self, event: Mapping[str, Any]) -> None:
        self._add_text(event["output_index"], event.get("content_index", 0), event["delta"])

    def _add_text(self, item: int, part: int, text: str) -> None:
        key = (item, part)
        tags = self._tags.get(key)
        if tags is None:
            tags = self._tags[key] = ThinkTags(is_first=not self._tags)
        whole = tags.is_over or tags.passes(text)
        self._add_split(item, part, (TextDelta(text),) if whole else tags.split(text))

    def _add_split(self, item: int, part: int, pieces: Iterable[Split]) -> None:
        for piece in pieces:
            if isinstance(piece, TextDelta):
                text = self._text.more((item, part), piece.text, apart=self._text.item != item)
                self._batch.add_text(TextDelta, text)
                continue
            if piece.replaces_text:
                self._text = _EmittedText()
            text = self._reasoning.more((item, "tags", part), piece.text, apart=True)
            self._batch.add_split(piece._replace(text=text))

    def _thought_delta(self, event: Mapping[str, Any]) -> None:
        kind = "summary" if "summary" in event["type"] else "content"
        key = (event["output_index"], kind, event.get(f"{kind}_index", 0))
        self._think(key, event["delta"])

    def _think(self, key: tuple[Any, ...], text: str) -> None:
        self._batch.add_text(ReasoningDelta, self._reasoning.more(key, text, apart=True))

    def _arguments_delta(self, event: Mapping[str, Any]) -> None:
        number = event["output_index"]
        if number not in self._named:
            number = self._numbers.get(event.get("item_id"), number)
        self._batch.add(self._calls.delta(number, None, None, event["delta"]))

    def _arguments_done(self, event: Mapping[str, Any]) -> None:
        number = self._numbers.get(event.get("item_id"), event["output_index"])
        if number in self._named:
            self._complete(number, self._named[number], event.get("arguments"))

    # --- items

    def _item_added(self, event: Mapping[str, Any]) -> None:
        item, number = event["item"], event["output_index"]
        self._last_number = max(self._last_number, number)
        if item.get("id"):
            self._numbers.setdefault(item["id"], number)
        if item["type"] == "function_call":
            self._name_call(number, item)
        else:
            self._add_hosted(number, item)

    def _item_done(self, event: Mapping[str, Any]) -> None:
        """Process a complete item: add the parts that were not streamed, and store the data to send back."""
        number, item = event["output_index"], event["item"]
        match item["type"]:
            case "message":
                self._message_done(number, item)
            case "reasoning":
                self._reasoning_done(number, item)
            case "function_call":
                call = self._name_call(number, item)
                self._complete(number, call, item.get("arguments"))
                self._kept[number] = Kept.call(call.index, item)
            case kind if kind in HERE:
                raise BrokenStream(
                    f"The model asks nbagent to run a {kind}, but nbagent cannot run it. Remove the provider's tool that requests it",
                    again=False,
                )
            case _:
                self._add_hosted(number, item)
                self._kept[number] = Kept.item(item)

    def _complete(self, number: int, call: StreamedCall, arguments: Any) -> None:
        """Take the complete arguments of a call, which may not have been streamed."""
        text = arguments_in(arguments)
        if text and not call.arguments.strip():
            self._batch.add(self._calls.delta(number, call.id, call.name, text))
        elif text and object_in(text) != object_in(call.arguments):
            raise UnusableAnswer(
                f"sent other arguments of the call of {call.name!r} at its end than before",
                Finished(),
            )

    def _message_done(self, number: int, item: Mapping[str, Any]) -> None:
        spans: list[Span] = []
        for part, content in enumerate(item.get("content") or ()):
            refused = content["type"] == "refusal"
            text = content["refusal" if refused else "text"]
            if text and (number, part) not in self._tags:
                self._add_text(number, part, text)
            if text:
                self._add_split(number, part, self._tags[number, part].rest())
            start, end = self._text.spans.get((number, part), (self._text.size,) * 2)
            spans.append(("refusal" if refused else "output_text", start, end))
            for note in content.get("annotations") or ():
                url, title, name = (
                    if_text(note.get(each)) for each in ("url", "title", "filename")
                )
                if url:
                    self._batch.add(Citation(title or url, url))
                elif name:
                    self._batch.add(Citation(name))
        self._kept[number] = Kept.message(spans, item.get("phase"))

    def _reasoning_done(self, number: int, item: Mapping[str, Any]) -> None:
        spans: list[Span] = []
        for kind in ("summary", "content"):
            for part, content in enumerate(item.get(kind) or ()):
                key = (number, kind, part)
                if content["text"] and key not in self._reasoning.spans:
                    self._think(key, content["text"])
                spans.append((kind, *self._reasoning.spans.get(key, (0, 0))))
        self._kept[number] = Kept.reasoning_of(spans, item.get("encrypted_content"))

    def _name_call(self, number: int, item: Mapping[str, Any]) -> StreamedCall:
        if number not in self._named:
            call_id = str(item["call_id"]) if item.get("call_id") else None
            self._batch.add(self._calls.delta(number, call_id, item["name"], ""))
            self._named[number] = self._calls.last
            self._begun[number] = item.get("arguments")
        return self._named[number]

    def _add_hosted(self, number: int, item: Mapping[str, Any]) -> None:
        found = hosted_call(item, str(number))
        if found is not None:
            self._has_hosted = True
            self._batch.add(found)

    # --- the end

    def _over(self, event: Mapping[str, Any]) -> None:
        response = event["response"]
        status = response.get("status") or event["type"].partition(".")[2]
        for place, item in enumerate(response.get("output") or ()):
            number = self._numbers.get(_id(item), place)
            if number not in self._kept:
                self._item_done({"output_index": number, "item": item})
        for number, call in self._named.items():
            if not call.arguments.strip():
                self._complete(number, call, self._begun[number])
        for (number, part), tags in self._tags.items():
            self._add_split(number, part, tags.rest())
        usage, model = response.get("usage"), response.get("model")
        self._usage = usage_of(usage) if usage else self._usage
        self._model = model or self._model
        self.tier = response.get("service_tier")
        if status in {"failed", "cancelled"}:
            error = response.get("error")
            if error or event["type"] == "response.whole":
                raise reported(error or {"message": f"The response was {status}"})
            return  # an event with the reason may follow, as from Azure
        if status in {"in_progress", "queued"}:
            raise BrokenStream(f"The server's answer is {status}, so it is incomplete", again=False)
        why = (response.get("incomplete_details") or {}).get("reason")
        self._reason = _INCOMPLETE.get(why, "other") if status == "incomplete" else "stop"
        self._why = None if why is None else str(why)[:MAX_CHARACTERS]
        if self._calls.parts and self._reason == "other":  # a call's arguments may be missing
            raise BrokenStream(f"The server could not finish its answer ({self._why or status})")
        self.done = True

    _handlers: ClassVar[dict[Any, Callable[..., None]]] = {
        "response.output_text.delta": _text_delta,
        "response.refusal.delta": _text_delta,
        "response.reasoning_summary_text.delta": _thought_delta,
        "response.reasoning_text.delta": _thought_delta,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.function_call_arguments.done": _arguments_done,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.completed": _over,
        "response.done": _over,
        "response.incomplete": _over,
        "response.failed": _over,
        "response.whole": _over,
    }
    """Methods by the event's type; the last is for a response in one piece."""


class _EmittedText:
    """The size of the emitted text of one kind, and the span of each part of an item in the text."""

    def __init__(self) -> None:
        self.spans: dict[Any, tuple[int, int]] = {}
        """The start and end of each part."""
        self.size = 0
        self.item: Any = None
        """The number of the last item with emitted text."""

    def more(self, key: tuple[Any, ...], text: str, *, apart: bool) -> str:
        """The text to emit for a piece of a part, with a separator before a new part if ``apart``."""
        span = self.spans.get(key)
        before = _APART if span is None and apart and self.size else ""
        start = self.size + len(before) if span is None else span[0]
        self.size += len(before) + len(text)
        self.spans[key] = (start, self.size)
        self.item = key[0]
        return before + text


def _id(item: Mapping[str, Any]) -> Any:
    """The identifier of an item without a number."""
    return item.get("id") or item.get("call_id")


Span = tuple[str, int, int]
"""The kind of a part, and the start and end of its text in the text of its message."""
_NO_ID = ("web_search_call",)
"""Hosted calls that are sent back without an id."""
_OF_CALL = ("namespace", "caller")
"""Fields of a function call that its server needs back."""


class Kept(NamedTuple):
    """The items of one response, and the lengths of its texts."""

    items: Sequence[Any]
    """Items from the functions below; None for an item that is not sent back."""
    text: int
    reasoning: int

    @staticmethod
    def message(spans: Sequence[Span], phase: str | None) -> dict[str, Any]:
        """The stored form of a message."""
        kept: dict[str, Any] = {"message": [list(span) for span in spans]}
        return {**kept, "phase": phase} if phase else kept

    @staticmethod
    def reasoning_of(spans: Sequence[Span], encrypted: str | None) -> dict[str, Any] | None:
        """The stored form of reasoning; None if it cannot be read without the server's own copy."""
        if not encrypted and not any(kind == "content" for kind, _, _ in spans):
            return None
        kept: dict[str, Any] = {"reasoning": [list(span) for span in spans]}
        return {**kept, "encrypted_content": encrypted} if encrypted else kept

    @staticmethod
    def call(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """The stored form of a function call, with its number among the calls."""
        return {"call": index, **{name: item[name] for name in _OF_CALL if item.get(name)}}

    @staticmethod
    def item(item: Mapping[str, Any]) -> dict[str, Any]:
        """The stored form of any other item, without empty fields."""
        bare = {name: value for name, value in item.items() if value is not None}
        if item["type"] in _NO_ID:
            bare.pop("id", None)
        return {"item": bare}

    def provider(self, name: str) -> dict[str, Any] | None:
        """The provider data of the message; None if its text and calls contain everything."""
        items = [item for item in self.items if item is not None]
        while items and "reasoning" in items[-1]:
            items.pop()  # nothing followed it, and the server rejects reasoning without a following item
        if _is_plain(items):
            return None
        data = {"items": items, "text": self.text, "reasoning": self.reasoning}
        return {"name": name, "data": data}


def _is_plain(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the items are at most one message and then calls, all without further fields."""
    rest = list(items)
    if rest and rest[0].keys() == {"message"}:
        kinds = [kind for kind, _, _ in rest.pop(0)["message"]]
        if kinds not in (["output_text"], []):
            return False
    return all(item == {"call": number} for number, item in enumerate(rest))


def items_of(
    data: Any, text: str, reasoning: str, calls: Sequence[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The server's original items of a message; None if its provider data does not match the message."""
    if not isinstance(data, Mapping) or not isinstance(data.get("items"), list):
        return None
    if (data.get("text"), data.get("reasoning")) != (len(text), len(reasoning)):
        return None
    built = [_built(item, text, reasoning, calls) for item in data["items"]]
    used = [item["call"] for item in data["items"] if isinstance(item, Mapping) and "call" in item]
    if used != list(range(len(calls))) or None in built:
        return None
    return [item for item in built if item is not None]


def _built(
    kept: Any, text: str, reasoning: str, calls: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    match kept:
        case {"message": [*spans]} if _are_spans(spans):
            parts = [
                {"type": k, "refusal" if k == "refusal" else "text": text[a:b]} for k, a, b in spans
            ]
            item = {"type": "message", "role": "assistant", "content": parts}
            return {**item, "phase": kept["phase"]} if "phase" in kept else item
        case {"reasoning": [*spans]} if _are_spans(spans):
            texts: dict[str, list[dict[str, str]]] = {"summary": []}
            for kind, start, end in spans:
                part = {"type": _PART.get(kind, kind), "text": reasoning[start:end]}
                texts.setdefault(kind, []).append(part)
            hidden = {k: kept[k] for k in ("encrypted_content",) if k in kept}
            return {"type": "reasoning", **texts, **hidden}
        case {"call": int(index)} if 0 <= index < len(calls):
            return {**calls[index], **{name: kept[name] for name in _OF_CALL if name in kept}}
        case {"item": {"type": str(kind)} as item} if not kind.endswith(_VISIBLE_TYPES):
            return dict(item)
        case _:
            return None


def _are_spans(spans: Sequence[Any]) -> bool:
    return all(
        isinstance(span, list) and [type(each) for each in span] == [str, int, int]
        for span in spans
    )


_VISIBLE_TYPES = ("message", "function_call", "_output", "_response", "reasoning", "item_reference")
"""The endings of item types that a history stores as visible parts; hidden provider data must not contain them."""
_PART = {"summary": "summary_text", "content": "reasoning_text"}
