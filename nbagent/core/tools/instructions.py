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


Returned: TypeAlias = str | Awaitable[str | None] | None
Instructions: TypeAlias = str | Callable[[], Returned] | Callable[[RunView], Returned] | None
"""None, text, or a function (maybe async) that takes the run or takes nothing, and returns text."""


def checked_instructions(value: Any) -> Any:
    """Return instructions if they are valid.

    Raises:
        UsageError: ``value`` is neither a string nor a function of the run.
    """
    if value is None or isinstance(value, str):
        return value
    if not callable(value) or isinstance(value, type):
        raise UsageError(
            f"instructions must be a string, a function of the run (nb.RunView), or None, got {value!r:.80}"
        )
    try:
        needed = sum(
            one.default is one.empty and one.kind is not one.VAR_POSITIONAL
            for one in _parameters(value)
        )
    except (TypeError, ValueError):  # its signature is unknown
        return value
    if needed > 1:
        raise UsageError(
            f"instructions={_name(value)} takes {needed} arguments. It must take one, the run (nb.RunView), or none"
        )
    return value


async def instructions_of(instructions: Any, run: RunView) -> str | None:
    """The text for one request.

    Raises:
        RunError: the function failed, or did not return a string. The message names it.
    """
    if instructions is None or isinstance(instructions, str):
        return instructions
    try:
        result = instructions(run) if _takes_run(instructions) else instructions()
        if inspect.isawaitable(result):
            result = await result
    except Exception as error:
        raise RunError(
            f"The instructions function failed: {_name(instructions)} raised {type(error).__name__}: {error}"
        ) from error
    if result is None or isinstance(result, str):
        return result
    raise RunError(
        f"The instructions function {_name(instructions)} must return a string, got {result!r:.80}"
    )


def described(instructions: Any) -> str:
    """The default description of an agent as a tool."""
    if isinstance(instructions, str):
        return instructions
    return "" if instructions is None else inspect.getdoc(instructions) or ""


def _parameters(function: Any) -> list[inspect.Parameter]:
    known = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in known if one.kind in (*kinds, inspect.Parameter.VAR_POSITIONAL)]


def _takes_run(function: Any) -> bool:
    try:
        return bool(_parameters(function))
    except (TypeError, ValueError):
        return True


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
