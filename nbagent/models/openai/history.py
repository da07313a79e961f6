"""Foreign histories: convert lists of OpenAI's two APIs to messages, and messages to Chat Completions.

Formats: https://platform.openai.com/docs/api-reference/chat/create (messages) and
https://platform.openai.com/docs/api-reference/responses/create (input items).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbagent.core.base.errors import MessagesError, suggest
from nbagent.core.base.incoming_json import within_parts
from nbagent.core.base.messages import Message, Part, calls_of, dumps, load, text_part

from .chat import REASONING, ChatForm, encode_message, of_call, of_message
from .encoding import id_at_server
from .responses import Kept, Span

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,;]+)*;base64,(.*)", re.DOTALL)
_PERSONS = {"system": "system", "developer": "system", "user": "user"}
_ROLES = (*_PERSONS, "assistant", "tool")
_MESSAGE = ("content", "tool_calls", "refusal", "name", *REASONING)
_CALL = ("id", "type", "function", "name", "arguments")
_TEXTS = ("text", "input_text", "output_text")


def messages_from_openai(
    messages: Iterable[Any], *, provider: str | None = None
) -> tuple[Message, ...]:
    """Convert a history of the openai client to messages, for ``agent.run(messages=…)`` and ``agent.generate``.

    A system or developer message stays in its place, after the agent's own instructions. Calls at the end
    without a result are open: the run that continues the history runs them, or asks for approval. The arguments of
    an open call must be a JSON string or an object; those of a call with a result may be any string.

    Args:
        messages: Chat Completions messages or Responses items, as dicts or as the client's objects.
        provider: the host of the server that answered, such as ``api.openai.com``. Only this server gets back
            its own data (encrypted reasoning, marks on calls).

    Raises:
        MessagesError: an item is not such a message, or cannot be stored, such as an image behind a link. The error
            names the place, as in ``messages[3].tool_calls[0].function.arguments``, and the format of the item.
    """
    if isinstance(messages, str | Mapping):
        raise MessagesError(f"A history must be a list of messages, got {messages!r:.80}")
    reader = _History(provider)
    for index, value in enumerate(messages):
        at = f"messages[{index}]"
        plain = _plain(at, value)
        try:
            reader.add(at, plain)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, MessagesError):
                raise
            raise MessagesError(
                f"{at} does not match OpenAI's APIs ({error!r:.80}): {plain!r:.80}"
            ) from error
    return load(reader.history())


def messages_to_openai(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert messages to those of Chat Completions, for ``client.chat.completions.create(messages=…)``.

    The agent's instructions are not included; reasoning and other providers' data are left out.

    Raises:
        MessagesError: ``messages`` is not a history.
    """
    encoded = b",".join(encode_message(item, ChatForm()) for item in load(messages))
    plain: list[dict[str, Any]] = json.loads(b"[" + encoded + b"]")
    return plain


class _Answer:
    """An assistant's message while it is parsed; in Responses it may be several items."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[Part] = []
        self.items: list[Any] = []
        """The items of Responses to send back, in the form of ``Kept``; empty for Chat Completions."""
        self.places: list[str] = []
        """The place of each of the ``items`` in the history."""
        self.data: dict[str, Any] = {}
        """The provider data of Chat Completions to send back."""
        self.named: dict[str, str] = {}
        """The message's field ``name``, if there is one."""
        self.broken: dict[str, str] = {}
        """The place and the problem of a call's arguments, by the call's id."""

    def hidden(self) -> str:
        """The place of the first item with data that is not in the message's text and calls."""
        return next(
            place
            for end, place in enumerate(self.places, 1)
            if (last := self.items[end - 1]) is not None
            and ("reasoning" in last or Kept(self.items[:end], 0, 0).provider("") is not None)
        )

    def spans(self, texts: list[str], pairs: Iterable[tuple[str, str]]) -> list[Span]:
        """Add texts with their kinds, and return their positions."""
        spans: list[Span] = []
        for kind, text in pairs:
            start = sum(map(len, texts))
            texts.append(text)
            spans.append((kind, start, start + len(text)))
        return spans


class _History:
    """Reads one message or item after the other."""

    def __init__(self, provider: str | None) -> None:
        self._provider = provider
        self._done: list[dict[str, Any]] = []
        self._answer: _Answer | None = None
        """The assistant's message that is still open: its results may follow."""
        self._results: dict[str, Part] = {}
        """Results by the server's id of the call."""
        self._ids: set[str] = set()

    def add(self, at: str, value: dict[str, Any]) -> None:
        """Read one more message or item."""
        kind, role = value.get("type"), value.get("role")
        if kind == "function_call_output":
            self._result(at, value, "call_id", "output")
        elif role == "tool":
            self._result(at, value, "tool_call_id", "content")
        elif role in _PERSONS:
            self._close()
            content = [*_content(at, _needed(at, value, "content"))]
            self._done.append({"role": _PERSONS[role], "content": content, **_name(at, value)})
        elif role == "assistant" and kind != "message":
            self._close()
            self._chat(at, value)
        elif role == "assistant" or (isinstance(kind, str) and role is None):
            self._item(at, value)
        else:
            raise MessagesError(
                f"{at} is {value!r:.80}: expected a message of Chat Completions with role "
                f"{', '.join(map(repr, _ROLES[:-1]))} or {_ROLES[-1]!r}, or an item of Responses"
                f"{suggest(str(role), _ROLES)}"
            )

    def history(self) -> list[dict[str, Any]]:
        """The whole history; calls without results in the last answer are open."""
        self._close(last=True)
        return self._done

    # --- the assistant's output

    def _chat(self, at: str, value: dict[str, Any]) -> None:
        answer = self._answer = _Answer()
        if value.get("audio") or value.get("function_call"):
            field = "audio" if value.get("audio") else "function_call"
            raise MessagesError(f"{at} has {field!r}, which cannot be stored")
        answer.named = _name(at, value)
        value = {key: each for key, each in value.items() if key != "name"}
        if not value.keys() & {"content", "tool_calls", "refusal", *REASONING}:
            _needed(at, value, "content", "tool_calls")
        answer.texts += _texts(f"{at}.content", value.get("content"))
        answer.texts += [value["refusal"]] if value.get("refusal") else []
        name = next((each for each in REASONING if isinstance(value.get(each), str)), None)
        answer.thoughts += [value[name]] if name else []
        fields = of_message(value)
        for number, call in enumerate(value.get("tool_calls") or ()):
            call_place = f"{at}.tool_calls[{number}]"
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping):
                raise MessagesError(f"{call_place} has no function: {call!r:.80}")
            own = of_call(call)
            self._check_provider(call_place, own.get("function", own), _CALL)
            if self._call(call_place, call, "id", f"{call_place}.function", function) and own:
                answer.calls[-1]["provider"] = {"fields": own}
        self._check_provider(at, fields, _MESSAGE)
        if self._provider is not None and (fields or name):
            answer.data = {"fields": fields, **({"reasoning": name} if name else {})}

    def _item(self, at: str, value: dict[str, Any]) -> None:
        if self._answer is None or self._results:
            self._close()
            self._answer = _Answer()
        answer = self._answer
        answer.places.append(at)
        match value.get("type"):
            case "message":
                parts = enumerate(_parts(_needed(at, value, "content")))
                pairs = [_output(f"{at}.content[{n}]", part) for n, part in parts]
                spans = answer.spans(answer.texts, pairs)
                answer.items.append(Kept.message(spans, value.get("phase")))
            case "reasoning":
                summary = [("summary", _text_of(at, p)) for p in value.get("summary") or ()]
                content = [("content", _text_of(at, p)) for p in value.get("content") or ()]
                spans = answer.spans(answer.thoughts, [*summary, *content])
                kept = Kept.reasoning_of(spans, value.get("encrypted_content"))
                answer.items.append(kept)
            case "function_call":
                kept = Kept.call(len(answer.calls), value)
                is_new = self._call(at, value, "call_id", at, value)
                answer.items.append(kept if is_new else None)
            case "item_reference":
                raise MessagesError(f"{at} only refers to an item on a server")
            case _:
                answer.items.append(Kept.item(value))

    def _call(
        self,
        at: str,
        call: Mapping[str, Any],
        key: str,
        function_place: str,
        function: Mapping[str, Any],
    ) -> bool:
        """Add a call; False if the answer has it already, with the same id, name and arguments."""
        own, name = _text(at, call, key), _text(function_place, function, "name")
        assert self._answer is not None
        part: Part = {"type": "tool_call", "id": own, "name": name, "input": {}}
        problem = ""
        try:
            part["input"] = _input(function.get("arguments"))
        except (TypeError, ValueError) as error:
            part["raw"] = str(function["arguments"])
            problem = f"{function_place}.arguments: {error}"
        if any(
            id_at_server(each) == own
            and all(each.get(field) == part.get(field) for field in ("name", "input", "raw"))
            for each in self._answer.calls
        ):
            return False
        number = 1
        while part["id"] in self._ids:
            number += 1
            part |= {"id": f"{own}_{number}", "server_id": own}
        self._ids.add(part["id"])
        if problem:
            self._answer.broken[part["id"]] = problem
        self._answer.calls.append(part)
        return True

    def _check_provider(
        self, at: str, fields: Mapping[str, Any], known: tuple[str, ...] = ()
    ) -> None:
        """Raise for provider data without a named provider, and for misspelled fields."""
        for name in fields:
            near = suggest(name, known)
            if self._provider is None or near:
                raise MessagesError(
                    f"{at} has {name!r}, which only its own server can read. Pass the server's host as provider=, such as "
                    f"'api.openai.com', or remove the field{near}"
                )

    # --- results, and the end

    def _result(self, at: str, value: Mapping[str, Any], id_key: str, key: str) -> None:
        own, content = _text(at, value, id_key), _needed(at, value, key)
        waits = [] if self._answer is None else self._answer.calls
        own_ids = {id_at_server(call): call for call in waits}
        call = own_ids.get(own)
        if call is None or own in self._results:
            open_ = [repr(each) for each in own_ids if each not in self._results]
            raise MessagesError(
                f"{at} is the result of {own!r:.80}, but no call is waiting for it{' (waiting: ' + ', '.join(open_) + ')' if open_ else ''}"
            )
        part = {"type": "tool_result", "id": call["id"], "name": call["name"]}
        part |= {"server_id": own} if "server_id" in call else {}
        self._results[own] = {**part, "output": "".join(_texts(f"{at}.{key}", content))}

    def _close(self, *, last: bool = False) -> None:
        """End the assistant's message with its results."""
        answer, results = self._answer, self._results
        self._answer, self._results = None, {}
        if answer is None:
            return
        is_open = last and len(results) < len(answer.calls)
        if is_open:  # store the known results in the calls, which then do not run again
            for number, call in enumerate(answer.calls):
                result = results.get(id_at_server(call))
                if result is not None:
                    done = {"status": "done", "result": result}
                    answer.calls[number] = {**call, "nbagent": done}
                elif call["id"] in answer.broken:
                    raise MessagesError(answer.broken[call["id"]])
        self._done.append(self._message(answer))
        if results and not is_open:
            content = [each for call in answer.calls if (each := results.get(id_at_server(call)))]
            self._done.append({"role": "tool", "content": content})

    def _message(self, answer: _Answer) -> dict[str, Any]:
        text, thought = "".join(answer.texts), "".join(answer.thoughts)
        parts: list[Part] = [{"type": "reasoning", "text": thought}] if thought else []
        parts += [text_part(text)] if text else []
        message: dict[str, Any] = {"role": "assistant", "content": [*parts, *answer.calls]}
        message |= answer.named
        if answer.items:
            kept = Kept(answer.items, len(text), len(thought))
            data = kept.provider(f"{self._provider}/responses")
            if data is not None:
                if self._provider is None:
                    raise MessagesError(
                        f"{answer.hidden()} is an item with data that only its own server can read. Pass the server's host "
                        "as provider=, such as 'api.openai.com', or remove the item"
                    )
                message["provider"] = data
        elif answer.data:
            message["provider"] = {"name": self._provider, "data": answer.data}
        elif any("provider" in call for call in calls_of(message)):
            message["provider"] = {"name": self._provider}
        return message


# --- content


def _plain(at: str, value: Any) -> dict[str, Any]:
    """A message or item as a dict, also from the client's object."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", exclude_none=True)
    _check_library(at, value)
    if not isinstance(value, Mapping):
        raise MessagesError(f"{at} is {value!r:.80}, which is not a message of the openai client")
    try:
        plain: dict[str, Any] = json.loads(dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise MessagesError(f"{at} is not JSON: {error}") from error
    return plain


def _check_library(at: str, value: Any) -> None:
    """Raise if a message is in another library's format, recognized by fields that only this format has."""
    chat = "pass messages of Chat Completions, as in {'role': 'user', 'content': 'Hi'}"
    convert = "convert them with langchain_core.messages.convert_to_openai_messages(messages)"
    unchanged = "pass the list to messages= unchanged"
    is_pair = isinstance(value, list | tuple) and [type(each) for each in value] == [str, str]
    fields: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    role, kinds = fields.get("role"), _kinds(fields.get("content"))
    has_parts = isinstance(fields.get("parts"), list)
    is_plain = "role" not in fields and {"data", "content"} & fields.keys()
    is_typed = fields.get("type") in ("human", "ai", "system", "tool", "function")
    is_prompt = "tool_result" in kinds and role == "user"
    formats = (
        (is_pair, "LangChain, as a pair", chat),
        ("lc" in fields and "kwargs" in fields, "LangChain", convert),
        (is_plain and is_typed, "LangChain", convert),
        (has_parts and fields.get("kind") in ("request", "response"), "Pydantic AI", chat),
        (has_parts and (role == "model" or not _kinds(fields["parts"])), "Gemini's own API", chat),
        (has_parts or kinds & {"tool-call", "tool-result"}, "Vercel's AI SDK", chat),
        ("tool_use" in kinds or is_prompt, "Anthropic's Messages API", chat),
        (kinds & {"tool_call", "tool_result"}, "nbagent itself", unchanged),
    )
    for fits, library, advice in formats:
        if fits:
            raise MessagesError(
                f"{at} looks like a message of {library}, which this function does not read: {advice}. Got {value!r:.80}"
            )


def _kinds(parts: Any) -> set[str]:
    """The types of the parts of a message."""
    given = parts if isinstance(parts, list) else []
    found = (part.get("type") for part in given if isinstance(part, Mapping))
    return {kind for kind in found if isinstance(kind, str)}


def _parts(content: Any) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else [content]


def _texts(at: str, content: Any) -> list[str]:
    """The texts of content that may contain only text."""
    return [_output(f"{at}[{number}]", part)[1] for number, part in enumerate(_parts(content))]


def _output(at: str, part: Any) -> tuple[str, str]:
    """The kind and the text of a part of the assistant's output in Responses."""
    if not isinstance(part, Mapping) or part.get("type") not in (*_TEXTS, "refusal"):
        raise MessagesError(
            f"{at} is the part {part!r:.80}, which cannot be part of an answer. Only text and refusals can"
        )
    return "refusal" if part["type"] == "refusal" else "output_text", _text_of(at, part)


def _text_of(at: str, part: Mapping[str, Any]) -> str:
    text = _needed(at, part, "refusal" if part.get("type") == "refusal" else "text")
    if not isinstance(text, str | None):
        raise MessagesError(f"{at}.text must be a string, got {text!r:.80}")
    return text or ""


def _content(at: str, content: Any) -> Iterator[Part]:
    """The parts of a person's message."""
    for number, part in enumerate(_parts(content)):
        part_place = f"{at}.content[{number}]"
        if isinstance(part, Mapping) and part.get("type") in _TEXTS:
            yield text_part(_text_of(part_place, part))
        else:
            yield _file(part_place, part)


def _input(arguments: Any) -> dict[str, Any]:
    """The input of a call: an object, or its JSON."""
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(within_parts(arguments))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON ({error}): {arguments!r:.80}") from error
    if not isinstance(arguments, dict | None) and arguments != "":
        raise TypeError(
            f"{arguments!r:.80} is not an object. The arguments of a call must have names"
        )
    return arguments or {}


def _needed(at: str, value: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first of these keys that exists."""
    for key in keys:
        if key in value:
            return value[key]
    known = [key for key in value if suggest(key, keys)]
    wrong = f". It has {known[0]!r}{suggest(known[0], keys)}" if known else ""
    raise MessagesError(
        f"{at} has no {' and no '.join(map(repr, keys))}: {dict(value)!r:.80}{wrong}"
    )


def _text(at: str, value: Mapping[str, Any], key: str) -> str:
    """A required, non-empty text."""
    found = _needed(at, value, key)
    if not (isinstance(found, str) and found):
        raise MessagesError(f"{at}.{key} is {found!r:.80}: expected a string")
    return found


def _name(at: str, value: Mapping[str, Any]) -> dict[str, str]:
    """The name of a message's author, if there is one."""
    return {} if value.get("name") is None else {"name": _text(at, value, "name")}


def _file(at: str, part: Any) -> Part:
    """An image, document or sound whose data is in the message."""
    name = None
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            pass
        case {"type": "input_image", "image_url": str(url)}:
            pass
        case {"type": "file", "file": {"file_data": str(url)} as file}:
            name = file.get("filename")
        case {"type": "input_file", "file_data": str(url)}:
            name = part.get("filename")
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            url = f"data:audio/{kind};base64,{data}"
        case _:
            raise MessagesError(f"{at} is the part {part!r:.80}, which cannot be stored")
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise MessagesError(
            f"{at} has a link to a file, {url!r:.80}, which cannot be stored. Put the file itself into the "
            "message, as a data: URL in base64"
        )
    file = {"type": "file", "media_type": found[1], "data": found[2]}
    return {**file, "name": name} if isinstance(name, str) else file
