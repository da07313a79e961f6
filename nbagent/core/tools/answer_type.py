"""The type of the final answer: its JSON Schema for the model, and parsing of the model's text.

For any type except text, the model is asked for a JSON object, because many servers accept no other root. A type
that is not an object is wrapped in an object whose only field, ``value``, has that type. The model may write the
object or the value alone, also among other words. Its text must have exactly one JSON value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json

from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import AnswerForm
from nbagent.core.base.incoming_json import MAX_MODEL_PARTS, TooManyParts, within_parts
from nbagent.core.base.messages import Json, dumps, storable, strict_json

from .json_schema import adapter_of, why_no_schema
from .result_text import describe

MAX_SEARCHED = 200_000
"""Maximum characters of a text that is searched for a value among other words."""
MAX_TRIED = 20
"""Maximum number of brackets in a text that are tried as the start of a value."""
_PLAIN = frozenset(("type", "title", "description"))
_UNIONS = ("anyOf", "oneOf", "allOf", "enum", "const", "not", "if")
_DEFINITIONS = ("$defs", "definitions")
_KEPT = 64


class Misfit(ValueError):
    """A text has no value of the type. The message explains why, without the text."""


class ParsedAnswer(NamedTuple):
    """A parsed answer."""

    text: str
    """The JSON of the answer alone; for text, the text."""
    output: Json
    """The value, as JSON."""


class AnswerType:
    """The type of a run's final answer: a Python type or a JSON Schema.

    ``type_`` is None if any text is an answer. ``str`` is text too, not JSON.

    Raises:
        UsageError: the type has no JSON Schema.
    """

    def __init__(self, type_: Any) -> None:
        self._type = type_
        try:
            self._adapter: TypeAdapter[Any] = adapter_of(str if type_ is None else type_)
            own = self._adapter.json_schema()
            self._reads_what_it_writes = own == self._adapter.json_schema(mode="serialization")
        except PydanticUserError as error:
            why = why_no_schema(error, "use", "pydantic models, such as list[Row] for a table")
            raise UsageError(f"output_type= {type_!r:.100} cannot be an answer: {why}") from error
        self.form: AnswerForm = "text"
        self.schema: dict[str, Any] | None = None
        """The schema for the model, always of an object; None for text."""
        if own.get("type") == "string" and own.keys() <= _PLAIN:
            return
        root = _unreferenced(own)
        is_object = root.get("type") == "object" and not any(key in root for key in _UNIONS)
        self.form = "json" if is_object else "value"
        self.schema = root if self.form == "json" else _wrapped(own)

    def typed(self, output: Json) -> Any:
        """The JSON of an answer as a value of the type; unchanged if there is no type."""
        if self._type is None or output is None:
            return output
        return self._adapter.validate_json(dumps(output))

    def of_tool(self, output: Json) -> Json:
        """The result of a final tool, as the JSON of the type.

        Raises:
            Misfit: the result does not match the type.
        """
        return output if self._type is None else self._fitting(dumps(output))

    def parse(self, text: str) -> ParsedAnswer:
        """The answer in a model's text.

        Raises:
            Misfit: the text has no value of the type, or several.
        """
        if self._type is None:
            return ParsedAnswer(text, None)
        if self.schema is None:
            try:
                return ParsedAnswer(text, self._as_json(self._adapter.validate_python(text)))
            except ValidationError as error:
                raise Misfit(describe(error)) from error
        found = _found(text)
        inner = unwrapped(found.value, self.form)
        if inner is found.value:
            return ParsedAnswer(found.text, self._fitting(found.text))
        try:
            output = self._fitting(dumps(inner))
            return ParsedAnswer(dumps(output), output)
        except Misfit as misfit:
            try:  # a value of the type may itself look like a wrapping object
                return ParsedAnswer(found.text, self._fitting(found.text))
            except Misfit:
                raise misfit from None

    def _fitting(self, text: str) -> Json:
        """JSON text, validated and converted to the JSON that the type writes."""
        try:
            kept = self._as_json(self._adapter.validate_json(text))
        except ValidationError as error:
            raise Misfit(describe(error)) from error
        except (TypeError, ValueError) as error:
            raise Misfit(str(error)) from error
        if self._reads_what_it_writes:
            return kept
        try:
            self.typed(kept)
        except ValidationError:  # the type cannot read the JSON that it writes
            return storable(json.loads(text))
        return kept

    def _as_json(self, value: Any) -> Json:
        return storable(self._adapter.dump_python(value, mode="json", by_alias=True))


_known: dict[int, AnswerType] = {}


def answer_type(type_: Any) -> AnswerType:
    """The ``AnswerType`` of a type, cached by the identity of the type object, which is fast."""
    known = _known.get(id(type_))
    if known is None or known._type is not type_:  # noqa: SLF001 - its own
        while len(_known) >= _KEPT:
            _known.pop(next(iter(_known)), None)
        known = _known[id(type_)] = AnswerType(type_)
    return known


# --- the schema


def _unreferenced(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. If its root is a reference, as for a recursive model, the definition replaces the root."""
    root, seen = schema, set()
    while isinstance(ref := root.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        section, _, name = ref.removeprefix("#/").partition("/")
        target = schema.get(section, {}).get(name) if section in _DEFINITIONS else None
        if not isinstance(target, Mapping):
            return schema
        siblings = {key: value for key, value in root.items() if key != "$ref"}
        root = {**target, **siblings}
    return root


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object whose only field, ``value``, has the passed schema."""
    inner = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    kept = {key: schema[key] for key in _DEFINITIONS if key in schema}
    root: dict[str, Any] = {
        "type": "object",
        "properties": {"value": _moved(inner)},
        "required": ["value"],
        "additionalProperties": False,
        **{key: _moved(value) for key, value in kept.items()},
    }
    title = schema.get("title")
    return {"title": title, **root} if isinstance(title, str) else root


def _moved(schema: Json) -> Json:
    """The schema with its references adjusted, because its root becomes the field ``value``."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    ref = schema.get("$ref")
    if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
        is_in_definitions = any(ref.startswith(f"#/{name}/") for name in _DEFINITIONS)
        moved["$ref"] = ref if is_in_definitions else f"#/properties/value{ref[1:]}"
    return moved


# --- the text


class _JsonPart(NamedTuple):
    """A JSON value in a text."""

    text: str
    value: Json


def _found(text: str) -> _JsonPart:
    """The one JSON value of a text: all of it, or an object or list among other words.

    Raises:
        Misfit: the text has no JSON value, or more than one.
    """
    stripped = text.strip()
    try:
        return _JsonPart(
            stripped, from_json(within_parts(stripped, MAX_MODEL_PARTS), allow_inf_nan=False)
        )
    except TooManyParts as error:
        raise Misfit(f"the JSON cannot be read: {error}") from None
    except (TypeError, ValueError) as error:  # a TypeError if the text has half of a surrogate pair
        reason = str(error)
    if len(stripped) > MAX_SEARCHED:
        raise Misfit(f"it is not JSON: {reason}")
    values = list(_values_in(stripped))
    if not values:
        raise Misfit(f"it is not JSON: {reason}")
    if len(values) > 1:
        raise Misfit(f"expected one JSON value, got {len(values)}")
    return values[0]


def _values_in(text: str) -> Iterator[_JsonPart]:
    """The outermost objects and lists in a text."""
    position = 0
    for _ in range(MAX_TRIED):
        starts = [
            place for place in (text.find("{", position), text.find("[", position)) if place >= 0
        ]
        if not starts:
            return
        start = min(starts)
        try:
            value, position = strict_json.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
        else:
            yield _JsonPart(text[start:position], value)
    if "{" in text[position:] or "[" in text[position:]:
        raise Misfit("the text has too many brackets to search for JSON")


def value_of(text: str, form: AnswerForm) -> Json:
    """The JSON value in a model's complete text: unwrapped, but not validated by the type.

    Raises:
        Misfit: the text has no JSON value, or more than one.
    """
    return unwrapped(_found(text).value, form)


def partial_of(text: str, form: AnswerForm) -> Json:
    """The value of an incomplete text so far; its last string may be incomplete.

    Returns None if no value is known yet.
    """
    starts = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    if not starts:
        return None
    try:
        value = from_json(
            within_parts(text[min(starts) :], MAX_MODEL_PARTS), allow_partial="trailing-strings"
        )
    except (TypeError, ValueError):
        return None
    if form == "value" and value == {}:
        return None
    return unwrapped(value, form)


def unwrapped(value: Json, form: AnswerForm) -> Json:
    """The value in the only field of a wrapping object; any other value unchanged."""
    is_wrapped = form == "value" and isinstance(value, dict) and value.keys() == {"value"}
    return value["value"] if is_wrapped else value
