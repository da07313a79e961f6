"""Forms of answers that servers send, each from public reports (repository and number on GitHub), in both APIs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.events import ModelResponded
from tests.integration.chat_server import Body, Raw, Reply
from tests.integration.responses_server import ResponsesServer
from tests.integration.test_server_rules import PLAYED, SERVERS, model_at, results, run_on

EVENTS, JSON = "text/event-stream", "application/json"
DONE = b"data: [DONE]\n\n"
Bytes = Callable[[bytes, bytes], tuple[str, bytes]]
FORMS: dict[str, Bytes] = {
    "no blank line after the last event (openai-node 2725)": lambda events, _whole: (
        EVENTS,
        events.rstrip(b"\n"),
    ),
    "one line end after the last event (pi 9047)": lambda events, _whole: (EVENTS, events[:-1]),
    "events as JSON (AiNiee 920)": lambda events, _whole: (JSON, events),
    "events as nothing (sub2api 2826)": lambda events, _whole: ("", events),
    "events after a byte order mark": lambda events, _whole: (EVENTS, b"\xef\xbb\xbf" + events),
    "one piece as text (tinyagents 56)": lambda _events, whole: ("text/plain", whole),
    "one piece as nothing": lambda _events, whole: ("", b"\n\n" + whole),
    "one piece as events, with their end (9router 3492)": lambda _events, whole: (
        EVENTS,
        whole + DONE,
    ),
}


@PLAYED
@pytest.mark.parametrize("form", FORMS)
async def test_c862_an_answer_is_read_whatever_the_server_calls_it(
    api: str, stream: bool, form: str
):
    """It is asked for once, and its usage counts."""
    reply = Reply("Fine.", done=False)

    def sent(body: Body) -> Raw:
        asked = {**body, "stream_options": {"include_usage": True}}
        kind, data = FORMS[form](
            b"".join(server.events(asked, reply)), json.dumps(server.whole(body, reply)).encode()
        )
        return Raw(data, kind)

    with SERVERS[api]([sent]) as server:
        run = await run_on(nb.Agent(model_at(server)), "go", stream=stream)
        assert (run.result.text, run.result.usage.total_tokens) == ("Fine.", 15)


ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str | None, str]] = {
    "SGLang, vLLM (sglang 3642, Switchyard 426)": (
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 4096 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        nb.errors.HistoryTooLong,
        "too_long",
        "maximum context length",
    ),
    "a provider of Hermes (hermes-agent 65631)": (
        {"choices": None, "error_type": "BadRequestError", "code": 400, "error_message": "bad"},
        ModelError,
        None,
        "reported: bad",
    ),
    "SiliconFlow": (
        {"code": 50505, "message": "Model service overloaded.", "data": None},
        ModelError,
        "outage",
        "reported: Model service overloaded",
    ),
    "MiniMax": (
        {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
        ModelError,
        "rate_limit",
        "reported: insufficient balance",
    ),
    "Cloudflare": (
        {"success": False, "errors": [{"code": 3040, "message": "out of capacity"}]},
        ModelError,
        "outage",
        "reported: out of capacity",
    ),
}


@PLAYED
@pytest.mark.parametrize("who", ERRORS)
async def test_c863_an_error_in_a_good_answer_is_reported_in_the_words_of_the_server(
    api: str, stream: bool, who: str
):
    """Without the field ``error`` too; what the same request would get again is not repeated."""
    error, kind, cause, words = ERRORS[who]
    data = json.dumps(error).encode()
    answer = Raw(b"data: " + data + b"\n\n" + DONE, EVENTS) if stream else Raw(data)
    with SERVERS[api](lambda _body: answer) as server:
        with pytest.raises(kind, match=words) as failed:
            await run_on(nb.Agent(model_at(server, max_retries=1)), "go", stream=stream)
        assert getattr(failed.value, "kind", None) == cause
        assert len(server.bodies) == (1 if cause in (None, "too_long") else 2)


@PLAYED
@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_with_a_call_that_the_server_cannot_read_is_asked_for_again(
    api: str, stream: bool, status: int
):
    """Groq's error says that the request is invalid, but another answer helps (pydantic-ai 2759, 4350)."""
    error = {"message": "Failed to call a function.", "type": "invalid_request_error"}
    data = json.dumps({"error": {**error, "code": "tool_use_failed"}}).encode()
    with SERVERS[api]([Raw(data, status=status), Reply("Fine.")]) as server:
        run = await run_on(nb.Agent(model_at(server)), "go", stream=stream)
    assert (run.result.text, len(server.bodies)) == ("Fine.", 2)


async def test_the_reason_that_follows_a_failed_response_is_reported():
    """Azure sends its content filter's in an event of its own (bifrost 6419)."""
    failed = {"type": "response.failed", "response": {"status": "failed", "error": None}}
    error = {"type": "error", "error": {"code": "content_filter", "message": "Violence."}}
    events = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (failed, error))
    with ResponsesServer([Raw(events, EVENTS)]) as server:
        run = nb.Agent(model_at(server)).run("go", attended=False)
        run.subscribe(lambda _event: None)
        await run.settled()
    with pytest.raises(ModelError, match="reported: Violence") as raised:
        run.result  # noqa: B018 - it raises
    assert raised.value.kind == "refusal"


REASONS = {
    "recitation": "content_filter",  # Gemini sends its own words (Vibe-Trading 308)
    "PROHIBITED_CONTENT": "content_filter",
    "IMAGE_SAFETY": "content_filter",  # litellm 20357
    "sensitive": "content_filter",  # Zhipu
    "model_context_window_exceeded": "length",
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reason", REASONS)
async def test_c864_an_answer_that_a_filter_or_limit_cut_says_so(reason: str, stream: bool):
    """Whatever word the server has for it; an empty one is not asked for again."""
    with SERVERS["chat"]([Reply("Fi", finish=reason), Reply("", finish=reason)]) as server:
        agent = nb.Agent(model_at(server))
        run = await run_on(agent, "go", stream=stream)
        assert run.result.finish_reason == REASONS[reason]
        with pytest.raises(ModelError, match="gave no answer"):
            await run_on(agent, "go", stream=stream)
        assert len(server.bodies) == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("choice", "told"), [(None, "but sent no call"), ("required", "ignored tool_choice")]
)
async def test_c865_a_call_that_the_server_reports_and_does_not_send_is_a_note(
    stream: bool, choice: str | None, told: str
):
    """Without a tool parser in vLLM (vllm 53255), and in GitHub Copilot (nanobot 1555)."""
    with SERVERS["chat"]([Reply("I will look.", finish="tool_calls")]) as server:
        look = nb.tool(name="look")(lambda: 1)
        agent = nb.Agent(model_at(server, tool_choice=choice), tools=[look])
        run = await run_on(agent, "go", stream=stream)
    (said,) = [event for event in run.journal if isinstance(event, ModelResponded)]
    assert (said.finish_reason, len(said.notes)) == ("other", 1)
    assert told in said.notes[0]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("first", ["text", "call"])
async def test_c865_a_call_in_another_choice_than_the_text_runs(stream: bool, first: str):
    """GitHub Copilot sends the calls of Claude so (nanobot 1555, zeroclaw 2136); an alternative answer's do not run."""
    ran: list[int] = []
    where = "delta" if stream else "message"
    kept = {"index": 0, "function": {"name": "save", "arguments": '{"number": 1}'}, "id": "a"}
    text = {"index": 0, where: {"content": "I will save."}, "finish_reason": "tool_calls"}
    call = {"index": 1, where: {"tool_calls": [kept]}, "finish_reason": "tool_calls"}
    other = {**kept, "id": "b", "function": {"name": "save", "arguments": '{"number": 2}'}}
    own = {**text, where: {"content": "Again.", "tool_calls": [other]}}

    def sent(choices: list[Any]) -> Raw:
        if not stream:
            return Raw(json.dumps({"choices": choices}).encode())
        chunks = [json.dumps({"choices": [choice]}).encode() for choice in choices]
        return Raw(b"".join(b"data: " + each + b"\n\n" for each in chunks) + DONE, EVENTS)

    replies = [
        sent([text, call] if first == "text" else [call, text]),
        sent([call, own]),
        Reply("Saved."),
    ]

    @nb.tool
    def save(number: int) -> None:
        ran.append(number)

    with SERVERS["chat"](replies) as server:
        run = await run_on(nb.Agent(model_at(server), tools=[save]), "go", stream=stream)
    assert (ran, run.result.text) == ([1, 2], "Saved.")


async def test_c865_usage_beside_the_reason_for_the_end_counts():
    """Moonshot's place for it (pi 2017)."""
    end = {"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    data = json.dumps({"choices": [{**end, "usage": usage}]}).encode()
    with SERVERS["chat"]([Raw(b"data: " + data + b"\n\n" + DONE, EVENTS)]) as server:
        run = await run_on(nb.Agent(model_at(server)), "go", stream=True)
    assert run.result.usage.total_tokens == 15


MEANT = '{"ids": [1, 2]}'
ARGUMENTS = {
    "a JSON string (sglang 7863, quarkus-langchain4j 2569)": json.dumps(MEANT),
    "a JSON string in another": json.dumps(json.dumps(MEANT)),
    "an empty object first (openai-agents-js 712, autogen 6843)": "{}" + MEANT,
    "an empty object and blanks first": " { }\n" + MEANT,
    "lists as strings in it too": json.dumps('{"ids": "[1, 2]"}'),
}
OTHER_ARGUMENTS = [MEANT + MEANT, json.dumps("[1]"), json.dumps(""), json.dumps("x")]


@PLAYED
@pytest.mark.parametrize("form", ARGUMENTS)
async def test_c866_arguments_that_are_wrapped_are_read(api: str, stream: bool, form: str):
    """What runs is in the journal and in the next request."""
    ran: list[Any] = []

    @nb.tool
    def save(ids: list[int]) -> None:
        ran.append(ids)

    with SERVERS[api]([Reply(calls=[("save", ARGUMENTS[form])]), Reply("done")]) as server:
        run = await run_on(nb.Agent(model_at(server), tools=[save]), "go", stream=stream)
        sent = json.dumps(server.bodies[-1])
    assert (ran, run.calls["save"][0].input) == ([[1, 2]], {"ids": [1, 2]})
    assert json.dumps('{"ids":[1,2]}') in sent


@pytest.mark.parametrize("arguments", OTHER_ARGUMENTS)
async def test_c866_no_other_arguments_are_guessed(arguments: str):
    """They are asked for again, as other malformed ones are."""
    ran: list[Any] = []
    with SERVERS["chat"]([Reply(calls=[("save", arguments)]), Reply("done")]) as server:
        save = nb.tool(name="save")(lambda: ran.append(1))
        await run_on(nb.Agent(model_at(server), tools=[save]), "go", stream=True)
        assert "not a JSON object" in results(server.bodies[-1])[0]
    assert ran == []


class Terse(ResponsesServer):
    """A server of Responses that sends arguments once, and ends with ``response.done`` (litellm 27144, oh-my-pi 4692)."""

    def events(self, body: Body, reply: Reply) -> Any:
        """The events of a streamed reply, as they are sent."""
        for event in super().events(body, reply):
            kind = event.split(b"\n")[0].rpartition(b".")[0]
            end = event.startswith(b"event: response.completed")
            is_left_out = kind.endswith(b"arguments") and b".delta" in event
            if end:
                yield event.replace(b"response.completed", b"response.done")
            elif not is_left_out and not event.startswith(b"event: response.output_item.done"):
                yield event


async def test_c867_arguments_that_arrive_once_are_those_that_run():
    """Without them, the call would run with its defaults."""
    ran: list[int] = []

    @nb.tool
    def wipe(days: int = 0) -> None:
        ran.append(days)

    with Terse([Reply(calls=[("wipe", {"days": 30})]), Reply("done")]) as server:
        run = await run_on(nb.Agent(model_at(server), tools=[wipe]), "go", stream=True)
    assert (ran, run.result.text, len(server.bodies)) == ([30], "done", 2)


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "90.5s"}
BUSY = {"error": {"code": 429, "message": "Quota exceeded", "details": [{"a": 1}, WAIT]}}


@PLAYED
@pytest.mark.parametrize("body", [BUSY, [BUSY]], ids=["an object", "in a list"])
async def test_c868_a_wait_in_the_text_of_an_error_counts(api: str, stream: bool, body: Any):
    """Gemini sends no header for it (atomic-agent 106, RooCode 2118)."""
    with SERVERS[api](lambda _body: Raw(json.dumps(body).encode(), status=429)) as server:
        with pytest.raises(ModelError, match=r"possible again in 9[01] s.* max_wait is 60"):
            await run_on(nb.Agent(model_at(server)), "go", stream=stream)
        assert len(server.bodies) == 1
