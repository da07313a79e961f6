"""What ``ctx.ask`` and ``ctx.step`` give: a coroutine that a body cannot take for the answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Never, TypeVar

T = TypeVar("T")


class Promised(Coroutine[Any, Any, T]):
    """A coroutine that is made when it is awaited, so that one which never is leaves no warning.

    Args:
        name: what the body called, such as ``ctx.ask``.
        make: makes the coroutine.
        begun: told once, when it is awaited, or made a task of.
        misused: makes the error of a body that takes it for the answer.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Coroutine[Any, Any, T]],
        begun: Callable[[Promised[T]], None],
        misused: Callable[[str], Exception],
    ) -> None:
        self.name = name
        self._make = make
        self._begun = begun
        self._misused = misused
        self._made: Coroutine[Any, Any, T] | None = None

    def __bool__(self) -> Never:
        raise self._misused(f"`{self.name}(…)` gives no answer yet: write `await {self.name}(…)`")

    def __repr__(self) -> str:
        return f"<{self.name}(…), to be awaited>"

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine().__await__()

    def send(self, value: Any, /) -> Any:
        """As of any coroutine."""
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """As of any coroutine."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """As of any coroutine."""
        self._coroutine().close()

    def _coroutine(self) -> Coroutine[Any, Any, T]:
        if self._made is None:
            self._made = self._make()
            self._begun(self)
        return self._made
