"""JSON values in forms: exact, finite, with a mark for a missing value."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator
from enum import Enum
from typing import Any, Literal, NoReturn, TypeAlias

from pydantic_core import to_jsonable_python

Json: TypeAlias = Any
"""A JSON value, as ``json.loads`` returns it."""

MAX_NESTING = 100
"""Levels of lists and objects accepted in JSON that a person typed."""
MAX_VALUES = 100_000
"""Commas, colons and opening brackets accepted in such JSON, including those in strings."""


class Absent(Enum):
    """The type of ``ABSENT``."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Literal[Absent.ABSENT] = Absent.ABSENT
"""The mark for a missing value, which is not null."""


def dumps(value: Json, *, indent: int | None = None) -> str:
    """The JSON text of a value; raises ValueError for NaN and Infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON number")


def loads(text: str) -> Json:
    """The value of a strict JSON text.

    Raises:
        ValueError: the text is not JSON, has NaN or Infinity, is nested too deeply, or has too many values.
    """
    if len(text) > MAX_VALUES and sum(map(text.count, ",:[{")) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        problem = f"{error.msg}, line {error.lineno}, column {error.colno}"
        raise ValueError(problem) from None
    if is_nested_deeper(value, MAX_NESTING):
        raise ValueError("nested too deeply")
    if not is_finite(value):
        raise ValueError("a number is too large")
    return value


def is_nested_deeper(value: Json, limit: int) -> bool:
    """Whether lists and objects nest deeper than ``limit``."""
    level = [value]
    for _ in range(limit + 1):
        level = [child for item in level for child in children(item)]
        if not level:
            return False
    return True


def everything_in(value: Json) -> Iterator[Json]:
    """A value, and every value inside it."""
    todo = [value]
    while todo:
        item = todo.pop()
        yield item
        todo.extend(children(item))


def children(value: Json) -> list[Json]:
    """The values of a list or object; empty for anything else."""
    return list(value.values()) if isinstance(value, dict) else list_or_empty(value)


def dict_or_empty(value: Json) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: Json) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def texts_in(value: Json) -> set[str]:
    """Every string anywhere in a value, except the keys of objects."""
    return {item for item in everything_in(value) if isinstance(item, str)}


def is_finite(value: Json) -> bool:
    """Whether a value contains no NaN or Infinity."""
    numbers = (item for item in everything_in(value) if isinstance(item, float))
    return all(map(math.isfinite, numbers))


def as_document(value: Any, *, by_alias: bool = True) -> Json:
    """A private copy of ``value`` as JSON; models (without computed fields), dates and the like as pydantic writes them.

    The copy of a value that cannot be written is ``ABSENT``; then the form has no prefill.
    """
    try:
        return json.loads(dumps(value))
    except (TypeError, ValueError, RecursionError):
        pass  # not plain JSON: pydantic knows more types
    try:
        plain = to_jsonable_python(
            value,
            by_alias=by_alias,
            round_trip=True,
            serialize_unknown=True,
            inf_nan_mode="strings",
        )
        return json.loads(dumps(plain))
    except (TypeError, ValueError, RecursionError):
        return ABSENT


def as_schema(value: Any) -> Json:
    """A schema as plain JSON; invalid numbers and parts that cannot be written are left out."""
    plain = as_document(_pruned(value, MAX_NESTING))
    return plain if isinstance(plain, dict | bool) else {}


def _pruned(value: Any, levels: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return ABSENT
    if not isinstance(value, dict | list) or levels < 0:
        return value if levels >= 0 else ABSENT
    if isinstance(value, list):
        items = [_pruned(each, levels - 1) for each in value]
        return [each for each in items if each is not ABSENT]
    pairs = {key: _pruned(each, levels - 1) for key, each in value.items()}
    return {key: each for key, each in pairs.items() if each is not ABSENT}


def same(one: Json, other: Json) -> bool:
    """JSON equality: true is not 1, but 1.0 is 1."""
    todo = [(one, other)]
    while todo:
        left, right = todo.pop()
        if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
            todo.extend((part, right[name]) for name, part in left.items())
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            todo.extend(zip(left, right, strict=True))
        elif isinstance(left, dict | list | bool) or isinstance(right, bool):
            if left is not right:
                return False
        elif left != right:
            return False
    return True


def equality_key(value: Json) -> Hashable:
    """A key that is equal for two values that are ``same``."""
    if isinstance(value, list):
        return "list", tuple(map(equality_key, value))
    if isinstance(value, dict):
        return "dict", frozenset((name, equality_key(part)) for name, part in value.items())
    return type(value) is bool, value


def is_number(value: Json) -> bool:
    """Whether a value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_text(value: Json, *, limit: int | None = None) -> str:
    """A value as a person reads it: text as it is, everything else as JSON."""
    try:
        text = value if isinstance(value, str) else dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = "(cannot be shown)"
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def has_lone_surrogates(text: str) -> bool:
    """Whether a text has half characters (lone surrogates) that no JSON document can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
