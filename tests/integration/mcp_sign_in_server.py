"""An MCP server that requires a sign-in, with the authorization server of ``mcp``.

``python mcp_sign_in_server.py NOTES PORT [SECONDS]``: NOTES gets a line for each sign-in, renewal, registration and
call; SECONDS is the lifetime of a token. ``/revoke`` revokes all tokens, ``/expire`` all access tokens.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

NOTES, PORT = Path(sys.argv[1]), int(sys.argv[2])
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3600
URL = f"http://127.0.0.1:{PORT}"


def note(text: str) -> None:
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


class Accounts:
    """The registered clients and their tokens, in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> Any:
        return self.clients.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        note("registered")
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: Any) -> str:
        """The URL of the page on which a person agrees."""
        number = secrets.token_hex(4)
        self.asked[number] = client, params
        return f"{URL}/consent?number={number}"

    def allow(self, number: str) -> str:
        """The URL to which the browser goes when the person has agreed."""
        client, params = self.asked.pop(number)
        code = f"code-{secrets.token_hex(8)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}
            ),
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
        del client
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> OAuthToken:
        del self.codes[authorization_code.code]
        note("signed in")
        return self._granted(client, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
        del client
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Any, refresh_token: Any, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        note("renewed")
        return self._granted(client, scopes)

    async def load_access_token(self, token: str) -> Any:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _granted(self, client: Any, scopes: list[str]) -> OAuthToken:
        access, refresh = (f"{kind}-{secrets.token_hex(16)}" for kind in ("access", "refresh"))
        self.access[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + SECONDS,
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes
        )
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=SECONDS)


accounts = Accounts()
server = MCPServer(
    "guarded",
    log_level="CRITICAL",
    auth_server_provider=accounts,
    auth=AuthSettings.model_validate(
        {
            "issuer_url": URL,
            "resource_server_url": f"{URL}/mcp",
            "validate_token_resource": False,
            "client_registration_options": ClientRegistrationOptions(enabled=True),
        }
    ),
)


class Size(BaseModel):
    size: int


@server.tool(structured_output=False)
def look(what: str) -> str:
    """Look at something."""
    note(f"look {what}")
    return f"saw {what}"


@server.tool(structured_output=False)
async def asks(ctx: Context) -> str:
    """Ask in the middle of a call, or before its result: as the protocol's version has it."""
    said = await ctx.elicit("Which size?", Size)
    return f"{said.action} {said.data.size if said.action == 'accept' else ''}"


@server.custom_route("/consent", methods=["GET"])
async def consent(request: Any) -> HTMLResponse:
    number = request.query_params["number"]
    return HTMLResponse(f"<h1>Let nbagent in?</h1><a href='/allow?number={number}'>Allow</a>")


@server.custom_route("/allow", methods=["GET"])
async def allow(request: Any) -> RedirectResponse:
    return RedirectResponse(accounts.allow(request.query_params["number"]), 302)


@server.custom_route("/revoke", methods=["GET"])
async def revoke(request: Any) -> PlainTextResponse:
    del request
    accounts.access.clear()
    accounts.refresh.clear()
    return PlainTextResponse("done")


@server.custom_route("/expire", methods=["GET"])
async def expire(request: Any) -> PlainTextResponse:
    del request
    accounts.access.clear()
    return PlainTextResponse("done")


if __name__ == "__main__":
    import uvicorn

    note("started")
    uvicorn.run(server.streamable_http_app(), port=PORT, log_level="critical")
