"""Answers and errors in the unusual formats of servers such as llama.cpp's."""

from __future__ import annotations

import json
import socket
import threading

import pytest

import nbagent as nb
from nbagent.core.base.errors import MessagesError, ModelError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Finished
from nbagent.models.openai.responses import ResponsesParser
from tests.integration.chat_server import Reply
from tests.integration.responses_server import Items, ResponsesServer
from tests.integration.test_dark_corners import Server, serving
from tests.integration.test_litellm import PIXEL

CALLED = {"type": "function_call", "call_id": "c", "name": "double", "arguments": '{"x": 4}'}


def unnumbered(data: bytes) -> bytes:
    """A stream like that of llama.cpp's server, without the item number in each event."""
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    for event in events:
        event.pop("output_index", None)
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_c393_items_without_numbers_are_distinguished_by_their_ids() -> None:
    """Two streamed texts and calls give the same deltas and end as with numbers."""
    texts = [{"type": "output_text", "text": text, "annotations": []} for text in ("One.", "Two.")]
    said = [
        {"type": "message", "id": f"m{n}", "role": "assistant", "content": [text]}
        for n, text in enumerate(texts)
    ]
    calls = [{**CALLED, "id": f"f{n}", "call_id": f"c{n}"} for n in range(2)]
    body = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    with ResponsesServer() as server:
        data = b"".join(server.events(body, Items(output=[*said, *calls])))
    numbered, bare = ResponsesParser("p"), ResponsesParser("p")
    assert bare.feed(unnumbered(data)) == numbered.feed(data)
    assert bare.finished() == numbered.finished()
    assert isinstance(bare.finished(), Finished)


async def run_error(url: str, prompt: object = "go", *, watched: bool = True) -> str:
    """The error of a run."""
    async with nb.OpenAIModel("m", base_url=url, api_key="k", max_retries=0) as model:
        agent = nb.Agent(model)
        with pytest.raises(ModelError) as raised:
            await (agent.run(prompt, attended=False) if watched else agent.generate(prompt))
    return str(raised.value)


FORMS = {
    "an event": (
        "text/event-stream",
        b'event: error\ndata: {"error": {"message": "disk full"}}\n\n',
    ),
    "a failed response": (
        "text/event-stream",
        b'data: {"type": "response.failed", "response": {"error": {"message": "disk full"}}}\n\n',
    ),
    "the error as a text": ("application/json", b'{"error": "disk full"}'),
    "detail": ("application/json", b'{"detail": [{"loc": ["body"], "msg": "disk full"}]}'),
    "AWS": ("application/json", b'{"__type": "InternalException", "Message": "disk full"}'),
    "plain text": ("text/plain", b"disk full"),
    "a page": ("text/html", b"<html><title>disk full</title></html>"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("watched", [True, False])
async def test_c394_the_message_of_an_error_is_reported_whatever_its_form(form, watched) -> None:
    """This includes formats that the client cannot read, streamed or not."""
    kind, body = FORMS[form]
    with serving(Server([body], kind, 500)) as url:
        assert "500, the server failed" in (said := await run_error(url, watched=watched))
    assert "disk full" in said


@pytest.mark.parametrize("status", [400, 500, 501])
@pytest.mark.parametrize("watched", [True, False])
async def test_c395_a_refused_picture_is_an_error_that_says_how_to_send_words_instead(
    status, watched
) -> None:
    """llama.cpp's server refuses a picture with 500; errors without a picture do not name the setting."""
    body = b'{"error": {"message": "image input is not supported"}}'
    prompt = ["look", nb.File(PIXEL, "image/png", name="dot.png")]
    with serving(Server([body], "application/json", status, times=2)) as url:
        assert "vision=False" in await run_error(url, prompt, watched=watched)
        assert "vision=False" not in await run_error(url, watched=watched)


async def test_c396_a_server_that_hung_up_is_not_reported_as_unreachable() -> None:
    """A server that closes the connection was reached; a missing server is still reported as unreachable."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://127.0.0.1:{there.getsockname()[1]}/v1"

        def hang_up() -> None:
            connection = there.accept()[0]
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        said = await run_error(url)
        thread.join()
    assert "was reached, but closed the connection" in said
    assert "cannot be reached" not in said
    assert "cannot be reached" in await run_error(url)


async def test_c397_an_answer_is_sent_back_as_an_item_with_its_type() -> None:
    """llama.cpp's server requires the type."""
    with ResponsesServer([Reply("One."), Reply("Two.")]) as server:
        async with nb.OpenAIModel("m", base_url=server.url, api_key="k", api="responses") as model:
            agent = nb.Agent(model)
            first = await agent.generate("go")
            await agent.generate(messages=[*first.messages, user("on")])
    assert server.bodies[1]["input"][1]["type"] == "message"


def test_c398_an_item_that_only_its_server_understands_is_named_by_its_index() -> None:
    """The error shows the index, not a phrase that reads like a field."""
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    history = [{"role": "user", "content": "a"}, hidden, CALLED]
    with pytest.raises(MessagesError, match=r"messages\[1\] is an item with data that only"):
        nb.messages_from_openai(history)
