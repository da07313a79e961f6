"""The identity of a step's work, to find two different functions under the name of one step."""

from __future__ import annotations

import functools
from types import CellType
from typing import Any

_BY_VALUE = frozenset({str, bytes, int, float, bool, type(None)})


def work_parts(work: Any) -> tuple[Any, ...]:
    """What identifies a function's work, without running it: its code, and the values it uses.

    A ``lambda`` is a new object each time its line runs. Two lambdas do the same work if they come from the same
    line and use the same values. In a loop, a new value in each round makes the work different.
    """
    if isinstance(work, functools.partial):
        named = sorted(work.keywords.items())
        return (*work_parts(work.func), *work.args, *(part for pair in named for part in pair))
    code = getattr(work, "__code__", None)
    if code is None:
        return (work,)
    of = (getattr(work, "__self__", None),)
    defaults = getattr(work, "__defaults__", None) or ()
    named_defaults = (getattr(work, "__kwdefaults__", None) or {}).values()
    cells = map(_content, getattr(work, "__closure__", None) or ())
    return (code, *of, *defaults, *named_defaults, *cells)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return cell


def is_same_work(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether the parts are of the same work. Values are compared if they are text, numbers or None, else by identity."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)
