"""No credential may leak, even if a server echoes the whole request."""

from __future__ import annotations

import json
import logging
import time
import traceback
from base64 import b64encode
from typing import Any

import openai
import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.events import dump
from nbagent.core.base.model import TextDelta, ToolCallDelta
from nbagent.models.openai.credentials import Credentials, Keyring, StreamFilter
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.render import plain, static
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.responses_server import ResponsesServer

KEY = "sk-proj-0123456789abcdefghij"
PASSWORD = "p@ss word/42-long"
TOKEN = "query-token-98765"
HEADER = "header-secret-13579"
SENT = b64encode(f"ann:{PASSWORD}".encode()).decode()
KNOWN = {
    "url": [KEY, PASSWORD, "p%40ss%20word%2F42-long", "p%40ss%20word/42-long", TOKEN, SENT],
    "client": [KEY, HEADER, SENT],
}
"""The secrets of each kind of client."""


class Echo(ChatServer):
    """A server that returns the headers and the URL of each request."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        handler = self._http.RequestHandlerClass
        handler.do_POST = _without_query(handler.do_POST)
        self.queries = handler.queries = []

    def answer(self, seen: Any) -> Any:
        step = super().answer(seen)
        said = " ".join([json.dumps(seen.headers), *(KNOWN["url"] if self.queries[0] else [KEY])])
        if isinstance(step, Refuse):
            return Refuse(step.status, said, {"x-echo": KEY, **step.headers})
        return Reply(said, calls=step.calls, reasoning=said, pieces=len(said) // 7, cut=step.cut)


def echoed(server: Echo, *, how: str) -> nb.OpenAIModel:
    """A model with credentials in its URL or its client."""
    host = server.url.removeprefix("http://")
    if how == "url":
        base_url = f"http://ann:p%40ss%20word%2F42-long@{host}?token={TOKEN}"
        return nb.OpenAIModel("m", base_url=base_url, api_key=KEY, max_retries=1)
    client = openai.AsyncOpenAI(
        base_url=server.url,
        api_key=KEY,
        default_headers={"X-Api-Key": HEADER, "Proxy-Authorization": f"Basic {SENT}"},
        max_retries=1,
        http_client=openai.DefaultAsyncHttpxClient(),
    )
    return nb.OpenAIModel("m", client=client)


STEPS: dict[str, Any] = {
    "refused": Refuse(401),
    "not found": Refuse(404),
    "failing": Refuse(500),
    "answered": Reply("yes"),
    "calling": Reply(calls=[("look", {"at": KEY})]),
    "broken": Reply("yes", cut=40),
}


@pytest.mark.parametrize("how", ["url", "client"])
@pytest.mark.parametrize("step", STEPS)
async def test_no_output_contains_a_credential(step, how, caplog, tmp_path):
    """Errors, logs, the journal, HTML, reprs and messages to the model are checked."""
    caplog.set_level(logging.DEBUG)
    with Echo([STEPS[step]] * 3) as server:
        model = echoed(server, how=how)
        with nb.SQLiteStore(tmp_path / "runs.db") as store:
            agent = nb.Agent(model, store=store)
            agent.add(look)
            run = agent.run("go", attended=True, show=False)
            run_card = RunCard(run)
            seen: list[Any] = []
            try:
                seen.append((await run).text)
            except Exception as error:
                seen += ["".join(traceback.format_exception(error)), repr(error)]
                seen += [repr(error.__cause__), repr(error.__context__)]
            view = run_card._view()
            seen += [static.render(view), plain.render(view), repr(model), repr(agent), repr(run)]
            seen += [[dump(event) for event in store.read(run.id)], run.messages, caplog.text]
            seen += [path.read_bytes() for path in tmp_path.iterdir()]
            run_card.detach()
            run_card.close()
        assert server.requests, repr(seen)
        again = [request.body for request in server.requests]
        if model._clients.given is not None:
            await model._clients.given.close()
        await model.aclose()
    found = repr(seen) + repr(again)
    for secret in KNOWN[how]:
        at = found.find(secret)
        assert at < 0, found[max(0, at - 300) : at + 100]
    assert "•••" in found or step == "broken"


@nb.tool
def look(at: str) -> str:
    """Look."""
    return at


async def test_a_query_of_the_base_url_is_sent_with_each_request():
    """The client alone would put the query into the middle of the path."""
    with Echo([Reply("yes")]) as server:
        model = nb.OpenAIModel("m", base_url=f"{server.url}?token={TOKEN}", api_key=KEY)
        assert "•••" in (await nb.Agent(model).run("go", attended=False)).text
        await model.aclose()
    assert server.queries == [f"token={TOKEN}"]


@pytest.mark.parametrize("fault", ["error", "not JSON"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_error_in_the_stream_of_an_azure_client_is_repeated_and_has_no_key(api, fault):
    """The client parses the events itself; its errors are treated like those of nbagent's own client."""
    sent = {"error": {"message": f"no access with {KEY}", "code": "server_error"}}
    event = f"data: {json.dumps(sent) if fault == 'error' else f'{{{KEY}'}\n\n".encode()
    server = {"chat": ChatServer, "responses": ResponsesServer}[api]([Reply("yes")] * 3)
    whole, handler = server.events, server._http.RequestHandlerClass
    server.events = lambda *given: whole(*given) if len(server.requests) == 2 else iter([event])
    if api == "chat":
        server.path = "/v1/deployments/m/chat/completions"
    handler.do_POST, handler.queries = _without_query(handler.do_POST), []
    client = openai.AsyncAzureOpenAI(
        base_url=server.url,
        api_key=KEY,
        api_version="1",
        max_retries=1,
        http_client=openai.DefaultAsyncHttpxClient(),
    )
    with server:
        async with client:
            model = nb.OpenAIModel("m", client=client, api=api)
            async for _ in (run := nb.Agent(model).run("go", attended=False)).events():
                pass
            assert (await run).text == "yes"
            failing = client.with_options(max_retries=0)
            run = nb.Agent(nb.OpenAIModel("m", client=failing, api=api)).run("go", attended=False)
            expected = {
                "error": "The model 'm': The server reported: no access with •••",
                "not JSON": "The model 'm': The server sent b'{•••', which is not JSON",
            }
            async for _ in run.events():
                pass
    assert run.journal[-1].message == expected[fault]
    assert KEY not in repr(run.journal)


def _without_query(do_post: Any) -> Any:
    def post(self: Any) -> Any:
        self.path, _, query = self.path.partition("?")
        self.queries.append(query)
        return do_post(self)

    return post


async def test_an_invalid_base_url_is_reported_without_its_password():
    """The client reports these URLs in different ways."""
    for wrong in (f"http://ann:{PASSWORD[-9:]}@host:port/v1", f"http://ann:{KEY}@[::1/v1"):
        with pytest.raises((ModelConfigError, ModelError)) as caught:
            await nb.Agent(nb.OpenAIModel("m", base_url=wrong, api_key=KEY, max_retries=0)).run(
                "go", attended=False
            )
        told = "".join(traceback.format_exception(caught.value))
        assert PASSWORD[-9:] not in told
        assert KEY not in told


async def test_an_azure_token_is_a_credential_too():
    """No header has the token before a request is sent."""
    client = openai.AsyncAzureOpenAI(
        azure_endpoint="http://host", azure_ad_token=TOKEN, api_version="2024-02-01"
    )
    told = Keyring().of(client).remove(f"{TOKEN} of 2024-02-01")
    assert told == "••• of 2024-02-01"
    await client.close()


def test_ordinary_words_are_not_removed_as_credentials():
    """A local server's short key and headers that name the caller are not removed."""
    client = openai.AsyncOpenAI(
        base_url="http://host/v1", api_key="none", default_headers={"X-Title": "my notebook"}
    )
    text = "none of my notebook is cut"
    assert Keyring().of(client).remove(text) == text


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_key_is_removed_from_a_stream_however_it_is_split(size):
    """A text and the inputs of two calls are split into pieces of any size; all other text is unchanged."""
    said = f"so {KEY} and {KEY[:9]}, sk-{KEY}s"
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    expected = said.replace(KEY, "•••")
    public = StreamFilter(Credentials([KEY]))
    deltas = [
        told for piece in pieces for told in public.filtered([TextDelta(piece)])
    ] + public.rest()
    assert "".join(delta.text for delta in deltas) == expected
    both = [ToolCallDelta(index, piece) for piece in pieces for index in (0, 1)]
    deltas = [told for delta in both for told in public.filtered([delta])] + public.rest()
    for index in (0, 1):
        assert "".join(d.arguments for d in deltas if d.index == index) == expected


def test_removing_keys_takes_time_in_proportion_to_the_text():
    """A server that repeats the start of a key does not block the kernel's loop."""
    credentials = Credentials([KEY])

    def cost(count: int) -> int:
        text = f"{KEY[:14]} http://a:b@c/ " * count
        began = time.process_time_ns()
        assert KEY[:14] not in credentials.remove(text)
        return time.process_time_ns() - began

    small, large = (min(cost(count) for _ in range(3)) for count in (5_000, 50_000))
    assert large < 40 * small
