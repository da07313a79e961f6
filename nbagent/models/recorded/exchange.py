"""Convert a request and the model's answer to readable JSON, and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, get_args

from nbagent.core.base import errors
from nbagent.core.base.credentials import CUT
from nbagent.core.base.errors import ModelError
from nbagent.core.base.incoming_json import within_parts
from nbagent.core.base.messages import MAX_DEPTH, Json, check_depth, dumps
from nbagent.core.base.model import (
    Discarded,
    Finished,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    Usage,
    Waiting,
)
from nbagent.core.base.secrets import MASK, SecretPlaces

_KINDS: dict[str, Any] = {
    kind.type.fget(None): kind for kind in get_args(ModelDelta)
}  # ``type`` is a property that ignores its instance


# --- the request


def request_json(request: Request) -> dict[str, Any]:
    """A request in readable form, for the recording.

    The form omits nbagent's own records, reasoning and provider data: models do not read them, or an
    earlier answer has them. The bytes of a file are replaced by their SHA-256.
    """
    return {
        "instructions": request.instructions,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in request.tools
        ],
        "hosted": [
            {"kind": tool.kind, "name": tool.name, "options": _public(tool.options)}
            for tool in request.hosted
        ],
        "output_schema": request.output_schema,
        "messages": [_message(message) for message in request.messages],
    }


def _public(options: Json) -> Json:
    """The options of a provider's own tool, without those that look like credentials."""
    match options:
        case Mapping():
            return {
                key: CUT if _CREDENTIAL.search(str(key)) else _public(each)
                for key, each in options.items()
            }
        case list() | tuple():
            return [_public(each) for each in options]
        case _:
            return options


_CREDENTIAL = re.compile(r"auth|token|key|secret|pass|cred|cookie|headers", re.IGNORECASE)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = [_part(part) for part in message["content"] if part["type"] != "reasoning"]
    named = {"name": message["name"]} if "name" in message else {}
    return {"role": message["role"], **named, "content": content}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    shown = {k: v for k, v in part.items() if k not in ("nbagent", "provider", "server_id")}
    if part["type"] == "file":
        data = part["data"]
        if not data.startswith("sha256:"):  # else it is a digest already
            digest = hashlib.sha256(data.encode()).hexdigest()
            shown["data"] = f"sha256:{digest} of {len(data)} characters"
    if "files" in shown:
        shown["files"] = [_part(file) for file in shown["files"]]
    return shown


# --- the answer


class RecordedAnswer:
    """A model's answer, built from its deltas as they arrive: pieces in order, then the end."""

    def __init__(self, request: Request) -> None:
        self._schemas = {tool.name: tool.input_schema for tool in request.tools}
        self._pieces: list[dict[str, Any]] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: ModelDelta) -> None:
        """Add one delta without its time; ``Discarded`` removes the pieces so far."""
        match delta:
            case TextDelta(text=text):
                self._join("text", text)
            case ReasoningDelta(text=text):
                if delta.replaces_text:
                    self._pieces = [each for each in self._pieces if "text" not in each]
                self._join("reasoning", text)
            case ToolCallDelta():
                call = self._calls.get(delta.index)
                if call is None:
                    call = self._calls[delta.index] = {"id": None, "name": None, "arguments": ""}
                    self._pieces.append({"call": None})  # a place for the call, inserted at the end
                call["id"] = call["id"] or delta.id
                call["name"] = call["name"] or delta.name
                call["arguments"] += delta.arguments
                if delta.provider is not None:
                    call["provider"] = delta.provider
            case Discarded():
                self._pieces, self._calls = [], {}
            case Waiting() | Finished():
                pass
            case _:
                self._pieces.append({delta.type: _unusual_fields(delta)})

    def finished(self, end: Finished) -> dict[str, Any]:
        """The whole answer, with its end."""
        fields = _unusual_fields(end)
        called = (call["name"] for call in self._calls.values())
        if any(SecretPlaces.of(self._schemas.get(name)) is not None for name in called):
            fields.pop("provider", None)  # provider data repeats the calls' secrets
        if "usage" in fields:
            usual = asdict(Usage())
            fields["usage"] = {k: v for k, v in asdict(end.usage).items() if v != usual[k]}
        return {"said": self._pieces_json(), "finished": {"reason": end.reason, **fields}}

    def failed(self, error: BaseException) -> dict[str, Any] | None:
        """An answer that ended with an error of the model; None for other errors, such as a missing key."""
        if not isinstance(error, ModelError):
            return None
        known = next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
        failure = {"error": known.__name__, "message": str(error)}
        return {"said": self._pieces_json(), "failed": failure}

    def _join(self, kind: str, text: str) -> None:
        if self._pieces and kind in self._pieces[-1]:
            self._pieces[-1][kind] += text
        else:
            self._pieces.append({kind: text})

    def _pieces_json(self) -> list[dict[str, Any]]:
        """The pieces, with calls in the order of their indexes."""
        calls = (call for _, call in sorted(self._calls.items()))
        return [
            {"call": self._readable(next(calls))} if "call" in piece else piece
            for piece in self._pieces
        ]

    def _readable(self, call: dict[str, Any]) -> dict[str, Any]:
        call = dict(call)
        text = call.pop("arguments")
        places = SecretPlaces.of(self._schemas.get(call["name"]))
        if places is not None:
            call.pop("provider", None)
        try:
            value = json.loads(within_parts(text))
            # a value that a journal rejects is stored as text
            check_depth(dumps(value).encode(), MAX_DEPTH)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            call["input"] = value if places is None else places.masked(value)
        else:
            call["arguments"] = text if places is None else MASK
        return call


def _unusual_fields(delta: Any) -> dict[str, Any]:
    """The fields of a delta that differ from their defaults."""
    usual = delta._field_defaults
    return {k: v for k, v in delta._asdict().items() if k not in usual or v != usual[k]}


def deltas(answer: Mapping[str, Any]) -> Iterator[ModelDelta]:
    """The deltas of a recorded answer, with whole texts and calls.

    Raises:
        ModelError: the answer has an invalid piece.
    """
    index = 0
    for piece in answer["said"]:
        match piece:
            case {"text": text}:
                yield TextDelta(text)
            case {"reasoning": text}:
                yield ReasoningDelta(text)
            case {"call": call}:
                arguments = dumps(call["input"]) if "input" in call else call["arguments"]
                yield ToolCallDelta(
                    index, arguments, call.get("id"), call.get("name"), call.get("provider")
                )
                index += 1
            case _:
                yield _other(piece)


def _other(piece: Mapping[str, Any]) -> ModelDelta:
    """A delta that is stored unchanged."""
    for name, given in piece.items():
        if (
            name in _KINDS
            and isinstance(given, Mapping)
            and set(given) <= set(_KINDS[name]._fields)
        ):
            made: ModelDelta = _KINDS[name](**given)
            return made
    raise ModelError(f"The recording has a delta of unknown kind: {piece!r:.80}")


def end_of(answer: Mapping[str, Any]) -> Finished | Exception:
    """The end of a recorded answer: ``Finished``, or an error of the model."""
    if "failed" in answer:
        failure = answer["failed"]
        kind = getattr(errors, failure["error"], None)
        if not (isinstance(kind, type) and issubclass(kind, ModelError)):
            kind = ModelError
        return kind(failure["message"])
    end = dict(answer["finished"])
    known = {field.name for field in fields(Usage)}
    usage = {k: v for k, v in end.pop("usage", {}).items() if k in known}
    return Finished(**{k: v for k, v in end.items() if k in Finished._fields}, usage=Usage(**usage))


def exchange_in_words(number: int, entry: Mapping[str, Any]) -> str:
    """An exchange in one line: model, agent, prompt and answer."""
    request = entry["request"]
    setup = str(entry["model"])
    if request["instructions"]:
        setup += f", instructions {_quoted(request['instructions'])}"
    messages, answer = request["messages"], entry["answer"]
    prompt = [message for message in messages if message.get("role") == "user"][-1:]
    results = [message for message in messages[-1:] if message.get("role") == "tool"]
    asked = [_part_in_words(part) for each in (*prompt, *results) for part in each["content"]]
    if "failed" in answer:
        end = f"failed with {answer['failed'].get('error')}"
    else:
        said = (
            f"call of {piece['call'].get('name')}" if "call" in piece else _quoted(piece["text"])
            for piece in answer["said"]
            if "call" in piece or "text" in piece
        )
        end = ", ".join(said) or "nothing"
    return f"exchange {number} ({setup}): {', '.join(asked) or 'nothing'} → {end}"


def _part_in_words(part: Mapping[str, Any]) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return f"prompt {_quoted(text)}"
        case {"type": "tool_result", "name": name}:
            return f"result of {name}"
        case _:
            return f"a {part.get('type')}"


def answer_in_words(number: int, entry: Mapping[str, Any]) -> str:
    """A person's answer in one line, with its question."""
    question, answered = entry["question"], entry["answered"]
    tool = question.get("tool") or "the run's limit"
    asked = f"{question.get('expects', 'answer')} of {tool}"
    if "input" in question:
        asked += f" {_quoted(question['input'])}"
    decision = {"restart": "approved", "reject": "refused"}.get(str(answered.get("type")))
    if decision == "approved" and "input" in answered:
        decision = f"approved with {_quoted(answered['input'])}"
    return f"answer {number} ({asked}): {decision or _quoted(answered.get('output'))}"


def _quoted(value: Json) -> str:
    """A value as JSON in one line, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


SHOWN = 60
"""The maximum characters of a text in a line about an exchange."""
WORDS = re.compile(r"\s*\S+\s*|\s+")


def in_words(delta: ModelDelta) -> Iterator[ModelDelta]:
    """Split a text delta into words."""
    if isinstance(delta, TextDelta | ReasoningDelta):
        yield from (delta._replace(text=word) for word in WORDS.findall(delta.text))
    else:
        yield delta


# --- questions


def question_json(asked: Any) -> dict[str, Any]:
    """The fields of a question that a person sees, from a ``PendingInterrupt`` or an ``Interrupted``."""
    metadata: Json = asked.metadata
    shown = {
        "tool": asked.tool_name,
        "kind": asked.kind,
        "expects": asked.expects,
        "input": asked.input,
        "metadata": metadata,
        "reply_schema": asked.reply_schema,
        "editable": list(asked.editable) if isinstance(asked.editable, tuple) else asked.editable,
    }
    return {k: v for k, v in shown.items() if v not in (None, False, {}, "")}
