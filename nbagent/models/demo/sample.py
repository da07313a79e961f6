"""A value that fits a JSON Schema: the demo model's input for unknown tools.

Candidates are built from the common keywords, and a validator checks them, so every sample is
valid. For schemas with rare keywords, such as ``if`` or ``contains``, there is often no sample.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import islice, product
from typing import Any

MAX_DEPTH = 12
MAX_ITEMS = 1000
TRIES = 200
"""The maximum number of candidates for one place in a schema."""
KINDS = ("string", "integer", "object", "array", "boolean", "null")
HINTS = {
    "object": ("properties", "required", "additionalProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "uniqueItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that imply the type if a schema has none."""


class NoSample(ValueError):
    """No value was found that fits the schema."""


def sample(schema: Mapping[str, Any] | bool) -> Any:  # noqa: FBT001  a schema may be true or false
    """A JSON value that fits ``schema``; the schema's examples and defaults are tried first.

    Args:
        schema: a JSON Schema, draft 2020-12 by default; its references must point into itself.

    Raises:
        NoSample: no such value was found.
    """
    for value in _Sampler(_validator(schema)).several(schema, "", 0):
        return value
    raise NoSample(f"No value found for the schema: {schema!r:.200}")


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value fits the schema, including formats; no value fits a broken schema."""
    return _is_valid(_validator(schema), value)


@cache
def _library() -> Any:
    """The module ``jsonschema``, imported on first use without its grammar for URIs.

    The grammar takes seconds to load, and samples do not need it.
    """
    grammar: dict[str, Any] = sys.modules
    leave_out = "rfc3987_syntax" not in grammar
    if leave_out:
        grammar["rfc3987_syntax"] = None
    try:
        return import_module("jsonschema")
    finally:
        if leave_out:
            del grammar["rfc3987_syntax"]


def _validator(schema: Mapping[str, Any] | bool) -> Any:  # noqa: FBT001  as in sample
    library = _library()
    kind = library.validators.validator_for(schema, default=library.Draft202012Validator)
    # with an empty registry, a reference never makes the validator read a file or a URL
    registry = import_module("referencing").Registry()
    return kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


class _Sampler:
    def __init__(self, root: Any) -> None:
        self._root = root

    def several(self, schema: Any, name: str, depth: int) -> Iterator[Any]:
        """Different values that fit the schema, best first."""
        if depth > MAX_DEPTH:
            return
        validator = self._root.evolve(schema=schema)
        seen: list[Any] = []
        for value in islice(self._candidates(schema, name, depth), TRIES):
            if value not in seen and _is_valid(validator, value):
                seen.append(value)
                yield value

    def _candidates(self, schema: Any, name: str, depth: int) -> Iterator[Any]:
        if depth > MAX_DEPTH or schema is False:
            return
        if schema is True:
            schema = {}
        if "const" in schema:
            yield schema["const"]
        yield from schema.get("examples") or ()
        if "default" in schema:
            yield schema["default"]
        yield from schema.get("enum") or ()
        branches = list(self._branches(schema))
        for branch in branches:
            yield from self._candidates(branch, name, depth + 1)
        if not branches:
            for kind in _kinds(schema):
                yield from self._of_kind(kind, schema, name, depth)

    def _branches(self, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A merged schema for each branch of the first combining keyword; none without a keyword."""
        for word in ("$ref", "allOf", "anyOf", "oneOf"):
            if word not in schema:
                continue
            rest = {key: value for key, value in schema.items() if key != word}
            match word:
                case "$ref":
                    yield _merged(rest, self._referred(schema["$ref"]))
                case "allOf":
                    for part in schema["allOf"]:
                        rest = _merged(rest, part)
                    yield rest
                case _:
                    for part in schema[word]:
                        yield _merged(rest, part)
            return

    def _referred(self, reference: str) -> Any:
        found: Any = self._root.schema
        if not reference.startswith("#"):
            return False
        for step in reference.lstrip("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(key)] if key.isdigit() and int(key) < len(found) else False
            else:
                found = found.get(key, False) if isinstance(found, Mapping) else False
        return found

    def _of_kind(
        self, kind: str, schema: Mapping[str, Any], name: str, depth: int
    ) -> Iterator[Any]:
        match kind:
            case "string":
                yield from texts(schema, name)
            case "integer" | "number":
                yield from _numbers(schema, only_integers=kind == "integer")
            case "boolean":
                yield from (True, False)
            case "null":
                yield None
            case "array":
                yield from self._arrays(schema, name, depth)
            case "object":
                yield from self._objects(schema, depth)
            case _:
                return

    def _arrays(self, schema: Mapping[str, Any], name: str, depth: int) -> Iterator[list[Any]]:
        low = min(int(schema.get("minItems", 0)), MAX_ITEMS)
        high = int(schema.get("maxItems", MAX_ITEMS))
        first = schema.get("prefixItems", [])
        start = [
            value for part in first for value in islice(self.several(part, name, depth + 1), 1)
        ]
        for size in (min(max(low, 2), high), low):
            need = max(0, size - len(start))
            item = schema.get("items", True)
            more = list(islice(self.several(item, "", depth + 1), need))
            if more and not schema.get("uniqueItems"):
                more = [more[number % len(more)] for number in range(need)]
            yield start + more

    def _objects(self, schema: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
        wanted = list(dict.fromkeys(schema.get("required", ())))
        least = int(schema.get("minProperties", 0))
        properties = schema.get("properties", {})
        spare = [key for key in properties if key not in wanted]
        spare += [f"key{number}" for number in range(1, least + 1)]
        wanted += spare[: max(0, least - len(wanted))]
        value: dict[str, Any] = {}
        for key in wanted:
            part = properties.get(key, schema.get("additionalProperties", True))
            for found in self.several(part, key, depth + 1):
                value[key] = found
                break
        yield value


def _is_valid(validator: Any, value: Any) -> bool:
    try:
        return bool(validator.is_valid(value))
    except Exception:
        # a foreign schema may have a bad pattern, a loop or a broken reference
        return False


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type")
    if named is not None:
        return named if isinstance(named, list) else [named]
    hinted = [kind for kind, words in HINTS.items() if any(word in schema for word in words)]
    return hinted or list(KINDS)


def _numbers(schema: Mapping[str, Any], *, only_integers: bool) -> Iterator[float]:
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    starts = [1, low, above, high, below, 0]
    for start in starts:
        if not isinstance(start, int | float):
            continue
        base = start // step * step
        for number in (start, base, base + step, base - step, base + 2 * step):
            yield int(number) if only_integers or number == int(number) else number
    floor = low if low is not None else above
    top = high if high is not None else below
    if not only_integers and isinstance(floor, int | float) and isinstance(top, int | float):
        yield (floor + top) / 2


def _merged(one: Any, other: Any) -> Any:
    """A schema with the requirements of both schemas, as far as one schema can express them."""
    if isinstance(other, bool):
        return one if other else False
    if isinstance(one, bool):
        return other if one else False
    merged = dict(one)
    for key, value in other.items():
        join = _JOIN.get(key) if key in one else None
        merged[key] = value if join is None else join(one[key], value)
    return merged


def _properties(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(one[key], other[key]) for key in other if key in one}
    return {**one, **other, **both}


def _types(one: Any, other: Any) -> Any:
    return [kind for kind in _kinds({"type": one}) if kind in _kinds({"type": other})] or other


_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "minLength": max,
    "minItems": max,
    "minProperties": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "maxLength": min,
    "maxItems": min,
    "maxProperties": min,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "enum": lambda one, other: [value for value in one if value in other],
    "allOf": lambda one, other: [*one, *other],
    "properties": _properties,
    "type": _types,
}
"""The functions that combine a keyword of two schemas."""


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
"""Pairs of a word and a string for properties whose names contain the word."""
PLAIN = ("example", "sample", "first", "second", "third")
ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "a1", "A1")
LONGEST_PATTERN = 40
MAX_FILL = 10_000


def texts(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    """Strings that may fit the schema, best first; the caller validates them."""
    fitting = FORMATS.get(str(schema.get("format")))
    if fitting is not None:
        yield fitting
    low = int(schema.get("minLength", 0))
    high = int(schema.get("maxLength", max(low, LONGEST_PATTERN)))
    if "pattern" in schema:
        for alphabet in ALPHABETS:
            spelled = _spelled(str(schema["pattern"]), alphabet)
            if spelled is not None:
                yield spelled
        lengths = range(max(low, 1), min(high, LONGEST_PATTERN) + 1)
        for length, alphabet in product(lengths, ALPHABETS):
            yield (alphabet * length)[:length]
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


_TOKEN = re.compile(
    r"""(?P<anchor>\^|\$|\\b|\\A|\\Z)
      | (?P<item>\[\^?\]?(?:\\.|[^\]\\])*\] | \\. | \. | [^\\\[\](){}|*+?.^$])
        (?P<count>\{\d+(?:,\d*)?\}|[*+?])?\??""",
    re.VERBOSE | re.DOTALL,
)


def _spelled(pattern: str, alphabet: str) -> str | None:
    """A match of a simple pattern, with the first option of each choice and the fewest repeats."""
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
        item, count = token["item"], token["count"]
        candidates = alphabet + "".join(map(chr, range(33, 127))) + " \t\n"
        is_literal = len(item) == 1 and item != "."
        char = item if is_literal else next((c for c in candidates if re.fullmatch(item, c)), None)
        if char is None:
            return None
        digits = re.match(r"\{(\d+)", count or "")
        text += char * (int(digits[1]) if digits else int(count in (None, "+")))
    return text
