"""Messages: immutable plain data that no model may receive malformed."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from nbagent.core.base.errors import MessagesError
from nbagent.core.base.messages import (
    FrozenDict,
    FrozenList,
    Message,
    canonical,
    check,
    dumps,
    freeze,
    load,
    message,
    user,
)

CALL = {"type": "tool_call", "id": "c", "name": "t", "input": {"a": [1]}}
RESULT = {"type": "tool_result", "id": "c", "name": "t", "output": None}
TEXT = {"type": "text", "text": "x"}


def plain_message(role: str, *parts: Any) -> dict[str, Any]:
    """A message as plain data."""
    return {"role": role, "content": list(parts)}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(role="x"),
        lambda m: m.__setitem__("role", "x"),
        lambda m: m.__delitem__("role"),
        lambda m: m.__ior__({"role": "x"}),
        lambda m: m.pop("role"),
        lambda m: m.popitem(),
        lambda m: m.clear(),
        lambda m: m.setdefault("k", 1),
        lambda m: m["content"].append(1),
        lambda m: m["content"].__iadd__([1]),
        lambda m: m["content"].__imul__(2),
        lambda m: m["content"].__setitem__(0, 1),
        lambda m: m["content"].__delitem__(0),
        lambda m: m["content"].sort(),
        lambda m: m["content"].reverse(),
        lambda m: m["content"].insert(0, 1),
        lambda m: m["content"].extend([1]),
        lambda m: m["content"].remove(1),
        lambda m: m["content"][0]["input"]["a"].append(2),
    ],
)
def test_a_message_never_changes(change):
    """Not at any depth, by any mutator."""
    made = message("assistant", CALL)
    with pytest.raises(TypeError, match="cannot be changed"):
        change(made)
    assert made == plain_message("assistant", CALL)


@pytest.mark.parametrize(
    "through",
    [
        copy.copy,
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: load(json.loads(json.dumps([m])))[0],
        lambda m: load([m])[0],
    ],
)
def test_a_message_is_equal_after_a_round_trip(through):
    """The copy is equal, of the same type, and immutable."""
    made = message("assistant", CALL)
    made.wire = ("x", b"x")
    back = through(made)
    assert back == made
    assert type(back) is Message
    assert type(back["content"]) is FrozenList
    assert type(back["content"][0]["input"]) is FrozenDict


def test_a_pickled_message_leaves_its_wire_bytes_behind():
    """The bytes are a cache of this process."""
    made = user("x")
    made.wire = ("openai", b"x")
    assert pickle.loads(pickle.dumps(made)).wire is None


def test_freezing_twice_copies_nothing():
    """A frozen value is shared."""
    once = freeze({"a": [{"b": 1}]})
    assert freeze(once) is once


MALFORMED = {
    "a text": "hello",
    "one message": {"role": "user", "content": "x"},
    "no message": [5],
    "no role": [{"content": "x"}],
    "another role": [plain_message("robot", TEXT)],
    "no content": [{"role": "user"}],
    "content is a number": [{"role": "user", "content": 5}],
    "part is a text": [plain_message("user", "x")],
    "part without a type": [plain_message("user", {"text": "x"})],
    "unknown part": [plain_message("user", {"type": "video"})],
    "text is no text": [plain_message("user", {"type": "text", "text": None})],
    "call without an id": [
        plain_message("assistant", {"type": "tool_call", "name": "t", "input": {}})
    ],
    "call with a list": [plain_message("assistant", {**CALL, "input": []})],
    "call id is a number": [plain_message("assistant", {**CALL, "id": 5})],
    "result without output": [
        plain_message("user"),
        plain_message("tool", {"type": "tool_result", "id": "c", "name": "t"}),
    ],
    "no json": [plain_message("user", {"type": "text", "text": "x", "more": object()})],
    "nan": [plain_message("user", {"type": "text", "text": "x", "more": float("nan")})],
    "a dangling call": [plain_message("assistant", CALL), plain_message("user", TEXT)],
    "a call answered twice": [
        plain_message("assistant", CALL),
        plain_message("tool", RESULT, RESULT),
    ],
    "answered in two messages": [
        plain_message("assistant", CALL),
        plain_message("tool", RESULT),
        plain_message("tool", RESULT),
    ],
    "an answer to nothing": [plain_message("user", TEXT), plain_message("tool", RESULT)],
    "another answer": [
        plain_message("assistant", CALL),
        plain_message("tool", {**RESULT, "id": "d"}),
    ],
    "out of order": [
        plain_message("assistant", CALL, {**CALL, "id": "d"}),
        plain_message("tool", {**RESULT, "id": "d"}, RESULT),
    ],
    "one id twice": [plain_message("assistant", CALL, CALL), plain_message("tool", RESULT, RESULT)],
    "a type that is no text": [plain_message("user", {"type": []})],
    "a user calls a tool": [plain_message("user", CALL)],
    "a user answers": [
        plain_message("assistant", CALL),
        plain_message("tool", RESULT),
        plain_message("user", RESULT),
    ],
}


@pytest.mark.parametrize("values", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_history_is_refused(values):
    """With an error that says which message is wrong."""
    with pytest.raises(MessagesError, match="messages"):
        load(values)


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["hello"],
        [plain_message("system", TEXT), plain_message("user", TEXT)],
        [plain_message("user", TEXT), plain_message("assistant", TEXT, CALL)],
        [
            plain_message("assistant", CALL),
            plain_message("tool", RESULT),
            plain_message("assistant", {"type": "reasoning", "text": ""}),
        ],
        [{"role": "user", "content": "x"}],
        (plain_message("user", TEXT),),
    ],
)
def test_a_complete_history_is_loaded(values):
    """Also with an open turn at its end, which is a pause."""
    loaded = load(values)
    check(loaded)
    assert all(type(m) is Message for m in loaded)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: object()}])
@pytest.mark.parametrize("encode", [dumps, canonical])
def test_the_encoding_is_strict(encode, value):
    """Only JSON gets into a journal."""
    with pytest.raises((TypeError, ValueError)):
        encode(value)


def test_canonical_json_ignores_order():
    """Digests rely on this."""
    assert canonical({"b": 1, "a": {"d": 1, "c": "é"}}) == '{"a":{"c":"é","d":1},"b":1}'
