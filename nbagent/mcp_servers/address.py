"""The address of a server: a command that starts it, or a URL; from an argument, or from a config file."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, unquote_plus, urlsplit

from pydantic import SecretStr

from nbagent.core.base.credentials import CUT, forms_of, without_base64
from nbagent.core.base.errors import UsageError, suggest

ServerSource: TypeAlias = str | Sequence[str] | Mapping[str, Any] | Path
"""A command line, a URL, or a config."""

SHORT = 6
"""The minimum length of a credential that is removed from texts; shorter ones may be ordinary words."""
_RUNNERS = ("npx", "bunx", "uvx", "uv", "pipx", "docker", "podman", "node", "deno", "bun", "python")
_VERBS = ("run", "exec", "x", "tool")
_HOST = re.compile(r"(localhost|[\w.-]+\.\w+|[\d.]+):\d+(/\S*)?$")
"""A server's address without a scheme, which is not a command."""
_LISTS = ("mcpServers", "servers")


class Command(NamedTuple):
    """A server that is a process on this machine."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None

    @property
    def label(self) -> str:
        """The server's default name: its package, or its program."""
        names = [os.path.basename(word) for word in self.argv]
        runner = names[0].rstrip("0123456789.").removesuffix(".exe") in _RUNNERS
        found = [*_values(self.argv)]
        rest = [
            name
            for word, name in zip(self.argv[1:], names[1:], strict=True)
            if runner and name and not word.startswith("-") and word not in _VERBS
            if "=" not in word and word not in found
        ]
        return rest[0] if rest else names[0]

    @property
    def secrets(self) -> list[str]:
        """The secrets that no text may contain."""
        return [*self.env.values(), *_values(self.argv)]

    def __repr__(self) -> str:
        return f"<Command {self.label}>"


@dataclass(frozen=True, kw_only=True)
class McpSignIn:
    """OAuth settings for an MCP server, if the automatic sign-in is not enough: ``nb.mcp(url, auth=nb.McpSignIn(…))``.

    ``client_id`` and ``client_secret``: an application that you registered, for services without automatic
    registration. ``redirect_uri`` is the redirect address of this application, by default
    ``http://127.0.0.1:PORT/callback``. ``client_metadata_url`` is the URL of a client's metadata document (CIMD).
    ``answer`` is an async function for scripts, which have no form: it receives the link that a person must
    open, and returns the address of the last page, or the code. ``folder`` is the folder of the tokens.
    """

    client_id: str | None = None
    client_secret: str | SecretStr | None = None
    redirect_uri: str | None = None
    client_metadata_url: str | None = None
    answer: Callable[[str], Awaitable[str]] | None = None
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise UsageError("nb.McpSignIn: a client_secret needs a client_id")
        url = self.client_metadata_url
        if url is not None and (urlsplit(url).scheme != "https" or urlsplit(url).path in ("", "/")):
            raise UsageError("nb.McpSignIn: client_metadata_url must be an https URL with a path")

    @property
    def secret(self) -> str | None:
        """The client's secret."""
        given = self.client_secret
        return given.get_secret_value() if isinstance(given, SecretStr) else given

    def __repr__(self) -> str:
        return "nb.McpSignIn(…)"


class Url(NamedTuple):
    """A server that is reached by streamable HTTP."""

    url: str
    headers: dict[str, str]
    auth: Any = None
    """A ``McpSignIn``, an ``httpx2.Auth``, or None for neither."""

    @property
    def label(self) -> str:
        """The server's host."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or self.url

    @property
    def secrets(self) -> list[str]:
        """The secrets that no text may contain."""
        found = [word for value in self.headers.values() for word in (value, *value.split())]
        secret = self.auth.secret if isinstance(self.auth, McpSignIn) else None
        return [*found, *([secret] if secret else []), *_in_url(self.url)]

    def __repr__(self) -> str:
        return f"<Url {self.label}>"


Address: TypeAlias = Command | Url

_SOUNDS_SECRET = re.compile(r"key|token|secret|passw|auth|cookie|credential|header", re.IGNORECASE)
_LONG = 20
"""The minimum length of a path segment that may be a credential, as in some services."""


def _values(argv: Sequence[str]) -> Iterator[str]:
    """The credentials in a command: in URLs, and in options, variables and headers whose names sound secret."""
    before = ""
    for word in argv:
        name, given, value = word.partition("=")
        if given and _SOUNDS_SECRET.search(name):
            yield value
        elif before.startswith("-") and "=" not in before and _SOUNDS_SECRET.search(before):
            yield from (word, *word.split(), *map(str.strip, word.split(":")))
        if "://" in word:
            yield from _in_url(word)
        before = word


def _in_url(url: str) -> Iterator[str]:
    """The possible credentials in a URL, encoded and decoded."""
    parts = urlsplit(url)
    raw = [pair.partition("=")[2] for pair in parts.query.split("&")]
    raw += [text for text in (parts.username, parts.password) if text]
    raw += [text for text in parts.path.split("/") if len(text) >= _LONG]
    for text in raw:
        yield from (text, unquote(text), unquote_plus(text))


def remove_secrets(text: str, secrets: Sequence[str]) -> str:
    """Remove the credentials of an address from a text, in any form."""
    long = [secret for secret in secrets if len(secret) >= SHORT]
    for form in sorted(
        {form for secret in long for form in forms_of(secret)}, key=len, reverse=True
    ):
        text = text.replace(form, CUT)
    return without_base64(text, long)


def address_of(
    given: ServerSource,
    *,
    server: str | None,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    auth: Any = None,
) -> tuple[Address, str | None]:
    """The address of a server, and its name if a config has one; the arguments are those of ``nb.mcp``.

    Raises:
        UsageError: the address is invalid, or an argument does not fit the address.
    """
    entry: Any = given
    name = None
    if isinstance(given, Path):
        try:
            entry = json.loads(given.expanduser().read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"The config {str(given)!r} cannot be read: {error}") from error
    if isinstance(entry, Mapping):
        entry, name = _entry(entry, server)
    elif server is not None:
        raise UsageError("server= selects a server of a config, but no config was given")
    found = _address(entry)
    if isinstance(found, Url):
        if env is not None or cwd is not None:
            raise UsageError(
                "env= and cwd= are for a server that nbagent starts, but a URL was given"
            )
        merged = {**found.headers, **_texts("headers", headers)}
        return _with_auth(found._replace(headers=merged), auth), name
    if headers is not None or auth is not None:
        argument = "auth" if headers is None else "headers"
        raise UsageError(f"{argument}= is for a URL, but a command was given. Use env=")
    merged = {**found.env, **_texts("env", env)}
    place = found.cwd if cwd is None else os.fspath(cwd)
    return found._replace(env=merged, cwd=place), name


def _with_auth(found: Url, auth: Any) -> Url:
    """The URL with its sign-in: OAuth by default, unless a header already signs in."""
    is_signed = any(name.lower() == "authorization" for name in found.headers)
    if auth is None:
        return found if is_signed else found._replace(auth=McpSignIn())
    if auth is False:
        return found
    if is_signed:
        raise UsageError("Got both auth= and a header 'Authorization'. Pass only one")
    if isinstance(auth, str | SecretStr):
        token = auth if isinstance(auth, str) else auth.get_secret_value()
        return found._replace(headers={**found.headers, "Authorization": f"Bearer {token}"})
    if isinstance(auth, McpSignIn) or hasattr(auth, "async_auth_flow"):
        return found._replace(auth=auth)
    raise UsageError(
        "auth= must be a token, nb.McpSignIn(…), an httpx2.Auth (such as those of mcp.client.auth), or False for "
        f"none, got a value of type {type(auth).__name__}"
    )


def _address(entry: Any) -> Address:
    if isinstance(entry, Mapping):
        return _of_config(entry)
    if isinstance(entry, str):
        if entry.startswith(("http://", "https://")):
            return Url(entry, {})
        if entry.endswith(".json") and len(entry.split()) == 1:
            raise UsageError(f"Pass a config file as a Path: nb.mcp(Path({entry!r}))")
        if _HOST.match(entry):
            raise UsageError(
                f"A URL must begin with http:// or https://: nb.mcp('http://{entry:.200}')"
            )
        words = shlex.split(entry) if os.name == "posix" else entry.split()
    elif isinstance(entry, Sequence) and not isinstance(entry, bytes):
        words = [os.fspath(word) for word in entry]
    else:
        raise UsageError(
            "nb.mcp takes a command ('npx -y a-server', or a list of its words), a URL, a config as a dict, or the "
            f"Path of a config file, got a value of type {type(entry).__name__}"
        )
    if not words:
        raise UsageError("nb.mcp got an empty command")
    return Command(tuple(words), {})


def _of_config(entry: Mapping[str, Any]) -> Address:
    if entry.get("type") == "sse":
        raise UsageError(
            "The config uses the old transport 'sse'. Use the server's URL for streamable HTTP"
        )
    url, command = entry.get("url"), entry.get("command")
    if isinstance(url, str):
        if not url.startswith(("http://", "https://")):
            raise UsageError("The url of a config must begin with http:// or https://")
        return Url(url, _texts("headers", entry.get("headers")))
    if not isinstance(command, str) or not command:
        raise UsageError(
            "A server's config needs a command, with args and env, or a url, with headers"
        )
    args = entry.get("args", [])
    if not isinstance(args, list):
        raise UsageError("args of a config must be a list of strings")
    cwd = entry.get("cwd")
    return Command((command, *map(str, args)), _texts("env", entry.get("env")), cwd)


def _entry(config: Mapping[str, Any], server: str | None) -> tuple[Any, str | None]:
    """One server of a config, and its name."""
    servers = next((config[key] for key in _LISTS if isinstance(config.get(key), Mapping)), None)
    if servers is None:
        if server is not None:
            raise UsageError(
                "server= selects one of a config's mcpServers, but this config has none"
            )
        return config, None
    if server is None and len(servers) == 1:
        (server,) = servers
    if server not in servers:
        known = ", ".join(map(repr, servers)) or "none"
        hint = suggest(server, servers) if server else ""
        raise UsageError(
            f"The config has several servers. Select one with server=. Available: {known}{hint}"
        )
    return servers[server], server


def _texts(name: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    is_fit = isinstance(value, Mapping) and all(
        isinstance(one, str) for pair in value.items() for one in pair
    )
    if not is_fit:
        raise UsageError(
            f"{name} must be a dict of strings. Write a number as a string, such as '1'"
        )
    return dict(value)
