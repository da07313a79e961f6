"""The agents and flows of this process, found by name, so that stored runs can continue with them."""

from __future__ import annotations

import weakref
from typing import TypeVar

T = TypeVar("T")

_known: weakref.WeakKeyDictionary[object, None] = weakref.WeakKeyDictionary()
"""Every existing agent and flow, in the order of their registration."""


def register(one: object) -> None:
    """Register an agent or a flow; it is removed when the object is deleted."""
    _known[one] = None


def all_known() -> list[object]:
    """Every existing agent and flow."""
    return list(_known)


def known_named(kind: type[T], name: str) -> T | None:
    """The newest agent, or flow, of this name; None if there is none."""
    named = [
        one for one in all_known() if isinstance(one, kind) and getattr(one, "name", "") == name
    ]
    return named[-1] if named else None
