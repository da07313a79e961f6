"""Coroutines that explain what to write if a cell shows or drops them without ``await``."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

from .controls import escaped

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN = 40
"""Maximum characters of an argument that is shown in full."""


class OuterCoroutine(Coroutine[Any, Any, T]):
    """A coroutine around another one, which ``_inner`` returns when this one is awaited, becomes a task, or is closed."""

    @abstractmethod
    def _inner(self) -> Coroutine[Any, Any, T]:
        """The inner coroutine."""

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner().__await__()

    def send(self, value: Any, /) -> Any:
        """As in any coroutine."""
        return self._inner().send(value)

    def throw(self, *error: Any) -> Any:
        """As in any coroutine."""
        return self._inner().throw(*error)

    def close(self) -> None:
        """As in any coroutine."""
        self._inner().close()


class Awaited(OuterCoroutine[T]):
    """A coroutine that explains what to write if it is not awaited: as a cell's value, and in a warning.

    Args:
        coroutine: the coroutine itself.
        call: the call as a person wrote it.
        at: the file and the line of the call.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str, at: tuple[str, int]) -> None:
        self._coroutine = coroutine
        self._call = call
        self._at = at
        self._is_awaited = self._has_explained = False
        """Whether the coroutine was awaited, and whether its repr has explained what to write."""

    def __repr__(self) -> str:
        if self._is_awaited:
            return f"<{self._call}, awaited>"
        self._has_explained = True
        return f"Not started. Write `await {self._call}`"

    def __del__(self) -> None:
        if self._is_awaited:  # the code that awaits may still use the inner coroutine
            return
        self._coroutine.close()
        if not self._has_explained and not sys.is_finalizing():
            call = self._call
            message = f"`{call}` did not run, because it was not awaited. Write `await {call}`"
            warnings.warn_explicit(message, RuntimeWarning, *self._at)

    def _inner(self) -> Coroutine[Any, Any, T]:
        self._is_awaited = True
        return self._coroutine


def awaited(
    label: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """A decorator for coroutine functions: a result that is not awaited explains what to write.

    Args:
        label: the call as people write it, such as ``nb.open_run``.
    """

    def decorate(
        function: Callable[P, Coroutine[Any, Any, T]],
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        skipped = next(iter(inspect.signature(function).parameters), "") == "self"

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
            __tracebackhide__ = True
            frame = sys._getframe(1)  # noqa: SLF001 - the line that a warning names
            given = [_shown(one) for one in args[skipped:]]
            # a string may be a secret, such as a password in a store's URL
            options = (
                (n, "…" if isinstance(one, str) else _shown(one)) for n, one in kwargs.items()
            )
            given += [f"{name}={shown}" for name, shown in options]
            call = f"{label}({', '.join(given)})"
            return Awaited(
                function(*args, **kwargs), call, (frame.f_code.co_filename, frame.f_lineno)
            )

        return called

    return decorate


def _shown(value: Any) -> str:
    """An argument as a person may have written it."""
    is_plain = value is None or isinstance(value, str | bool | int | float)
    text = escaped(repr(value)) if is_plain else ""
    return text if 0 < len(text) <= _SHOWN else "…"
