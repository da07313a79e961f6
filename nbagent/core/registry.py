"""The agents and flows of this process, found by name, so that stored runs can continue with them."""

from __future__ import annotations

import itertools
import weakref
from typing import TypeVar

T = TypeVar("T")

_known: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_numbers = itertools.count()


def register(one: object) -> None:
    """Register an agent or a flow; it is removed when the object is deleted."""
    _known[one] = next(_numbers)


def all_known() -> list[object]:
    """Every existing agent and flow."""
    return list(_known)


def known_named(kind: type[T], name: str) -> T | None:
    """The newest agent, or flow, of this name; None if there is none."""
    named = [
        one for one in all_known() if isinstance(one, kind) and getattr(one, "name", "") == name
    ]
    return max(named, key=_known.__getitem__, default=None)
