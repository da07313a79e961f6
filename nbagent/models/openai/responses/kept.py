"""What the API wants back with the history: the items of a response in their order.

A message of the history has the texts and the calls already; here stands only which piece of them each item
is. Where they do not fit any more (somebody changed the history), the message goes out as plain text and
calls. Ids are left out: under ``store=False`` the server knows none, and looks those up that it gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Span = tuple[str, int, int]
"""The kind of a part, and where its text begins and ends in the text of its message."""
_NO_ID = ("web_search_call",)
"""Items of hosted calls that may have none."""
_OF_CALL = ("namespace", "caller")
"""Fields of a function call that its server wants back."""


class Kept(NamedTuple):
    """The items of one response, and how long its texts are."""

    items: Sequence[Any]
    """As the functions below make them; None for one that does not go back."""
    text: int
    reasoning: int

    @staticmethod
    def message(spans: Sequence[Span], phase: str | None) -> dict[str, Any]:
        """A message."""
        kept: dict[str, Any] = {"message": [list(span) for span in spans]}
        return {**kept, "phase": phase} if phase else kept

    @staticmethod
    def reasoning_of(spans: Sequence[Span], encrypted: str | None) -> dict[str, Any] | None:
        """Reasoning, where it can be read without the server's own copy."""
        if not encrypted and not any(kind == "content" for kind, _, _ in spans):
            return None
        kept: dict[str, Any] = {"reasoning": [list(span) for span in spans]}
        return {**kept, "encrypted_content": encrypted} if encrypted else kept

    @staticmethod
    def call(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """A function call, by its number."""
        return {"call": index, **{name: item[name] for name in _OF_CALL if item.get(name)}}

    @staticmethod
    def item(item: Mapping[str, Any]) -> dict[str, Any]:
        """Any other item, as it came."""
        bare = {name: value for name, value in item.items() if value is not None}
        if item["type"] in _NO_ID:
            bare.pop("id", None)
        return {"item": bare}

    def provider(self, name: str) -> dict[str, Any] | None:
        """The provider's data of the message; None where its text and calls say it all."""
        items = [item for item in self.items if item is not None]
        while items and "reasoning" in items[-1]:
            items.pop()  # nothing followed it, and the server takes none that is torn off
        if _is_plain(items):
            return None
        data = {"items": items, "text": self.text, "reasoning": self.reasoning}
        return {"name": name, "data": data}


def _is_plain(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are at most one message without a mark, and then calls without one."""
    rest = list(items)
    if rest and rest[0].keys() == {"message"}:
        kinds = [kind for kind, _, _ in rest.pop(0)["message"]]
        if kinds not in (["output_text"], []):
            return False
    return all(item == {"call": number} for number, item in enumerate(rest))


def items_of(
    data: Any, text: str, reasoning: str, calls: Sequence[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The items of a message as the server gave them; None where its data do not fit the message.

    Args:
        data: what the message keeps for its provider.
        text: of the message.
        reasoning: likewise.
        calls: its function calls as items, in order.
    """
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
            parts = [{"type": k, _FIELD.get(k, "text"): text[a:b]} for k, a, b in spans]
            item = {"type": "message", "role": "assistant", "content": parts}
            return {**item, "phase": kept["phase"]} if "phase" in kept else item
        case {"reasoning": [*spans]} if _are_spans(spans):
            said: dict[str, list[dict[str, str]]] = {"summary": []}
            for kind, start, end in spans:
                part = {"type": _PART.get(kind, kind), "text": reasoning[start:end]}
                said.setdefault(kind, []).append(part)
            hidden = {k: kept[k] for k in ("encrypted_content",) if k in kept}
            return {"type": "reasoning", **said, **hidden}
        case {"call": int(index)} if 0 <= index < len(calls):
            return {**calls[index], **{name: kept[name] for name in _OF_CALL if name in kept}}
        case {"item": {"type": str(kind)} as item} if not kind.endswith(_TOLD):
            return dict(item)
        case _:
            return None


def _are_spans(spans: Sequence[Any]) -> bool:
    return all(
        isinstance(span, list) and [type(each) for each in span] == [str, int, int]
        for span in spans
    )


_TOLD = ("message", "function_call", "_output", "_response", "reasoning", "item_reference")
"""The ends of the names of items that a history tells by its own parts, which a person sees: as any other item they would say what nobody sees."""
_FIELD = {"refusal": "refusal"}
_PART = {"summary": "summary_text", "content": "reasoning_text"}
