"""A sign-in goes where the person said: no secret of one authorization server is sent to another."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
import pytest

import nbagent as nb
from nbagent.mcp_servers.address import Url
from nbagent.mcp_servers.sign_in import SignIn

MCP = "https://mcp.example/mcp"
DOCUMENT = "https://nb.example/client.json"
SECRET = "a/secret+of=the app"
BASIC = b64encode(f"app:{quote(SECRET, safe='')}".encode()).decode()
CLIENTS: dict[str, dict[str, Any]] = {
    "of the settings": {"client_id": "app", "client_secret": SECRET},
    "registered": {},
    "a document": {"client_metadata_url": DOCUMENT},
}


class World:
    """An MCP server whose owner chooses the authorization server, and all that these servers are sent."""

    def __init__(self) -> None:
        self.issuer = "a.example"
        self.accepted: set[str] = set()
        """The access tokens that the MCP server accepts."""
        self.sent: list[tuple[str, str, str]] = []
        """The host, path and text of each request."""
        self.endpoint = ""
        """The host that exchanges codes; by default the issuer's."""
        self.methods: list[str] | None = None
        """The ways in which the authorization server receives a client's secret."""
        self.given: httpx2.Response | None = None
        """The answer to the next request for a token."""
        self.count = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        host, path = request.url.host, request.url.path
        authorization = request.headers.get("Authorization", "")
        self.sent.append((host, path, f"{authorization} {request.content.decode()}"))
        response = self._answer(host, path, authorization)
        response.request = request
        return response

    def _answer(self, host: str, path: str, authorization: str) -> httpx2.Response:
        if host == "mcp.example" and path == "/mcp":
            if authorization.removeprefix("Bearer ") in self.accepted:
                return httpx2.Response(200)
            place = f'Bearer resource_metadata="https://{host}/about"'
            return httpx2.Response(401, headers={"WWW-Authenticate": place})
        if path == "/about":
            servers = [f"https://{self.issuer}"]
            return httpx2.Response(200, json={"resource": MCP, "authorization_servers": servers})
        if path == "/.well-known/oauth-authorization-server":
            about = {
                "issuer": f"https://{host}",
                "authorization_endpoint": f"https://{host}/authorize",
                "token_endpoint": f"https://{self.endpoint or host}/token",
                "registration_endpoint": f"https://{host}/register",
                "client_id_metadata_document_supported": True,
                "token_endpoint_auth_methods_supported": self.methods,
            }
            return httpx2.Response(200, json=about)
        if path == "/register":
            client = {"client_id": f"id-{host}", "client_secret": f"secret-of-{host}"}
            method = {"token_endpoint_auth_method": "client_secret_post"}
            return httpx2.Response(201, json={**client, **method})
        assert path == "/token"
        if self.given is not None:
            return self.given
        self.count += 1
        access = f"access-{self.count}-{host}"
        self.accepted = {access}
        refresh = f"refresh-{self.count}-{host}"
        tokens = {"access_token": access, "refresh_token": refresh, "expires_in": 60}
        return httpx2.Response(200, json={**tokens, "token_type": "Bearer"})

    def sent_to(self, host: str) -> str:
        return "\n".join(text for where, _, text in self.sent if where == host)


class Person:
    """A person who approves or rejects each sign-in."""

    def __init__(self) -> None:
        self.approves = True
        self.hosts: list[str] = []

    async def __call__(self, link: str) -> str:
        asked = dict(parse_qsl(urlsplit(link).query))
        self.hosts.append(str(urlsplit(link).hostname))
        says = "code=a-secret-code" if self.approves else "error=access_denied"
        return f"{asked['redirect_uri']}?{says}&state={asked['state']}"


async def send(sign_in: SignIn, world: World) -> int:
    """Send a request as the HTTP client does; return the status of its answer."""
    flow = sign_in.async_auth_flow(httpx2.Request("POST", MCP, content=b"call"))
    outgoing = await anext(flow)
    while True:
        response = world(outgoing)
        try:
            outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return response.status_code


def signing_in(person: Person, folder: Path, **client: Any) -> SignIn:
    given = nb.McpSignIn(**client, answer=person, folder=folder)
    return SignIn(Url(MCP, {}, given), given, "the MCP server shop", person)


def stored(folder: Path) -> dict[str, Any]:
    (file,) = folder.iterdir()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("is_new", [False, True], ids=["the same process", "a later process"])
async def test_c380_a_rejected_sign_in_elsewhere_leaves_the_first_one_whole(kind, is_new, tmp_path):
    """The new server gets no secret, not even when the token expires; the first server still renews it."""
    world, person, folder = World(), Person(), tmp_path / "kept"
    sign_in = signing_in(person, folder, **CLIENTS[kind])
    assert await send(sign_in, world) == 200
    before = stored(folder)
    world.issuer, person.approves, world.accepted = "b.example", False, set()
    world.given = httpx2.Response(400, text="invalid_grant")
    assert await send(sign_in, world) == 401
    assert sign_in.failure
    assert stored(folder) == before
    for _ in range(3):
        if is_new:
            sign_in = signing_in(person, folder, **CLIENTS[kind])
        assert await send(sign_in, world) == 401
    for secret in (
        SECRET,
        quote(SECRET, safe=""),
        BASIC,
        "secret-of-a",
        "refresh-",
        "a-secret-code",
    ):
        assert secret not in world.sent_to("b.example")
    assert stored(folder) == before
    world.given = None
    if is_new:
        sign_in = signing_in(person, folder, **CLIENTS[kind])
    assert await send(sign_in, world) == 200
    assert world.sent[-2][:2] == ("a.example", "/token")


async def test_c380_a_client_of_the_settings_stays_with_its_authorization_server(tmp_path):
    """If the MCP server names another one, nobody is asked, and the error says what to do."""
    world, person = World(), Person()
    sign_in = signing_in(person, tmp_path / "kept", **CLIENTS["of the settings"])
    assert await send(sign_in, world) == 200
    world.issuer, world.accepted = "b.example", set()
    world.given = httpx2.Response(400, text="invalid_grant")
    assert await send(sign_in, world) == 401
    assert person.hosts == ["a.example"]
    assert "moved to b.example" in sign_in.failure
    assert "registered at a.example" in sign_in.failure
    assert world.sent_to("b.example") == ""
    sign_in.tokens.path.unlink()  # as ``sign_out`` does
    world.given = None
    assert await send(sign_in, world) == 200
    assert person.hosts == ["a.example", "b.example"]


async def test_c380_a_sign_in_elsewhere_replaces_the_whole_record(tmp_path):
    """The registered client, the tokens and the addresses are those of the new authorization server."""
    world, person, folder = World(), Person(), tmp_path / "kept"
    sign_in = signing_in(person, folder)
    assert await send(sign_in, world) == 200
    world.issuer, world.accepted = "b.example", set()
    world.given = httpx2.Response(400)

    async def approves(link: str) -> str:
        world.given = None
        return await Person()(link)

    sign_in._given = nb.McpSignIn(answer=approves)
    assert await send(sign_in, world) == 200
    assert "a.example" not in json.dumps(stored(folder))
    assert stored(folder)["client"]["issuer"] == "https://b.example"
    assert "secret-of-a" not in world.sent_to("b.example")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_c380_a_failed_sign_in_repeats_no_credential_in_any_form(kind, tmp_path):
    """The token endpoint repeats what it got, as text and in Base64, also where the message is cut."""
    world, person = World(), Person()
    sign_in = signing_in(person, tmp_path / "kept", **CLIENTS[kind])
    secret = "secret-of-a.example" if kind == "registered" else SECRET
    encoded = b64encode(f"id-a.example:{secret}".encode()).decode()
    found = {"of the settings": [secret, BASIC], "registered": [secret, encoded]}.get(kind, [])
    for secret in ("a-secret-code", *found):
        for size in range(400, 480, 4):
            world.given = httpx2.Response(400, text=f"{'-' * size}{secret}!")
            assert await send(sign_in, world) == 401
            assert "Token exchange failed" in sign_in.failure
            assert secret[:9] not in sign_in.failure


async def test_c380_an_answer_with_tokens_that_cannot_be_read_is_not_repeated(tmp_path):
    """The answer has a refresh token, but no access token."""
    world, person = World(), Person()
    sign_in = signing_in(person, tmp_path / "kept")
    world.given = httpx2.Response(200, json={"refresh_token": "alive-1234567"})
    assert await send(sign_in, world) == 401
    assert (
        sign_in.failure == "an answer of its sign-in cannot be read: access_token: Field required"
    )


async def test_c382_the_question_names_the_host_that_gets_the_code(tmp_path):
    """The page may be on a host that the person trusts, and the code go to another one."""
    world, person = World(), Person()
    sign_in = signing_in(person, tmp_path / "kept", **CLIENTS["of the settings"])
    for endpoint, said in (
        ("", "at a.example"),
        ("c.example", "the client's secret then go to c.example"),
    ):
        world.endpoint, person.approves = endpoint, False
        assert await send(sign_in, world) == 401
        assert sign_in._question is not None
        assert sign_in._question.message.endswith(said)


async def test_c379_a_token_that_was_renewed_meanwhile_is_not_renewed_again(tmp_path):
    """By another process or another request; a refresh token works once."""
    world, folder = World(), tmp_path / "kept"
    first, second = (signing_in(Person(), folder) for _ in "12")
    assert await send(first, world) == await send(second, world) == 200
    for other in (first, second):
        world.accepted = set()
        flow = first.async_auth_flow(httpx2.Request("POST", MCP))
        rejected = world(await anext(flow))
        assert await send(other, world) == 200
        assert world(await flow.asend(rejected)).status_code == 200
        await flow.aclose()
    assert [path for _, path, _ in world.sent].count("/token") == 3


async def test_c378_a_request_during_a_sign_in_waits_and_does_not_disturb_it(tmp_path):
    """The code goes to the authorization server that the person saw, and both requests are sent."""
    world, person, folder, is_asked = World(), Person(), tmp_path / "kept", asyncio.Event()
    assert await send(signing_in(person, folder), world) == 200
    world.issuer, world.accepted = "b.example", set()
    world.given, answers = httpx2.Response(400), asyncio.Event()

    async def later(link: str) -> str:
        world.given = None
        is_asked.set()
        await answers.wait()
        return await person(link)

    sign_in = signing_in(person, folder)
    sign_in._given = nb.McpSignIn(answer=later)
    first = asyncio.create_task(send(sign_in, world))
    await is_asked.wait()
    second = asyncio.create_task(send(sign_in, world))
    for _ in range(20):  # until it waits
        await asyncio.sleep(0)
    answers.set()
    assert await first == await second == 200
    assert "a-secret-code" in world.sent_to("b.example")
    assert world.sent_to("a.example").count("a-secret-code") == 1


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_c383_a_secret_is_sent_as_its_authorization_server_offers(method, tmp_path):
    """In the body or in a header, also to renew the token in a later process."""
    world, person = World(), Person()
    world.methods = [method]
    for _ in "12":
        world.accepted = set()
        sign_in = signing_in(person, tmp_path / "kept", **CLIENTS["of the settings"])
        assert await send(sign_in, world) == 200
    texts = [text for _, path, text in world.sent if path == "/token"]
    assert ["refresh_token=" in text for text in texts] == [False, True]
    in_body = [
        f"client_secret={quote(SECRET, safe='').replace('%20', '+')}" in text for text in texts
    ]
    assert in_body == [method == "client_secret_post"] * 2
    assert [BASIC in text for text in texts] == [method == "client_secret_basic"] * 2


SPOILED = {
    "a link to the file": "it is a link, and nbagent does not read one here. Delete it",
    "a file that others can read": "other users can read or change this file. Delete it",
    "a folder in its place": "not a regular file",
    "a folder that others can write to": "other users can write to this folder",
}


@pytest.mark.parametrize("how", SPOILED)
async def test_c380_tokens_that_are_not_private_are_refused(how, tmp_path):
    """They are neither sent nor replaced, and nobody is asked; the error says what to delete."""
    world, person, folder = World(), Person(), tmp_path / "kept"
    assert await send(signing_in(person, folder), world) == 200
    (file,) = folder.iterdir()
    match how:
        case "a link to the file":
            file.rename(tmp_path / "moved")
            file.symlink_to(tmp_path / "moved")
        case "a file that others can read":
            file.chmod(0o644)
        case "a folder in its place":
            file.unlink()
            file.mkdir()
        case _:
            folder.chmod(0o777)
    world.sent.clear()
    later = signing_in(person, folder)
    assert await send(later, world) == 401
    assert SPOILED[how] in later.failure
    assert str(folder) in later.failure
    assert "access-" not in world.sent_to("mcp.example")
    assert len(person.hosts) == 1
