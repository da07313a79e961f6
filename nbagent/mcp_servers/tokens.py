"""The tokens of a server after a sign-in, stored in one private file, also for later processes."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from mcp.client.auth import TokenStorage
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from nbagent.core.base.foreign import read_by, within_parts
from nbagent.core.base.private import write_private

from .address import McpSignIn

EXPIRED = 1.0
"""An expiry time in the past; not 0, because ``mcp`` treats 0 as no expiry."""


class Kept(BaseModel):
    """The contents of a token file."""

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    server: OAuthMetadata | None = None
    """The authorization server, so that a later process can refresh without discovering it."""
    resource: ProtectedResourceMetadata | None = None
    redirect_uri: str = ""


class Tokens(TokenStorage):
    """The token file of one server, as storage for the OAuth provider of ``mcp``.

    Args:
        url: the MCP server's URL.
        given: the sign-in settings.
    """

    def __init__(self, url: str, given: McpSignIn) -> None:
        self._given = given
        identity = "\0".join((url, given.client_id or "", given.client_metadata_url or ""))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        host = re.sub(r"[^\w.-]", "_", urlsplit(url).hostname or "")[:80]
        folder = data_folder() / "mcp" if given.folder is None else Path(given.folder).expanduser()
        self.path = folder / f"{host}-{digest}.json"
        self._seen: tuple[int, int] | None = None
        """The file's time and size after the last read or write."""
        self.kept = Kept()
        self.code = ""
        """The last pasted code."""
        self.context: OAuthContext | None = None
        """The provider's context; set after the provider is created."""
        redirect = given.redirect_uri
        if not redirect:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                redirect = f"http://127.0.0.1:{free.getsockname()[1]}/callback"
        self._own_redirect = redirect
        self._choose_redirect()
        self.reload()

    def reload(self) -> bool:
        """Read the file if another process has changed it; return whether it has."""
        now = self._stamp()
        if now == self._seen:
            return False
        self._seen = now
        self.kept = Kept()
        with suppress(FileNotFoundError, ValueError):  # missing or unreadable: a person signs in
            self.kept = read_by(Kept.model_validate_json, within_parts(self.path.read_bytes()))
        self._choose_redirect()
        return True

    def _choose_redirect(self) -> None:
        """Choose the redirect address; a client that is registered with another address is dropped."""
        kept, given = self.kept, self._given.redirect_uri
        if given is not None and kept.redirect_uri != given:
            kept.client = None
        kept.redirect_uri = given or kept.redirect_uri or self._own_redirect

    def load(self) -> None:
        """Load the stored values into the provider, except metadata that the provider already has."""
        context, kept = self.context, self.kept
        assert context is not None
        context.client_metadata.redirect_uris = [AnyUrl(kept.redirect_uri)]
        context.current_tokens = kept.tokens
        context.token_expiry_time = kept.expires_at
        context.client_info = self._client()
        context.oauth_metadata = context.oauth_metadata or kept.server
        context.protected_resource_metadata = context.protected_resource_metadata or kept.resource

    @property
    def secrets(self) -> list[str]:
        """The secrets that no text may contain."""
        tokens, client = self.kept.tokens, self.kept.client
        found = [tokens.access_token, tokens.refresh_token] if tokens else []
        found += [client.client_secret] if client else []
        return [one for one in (*found, self._given.secret, self.code) if one]

    # --- the library's interface

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, and set their expiry and refresh address in the provider."""
        self.load()
        return self.kept.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens."""
        context = self.context
        assert context is not None
        self.kept.tokens, self.kept.expires_at = tokens, context.token_expiry_time
        self.kept.server, self.kept.resource = (
            context.oauth_metadata,
            context.protected_resource_metadata,
        )
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client's registration: from the settings, or from an earlier registration."""
        return self._client()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration, with its redirect address."""
        self.kept.client = client_info
        self._write()

    def _client(self) -> OAuthClientInformationFull | None:
        given = self._given
        if given.client_id is None:
            return self.kept.client
        method = "client_secret_basic" if given.secret else "none"
        return OAuthClientInformationFull(
            client_id=given.client_id,
            client_secret=given.secret,
            token_endpoint_auth_method=method,
        )

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.path, self.kept.model_dump_json(exclude_none=True))
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size


def data_folder() -> Path:
    """The folder for a user's private data: ``NBAGENT_DATA``, else the system's default."""
    if chosen := os.environ.get("NBAGENT_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "nbagent"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/nbagent"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "nbagent"


def expire_token(context: OAuthContext) -> None:
    """Make the provider renew its token with the next request, or sign in if the token cannot be renewed."""
    context.token_expiry_time = min(EXPIRED, time.time())
