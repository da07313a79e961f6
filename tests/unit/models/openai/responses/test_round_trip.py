"""The items of any response are sent back unchanged, for any chunking, and the server accepts them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.base.messages import Message
from nbagent.core.engine.response import Collected
from nbagent.core.state.fold import apply
from nbagent.core.state.state import RunState
from nbagent.models.openai.responses import ResponsesParser, encode_message
from tests.integration.responses_server import (
    Items,
    ResponsesServer,
    events,
    problem_with,
    response,
    sealed,
)

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PHASES = st.sampled_from([None, "commentary", "final_answer"])


@st.composite
def messages(draw: Any) -> dict[str, Any]:
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(["output_text", "refusal"]), WORDS), min_size=1, max_size=3
        )
    )
    content = [
        {"type": kind, ("refusal" if kind == "refusal" else "text"): text} for kind, text in parts
    ]
    phase = draw(PHASES)
    item = {"type": "message", "role": "assistant", "content": content}
    return {**item, "phase": phase} if phase else item


@st.composite
def reasoning(draw: Any) -> dict[str, Any]:
    texts = draw(st.lists(WORDS, max_size=3))
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in texts]}


@st.composite
def calls(draw: Any) -> dict[str, Any]:
    value = draw(st.dictionaries(WORDS, st.integers() | WORDS, max_size=2))
    arguments = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"type": "function_call", "name": "look", "arguments": arguments}


SEARCH = {
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
RESPONSES = st.lists(messages() | reasoning() | calls() | st.just(SEARCH), max_size=6)


def numbered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items as the server sends them: calls with ids, reasoning sealed with the next item."""
    made = [dict(item) for item in items]
    for number, item in enumerate(made):
        if item["type"] == "function_call":
            item["call_id"] = f"call_{number}"
    for item, after in zip(made, [*made[1:], {}], strict=False):
        if item["type"] == "reasoning":
            item["encrypted_content"] = sealed(after)
    return made


def stored_message(parser: ResponsesParser, pieces: list[Any]) -> Message:
    """The message that the engine stores, after JSON."""
    collected = Collected({})
    for batch in pieces:
        for delta in batch:
            collected.add(delta)
    finished = parser.finished()
    assert finished is not None
    collected.add(finished)
    state = apply(RunState(), collected.event(0.0, (), scope=()))
    return Message(json.loads(json.dumps(state.messages[-1])))


@settings(max_examples=150)
@given(RESPONSES, st.sampled_from([1, 7, 1_000_000]), st.booleans())
def test_items_are_sent_back_as_they_were_received(items: Any, size: int, whole: bool) -> None:
    """Except ids and reasoning at the end: texts and inputs come from the message."""
    sent = numbered(items)
    with_ids = [{"id": f"item_{n}", **item} for n, item in enumerate(sent)]
    body = {"model": "m", "input": [{"role": "user", "content": "go"}], "store": False}
    reply, parser = Items(output=with_ids), ResponsesParser("here/responses")
    if whole:
        batches = [parser.response(json.dumps(response(body, reply)).encode())]
    else:
        data = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events(body, reply))
        batches = [parser.feed(data[at : at + size]) for at in range(0, len(data), size)]
    message = stored_message(parser, batches)
    encoded = encode_message(message, "here/responses")
    back = json.loads(b"[" + encoded + b"]")
    while sent and sent[-1]["type"] == "reasoning":
        sent.pop()
    plain = [_with_remembered(item) for item in back]
    assert plain == [_with_remembered(item) for item in sent]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "1"}
        for item in back
        if item.get("type") == "function_call"
    ]
    again = {**body, "input": [{"role": "user", "content": "go"}, *back, *results]}
    if sent:
        assert (
            problem_with({**again, "input": [*again["input"], {"role": "user", "content": "?"}]})
            == ""
        )
    other = json.loads(b"[" + encode_message(message, "elsewhere") + b"]")
    assert all(item.get("type", "message") in ("message", "function_call") for item in other)


def _with_remembered(item: dict[str, Any]) -> dict[str, Any]:
    """The item with its plain text as a content part."""
    if isinstance(item.get("content"), str):
        part = {"type": "output_text", "text": item["content"]}
        return {"type": "message", "role": item["role"], "content": [part]}
    return item


def test_the_test_server_refuses_what_the_real_one_refuses() -> None:
    """A test server that accepts everything would prove nothing."""
    ask = {"role": "user", "content": "go"}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "c", "output": "1"}
    thought = {"type": "reasoning", "summary": [], "encrypted_content": sealed(call)}
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    good = {"model": "m", "store": False, "input": [ask, thought, call, told]}
    assert problem_with(good) == ""
    bad: list[dict[str, Any]] = [
        {"input": [ask, call]},
        {"input": [ask, told]},
        {"input": [ask, call, ask, told]},
        {"input": [ask, thought, ask]},
        {"input": [ask, {**call, "id": "fc_1"}, told]},
        {"input": [ask, {**thought, "id": "rs_1"}, call, told]},
        {"input": [ask, {"type": "reasoning", "summary": []}, call, told]},
        {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"store": True},
        {"messages": []},
        {"tools": [function]},
        {"tools": [{**function, "strict": True}]},
        {"tool_choice": "required"},
        {"include": ["everything"]},
    ]
    assert [problem_with({**good, **change}) == "" for change in bad] == [False] * len(bad)
    with ResponsesServer(reasons=False) as server:
        assert server.problem_with({**good, "include": ["reasoning.encrypted_content"]})
