"""Regular expressions from anywhere, searched in linear time by pydantic's engine."""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

MAX_TEXT = 10_000
"""Characters that a pattern of Python's own is tried on; only look-arounds and such need it."""


def matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern is in a text; None where it cannot be searched for."""
    linear = _linear(pattern)
    if linear is None:
        return _by_python(pattern, text)
    try:
        linear.validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _linear(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except (SchemaError, UnicodeEncodeError):
        return None


def _by_python(pattern: str, text: str) -> bool | None:
    if len(text) > MAX_TEXT:
        return None
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return None


def is_pattern(pattern: object) -> bool:
    """Whether a pattern can be searched for at all."""
    if not isinstance(pattern, str):
        return False
    if _linear(pattern) is not None:
        return True
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
