"""A small value that fits a JSON Schema: the demo model's input for unknown tools.

The smallest value of a schema's keywords is built, and a validator checks it, so every sample is valid. Schemas with
patterns or rare keywords often have no sample.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

MAX_DEPTH = 12
TRIES = 1000
"""The maximum number of values that are checked for one sample."""
MAX_SIZE = 1000
"""The maximum number of items or characters that a schema can ask for."""
_TEXTS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""A text of each usual format."""
_TEXT = "example"


class NoSample(ValueError):
    """No value was found that fits the schema."""


def sample(schema: Mapping[str, Any] | bool) -> Any:  # noqa: FBT001  a schema may be true or false
    """A JSON value that fits ``schema``: an example or default if there is one, else a minimal value.

    Args:
        schema: a JSON Schema, draft 2020-12 by default; its references must point into itself.

    Raises:
        NoSample: no such value was found.
    """
    try:
        for value in _Sampler(_validator(schema)).values(schema, 0):
            return value
    except BaseException as error:
        if not _is_of_schema(error):
            raise
        raise NoSample(f"The schema cannot be used: {schema!r:.200}") from error
    raise NoSample(f"No value found for the schema: {schema!r:.200}")


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value fits the schema, including formats; no value fits a broken schema."""
    try:
        return bool(_validator(schema).is_valid(value))
    except BaseException as error:
        if not _is_of_schema(error):
            raise
        return False


def _is_of_schema(error: BaseException) -> bool:
    """Whether a foreign schema caused the error: by a bad pattern, a broken reference, or a loop that fills the stack.

    A full stack is a panic of jsonschema's dependency (rpds), which is not an ``Exception``.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


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
        self._left = TRIES

    def values(self, schema: Any, depth: int) -> Iterator[Any]:
        """Values that fit a part of the root's schema, best first."""
        validator = self._root.evolve(schema=schema)
        for value in self._candidates(schema if isinstance(schema, Mapping) else {}, depth):
            self._left -= 1
            if self._left < 0:
                return
            if validator.is_valid(value):
                yield value

    def _candidates(self, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        if depth > MAX_DEPTH:
            return
        if "const" in schema:
            yield schema["const"]
        yield from schema.get("examples") or ()
        if "default" in schema:
            yield schema["default"]
        yield from schema.get("enum") or ()
        parts = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
        if "$ref" in schema:
            parts.append(_referred(self._root.schema, schema["$ref"]))
        whole = schema
        for part in schema.get("allOf") or ():
            whole = _joined(whole, part)
        kept = {key: value for key, value in whole.items() if key not in _JOINING}
        for part in parts:
            yield from self._candidates(_joined(kept, part), depth + 1)
        likely = "object" if "properties" in whole else "string"
        kinds = whole.get("type") or (likely, "integer", "array", "boolean", "null", "object")
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield from self._of_kind(kind, kept, depth + 1)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        match kind:
            case "string":
                text = _TEXTS.get(str(schema.get("format")), _TEXT)
                yield text
                repeats = -(-min(int(schema.get("minLength", 0)), MAX_SIZE) // len(text)) or 1
                yield (text * repeats)[: int(schema.get("maxLength", MAX_SIZE))]
            case "integer" | "number":
                yield from _numbers(schema)
            case "boolean":
                yield from (True, False)
            case "null":
                yield None
            case "array":
                size = min(int(schema.get("minItems", 0)), MAX_SIZE)
                items = [*schema.get("prefixItems", ())][:size]
                items += [schema.get("items", True)] * (size - len(items))
                values = (next(self.values(each, depth), None) for each in items)
                yield [*values]
            case "object":
                properties = schema.get("properties", {})
                named = dict.fromkeys(schema.get("required", ()))
                spare = [key for key in properties if key not in named]
                named |= dict.fromkeys(
                    spare[: max(0, int(schema.get("minProperties", 0)) - len(named))]
                )
                rest = schema.get("additionalProperties", True)
                parts = {key: properties.get(key, rest) for key in named}
                found = {key: [*islice(self.values(part, depth), 1)] for key, part in parts.items()}
                yield {key: values[0] for key, values in found.items() if values}
            case _:
                return


_JOINING = ("$ref", "allOf", "anyOf", "oneOf")


def _joined(one: Mapping[str, Any], other: Any) -> dict[str, Any]:
    """The keywords of two schemas; a validator decides whether a value fits both."""
    if not isinstance(other, Mapping):
        return dict(one)
    properties = {**one.get("properties", {}), **other.get("properties", {})}
    required = [*one.get("required", ()), *other.get("required", ())]
    more = {"properties": properties} if properties else {}
    return {**one, **other, **more, **({"required": required} if required else {})}


def _referred(root: Any, reference: str) -> Any:
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _numbers(schema: Mapping[str, Any]) -> Iterator[float]:
    """1, and the numbers at and beside the limits."""
    step = schema.get("multipleOf", 1)
    for limit in ("", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        start = schema.get(limit, 1)
        if isinstance(start, int | float):
            base = start // step * step
            yield from (start, base, base + step, base - step)
