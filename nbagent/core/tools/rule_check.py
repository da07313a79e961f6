"""Checks of rules against the tools: a rule that names an unknown tool is a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from nbagent.core.base.errors import UsageError, suggest

from .hosted import check_hosted
from .policy import Rule
from .spec import RunSpec
from .tool import Tool
from .toolbox import Toolbox, is_complete, with_inner


def check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]]) -> None:
    """Raise if a rule can never match, because it names an unknown tool, or if a hosted tool cannot be used.

    If some tools are not known yet, the check is repeated once they are known.

    Args:
        spec: the run's settings.
        registered: all tools of the agent; a rule may name them even if this run does not use them.

    Raises:
        UsageError: a rule matches no tool; the message names the rule and similar tools. Or as in ``check_hosted``.
    """
    has_inner = any(tool.options.inner for tool in spec.tools.values())
    if not (spec.policy or spec.above or spec.hosted or has_inner):
        return
    _check_rules(spec, registered, set())
    check_hosted(spec.model, spec.hosted, spec.policy)
    for rules, path in spec.above if all_known(spec.tools) else ():
        for rule in rules:
            above, _, name = rule.pattern.rpartition("/")
            known = _names(spec, registered)
            if above == path and not _names_one(name, known):
                raise UsageError(_unknown(spec, rule, known, {}))


def _names_one(pattern: str, known: Iterable[str]) -> bool:
    """Whether a pattern matches one of the known names; ``*`` always does, even if there are none."""
    return pattern == "*" or any(fnmatchcase(name, pattern) for name in known)


def _names(spec: RunSpec, registered: Mapping[str, Tool[..., Any]]) -> set[str]:
    return {*spec.tools, *registered, *(one.name for one in spec.hosted)}


def _names_inside(tools: Mapping[str, Tool[..., Any]], seen: tuple[int, ...] = ()) -> set[str]:
    """The names and paths of inner agents' tools, which rules that deny may name too."""
    names: set[str] = set()
    for name, tool in tools.items():
        inner = tool.options.inner
        if inner is not None and id(inner.tools) not in seen:
            own = {*inner.tools, *(one.name for one in inner.spec().hosted)}
            inner_names = {*own, *_names_inside(inner.tools, (*seen, id(inner.tools)))}
            names |= inner_names | {f"{name}/{one}" for one in inner_names}
    return names


def all_known(tools: Mapping[str, Tool[..., Any]]) -> bool:
    """Whether all tools are known, including those of inner agents."""
    return all(map(is_complete, with_inner(tools)))


def _check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]], seen: set[int]) -> None:
    names = _names(spec, registered)
    are_known = all_known(spec.tools) and all_known(registered)
    inner = {name: tool.options.inner for name, tool in spec.tools.items() if tool.options.inner}
    for n, rule in enumerate(spec.policy, 1):
        may_deny = "deny" in (rule.verdict, *(r.verdict for r in spec.policy[n:]))
        inner_names = _names_inside(spec.tools) if may_deny and rule.verdict != "review" else set()
        known = names | inner_names
        body = rule.pattern.partition("/")[0]
        if body != rule.pattern and _names_one(body, names - {*inner}):
            continue  # the tools that a body calls are unknown until the body runs
        if are_known and not (_names_one(rule.pattern, known) or _may_name_more(rule, spec)):
            message = _unknown(spec, rule, names, inner)
            if spec.model is None:
                end = "" if message.endswith("?") else "."
                message += (
                    f"{end} A flow has the tools of nb.flow(tools=[…]), or of nb.watch's agent"
                )
            raise UsageError(message)
    for one in inner.values():
        if id(one.tools) not in seen:
            seen.add(id(one.tools))
            _check_rules(one.spec(), one.tools, seen)


def _may_name_more(rule: Rule, spec: RunSpec) -> bool:
    """Whether a rule with a wildcard may match calls that bodies make, which are unknown until the bodies run.

    False if there is a server, because the wildcard may be a wrong name for the server's tools. A denial also
    applies to the agents that a body runs, and any body may run an agent.
    """
    has_servers = isinstance(spec.tools, Toolbox) and bool(spec.tools.sources)
    if has_servers or not _has_wildcard(rule):
        return False
    has_body = rule.verdict == "deny" and any(tool.fn for tool in spec.tools.values())
    return has_body or any(
        tool.options.body_settings
        # not a run's own flow, whose ``tools=`` are known
        or (tool.takes_context and not tool.options.flow)
        for tools in with_inner(spec.tools)
        for tool in tools.values()
        if tool.options.inner is None
    )


def _has_wildcard(rule: Rule) -> bool:
    return bool(set(rule.pattern) & set("*?["))


def _unknown(spec: RunSpec, rule: Rule, names: set[str], inner: Mapping[str, Any]) -> str:
    text = f"The rule nb.{rule.verdict}({rule.pattern!r}) matches no tool of {spec.agent!r}"
    for name, one in inner.items():
        if _names_one(rule.pattern, one.tools):
            return (
                f"{text}. It matches a tool of its inner agent {name!r}. Move the rule to {name!r}"
            )
    known = ", ".join(sorted(names)) or "none"
    if not _has_wildcard(rule):
        return f"{text}{suggest(rule.pattern, names) or f'. Its tools: {known}'}"
    has_servers = isinstance(spec.tools, Toolbox) and spec.tools.sources
    own = (
        ". Tools of a server have the server's own names, after the prefix= of nb.mcp(…)"
        if has_servers
        else ""
    )
    return f"{text}. Its tools: {known}{own}"
