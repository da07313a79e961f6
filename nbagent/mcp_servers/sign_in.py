"""Sign-in to a server by OAuth: the provider of ``mcp``, the question to a person, and the receipt of the answer."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import (
    AfterValidator,
    AnyUrl,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
)

from nbagent.core.base.addresses import host_of
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import NbagentError

from .address import McpSignIn, Url, remove_secrets
from .tokens import EXPIRED, Tokens

MAX_LINK = 2_000
"""The maximum number of characters of the sign-in link."""
MAX_ANSWER = 8_000
"""The maximum number of characters of the pasted text."""
MAX_REQUEST = 16_000
"""Bytes of a request to the redirect address."""
PATIENCE = 5.0
"""The time limit of a request to the redirect address, in seconds."""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
_DONE = (
    "<!doctype html><meta charset=utf-8><title>Signed in</title>"
    "<p>You can close this page and go back to the notebook."
)
_WRONG = (
    "<!doctype html><meta charset=utf-8><title>Not accepted</title><p>This is not an answer to an open "
    "sign-in."
)


class SignInQuestion(NamedTuple):
    """The question to a person: to open a page, and to paste the address of the last page."""

    server: str
    link: str
    host: str
    """The host of the page."""
    state: str
    redirect_uri: str
    receiver: str = ""
    """The host that receives the code and the client's secret, if it is not the page's."""

    @property
    def message(self) -> str:
        """The question as text."""
        goes = f". The code and the client's secret then go to {self.receiver}"
        where = f"{self.host}{goes if self.receiver else ''}"
        return f"{self.server[:1].upper()}{self.server[1:]} asks you to sign in at {where}"

    @property
    def reply(self) -> type[Any]:
        """The form for the answer, ``address``; the form does not accept an answer to another question."""

        def checked(given: SecretStr) -> SecretStr:
            self.parse(given.get_secret_value())
            return given

        help_ = (
            f"Copy the address of the page where you end up ({self.redirect_uri}?code=…) and paste it here. The page "
            "itself does not have to load."
        )
        field = Field(title="Address of the page where you end up, or its code", description=help_)
        kind: Any = Annotated[SecretStr, AfterValidator(checked)]
        config = ConfigDict(hide_input_in_errors=True)
        return create_model("SignIn", __config__=config, address=(kind, field))

    def parse(self, text: str) -> AuthorizationCodeResult | str:
        """Parse an answer: return the code, or the page's reason for rejecting the sign-in.

        Raises:
            ValueError: the text is neither, or belongs to another question.
        """
        text = text.strip()
        if not text or len(text) > MAX_ANSWER:
            raise ValueError(
                "Paste the address of the page where you ended up, or the code that it shows"
            )
        if "=" not in text and "://" not in text:
            if len(text.split()) > 1:
                raise ValueError("This is neither a code nor an address")
            return AuthorizationCodeResult(code=text, state=self.state)
        pairs = parse_qsl(urlsplit(text).query or text.rpartition("?")[2])
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("This address contains a value twice. Open the link again")
        parameters = dict(pairs)
        if not hmac.compare_digest(parameters.get("state", "").encode(), self.state.encode()):
            raise ValueError(
                "This address belongs to another sign-in. Open the link above, and paste the address where you end up"
            )
        if error := parameters.get("error"):
            why = parameters.get("error_description", "")
            return escaped(": ".join(filter(None, (error, why)))[:300])
        if not parameters.get("code"):
            raise ValueError(
                "This address has no code. Sign in first, then paste the address where you end up"
            )
        return AuthorizationCodeResult(
            code=parameters["code"], state=parameters["state"], iss=parameters.get("iss")
        )


Ask = Callable[[SignInQuestion], Awaitable[str]]
"""A function that asks a person and returns the pasted text."""


class SignIn(OAuthClientProvider):
    """The OAuth provider of ``mcp`` for one connection. It asks a person only if the server rejects a request."""

    def __init__(self, address: Url, given: McpSignIn, name: str, ask: Ask) -> None:
        self.tokens = Tokens(address.url, given)
        self.failure = ""
        """The reason why a sign-in failed; empty if none did."""
        self._address, self._name, self._given, self._ask = address, name, given, ask
        self._question: SignInQuestion | None = None
        self._is_here = urlsplit(address.url).hostname in _LOOPBACK
        """Whether the server is on this machine; then its authorization server may also be on this machine."""
        self._lock = asyncio.Lock()
        """Held during a sign-in or renewal, which begins with the record in the provider."""
        super().__init__(
            address.url,
            OAuthClientMetadata(
                redirect_uris=[AnyUrl(self.tokens.redirect_uri)], client_name="nbagent"
            ),
            self.tokens,
            self._remember,
            self._answered,
            given.client_metadata_url,
        )
        self.tokens.context = self.context

    @property
    def secrets(self) -> list[str]:
        """The secrets that no text may contain."""
        return [*self._address.secrets, *self.tokens.secrets]

    # --- around the library's flow

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the current token; if rejected, renew the token or ask a person, then send it again."""
        tokens, status, used = self.tokens, 0, None
        with suppress(OSError):  # the reason is reported if the server requires a sign-in
            tokens.reload()
        if not tokens.must_renew:
            used = tokens.token
            if used is not None:
                request.headers["Authorization"] = f"Bearer {used}"
            response = yield request
            status, challenge = response.status_code, response.headers.get("WWW-Authenticate", "")
            wants_more = status == 403 and "insufficient_scope" in challenge
            if status != 401 and not wants_more:
                return
        async with self._lock:
            flow = super().async_auth_flow(request)
            try:
                tokens.reload()
                tokens.load()
                if status == 401 and used == tokens.token:  # not renewed by another process
                    # the provider then renews the token, or signs in if it cannot be renewed
                    self.context.token_expiry_time = EXPIRED
                outgoing = await anext(flow)
                while True:
                    if outgoing is not request:
                        self._check(outgoing.url)
                    outgoing = await flow.asend((yield outgoing))
            except StopAsyncIteration:
                self.failure = ""
                return
            except (OAuthFlowError, NbagentError, ValidationError, ValueError, OSError) as error:
                self.failure = escaped(remove_secrets(_reason(error), self.secrets))[:500]
            finally:
                await flow.aclose()
        request.headers.pop("Authorization", None)
        yield request  # rejected again; the transport reports it

    def _check(self, url: httpx2.URL) -> None:
        """Check that credentials and requests of the sign-in go only to safe addresses, and to the client's server."""
        if self._given.client_id is not None and self.context.client_info is None:
            now = self.context.auth_server_url or self.context.server_url
            raise OAuthFlowError(
                f"its sign-in has moved to {host_of(now)}, but the client_id in nb.McpSignIn is registered at "
                f"{host_of(self.tokens.issuer)}. Register a client there. If you trust it with this client, call "
                "`await server.sign_out()` first"
            )
        is_safe = url.scheme == "https" or (self._is_here and url.host in _LOOPBACK)
        if url.scheme not in ("http", "https") or not is_safe or url.userinfo:
            raise OAuthFlowError(
                f"its sign-in page is at {url.scheme}://{escaped(url.host)[:200]}, but must use https (http only on "
                "this machine)"
            )

    # --- callbacks of the library that need a person

    async def _remember(self, link: str) -> None:
        parts = urlsplit(link)
        host = host_of(link)
        is_here = self._is_here and parts.hostname in _LOOPBACK
        is_safe = (parts.scheme == "https" or is_here) and "@" not in parts.netloc
        states = [value for name, value in parse_qsl(parts.query[:MAX_LINK]) if name == "state"]
        if host is None or not is_safe or not states or len(link) > MAX_LINK:
            raise OAuthFlowError(
                "the address of its sign-in page is not https (or http on this machine), is too long or ambiguous, or has "
                f"no state: {escaped(link[:100])}"
            )
        receiver = host_of(self._get_token_endpoint()) or ""
        self._question = SignInQuestion(
            self._name,
            link,
            host,
            states[-1],
            self.tokens.redirect_uri,
            "" if receiver == host else receiver,
        )
        client = self.context.client_info
        if self._given.client_id is not None and client is not None:
            client.token_endpoint_auth_method = self.tokens.auth_method(self.context.oauth_metadata)

    async def _answered(self) -> AuthorizationCodeResult:
        question = self._question
        assert question is not None
        answer = question.parse(await self._first_answer(question))
        if isinstance(answer, str):
            raise OAuthFlowError(f"{question.host} rejected the sign-in: {answer}")
        self.tokens.code = answer.code
        return answer

    async def _first_answer(self, question: SignInQuestion) -> str:
        """The pasted text, or the address from the browser's redirect, whichever arrives first."""
        if self._given.answer is not None:
            return await self._given.answer(question.link)
        async with _listening(question) as redirect:
            asked = asyncio.ensure_future(self._ask(question))
            try:
                await asyncio.wait({asked, redirect}, return_when=asyncio.FIRST_COMPLETED)
                return asked.result() if asked.done() else redirect.result()
            finally:
                asked.cancel()
                await asyncio.wait({asked})
                if not asked.cancelled():
                    asked.exception()


@asynccontextmanager
async def _listening(question: SignInQuestion) -> AsyncGenerator[asyncio.Future[str], None]:
    """Receive the redirect of a browser, unless the redirect address is on another machine or in use."""
    redirect: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    parts = urlsplit(question.redirect_uri)
    server = None
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:

        async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PATIENCE):
                    await _handle_redirect(question, redirect, reader, writer)
            writer.close()

        with suppress(OSError):
            port = parts.port or 80
            server = await asyncio.start_server(on_connect, "127.0.0.1", port, limit=MAX_REQUEST)
    try:
        yield redirect
    finally:
        if server is not None:
            server.close()
        redirect.cancel()


async def _handle_redirect(
    question: SignInQuestion,
    redirect: asyncio.Future[str],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Handle one request to the redirect address."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition(" ")
    target = rest.split(" ", 1)[0]
    address = ""
    with suppress(ValueError):  # of an answer to another question, or not of an address
        parts = urlsplit(target)
        if method == "GET" and parts.path == urlsplit(question.redirect_uri).path:
            given = f"{question.redirect_uri}?{parts.query}"
            question.parse(given)
            address = given
    page = (_DONE if address else _WRONG).encode()
    status = "200 OK" if address else "400 Bad Request"
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n".encode()
        + page
    )
    await writer.drain()
    if address and not redirect.done():
        redirect.set_result(address)


def _reason(error: Exception) -> str:
    """The reason of a failed sign-in, without the answer of a server that cannot be read, which may be a token."""
    unread = error if isinstance(error, ValidationError) else error.__context__
    if isinstance(unread, ValidationError):
        return f"an answer of its sign-in cannot be read: {misfit(unread)}"
    return str(error)


def misfit(error: ValidationError) -> str:
    """The first difference of a value from its type, without the value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
