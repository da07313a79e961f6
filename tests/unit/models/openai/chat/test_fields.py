"""A server's own fields are the same for any division into chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.base.model import Finished, ToolCallDelta
from nbagent.models.openai.chat import ChatParser
from nbagent.models.openai.stream import BrokenStream

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["reasoning.text", "reasoning.summary"]), "text": TEXTS},
        optional={"id": TEXTS, "format": TEXTS, "signature": TEXTS},
    ),
    max_size=3,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_details": ITEMS,
        "extra_content": st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS), min_size=1),
        "text": TEXTS,
        "odd": st.integers(1) | st.booleans() | st.lists(st.integers(), min_size=1),
    },
)


def pieces_of(fields: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """The fields as streamed by a server: texts in pieces, labels in each piece, the rest at once."""
    streamed: list[dict[str, Any]] = []
    for key, value in fields.items():
        if key == "reasoning_details":
            for item in value:
                labels = {k: v for k, v in item.items() if k not in ("text", "signature")}
                text = item["text"]
                cuts = [text[at : at + size] for at in range(0, len(text), size)]
                streamed += [{key: [{**labels, "text": cut}]} for cut in cuts]
                if "signature" in item:
                    bare = {"index": item["index"], "signature": item["signature"]}
                    streamed.append({key: [bare]})
        elif key == "text":
            streamed += [{key: value[at : at + size]} for at in range(0, len(value), size)]
        else:
            streamed.append({key: value})
    return streamed


def provider_data(parser: ChatParser) -> Any:
    finished = parser.finished()
    assert isinstance(finished, Finished)
    return finished.provider


@given(fields=FIELDS, size=st.integers(1, 5))
def test_fields_are_the_same_streamed_and_whole(fields: dict[str, Any], size: int) -> None:
    """Texts are joined, numbered items merged, labels kept once, and the rest unchanged."""
    for number, item in enumerate(fields.get("reasoning_details", ())):
        item["index"] = number
    fields = {key: value for key, value in fields.items() if value != []}
    streamed, whole = ChatParser("p"), ChatParser("p")
    for delta in pieces_of(fields, size):
        streamed.chunk({"choices": [{"delta": delta}]})
    streamed.chunk({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    answer = {"choices": [{"message": {"content": "x", **fields}, "finish_reason": "stop"}]}
    whole.response(json.dumps(answer).encode())
    expected = {"name": "p", "data": {"fields": fields}} if fields else None
    assert provider_data(whole) == expected
    assert provider_data(streamed) == expected


PIECES = {
    "thoughts end where they are signed": (
        [
            {"blocks": [{"type": "thinking", "thinking": "a", "signature": ""}]},
            {"blocks": [{"type": "thinking", "thinking": "b", "signature": ""}]},
            {"blocks": [{"type": "thinking", "thinking": "", "signature": "s"}]},
            {"blocks": [{"type": "thinking", "thinking": "c", "signature": "t"}]},
            {"blocks": [{"type": "redacted_thinking", "data": "d"}]},
        ],
        {
            "blocks": [
                {"type": "thinking", "thinking": "ab", "signature": "s"},
                {"type": "thinking", "thinking": "c", "signature": "t"},
                {"type": "redacted_thinking", "data": "d"},
            ]
        },
    ),
    "one number and two types": (
        [{"d": [{"index": 0, "type": "x", "data": "1"}]}, {"d": [{"index": 0, "type": "y"}]}],
        {"d": [{"index": 0, "type": "x", "data": "1"}, {"index": 0, "type": "y"}]},
    ),
    "a label in each piece is said once": ([{"phase": "final"}] * 3, {"phase": "final"}),
    "a text of equal pieces is joined": ([{"summary": "ha"}] * 2, {"summary": "haha"}),
    "of numbers and kinds the last counts": ([{"n": 1}, {"n": [2]}, {"n": 3}], {"n": 3}),
    "nothing and empty things are nothing": ([{"a": None, "b": "", "c": [], "d": {}}], None),
    "what no request takes is left out": (
        [{"annotations": [1], "audio": {"id": "x"}, "refusal": "no", "function_call": {"name": "f"}}],
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_streamed_pieces_are_merged_into_the_intended_value(name: str) -> None:
    """Each case is streamed by some server."""
    deltas, fields = PIECES[name]
    parser = ChatParser("p")
    for delta in deltas:
        parser.chunk({"choices": [{"delta": delta}]})
    parser.chunk({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert provider_data(parser) == (fields and {"name": "p", "data": {"fields": fields}})


def test_fields_of_a_call_are_reported_once_it_is_complete() -> None:
    """Fields of the function count too; calls without fields have none, and the answer names the provider."""
    parser = ChatParser("p")
    head = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "", "mark": {"m": 1}}}
    deltas = [head, {"index": 0, "extra_content": {"g": {"s": "x"}}}, {"index": 1, "id": "b"}]
    for delta in deltas:
        assert not any(
            d.provider for d in parser.chunk({"choices": [{"delta": {"tool_calls": [delta]}}]})
        )
    last = parser.chunk({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    fields = {"extra_content": {"g": {"s": "x"}}, "function": {"mark": {"m": 1}}}
    assert last == [ToolCallDelta(0, provider={"fields": fields})]
    assert provider_data(parser) == {"name": "p"}


def test_fields_that_arrive_after_the_end_are_limited_each_time_that_they_are_passed_on() -> None:
    """The fields of a call are passed on whole, so a server could make them quadratic work."""
    parser = ChatParser("p")
    call = {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}
    parser.chunk({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]})
    more = {"choices": [{"delta": {"tool_calls": [{"index": 0, "text": "x" * 1_000}]}}]}
    with pytest.raises(BrokenStream, match="provider data is longer"):
        list(map(parser.chunk, [more] * 200))
