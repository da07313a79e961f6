"""Hosted tools: tools that a model's provider runs by itself, if rules and the model allow it.

Hosted tools do not run in this process, so no person can be asked first. If a rule would ask about a hosted
tool, an error is raised before the run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.base.model import Hosted, Model

from .policy import Rule, matches


def hosted(kind: str, /, **options: Any) -> Hosted:
    """A tool that the model's provider runs by itself, for ``nb.Agent(tools=[…])``.

    The tool runs at the provider, during the model's response. No approval is possible, and no middleware
    applies. ``nb.deny`` with the tool's name leaves the tool out.

    Args:
        kind: the provider's name of the tool, such as ``"web_search"``, ``"code_interpreter"``,
            ``"file_search"``, ``"image_generation"`` or ``"mcp"``.
        options: options of the provider, such as ``search_context_size="low"``.

    Raises:
        UsageError: ``kind`` is not a non-empty string.
    """
    given: Any = kind
    if not isinstance(given, str) or not given:
        raise UsageError(
            f"nb.hosted takes the provider's name of a tool, such as 'web_search', got {kind!r:.80}"
        )
    return Hosted(kind, dict(options), str(options.get("server_label") or kind))


def check_hosted(model: Model | None, tools: Iterable[Hosted], rules: Sequence[Rule]) -> None:
    """Raise if the model does not support a hosted tool, or a rule would ask about a hosted tool.

    Args:
        model: the model that would use the tools.
        tools: the hosted tools of an agent.
        rules: the rules of the agent's policy.

    Raises:
        UsageError: a hosted tool cannot be used; the message names the tool, and says what to do.
        ModelConfigError: the model's provider has hosted tools, but not this one.
    """
    for tool in tools:
        check = getattr(model, "check_hosted", None)
        if check is None:
            raise UsageError(
                f"{tool.name!r} is a hosted tool, which the model {getattr(model, 'name', model)!r} does not support. Use "
                "nb.OpenAIModel(name, api='responses'). With other models, write a function of your own"
            )
        check(tool)
        rule = _first(rules, tool.name)
        if rule is not None and (rule.when is not None or rule.verdict == "review"):
            asks = "asks a person" if rule.verdict == "review" else "has a condition on its input"
            raise UsageError(
                f"The rule nb.{rule.verdict}({rule.pattern!r}) {asks}, but {tool.name!r} is a hosted tool. It runs at the "
                f"model's provider, so nobody can approve it or see its input first. Put nb.allow({tool.name!r}) before "
                "that rule, or leave the tool out"
            )


def allowed(
    tools: Sequence[Hosted],
    rules: Sequence[Rule],
    above: Sequence[tuple[Sequence[Rule], str]],
) -> tuple[Hosted, ...]:
    """The hosted tools that a request may name: no rule denies them, or would ask about them.

    Args:
        tools: the agent's hosted tools.
        rules: the rules of the agent's policy.
        above: the rules of each outer agent, and the path from that agent to this one. Such rules can only deny.
    """
    return tuple(
        tool
        for tool in tools
        if _allows(rules, tool.name)
        and not any(_denies(outer, (tool.name, f"{path}/{tool.name}")) for outer, path in above)
    )


def _first(rules: Sequence[Rule], name: str) -> Rule | None:
    return next((rule for rule in rules if matches(rule, (name,))), None)


def _allows(rules: Sequence[Rule], name: str) -> bool:
    rule = _first(rules, name)
    return rule is None or (rule.verdict == "allow" and rule.when is None)


def _denies(rules: Sequence[Rule], names: Sequence[str]) -> bool:
    """Whether an outer agent's rules deny a tool. A denial may have a condition; other rules with one are skipped."""
    for rule in rules:
        if not matches(rule, names) or rule.verdict == "review":
            continue
        if rule.verdict == "deny":
            return True
        if rule.when is None:
            return False
    return False
