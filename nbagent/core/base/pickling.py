"""Pickling for other processes: objects are created again from their arguments, without keys and passwords."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self, TypeAlias

from .credentials import SOUNDS_SECRET, credentials_in
from .errors import UsageError
from .process import fork_safe

Made: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""The result of ``__reduce__``."""


class Travels:
    """An object with locks or connections, or one that never changes: its copy within one process is the object itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self


def made_anew(kind: Callable[..., Any], *args: Any, **options: Any) -> Made:
    """The result of ``__reduce__`` with which the other process calls ``kind`` with these arguments.

    Raises:
        UsageError: an address or a header among the arguments has a password or key.
    """
    for name, value in options.items():
        if _has_credentials(name, value):
            cannot_travel(
                f"{kind.__name__}({', '.join(map(repr, args))})",
                f"its {name}= contains a password or key. Pass {name}= without it",
            )
    return _make, (kind, args, options)


def _has_credentials(name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return "header" in name and any(map(SOUNDS_SECRET.search, map(str, value)))
    return isinstance(value, str) and "://" in value and bool(credentials_in(value))


def has_secret(name: str, value: Any) -> bool:
    """Whether a JSON value has a text under a name of secrets, such as ``authorization``, or an address with a key."""
    match value:
        case Mapping():
            return any(has_secret(f"{key}", each) for key, each in value.items())
        case list() | tuple():
            return any(has_secret(name, each) for each in value)
        case str():
            return bool(value and SOUNDS_SECRET.search(name)) or _has_credentials(name, value)
        case _:
            return False


def made_once(kind: Callable[..., Any], *args: Any, **options: Any) -> Made:
    """As ``made_anew``, but the other process creates only one object for these arguments."""
    return _make_once, (kind, args, options)


def cannot_travel(label: str, instead: str) -> NoReturn:
    """Raise because an object cannot be pickled.

    Raises:
        UsageError: always; the message has the object's ``label`` and what to do ``instead``.
    """
    raise UsageError(f"{label} cannot be pickled for another process: {instead}")


def _make(kind: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    return kind(*args, **options)


def _make_once(kind: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    key = (kind, args, tuple(sorted(options.items())))
    with _lock:
        known = _shared.get(key)
        if known is None or known.is_closed:
            known = _shared[key] = kind(*args, **options)
        return known


_shared: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_lock = fork_safe(threading.Lock())
