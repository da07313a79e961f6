"""Server-sent events and chat chunks, for any chunking and any server's dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.base.model import (
    Finished,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from nbagent.models.openai.chat import BrokenStream, ChatParser
from nbagent.models.openai.stream import SSEDecoder


def chunked(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def sse(*chunks: dict[str, Any] | bytes) -> bytes:
    data = [c if isinstance(c, bytes) else json.dumps(c).encode() for c in chunks]
    return b"".join(b"data: " + item + b"\n\n" for item in data)


def parsed(parts: Sequence[bytes]) -> tuple[list[ModelDelta], Finished | None]:
    parser = ChatParser()
    deltas = [delta for part in parts for delta in parser.feed(part)]
    return deltas, parser.finished()


def folded(deltas: Sequence[ModelDelta]) -> tuple[str, str, dict[int, list[str]]]:
    """Text, reasoning, and each call's id, name and arguments."""
    said = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    thought = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, ["", "", ""])
            for place, piece in enumerate((delta.id, delta.name, delta.arguments)):
                call[place] += piece or ""
    return said, thought, calls


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)
CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(
    events=st.lists(st.lists(LINES, min_size=1, max_size=3), max_size=6),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    space=st.sampled_from(["", " "]),
    cuts=CUTS,
)
def test_events_are_the_same_in_any_chunking(
    events: list[list[str]], newline: str, space: str, cuts: list[int]
) -> None:
    """A cut may be inside a character or a line end; comments and other fields are skipped."""
    text = f": hello{newline}"
    for lines in events:
        data = newline.join(f"data:{space}{line}" for line in lines)
        text += f"event: x{newline}{data}{newline}id: 1{newline}{newline}"
    decoder = SSEDecoder()
    found = [data for part in chunked(text.encode(), cuts) for data in decoder.feed(part)]
    # without a space after "data:", a line's first space is dropped
    own = [[line if space else line.removeprefix(" ") for line in lines] for lines in events]
    assert found == ["\n".join(lines).encode() for lines in own]


@given(
    texts=st.lists(st.text(max_size=8), max_size=8),
    arguments=st.lists(st.dictionaries(st.text(max_size=4), st.integers(), max_size=3), max_size=3),
    cuts=CUTS,
)
def test_a_response_is_the_same_in_any_chunking(
    texts: list[str], arguments: list[dict[str, int]], cuts: list[int]
) -> None:
    """Text, reasoning and interleaved parallel calls are complete."""
    whole = [json.dumps(value) for value in arguments]
    chunks = [chunk({"role": "assistant", "content": ""})]
    for text in texts:
        chunks += [chunk({"reasoning_content": text.upper()}), chunk({"content": text})]
    for index, _ in enumerate(whole):
        head = {
            "index": index,
            "id": f"c{index}",
            "function": {"name": f"f{index}", "arguments": ""},
        }
        chunks.append(chunk({"tool_calls": [head]}))
    for place in range(max(map(len, whole), default=0)):
        for index, text in enumerate(whole):
            piece = {"index": index, "function": {"arguments": text[place : place + 1]}}
            chunks.append(chunk({"tool_calls": [piece]}))
    chunks.append(chunk({}, "tool_calls" if whole else "stop"))
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.5}
    data = sse(*chunks, {"choices": [], "usage": usage}, b"[DONE]")
    deltas, finished = parsed(chunked(data, cuts))
    said, thought, calls = folded(deltas)
    assert said == "".join(texts)
    assert thought == "".join(text.upper() for text in texts)
    assert calls == {i: [f"c{i}", f"f{i}", text] for i, text in enumerate(whole)}
    reason = "tool_calls" if whole else "stop"
    own = {"name": "", "data": {"reasoning": "reasoning_content"}} if texts else None
    assert finished == Finished(reason, Usage(3, 4, 0.5), "m", own)


def test_chunks_that_arrive_together_are_one_delta() -> None:
    """A burst is one delta for the view, not one for each token."""
    data = sse(*(chunk({"content": f"{n} "}) for n in range(100)))
    deltas, _ = parsed([data])
    assert deltas == [TextDelta("".join(f"{n} " for n in range(100)))]


def call(
    index: int | None, call_id: str | None, name: str | None, arguments: Any
) -> dict[str, Any]:
    raw: dict[str, Any] = {"function": {"arguments": arguments}}
    raw |= {} if index is None else {"index": index}
    raw |= {} if call_id is None else {"id": call_id}
    raw["function"] |= {} if name is None else {"name": name}
    return chunk({"tool_calls": [raw]})


DIALECTS = {
    "index 0 for every call, with ids": (
        [call(0, "a", "f", "{}"), call(0, "b", "g", "{}")],
        [["a", "f", "{}"], ["b", "g", "{}"]],
    ),
    "no index, with ids": (
        [call(None, "a", "f", '{"x":'), call(None, "a", None, "1}"), call(None, "b", "g", "{}")],
        [["a", "f", '{"x":1}'], ["b", "g", "{}"]],
    ),
    "no index, no ids": (
        [call(None, None, "f", "{}"), call(None, None, "f", "{}")],
        [["", "f", "{}"], ["", "f", "{}"]],
    ),
    "empty ids, whole calls": (
        [call(0, "", "f", '{"x":1}'), call(1, "", "f", '{"x":1}')],
        [["", "f", '{"x":1}'], ["", "f", '{"x":1}']],
    ),
    "one id at two indexes": (
        [call(0, "a", "f", "{}"), call(1, "a", "g", "{}")],
        [["a", "f", "{}"], ["a", "g", "{}"]],
    ),
    "id and name repeated in each piece": (
        [call(0, "a", "f", '{"x":'), call(0, "a", "f", "1}")],
        [["a", "f", '{"x":1}']],
    ),
    "the name repeated, no id": (
        [call(0, None, "f", '{"x":'), call(0, None, "f", "1}")],
        [["", "f", '{"x":1}']],
    ),
    "the id late": (
        [call(0, None, "f", '{"x":'), call(0, "a", None, "1}")],
        [["a", "f", '{"x":1}']],
    ),
    "arguments as an object": ([call(0, "a", "f", {"x": 1})], [["a", "f", '{"x":1}']]),
    "no arguments at all": ([call(0, "a", "f", None)], [["a", "f", ""]]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_calls_are_distinguished_in_every_dialect(dialect: str) -> None:
    """Servers number and name calls differently; each call stays one call."""
    chunks, expected = DIALECTS[dialect]
    deltas, finished = parsed([sse(*chunks, chunk({}, "stop"))])
    assert list(folded(deltas)[2].values()) == expected
    assert finished is not None
    assert finished.reason == "tool_calls"


SAYS = {
    "reasoning": (chunk({"reasoning": "hm"}), ReasoningDelta("hm")),
    "refusal": (chunk({"refusal": "no"}), TextDelta("no")),
    "content in parts": (
        chunk({"content": [{"type": "text", "text": None}, {"type": "text", "text": "hi"}]}),
        TextDelta("hi"),
    ),
    "content as a value": (chunk({"content": {"n": [True]}}), TextDelta('{"n":[true]}')),
}


@pytest.mark.parametrize("kind", SAYS)
def test_text_is_found_in_every_field_that_servers_use(kind: str) -> None:
    """Reasoning, refusals and content parts have their own fields."""
    value, delta = SAYS[kind]
    assert parsed([sse(value)]) == ([delta], None)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("eos", "other"),
    ],
)
def test_an_unknown_finish_reason_is_reported_as_other(finish: str, reason: str) -> None:
    """An unknown reason never ends a run with an error."""
    assert parsed([sse(chunk({"content": "x"}, finish))])[1] == Finished(reason, Usage(), "m")


def test_a_stream_that_ends_without_a_finish_reason_is_not_finished() -> None:
    """Only a finish reason or [DONE] shows that the answer is complete."""
    assert parsed([sse(chunk({"content": "half"}))])[1] is None
    assert parsed([sse(chunk({"content": "whole"}), b"[DONE]")])[1] is not None


BAD = {
    "not JSON": (b"{oops", True),
    "not an object": (b"[1]", True),
    "an error": (b'{"error": {"message": "overloaded"}}', True),
    "an error as text": (b'{"error": "overloaded"}', True),
    "a refusal": (b'{"error": {"type": "invalid_request_error", "message": "bad"}}', False),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_invalid_answer_breaks_the_stream(kind: str) -> None:
    """The data is never text, and a retry happens only if it may help."""
    data, again = BAD[kind]
    with pytest.raises(BrokenStream) as caught:
        parsed([sse(data)])
    assert caught.value.again is again


@pytest.mark.parametrize("finish", ["abort", "cancelled", "timeout"])
def test_an_answer_that_the_server_aborted_breaks_the_stream(finish: str) -> None:
    """A call whose arguments are missing must not run with its defaults."""
    call = {"index": 0, "id": "a", "function": {"name": "wipe", "arguments": ""}}
    with pytest.raises(BrokenStream, match="could not finish") as caught:
        parsed([sse(chunk({"tool_calls": [call]}, finish))])
    assert caught.value.again


def test_an_answer_without_choices_is_an_error() -> None:
    """A whole response must hold an answer."""
    with pytest.raises(BrokenStream, match="no choices"):
        ChatParser().response(b'{"choices": []}')
