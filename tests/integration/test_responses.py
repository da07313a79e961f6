"""The Responses API against a strict server on loopback, through the real openai client."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import aclosing, nullcontext
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError, UsageError
from nbagent.core.base.events import parse
from nbagent.core.base.messages import Message, message, text_part, user
from nbagent.core.base.model import (
    Citation,
    Discarded,
    Finished,
    HostedCall,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from nbagent.models.openai.responses import ResponsesParser
from nbagent.models.openai.stream import BrokenStream
from tests.integration.chat_server import ChatServer
from tests.integration.responses_server import Items, Refuse, Reply, ResponsesServer

OPEN = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ADD = ToolSpec("add", "Add two numbers", OPEN)
HELLO = [user("hello")]


def model_at(server: ChatServer, name: str = "o9-test", **settings: Any) -> nb.OpenAIModel:
    return nb.OpenAIModel(name, base_url=server.url, **{"api": "responses", **settings})


async def ask(model: nb.OpenAIModel, request: Request) -> list[ModelDelta]:
    async with aclosing(model.stream(request)) as deltas:
        return [delta async for delta in deltas]


def joined(deltas: Sequence[ModelDelta], kind: type[Any]) -> str:
    at = max((i for i, delta in enumerate(deltas) if isinstance(delta, Discarded)), default=-1)
    return "".join(delta.text for delta in deltas[at + 1 :] if isinstance(delta, kind))


def calls(deltas: Sequence[ModelDelta]) -> list[tuple[str, str, Any]]:
    """The id, name and input of each call."""
    found: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, Discarded):
            found.clear()
        if isinstance(delta, ToolCallDelta):
            call = found.setdefault(delta.index, ["", "", ""])
            for at, piece in enumerate((delta.id, delta.name, delta.arguments)):
                call[at] += piece or ""
    return [(i, name, json.loads(arguments)) for _, (i, name, arguments) in sorted(found.items())]


def message_item(text: str, *notes: dict[str, Any], phase: str | None = None) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": list(notes)}
    own = {"id": "msg_7", "role": "assistant", "content": [part], "status": "completed"}
    return {"type": "message", **own, **({"phase": phase} if phase else {})}


SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {
        "type": "search",
        "query": "tallest tower",
        "queries": ["tallest tower"],
        "sources": [{"type": "url", "url": "https://example.org/towers"}],
    },
}
CITED = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 3,
    "title": "Towers",
    "url": "https://example.org/towers",
}


@pytest.mark.parametrize("stream", [True, False])
async def test_text_reasoning_parallel_calls_and_usage_arrive(stream: bool) -> None:
    """All parts of a response arrive, streamed or whole."""
    reply = Reply("Adding…", [("add", {"n": 1}), ("add", {"n": 2})], reasoning="hm, both")
    with ResponsesServer([reply]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD], stream=stream))
        body = server.bodies[0]
    assert joined(deltas, ReasoningDelta) == "hm, both"
    assert joined(deltas, TextDelta) == "Adding…"
    assert [(name, value) for _, name, value in calls(deltas)] == [
        ("add", {"n": 1}),
        ("add", {"n": 2}),
    ]
    assert len({call_id for call_id, _, _ in calls(deltas)}) == 2
    finished = deltas[-1]
    assert isinstance(finished, Finished)
    assert finished[:3] == ("tool_calls", Usage(10, 5), "o9-test")
    assert (body["store"], body["stream"], body["reasoning"]) == (
        False,
        stream,
        {"summary": "auto"},
    )
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("stream", [True, False])
async def test_cached_and_reasoning_tokens_and_the_finish_reason_are_reported(stream: bool) -> None:
    """The usage has all separately billed tokens; an incomplete answer has its reason."""
    steps = [
        Items(
            output=[message_item("cut")],
            finish="max_output_tokens",
            usage=(100, 50),
            details=(80, 30),
        ),
        Items(output=[message_item("no")], finish="content_filter"),
        Items(
            output=[{**message_item(""), "content": [{"type": "refusal", "refusal": "I can't."}]}]
        ),
    ]
    with ResponsesServer(steps) as server:
        async with model_at(server) as model:
            ends = [await ask(model, Request(HELLO, stream=stream)) for _ in steps]
    assert [deltas[-1].reason for deltas in ends] == ["length", "content_filter", "stop"]
    assert ends[0][-1].usage == Usage(100, 50, None, 80, 30)
    assert joined(ends[2], TextDelta) == "I can't."


@pytest.mark.parametrize("how", ["live", "json"])
async def test_reasoning_is_sent_back_before_the_items_that_follow_it(how: str) -> None:
    """The server accepts the second turn: its items come in order, without ids or duplicates."""
    turn = Reply("First.", [("look", {"n": 1}), ("look", {"n": 2})], reasoning="Think.")
    with ResponsesServer([turn, turn, Reply("Done.", reasoning="Easy."), Reply("Bye.")]) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model)

            @agent.tool
            def look(n: int) -> int:
                return n

            if how == "live":
                run = agent.run("go", attended=False)
                await run
                await agent.run("and?", after=run, attended=False)
            else:
                response = await agent.generate("go")
                kept = json.loads(json.dumps(response.messages))
                await agent.generate("and?", messages=kept)
        assert server.refused == []
        sent = server.bodies[-1]["input"]
    kinds = [item.get("type", item.get("role")) for item in sent]
    turn_kinds = ["reasoning", "message", "function_call", "function_call"]
    turn_kinds += ["function_call_output"] * 2
    assert kinds == ["user", *turn_kinds, *turn_kinds, "reasoning", "message", "user"]
    assert sent[1]["summary"] == [{"type": "summary_text", "text": "Think."}]
    assert sent[2]["content"] == [{"type": "output_text", "text": "First."}]
    assert sent[3]["arguments"] == '{"n":1}'
    assert not any("id" in item for item in sent)


async def test_texts_and_inputs_are_not_stored_twice() -> None:
    """Provider data refers to the message's own text, reasoning and calls."""
    reply = Reply("A text of its own.", [("add", {"n": 1234567})], reasoning="Some thought.")
    with ResponsesServer([reply]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD]))
    kept = json.dumps(deltas[-1].provider)
    assert not any(text in kept for text in ("A text of", "Some thought", "1234567"))


async def test_a_response_complete_in_text_and_calls_stores_nothing_else() -> None:
    """There is no provider data, so the history stays small."""
    with ResponsesServer([Reply("Hi.", [("add", {"n": 1})])], reasons=False) as server:
        async with model_at(server, "plain") as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD]))
    assert deltas[-1].provider is None


@pytest.mark.parametrize("change", ["text", "a call less", "another call", "no data", "nonsense"])
async def test_a_changed_history_is_sent_as_text_and_calls(change: str) -> None:
    """Items that no longer match the message are left out, with their reasoning."""
    reply = Reply("Look:", [("add", {"n": 1}), ("add", {"n": 2})], reasoning="Hm.")
    with ResponsesServer([reply, Reply("ok")]) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model)
            agent.add(nb.tool(name="add")(lambda n: n))
            asked = await agent.generate("go", return_tool_calls=True)
            first = json.loads(json.dumps(asked.messages))
            said_, parts = first[1], first[1]["content"]
            match change:
                case "text":
                    parts[1]["text"] = "Changed."
                case "a call less":
                    del parts[3]
                case "another call":
                    parts.append({**parts[3], "id": "more"})
                case "no data":
                    said_["provider"]["data"] = None
                case "nonsense":
                    said_["provider"]["data"]["items"] = [{"reasoning": [["summary", 0, "x"]]}]
            for part in parts:
                part.pop("nbagent", None)
            results = [
                {"type": "tool_result", "id": part["id"], "name": "add", "output": 1}
                for part in parts
                if part["type"] == "tool_call"
            ]
            history = [user("go"), Message(said_), message("tool", *results), user("on")]
            assert joined(await ask(model, Request(history)), TextDelta) == "ok"
        assert server.refused == []
        assert not any(item.get("type") == "reasoning" for item in server.bodies[-1]["input"])


@pytest.mark.parametrize("order", [("chat", "responses"), ("responses", "chat")])
async def test_c177_a_history_of_one_api_continues_in_the_other_in_the_middle_of_a_run(
    order: Any,
) -> None:
    """Each API sends the turns of the other API as text and calls, including edits and rejections."""
    turn = Reply("Hm.", [("pay", {"n": 1}), ("drop", {"n": 2})], reasoning="Think.", ids=None)
    servers = {"chat": ChatServer, "responses": ResponsesServer}
    with servers[order[0]]([turn]) as one, servers[order[1]]([turn, Reply("Done.")]) as other:
        async with model_at(one, api=order[0]) as first, model_at(other, api=order[1]) as second:

            def with_tools(model: nb.OpenAIModel) -> nb.Agent:
                agent = nb.Agent(model, policy=[nb.review("*", editable=True)])
                agent.add(nb.tool(name="pay")(pay))
                agent.add(nb.tool(name="drop")(pay))
                return agent

            def pay(n: int) -> int:
                return n

            agent = with_tools(first)
            response = await agent.generate("go")
            for agent in (with_tools(second),) * 2:
                kept = json.loads(json.dumps(response.messages))
                paid, dropped = agent.interrupts(kept)
                response = await agent.generate(
                    messages=kept,
                    tool_restarts=[paid.restart(new_input={"n": 5})],
                    tool_rejections=[dropped.reject("no")],
                )
        assert (one.refused, other.refused) == ([], [])
    assert response.text == "Done."


async def test_a_streamed_and_a_whole_response_give_the_same_message() -> None:
    """Several messages become one text with separators and are sent back in their original form."""
    output = [
        message_item("Let me see.", phase="commentary"),
        SEARCH,
        message_item("It is tall.", CITED, phase="final_answer"),
    ]
    told = []
    with ResponsesServer([Items(output=output)] * 3) as server:
        async with model_at(server) as model:
            for stream in (True, False):
                deltas = await ask(model, Request(HELLO, stream=stream))
                told.append((joined(deltas, TextDelta), deltas[-1]))
            text, end = told[0]
            answer = message("assistant", text_part(text), provider=end.provider)
            await ask(model, Request([*HELLO, answer, user("more")]))
        assert server.refused == []
        back = server.bodies[-1]["input"][1:4]
    assert told[0] == told[1]
    assert text == "Let me see.\n\nIt is tall."
    assert [item.get("phase") for item in back] == ["commentary", None, "final_answer"]
    assert back[0]["content"] == [{"type": "output_text", "text": "Let me see."}]
    assert back[1] == {key: value for key, value in SEARCH.items() if key != "id"}


async def test_a_hosted_search_is_shown_while_it_runs_and_with_its_sources() -> None:
    """The row shows queries and sources; citations arrive separately."""
    output = [SEARCH, message_item("Tall.", CITED)]
    search = nb.hosted("web_search", search_context_size="low")
    with ResponsesServer([Items(output=output)]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO, hosted=[search]))
        body = server.bodies[0]
    told = [delta for delta in deltas if isinstance(delta, HostedCall)]
    assert [(one.name, one.status) for one in told] == [
        ("web_search", "running"),
        ("web_search", "done"),
    ]
    assert told[-1].input == {"query": "tallest tower"}
    assert told[-1].sources == [{"url": "https://example.org/towers"}]
    cited = [delta for delta in deltas if isinstance(delta, Citation)]
    assert cited == [Citation("Towers", "https://example.org/towers")]
    assert body["tools"] == [{"type": "web_search", "search_context_size": "low"}]
    assert "web_search_call.action.sources" in body["include"]


async def test_a_run_stores_the_tools_that_the_provider_ran() -> None:
    """The journal has the hosted calls, and they are read back unchanged."""
    code = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "container_id": "c",
        "code": "print(1)",
        "outputs": [{"type": "logs", "logs": "1\n"}],
        "status": "completed",
    }
    steps = [Items(output=[SEARCH, code, message_item("Tall.", CITED)]), Reply("Bye.")]
    with ResponsesServer(steps) as server:
        async with model_at(server) as model:
            tools = [nb.hosted("web_search"), nb.hosted("code_interpreter", container={})]
            agent = nb.Agent(model, tools=tools)
            run = agent.run("How tall?", attended=False)
            await run
            await agent.run("And?", after=run, attended=False)
        assert server.refused == []
    event = next(event for event in run.journal if event.type == "model_responded")
    assert [(one.name, one.status, one.output) for one in event.hosted] == [
        ("web_search", "done", None),
        ("code_interpreter", "done", "1\n"),
    ]
    assert event.citations == ({"title": "Towers", "url": "https://example.org/towers"},)
    assert parse(event.model_dump_json()) == event


class Point(BaseModel):
    """Where it is."""

    x: int
    y: int


async def test_a_schema_is_strict_where_possible_and_unchanged_otherwise() -> None:
    """A default or free keys make a schema not strict; the schema is then sent unchanged as not strict."""

    def exact(a: int, b: list[str]) -> None: ...

    def loose(a: int = 3) -> None: ...

    def free(a: dict[str, int]) -> None: ...

    with ResponsesServer([Reply('{"x":1,"y":2}')]) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model, tools=[exact, loose, free], output_type=Point)
            response = await agent.generate("go")
        body = server.bodies[0]
    assert response.output == Point(x=1, y=2)
    assert {tool["name"]: tool["strict"] for tool in body["tools"]} == {
        "exact": True,
        "loose": False,
        "free": False,
    }
    assert body["text"]["format"]["strict"] is True
    closed = {**Point.model_json_schema(), "additionalProperties": False}
    assert body["text"]["format"]["schema"] == closed


async def test_a_server_without_schemas_is_asked_in_another_way() -> None:
    """As in Chat Completions, JSON mode and then instructions are tried; each answer is validated."""
    with ResponsesServer([Reply('{"x":1,"y":2}')]) as server:
        server.rule = lambda body: "text.format is not supported" if "text" in body else ""
        async with model_at(server) as model:
            response = await nb.Agent(model, output_type=Point).generate("go")
        kinds = [body.get("text", {}).get("format", {}).get("type") for body in server.bodies]
    assert response.output == Point(x=1, y=2)
    assert kinds == ["json_schema", "json_object", None]
    assert '"properties"' in server.bodies[-1]["instructions"]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"reasoning": {"effort": "low"}}, {"reasoning": {"summary": "auto", "effort": "low"}}),
        ({"reasoning_effort": "low"}, {"reasoning": {"summary": "auto", "effort": "low"}}),
        ({"reasoning": {"summary": None}}, {"reasoning": {"summary": None}}),
        ({"max_tokens": 7, "verbosity": "low"}, {"max_output_tokens": 7}),
    ],
)
async def test_fields_of_the_caller_are_merged(given: Any, sent: Any) -> None:
    """``extra`` is merged at any depth; names of Chat Completions are translated."""
    with ResponsesServer([Reply("ok")]) as server:
        server.problem_with = lambda body: ""  # type: ignore[method-assign]
        async with model_at(server, extra=given) as model:
            await ask(model, Request(HELLO))
        body = server.bodies[0]
    assert {key: body.get(key) for key in sent} == sent


async def test_a_field_that_the_key_does_not_allow_is_left_out_from_then_on() -> None:
    """Summaries need a verified organization, and encrypted reasoning needs a model that reasons."""
    with ResponsesServer([Reply("a"), Reply("b")], reasons=False) as server:
        async with model_at(server) as model:
            for expected in "ab":
                assert joined(await ask(model, Request(HELLO)), TextDelta) == expected
        asked = [("reasoning" in body, "include" in body) for body in server.bodies]
    assert asked == [(True, True), (True, False), (False, False), (False, False)]


@pytest.mark.parametrize("reason", ["", " Reason: Encrypted content could not be decrypted."])
async def test_reasoning_that_the_server_cannot_read_is_left_out_with_a_note(reason: str) -> None:
    """Another organization continues the conversation: its own reasoning is still requested and sent."""
    first = Reply("First.", [("look", {"n": 1})], reasoning="Think.")
    steps = [first, Reply("Done."), Reply("two", reasoning="Hm."), Reply("three")]
    with ResponsesServer(steps) as server:
        old: list[str] = []

        def rule(body: Any) -> str:
            sealed = {item.get("encrypted_content") for item in body["input"]}
            why = f"The encrypted content gAAA could not be verified.{reason}"
            return why if sealed & set(old) else ""

        server.rule = rule
        async with model_at(server) as model:
            agent = nb.Agent(model)
            agent.add(nb.tool(name="look")(lambda n: n))
            run = agent.run("one", attended=False)
            await run
            sent = server.bodies[1]["input"]
            old += [each["encrypted_content"] for each in sent if "encrypted_content" in each]
            notes = []
            for text in ("two", "three"):
                run = agent.run(text, after=run, attended=False)
                assert (await run).text == text
                notes += [event.notes for event in run.journal if event.type == "model_responded"]
        kinds = [item.get("type", item.get("role")) for item in server.bodies[-1]["input"]]
        assert len(server.refused) == 1
    turn = ["message", "function_call", "function_call_output", "message"]
    assert kinds == ["user", *turn, "user", "reasoning", "message", "user"]
    assert [len(each) for each in notes] == [1, 0]
    assert "could not read the encrypted reasoning" in notes[0][0]
    assert all("include" in body for body in server.bodies)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_required_tool_is_required_only_once(api: str) -> None:
    """``required`` and a name apply only to the first answer; otherwise, the run would never end."""
    server_of = {"chat": ChatServer, "responses": ResponsesServer}[api]
    steps = [Reply(calls=[("look", {"n": 1})]), Reply("Done.")]
    for choice in ("required", "look", "none", "auto"):
        with server_of(steps) as server:
            async with model_at(server, api=api, tool_choice=choice) as model:
                agent = nb.Agent(model)
                agent.add(nb.tool(name="look")(lambda n: n))
                await agent.run("go", attended=False)
            sent = [body["tool_choice"] for body in server.bodies]
            assert server.refused == []
        named: Any = {"type": "function", "name": "look"}
        if api == "chat":
            named = {"type": "function", "function": {"name": "look"}}
        first = named if choice == "look" else choice
        assert sent == [first, first if choice in ("none", "auto") else "auto"]


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_required_tool_is_not_required_again_after_a_rejected_answer(api: str) -> None:
    """A typed answer that is wrong is corrected without a second call of the tool."""
    server_of = {"chat": ChatServer, "responses": ResponsesServer}[api]
    steps = [Reply(calls=[("look", {"n": 1})]), Reply('{"value": "x"}'), Reply('{"value": 7}')]
    with server_of(steps) as server:
        async with model_at(server, api=api, tool_choice="required") as model:
            agent = nb.Agent(model, output_type=int)
            agent.add(nb.tool(name="look")(lambda n: n))
            assert (await agent.run("go", attended=False)).output == 7
        assert [body["tool_choice"] for body in server.bodies] == ["required", "auto", "auto"]


async def test_a_choice_of_an_unknown_tool_is_reported() -> None:
    """The error has the choice and the available tools."""
    with ResponsesServer([]) as server:
        async with model_at(server, tool_choice="lok") as model:
            with pytest.raises(ModelConfigError, match=r"'lok'.* add"):
                await ask(model, Request(HELLO, tools=[ADD]))


BROKEN = {
    "torn": Reply("all of it", cut=6),
    "torn before the first delta": Reply("all of it", cut=0),
    "torn inside arguments": Reply("", [("add", {"n": 1})], cut=4),
    "ends as if complete": Reply("all of it", ends_early=6),
    "stalled": Reply("all of it", stall=6),
    "failed:": Items(output=[], error={"code": "server_error", "message": "oops"}),
}
GOOD = Reply("all of it", [("add", {"n": 1})])


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_stream_that_breaks_is_discarded_and_repeated(kind: str) -> None:
    """Without its last event, a response is incomplete and its content is discarded."""
    with ResponsesServer([BROKEN[kind], GOOD]) as server:
        async with model_at(server, timeout=0.3) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD]))
        assert len(server.requests) == 2
    assert [type(delta) for delta in deltas].count(Discarded) == 1
    assert joined(deltas, TextDelta) == "all of it"
    assert [(name, value) for _, name, value in calls(deltas)] == [("add", {"n": 1})]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_c496_an_empty_answer_is_asked_for_once_more_and_both_are_counted(
    api: str, stream: bool
) -> None:
    """The usage is of both; a second empty answer is an error that names the server."""
    kind = {"chat": ChatServer, "responses": ResponsesServer}[api]
    with kind([Reply(""), Reply("fine"), Reply(""), Reply("")]) as server:
        async with model_at(server, api=api, max_retries=0) as model:
            deltas = await ask(model, Request(HELLO, stream=stream))
            assert joined(deltas, TextDelta) == "fine"
            used = [each.usage for each in deltas if isinstance(each, Discarded | Finished)]
            assert used == [Usage(10, 5), Usage(10, 5)]
            with pytest.raises(ModelError, match="gave no answer") as caught:
                await ask(model, Request(HELLO, stream=stream))
        assert server.url in str(caught.value)
        assert caught.value.usage == Usage(10, 5)
        assert len(server.requests) == 4


def test_a_call_that_is_repeated_in_another_item_is_sent_back_once() -> None:
    """The items of a response with encrypted reasoning still fit its calls."""
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"n":1}'}
    parser = ResponsesParser("p")
    parser.chunk({"output": [thought, call, call], "status": "completed"})
    end = parser.finished()
    assert end is not None
    assert end.provider is not None
    kept = [list(item) for item in end.provider["data"]["items"]]
    assert kept == [["reasoning", "encrypted_content"], ["call"]]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_with_a_hosted_tool_has_no_known_cost(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider bills the tool too, and the price of its use is in no response."""
    monkeypatch.setattr("nbagent.models.prices._own", {})
    nb.set_prices({"o9-test": {"input": 1e5, "output": 0}})
    with ResponsesServer([Reply("hi")] * 2) as server:
        async with model_at(server) as model:
            requests = [Request(HELLO, stream=stream, hosted=tools) for tools in ((), (SEARCHES,))]
            ends = [(await ask(model, each))[-1] for each in requests]
    assert [end.usage.cost for end in ends] == [1, None]


@pytest.mark.parametrize(
    "error",
    [
        {"code": "server_is_overloaded", "type": "service_unavailable_error"},
        {"code": 500, "type": "InternalServerError"},
        {"code": 429, "type": "rate_limit_error"},
    ],
)
async def test_an_error_in_a_stream_is_repeated_unless_the_request_is_wrong(error: Any) -> None:
    """Servers have codes of their own, so an unknown code may be temporary."""
    failed = Items(output=[], error={**error, "message": "oops"})
    with ResponsesServer([failed, GOOD]) as server:
        async with model_at(server) as model:
            deltas = await ask(model, Request(HELLO, tools=[ADD]))
    assert joined(deltas, TextDelta) == "all of it"


@pytest.mark.parametrize("why", [None, {"reason": "interrupted"}])
def test_an_incomplete_response_with_a_call_breaks_the_stream(why: Any) -> None:
    """The call's arguments may be missing, so it must not run with its defaults."""
    call = {"type": "function_call", "call_id": "c", "name": "wipe", "arguments": ""}
    value = {"status": "incomplete", "incomplete_details": why, "output": [call]}
    with pytest.raises(BrokenStream, match=r"could not finish") as caught:
        ResponsesParser("p").chunk(value)
    assert caught.value.again


def test_an_incomplete_response_may_name_any_reason() -> None:
    """Also one that is not a text; the answer counts."""
    output = [message_item("fine")]
    value = {"status": "incomplete", "incomplete_details": {"reason": 5}, "output": output}
    parser = ResponsesParser("p")
    parser.chunk(value)
    end = parser.finished()
    assert end is not None
    assert end.reason == "other"
    parser.check(end)


async def test_a_permanent_failure_is_reported_at_once() -> None:
    """A response that failed because of the request is an error with the server's message."""
    failed = Items(output=[], error={"code": "invalid_prompt", "message": "not like that"})
    with ResponsesServer([failed]) as server:
        async with model_at(server) as model:
            with pytest.raises(ModelError, match="not like that"):
                await ask(model, Request(HELLO))


async def test_a_server_without_this_api_says_so() -> None:
    """A Chat Completions server has no /responses, so the error names the other api."""
    with ChatServer([]) as server:
        async with model_at(server) as model:
            with pytest.raises(ModelError, match="api='chat'"):
                await ask(model, Request(HELLO))


async def test_a_model_that_needs_responses_says_so_in_chat() -> None:
    """The server's hint is translated to nbagent's setting."""
    why = (
        "Function tools with reasoning_effort are not supported. Please use /v1/responses instead."
    )
    with ChatServer([Refuse(400, why)]) as server:
        async with model_at(server, api="chat") as model:
            with pytest.raises(ModelError, match="api='responses'"):
                await ask(model, Request(HELLO))


@pytest.mark.parametrize(
    ("name", "settings", "api"),
    [
        ("gpt-5.6-sol", {}, "responses"),
        ("gpt-6-astra", {}, "responses"),
        ("o4-mini", {}, "responses"),
        ("gpt-7-of-tomorrow", {}, "responses"),
        ("gpt-4o", {}, "chat"),
        ("gpt-5-chat-latest", {}, "chat"),
        ("gpt-audio-mini", {}, "chat"),
        ("gpt-5.6-sol", {"api": "chat"}, "chat"),
        ("gpt-4o", {"api": "responses"}, "responses"),
        ("gpt-5.6-sol", {"base_url": "http://localhost:8000/v1"}, "chat"),
        ("qwen", {"base_url": "http://localhost:8000/v1", "api": "responses"}, "responses"),
        ("gpt-5.6-sol", {"base_url": "https://api.openai.com/v1"}, "responses"),
        ("gpt-5.6-sol", {"client": lambda: None}, "chat"),
        ("gpt-5.6-sol", {"client": lambda: None, "api": "responses"}, "responses"),
    ],
)
def test_the_api_is_chosen_by_host_and_name_or_by_the_argument(
    name: str, settings: Any, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``api=`` overrides the choice."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert nb.OpenAIModel(name, **settings)._api.name == api


def test_an_unknown_api_is_refused() -> None:
    """The error comes at once and lists the known ones."""
    with pytest.raises(ModelConfigError, match="'auto', 'chat', 'responses'"):
        nb.OpenAIModel("m", api="completions")  # type: ignore[arg-type]


async def test_files_are_sent_in_messages_and_results() -> None:
    """A picture is an input_image, other files are an input_file; files of a result are in its output."""
    picture = {"type": "file", "media_type": "image/png", "data": "AAAA"}
    page = {"type": "file", "media_type": "application/pdf", "data": "BBBB", "name": "a.pdf"}
    call = {"type": "tool_call", "id": "c", "name": "add", "input": {}}
    result = {"type": "tool_result", "id": "c", "name": "add", "output": "see", "files": [picture]}
    history = [
        message("user", text_part("What?"), picture, page),
        message("assistant", call),
        message("tool", result),
    ]
    with ResponsesServer([Reply("ok")]) as server:
        async with model_at(server) as model:
            await ask(model, Request(history))
        assert server.refused == []
        asked, _, told = server.bodies[0]["input"]
    image = {
        "type": "input_image",
        "detail": "auto",
        "image_url": "data:image/png;base64,AAAA",
    }
    file = {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,BBBB",
    }
    assert asked["content"] == [{"type": "input_text", "text": "What?"}, image, file]
    assert told["output"] == [{"type": "input_text", "text": "see"}, image]


def test_bytes_arrive_in_any_pieces() -> None:
    """Single bytes give the same joined deltas."""
    from tests.integration.responses_server import ResponsesServer as Server  # noqa: PLC0415

    output = [SEARCH, message_item("Grüße, 世界", CITED)]
    body = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    with Server() as server:
        data = b"".join(server.events(body, Items(output=output)))
    whole, single = ResponsesParser("p"), ResponsesParser("p")
    at_once = whole.feed(data)
    piecewise = [delta for byte in data for delta in single.feed(bytes([byte]))]
    assert joined(at_once, TextDelta) == joined(piecewise, TextDelta) == "Grüße, 世界"
    assert whole.finished() == single.finished()


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta"},
        {"type": "response.output_item.done", "output_index": 0, "item": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "computer_call"}},
        {"type": "response.completed", "response": None},
        {"type": "error", "code": "invalid_prompt", "message": "bad"},
        {"error": {"message": "no"}},
    ],
)
def test_an_invalid_event_breaks_the_stream_and_nothing_else(event: Any) -> None:
    """Each invalid event raises BrokenStream, not an internal error."""
    with pytest.raises(BrokenStream):
        ResponsesParser("p").chunk(event)


@pytest.mark.parametrize("kind", ["response.something.new", {}])
def test_an_unknown_event_is_skipped(kind: Any) -> None:
    """The API may add events."""
    assert ResponsesParser("p").chunk({"type": kind, "x": 1}) == []


@pytest.mark.parametrize(("call_id", "name"), [([1], "add"), ("c", ""), ("c", [])])
def test_a_call_with_an_odd_id_or_name_is_no_internal_error(call_id: Any, name: Any) -> None:
    """A call without a name and arguments is none."""
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
    parser = ResponsesParser("p")
    parser.chunk({"type": "response.output_item.done", "output_index": 0, "item": call})
    parser.chunk({"type": "response.completed", "response": {"status": "completed"}})
    end = parser.finished()
    assert end is not None
    with nullcontext() if name else pytest.raises(BrokenStream, match="no call"):
        parser.check(end)


# --- hosted tools and rules


SEARCHES = nb.hosted("web_search")


@pytest.mark.parametrize(
    "make",
    [
        lambda: nb.Agent("demo", tools=[SEARCHES]),
        lambda: nb.Agent(nb.ScriptedModel([]), tools=[SEARCHES]),
        lambda: nb.Agent(nb.OpenAIModel("m", base_url="http://localhost/v1"), tools=[SEARCHES]),
        lambda: nb.Agent("gpt-5.6-sol", tools=[nb.hosted("computer_use_preview")]),
        lambda: nb.Agent("gpt-5.6-sol", tools=[nb.hosted("mcp", server_label="x")]),
    ],
)
def test_a_model_that_lacks_a_feature_says_so_at_once(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes when the agent is made, not during a run."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises((UsageError, ModelConfigError), match=r"hosted"):
        make()


@pytest.mark.parametrize(
    "policy",
    [
        [nb.review("web_search")],
        [nb.review()],
        [nb.deny("web_*", when=lambda typed: False)],
        [nb.allow("web_search", when=lambda typed: True)],
    ],
)
def test_c175_a_rule_that_would_review_a_hosted_tool_is_refused_at_once(policy: Any) -> None:
    """A hosted tool cannot ask before it runs, and its input is unknown; the error says what to do."""
    with pytest.raises(UsageError, match="hosted tool"):
        nb.Agent("gpt-5.6-sol", tools=[SEARCHES], policy=policy, name="a")


@pytest.mark.parametrize(
    ("policy", "sent"),
    [
        ([nb.deny("web_search")], ["code_interpreter"]),
        ([nb.deny("*")], []),
        ([nb.allow("web_search"), nb.deny("*")], ["web_search"]),
        (
            [nb.allow("web_search"), nb.allow("code*"), nb.review()],
            ["web_search", "code_interpreter"],
        ),
    ],
)
async def test_c176_a_denied_hosted_tool_is_not_offered(policy: Any, sent: Any) -> None:
    """The first matching rule counts, as for any tool; rules of an outer agent may deny too."""
    tools = [SEARCHES, nb.hosted("code_interpreter", container={"type": "auto"})]
    with ResponsesServer([Reply("ok")] * 2) as server:
        async with model_at(server) as model:
            await nb.Agent(model, tools=tools, policy=policy).run("go", attended=False)
            inner = nb.Agent(model, tools=tools, name="inner")
            outer = nb.Agent(
                nb.ScriptedModel([nb.ScriptedModel.call("inner", prompt="go"), "done"]),
                tools=[inner.as_tool()],
                policy=[nb.allow("inner"), *policy, nb.deny("inne[r]")],
            )
            await outer.run("go", attended=False)
        offered = [[tool["type"] for tool in body.get("tools", ())] for body in server.bodies]
    assert offered == [sent, sent]


def test_a_function_and_a_hosted_tool_with_the_same_name_are_refused() -> None:
    """Rules and rows could not distinguish them."""

    def web_search(query: str) -> str:
        return query

    with pytest.raises(UsageError, match="web_search"):
        nb.Agent("gpt-5.6-sol", tools=[SEARCHES, web_search])


def test_the_options_of_a_hosted_tool_are_in_no_repr() -> None:
    """The options may contain a token."""
    tool = nb.hosted("mcp", server_label="x", authorization="sk-very-secret-token")
    assert "secret" not in repr(tool)


async def test_generate_accepts_hosted_tools_by_name_and_as_objects() -> None:
    """``generate`` offers only the named tools."""
    with ResponsesServer([Reply("ok")] * 4) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model, tools=[SEARCHES])
            for tools in (None, ["web_search"], [nb.hosted("image_generation")], []):
                await agent.generate("go", tools=tools)
        offered = [[tool["type"] for tool in body.get("tools", ())] for body in server.bodies]
    assert offered == [["web_search"], ["web_search"], ["image_generation"], []]


async def test_a_token_of_a_hosted_tool_is_a_credential(caplog: pytest.LogCaptureFixture) -> None:
    """Only the provider gets the token; no text, event or error has it, even if the server repeats it."""
    token = "mcp-token-0123456789abcdef"
    listed = {"type": "mcp_list_tools", "id": "m", "server_label": "docs", "tools": []}
    call = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "docs",
        "name": "read",
        "arguments": json.dumps({"with": token}),
        "output": f"logged in with {token}",
        "status": "completed",
    }
    tool = nb.hosted("mcp", server_label="docs", authorization=token, require_approval="never")
    with ResponsesServer(
        [Items(output=[listed, call, message_item(token)]), Refuse(400, token)]
    ) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model, tools=[tool])
            run = agent.run("go", attended=False)
            await run
            again = agent.run("go", attended=False)
            with pytest.raises(nb.errors.RunError) as caught:
                await again
        assert server.bodies[0]["tools"][0]["authorization"] == token
    event = next(event for event in run.journal if event.type == "model_responded")
    assert [one.name for one in event.hosted] == ["docs/read"]
    said_ = [event.model_dump_json() for event in (*run.journal, *again.journal)]
    told = [*said_, repr(agent), repr(tool), str(caught.value), caplog.text]
    assert not any(token in text for text in told)


class Pausing(ResponsesServer):
    """A server that delays the end of an answer to a request with tools until ``go`` is set."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__(script)
        self.go = threading.Event()

    def events(self, body: dict[str, Any], reply: Reply) -> Iterator[bytes]:
        *first, last = super().events(body, reply)
        yield from first
        if "tools" in body:
            self.go.wait(30)
        yield last


async def test_secrets_of_a_request_are_its_own_whatever_runs_beside_it() -> None:
    """A concurrent request with other hosted tools does not change which secrets are removed."""
    token = "mcp-token-0123456789abcdef"
    tool = nb.hosted("mcp", server_label="docs", authorization=token, require_approval="never")
    failing = Items(output=[message_item("so")], error={"code": "x", "message": f"no such {token}"})
    with Pausing([failing, Reply("beside")]) as server:
        async with model_at(server, max_retries=0) as model:
            deltas = model.stream(Request(HELLO, hosted=[tool]))
            async with aclosing(deltas):
                assert isinstance(await anext(deltas), TextDelta)
                await ask(model, Request(HELLO))
                server.go.set()
                with pytest.raises(ModelError, match="no such") as caught:
                    _ = [delta async for delta in deltas]
    assert token not in str(caught.value)


async def test_a_model_still_removes_secrets_of_its_earlier_requests() -> None:
    """A request may be written, as in a recording, after later requests were sent."""
    token = "mcp-token-0123456789abcdef"
    tool = nb.hosted("mcp", server_label="docs", authorization=token, require_approval="never")
    with ResponsesServer([Reply("one"), Reply("two")]) as server:
        async with model_at(server) as model:
            for hosted in ([tool], []):
                await ask(model, Request(HELLO, hosted=hosted))
            assert model.without_credentials(f"with {token}") == "with •••"


async def test_concurrent_requests_learn_together_which_fields_are_refused() -> None:
    """The second refused request is repeated too, although the first has already changed the fields."""
    both = threading.Barrier(2)

    class Together(ResponsesServer):
        def problem_with(self, body: dict[str, Any]) -> str:
            if "summary" in body.get("reasoning", {}):
                both.wait(30)
            return super().problem_with(body)

    with Together([Reply("fine")] * 2) as server:
        server.verified = False
        async with model_at(server, max_retries=0) as model:
            answers = await asyncio.gather(*(ask(model, Request(HELLO)) for _ in range(2)))
    assert [joined(deltas, TextDelta) for deltas in answers] == ["fine", "fine"]
