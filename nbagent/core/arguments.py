"""Checks of an agent's arguments, so that an error names the argument before any run starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .base.errors import UsageError
from .journal.default import store_at
from .tools.middleware import Middleware
from .tools.policy import Rule
from .tools.spec import Budget

T = TypeVar("T")


def checked_text(name: str, value: Any) -> Any:
    """Return a string.

    Raises:
        UsageError: ``value`` is something else.
    """
    if isinstance(value, str):
        return value
    raise UsageError(f"{name} must be a string, got {value!r:.80}")


def checked_turns(value: Any, name: str = "max_turns", *, least: int = 1) -> int:
    """Return a maximum number, such as of turns, or of calls in one turn.

    Raises:
        UsageError: ``value`` is not an integer of at least ``least``.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise UsageError(f"{name} must be an integer of at least {least}, got {value!r:.80}")


def checked_budget(value: Any) -> Budget:
    """Return a budget; if ``value`` is None, one without limits.

    Raises:
        UsageError: ``value`` is something else.
    """
    if value is None or isinstance(value, Budget):
        return value or Budget()
    raise UsageError(
        f"budget must be nb.Budget(tokens=…, cost=…, seconds=…) with the limits that you want, got {value!r:.80}"
    )


def checked_store(value: Any) -> Any:
    """Return the store, or the store at a path or URL; None if ``value`` is None.

    Raises:
        UsageError, StoreError: ``value`` is something else, or cannot be used.
    """
    return None if value is None else store_at(value)


def checked_list(name: str, value: Any, example: str) -> list[Any]:
    """The items of a list or another iterable, except a string, bytes or a mapping.

    Raises:
        UsageError: ``value`` is something else; the message shows ``example``.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{name} must be a list, such as {example}, got {value!r:.80}")
    return list(value)


def checked_rules(policy: Any) -> list[Rule]:
    """The rules of a policy, which may be a list or a single rule.

    Raises:
        UsageError: an item is not a rule.
    """
    example = "[nb.review('transfer_*'), nb.allow('*')]"
    rules = [policy] if isinstance(policy, Rule) else checked_list("policy", policy, example)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise UsageError(
                f"A policy rule must come from nb.allow, nb.review or nb.deny, got {rule!r:.80}"
            )
    return rules


def checked_middleware(middleware: Any) -> list[Middleware]:
    """The middleware around tool calls.

    Raises:
        UsageError: an item is not a middleware.
    """
    found = checked_list("middleware", middleware, "[nb.Retry(times=3)]")
    for one in found:
        if isinstance(one, type):
            raise UsageError(
                f"A middleware must be an instance, got the class {one.__name__}. Use {one.__name__}(…)"
            )
        if not callable(one):
            raise UsageError(
                f"A middleware must be an async callable (call, next), got {one!r:.80}"
            )
    return found
