"""Messages in the formats of other libraries, recognized by fields that only these formats have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nbagent.core.base.errors import MessagesError

_CHAT = "pass messages of Chat Completions, as in {'role': 'user', 'content': 'Hi'}"
_LANGCHAIN = "convert them with langchain_core.messages.convert_to_openai_messages(messages)"


def check_dialect(at: str, value: Any) -> None:
    """Raise if a message is in another library's format.

    Raises:
        MessagesError: the message is in such a format; the error names the library and what to do.
    """
    for library, advice, fits in _DIALECTS:
        if fits(value):
            raise MessagesError(
                f"{at} looks like a message of {library}, which this function does not read: {advice}. Got {value!r:.80}"
            )


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and [type(each) for each in value] == [str, str]


def _is_langchain(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    is_plain = "role" not in value and {"data", "content"} & value.keys()
    is_typed = value.get("type") in ("human", "ai", "system", "tool", "function")
    return bool(("lc" in value and "kwargs" in value) or (is_plain and is_typed))


def _is_pydantic_ai(value: Any) -> bool:
    return _has_parts(value) and value.get("kind") in ("request", "response")


def _is_gemini(value: Any) -> bool:
    if not _has_parts(value):
        return False
    return value.get("role") == "model" or not _kinds(value["parts"])


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("parts"), list)


def _is_vercel(value: Any) -> bool:
    return _has_parts(value) or bool(_kinds_in(value) & {"tool-call", "tool-result"})


def _is_anthropic(value: Any) -> bool:
    kinds = _kinds_in(value)
    return "tool_use" in kinds or ("tool_result" in kinds and value.get("role") == "user")


def _is_ours(value: Any) -> bool:
    return bool(_kinds_in(value) & {"tool_call", "tool_result"})


def _kinds_in(value: Any) -> set[Any]:
    """The types of the parts of a message's content."""
    return _kinds(value.get("content")) if isinstance(value, Mapping) else set()


def _kinds(parts: Any) -> set[Any]:
    given = parts if isinstance(parts, list) else []
    found = (part.get("type") for part in given if isinstance(part, Mapping))
    return {kind for kind in found if isinstance(kind, str)}


_DIALECTS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("LangChain, as a pair", _CHAT, _is_pair),
    ("LangChain", _LANGCHAIN, _is_langchain),
    ("Pydantic AI", _CHAT, _is_pydantic_ai),
    ("Gemini's own API", _CHAT, _is_gemini),
    ("Vercel's AI SDK", _CHAT, _is_vercel),
    ("Anthropic's Messages API", _CHAT, _is_anthropic),
    ("nbagent itself", "pass the list to messages= unchanged", _is_ours),
)
"""The library, what to do, and the check; the first match counts."""
