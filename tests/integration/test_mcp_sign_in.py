"""Signing in to MCP servers by OAuth: a real authorization server, pasted addresses, stored and hidden tokens."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

import nbagent as nb
from nbagent.core.base.errors import McpError, UsageError
from nbagent.core.run.host import ScriptHost
from nbagent.mcp_servers.connection import _hide_in_logs
from nbagent.mcp_servers.sign_in import SignIn, SignInQuestion, _listening
from tests.integration.mcp_servers import free_port, honest, liar, signed_in_by
from tests.until import until

call = nb.ScriptedModel.call
LINK = "https://as.example/authorize?state=st-1&client_id=c"
BACK = "http://127.0.0.1:9/callback"
QUESTION = SignInQuestion("the MCP server shop", LINK, "as.example", "st-1", BACK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the tokens."""
    return tmp_path / "kept"


@pytest.fixture
def url(notes: Path) -> Iterator[str]:
    """The URL of a server that requires a sign-in."""
    with signed_in_by(notes) as found:
        yield found


async def led_to(link: str) -> str:
    """Agree on the page, like a person in the browser; return the address of the redirect."""
    async with httpx2.AsyncClient() as client:
        consent = await client.get(link)
        page = await client.get(consent.headers["location"])
        assert "Let nbagent in?" in page.text
        number = consent.headers["location"].rpartition("=")[2]
        allowed = await client.get(f"{link.partition('/authorize')[0]}/allow?number={number}")
        return str(allowed.headers["location"])


def _server(url: str, folder: Path, **options: Any) -> Any:
    options = {"auth": nb.McpSignIn(answer=led_to, folder=folder), "approval": False} | options
    return nb.mcp(url, name="guarded", **options)


def server_notes(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


def _run(server: Any, *steps: Any) -> nb.Run:
    agent = nb.Agent(
        nb.ScriptedModel([*(steps or [call("look", what="up")]), "done"]), tools=[server]
    )
    return agent.run("Go")


def _secrets(folder: Path) -> list[str]:
    (file,) = folder.iterdir()
    tokens = json.loads(file.read_text())["tokens"]
    return [tokens["access_token"], tokens["refresh_token"]]


async def test_c376_a_sign_in_is_stored_in_a_private_file_for_later_servers_and_processes(
    url, notes, folder
):
    """The person signs in once; another server object, as in another process, needs no person."""
    async with _server(url, folder) as server:
        await _run(server)
    (file,) = folder.iterdir()
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    async with nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False) as later:
        await _run(later)
    assert server_notes(notes) == ["started", "registered", "signed in", "look up", "look up"]


async def test_c377_a_script_that_must_sign_in_gets_an_error_that_says_what_to_do(url, folder):
    """Without a person, nothing hangs, and the error lists the ways to sign in."""
    server = nb.mcp(url, auth=nb.McpSignIn(folder=folder))
    with pytest.raises(McpError) as told:
        await server.connect()
    for what in ("HTTP 401", "sign in at 127.0.0.1", "await server.connect()", "auth='TOKEN'"):
        assert what in str(told.value)
    assert not [*folder.glob("*")] or "tokens" not in next(folder.iterdir()).read_text()
    with pytest.raises(McpError, match="sign in at"):
        await _run(server)


async def test_c378_a_sign_in_during_a_call_asks_on_the_run_and_ends_when_the_browser_answers(
    url, notes, folder
):
    """The grant is revoked during a run: the call waits, a person signs in again, and the call is sent."""
    server = _server(url, folder)
    await server.connect()
    server._address = server._address._replace(
        auth=nb.McpSignIn(folder=folder)
    )  # from here on, a person is asked
    await server.aclose()
    await server.connect()
    for how in ("paste", "browser"):
        await _get(url, "revoke")
        run = _run(server)
        await run.settled()
        (asked,) = run.interrupts
        assert (
            asked.metadata["message"] == "The MCP server guarded asks you to sign in at 127.0.0.1"
        )
        link = asked.metadata["sign_in"]
        with pytest.raises(nb.errors.InvalidAnswer, match="another sign-in"):
            run.respond(asked, {"address": f"{BACK}?code=x&state=y"})
        address = await led_to(link)
        if how == "paste":
            run.respond(asked, {"address": address})
        else:
            async with httpx2.AsyncClient() as browser:
                wrong = await browser.get(address.replace("state=", "state=x"))
                page = await browser.get(address)
            assert wrong.status_code == 400
            assert "go back to the notebook" in page.text
        await until(lambda: run.status == "completed")  # noqa: B023 - it is waited for here
        assert run.interrupts == []
        assert run.calls["look"][0].output == "saw up"
        journal = repr(run.messages) + json.dumps(nb.export_run(run.id))
        for secret in (*_secrets(folder), address.partition("code=")[2].partition("&")[0]):
            assert secret not in journal
    assert server_notes(notes).count("signed in") == 3
    await server.aclose()


async def test_c379_an_expired_token_is_renewed_without_a_person(notes, folder):
    """The token is past its expiry time, or the server has revoked it; a later process renews it too."""
    with signed_in_by(notes, seconds=2) as url:
        async with _server(url, folder):
            pass
        lonely = nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False)
        await until(lambda: _expired(folder))
        async with lonely:
            await _run(lonely)
            await _get(url, "expire")
            await _run(lonely)
    assert server_notes(notes).count("signed in") == 1
    assert server_notes(notes).count("renewed") >= 2


async def test_c379_two_processes_do_not_take_the_renewed_token_of_each_other(url, notes, folder):
    """A refresh token works once, so the second process reads the new token from the file."""
    first = _server(url, folder)
    second = nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False)
    async with first, second:
        await _get(url, "expire")
        await _run(first)
        await _run(second)
        await _run(first)
    assert server_notes(notes).count("signed in") == 1
    assert server_notes(notes).count("renewed") == 1


async def test_c380_no_token_is_in_logs_errors_or_reprs(url, folder, caplog):
    """All loggers log at the DEBUG level."""
    caplog.set_level(logging.DEBUG)
    server = _server(url, folder)
    await server.connect()
    run = _run(server)
    await run
    await _get(url, "expire")
    await _run(server)
    told = f"{server!r} {server._address!r} {server._options!r} {vars(server)!r}"
    with pytest.raises(McpError) as refused:
        await nb.mcp(url, auth="static-token-1234").connect()
    for secret in (*_secrets(folder), "static-token-1234"):
        assert secret not in caplog.text + told + str(refused.value)
    await server.aclose()


async def test_c380_signing_out_forgets_the_tokens(url, notes, folder):
    """The file is deleted, and a person is asked again."""
    server = _server(url, folder)
    await server.connect()
    await server.sign_out()
    assert [*folder.iterdir()] == []
    await server.connect()
    await server.aclose()
    assert server_notes(notes).count("signed in") == 2


class Person(ScriptHost):
    """A person who is present, with an answer for each form."""

    def __init__(self, *says: Any) -> None:
        self.says = [*says]
        self.asked: list[tuple[str, str]] = []

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:
        self.asked.append((message, link))
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        if said == "never":
            await asyncio.Event().wait()
        return reply(address=await led_to(link))


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    """The person who answers questions that are asked before any call."""
    found = Person(nb.Rejected("no"), "yes")
    monkeypatch.setattr("nbagent.mcp_servers.connection.current_host", lambda: found)
    return found


async def test_c376_a_starting_run_asks_to_sign_in_before_its_first_turn_and_only_once(
    url, notes, folder, person
):
    """A cancelled form fails the run with the reason; the next run asks again, once for two runs."""
    server = nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False, connect_timeout=5)
    with pytest.raises(McpError, match="the form was cancelled"):
        await _run(server)
    first, second = _run(server), _run(server)
    await first
    await second
    assert len(person.asked) == 2
    assert person.asked[1][0].endswith("asks you to sign in at 127.0.0.1")
    assert server_notes(notes).count("signed in") == 1
    await server.aclose()


async def test_c376_a_run_stopped_during_its_sign_in_leaves_the_question_to_the_next_run(
    url, notes, folder, person
):
    """The next run does not wait for the closed form."""
    person.says = ["never", "yes"]
    server = nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False, connect_timeout=5)
    run = _run(server)
    await until(lambda: bool(person.asked))
    await run.cancel()
    assert run.status == "cancelled"
    await _run(server)
    assert len(person.asked) == 2
    assert server_notes(notes).count("signed in") == 1
    await server.aclose()


async def test_c376_the_second_of_two_waiting_runs_asks_when_the_first_is_stopped(
    url, notes, folder, person
):
    """Both runs share one question."""
    person.says = ["never", "yes"]
    server = nb.mcp(url, auth=nb.McpSignIn(folder=folder), approval=False)
    first, second = _run(server), _run(server)
    await until(lambda: bool(person.asked))
    await first.cancel()
    await second
    assert server_notes(notes).count("signed in") == 1
    await server.aclose()


async def test_c379_missing_or_damaged_tokens_lead_to_a_new_sign_in(url, notes, folder):
    """As after a sign-out by another process; the browser's return address still works."""
    server = _server(url, folder)
    for spoil in (Path.unlink, lambda path: path.write_text("no json")):
        async with server:
            (file,) = folder.iterdir()
            spoil(file)
            await _get(url, "revoke")
            await _run(server)  # during a call, the same function answers
    assert server_notes(notes).count("signed in") == 3


async def _get(url: str, what: str) -> None:
    async with httpx2.AsyncClient() as client:
        await client.get(url.replace("/mcp", f"/{what}"))


def _expired(folder: Path) -> bool:
    import time  # noqa: PLC0415

    (file,) = folder.iterdir()
    return bool(json.loads(file.read_text())["expires_at"] < time.time())


# --- what is pasted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Paste the address"),
        ("two words", "neither"),
        (f"{BACK}?code=abc", "another sign-in"),
        (f"{BACK}?code=abc&state=st-2", "another sign-in"),
        (f"{BACK}?state=st-1", "no code"),
        (f"{BACK}?code=a&code=b&state=st-1", "twice"),
        (f"{BACK}?code={'a' * 9000}&state=st-1", "Paste the address"),
    ],
)
def test_c381_an_address_for_another_sign_in_is_refused_at_its_field(text, why):
    """No part of the address is sent, and no error has the secret."""
    with pytest.raises(ValidationError, match=why) as refused:
        QUESTION.reply(address=text)
    assert "abc" not in str(refused.value)


def test_c381_a_code_or_the_whole_address_answers():
    """The whole address has the issuer, for the library to check."""
    alone = QUESTION.parse(" abc ")
    whole = QUESTION.parse(f"{BACK}?code=abc&state=st-1&iss=https%3A%2F%2Fas.example")
    assert (alone.code, alone.state, alone.iss) == ("abc", "st-1", None)
    assert (whole.code, whole.state, whole.iss) == ("abc", "st-1", "https://as.example")
    refused = QUESTION.parse(f"{BACK}?error=access_denied&error_description=no%1b[31m&state=st-1")
    assert refused == "access_denied: no\\x1b[31m"


async def test_a_malformed_request_to_the_redirect_address_is_answered():
    """It does not answer the sign-in, and its connection is closed."""
    port = free_port()
    question = QUESTION._replace(redirect_uri=f"http://127.0.0.1:{port}/callback")
    async with _listening(question) as redirect:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET //[ HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert not redirect.done()


@pytest.mark.parametrize(
    "link",
    [
        "http://as.example/authorize?state=1",
        "http://127.0.0.1:8888/lab?state=1",
        "javascript:alert(1)//?state=1",
        "file:///etc/passwd?state=1",
        "https://good.example@evil.example/?state=1",
        "https://good.example\\evil.example/?state=1",
        "https://as.example/#?state=1",
        f"https://as.example/{'a' * 3000}?state=1",
    ],
)
async def test_c382_a_misleading_sign_in_page_is_not_shown(link, folder):
    """The page's address comes from a server that nbagent does not trust."""
    sign_in = sign_in_for("https://mcp.example/mcp", folder)
    with pytest.raises(Exception, match="is not https"):
        await sign_in._remember(link)
    assert sign_in._question is None


@pytest.mark.parametrize(
    ("server", "place", "is_taken"),
    [
        ("https://mcp.example/mcp", "https://as.example/token", True),
        ("https://mcp.example/mcp", "http://as.example/token", False),
        ("https://mcp.example/mcp", "http://127.0.0.1:8888/api", False),
        ("https://mcp.example/mcp", "http://169.254.169.254/latest", False),
        ("http://127.0.0.1:1/mcp", "http://localhost:2/token", True),
        ("https://mcp.example/mcp", "https://u:p@as.example/", False),
    ],
)
def test_c382_a_sign_in_leads_to_no_unencrypted_or_local_address(server, place, is_taken, folder):
    """The server chooses the addresses, so they must not lead to a service next to the kernel."""
    sign_in = sign_in_for(server, folder)
    if is_taken:
        sign_in._check(httpx2.URL(place))
    else:
        with pytest.raises(Exception, match="must use https"):
            sign_in._check(httpx2.URL(place))


async def test_c382_every_address_that_a_server_names_is_checked_by_that_rule(folder):
    """A remote server cannot make the kernel request a local service."""
    request = httpx2.Request("POST", "https://mcp.example/mcp")
    flow = sign_in_for(str(request.url), folder).async_auth_flow(request)
    place = "http://169.254.169.254/latest/meta-data"
    asked = [await anext(flow)]
    wants = {"WWW-Authenticate": f'Bearer resource_metadata="{place}"'}
    with suppress(StopAsyncIteration):
        while len(asked) < 9:
            asked.append(await flow.asend(httpx2.Response(401, headers=wants, request=asked[-1])))
    assert len(asked) == 3  # the plain request, the library's request, and the refused one
    assert {str(each.url) for each in asked} == {str(request.url)}


async def test_c380_a_traceback_of_the_library_is_in_no_log(caplog):
    """The traceback has the authorization server's answer, which may be a token."""
    caplog.set_level(logging.DEBUG)
    log = logging.getLogger("mcp.client.auth.oauth2")
    with _hide_in_logs(lambda: ["token-1234567"]):
        said = ValueError("other-words-of-the-server token-1234567")
        log.error("failed with token-1234567", exc_info=said)
    assert "failed with" in caplog.text
    assert "token-1234567" not in caplog.text
    assert "other-words" not in caplog.text


def sign_in_for(url: str, folder: Path) -> SignIn:
    server = nb.mcp(url, auth=nb.McpSignIn(folder=folder))
    return SignIn(server._address, server._address.auth, server.name, _never)


async def _never(question: Any) -> str:
    raise AssertionError(question)


def test_c383_an_invalid_auth_is_refused():
    """The error comes at once and without the secret."""
    for wrong in (
        {"auth": 3},
        {"auth": "token-1", "headers": {"authorization": "Bearer token-1"}},
    ):
        with pytest.raises(UsageError) as refused:
            nb.mcp("https://mcp.example/mcp", **wrong)
        assert "token-1" not in str(refused.value)
    with pytest.raises(UsageError, match="auth= is for a URL"):
        nb.mcp("a-server", auth="token-1")
    with pytest.raises(UsageError, match="client_id"):
        nb.McpSignIn(client_secret="s")
    assert "s3cr3t" not in repr(nb.McpSignIn(client_id="c", client_secret="s3cr3t"))


# --- versions of the protocol


async def test_c384_an_unknown_version_is_refused_with_the_known_ones():
    """The library's names for versions are refused too."""
    for wrong in ("legacy", "2025", ""):
        with pytest.raises(UsageError, match=r"'2025-06-18'.*'2026-07-28'"):
            nb.mcp("a-server", protocol=wrong)


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28", None])
async def test_c384_a_server_speaks_the_version_that_was_chosen(protocol, notes):
    """The client offers the version and calls tools with it."""
    server = honest(notes, protocol=protocol)
    async with server:
        client = server._connection()._client
        assert client is not None
        assert client.protocol_version == (protocol or "2026-07-28")
        run = _run(server, call("order"))
        await run.settled()
        run.respond(run.interrupts[0], {"size": 3})
        await run
    assert run.calls["order"][0].output == "ordered 3"


async def test_c385_a_question_asked_with_elicit_is_a_form_in_versions_that_have_it(url, folder):
    """``ctx.elicit`` asks during a call, which only the older versions allow."""
    async with _server(url, folder, protocol="2025-11-25") as server:
        run = _run(server, call("asks"))
        await run.settled()
        run.respond(run.interrupts[0], {"size": 3})
        await run
        assert run.calls["asks"][0].output == "accept 3"
    async with _server(url, folder) as server:
        run = _run(server, call("asks"))
        await run
        assert "protocol=" in str(run.calls["asks"][0].error)


async def test_an_older_process_that_asks_during_a_call_uses_its_own_version():
    """The process supports no newer version."""
    async with liar("waits", protocol="2025-06-18") as server:
        run = _run(server, call("plain"))
        await run.settled()
        assert run.interrupts
        run.reject(run.interrupts[0])
        await run
