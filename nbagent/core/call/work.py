"""The work of a body's steps: one name is one piece of work, however often the body names it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType
from typing import Any

_BY_VALUE = frozenset({str, bytes, int, float, bool, type(None)})


class Work:
    """The identity of a function's work, without running it: its code, and the values it uses.

    A ``lambda`` is a new object each time its line runs. It is the same work if it is of the same line and
    uses the same values. In a loop, another value in each round makes it other work.
    """

    __slots__ = ("_held",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self._held = _held(work)

    def is_same(self, other: Work) -> bool:
        """Whether both do the same work; objects are equal only if they are identical."""
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
