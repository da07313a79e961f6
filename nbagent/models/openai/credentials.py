"""What a client must not tell: its key, the credentials in its URL, its headers; cut from any text that leaves."""

from __future__ import annotations

import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit
from weakref import WeakSet

from nbagent.core.base.model import (
    Citation,
    Finished,
    Hosted,
    HostedCall,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

from .providers import KEYS, WORDS

CUT = "•••"
SHORT = 6
"""Characters from which a credential is cut from errors and logs; shorter ones are words of any text."""
LONG = 12
"""From which it is cut from what the model says too, and where only its beginning is left of it."""
_SOUNDS_SECRET = re.compile(
    r"key|token|secret|auth|pass|cred|cookie|sig\b|signature", re.IGNORECASE
)
"""Names of headers and parts of a query."""
_HELD = ("api_key", "admin_api_key", "webhook_secret", "_azure_ad_token")
"""Where a client has credentials of its own."""
_KEYS = frozenset(KEYS)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+@")


class Credentials:
    """The credentials of one client, and how they are cut from a text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.secrets = _secret(texts)
        told = {form for text in self.secrets for form in _forms(text)}
        self._texts = sorted(told, key=len, reverse=True)
        self.long = [text for text in self._texts if len(text) >= LONG]
        """Those that cannot be taken for a word."""
        _known.add(self)
        _watch_logs()

    @classmethod
    def of(cls, client: Any, hosted: Iterable[Hosted] = ()) -> Credentials:
        """Those of an ``AsyncOpenAI`` or what looks like one, as they are now, and of hosted tools."""
        return Keyring().of(client, hosted)

    @classmethod
    def given(cls, *, base_url: str | None, api_key: str | None) -> Credentials:
        """Those that a client is to be made with."""
        given = [*_in_url(base_url or ""), api_key, *_environment.keys()]
        return cls(text for text in given if isinstance(text, str))

    def joined(self, other: Credentials) -> Credentials:
        """These and those of another."""
        if other.secrets <= self.secrets:
            return self
        return Credentials(self.secrets | other.secrets)

    def cut(self, text: str) -> str:
        """The text without them, nor what stands before the host of a URL."""
        text = _IN_URL.sub(f"{CUT}@", text)
        for secret in self._texts:
            text = text.replace(secret, CUT)
        for secret in self.long:
            text = _without_beginning(text, secret)
        return text


class Keyring:
    """The credentials of all clients and hosted tools that one model asked."""

    def __init__(self) -> None:
        self.all = Credentials([])
        self._last: tuple[list[Any], Credentials] | None = None
        """What the client held that was asked last, and the credentials in it."""

    def of(self, client: Any, hosted: Iterable[Hosted] = ()) -> Credentials:
        """Those of an ``AsyncOpenAI`` or what looks like one, as they are now, and of hosted tools.

        They are looked for again only where the client, a tool or the environment holds something else than
        at the last request: a key may be a function, and headers may be set at any time.
        """
        _watch_logs()
        held = [*_held_by(client), _environment.keys()]
        if hosted:
            held += [deepcopy(dict(tool.options)) for tool in hosted]
        last = self._last
        if last is not None and last[0] == held:
            return last[1]
        found: list[Any] = [*held[: len(_HELD)], *_environment.keys()]
        for headers in (getattr(client, "_custom_headers", None), _headers_below(client)):
            found += _secret_values(headers)
        found += _secret_values(getattr(client, "_custom_query", None))
        found += _in_url(str(getattr(client, "base_url", "")))
        for tool in hosted:
            found += _secret_values(tool.options) + _secret_values(tool.options.get("headers"))
            found += _in_url(str(tool.options.get("server_url", "")))
        others = getattr(client, "secrets", None)  # of a double that has some
        found += others if isinstance(others, list) else []
        secrets = _secret(text for text in found if isinstance(text, str))
        now = self.all if self.all.secrets == secrets else Credentials(secrets)
        self.all = self.all.joined(now)
        self._last = held, now
        return now


def _held_by(client: Any) -> list[Any]:
    """What a client has its credentials in, to see whether it is the same as before."""
    headers = _headers_below(client)
    custom, query = getattr(client, "_custom_headers", None), getattr(client, "_custom_query", None)
    others = getattr(client, "secrets", None)
    return [
        *[getattr(client, name, None) for name in _HELD],
        getattr(client, "base_url", ""),
        headers.raw if hasattr(headers, "raw") else _copied(headers),
        _copied(custom),
        _copied(query),
        list(others) if isinstance(others, list) else None,
    ]


def _copied(named: Any) -> dict[Any, Any] | None:
    return dict(named) if isinstance(named, Mapping) else None


class _Environment:
    """The keys of all providers that the environment has: a server between us and them may tell one."""

    def __init__(self) -> None:
        self._seen: Mapping[Any, Any] = {}
        self._keys: list[str] = []

    def keys(self) -> list[str]:
        """Those that are there now; looked for where anything in the environment has changed."""
        variables = getattr(os.environ, "_data", os.environ)  # as they are: to decode each is slow
        if variables != self._seen:
            there = _KEYS.intersection(os.environ)
            self._keys = [key for name in sorted(there) if (key := os.environ.get(name))]
            self._seen = dict(variables)
        return self._keys


_environment = _Environment()


def _secret(texts: Iterable[str]) -> frozenset[str]:
    """Those of the texts that cannot be taken for words."""
    return frozenset(text for text in texts if len(text) >= SHORT and text.lower() not in WORDS)


class StreamCut:
    """Cuts the long ones of one client from what a model streams, in whatever pieces it comes."""

    def __init__(self, credentials: Credentials) -> None:
        self._secrets = credentials.long
        self._pairs = {secret[:2] for secret in self._secrets}
        self._held: dict[Any, str] = {}
        """By kind of text, or the call's index: the end that may be the beginning of one."""

    def cut(self, batch: list[ModelDelta]) -> list[ModelDelta]:
        """The deltas, as far as they are told by now."""
        if not self._secrets:
            return batch
        if not self._held:
            for delta in batch:
                if not self._is_plain(delta):
                    break
            else:
                return batch
        return [told for delta in batch for told in self._told(delta)]

    def _is_plain(self, delta: ModelDelta) -> bool:
        """Whether it neither has nor begins one; without looking closely, as nearly all are."""
        match delta:
            case TextDelta() | ReasoningDelta():
                text = delta.text
            case ToolCallDelta(provider=None):
                text = f"{delta.id} {delta.name} {delta.arguments}"
            case Finished(provider=None):
                return True
            case _:
                return False
        return not any(pair in text or text[-1:] == pair[0] for pair in self._pairs)

    def rest(self) -> list[ModelDelta]:
        """What was held back at the end of an answer, and is told after all."""
        held, self._held = self._held, {}
        return [_delta(key, text) for key, text in held.items()]

    def _told(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        match delta:
            case TextDelta() | ReasoningDelta():
                for kind in [each for each in self._held if each is not type(delta)]:
                    if kind in (TextDelta, ReasoningDelta):  # it came before
                        yield _delta(kind, self._held.pop(kind))
                text = self._taken(type(delta), delta.text)
                if text:
                    yield delta._replace(text=text)
            case ToolCallDelta():
                arguments = self._taken(delta.index, delta.arguments)
                id_, name = self._plain(delta.id or ""), self._plain(delta.name or "")
                own = self._without(delta.provider)
                if arguments or id_ or name or own is not None:
                    yield ToolCallDelta(delta.index, arguments, id_ or None, name or None, own)
            case HostedCall():
                yield HostedCall(*map(self._without, delta))
            case Citation():
                yield Citation(*map(self._plain, delta))
            case Finished():
                yield delta._replace(provider=self._without(delta.provider))
            case _:
                yield delta

    def _taken(self, key: Any, text: str) -> str:
        """What can be told of a text; its end is held back where that may begin a secret."""
        text = self._plain(self._held.pop(key, "") + text)
        end = len(text) - max(_overlap(text, secret) for secret in self._secrets)
        if end < len(text):
            self._held[key] = text[end:]
        return text[:end]

    def _without(self, value: Any) -> Any:
        """JSON that came whole, with the same cut from its texts."""
        match value:
            case str():
                return self._plain(value)
            case Mapping():
                return {self._plain(key): self._without(part) for key, part in value.items()}
            case list():
                return [self._without(part) for part in value]
            case _:
                return value

    def _plain(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, CUT)
        return text


def _delta(key: Any, text: str) -> ModelDelta:
    if isinstance(key, int):
        return ToolCallDelta(key, text)
    made: ModelDelta = key(text)
    return made


def _overlap(text: str, secret: str) -> int:
    """How many characters at the text's end may be the beginning of the secret."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0:
        if secret.startswith(text[at:]):
            return len(text) - at
        at = text.find(secret[0], at + 1)
    return 0


def _without_beginning(text: str, secret: str) -> str:
    """The text without a long beginning of the secret, as something that was cut off has it."""
    pieces, at = [], 0
    while (start := text.find(secret[:LONG], at)) >= 0:
        end = start + LONG
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        pieces += [text[at:start], CUT]
        at = end
    return "".join([*pieces, text[at:]])


def _forms(text: str) -> set[str]:
    """A credential in all the ways that a server, a URL or an error may write it."""
    return {text, quote(text), quote(text, safe=""), json.dumps(text)[1:-1], repr(text)[1:-1]}


def _secret_values(named: Any) -> list[str]:
    """The values of headers, or of a query, whose names sound secret; of ``Bearer x`` also ``x``."""
    if not isinstance(named, Mapping):
        return []
    found = [str(value) for name, value in named.items() if _SOUNDS_SECRET.search(str(name))]
    return [*found, *(value.partition(" ")[2] for value in found if " " in value)]


def _headers_below(client: Any) -> Any:
    return getattr(getattr(client, "_client", None), "headers", None)


def _in_url(url: str) -> list[str]:
    """The credentials in a URL: a password, or a name that stands alone; both as they are sent; secrets of a query."""
    before, _, query = url.partition("://")[2].partition("?")
    told = before.rpartition("@")[0]  # by hand, since what is no URL has a password too
    user, _, password = told.partition(":")
    sent = b64encode(unquote(told).encode()).decode() if password else ""
    own = password or user
    return [own, unquote(own), sent, *_secret_values(dict(parse_qsl(query)))]


def without_query(url: str | None) -> tuple[str | None, dict[str, str]]:
    """A base URL without its query, which the client would put before the path, and that query."""
    parts = urlsplit(url or "")
    if not parts.query:
        return url, {}
    return urlunsplit(parts._replace(query="")), dict(parse_qsl(parts.query))


# --- the logs of the libraries below tell whole URLs

_known: WeakSet[Credentials] = WeakSet()
"""Those of all clients in use."""
_LOGGERS = (
    *("httpx", "openai._base_client", "openai._response", "openai._legacy_response"),
    *("httpcore.connection", "httpcore.proxy", "httpcore.http11", "httpcore.http2"),
)
"""That write URLs and headers; those of ``httpx`` have a 2 behind their first word in its next version."""


class _Cutting(logging.Filter):
    """Cuts what is known from records, whatever logger they go to next."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        told = said
        for credentials in list(_known):
            told = credentials.cut(told)
        if told != said:
            record.msg, record.args = told, ()
        return True


_cutting = _Cutting()


def _watch_logs() -> None:
    for logger in _loggers():
        if _cutting not in logger.filters:
            logger.addFilter(_cutting)


@cache
def _loggers() -> list[logging.Logger]:
    """Those of this and of the next version."""
    names = []
    for name in _LOGGERS:
        first, dot, rest = name.partition(".")
        names += [name] if first == "openai" else [name, f"{first}2{dot}{rest}"]
    return [logging.getLogger(name) for name in names]
