"""A server's result as a value: each content once, and no bytes as text."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import mcp_types as types
import pytest
from PIL import Image

from nbagent.core.base.errors import McpError
from nbagent.core.tools.tool import ToolResult
from nbagent.mcp_servers.results import result_value

ROOM = 50_000_000


def png(side: int) -> str:
    """A picture in base64 that does not compress."""
    made = Image.effect_noise((side, side), 99)
    held = io.BytesIO()
    made.save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode()


def text(said: Any) -> dict[str, Any]:
    return {"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}


def result(content: list[dict[str, Any]], data: Any = None) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": content, "structuredContent": data})


FILE = "first\nsecond: \u201cx\u201d\n"
ROWS = [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("content", "data", "expected"),
    [
        # a plain value, as server libraries wrap it
        ([text("3")], {"result": 3}, 3),
        ([text("3.0")], {"result": 3.0}, 3.0),
        ([text("true")], {"result": True}, True),
        ([text("three")], {"result": "three"}, "three"),
        ([text("3")], {"result": "3"}, "3"),
        ([text("a"), text("b")], {"result": ["a", "b"]}, ["a", "b"]),
        ([text(["a", "b"])], {"result": ["a", "b"]}, ["a", "b"]),
        ([text(row) for row in ROWS], {"result": ROWS}, ROWS),
        ([text(json.dumps(ROWS, indent=2))], {"result": ROWS}, ROWS),
        ([], {"result": None}, None),
        ([], {"result": []}, []),
        # the same text under another name
        ([text(FILE)], {"content": FILE}, FILE),
        ([text(FILE)], {"content": [text(FILE)]}, FILE),
        # data that equals the text but also has names
        ([text({"total": 3})], {"total": 3}, {"total": 3}),
        ([text({"result": 3})], {"result": 3}, {"result": 3}),
        ([text("Found it."), text({"n": 1})], {"n": 1}, 'Found it.\n{"n": 1}'),
        ([], {"n": 1}, {"n": 1}),
        # if text and data differ, the value has both
        ([text("3")], {"total": 3}, '3\n{"total": 3}'),
        ([text("4")], {"result": 3}, '4\n{"result": 3}'),
        ([text("1")], {"result": True}, '1\n{"result": true}'),
        ([text("a"), text("b")], {"result": ["a"]}, 'a\nb\n{"result": ["a"]}'),
        ([text("3")], {"result": 3, "unit": "m"}, '3\n{"result": 3, "unit": "m"}'),
        (
            [text(FILE)],
            {"content": [text("other")]},
            f'{FILE}\n{{"content": [{json.dumps(text("other"))}]}}',
        ),
    ],
)
def test_a_value_that_a_server_sends_twice_appears_once(content, data, expected):
    """A wrapped value or a repeated text appears once; data that differs is included whole."""
    found = result_value(result(content, data), None, ROOM)
    assert found == expected
    assert type(found) is type(expected)  # to Python, 1 is True


def test_data_is_compared_with_many_texts_and_converted_once(monkeypatch):
    """A result may have 200 texts beside data of 100,000 values."""
    data = {"rows": [[n] for n in range(100)]}
    converted: list[Any] = []

    def canonical(value: Any) -> str:
        converted.append(value)
        return json.dumps(value)

    monkeypatch.setattr("nbagent.mcp_servers.results.canonical", canonical)
    result_value(result([text(str(n)) for n in range(200)], data), None, ROOM)
    assert converted.count(data) == 1


@pytest.mark.parametrize("kind", ["image/png", "audio/wav", "image/bmp"])
@pytest.mark.parametrize("where", ["content", "result", "deep", "text", "url"])
def test_bytes_are_never_sent_as_text(where, kind):
    """A label replaces the bytes, in data and in text, at any depth."""
    data = png(300)
    type_ = "audio" if kind == "audio/wav" else "image"
    part = {"type": type_, "data": data, "mimeType": kind}
    content, structured = [part], None
    match where:
        case "content":
            structured = {"content": [part]}
        case "result":
            structured = {"result": data}
        case "deep":
            structured = {"pages": [{"shots": [{"png": data, "n": 1}]}], "count": 1}
        case "text":
            content = [part, text({"png": data})]
        case "url":
            structured = {"src": f"data:{kind};base64,{data}"}
    found = result_value(result(content, structured), None, ROOM)
    value = found.value if isinstance(found, ToolResult) else found
    assert isinstance(found, ToolResult) == (kind == "image/png")
    assert len(json.dumps(value)) < 300
    assert f"[{kind}, " in json.dumps(value)
    if where in ("content", "result"):
        assert value.startswith(f"[{kind}, ")
        assert "\n" not in value


def test_a_few_characters_of_base64_are_ordinary_text():
    """Only a whole string that equals the data is replaced by a label."""
    part = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    found = result_value(result([part, text("AAAAB")], {"a": "AAAA", "b": "AAAAB"}), None, ROOM)
    assert found.split("\n")[1:] == ["AAAAB", '{"a": "[audio/wav, 3 bytes]", "b": "AAAAB"}']


def test_the_reason_of_a_failure_may_be_data():
    """Some tools describe their failure only there."""
    failed = result([], {"error": "no disk"}).model_copy(update={"is_error": True})
    with pytest.raises(McpError, match="no disk"):
        result_value(failed, None, ROOM)
