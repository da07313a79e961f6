"""Rules that decide, before a tool runs, whether it is allowed, reviewed by a person, or denied."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from sys import intern
from typing import Any, Literal, NamedTuple, TypeAlias

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import Message

Verdict = Literal["allow", "review", "deny"]


@dataclass(frozen=True, slots=True)
class CallView:
    """The call, as a condition receives it in addition to the typed input."""

    id: str
    tool_name: str
    messages: tuple[Message, ...]
    """The history up to the call; its last message has the call, or, for a ``ctx.call``, the outer call."""
    context: Any = None
    """The ``context=`` of the run."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Hints from the server of a tool, such as ``{"readOnlyHint": True}``. They are not verified."""


Returned: TypeAlias = bool | Awaitable[bool]
Condition: TypeAlias = Callable[[Any], Returned] | Callable[[Any, CallView], Returned]
"""A function, maybe async, of the typed input, or of the input and the call. It returns True or False."""
Approval: TypeAlias = bool | Condition
"""The ``approval=`` of a tool: True to ask before the tool runs, or a condition."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a verdict for the tools whose names match, and its condition."""

    verdict: Verdict
    pattern: str
    when: Condition | None = None
    editable: bool | tuple[str, ...] = False
    text: str | None = None
    """The question's message, or the reason of a denial."""
    danger: bool = False
    """True if the call cannot be undone."""

    def __str__(self) -> str:
        return intern(escaped(f"{self.verdict} {self.pattern}"))  # each question has it


class Judgement(NamedTuple):
    """The verdict of the rules on one call, and the rule that decided."""

    verdict: Verdict
    rule_name: str
    editable: bool | tuple[str, ...] = False
    text: str | None = None
    danger: bool = False
    is_broken: bool = False
    """True if the condition raised or returned no bool; the verdict is then to ask or to deny."""


@checks_keywords("nb.allow")
def allow(pattern: str, *, when: Condition | None = None) -> Rule:
    """Let matching tools run without asking.

    Example:
            agent = nb.Agent("gpt-5", policy=[nb.allow("read_*"), nb.review("*")])

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards.
        when: a condition: a function of the typed input, or of the input and the call (``nb.CallView``), sync
            or async, that returns True or False. If it raises or returns anything else, a person is asked.

    Raises:
        UsageError: ``pattern`` is not a string, or ``when`` is not such a function.
    """
    return Rule("allow", _name(pattern), _checked(when))


@checks_keywords("nb.review")
def review(
    pattern: str = "*",
    *,
    when: Condition | None = None,
    editable: bool | Sequence[str] = False,
    message: str | None = None,
    danger: bool = False,
) -> Rule:
    """Ask a person before matching tools run.

    Example:
            nb.review("pay", when=lambda asked: asked.euros > 100, editable=["euros"], message="A large one")

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards; every tool by default.
        when: a condition as in ``nb.allow``. If it raises or does not return a bool, it counts as true.
        editable: True if a form may change the input, or the names of the inputs that it may change; by default
            those that the tool's own ``editable=`` names.
        message: the text of the question.
        danger: True if the call cannot be undone. The question and its button are then red.

    Raises:
        UsageError: ``pattern`` is not a string, or ``when`` is not such a function.
    """
    names = editable if isinstance(editable, bool) else tuple(editable)
    return Rule("review", _name(pattern), _checked(when), names, message, danger)


@checks_keywords("nb.deny")
def deny(pattern: str = "*", *, when: Condition | None = None, reason: str | None = None) -> Rule:
    """Never run matching tools, including those of inner agents. The model receives the reason.

    Example:
            nb.deny("drop_*", reason="Tables are dropped by the DBA.")

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards; every tool by default. For a tool of an inner
            agent: its name, or its path from the agent with the rule, such as ``"banker/transfer"``.
        when: a condition as in ``nb.allow``. If it raises or does not return a bool, it counts as true.
        reason: the reason, for the model and the person.

    Raises:
        UsageError: ``pattern`` is not a string, or ``when`` is not such a function.
    """
    return Rule("deny", _name(pattern), _checked(when), text=reason)


def condition_misfit(condition: Any) -> str | None:
    """The reason why an object cannot be a condition, as the end of a sentence; None if it can."""
    call_method = getattr(condition, "__call__", None)  # noqa: B004 - of an object that is no function
    kinds = (inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    yields = any(kind(fn) for kind in kinds for fn in (condition, call_method))
    if not callable(condition) or isinstance(condition, type) or yields:
        return (
            "must be a function of the input, or of the input and the call, that returns True or False. It can be "
            f"async. Got {condition!r:.80}"
        )
    required = _required(condition)
    if required is None or required in (1, 2):
        return None
    return f"must take one argument (the input) or two (the input and the call). {condition!r:.80} does not"


def _required(condition: Callable[..., Any]) -> int | None:
    """Number of arguments that a condition is called with: 2 if two are required or the second is ``call``, else 1.

    None if the signature is unknown, and 0 if the condition does not accept that number.
    """
    try:
        signature = inspect.signature(condition)
    except (TypeError, ValueError):  # a function written in C
        return None
    positional = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required_count = sum(each.default is each.empty for each in positional)
    count = (
        2 if required_count == 2 or (len(positional) > 1 and positional[1].name == "call") else 1
    )
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return 0
    return count


async def judge(
    rules: Iterable[Rule], names: Sequence[str], typed: Any, call: CallView
) -> Judgement | None:
    """The verdict of the first rule that matches a name of the tool and whose condition holds or raises; else None."""
    for rule in rules:
        if not matches(rule, names):
            continue
        judgement = await _verdict(rule, typed, call)
        if judgement is not None:
            return judgement
    return None


async def denial(
    rules: Sequence[Rule], names: Sequence[str], typed: Any, call: CallView, *, reviewed: bool
) -> Judgement | None:
    """The denial of a tool with these names, if a rule denies it. Only rules that can matter are evaluated.

    Args:
        rules: the rules, in order.
        names: the tool's names.
        typed: the typed input.
        call: the call, for conditions.
        reviewed: True if a person has approved. If a review rule comes before the denial, the tool is then
            not denied.
    """
    denial_numbers = [
        n for n, r in enumerate(rules, 1) if r.verdict == "deny" and matches(r, names)
    ]
    for rule in rules[: denial_numbers[-1]] if denial_numbers else ():
        judgement = await _verdict(rule, typed, call) if matches(rule, names) else None
        if judgement is None or (judgement.verdict == "review" and not reviewed):
            continue
        return judgement if judgement.verdict == "deny" else None
    return None


def matches(rule: Rule, names: Sequence[str]) -> bool:
    """Whether a rule applies to a tool with these names."""
    return any(fnmatchcase(name, rule.pattern) for name in names)


async def tool_approval(
    approval: Approval,
    typed: Any,
    call: CallView,
    *,
    editable: bool | tuple[str, ...],
    text: str | None = None,
) -> Judgement | None:
    """The verdict of a tool's own ``approval=``, if it asks; a condition that raises also asks."""
    if approval is False:
        return None
    when = approval if callable(approval) else None
    rule = Rule("review", call.tool_name, when, editable, text)
    return await _verdict(rule, typed, call, f"approval= of {call.tool_name}")


def _name(pattern: Any) -> str:
    if isinstance(pattern, str):
        return pattern
    raise UsageError(f"A rule must name tools with a string, such as 'drop_*', got {pattern!r:.80}")


def _checked(when: Condition | None) -> Condition | None:
    misfit = None if when is None else condition_misfit(when)
    if misfit is None:
        return when
    raise UsageError(f"when= {misfit}")


class _NeitherYesNorNo(TypeError):
    """A condition returned a value that is not a bool."""


async def _holds(condition: Condition, typed: Any, call: CallView) -> bool:
    """Whether a condition holds."""
    function: Callable[..., Any] = condition
    result = function(typed, call) if _required(function) == 2 else function(typed)
    if inspect.isawaitable(result):
        result = await result
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the condition suppressed the cancellation
            raise asyncio.CancelledError
    if isinstance(result, bool):
        return result
    if str(getattr(result, "dtype", "")) == "bool" and getattr(result, "ndim", None) == 0:
        return bool(result)  # a numpy bool
    raise _NeitherYesNorNo(type(result).__name__)


async def _verdict(
    rule: Rule, typed: Any, call: CallView, named: str | None = None
) -> Judgement | None:
    """The rule's verdict if its condition holds. A condition that raises never allows a call."""
    rule_name, verdict, is_broken = named or str(rule), rule.verdict, False
    if rule.when is not None:
        try:
            if not await _holds(rule.when, typed, call):
                return None
        except Exception as error:
            if verdict == "allow":
                verdict = "review"
            failure = f"raised {type(error).__name__}"
            if isinstance(error, _NeitherYesNorNo):
                failure = f"returned a {error} instead of True or False"
            rule_name, is_broken = f"{rule_name} (its condition {failure})", True
    return Judgement(verdict, rule_name, rule.editable, rule.text, rule.danger, is_broken)
