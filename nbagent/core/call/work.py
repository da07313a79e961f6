"""The work of a body's steps: one name is one piece of work, however often the body names it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType
from typing import Any

_BY_VALUE = frozenset({str, bytes, int, float, bool, type(None)})


class Work:
    """What a function would do, as far as can be told without doing it: its code, and the values it holds.

    A ``lambda`` is another object each time its line runs; it is the same work where it is of the same line and
    holds the same things. One of a loop holds another value in each round, and is other work.
    """

    __slots__ = ("_held",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self._held = _held(work)

    def is_same(self, other: Work) -> bool:
        """Whether both would do the same; objects are the same only where they are one."""
        return len(self._held) == len(other._held) and all(map(_same, self._held, other._held))


def _held(work: Any) -> tuple[Any, ...]:
    if isinstance(work, functools.partial):
        named = sorted(work.keywords.items())
        return (*_held(work.func), *work.args, *(part for pair in named for part in pair))
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


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)
