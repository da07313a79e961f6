"""Values of tools: answers checked against a type, and results converted and bounded for the model."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Set
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from nbagent.core.base.errors import InvalidAnswer
from nbagent.core.base.messages import (
    Json,
    check_depth,
    dumps,
    freeze,
    jsonable,
    storable,
    with_escaped_surrogates,
)

from . import tables

MAX_OUTPUT = 32_000
"""Default maximum characters of a result for the model: about 8,000 tokens."""
MAX_SHOWN = 200_000
"""Maximum characters stored for the person, if the model receives a shortened result."""
MAX_TEXT = 8_000
"""Maximum characters of a rich value's text for the model."""
MAX_LEAF_TEXT = 1_000
"""Maximum characters of a rich value's text, if the value is part of data."""
MAX_DEPTH = 100
"""Maximum depth of data that is searched for values that are not JSON."""
MAX_ARRAY = 1_000
"""Maximum size of an array that the model receives as numbers; a larger array becomes text."""

MAX_DIGITS = 4_300
"""Maximum digits of an integer. Python has the same default limit, because the time to write an integer grows with
the square of its digits."""

_PLAIN = frozenset({str, int, float, bool, type(None)})


def checked_value(value: Any, adapter: TypeAdapter[Any] | None, label: str) -> Json:
    """The value as JSON, validated by ``adapter`` if there is one.

    Raises:
        InvalidAnswer: the value is not JSON or does not match; the message names the value as ``label``.
    """
    try:
        plain = jsonable(value)
        text = dumps(plain)
        text.encode()
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise InvalidAnswer(f"The {label} is not JSON: {_shown(value)}") from error
    try:
        storable(plain)
    except ValueError as error:
        raise InvalidAnswer(f"The {label} cannot be stored: {error}") from error
    if adapter is None:
        return freeze(plain)
    try:
        typed = adapter.validate_json(text)
    except ValidationError as error:
        raise invalid(f"The {label} does not match its type", error) from error
    return freeze(adapter.dump_python(typed, mode="json"))


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.200}"
    except (ValueError, RecursionError) as error:  # such as an integer of too many digits
        return f"{type(value).__name__} ({error})"


def invalid(problem: str, error: ValidationError) -> InvalidAnswer:
    """The error of an invalid answer; its message starts with ``problem``."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return InvalidAnswer(
        f"{problem}: {describe(error)}", errors=[{"loc": e["loc"], "msg": e["msg"]} for e in errors]
    )


def describe(error: ValidationError) -> str:
    """A validation error in one line, without echoing values."""
    items = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in items[:5]
    ) + (f"; and {len(items) - 5} more" if len(items) > 5 else "")


def _ask_for_part() -> str:
    return "ask for a part of it"


def for_model(
    value: Any,
    limit: int | None = None,
    words: Any = None,
    rest: Callable[[], str] = _ask_for_part,
) -> Json:
    """The result for the model: text unchanged, data as JSON, anything else as bounded text.

    Data are JSON values that may contain models, dataclasses, sets, dates, decimals, paths, enums, and
    numpy's scalars and short arrays. Any other value inside data becomes text. A table becomes its summary,
    with more rows than in a prompt. If the JSON has more than ``limit`` characters, it is shortened.
    ``words`` is the text for a value whose own text is useless, such as a chart with megabytes of data.
    ``rest`` returns advice for the model on how to get the rest.
    """
    if type(value) in (bool, type(None)):
        return value
    if isinstance(value, str):
        return with_escaped_surrogates(shortened_text(str(value), limit, rest))

    def leaf(item: Any) -> Any:
        as_text: Any = type(item).__str__
        if item is value and isinstance(words, str) and as_text is object.__str__:
            return _bounded(words, MAX_TEXT)
        return _plain(item, MAX_TEXT if item is value else MAX_LEAF_TEXT)

    try:
        plain, text = _json(value, leaf)
        if limit is not None and len(text) > limit:
            return shortened_text(text, limit, rest)
        check_depth(text.encode(), MAX_DEPTH)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        return _bounded(value, MAX_TEXT)
    return freeze(plain)


def _json(value: Any, leaf: Callable[[Any], Any]) -> tuple[Json, str]:
    """The value as JSON, and its text. A part that pydantic fails to convert, such as NaT, becomes text."""
    try:
        plain: Json = to_jsonable_python(value, fallback=leaf)
    except (PydanticSerializationError, ValueError, TypeError):
        plain = to_jsonable_python(_apart(value, leaf, MAX_DEPTH), fallback=leaf)
    if 0 < sys.get_int_max_str_digits() <= MAX_DIGITS:
        try:
            text = dumps(plain)
            text.encode()
        except ValueError:  # a number or a string that JSON cannot represent
            pass
        else:
            return plain, text
    plain = with_escaped_surrogates(_numbers_as_text(plain))
    return plain, dumps(plain)


def _numbers_as_text(plain: Json) -> Json:
    """The data, in which each number that JSON cannot represent is replaced by text."""
    match plain:
        case dict():
            return {key: _numbers_as_text(each) for key, each in plain.items()}
        case list():
            return [_numbers_as_text(each) for each in plain]
        case float() if not math.isfinite(plain):
            return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
        case int():
            return _number_as_text(plain)
        case _:
            return plain


def _number_as_text(value: int) -> int | str:
    """An integer; if it is too long, its size in words, without computing its digits."""
    digits = int(value.bit_length() * math.log10(2))
    most = min(MAX_DIGITS, sys.get_int_max_str_digits() or MAX_DIGITS)
    return value if digits < most else f"an integer of about {digits:,} digits"


def _apart(value: Any, leaf: Callable[[Any], Any], depth: int) -> Any:
    """The data, in which each part that JSON cannot represent is replaced by its text. Visits each part once."""
    if type(value) in _PLAIN:
        return value
    if not depth:
        raise RecursionError
    if isinstance(value, Mapping):
        return {_key(key, leaf): _apart(each, leaf, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | Set):
        return [_apart(each, leaf, depth - 1) for each in value]
    try:
        return to_jsonable_python(value, fallback=leaf)
    except (PydanticSerializationError, ValueError, TypeError):
        return _bounded(value, MAX_LEAF_TEXT)


def _key(key: Any, leaf: Callable[[Any], Any]) -> str:
    if type(key) is str:
        return key
    try:
        return str(*to_jsonable_python({key: None}, fallback=leaf))
    except (PydanticSerializationError, ValueError, TypeError):
        return _bounded(key, MAX_LEAF_TEXT)


LEFT_OUT = re.compile(r"… [\d,]{1,15} of ([\d,]{1,15}) characters left out: the result is too long")
"""The beginning of the note in a shortened result, with the number of characters of the whole."""


def shortened_text(text: str, limit: int | None, rest: Callable[[], str] = _ask_for_part) -> str:
    """The text for a model; if it is longer than ``limit``, only its beginning and end, with a note between."""
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    left_out, size = len(text) - 2 * half, len(text)
    note = f"… {left_out:,} of {size:,} characters left out: the result is too long. To see more, {rest()} …"
    return f"{text[:half]}\n{note}\n{text[len(text) - half :]}"


def _plain(value: Any, limit: int) -> Any:
    """The JSON of an unknown value: numbers of an array, or bounded text."""
    is_array = all(hasattr(value, name) for name in ("dtype", "ndim", "tolist"))
    if is_array and not hasattr(value, "index"):  # a pandas column is summarized below
        size = getattr(value, "size", 1)
        plain = value.tolist() if isinstance(size, int) and size <= MAX_ARRAY else value
        if type(plain) is not type(value):
            return plain
    try:
        table = tables.table_summary(value, tables.MANY if limit == MAX_TEXT else tables.FEW)
    except Exception:  # raised by the value's contents; its text may still work
        table = None
    return _bounded(value if table is None else table, limit)


def _bounded(value: Any, limit: int) -> str:
    try:
        text: str = with_escaped_surrogates(str(value))
    except ValueError:  # has an integer with more digits than Python writes
        is_giant = isinstance(value, int) and isinstance(_number_as_text(value), str)
        text = str(_number_as_text(value)) if is_giant else f"{type(value).__name__} without text"
    return text if len(text) <= limit else f"{text[:limit]}\n… ({len(text)} characters)"
