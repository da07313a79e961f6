"""Strings that fit what a JSON Schema says about them, and read well in a demo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

FORMATS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "idn-email": "ada@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "iri": "https://example.com/",
    "iri-reference": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "a+",
}
"""One string of each format of JSON Schema 2020-12, section 7.3 of its validation part."""

NAMED = (
    ("sql", "SELECT 1"),
    ("email", "ada@example.com"),
    ("url", "https://example.com/"),
    ("question", "Which one would you like?"),
    ("subject", "A few words from the demo"),
    ("message", "Hello from the demo model"),
    ("body", "Hello from the demo model"),
    ("text", "Hello from the demo model"),
    ("city", "Paris"),
    ("country", "France"),
    ("currency", "EUR"),
    ("language", "English"),
    ("date", "2026-01-15"),
    ("path", "example.txt"),
    ("file", "example.txt"),
    ("code", "print('hello')"),
    ("name", "Ada"),
    ("id", "A1"),
)
"""What suits a property whose name has the word."""
PLAIN = ("example", "sample", "first", "second", "third")
ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "a1", "A1")
LONGEST_PATTERN = 40
MAX_FILL = 10_000


def texts(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    """Strings that may fit, best first; whether one does is for a validator to say."""
    fitting = FORMATS.get(str(schema.get("format")))
    if fitting is not None:
        yield fitting
    low = int(schema.get("minLength", 0))
    high = int(schema.get("maxLength", max(low, LONGEST_PATTERN)))
    if "pattern" in schema:
        yield from _matching(str(schema["pattern"]), low, high)
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    for word, text in NAMED:
        if word in words:
            yield _of_length(text, low, high)
    for text in PLAIN:
        yield _of_length(text, low, high)
    for number in range(4, 10):
        yield _of_length(f"{number}{PLAIN[0]}", low, high)


def _of_length(text: str, low: int, high: int) -> str:
    if len(text) < low <= MAX_FILL:
        text = (f"{text} " * (low // (len(text) + 1) + 1))[:low]
        text = text.removesuffix(" ") + "s" * text.endswith(" ")
    return text[: max(0, high)]


def _matching(pattern: str, low: int, high: int) -> Iterator[str]:
    """Strings that a regular expression finds a match in: its parts spelled out, else tries."""
    for alphabet in ALPHABETS:
        spelled = _spelled(pattern, alphabet)
        if spelled is not None:
            yield spelled
    lengths = range(max(low, 1), min(high, LONGEST_PATTERN) + 1)
    for length, alphabet in product(lengths, ALPHABETS):
        yield (alphabet * length)[:length]


_TOKEN = re.compile(
    r"""(?P<anchor>\^|\$|\\b|\\A|\\Z)
      | (?P<item>\[\^?\]?(?:\\.|[^\]\\])*\] | \\. | \. | [^\\\[\](){}|*+?.^$])
        (?P<count>\{\d+(?:,\d*)?\}|[*+?])?\??""",
    re.VERBOSE | re.DOTALL,
)


def _spelled(pattern: str, alphabet: str) -> str | None:
    """A match of a plain pattern: of each choice the first, each repeat at its least."""
    flat = re.sub(r"\(((?:\?:)?[^()|]*)\|[^()]*\)", r"(\1)", pattern)
    flat = re.sub(r"\((?:\?:|\?P?<\w+>)?([^()|]*)\)(?![*+?{])", r"\1", flat)
    text, at = "", 0
    while at < len(flat) and flat[at] != "|":
        token = _TOKEN.match(flat, at)
        if token is None:
            return None
        at = token.end()
        if token["anchor"]:
            continue
        char = _char(token["item"], alphabet)
        if char is None:
            return None
        text += char * _least(token["count"])
    return text


def _least(count: str | None) -> int:
    if not count:
        return 1
    digits = re.match(r"\{(\d+)", count)
    return int(digits[1]) if digits else int(count == "+")


def _char(item: str, alphabet: str) -> str | None:
    if len(item) == 1 and item != ".":
        return item
    candidates = alphabet + "".join(map(chr, range(33, 127))) + " \t\n"
    return next((char for char in candidates if re.fullmatch(item, char)), None)
