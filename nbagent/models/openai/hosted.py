"""OpenAI's hosted tools: which of them nbagent accepts, and their calls in a form for people.

Format: https://platform.openai.com/docs/guides/tools
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.file_parts import is_base64, is_image
from nbagent.core.base.messages import input_of
from nbagent.core.base.model import Hosted, HostedCall, HostedStatus

HERE = frozenset(
    (
        *("computer_call", "local_shell_call", "apply_patch_call", "custom_tool_call"),
        "mcp_approval_request",
    )
)
"""Types of items that ask this process to act; the model waits for the result."""
_NOT_HOSTED = ("computer", "local_shell", "apply_patch", "custom", "function", "namespace")
"""Prefixes of tools that create the items in ``HERE``, or contain functions."""
INCLUDE = {
    "web_search": "web_search_call.action.sources",
    "file_search": "file_search_call.results",
    "code_interpreter": "code_interpreter_call.outputs",
}
"""The fields to include in the response, so that a person sees a tool's sources and results."""
_STATUS: dict[Any, HostedStatus] = {
    "completed": "done",
    "failed": "failed",
    "incomplete": "failed",
}
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,(.+)", re.DOTALL)


def check(tool: Hosted) -> None:
    """Raise for tools that OpenAI does not run itself, or not without approvals.

    Raises:
        ModelConfigError: the tool is not allowed; the message says what to do instead.
    """
    if tool.kind.startswith(_NOT_HOSTED):
        raise ModelConfigError(
            f"nb.hosted({tool.kind!r}): OpenAI does not run this tool. Pass a function instead"
        )
    if tool.kind == "mcp" and tool.options.get("require_approval") != "never":
        raise ModelConfigError(
            f"nb.hosted('mcp') of {tool.name!r} would ask for approvals during a response, and no person could give them. "
            "Pass require_approval='never' and allowed_tools=[…]"
        )


def hosted_call(item: Mapping[str, Any], id_: str) -> HostedCall | None:
    """The hosted call in an item; None if the item is not a hosted call.

    Raises:
        KeyError, TypeError, AttributeError: the item does not have this API's form.
    """
    kind: str = item["type"]
    if kind == "mcp_list_tools":
        if not item.get("error"):
            return None
        return HostedCall(id_, str(item.get("server_label")), {}, "failed", str(item["error"]))
    name, ends, _ = kind.rpartition("_call")
    if not ends or kind in HERE:
        return None
    input_, details = _details(kind, item)
    status = _STATUS.get(item.get("status") or "", "running")
    if kind == "mcp_call":
        name = f"{item.get('server_label')}/{item.get('name')}"
        status = "failed" if item.get("error") else status
    return HostedCall(id_, name, input_, status, **details)


def _details(kind: str, item: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The input of a call, and its other details."""
    match kind:
        case "web_search_call":
            action = item.get("action") or {}
            queries = action.get("queries") or [action.get("query")]
            asked = {"query": queries[0]} if len(queries) == 1 else {"queries": queries}
            asked |= {"url": action.get("url"), "pattern": action.get("pattern")}
            urls = (if_text(each.get("url")) for each in action.get("sources") or ())
            return _present(asked), {"sources": [{"url": url} for url in urls if url]}
        case "file_search_call":
            found = dict.fromkeys(
                if_text(each.get("filename")) for each in item.get("results") or ()
            )
            files = [{"url": "", "title": name} for name in found if name]
            return _present({"queries": item.get("queries")}), {"sources": files}
        case "code_interpreter_call":
            outputs = item.get("outputs") or ()
            logs = [each["logs"] for each in outputs if each.get("type") == "logs"]
            images = [each.get("url") for each in outputs if each.get("type") == "image"]
            data = [_DATA_URL.fullmatch(url) for url in images if isinstance(url, str)]
            pictures = [_picture(each[1], each[2]) for each in data if each]
            output = "\n".join(logs) or None
            code = _present({"code": item.get("code")})
            return code, {"output": output, "files": [each for each in pictures if each]}
        case "image_generation_call":
            made = _picture(f"image/{item.get('output_format') or 'png'}", item.get("result"))
            error = if_text((item.get("error") or {}).get("message"))
            prompt = _present({"prompt": item.get("revised_prompt")})
            return prompt, {"files": [made] if made else [], "output": error}
        case "mcp_call":
            error = item.get("error")
            output = str(error.get("message") or error) if isinstance(error, Mapping) else error
            result = if_text(output or item.get("output"))
            return input_of(item.get("arguments")), {"output": result}
        case _:
            return {}, {}


def _picture(kind: str, data: Any) -> dict[str, Any] | None:
    """A file part; None if it is not a picture that a page can show."""
    part = {"type": "file", "media_type": kind, "data": data}
    is_sound = isinstance(data, str) and data and len(data) % 4 == 0 and is_base64(data)
    return part if is_sound and is_image(part) else None


def if_text(value: Any) -> str | None:
    """A text; None for other values."""
    return value if isinstance(value, str) else None


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
