"""Rules that say, before a tool runs, whether it may run, must be asked about, or never runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError

Verdict = Literal["allow", "review", "deny"]
Approval: TypeAlias = bool | Callable[[Any], bool]
"""A tool's own ``approval=``: whether to ask before it runs, or a predicate on the typed input."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it says of the tools whose names match, and when."""

    verdict: Verdict
    pattern: str
    when: Callable[[Any], bool] | None = None
    editable: bool | tuple[str, ...] = False
    text: str | None = None
    """The question's message, or the reason of a refusal."""

    def __str__(self) -> str:
        return escaped(f"{self.verdict} {self.pattern}")


class Judgement(NamedTuple):
    """What the rules say of one call, and which one said it."""

    verdict: Verdict
    rule: str
    editable: bool | tuple[str, ...] = False
    text: str | None = None


def allow(pattern: str, *, when: Callable[[Any], bool] | None = None) -> Rule:
    """Let matching tools run without asking.

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards.
        when: a predicate on the typed input; one that raises counts as "ask".

    Raises:
        UsageError: ``pattern`` is no text, or ``when`` no plain function.
    """
    return Rule("allow", _name(pattern), _checked(when))


def review(
    pattern: str,
    *,
    when: Callable[[Any], bool] | None = None,
    editable: bool | Sequence[str] = False,
    message: str | None = None,
) -> Rule:
    """Ask a person before matching tools run.

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards.
        when: a predicate on the typed input; one that raises counts as true.
        editable: whether a form may change the input: True, or names of inputs.
        message: what the question says.

    Raises:
        UsageError: ``pattern`` is no text, or ``when`` no plain function.
    """
    names = editable if isinstance(editable, bool) else tuple(editable)
    return Rule("review", _name(pattern), _checked(when), names, message)


def deny(
    pattern: str, *, when: Callable[[Any], bool] | None = None, reason: str | None = None
) -> Rule:
    """Never run matching tools, those of inner agents included; the model is told, with the reason.

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards; of a tool inside its own name, or its
            path from the agent whose rule it is, such as ``"banker/transfer"``.
        when: a predicate on the typed input; one that raises counts as true.
        reason: why, for the model and the person.

    Raises:
        UsageError: ``pattern`` is no text, or ``when`` no plain function.
    """
    return Rule("deny", _name(pattern), _checked(when), text=reason)


def is_plain_function(predicate: Any) -> bool:
    """Whether calling it gives a value, and not something that would have to be awaited first."""
    called = getattr(predicate, "__call__", None)  # noqa: B004 - of an object that is no function
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return callable(predicate) and not any(k(f) for k in kinds for f in (predicate, called))


def judge(rules: Iterable[Rule], names: Sequence[str], typed: Any) -> Judgement | None:
    """What the first rule says that matches one of the names of a tool; None where none matches."""
    for rule in rules:
        if not _matches(rule, names):
            continue
        judgement = _says(rule, typed)
        if judgement is not None:
            return judgement
    return None


def denial(
    rules: Sequence[Rule], names: Sequence[str], typed: Any, *, reviewed: bool
) -> Judgement | None:
    """The refusal of a tool with these names, if the rules refuse it; none is asked that cannot matter.

    Args:
        rules: in order.
        names: of the tool.
        typed: its input.
        reviewed: whether a person has approved: then a rule that asks lets it pass, before one that denies.
    """
    refusing = [n for n, r in enumerate(rules, 1) if r.verdict == "deny" and _matches(r, names)]
    for rule in rules[: refusing[-1]] if refusing else ():
        judgement = _says(rule, typed) if _matches(rule, names) else None
        if judgement is None or (judgement.verdict == "review" and not reviewed):
            continue
        return judgement if judgement.verdict == "deny" else None
    return None


def _matches(rule: Rule, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, rule.pattern) for name in names)


def asks(approval: Approval, typed: Any) -> bool:
    """Whether a tool's own ``approval=`` asks; a predicate that raises does."""
    if callable(approval):
        try:
            return _holds(approval, typed)
        except Exception:
            return True
    return approval


def _name(pattern: Any) -> str:
    if isinstance(pattern, str):
        return pattern
    raise UsageError(f"a rule names tools by a text, such as 'drop_*', not by {pattern!r:.80}")


def _checked(when: Callable[[Any], bool] | None) -> Callable[[Any], bool] | None:
    if when is None or is_plain_function(when):
        return when
    raise UsageError(
        f"when= must be a plain function of the input, not async, that says yes or no; "
        f"this is {when!r:.80}"
    )


def _holds(predicate: Callable[[Any], Any], typed: Any) -> bool:
    """What a predicate says.

    Raises:
        TypeError: something to be awaited, which as a truth value would always be yes.
    """
    said = predicate(typed)
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        raise TypeError("a predicate is a plain function, and this one has to be awaited")
    return bool(said)


def _says(rule: Rule, typed: Any) -> Judgement | None:
    """The rule's verdict where its predicate holds; a predicate that raises never lets a call run."""
    verdict: Verdict = rule.verdict
    if rule.when is not None:
        try:
            if not _holds(rule.when, typed):
                return None
        except Exception as error:
            if verdict == "allow":
                verdict = "review"
            return Judgement(
                verdict,
                f"{rule} (its condition raised {type(error).__name__})",
                rule.editable,
                rule.text,
            )
    return Judgement(verdict, str(rule), rule.editable, rule.text)
