"""The client that MCP's conformance suite starts with a server's URL: an agent with ``nb.mcp``, as in any script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

import nbagent as nb

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
DOCUMENT = "https://conformance-test.local/client-metadata.json"
call = nb.ScriptedModel.call


async def opened(link: str) -> str:
    """The address to which the sign-in page redirects; the suite's page lets everybody in."""
    async with httpx2.AsyncClient() as client:
        response = await client.get(link)
        return str(response.headers["location"])


def issuer_of(url: str) -> str:
    """The authorization server that a company configures for its server; the suite names it only in the metadata."""
    found = httpx2.get(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")).json()
    return str(found["authorization_servers"][0])


async def asserted(audience: str, resource: str) -> str:
    """The identity provider's assertion about a person who has signed in."""
    asked = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": audience,
        "resource": resource,
        "subject_token": CONTEXT["idp_id_token"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "client_id": CONTEXT["idp_client_id"],
    }
    async with httpx2.AsyncClient() as client:
        response = await client.post(CONTEXT["idp_token_endpoint"], data=asked)
        return str(response.json()["access_token"])


class Memory:
    """Token storage for the library's providers, whose grants need no person."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self.kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self.kept["client"] = client_info


def auth_for(url: str, folder: str) -> Any:
    """The ``auth=`` that a person would pass."""
    match SCENARIO:
        case "auth/client-credentials-basic":
            return ClientCredentialsOAuthProvider(
                server_url=url,
                storage=Memory(),
                client_id=CONTEXT["client_id"],
                client_secret=CONTEXT["client_secret"],
                token_endpoint_auth_method="client_secret_basic",
            )
        case "auth/client-credentials-jwt":
            signed = SignedJWTParameters(
                issuer=CONTEXT["client_id"],
                subject=CONTEXT["client_id"],
                signing_algorithm=CONTEXT.get("signing_algorithm", "ES256"),
                signing_key=CONTEXT["private_key_pem"],
            )
            return PrivateKeyJWTOAuthProvider(
                server_url=url,
                storage=Memory(),
                client_id=CONTEXT["client_id"],
                assertion_provider=signed.create_assertion_provider(),
            )
        case "auth/cross-app-access-complete-flow" | "auth/enterprise-managed-authorization":
            return IdentityAssertionOAuthProvider(
                server_url=url,
                storage=Memory(),
                client_id=CONTEXT["client_id"],
                client_secret=CONTEXT["client_secret"],
                issuer=issuer_of(url),
                assertion_provider=asserted,
                token_endpoint_auth_method="client_secret_basic",
            )
    known = {key: CONTEXT[key] for key in ("client_id", "client_secret") if key in CONTEXT}
    return nb.McpSignIn(**known, answer=opened, client_metadata_url=DOCUMENT, folder=folder)


STEPS: dict[str, list[Any]] = {
    "http-invalid-tool-headers": [call("valid_tool", region="us-west1")],
    "tools_call": [call("add_numbers", a=2, b=3)],
    "elicitation-sep1034-client-defaults": [call("test_client_elicitation_defaults")],
    "sse-retry": [call("test_reconnection")],
}


async def main(url: str) -> None:
    """Connect, list and call the tools, and answer questions with the form's defaults."""
    with tempfile.TemporaryDirectory() as folder:
        auth = auth_for(url, folder) if SCENARIO.startswith("auth/") else None
        async with nb.mcp(url, auth=auth, approval=False, timeout=20) as server:
            print(server.label, urlsplit(url).path, sorted(server.tools))
            tools = [call(name) for name in server.tools if SCENARIO.startswith("auth/")]
            given = [call(one["name"], **one["arguments"]) for one in CONTEXT.get("toolCalls", [])]
            steps = [*STEPS.get(SCENARIO, tools or given or [*map(call, server.tools)]), "done"]
            run = nb.Agent(nb.ScriptedModel(steps), tools=[server]).run("Go")
            await run.settled()
            while run.interrupts:
                asked = run.interrupts[0]
                fields = (asked.reply_schema or {}).get("properties", {})
                said = {name: one.get("default", True) for name, one in fields.items()}
                run.respond(asked, said)
                await run.settled()
            await run
            for calls in run.calls.values():
                print(*(one.error or one.output for one in calls))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
