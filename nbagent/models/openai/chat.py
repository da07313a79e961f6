"""Chat Completions, the API of every compatible server: encodes requests and parses answers, without I/O.

The history only grows at its end, so a body is joined from the bytes of earlier turns. Servers differ:
reasoning has one of two names, call indexes may be missing or all 0, calls may have no ids.

Some servers send data outside the protocol and need the data back, such as Gemini's ``extra_content`` of a call
or OpenRouter's ``reasoning_details``. This data is stored as ``{"reasoning": name, "fields": {…}}`` of a message and
``{"fields": {…}}`` of a call; ``reasoning`` is the server's field name of the message's reasoning. All fields are
stored, except those that this module reads itself and those that no request accepts.

The message of a tool can only contain text. The files of a turn's results therefore follow after all results, in
one user message that names the call of each file.
Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.file_parts import files_of, label
from nbagent.core.base.messages import (
    MAX_DEPTH,
    Message,
    Part,
    calls_of,
    check_depth,
    dumps,
    results_of,
    text_of,
)
from nbagent.core.base.model import (
    Finished,
    FinishReason,
    Hosted,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
)

from .calls import arguments_in
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
    json_bytes,
    name_at_server,
    next_call_ids,
    next_mode,
    text_of_result,
)
from .errors import Refusal, error_in
from .images import chat_part, chat_takes, described
from .parser import Parser, ThinkTags
from .providers import CallIds, OutputMode
from .stream import MAX_CHARACTERS, MAX_DATA, BrokenStream, parsed, reported, usage_of


class ChatApi:
    """The encoding of one model's requests in Chat Completions, with its cache."""

    name = "chat"
    path = "/chat/completions"
    takes = staticmethod(chat_takes)

    def __init__(self, settings: Settings) -> None:
        self._head = b'{"model":' + json_bytes(settings.model) + b',"messages":['
        self._fields = settings.fields
        self._tool_choice = settings.tool_choice
        self._form = ChatForm(
            has_vision=settings.has_vision,
            output=settings.output,
            call_ids=settings.call_ids,
            is_sent=True,
        )
        """The current form of requests, for the last server."""
        self._tried: set[tuple[str, bool]] = set()
        """The fields that were left out or added, and whether they had been sent."""
        self.cache = EncodingCache(partial(described, takes=chat_takes))

    def owner(self, host: str) -> str:
        """The host itself, which owns the provider data in answers."""
        return host

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request; only provider data of this owner is sent back.

        Raises:
            ModelConfigError: the request does not have the tool of ``tool_choice``.
        """
        if self._form.provider != provider:
            self._form = replace(self._form, provider=provider)
        form = self._form
        request = in_words(request, form.output)
        tools = self.cache.tools(request.tools, partial(_tools, request.tools))
        tail = self._tail(request, form)
        messages = self.cache.messages(
            request.messages, form.wire, partial(encode_message, form=form)
        )
        system = self.cache.instructions(
            request.instructions, lambda text: json_bytes({"role": "system", "content": text})
        )
        joined = b",".join(filter(None, (system, *messages)))
        return b"".join((self._head, joined, b"]", tools, tail))

    def _tail(self, request: Request, form: ChatForm) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream}
        if request.stream and form.usage:
            fields["stream_options"] = {"include_usage": True}
        choice = chosen(self._tool_choice, request)
        if isinstance(choice, str):
            fields["tool_choice"] = choice
        elif choice is not None:
            fields["tool_choice"] = {
                "type": "function",
                "function": {"name": name_at_server(choice.name)},
            }
        fields.update(self._fields)
        format_ = answer_format(request, form.output)
        if format_ is not None:
            kind = format_.pop("type")
            if not format_.get("strict"):  # few servers support the field
                format_.pop("strict", None)
            fields["response_format"] = {"type": kind, **({kind: format_} if format_ else {})}
        return b"," + json_bytes(fields)[1:]

    def parser(self, provider: str, tools: Iterable[ToolSpec]) -> ChatParser:
        """The parser of the answer, which marks provider data with the owner's name."""
        return ChatParser(provider, tools)

    def typed(self, client: Any) -> Any:
        """The client's typed method, for clients that read the body."""
        return client.chat.completions.create

    def check_hosted(self, tool: Hosted) -> None:
        """Raise, because this API has no hosted tools.

        Raises:
            ModelConfigError: always.
        """
        raise ModelConfigError(
            f"{tool.name!r} is a hosted tool, which Chat Completions does not support. If the server has the Responses "
            "API, use OpenAIModel(name, api='responses'). Otherwise, write a function of your own"
        )

    def adapt(self, refusal: Refusal) -> str | None:
        """Use another form of request from now on, if the server rejected a part by name and there is another form.

        Return a note for the person if a typed answer is asked for in another way. The server may reject the field for
        token counts or its own fields, or require reasoning in messages without reasoning.
        """
        output = next_mode(self._form.output, refusal)
        text = refusal.text
        if output is not None:
            self._form = replace(self._form, output=output)
            return OTHER_MODE[output]
        if (ids := next_call_ids(self._form.call_ids, refusal)) is not None:
            self._form = replace(self._form, call_ids=ids)
        elif "stream_options" in text:
            self._form = replace(self._form, usage=False)
        elif refusal.request is not None:
            sent = _returned_fields(refusal.request)
            for name in sent.union(REASONING):
                if _names(text, name):
                    self._toggle_field(name, was_sent=name in sent)
        return None

    def _toggle_field(self, name: str, *, was_sent: bool) -> None:
        """Leave out a field that was sent, or add a field that was not; each form is tried once.

        A form that helps is used from then on; if no form helps, the first form is used again.
        """
        form, own = self._form, frozenset({name})
        if name in (form.without if was_sent else form.always):
            return  # another request, sent before this answer, changed the form
        without, always = form.without - own, form.always - own
        if (name, was_sent) not in self._tried:
            self._tried.add((name, was_sent))
            if was_sent:
                without |= own
            else:
                always |= own
        self._form = replace(form, without=without, always=always)


def _returned_fields(request: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a request that come from the server's earlier answers."""
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


def _names(text: str, name: str) -> bool:
    """Whether an error's text names a field, and does not just contain the word."""
    word = re.escape(name)
    return (
        re.search(rf"(?<!\w){word}(?!\w)" if "_" in name else rf"['\"`.\[]{word}(?!\w)", text)
        is not None
    )


WIRE = "openai-chat"
"""The name of this encoding in ``Message.wire``; the provider's name follows."""


@dataclass(frozen=True, slots=True)
class ChatForm:
    """The form of requests to a server, and of its provider data in requests."""

    provider: str = ""
    """The server's owner name; only messages of this owner are sent with their provider data."""
    without: frozenset[str] = frozenset()
    """The fields that the server rejected."""
    always: frozenset[str] = frozenset()
    """The reasoning fields that the server requires in every assistant message, even if they are empty."""
    has_vision: bool = True
    """Whether the model accepts pictures; otherwise they are described in words."""
    usage: bool = True
    """Whether requests ask for token counts at a stream's end."""
    output: OutputMode = "schema"
    """The form of a typed answer's schema."""
    call_ids: CallIds = "any"
    """The ids of calls that the server accepts."""
    is_sent: bool = False
    """Whether a server receives the messages. Servers reject blank texts and some names."""

    def name(self, tool: str) -> str:
        """The name of a tool in messages of this form."""
        return name_at_server(tool) if self.is_sent else tool

    @property
    def wire(self) -> str:
        """The name of this encoding in ``Message.wire``: all settings that affect a message."""
        return " ".join(
            (WIRE, self.provider, self.call_ids, *sorted(self.without), "+", *sorted(self.always))
        )


def encode_message(message: Message, form: ChatForm) -> bytes:
    """One message as chat messages joined by commas: several if a tool message has several results.

    A server gets nothing for an answer without text and calls, because servers reject it.

    Raises:
        TypeError, ValueError: a part contains a value that is not JSON.
    """
    if message["role"] == "tool":
        results = results_of(message)
        encoded = b",".join(json_bytes(_result(part, form)) for part in results)
        return b"".join((encoded, *of_results(results, form)))
    if message["role"] == "assistant":
        answer = _assistant(message, form)
        return json_bytes(answer) if answer else b""
    if any(files_of(message)):
        head = json_bytes(_head(message))[:-1] + b',"content":'
        return b"".join((head, *content(message["content"], has_vision=form.has_vision), b"}"))
    return json_bytes({**_head(message), "content": _content(message)})


def _result(part: Part, form: ChatForm) -> dict[str, str]:
    text = text_of_result(part)
    call_id = id_at_server(part, form.call_ids)
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": filled(text) if form.is_sent else text,
    }


def _head(message: Message) -> dict[str, str]:
    """The role of a message, and its name."""
    head = {"role": message["role"]}
    return {**head, "name": message["name"]} if "name" in message else head


def _content(message: Message) -> str | list[dict[str, str]]:
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    if len(texts) <= 1:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _assistant(message: Message, form: ChatForm) -> dict[str, Any]:
    provider = message.get("provider") or {}
    is_own = provider.get("name") == form.provider
    data = provider.get("data") if is_own else None
    calls = [
        _call(part, part.get("provider") if is_own else None, form) for part in calls_of(message)
    ]
    text = text_of(message)
    if form.is_sent and not text.strip():
        text = ""
        if not calls:
            return {}
    fields: dict[str, Any] = {**_head(message), "content": text}
    if calls:
        fields |= {"content": text or None, "tool_calls": calls}
    name = reasoning_name(data)
    thoughts = "".join(p["text"] for p in message["content"] if p["type"] == "reasoning")
    if name == THINKING and thoughts and THINKING not in form.without:
        thought = {"type": THINKING, THINKING: [{"type": "text", "text": thoughts}]}
        fields["content"] = [thought, *([{"type": "text", "text": text}] if text else ())]
    elif name in REASONING and name not in form.without:
        fields[name] = thoughts
    fields |= dict.fromkeys(form.always, thoughts if is_own else "")
    return {**wanted(data, OF_MESSAGE, form.without), **fields}


def _call(part: Mapping[str, Any], data: Any, form: ChatForm) -> dict[str, Any]:
    function = {"name": form.name(part["name"]), "arguments": arguments_of(part)}
    fields = data.get("fields") if isinstance(data, Mapping) else None
    inner = {"fields": fields.get("function")} if isinstance(fields, Mapping) else None
    own = wanted(data, OF_CALL, form.without)
    return {
        **own,
        "id": id_at_server(part, form.call_ids),
        "type": "function",
        "function": {**wanted(inner, OF_FUNCTION, form.without), **function},
    }


def _tools(tools: Sequence[ToolSpec]) -> bytes:
    return b',"tools":' + json_bytes([_tool(tool) for tool in tools])


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": name_at_server(tool.name),
        "parameters": tool.input_schema,
    }
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def content(parts: Sequence[Part], *, has_vision: bool) -> Iterator[bytes]:
    """A user's texts and files in order, as JSON in pieces, so that large files are joined only once.

    Raises:
        ModelError: this API does not support a file.
    """
    between = b"["
    for part in parts:
        if part["type"] in ("text", "file"):
            yield between
            yield from chat_part(part, has_vision=has_vision)
            between = b","
    yield b"]"


def of_results(results: Sequence[Part], form: ChatForm) -> Iterator[bytes]:
    """A comma and the message with the files of a turn's results; nothing if the results have no files.

    Raises:
        ModelError: this API does not support a file.
    """
    parts: list[Part] = []
    for result in results:
        for file in result.get("files", ()):
            call = id_at_server(result, form.call_ids)
            caption = f"{label(file)}, from the tool {form.name(result['name'])}, call {call}:"
            parts += [{"type": "text", "text": caption}, file]
    if parts:
        yield b',{"role":"user","content":'
        yield from content(parts, has_vision=form.has_vision)
        yield b"}"


_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral's limit on the whole conversation
    "content_filter": "content_filter",
    "model_context_window_exceeded": "length",  # Zhipu's
    **dict.fromkeys(
        (
            *("safety", "recitation", "blocklist", "prohibited_content", "spii"),  # Gemini
            *("image_safety", "image_prohibited_content", "image_recitation"),
            "sensitive",  # Zhipu
        ),
        "content_filter",
    ),
}
_BREAKS = frozenset(
    {
        *("error", "insufficient_system_resource"),  # Mistral, DeepSeek
        *("abort", "aborted", "cancelled", "canceled", "timeout"),  # vLLM, SGLang and others
    }
)
"""Finish reasons of servers that did not complete their answer."""


class ChatParser(Parser):
    """Parses one response of Chat Completions."""

    def __init__(self, provider: str = "", tools: Iterable[ToolSpec] = ()) -> None:
        super().__init__(provider, tools)
        self._tags = ThinkTags()
        self._call_fields: dict[int, Pieces] = {}
        """The fields that the server may need back with a call, by the call's number."""
        self._pending_fields: dict[int, Pieces] = {}
        """Those that are not in the deltas yet."""
        self._elsewhere: list[Mapping[str, Any]] = []
        """The calls in other choices: those of alternative answers, or this answer's own."""
        self._is_split = False
        """Whether the answer's calls are in another choice than its text, as GitHub Copilot sends them."""
        self._is_in_messages = False
        """Whether the server streams its text as messages instead of deltas."""
        self._half = ""
        self._fields = Pieces()
        """The fields that the server may need back with the message."""
        self._reasoning: str | None = None
        """The server's field name of the message's reasoning."""
        self._kept = 0
        """The number of characters in fields that the server may need back."""

    def response(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response in one piece; see ``Parser``."""
        value = parsed(data)
        if isinstance(value, Mapping) and not value.get("error") and not value.get("choices"):
            raise error_in(value) or BrokenStream(
                f"The server's answer has no choices: {data[:200]!r}", again=False
            )
        self.done = True
        return self.chunk(value)

    def finished(self) -> Finished | None:
        """The end of the response, or None if it is not complete."""
        if self._why is None and not self.done:
            return None
        reason = _REASONS.get(self._why or "stop", "other")
        if self._calls.parts and reason in {"stop", "other"}:
            reason = "tool_calls"
        if self.lost_call:
            reason = "other"
        return Finished(reason, self._usage, self._model, self._own())

    @property
    def lost_call(self) -> bool:
        """Whether the server reported a call as the reason for the end, but sent none; see ``Parser``."""
        return _REASONS.get(self._why or "") == "tool_calls" and not self._calls.parts

    def _own(self) -> dict[str, Any] | None:
        """The provider data of the message, with its owner; see ``Finished.provider``."""
        data: dict[str, Any] = {} if self._reasoning is None else {"reasoning": self._reasoning}
        if self._fields:
            data["fields"] = self._fields.joined()
        if data:
            return {"name": self._provider, "data": data}
        return {"name": self._provider} if self._call_fields else None

    def _mark_end(self) -> None:
        super()._mark_end()
        self._flush()

    def _take(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise BrokenStream(f"The server sent {value!r:.80} instead of a chat chunk")
        usage = value.get("usage")
        if value.get("error"):
            raise reported(value["error"])
        if not (value.get("choices") or usage) and (failure := error_in(value)):
            raise failure  # some servers send it without the field
        if usage and isinstance(usage, Mapping):
            self._usage = usage_of(usage)
            self.tier = value.get("service_tier")
        if self._model is None and isinstance(model := value.get("model"), str):
            self._model = model
        for choice in _objects(value, "choices"):
            if choice.get("index"):  # an alternative, requested by the user's own fields, or calls
                other = _object(choice, "delta") or _object(choice, "message") or _NOTHING
                self._elsewhere += _objects(other, "tool_calls")
                continue
            reason = choice.get("finish_reason")
            if reason:
                self._end(reason, choice)
            delta = streamed = choice.get("delta")
            if "message" in choice or type(delta) is not dict:
                message = _object(choice, "message")
                delta = _object(choice, "delta") or (message and self._news(message))
            if delta:
                self._take_delta(delta, in_one_piece=delta is not streamed)
        if self._why is not None or self.done:
            self._flush()

    def _end(self, reason: Any, choice: Mapping[str, Any]) -> None:
        """Note the reason for the end, and what Moonshot (usage) and OpenRouter (an error) report beside it."""
        if isinstance(usage := choice.get("usage"), Mapping):
            self._usage = usage_of(usage)
        self._why = str(reason).lower()[:MAX_CHARACTERS]
        if error := choice.get("error"):
            raise reported(error)
        if self._why in _BREAKS:
            raise BrokenStream(f"The server could not finish its answer ({reason})")

    def _take_delta(self, delta: Mapping[str, Any], *, in_one_piece: bool) -> None:
        text = delta.get("content")
        if len(delta) == 1 and type(text) is str and text.isascii():  # nearly all deltas
            self._add_text(text)
            return
        if not delta.keys().isdisjoint(REASONING):
            for name in REASONING:
                reasoning = delta.get(name)
                if isinstance(reasoning, str | list):
                    self._reasoning = self._reasoning or name  # servers may need an empty one back
                    self._think(_text(reasoning), name)
                    if reasoning:
                        break  # both names have the same text
        text = text or delta.get("refusal")
        if text:
            if isinstance(text, list):
                parts = [part for part in text if isinstance(part, Mapping)]
                thoughts = [part.get(THINKING) for part in parts if part.get("type") == THINKING]
                self._think("".join(_text(each or "") for each in thoughts), THINKING)
            text = text if type(text) is str else _text(text)
            if not text.isascii():  # a server may split a surrogate pair between two chunks
                text = self._half + text
                self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
                text = text.removesuffix(self._half)
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            self._add_text(text)
        for call in _objects(delta, "tool_calls") if "tool_calls" in delta else ():
            self._take_call(call, in_one_piece=in_one_piece)
        if not delta.keys() <= OF_MESSAGE and (wanted := of_message(delta)):
            self._store_fields(self._fields, wanted, in_one_piece=in_one_piece)

    def _take_call(self, call: Mapping[str, Any], *, in_one_piece: bool) -> None:
        self._batch.add(self._calls.delta(*_piece(call)))
        if wanted := of_call(call):
            number = self._calls.last.index
            fields = self._call_fields.setdefault(number, Pieces())
            self._pending_fields[number] = fields
            self._store_fields(fields, wanted, in_one_piece=in_one_piece)

    def _news(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message with numbered calls; after deltas, only what it has beyond them, because it repeats them."""
        calls = [{**call, "index": n} for n, call in enumerate(_objects(message, "tool_calls"))]
        sent = {kind for kind in (TextDelta, ReasoningDelta) if self._batch.has(kind)}
        if not (sent or self._calls.parts):
            self._is_in_messages = True
        if self._is_in_messages:
            return {**message, "tool_calls": calls}
        known = (("content", "refusal") if TextDelta in sent else ()) + (
            REASONING if ReasoningDelta in sent else ()
        )
        if calls and self._calls.parts:
            self._calls.repeat((name, text) for _, _, name, text in map(_piece, calls))
            calls = []
        news = {key: value for key, value in message.items() if key not in known}
        return {**news, "tool_calls": calls}

    def _add_text(self, text: str) -> None:
        if self._tags.is_over or self._tags.passes(text):
            self._batch.add_text(TextDelta, text)
            return
        for piece in self._tags.split(text):
            self._batch.add_split(piece)

    def _flush(self) -> None:
        """Add the rest of the text, and the complete provider data of each call, to the batch."""
        for piece in self._tags.rest():
            self._batch.add_split(piece)
        if self._elsewhere and (self._is_split or self.lost_call):
            self._is_split = True
            for call in self._elsewhere:
                self._take_call(call, in_one_piece=False)
            self._elsewhere.clear()
        for index, fields in self._pending_fields.items():
            data = fields.joined()
            self._kept += len(dumps(data))  # again each time: pieces may follow after the end
            self._batch.add(ToolCallDelta(index, provider={"fields": data}))
        self._pending_fields.clear()

    def _think(self, text: str, name: str) -> None:
        if text:
            self._reasoning = name
            self._batch.add_text(ReasoningDelta, text)

    def _store_fields(self, fields: Pieces, piece: dict[str, Any], *, in_one_piece: bool) -> None:
        """Store fields that may be needed back."""
        try:
            text = dumps(piece)
            check_depth(text.encode("utf-8", "replace"), MAX_DEPTH)
        except (ValueError, RecursionError) as error:
            names = ", ".join(map(repr, piece))
            raise BrokenStream(
                f"The server sent {names:.200}, which is not JSON: {error}", again=False
            ) from error
        self._kept += (fields.take if in_one_piece else fields.add)(piece)
        if self._kept > MAX_DATA:
            raise BrokenStream(
                f"The server's provider data is longer than {MAX_DATA:,} characters",
                again=False,
            )


def _piece(raw: Mapping[str, Any]) -> tuple[int | str | None, str | None, str | None, str]:
    """The index, id, name and arguments of a call, or of a piece of one."""
    function = _object(raw, "function") or _NOTHING
    key = raw.get("index")
    key = key if isinstance(key, int | str) else None
    arguments = arguments_in(function.get("arguments"))
    return key, _label(raw, "id"), _label(function, "name"), arguments


def _objects(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The list of objects in a field; empty if the field is missing."""
    found = value.get(name)
    if not found:
        return []
    if type(found) is list and len(found) == 1 and type(found[0]) is dict:
        return found  # a quick check that nearly all lists pass
    if isinstance(found, list) and all(isinstance(item, dict) for item in found):
        return found
    raise BrokenStream(f"The server sent {name!r}, which is not a list of objects: {found!r:.80}")


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The object in a field; None if the field is missing."""
    found = value.get(name)
    if not found:
        return None
    if isinstance(found, dict):
        return found
    raise BrokenStream(f"The server sent {name!r}, which is not an object: {found!r:.80}")


def _label(value: Mapping[str, Any], name: str) -> str | None:
    """The value of a field as text; None if the field is missing or empty."""
    found = value.get(name)
    return None if found is None or found == "" else str(found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # some servers send content as parts
        return "".join(_text(part.get("text") or "") for part in value if isinstance(part, Mapping))
    return arguments_in(value)  # JSON in place of its text


REASONING = ("reasoning_content", "reasoning")
"""The field names of a message's reasoning as text."""
THINKING = "thinking"
"""The type of a content part that is reasoning."""
OF_MESSAGE = frozenset(
    {
        *("role", "content", "tool_calls", "index"),
        *("refusal", "annotations", "audio", "function_call"),  # no request accepts them unchanged
    }
)
"""The fields of a message that are stored elsewhere, or are not sent back."""
OF_CALL = frozenset({"index", "id", "type", "function"})
OF_FUNCTION = frozenset({"name", "arguments"})
_NOTHING: dict[str, Any] = {}
_RUNNING = frozenset({*REASONING, THINKING, "text", "summary", "data", "content", "arguments"})
"""Names of texts whose pieces are always joined; other texts that are equal in each piece are stored once."""


def of_message(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The non-empty fields of a message, or a piece of one, that may be needed back."""
    return {
        key: value
        for key, value in _other_fields(raw, OF_MESSAGE).items()
        if key not in REASONING or not isinstance(value, str | list)
    }


def of_call(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The non-empty fields of a call, or a piece of one, that may be needed back."""
    found = _other_fields(raw, OF_CALL)
    function = _other_fields(raw.get("function") or _NOTHING, OF_FUNCTION)
    return {**found, "function": function} if function else found


def _other_fields(raw: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if raw.keys() <= known:
        return {}
    return {
        key: value
        for key, value in raw.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


class Pieces:
    """An object that arrives in pieces: texts, lists and objects are joined; of other values, the last one counts."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add(self, piece: Mapping[str, Any]) -> int:
        """Add one piece; return the number of additional characters."""
        return sum(self._add(key, value) for key, value in piece.items() if value is not None)

    def _add(self, key: str, value: Any) -> int:
        kind = next((kind for type_, kind in _JOINED if isinstance(value, type_)), None)
        if kind is None:
            new = key not in self._values
            self._values[key] = value
            return _NODE + len(key) if new else 0
        known = self._values.get(key)
        if isinstance(known, kind):
            return known.add(value)
        made = self._values[key] = _Texts(in_pieces=key in _RUNNING) if kind is _Texts else kind()
        return _NODE + len(key) + made.add(value)

    def take(self, value: Mapping[str, Any]) -> int:
        """Set this object, which arrived in one piece; return the number of its characters."""
        self._values = dict(value)
        return len(dumps(value))

    def __bool__(self) -> bool:
        return bool(self._values)

    def joined(self) -> dict[str, Any]:
        """The object so far."""
        return {key: _joined(value) for key, value in self._values.items()}


class _Texts:
    """A text in pieces. Unless ``in_pieces``, equal pieces count once; when a piece differs, all pieces are joined."""

    def __init__(self, *, in_pieces: bool = False) -> None:
        self._in_pieces = in_pieces
        self._label = ""
        self._repeats = 0
        """The number of repetitions of the label."""
        self._joined = StringIO()

    def add(self, text: str) -> int:
        more = len(text)
        if not self._in_pieces:
            if self._repeats == 0 or text == self._label:
                self._label, self._repeats = text, self._repeats + 1
                return more if self._repeats == 1 else 0
            self._in_pieces = True
            self._joined.write(self._label * self._repeats)
            more += len(self._label) * (self._repeats - 1)
        self._joined.write(text)
        return more

    def joined(self) -> str:
        return self._joined.getvalue() if self._in_pieces else self._label


class _Items:
    """A list in pieces; items with the same number (``index``) and type are pieces of one item."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._numbered: dict[tuple[int, str | None], Pieces] = {}
        self._types: dict[int, str | None] = {}
        """The type of the last item of each number."""
        self._unsigned: Pieces | None = None
        """The last thought without a number, if it has no signature yet."""

    def add(self, items: list[Any]) -> int:
        return sum(map(self._add, items))

    def _add(self, item: Any) -> int:
        if not isinstance(item, Mapping):
            self._items.append(item)
            return _NODE + len(dumps(item))
        number, raw_type = item.get("index"), item.get("type")
        if not isinstance(number, int) and not isinstance(item.get(THINKING), str):
            self._unsigned = None
            return _NODE + self._new_pieces().take(item)  # without a number, it is complete
        if not isinstance(number, int):  # a thought, which continues until its signature
            thought = self._unsigned or self._new_pieces()
            self._unsigned = None if item.get("signature") else thought
            return _NODE + thought.add(item)
        type_ = raw_type if isinstance(raw_type, str) else None
        key = (number, type_ or self._types.get(number))  # a later piece may omit the type
        if key in self._numbered:
            return self._numbered[key].add(item)
        self._numbered[key] = self._new_pieces()
        self._types[number] = type_
        return _NODE + self._numbered[key].add(item)

    def _new_pieces(self) -> Pieces:
        self._items.append(Pieces())
        made: Pieces = self._items[-1]
        return made

    def joined(self) -> list[Any]:
        return [_joined(item) for item in self._items]


_NODE = 100
"""The characters that each value counts in addition to its own, for its memory."""
_JOINED: tuple[tuple[Any, type[_Texts | _Items | Pieces]], ...] = (
    (str, _Texts),
    (list, _Items),
    (Mapping, Pieces),
)
"""The classes that join values of these types; of other values, the last one counts."""


def _joined(value: Any) -> Any:
    return value.joined() if isinstance(value, _Texts | _Items | Pieces) else value


def reasoning_name(data: Any) -> str | None:
    """The field name of a message's reasoning, from its stored data."""
    name = data.get("reasoning") if isinstance(data, Mapping) else None
    return name if name in (*REASONING, THINKING) else None


def wanted(data: Any, known: frozenset[str], left_out: frozenset[str]) -> dict[str, Any]:
    """The stored fields to send back, without ``known`` fields and those that the server rejected."""
    fields = data.get("fields") if isinstance(data, Mapping) else None
    if not isinstance(fields, Mapping):
        return {}
    return {key: v for key, v in fields.items() if key not in known and key not in left_out}
