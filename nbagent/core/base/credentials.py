"""Credentials: where an address or its headers have them, and the forms in which a server or an error repeats them."""

from __future__ import annotations

import json
import re
import string
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, unquote

CUT = "•••"
"""The text that replaces a credential."""
LONG = 20
"""The minimum length of a value in an address that may be a credential, whatever its name."""
SOUNDS_SECRET = re.compile(
    r"key|token|secret|auth|pass|cred|cookie|sig\b|signature|\bcode\b", re.IGNORECASE
)
"""The names of headers and query parameters with secrets."""
_BASE64 = string.ascii_letters + string.digits + "+/-_="


def credentials_in(url: str) -> list[str]:
    """The credentials in a URL: a password or a sole user name, also decoded and as basic auth; secrets of a query."""
    before, _, query = url.partition("://")[2].partition("?")
    user_part = before.rpartition("@")[0]  # by hand, because invalid URLs may have a password too
    user, _, password = user_part.partition(":")
    sent = b64encode(unquote(user_part).encode(errors="replace")).decode() if password else ""
    own = password or user
    pairs = parse_qsl(query)
    named = [value for name, value in pairs if SOUNDS_SECRET.search(name) or len(value) >= LONG]
    return [text for text in (own, unquote(own), sent, *named) if text]


def forms_of(secret: str) -> set[str]:
    """A credential in all forms that a server, a URL or an error may use, except Base64."""
    quoted = (quote(secret, safe=safe, errors="replace") for safe in ("/", ""))
    return {secret, *quoted, json.dumps(secret)[1:-1], repr(secret)[1:-1]}


def without_base64(text: str, secrets: Iterable[str]) -> str:
    """The text without each Base64 text that contains a credential, such as that of its user's name and itself."""
    for secret in secrets:
        for part in {each for form in forms_of(secret) for each in _base64_of(form)}:
            if part in text:
                first, *others = text.split(part)
                first = first.rstrip(_BASE64)
                *middle, last = (each.lstrip(_BASE64) for each in others)
                text = CUT.join([first, *(each.rstrip(_BASE64) for each in middle), last])
    return text


def _base64_of(secret: str) -> list[str]:
    """The characters that a secret alone determines in the Base64 of any text around it, by its place in three bytes."""
    data, found = secret.encode(errors="replace"), []
    for before in range(3):
        encoded = b64encode(b"\0" * before + data).decode()
        part = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        found += [part, part.translate(_URL_SAFE)]
    return found


_URL_SAFE = str.maketrans("+/", "-_")
