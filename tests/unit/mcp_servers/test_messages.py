"""HTTP messages of a server are measured before a parser gets their end."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.base.incoming_json import MAX_PARTS, TooManyParts
from nbagent.mcp_servers.connection import (
    MAX_ASKED,
    MAX_CONTENT,
    _Events,
    _Message,
    _shorten,
    _without_excess,
)
from nbagent.mcp_servers.process import MAX_LINE

MANY = json.dumps([1] * (MAX_PARTS + 1))
FEW = json.dumps(["[,:{" * MAX_PARTS, {"a": 1}])
"""As many punctuation marks, but nearly all inside a string."""


def event(text: str, end: str, lines: int, before: str) -> bytes:
    """One event with data in several lines, since JSON may be cut at its commas."""
    commas = (at for at in range(1, len(text)) if text[at - 1] == ",")
    cuts = [0, *islice(commas, lines - 1), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(cuts)]
    return (before + end + "".join(f"data: {each}{end}" for each in pieces) + end).encode()


def feed(events: _Events, pieces: list[bytes]) -> None:
    for piece in pieces:
        events.count(piece)


@given(
    st.lists(st.sampled_from([MANY, FEW, "[]"]), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 4),
    st.sampled_from(["event: message", 'id: "', ": \\", 'event: "message']),
    st.lists(st.integers(1, 300_000), max_size=8),
)
def test_the_size_of_an_event_is_counted_however_it_arrives(texts, end, lines, before, sizes):
    """For any pieces, line ends and other fields, an event with too many parts is refused."""
    data = b"".join(event(text, end, lines, before) for text in texts)
    events, at = _Events(), 0
    wrong = MANY in texts
    try:
        for size in [*sizes, len(data)]:
            events.count(data[at : at + size])
            at += size
        events.end()
    except TooManyParts:
        assert wrong
    else:
        assert not wrong


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_end_split_over_two_chunks_is_one(end):
    """The line end is found wherever it was split."""
    data = event(MANY, end, 1, "")
    for back in range(len(end) * 2 + 1):
        events = _Events()
        pieces = [data[: len(data) - back], data[len(data) - back :] + b"data: 1"]
        with pytest.raises(TooManyParts):
            feed(events, pieces)


def test_an_endless_event_is_refused():
    """Bytes and lines are limited, as parts are."""
    for piece in (b"data: " + b"x" * 1_000_000, b": x\n" * 200_000):
        events = _Events()
        with pytest.raises(TooManyParts, match=r"16,000,000 bytes|lines"):
            feed(events, [*[piece] * (MAX_LINE // len(piece) + 1), b"\n\n"])


@given(st.sampled_from([MANY, FEW, "[]"]), st.lists(st.integers(1, 300_000), max_size=8))
def test_the_size_of_a_body_is_counted_at_its_end(text, sizes):
    """For pieces of any size."""
    whole, data, at = _Message(), text.encode(), 0
    for size in [*sizes, len(data)]:
        whole.count(data[at : at + size])
        at += size
    if text == MANY:
        with pytest.raises(TooManyParts):
            whole.end()
    else:
        whole.end()


def test_lists_of_models_are_truncated_before_models_are_created():
    """A result's content and questions are cut; too large messages for a model are dropped."""
    part = {"type": "text", "text": "x"}
    result: dict[str, Any] = {
        "content": [part] * 30_000,
        "inputRequests": {str(key): {} for key in range(9_000)},
    }
    _shorten(result)
    assert len(result["content"]) == MAX_CONTENT + 1
    assert result["content"][-1]["text"] == "[29,800 more parts were left out]"
    assert len(result["inputRequests"]) == 21
    params: dict[str, Any] = {
        "messages": [{"role": "user", "content": [part] * MAX_ASKED}],
        "tools": [{}],
    }
    _without_excess(params)
    assert params == {"messages": [], "tools": [{}]}
