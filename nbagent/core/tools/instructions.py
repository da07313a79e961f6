"""The system prompt: text, or a function that returns it for each request to the model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from nbagent.core.base.errors import RunError, UsageError
from nbagent.core.base.messages import Message


@dataclass(frozen=True, slots=True)
class RunView:
    """The run, as passed to an ``instructions`` function."""

    run_id: str
    messages: tuple[Message, ...]
    """The history that the model is about to receive."""
    context: Any = None
    """The ``context=`` of the run."""


Said: TypeAlias = str | Awaitable[str | None] | None
Instructions: TypeAlias = str | Callable[[], Said] | Callable[[RunView], Said] | None
"""Text, or a function, maybe async, of the run or without parameters."""


def checked_instructions(value: Any) -> Any:
    """Return instructions if they are valid.

    Raises:
        UsageError: they are neither a string nor such a function.
    """
    if value is None or isinstance(value, str):
        return value
    if not callable(value) or isinstance(value, type):
        raise UsageError(
            f"instructions must be a string, a function of the run (nb.RunView), or None, got {value!r:.80}"
        )
    try:
        needed = _needed(value)
    except (TypeError, ValueError):  # one that says nothing of its parameters
        return value
    if needed > 1:
        raise UsageError(
            f"instructions={_name(value)} takes {needed} arguments. It must take one, the run (nb.RunView), or none"
        )
    return value


async def instructions_of(given: Any, run: RunView) -> str | None:
    """The text for one request.

    Raises:
        RunError: the function failed, or did not return a string. The message names it.
    """
    if given is None or isinstance(given, str):
        return given
    try:
        said = given(run) if _takes_run(given) else given()
        if inspect.isawaitable(said):
            said = await said
    except Exception as error:
        raise RunError(
            f"The instructions function failed: {_name(given)} raised {type(error).__name__}: {error}"
        ) from error
    if said is None or isinstance(said, str):
        return said
    raise RunError(
        f"The instructions function {_name(given)} must return a string, got {said!r:.80}"
    )


def described(given: Any) -> str:
    """The default description of an agent as a tool."""
    if isinstance(given, str):
        return given
    return "" if given is None else inspect.getdoc(given) or ""


def _parameters(given: Any) -> list[inspect.Parameter]:
    known = inspect.signature(given).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in known if one.kind in (*kinds, inspect.Parameter.VAR_POSITIONAL)]


def _needed(given: Any) -> int:
    return sum(
        one.default is one.empty and one.kind is not one.VAR_POSITIONAL
        for one in _parameters(given)
    )


def _takes_run(given: Any) -> bool:
    try:
        return bool(_parameters(given))
    except (TypeError, ValueError):
        return True


def _name(given: Any) -> str:
    return str(getattr(given, "__qualname__", type(given).__qualname__))
