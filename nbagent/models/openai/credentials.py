"""The secrets of a client, in its key, URL and headers, and their removal from every text."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from weakref import WeakSet

from nbagent.core.base.credentials import (
    CUT,
    SOUNDS_SECRET,
    credentials_in,
    forms_of,
    without_base64,
)
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

SHORT = 6
"""The minimum length of a credential that is removed from errors and logs; shorter ones may be ordinary words."""
LONG = 12
"""The minimum length of a credential that is also removed from the model's output, and whose beginning is removed."""
_CREDENTIAL_NAMES = ("api_key", "admin_api_key", "webhook_secret", "_azure_ad_token")
"""The attributes of a client with credentials."""
_NAMED = ("_custom_headers", "_custom_query")
"""The attributes of a client with headers and parameters, some of which have credentials."""
_KEYS = frozenset(KEYS)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+@")


class Credentials:
    """The credentials of one client, and their removal from a text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.secrets = _secret(texts)
        forms = {form for text in self.secrets for form in forms_of(text)}
        self._texts = sorted(forms, key=len, reverse=True)
        self.long = [text for text in self._texts if len(text) >= LONG]
        """The credentials that are too long to be ordinary words."""
        _known.add(self)
        _watch_logs()

    def remove(self, text: str) -> str:
        """Remove the credentials and the user part of URLs from a text."""
        text = _IN_URL.sub(f"{CUT}@", text)
        for secret in self._texts:
            text = text.replace(secret, CUT)
        for secret in self.long:
            text = _without_beginning(text, secret)
        return without_base64(text, self.secrets)


class Keyring:
    """The credentials of all clients and hosted tools of one model."""

    def __init__(self) -> None:
        self.all = Credentials([])
        self._last: tuple[tuple[Any, ...], Credentials] | None = None
        """The state of the last client, and the credentials in it."""

    def of(self, client: Any, hosted: Iterable[Hosted] = ()) -> Credentials:
        """The current credentials of an ``AsyncOpenAI`` or a similar client, and of hosted tools.

        They are searched again if the client, a tool or the environment has changed since the
        last request, because a key may be a function, and headers may be set at any time.
        """
        _watch_logs()
        headers = getattr(getattr(client, "_client", None), "headers", None)
        others = getattr(client, "secrets", None)  # LiteLLM's client has this attribute
        texts = [getattr(client, name, None) for name in _CREDENTIAL_NAMES]
        texts += [*(others if isinstance(others, list) else ()), *_environment.keys()]
        named: list[Any] = [headers, *(getattr(client, name, None) for name in _NAMED)]
        urls = [str(getattr(client, "base_url", ""))]
        for tool in hosted:
            named += [deepcopy(dict(tool.options)), tool.options.get("headers")]
            urls.append(str(tool.options.get("server_url", "")))
        named = [each for each in named if isinstance(each, Mapping)]
        raw = [each.raw if hasattr(each, "raw") else dict(each) for each in named]
        state = texts, raw, urls
        if self._last is not None and self._last[0] == state:
            return self._last[1]
        found: list[Any] = [*texts, *chain.from_iterable(map(_secret_values, named))]
        found += chain.from_iterable(map(credentials_in, urls))
        secrets = _secret(text for text in found if isinstance(text, str))
        now = self.all if self.all.secrets == secrets else Credentials(secrets)
        if not secrets <= self.all.secrets:
            self.all = Credentials(self.all.secrets | secrets)
        self._last = state, now
        return now


class _Environment:
    """The keys of all providers in the environment, because a proxy server may repeat any of them."""

    def __init__(self) -> None:
        self._seen: Mapping[Any, Any] = {}
        self._keys: list[str] = []

    def keys(self) -> list[str]:
        """The current keys; searched again if the environment has changed."""
        variables = getattr(os.environ, "_data", os.environ)  # not decoded, because that is slow
        if variables != self._seen:
            names = _KEYS.intersection(os.environ)
            self._keys = [key for name in sorted(names) if (key := os.environ.get(name))]
            self._seen = dict(variables)
        return self._keys


_environment = _Environment()


def _secret(texts: Iterable[str]) -> frozenset[str]:
    """The texts that may be secrets: neither short nor a placeholder."""
    return frozenset(text for text in texts if len(text) >= SHORT and text.lower() not in WORDS)


class StreamFilter:
    """Removes long credentials of one client from a model's stream, also if they are split between pieces."""

    def __init__(self, credentials: Credentials) -> None:
        self._secrets = credentials.long
        self._pairs = {secret[:2] for secret in self._secrets}
        self._withheld: dict[Any, str] = {}
        """The withheld end of each text, which may begin a credential, by kind of text or the call's index."""

    def filtered(self, batch: list[ModelDelta]) -> list[ModelDelta]:
        """The deltas that can be passed on now."""
        if not self._secrets or (not self._withheld and all(map(self._is_plain, batch))):
            return batch
        return [part for delta in batch for part in self._filtered(delta)]

    def _is_plain(self, delta: ModelDelta) -> bool:
        """Whether a delta neither contains nor begins a credential; a quick check that nearly all deltas pass."""
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
        """The withheld texts, at the end of an answer."""
        withheld, self._withheld = self._withheld, {}
        return [_delta(key, text) for key, text in withheld.items()]

    def _filtered(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        match delta:
            case TextDelta() | ReasoningDelta():
                for kind in [each for each in self._withheld if each is not type(delta)]:
                    if kind in (TextDelta, ReasoningDelta):  # withheld text comes first
                        yield _delta(kind, self._withheld.pop(kind))
                text = self._released(type(delta), delta.text)
                if text:
                    yield delta._replace(text=text)
            case ToolCallDelta():
                arguments = self._released(delta.index, delta.arguments)
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

    def _released(self, key: Any, text: str) -> str:
        """The part of a text that can be passed on; its end is withheld if the end may begin a secret."""
        text = self._plain(self._withheld.pop(key, "") + text)
        end = len(text) - max(_overlap(text, secret) for secret in self._secrets)
        if end < len(text):
            self._withheld[key] = text[end:]
        return text[:end]

    def _without(self, value: Any) -> Any:
        """A complete JSON value, with the credentials removed from its texts."""
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
    """The number of characters at the text's end that may be the beginning of the secret."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0:
        if secret.startswith(text[at:]):
            return len(text) - at
        at = text.find(secret[0], at + 1)
    return 0


def _without_beginning(text: str, secret: str) -> str:
    """The text without a long beginning of the secret, for texts that were cut off."""
    pieces, at = [], 0
    while (start := text.find(secret[:LONG], at)) >= 0:
        end = start + LONG
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        pieces += [text[at:start], CUT]
        at = end
    return "".join([*pieces, text[at:]])


def _secret_values(named: Mapping[Any, Any]) -> list[str]:
    """The values of headers, or of a query, with secret names; for ``Bearer x`` also ``x``."""
    found = [str(value) for name, value in named.items() if SOUNDS_SECRET.search(str(name))]
    return [*found, *(value.partition(" ")[2] for value in found if " " in value)]


def without_query(url: str | None) -> tuple[str | None, dict[str, str]]:
    """A base URL without its query, and the query; separate, because the client would put the query before the path."""
    parts = urlsplit(url or "")
    if not parts.query:
        return url, {}
    return urlunsplit(parts._replace(query="")), dict(parse_qsl(parts.query))


# --- the logs of lower libraries contain whole URLs

_known: WeakSet[Credentials] = WeakSet()
"""The credentials of all clients in use."""
_LOGGERS = tuple(
    logging.getLogger(name)
    for name in (
        *("openai._base_client", "openai._response", "openai._legacy_response", "httpx", "httpx2"),
        *("httpcore.connection", "httpcore.proxy", "httpcore.http11", "httpcore.http2"),
        *("httpcore2.connection", "httpcore2.proxy", "httpcore2.http11", "httpcore2.http2"),
    )
)
"""The loggers of ``openai``, and of this and the next version of ``httpx``, that write URLs and headers."""


def _cut(record: logging.LogRecord) -> bool:
    """Remove known credentials from a log record, before it reaches other loggers; always return True."""
    message = public = record.getMessage()
    for credentials in list(_known):
        public = credentials.remove(public)
    if public != message:
        record.msg, record.args = public, ()
    return True


def _watch_logs() -> None:
    for logger in _LOGGERS:
        logger.addFilter(_cut)
