"""Regular expressions of schemas, searched by pydantic's engine. A pattern's weight limits the time of a search.

Python's own ``re`` can take exponential time, and no other thread runs meanwhile. So ``re`` never searches for
a pattern of a schema. Patterns are not checked if pydantic's engine does not support them (look-arounds, back
references), or if they are too heavy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from nbagent.forms.values import Json, dict_or_empty, everything_in

MAX_LENGTH = 2_000
"""Characters of one pattern."""
MAX_WEIGHT = 10_000
"""Weight of one pattern, by ``_weight_of``; compiling such a pattern takes up to about 40 ms."""
MAX_TOTAL = 100_000
"""The weights of all patterns of one schema together."""
MAX_STEPS = 10_000_000
"""The weight of a pattern times the number of characters of the searched text."""
_CLASS = 10
_UNICODE = 75
"""The weight of a class of letters in all scripts."""


class _Pattern(NamedTuple):
    engine: SchemaValidator
    weight: int


def matches(pattern: str, text: str) -> bool | None:
    """Whether a text contains a match of a pattern; None if the pattern cannot be searched."""
    ready = _ready(pattern)
    if ready is None or ready.weight * len(text) > MAX_STEPS:
        return None
    try:
        ready.engine.validate_python(text)
    except ValidationError:
        return False
    return True


def _ready(pattern: str) -> _Pattern | None:
    return _compiled(pattern) if len(pattern) <= MAX_LENGTH else None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Pattern | None:
    weight = _weight_of(pattern)
    if weight > MAX_WEIGHT:
        return None
    try:
        return _Pattern(SchemaValidator(core_schema.str_schema(pattern=pattern)), weight)
    except (SchemaError, UnicodeEncodeError):
        return None


def is_balanced(pattern: object) -> bool:
    """Whether each bracket of a pattern is closed, as every kind of regular expression requires."""
    if not isinstance(pattern, str):
        return True
    depth, in_class, chars = 0, False, iter(enumerate(pattern))
    start = 0
    for at, char in chars:
        if char == "\\":
            if next(chars, None) is None:
                return False
        elif in_class:
            in_class = char != "]" or pattern[start:at] in ("[", "[^")
        elif char == "[":
            in_class, start = True, at
        else:
            depth += (char == "(") - (char == ")")
            if depth < 0:
                return False
    return not depth and not in_class


def unsearched(schema: Json) -> list[str]:
    """The patterns of a schema that are never searched, in alphabetical order."""
    return sorted(each for each in _patterns(schema) if _ready(each) is None)


def weight_of(schema: Json) -> int:
    """The weight of all patterns of a schema together."""
    return sum(min(_weight(each), MAX_WEIGHT) for each in _patterns(schema))


def _patterns(schema: Json) -> set[str]:
    found: set[str] = set()
    for item in everything_in(schema):
        if isinstance(item, dict):
            given = [item.get("pattern"), *dict_or_empty(item.get("patternProperties"))]
            found.update(each for each in given if isinstance(each, str))
    return found


def _weight(pattern: str) -> int:
    return _weight_of(pattern) if len(pattern) <= MAX_LENGTH else MAX_WEIGHT


@lru_cache(maxsize=256)
def _weight_of(pattern: str) -> int:
    """An upper estimate of a pattern's states; a repeated part counts as often as the part may repeat."""
    outer: list[int] = []
    total = last = at = 0
    folds = 1
    while at < len(pattern):
        size = 1
        match pattern[at]:
            case "\\":
                size, last = _escape(pattern, at)
            case "[":
                size, last = _class(pattern, at)
            case "(":
                flags = pattern[at : at + 12].partition(")")[0].partition(":")[0]
                if flags.startswith("(?") and "x" in flags and "<" not in flags:
                    # blanks are ignored with flag x, which the estimate does not support
                    return MAX_WEIGHT + 1
                folds = 2 if flags.startswith("(?") and "i" in flags else folds
                outer += [total, 0]
                total = last = 0
            case ")" if outer:
                outer.pop()
                last, total = total, outer.pop()
                total += last
                at += 1
                continue
            case "{":
                size, times = _times(pattern, at)
                last, total = last * times, total - last + last * times
                at += size
                if total > MAX_WEIGHT:
                    return MAX_WEIGHT + 1
                continue
            case ".":
                last = _CLASS
            case _:
                last = 1
        total += last
        at += size
    return (total + sum(outer)) * folds


_WIDE = frozenset("wWdDsSbBpP")


def _class(pattern: str, start: int) -> tuple[int, int]:
    """The length and the weight of ``[…]``, which may contain other classes."""
    depth, at, weight = 0, start, _CLASS
    while at < len(pattern):
        char = pattern[at]
        depth += (char == "[") - (char == "]" and at > start + 1)
        size, more = _escape(pattern, at) if char == "\\" else (1, 1)
        weight, at = weight + more, at + size
        if not depth:
            break
    return at - start, weight


def _escape(pattern: str, start: int) -> tuple[int, int]:
    """The length and the weight of an escape, which starts with a backslash."""
    name = pattern[start + 1 : start + 2]
    if name not in _WIDE:
        return 2, 1
    if name not in "pP":
        return 2, _UNICODE
    named = pattern.startswith("{", start + 2)
    return (max(pattern.find("}", start), start + 2) + 1 - start if named else 3), _UNICODE


def _times(pattern: str, start: int) -> tuple[int, int]:
    """The length of ``{…}``, and the maximum number of repetitions; both 1 if the braces contain no number."""
    end = pattern.find("}", start, start + 24)
    numbers = pattern[start + 1 : end].split(",") if end > 0 else []
    counts = [int(each) for each in numbers if each.strip().isdecimal()]
    return (end + 1 - start, max([1, *counts])) if counts else (1, 1)
