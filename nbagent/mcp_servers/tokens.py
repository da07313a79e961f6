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
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyHttpUrl, AnyUrl, BaseModel, ConfigDict

from nbagent.core.base.incoming_json import read_by, within_parts
from nbagent.core.base.private import check_private_folder, read_private, write_private

from .address import McpSignIn

EXPIRED = 1.0
"""An expiry time in the past; not 0, because ``mcp`` treats 0 as no expiry."""


class SignInRecord(BaseModel):
    """A sign-in as one value: an authorization server, the client there and the tokens from there."""

    model_config = ConfigDict(frozen=True)
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    """The registered client; None if the settings have the client."""
    server: OAuthMetadata | None = None
    """The authorization server; None if the MCP server itself is one, at its usual addresses."""
    resource: ProtectedResourceMetadata | None = None
    redirect_uri: str = ""


class Tokens(TokenStorage):
    """The token file of one server, as storage for the OAuth provider of ``mcp``.

    The file and the memory have one record, which is only replaced as a whole. So a token and a client's secret are
    never beside the address of another authorization server than theirs.
    """

    def __init__(self, url: str, given: McpSignIn) -> None:
        self._given = given
        identity = "\0".join((url, given.client_id or "", given.client_metadata_url or ""))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        parts = urlsplit(url)
        host = re.sub(r"[^\w.-]", "_", parts.hostname or "")[:80]
        folder = data_folder() / "mcp" if given.folder is None else Path(given.folder).expanduser()
        self.path = folder / f"{host}-{digest}.json"
        self.record = SignInRecord()
        self.code = ""
        """The last pasted code."""
        self.context: OAuthContext
        """The provider's context; set after the provider is created."""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._stamp: tuple[int, ...] | None = None
        """The file's identity, time and size after the last read or write."""
        self._known: set[str] = set()
        """The secrets of all records so far; an error may repeat an earlier one."""
        if not (redirect := given.redirect_uri):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                redirect = f"http://127.0.0.1:{free.getsockname()[1]}/callback"
        self._own_redirect = redirect

    @property
    def redirect_uri(self) -> str:
        """The redirect address: of the settings, else of the registered client, else a free port."""
        return self._given.redirect_uri or self.record.redirect_uri or self._own_redirect

    @property
    def token(self) -> str | None:
        """The access token."""
        return None if self.record.tokens is None else self.record.tokens.access_token

    @property
    def must_renew(self) -> bool:
        """Whether the token has expired and can be renewed without a person."""
        tokens, end = self.record.tokens, self.record.expires_at
        has_expired = bool(end) and time.time() > (end or 0.0)
        return has_expired and bool(tokens and tokens.refresh_token and self._client())

    @property
    def issuer(self) -> str:
        """The issuer of the record."""
        return self._issuer(self.record.server)

    @property
    def secrets(self) -> list[str]:
        """The secrets that no text may contain, except that of the settings."""
        return [*self._known, self.code]

    def reload(self) -> None:
        """Read the file if another process has changed it.

        Raises:
            OSError: the file cannot be read, is not a regular file, or other users can read or replace it.
        """
        with suppress(FileNotFoundError):
            check_private_folder(self.path.parent)
        now = self._stamp_now()
        if now == self._stamp:
            return
        self.record = SignInRecord()
        with suppress(FileNotFoundError, ValueError):  # missing or damaged: a person signs in
            found = read_by(SignInRecord.model_validate_json, within_parts(read_private(self.path)))
            issuer = found.client.issuer if found.client and found.tokens else None
            if issuer is None or issuers_match(issuer, self._issuer(found.server)):
                self._keep(found)
        self._stamp = now

    def load(self) -> None:
        """Replace everything in the provider by the record, so that nothing of an unfinished sign-in is left."""
        context, record = self.context, self.record
        context.client_metadata.redirect_uris = [AnyUrl(self.redirect_uri)]
        context.current_tokens, context.token_expiry_time = record.tokens, record.expires_at
        context.client_info = self._client()
        context.oauth_metadata, context.protected_resource_metadata = record.server, record.resource
        issuer = self._issuer(record.server)
        is_own = issuers_match(issuer, self._issuer(None))
        context.auth_server_url = None if is_own else issuer

    def auth_method(self, server: OAuthMetadata | None) -> str:
        """The way in which an authorization server receives the secret of the settings."""
        if not self._given.secret:
            return "none"
        offered = server.token_endpoint_auth_methods_supported if server else None
        is_basic = not offered or "client_secret_basic" in offered
        return "client_secret_basic" if is_basic else "client_secret_post"

    # --- the library's interface

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens of the record."""
        return self.record.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Replace the record: these tokens are from the authorization server that the provider now has."""
        self._replace(self.context.client_info, tokens, self.context.token_expiry_time)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client: from the settings, or from an earlier registration with this redirect address."""
        return self._client()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a new client, unless the record has tokens: these stay until there are new ones."""
        self._known.update(filter(None, [client_info.client_secret]))
        if self.record.tokens is None:
            self._replace(client_info, None, None)

    def _client(self) -> OAuthClientInformationFull | None:
        given, record = self._given, self.record
        if given.client_id is None:
            return record.client if record.redirect_uri == self.redirect_uri else None
        return OAuthClientInformationFull(
            client_id=given.client_id,
            client_secret=given.secret,
            token_endpoint_auth_method=self.auth_method(record.server),
            issuer=self._issuer(record.server) if record.tokens else None,
        )

    def _issuer(self, server: OAuthMetadata | None) -> str:
        """The issuer to which a client, tokens and addresses belong."""
        return str(AnyHttpUrl(self._origin) if server is None else server.issuer)

    def _replace(
        self,
        client: OAuthClientInformationFull | None,
        tokens: OAuthToken | None,
        expires_at: float | None,
    ) -> None:
        """Replace the record, in memory and in the file."""
        context = self.context
        if client is not None:
            issuer = self._issuer(context.oauth_metadata)
            client = client.model_copy(update={"issuer": issuer})
        record = SignInRecord(
            tokens=tokens,
            expires_at=expires_at,
            client=client if self._given.client_id is None else None,
            server=context.oauth_metadata,
            resource=context.protected_resource_metadata,
            redirect_uri=self.redirect_uri,
        )
        self._keep(record)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_private_folder(self.path.parent)
        write_private(self.path, record.model_dump_json(exclude_none=True))
        self._stamp = self._stamp_now()

    def _keep(self, record: SignInRecord) -> None:
        tokens, client = record.tokens, record.client
        found = [tokens.access_token, tokens.refresh_token] if tokens else []
        found += [client.client_secret] if client else []
        self._known.update(filter(None, found))
        self.record = record

    def _stamp_now(self) -> tuple[int, ...] | None:
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def data_folder() -> Path:
    """The folder for a user's private data: ``NBAGENT_DATA``, else the system's default."""
    if chosen := os.environ.get("NBAGENT_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "nbagent"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/nbagent"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "nbagent"
