"""The validators behind a form: pydantic for types, jsonschema for bare schemas; the kernel decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from nbagent.forms.texts import counted_text, text_for
from nbagent.forms.values import Json

from .parts import Part, Problem
from .place import Complaint, place


@dataclass(frozen=True)
class Checked:
    """A validator's result for a document."""

    value: Any = None
    problems: list[Problem] = field(default_factory=list)


Checker: TypeAlias = Callable[[str, Json, Part], Checked]
"""Validates a document, given as JSON text and as a value, and never raises: the typed value, or problems at the fields
of the part."""


def accept_any(_text: str, document: Json, _part: Part) -> Checked:
    """The document itself: any JSON is accepted."""
    return Checked(document)


def pydantic_checker(adapter: TypeAdapter[Any], *, by_name: bool = False) -> Checker:
    """A validator of JSON text by pydantic, which is exact and accepts what strict models accept."""

    def validated(text: str) -> Any:
        if not by_name:
            return adapter.validate_json(text)
        try:
            return adapter.validate_json(text, by_alias=False, by_name=True)
        except ValidationError:  # a prefilled document uses the aliases
            return adapter.validate_json(text, by_alias=True, by_name=True)

    def check(text: str, _document: Json, part: Part) -> Checked:
        try:
            return Checked(validated(text))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            complaints = [Complaint(each["loc"], _sentence(each)) for each in found]
            return Checked(problems=place(part, complaints, labelled=True))
        except Exception as error:  # the user's own validators may raise anything
            return _not_checked(f"{type(error).__name__}: {error}")

    return check


def _not_checked(problem: str) -> Checked:
    return Checked(problems=[Problem(None, (), text_for("not_checked", problem=problem))])


_PLAIN = {
    "missing": "answer",
    **dict.fromkeys(
        (f"missing_{kind}argument" for kind in ("", "keyword_only_", "positional_only_")), "answer"
    ),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "not_int"),
    **dict.fromkeys(("float_parsing", "float_type", "decimal_parsing", "decimal_type"), "not_num"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "not_bool"),
    "string_type": "not_text",
    **dict.fromkeys(("date_parsing", "date_type", "date_from_datetime_parsing"), "not_date"),
    **dict.fromkeys(
        ("datetime_parsing", "datetime_type", "datetime_from_date_parsing"), "not_datetime"
    ),
    **dict.fromkeys(("time_parsing", "time_type"), "not_time"),
    **dict.fromkeys(("time_delta_parsing", "time_delta_type"), "not_timedelta"),
    **dict.fromkeys(("uuid_parsing", "uuid_type"), "not_uuid"),
    **dict.fromkeys(("url_parsing", "url_type"), "not_url"),
    **dict.fromkeys(("date_past", "datetime_past"), "not_past"),
    **dict.fromkeys(("date_future", "datetime_future"), "not_future"),
    "timezone_aware": "no_zone",
    "timezone_naive": "has_zone",
    "extra_forbidden": "wrong",
}
"""The types of pydantic's errors, and the key of the text for each."""
_LIMITED = {
    "greater_than": ("wrong_exclusiveMinimum", "gt"),
    "greater_than_equal": ("wrong_minimum", "ge"),
    "less_than": ("wrong_exclusiveMaximum", "lt"),
    "less_than_equal": ("wrong_maximum", "le"),
    "multiple_of": ("wrong_multipleOf", "multiple_of"),
    "string_pattern_mismatch": ("wrong_pattern", "pattern"),
    "literal_error": ("wrong_enum", "expected"),
    "enum": ("wrong_enum", "expected"),
    "decimal_max_digits": ("wrong_digits", "max_digits"),
    "decimal_max_places": ("wrong_places", "decimal_places"),
    "url_scheme": ("wrong_scheme", "expected_schemes"),
}
"""The types of errors with a limit: the key of the text for each, and pydantic's key of the limit."""
_COUNTED = {
    "string_too_short": ("wrong_minLength", "min_length"),
    "string_too_long": ("wrong_maxLength", "max_length"),
    "too_short": ("wrong_minItems", "min_length"),
    "too_long": ("wrong_maxItems", "max_length"),
}
"""As ``_LIMITED``, for limits whose text has a singular and a plural."""


def _sentence(error: Any) -> str:
    """An error of pydantic in plain words; the message of a user's validator stays unchanged."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _PLAIN:
        return text_for(_PLAIN[kind])
    key, name = _LIMITED.get(kind) or _COUNTED.get(kind) or ("", "")
    if key and name in context:
        limit = context[name]
        if context.get("field_type") in ("Dictionary", "Mapping"):
            key = key.replace("Items", "Properties")
        return (
            counted_text(key, limit, limit=limit)
            if kind in _COUNTED
            else text_for(key, limit=limit)
        )
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message or text_for("wrong")


@cache
def _warm_up() -> None:
    """Load jsonschema while the person reads; not in a daemon thread, as loading compiled code must not be cut off."""
    name = f"{__package__}.json_schema"
    thread = threading.Thread(target=import_module, args=(name,), name="nbagent-forms")
    # no threads exist in a web page: jsonschema is loaded with the first answer
    with suppress(RuntimeError):
        thread.start()


_PANIC = "PanicException"
"""The error of jsonschema's own dependency (rpds) if the stack is full; it is not an ``Exception``."""


def schema_checker(schema: Json) -> Checker:
    """A validator of a document by a JSON Schema, which never loads another schema."""
    _warm_up()
    find_errors: Any = None

    def check(_text: str, document: Json, part: Part) -> Checked:
        nonlocal find_errors
        from .json_schema import complaints_of, validator_for  # noqa: PLC0415 - slow to load, only where used

        try:
            find_errors = find_errors or validator_for(schema)
            complaints = [
                each for error in find_errors(document) for each in complaints_of(error, part)
            ]
        except BaseException as error:  # a foreign schema can break the validator
            is_panic = type(error).__name__ == _PANIC
            if not isinstance(error, Exception) and not is_panic:
                raise
            if isinstance(error, RecursionError) or is_panic:
                return _not_checked(text_for("too_deep").rstrip("."))
            return _not_checked(f"{type(error).__name__}: {error}")
        return Checked(document, place(part, complaints, labelled=False))

    return check
