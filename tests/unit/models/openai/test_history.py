"""Histories of the openai client are imported and exported unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall

import nbagent as nb
from nbagent.core.base.messages import load, text_of
from nbagent.core.base.model import Request
from nbagent.models.openai.encoding import Settings
from nbagent.models.openai.responses import ResponsesApi

IMAGE = "data:image/png;base64,iVBORw0KGgo="


def call_item(call_id: str, name: str = "add", arguments: str = '{"a":1}') -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Add 1 and 2."},
    {"role": "assistant", "content": None, "tool_calls": [call_item("c1"), call_item("c2")]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "tool", "tool_call_id": "c2", "content": '{"sum":3}'},
    {"role": "assistant", "content": "It is 3."},
]


async def test_a_foreign_conversation_continues_here():
    """Live and step by step; the system message stays in the history, after the agent's instructions."""
    model = nb.ScriptedModel(["4"] * 2)
    agent = nb.Agent(model, instructions="Be exact.")
    messages = nb.messages_from_openai(CHAT)
    assert (await agent.run("And 1 more?", messages=messages)).text == "4"
    assert (await agent.generate("And 1 more?", messages=messages)).text == "4"
    for request in model.requests:
        assert request.instructions == "Be exact."
        assert [m["role"] for m in request.messages] == [
            *("system", "user", "assistant", "tool", "assistant", "user")
        ]
    assert nb.messages_to_openai(messages) == CHAT


async def test_calls_without_results_are_run_and_those_with_results_are_not():
    """A history that ends within a turn continues like a pause."""
    ran: list[int] = []

    def add(a: int) -> int:
        ran.append(a)
        return a + 2

    both = call_item("c1", arguments='{"a": 5}'), call_item("c2", arguments='{"a": 6}')
    open_turn = [*CHAT[:2], {"role": "assistant", "content": None, "tool_calls": [*both]}]
    for history, called in ((open_turn, [5, 6]), ([*open_turn, CHAT[3]], [6])):
        ran.clear()
        agent = nb.Agent(nb.ScriptedModel(["done"] * 2), tools=[add])
        run = agent.run(messages=nb.messages_from_openai(history))
        assert (await run).text == "done"
        assert ran == called
        assert [call.output for call in run.calls["add"]][-1] == 8
    model = nb.ScriptedModel(["done"])
    paused = await nb.Agent(model, tools=[nb.tool(approval=True)(add)]).generate(
        messages=nb.messages_from_openai(open_turn)
    )
    assert len(paused.interrupts) == 2


def test_the_objects_of_the_client_are_accepted():
    """For example objects from a response."""
    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "x", "tool_calls": [call_item("c1")], "refusal": None}
    )
    call = ResponseFunctionToolCall(
        type="function_call",
        call_id="c1",
        name="add",
        arguments="{}",
        id="fc_1",
        status="completed",
    )
    for value in (message, call):
        (item,) = nb.messages_from_openai([{"role": "user", "content": "go"}, value])[1:]
        assert item["content"][-1]["name"] == "add"


def test_images_files_and_sounds_are_imported():
    """Media types and names are kept; a link is refused."""
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
        },
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
    ]
    (item,) = nb.messages_from_openai([{"role": "user", "content": content}])
    kinds = [part.get("media_type") for part in item["content"]]
    assert kinds == [None, "image/png", "application/pdf", "audio/wav"]
    assert item["content"][2]["name"] == "a.pdf"
    assert nb.messages_to_openai([item]) == [{"role": "user", "content": content}]
    (item,) = nb.messages_from_openai(
        [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]
    )
    assert item["content"][0]["data"] == "iVBORw0KGgo="


REFUSED = [
    ([5], "not a message of the openai client"),
    ([{"role": "robot", "content": "x"}], "expected a message"),
    ([{"role": "tool", "tool_call_id": "c", "content": "x"}], "no call is waiting for it"),
    (
        [*CHAT[:3], {**CHAT[3], "tool_call_id": "c9"}],
        r"no call is waiting for it \(waiting: 'c1', 'c2'",
    ),
    ([*CHAT[:3], CHAT[3], CHAT[3]], "no call is waiting for it"),
    ([*CHAT[:4], CHAT[1]], "exactly one result"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}],
        "has a link to a file",
    ),
    (
        [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}],
        "cannot be stored",
    ),
    ([{"role": "assistant", "content": "x", "reasoning_details": [{"a": 1}]}], "provider="),
    ([{"role": "assistant", "audio": {"id": "a"}}], "'audio', which cannot be stored"),
    ([{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}], "has no function"),
    ([{"type": "item_reference", "id": "x"}], "only refers to an item"),
    ([{"type": "web_search_call", "id": "w", "status": "completed"}], "provider="),
    ("hello", "a list of messages"),
]


@pytest.mark.parametrize(("history", "said"), REFUSED)
def test_an_unsupported_part_is_refused_with_its_index(history, said):
    """Nothing is dropped silently."""
    with pytest.raises(nb.errors.MessagesError, match=said):
        nb.messages_from_openai(history)


def test_duplicate_ids_are_distinguished_here_and_sent_back_unchanged():
    """Some servers restart their call ids with each answer."""
    turn = [CHAT[2], CHAT[3], CHAT[4]]
    history = [CHAT[1], *turn, *turn]
    messages = nb.messages_from_openai(history)
    ids = [p["id"] for m in messages for p in m["content"] if p["type"] == "tool_call"]
    assert len(set(ids)) == 4
    assert nb.messages_to_openai(messages) == history


def test_a_call_that_an_answer_has_twice_is_one_call():
    """Open calls run, and this one runs once; the same id with other arguments is another call."""
    one, other = call_item("c"), call_item("c", arguments='{"a":2}')
    items = [
        {"type": "function_call", "call_id": each["id"], **each["function"]}
        for each in (one, one, other)
    ]
    for history in ([{"role": "assistant", "tool_calls": [one, one, other]}], items):
        (answer,) = nb.messages_from_openai([CHAT[1], *history])[1:]
        assert [call["input"] for call in answer["content"]] == [{"a": 1}, {"a": 2}]


def test_items_of_responses_are_imported_and_sent_back_to_their_server():
    """An answer of several items is one message; only the same server gets the reasoning back."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "gAAA",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3"}]},
    ]
    messages = nb.messages_from_openai(items, provider="api.openai.com")
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert text_of(messages[1]) == "Let me see."
    api = ResponsesApi(Settings("m"), reasons=True)
    body = api.body(Request(messages), "api.openai.com/responses")
    sent = json.loads(body)["input"]
    assert [each.get("type") for each in sent] == [
        *(None, "reasoning", "message", "function_call", "function_call_output", "message")
    ]
    assert sent[1]["encrypted_content"] == "gAAA"
    with pytest.raises(nb.errors.MessagesError, match="provider="):
        nb.messages_from_openai(items)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
INPUTS = st.dictionaries(TEXT, st.integers() | TEXT | st.none(), max_size=3)


@st.composite
def chats(draw: Any) -> list[dict[str, Any]]:
    """A history in Chat Completions, as the encoder writes it."""
    history: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        role = draw(st.sampled_from(["user", "system"])) if number else "user"
        history.append({"role": role, "content": draw(TEXT)})
        for turn in range(draw(st.integers(0, 2))):
            calls = [
                call_item(f"c{number}_{turn}_{n}", draw(NAMES), _json(draw(INPUTS)))
                for n in range(draw(st.integers(1, 3)))
            ]
            text = draw(st.none() | TEXT)
            history.append({"role": "assistant", "content": text, "tool_calls": calls})
            history += [
                {"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT)}
                for call in calls
            ]
        history.append({"role": "assistant", "content": draw(TEXT)})
    return history


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(chats())
def test_any_history_is_imported_and_exported_unchanged(history):
    """The messages also survive JSON."""
    messages = nb.messages_from_openai(history)
    assert nb.messages_to_openai(messages) == history
    assert load(json.loads(json.dumps(messages))) == messages


@given(chats(), st.randoms())
def test_results_in_any_order_are_imported_in_call_order(history, random):
    """Servers accept any order; each result here belongs to its own call."""
    shuffled: list[Any] = []
    tools: list[Any] = []
    for item in [*history, None]:
        if item is not None and item["role"] == "tool":
            tools.append(item)
            continue
        random.shuffle(tools)
        shuffled += tools
        tools = []
        shuffled += [] if item is None else [item]
    assert nb.messages_to_openai(nb.messages_from_openai(shuffled)) == history


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "assistant"},
        {"type": "reasoning", "summary": "text"},
        {"type": "reasoning", "content": [5]},
    ],
)
def test_an_invalid_item_is_refused_with_its_index(item):
    """A field is missing or has the wrong type."""
    with pytest.raises(nb.errors.MessagesError, match=r"messages\[1\]"):
        nb.messages_from_openai([{"role": "user", "content": "Hi"}, item])


BROKEN = ("{", "[1]", "5", "[" * 200_000, '{"a": 1}}', "a=1")


@pytest.mark.parametrize("arguments", BROKEN)
def test_c389_arguments_that_are_not_an_object_are_refused_where_their_call_is_open(arguments):
    """An open call could not run with them; in a finished turn they are kept as the model's words."""
    calls = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call_item("c1"), call_item("c2", "f", arguments)],
    }
    with pytest.raises(nb.errors.MessagesError) as caught:
        nb.messages_from_openai([CHAT[1], calls])
    assert "messages[1].tool_calls[1].function.arguments: " in str(caught.value)
    assert len(str(caught.value)) < 300
    messages = nb.messages_from_openai([CHAT[1], calls, CHAT[3], CHAT[4]])
    assert messages[1]["content"][1]["raw"] == arguments
    assert [part["id"] for part in messages[2]["content"]] == ["c1", "c2"]


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}', '{"a":1}'])
def test_c389_arguments_can_be_the_object_itself(arguments):
    """Ollama's own API and people write objects."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (item,) = nb.messages_from_openai([{"role": "assistant", "tool_calls": [call]}])
    assert item["content"][0]["input"] == {"a": 1}


def hi(**more: Any) -> dict[str, Any]:
    return {"role": "user", "content": "Hi", **more}


PLACES: dict[str, tuple[Any, list[str]]] = {
    "a role written wrong": (
        {"role": "asistant", "content": "x"},
        ["messages[1]", "Did you mean 'assistant'?"],
    ),
    "content written wrong": (
        {"role": "user", "contents": "x"},
        ["messages[1] has no 'content'", "It has 'contents'. Did you mean 'content'?"],
    ),
    "no content": ({"role": "assistant"}, ["messages[1] has no 'content' and no 'tool_calls'"]),
    "calls written wrong": (
        {"role": "assistant", "content": "", "tool_call": [call_item("c1")]},
        ["messages[1] has 'tool_call'", "Did you mean 'tool_calls'?"],
    ),
    "a call without an id": (
        {
            "role": "assistant",
            "tool_calls": [call_item("c1"), {"type": "function", "function": {"name": "f"}}],
        },
        ["messages[1].tool_calls[1] has no 'id'"],
    ),
    "a call whose id is written wrong": (
        {
            "role": "assistant",
            "tool_calls": [{"ids": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        ["messages[1].tool_calls[0] has 'ids'", "Did you mean 'id'?"],
    ),
    "a call without a name": (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]},
        ["messages[1].tool_calls[0].function has no 'name'"],
    ),
    "arguments written wrong": (
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "f", "argument": "{}"}}],
        },
        ["messages[1].tool_calls[0] has 'argument'", "Did you mean 'arguments'?"],
    ),
    "a call that is a text": (
        {"role": "assistant", "tool_calls": ["f"]},
        ["messages[1].tool_calls[0] has no function: 'f'"],
    ),
    "a result without its call": (
        {"role": "tool", "content": "x"},
        ["messages[1] has no 'tool_call_id'"],
    ),
    "a part without its text": (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "txt": "b"}]},
        ["messages[1].content[1] has no 'text'", "It has 'txt'"],
    ),
    "a part whose text is a number": (
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        ["messages[1].content[0].text must be a string, got 5"],
    ),
    "a part that is not kept": (
        {"role": "assistant", "content": [{"type": "output_audio"}]},
        ["messages[1].content[0] is the part"],
    ),
    "a name that is none": (hi(name=5), ["messages[1].name is 5"]),
    "Vercel's messages of a page": (
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        ["messages[1] looks like a message of Vercel's AI SDK", "'role': 'user', 'content'"],
    ),
    "Vercel's messages of a model": (
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}],
        },
        ["messages[1] looks like a message of Vercel's AI SDK"],
    ),
    "LangChain's dicts": (
        {"type": "human", "content": "Hi"},
        ["LangChain", "convert_to_openai_messages"],
    ),
    "LangChain's older dicts": ({"type": "ai", "data": {"content": "Hi"}}, ["LangChain"]),
    "LangChain's serialized": (
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema"],
            "kwargs": {"content": "Hi"},
        },
        ["LangChain"],
    ),
    "LangChain's pairs": (("human", "Hi"), ["LangChain, as a pair"]),
    "Gemini's": ({"role": "model", "parts": [{"text": "Hi"}]}, ["Gemini's own API"]),
    "Gemini's of a user": ({"role": "user", "parts": [{"text": "Hi"}]}, ["Gemini's own API"]),
    "Pydantic AI's": (
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi"}]},
        ["Pydantic AI"],
    ),
    "Anthropic's": (
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        },
        ["Anthropic's Messages API"],
    ),
    "Anthropic's result": (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        ["Anthropic's Messages API"],
    ),
    "nbagent's own": (
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "c", "name": "f", "input": {}}],
        },
        ["nbagent itself", "to messages="],
    ),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("provider", [None, "api.openai.com"])
def test_c389_an_invalid_message_is_refused_with_its_index(case, provider):
    """The error suggests a fix, even if a server's own fields are kept; nothing is dropped silently."""
    item, expected = PLACES[case]
    with pytest.raises(nb.errors.MessagesError) as caught:
        nb.messages_from_openai([hi(), item], provider=provider)
    assert all(text in str(caught.value) for text in expected), caught.value


async def test_c390_the_name_of_the_author_of_a_message_is_kept():
    """The name reaches the model and the export, through JSON, a run and a pause."""
    said = {
        "role": "assistant",
        "name": "planner",
        "content": "I add.",
        "tool_calls": [call_item("c1")],
    }
    history = [{"role": "system", "name": "rules", "content": "Be brief."}, hi(name="Ann"), said]
    messages = nb.messages_from_openai(history)
    assert [each["name"] for each in messages] == ["rules", "Ann", "planner"]
    assert nb.messages_to_openai(load(json.loads(json.dumps(messages)))) == history

    @nb.tool(approval=True)
    def add(a: int) -> int:
        return a

    model = nb.ScriptedModel(["done"])
    agent = nb.Agent(model, tools=[add])
    paused = await agent.generate(messages=messages)
    assert paused.messages[2]["name"] == "planner"
    plain = json.loads(json.dumps(paused.messages))
    run = agent.run(messages=plain, attended=False, answers=[True])
    assert (await run).text == "done"
    assert [each.get("name") for each in run.messages[:3]] == ["rules", "Ann", "planner"]
    assert [each.get("name") for each in model.requests[-1].messages[:3]] == [
        "rules",
        "Ann",
        "planner",
    ]
    pictured = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
    ]
    seen = [{"role": "user", "name": "Bob", "content": pictured}]
    assert nb.messages_to_openai(nb.messages_from_openai(seen)) == seen
    with pytest.raises(nb.errors.MessagesError, match=r"messages\[0\]\['name'\]"):
        load([hi(name=5)])
