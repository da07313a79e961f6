"""The agents and flows of this process, by name: who can go on with a run that a store holds."""

from __future__ import annotations

import itertools
import weakref
from typing import TypeVar

T = TypeVar("T")

_known: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_numbers = itertools.count()


def know(one: object) -> None:
    """Remember an agent or a flow for as long as anybody holds it."""
    _known[one] = next(_numbers)


def all_known() -> list[object]:
    """Every agent and flow that somebody holds."""
    return list(_known)


def known_named(kind: type[T], name: str) -> T | None:
    """The newest agent, or flow, of this name; None where there is none."""
    named = [
        (number, one)
        for one, number in list(_known.items())
        if isinstance(one, kind) and getattr(one, "name", None) == name
    ]
    return max(named, key=lambda each: each[0])[1] if named else None
