"""Answers for ``generate``: made with ``nb.tool_response`` and its like, or by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .answers import AnyResolution
from .errors import InvalidAnswer
from .interrupts import PendingInterrupt, Reject, Respond, Restart


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer for ``generate``: made by ``tool_response`` and its like, or by hand."""

    interrupt: PendingInterrupt | str
    resolution: AnyResolution


def tool_response(interrupt: PendingInterrupt, value: Any) -> Reply:
    """Answer an interrupt with ``value``, for ``generate(tool_responses=[…])``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
        InvalidAnswer: the value does not fit the tool's return type.
    """
    return Reply(*_pending("tool_response", interrupt).respond(value))


def tool_restart(interrupt: PendingInterrupt, *, new_input: Any = None, data: Any = None) -> Reply:
    """Run the interrupted tool (again), for ``generate(tool_restarts=[…])``.

    Args:
        interrupt: one of ``response.interrupts``.
        new_input: the whole input to use instead; None keeps it.
        data: what the tool gets as ``ctx.resumed``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
        InvalidAnswer: the tool has no body, or the input does not fit it.
    """
    pending = _pending("tool_restart", interrupt)
    return Reply(*pending.restart(new_input=new_input, data=data))


def tool_rejection(interrupt: PendingInterrupt, reason: str | None = None) -> Reply:
    """Refuse the interrupted call, for ``generate(tool_rejections=[…])``.

    Raises:
        TypeError: ``interrupt`` is no interrupt.
    """
    return Reply(*_pending("tool_rejection", interrupt).reject(reason))


def _pending(helper: str, value: Any) -> PendingInterrupt:
    if not isinstance(value, PendingInterrupt):
        raise TypeError(
            f"{helper} takes one of response.interrupts, not {type(value).__name__} {value!r:.80}"
        )
    return value


def replies_of(
    responses: Sequence[Any], restarts: Sequence[Any], rejections: Sequence[Any]
) -> list[Reply]:
    """The answers of a ``generate``, each of the kind that its list takes.

    Raises:
        InvalidAnswer: something is no answer, or in the wrong list.
    """
    wanted: list[tuple[str, Sequence[Any], type[Any]]] = [
        ("tool_responses", responses, Respond),
        ("tool_restarts", restarts, Restart),
        ("tool_rejections", rejections, Reject),
    ]
    return [_reply(name, one, kind) for name, given, kind in wanted for one in given]


def _reply(name: str, value: Any, kind: type[Any]) -> Reply:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], kind):
        value = Reply(*value)
    if not isinstance(value, Reply) or not isinstance(value.resolution, kind):
        raise InvalidAnswer(
            f"{name} takes what nb.{name.removesuffix('s')} makes, not {value!r:.80}"
        )
    return value
