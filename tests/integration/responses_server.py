"""A Responses server on loopback, scripted per test and as strict as the real one. It stores nothing.

    with ResponsesServer([Reply(calls=[("look", {"n": 1})]), Reply("Found.")]) as server:
        model = OpenAIModel("test", base_url=server.url, api="responses")

A request that a real server refuses gets a 400 with the reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.integration.chat_server import REPEATED, Body, ChatServer, Refuse, Reply, Step

__all__ = ["Items", "Refuse", "Reply", "ResponsesServer", "looping"]

Item = dict[str, Any]


@dataclass(frozen=True)
class Items(Reply):
    """A reply with these output items, unchanged."""

    output: Sequence[Item] = ()
    details: tuple[int, int] = (0, 0)
    """The number of cached input tokens and of reasoning tokens."""
    error: dict[str, Any] | None = None
    """The error of a failed response."""


class ResponsesServer(ChatServer):
    """A server of ``script``, one step per valid request."""

    path = "/v1/responses"

    def __init__(
        self,
        script: Sequence[Step] | Callable[[Body], Reply | Refuse] = (),
        *,
        reasons: bool = True,
    ) -> None:
        super().__init__(script)
        self.reasons = reasons
        """Whether the models reason; other models refuse fields for reasoning."""
        self.verified = True
        """Whether the key may request summaries of reasoning."""

    def problem_with(self, body: Body) -> str:
        """Why a real server refuses this request, or ""."""
        if "reasoning.encrypted_content" in body.get("include", ()) and not self.reasons:
            return "Encrypted content is not supported with this model."
        if "summary" in body.get("reasoning", {}) and not (self.verified and self.reasons):
            return (
                "Your organization must be verified to generate reasoning summaries "
                "(param: reasoning.summary)"
            )
        return problem_with(body)

    def whole(self, body: Body, reply: Reply) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        return response(body, reply)

    def events(self, body: Body, reply: Reply) -> Iterator[bytes]:
        """The events of a streamed reply, as they are sent."""
        for number, event in enumerate(events(body, reply)):
            data = json.dumps({"type": event.pop("type"), "sequence_number": number, **event})
            kind = json.loads(data)["type"]
            yield f"event: {kind}\ndata: {data}\n\n".encode()


# --- what is sent


def output_of(body: Body, reply: Reply) -> list[Item]:
    """The output items of a reply."""
    if isinstance(reply, Items):
        return [dict(item) for item in reply.output]
    items: list[Item] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary})
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "content": [text]})
    for index, (name, value) in enumerate(reply.calls):
        usual = f"call_{len(body['input'])}_{index}"
        call_id = REPEATED if reply.ids is None else usual if reply.ids else ""
        arguments = value if isinstance(value, str) else json.dumps(value)
        own = {"id": f"fc_{index}", "call_id": call_id, "name": name, "arguments": arguments}
        items.append({"type": "function_call", **own})
    items = [{**item, "status": "completed"} for item in items]
    if "reasoning.encrypted_content" in body.get("include", ()):
        for item, after in zip(items, [*items[1:], {}], strict=False):
            if item["type"] == "reasoning":
                item["encrypted_content"] = sealed(after)
    return items


def sealed(after: Item) -> str:
    """Encrypted reasoning that records which item followed."""
    return base64.b64encode(json.dumps(_mark(after)).encode()).decode()


def _mark(item: Mapping[str, Any]) -> list[Any]:
    """The identity of an item that the client sends back."""
    kind = item.get("type")
    if kind == "message":
        return [kind, "".join(part.get("text", "") for part in item["content"])]
    return [kind, item.get("call_id")]


def response(body: Body, reply: Reply) -> dict[str, Any]:
    """The final response object."""
    finish = reply.finish
    status = "incomplete" if finish in ("max_output_tokens", "content_filter") else "completed"
    error = reply.error if isinstance(reply, Items) else None
    answer: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "failed" if error else status,
        "error": error,
        "incomplete_details": {"reason": finish} if status == "incomplete" else None,
        "instructions": body.get("instructions"),
        "output": output_of(body, reply),
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "usage": None,
    }
    if reply.usage:
        sent, made = reply.usage
        cached, thought = reply.details if isinstance(reply, Items) else (0, 0)
        answer["usage"] = {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": sent + made,
        }
    return answer


def events(body: Body, reply: Reply) -> Iterator[dict[str, Any]]:
    """The events of a streamed reply. The first and last events contain the whole response, as on real servers."""
    final = response(body, reply)
    begun = {**final, "output": [], "status": "in_progress", "usage": None, "error": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for number, item in enumerate(final["output"]):
        yield from _item_events(number, item, reply.pieces)
    yield {"type": f"response.{final['status']}", "response": final}


def _item_events(number: int, item: Item, pieces: int) -> Iterator[dict[str, Any]]:
    at = {"item_id": item.get("id", f"item_{number}"), "output_index": number}
    kind = item["type"]
    empty = {"message": {"content": []}, "reasoning": {"summary": []}}
    bare = {**empty.get(kind, {}), "arguments": ""} if kind == "function_call" else empty.get(kind)
    yield {
        "type": "response.output_item.added",
        "output_index": number,
        "item": {**item, **(bare or {}), "status": "in_progress"},
    }
    if kind == "message":
        for index, part in enumerate(item["content"]):
            where = {**at, "content_index": index}
            yield {"type": "response.content_part.added", **where, "part": {"type": part["type"]}}
            name = "refusal" if part["type"] == "refusal" else "output_text"
            said = part["refusal" if name == "refusal" else "text"]
            for piece in _pieces(said, pieces):
                yield {"type": f"response.{name}.delta", **where, "delta": piece, "logprobs": []}
            key = "refusal" if name == "refusal" else "text"
            yield {"type": f"response.{name}.done", **where, key: said}
    elif kind == "reasoning":
        for index, part in enumerate(item["summary"]):
            where = {**at, "summary_index": index}
            for piece in _pieces(part["text"], pieces):
                kind_ = "response.reasoning_summary_text.delta"
                yield {"type": kind_, **where, "delta": piece, "obfuscation": "xYz"}
    elif kind == "function_call":
        for piece in _pieces(item["arguments"], pieces):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        said = item["arguments"]
        yield {"type": "response.function_call_arguments.done", **at, "arguments": said}
    else:
        name = kind
        yield {"type": f"response.{name}.in_progress", **at}
        yield {"type": f"response.{name}.completed", **at}
    yield {"type": "response.output_item.done", "output_index": number, "item": item}


def _pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // count))
    for start in range(0, len(text), size):
        yield text[start : start + size]


# --- what is refused

_FIELDS = {
    *("model", "input", "instructions", "tools", "tool_choice", "stream", "store", "include"),
    *("reasoning", "text", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls"),
    *("metadata", "prompt_cache_key", "service_tier", "truncation", "max_tool_calls", "user"),
}
_INCLUDES = {
    *("reasoning.encrypted_content", "web_search_call.action.sources"),
    *("file_search_call.results", "code_interpreter_call.outputs"),
}
_WITH_ID = {"file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
_ITEM_FIELDS = {
    "message": {"type", "role", "content", "phase", "status"},
    "reasoning": {"type", "summary", "content", "encrypted_content", "status"},
    "function_call": {"type", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "call_id", "output"},
    "web_search_call": {"type", "action", "status"},
    "code_interpreter_call": {"type", "id", "code", "container_id", "outputs", "status"},
    "mcp_list_tools": {"type", "id", "server_label", "tools"},
}
_PARTS = {
    "user": {"input_text", "input_image", "input_file"},
    "assistant": {"output_text", "refusal"},
    "system": {"input_text"},
}


def problem_with(body: Body) -> str:
    """Why a real server refuses this request, or ""."""
    unknown = body.keys() - _FIELDS
    if unknown:
        return f"Unknown parameter: {sorted(unknown)}"
    if not isinstance(body.get("model"), str) or not body.get("input"):
        return "model and input are required"
    if body.get("store") is not False:
        return "this server stores nothing: store must be false"
    if set(body.get("include", ())) - _INCLUDES:
        return f"Invalid include: {body['include']}"
    if "tool_choice" in body and not body.get("tools"):
        return "Tool choice is only allowed when 'tools' are specified."
    shape = body.get("text", {}).get("format")
    if shape is not None:
        if not isinstance(shape.get("name"), str) or not isinstance(shape.get("strict"), bool):
            return f"text.format is not whole: {shape}"
        problem = _problem_with_schema(shape["schema"]) if shape["strict"] else ""
        if problem:
            return f"Invalid schema for response_format: {problem}"
    return _problem_with_tools(body) or _problem_with_input(body["input"])


def _problem_with_tools(body: Body) -> str:
    tools = body.get("tools")
    if tools == []:
        return "tools must not be empty"
    names = []
    for tool in tools or ():
        if tool["type"] != "function":
            continue
        if tool.keys() - {"type", "name", "description", "parameters", "strict"}:
            return f"Unknown parameter in a tool: {tool.keys()}"
        if not isinstance(tool.get("strict"), bool):
            return f"Missing required parameter: strict of {tool['name']}"
        problem = _problem_with_schema(tool["parameters"]) if tool["strict"] else ""
        if problem:
            return f"Invalid schema for function {tool['name']!r}: {problem}"
        names.append(tool["name"])
    if len(set(names)) != len(names):
        return f"repeated tool names: {names}"
    choice = body.get("tool_choice")
    named = choice.get("name") if isinstance(choice, dict) else None
    return f"Tool choice {named!r} not found" if named and named not in names else ""


def _problem_with_schema(schema: Any) -> str:
    """Why strict mode refuses a schema; written independently of nbagent's own check."""
    if isinstance(schema, list):
        return next(filter(None, map(_problem_with_schema, schema)), "")
    if not isinstance(schema, dict):
        return ""
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            return "'additionalProperties' is required to be supplied and to be false"
        if set(schema.get("required", ())) != set(schema.get("properties", ())):
            return "'required' is required to include every key in properties"
    bad = {"default", "allOf", "oneOf", "not", "minLength", "maxLength", "patternProperties"}
    if bad & schema.keys():
        return f"{sorted(bad & schema.keys())} is not permitted"
    inside = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    return _problem_with_schema([*inside, schema.get("items"), schema.get("anyOf")])


def _problem_with_input(items: list[Item]) -> str:
    waiting: list[str] = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        problem = _problem_with_item(kind, item)
        if problem:
            return f"input[{index}]: {problem}"
        if kind == "function_call":
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in waiting:
                return (
                    f"No tool call found for function call output with call_id {item['call_id']}."
                )
            waiting.remove(item["call_id"])
        elif waiting and kind == "message" and item["role"] != "assistant":
            return f"No tool output found for function call {waiting[0]}."
        if kind == "reasoning":
            after = items[index + 1] if index + 1 < len(items) else {}
            if base64.b64decode(item["encrypted_content"]) != json.dumps(_mark(after)).encode():
                return "Item of type 'reasoning' was provided without its required following item."
    return f"No tool output found for function call {waiting[0]}." if waiting else ""


def _problem_with_item(kind: str, item: Item) -> str:
    known = _ITEM_FIELDS.get(kind)
    if known is None:
        return f"Invalid value: {kind!r}"
    if "id" in item and kind not in _WITH_ID | {"mcp_list_tools"}:
        return (
            f"Item with id {item['id']!r} not found. Items are not persisted when `store` is set to "
            "false."
        )
    if item.keys() - known:
        return f"Unknown parameter: {sorted(item.keys() - known)}"
    if kind in _WITH_ID and "id" not in item:
        return "Missing required parameter: id"
    return _problem_with_value(kind, item)


def _problem_with_value(kind: str, item: Item) -> str:
    if kind == "message":
        return _problem_with_message(item)
    if kind == "reasoning" and not (item.get("encrypted_content") and "summary" in item):
        return "a reasoning item needs its summary and, as nothing is stored, its encrypted content"
    if kind == "function_call":
        try:
            arguments = json.loads(item["arguments"])
        except ValueError:
            return "the arguments are no JSON"
        return "" if isinstance(arguments, dict) and item["call_id"] else "arguments, call_id"
    if kind == "function_call_output" and not isinstance(item["output"], str):
        return _problem_with_parts(item["output"], _PARTS["user"])
    return ""


def _problem_with_message(item: Item) -> str:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        return f"Invalid role {role!r}"
    if isinstance(content, str):
        return "" if "phase" not in item or role == "assistant" else "phase is the assistant's"
    return _problem_with_parts(content, _PARTS[role])


def _problem_with_parts(parts: Any, kinds: set[str]) -> str:
    if not isinstance(parts, list) or not parts:
        return "content must be a string or a list of parts"
    for part in parts:
        if part["type"] not in kinds:
            return f"Invalid value: {part['type']!r}. Supported values are: {sorted(kinds)}."
        needed = {"input_image": "image_url", "input_file": "file_data", "refusal": "refusal"}
        if not isinstance(part.get(needed.get(part["type"], "text")), str):
            return f"a part of {part['type']} is not whole"
    return ""


def looping(
    turns: int, text: str = "done", pieces: int = 1, calls: int = 1
) -> Callable[[Body], Reply]:
    """Call the first tool until there are ``turns`` turns after the last user message."""

    def reply(body: Body) -> Reply:
        done = 0
        for item in reversed(body["input"]):
            if item.get("role") == "user":
                break
            done += item.get("type") == "function_call_output"
        if done >= turns * calls:
            return Reply(text, pieces=pieces)
        name = body["tools"][0]["name"]
        return Reply(calls=[(name, {"n": number}) for number in range(calls)])

    return reply
