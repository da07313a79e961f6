"""Rules held against the tools there are: one that names a tool which nobody has is a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import UsageError, suggest

from .hosted import check_hosted
from .policy import Rule
from .spec import RunSpec
from .tool import Tool
from .toolbox import is_whole


def check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]]) -> None:
    """Refuse rules that can never match, since they name a tool that nobody has.

    Where not all tools are known yet, that is looked at once they are.

    Args:
        spec: what the run needs to know.
        registered: the agent's own tools, which a rule may name too.

    Raises:
        UsageError: naming the rule, and what it may have meant.
    """
    _check_rules(spec, registered, set())
    check_hosted(spec.model, spec.hosted, spec.policy)
    for rules, path in spec.above if _is_whole(spec.tools) else ():
        for rule in rules:
            above, _, name = rule.pattern.rpartition("/")
            named = above == path and not set(name) & set("*?[")
            known = _names(spec, registered)
            if named and name not in known:
                raise UsageError(_unknown(spec.agent, rule, known, {}))


def _names(spec: RunSpec, registered: Mapping[str, Tool[..., Any]]) -> set[str]:
    return {*spec.tools, *registered, *(one.name for one in spec.hosted)}


def _names_inside(tools: Mapping[str, Tool[..., Any]], seen: tuple[int, ...] = ()) -> set[str]:
    """The names of the tools of inner agents, and their paths, which rules that deny may name too."""
    names: set[str] = set()
    for name, tool in tools.items():
        inner = tool.options.inner
        if inner is not None and id(inner.tools) not in seen:
            own = {*inner.tools, *(one.name for one in inner.spec().hosted)}
            within = {*own, *_names_inside(inner.tools, (*seen, id(inner.tools)))}
            names |= within | {f"{name}/{one}" for one in within}
    return names


def _is_whole(tools: Mapping[str, Tool[..., Any]], seen: tuple[int, ...] = ()) -> bool:
    """Whether all tools are known by now, those of inner agents included."""
    inner = [tool.options.inner for tool in tools.values() if tool.options.inner]
    return is_whole(tools) and all(
        _is_whole(one.tools, (*seen, id(one.tools))) for one in inner if id(one.tools) not in seen
    )


def _check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]], seen: set[int]) -> None:
    names, whole = _names(spec, registered), _is_whole(spec.tools) and _is_whole(registered)
    inner = {name: tool.options.inner for name, tool in spec.tools.items() if tool.options.inner}
    for n, rule in enumerate(spec.policy, 1):
        reaches = "deny" in (rule.verdict, *(r.verdict for r in spec.policy[n:]))
        inside = _names_inside(spec.tools) if reaches and rule.verdict != "review" else set()
        known = names | inside
        body = rule.pattern.partition("/")[0]
        if rule.verdict == "deny" and body != rule.pattern and body in names - {*inner}:
            continue  # in what a tool's body starts, which is known once it runs
        if rule.pattern not in known and whole and not set(rule.pattern) & set("*?["):
            told = _unknown(spec.agent, rule, names, inner)
            way = "; name in nb.flow(tools=[…]) what the flow calls" if spec.model is None else ""
            raise UsageError(f"{told}{way}")
    for one in inner.values():
        if id(one.tools) not in seen:
            seen.add(id(one.tools))
            _check_rules(one.spec(), one.tools, seen)


def _unknown(agent: str, rule: Rule, names: set[str], inner: Mapping[str, Any]) -> str:
    text = f"the rule nb.{rule.verdict}({rule.pattern!r}) names no tool of {agent!r}"
    for name, one in inner.items():
        if rule.pattern in one.tools:
            return f"{text}, but one of the agent {name!r} inside: give the rule to that agent"
    known = ", ".join(sorted(names)) or "it has none"
    return f"{text}{suggest(rule.pattern, names) or f': {known}'}"
