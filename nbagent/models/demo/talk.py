"""The demo model's input: a parsed Chat Completions body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.core.base.model import ToolSpec

_REFUSED = re.compile(r"\b(rejected|refused|declined|denied|not approved)\b", re.IGNORECASE)
_REASON = re.compile(r"\b[Rr]eason: \s*(\S.*)", re.DOTALL)
_FAILED = re.compile(r"The tool \S+ failed|Error\b")
_EDITED = re.compile(r"A person changed the arguments of this call to (\{.*\})\.\s*")


class Malformed(ValueError):
    """A body that a strict server rejects."""


@dataclass(frozen=True, slots=True)
class CallDone:
    """A tool call with its result."""

    name: str
    input: Mapping[str, Any]
    """The input of the call, possibly changed by a person."""
    text: str
    """The result, without the note about an edit."""
    refused: bool = False
    edited: bool = False
    failed: bool = False

    @property
    def reason(self) -> str:
        """The reason why the call was rejected, in parentheses, or an empty string."""
        found = _REASON.search(self.text) if self.refused else None
        return f" ({found[1].strip()})" if found else ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation before the model's next response."""

    prompt: str
    """The last user message."""
    prompts: int
    """The number of user messages."""
    step: int
    """The number of responses since the prompt."""
    done: Sequence[CallDone]
    """The calls since the prompt."""
    earlier: Sequence[CallDone]
    """The calls before the prompt."""
    tools: Mapping[str, ToolSpec]
    output_schema: Mapping[str, Any] | None


def parse_talk(body: Mapping[str, Any]) -> Conversation:
    """The conversation in a request.

    Raises:
        Malformed: a call is unanswered, answered twice or out of order, or there is no message.
    """
    messages = body.get("messages") or []
    _check(messages)
    at = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    since = messages[at + 1 :]
    functions = [tool["function"] for tool in body.get("tools") or ()]
    response_format = body.get("response_format") or {}
    return Conversation(
        prompt=_text(messages[at]) if at >= 0 else "",
        prompts=sum(m["role"] == "user" for m in messages),
        step=sum(m["role"] == "assistant" for m in since),
        done=_done(since),
        earlier=_done(messages[: at + 1]),
        tools={
            f["name"]: ToolSpec(f["name"], f.get("description", ""), f.get("parameters") or {})
            for f in functions
        },
        output_schema=response_format.get("json_schema", {}).get("schema"),
    )


def _check(messages: Sequence[Mapping[str, Any]]) -> None:
    if not messages:
        raise Malformed("messages must not be empty")
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting[:1]:
                raise Malformed(f"No call is waiting for {message.get('tool_call_id')!r} here")
            waiting = waiting[1:]
        elif waiting:
            break
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        raise Malformed(f"The tool calls {waiting!r} have no answer")


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def _done(messages: Sequence[Mapping[str, Any]]) -> list[CallDone]:
    calls: dict[str, Mapping[str, Any]] = {}
    done: list[CallDone] = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = call["function"]
        if message["role"] == "tool":
            function = calls[message["tool_call_id"]]
            name, arguments, text = function["name"], function["arguments"], _text(message)
            edit = _EDITED.match(text)
            if edit:
                arguments, text = edit[1], text[edit.end() :]
            failed = _FAILED.match(text) is not None
            refused = not failed and _REFUSED.search(text[:120]) is not None
            done.append(
                CallDone(name, json.loads(arguments), text, refused, edit is not None, failed)
            )
    return done
