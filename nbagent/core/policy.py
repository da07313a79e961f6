"""Rules that say, before a tool runs, whether it may run, must be asked about, or never runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from .messages import Json, canonical, dumps

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
    input: Json = None
    """For a remembered approval: the one input it covers."""
    run: str | None = None
    """For a remembered approval: the id of the one run it covers."""

    def __str__(self) -> str:
        told = f"{self.verdict} {self.pattern}"
        if self.input is not None:
            told += f" with {dumps(self.input)}"
        return told if self.run is None else f"{told} in run {self.run}"

    def covers(self, run_id: str) -> bool:
        """Whether it holds for that run."""
        return self.run in (None, run_id)


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
    """
    return Rule("allow", pattern, when)


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
    """
    names = editable if isinstance(editable, bool) else tuple(editable)
    return Rule("review", pattern, when, names, message)


def deny(
    pattern: str, *, when: Callable[[Any], bool] | None = None, reason: str | None = None
) -> Rule:
    """Never run matching tools; the model is told, with the reason.

    Args:
        pattern: a tool name, with ``*`` and ``?`` as wildcards.
        when: a predicate on the typed input; one that raises counts as true.
        reason: why, for the model and the person.
    """
    return Rule("deny", pattern, when, text=reason)


def judge(
    rules: Iterable[Rule], remembered: Iterable[Rule], name: str, typed: Any, input_: Json
) -> Judgement | None:
    """What the first matching rule says; None where none matches.

    A remembered approval turns a review into an allow, never a deny.
    """
    for rule in rules:
        if not fnmatchcase(name, rule.pattern):
            continue
        judgement = _says(rule, typed)
        if judgement is not None:
            return _eased(judgement, remembered, name, input_)
    return None


def asks(approval: Approval, typed: Any) -> bool:
    """Whether a tool's own ``approval=`` asks; a predicate that raises does."""
    if callable(approval):
        try:
            return bool(approval(typed))
        except Exception:
            return True
    return approval


def remembers(remembered: Iterable[Rule], name: str, input_: Json) -> bool:
    """Whether a person said that this call, or this tool, need not be asked about."""
    return any(
        rule.pattern == name and (rule.input is None or canonical(rule.input) == canonical(input_))
        for rule in remembered
    )


def _eased(judgement: Judgement, remembered: Iterable[Rule], name: str, input_: Json) -> Judgement:
    if judgement.verdict == "review" and remembers(remembered, name, input_):
        return Judgement("allow", f"remembered, instead of {judgement.rule}")
    return judgement


def _says(rule: Rule, typed: Any) -> Judgement | None:
    """The rule's verdict where its predicate holds; a predicate that raises never lets a call run."""
    verdict: Verdict = rule.verdict
    if rule.when is not None:
        try:
            if not rule.when(typed):
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
