"""What an agent, a flow or a tool is made of, as a table for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from nbagent.core.base.controls import escaped

from .policy import Rule, matches
from .spec import Budget
from .tool import Tool

MAX_TOOLS = 100
"""Tools that are listed."""


def table(title: str, rows: Mapping[str, Iterable[str]]) -> str:
    """A table with a row for each name that has values, one line each."""
    body = (
        f"<tr><th style='text-align:left;vertical-align:top'>{escape(name)}</th>"
        f"<td style='text-align:left'>{'<br>'.join(escape(escaped(value)) for value in values)}</td></tr>"
        for name, lines in rows.items()
        if (values := [line for line in lines if line])
    )
    name = escape(escaped(title), quote=True)
    return f"<table aria-label='{name}'><caption style='text-align:left'><b>{name}</b></caption><tbody>{''.join(body)}</tbody></table>"


def settings(
    tools: Mapping[str, Tool[..., Any]], policy: Sequence[Rule], budget: Budget
) -> dict[str, Iterable[str]]:
    """The rows that agents and flows share: tools, with those that ask, rules and budget."""
    listed = [line_of(tool, policy) for tool in list(tools.values())[:MAX_TOOLS]]
    more = [f"and {len(tools) - MAX_TOOLS} more"] if len(tools) > MAX_TOOLS else []
    limits = (f"{name}: {n:,}" for name, n in asdict(budget).items() if n is not None)
    return {"tools": [*listed, *more], "rules": map(str, policy), "budget": limits}


def line_of(tool: Tool[..., Any], policy: Sequence[Rule] = ()) -> str:
    """The name of a tool, and whether a person is asked."""
    asks = _asks(tool, policy)
    return f"{tool.name} ({asks})" if asks else tool.name


def _asks(tool: Tool[..., Any], policy: Sequence[Rule]) -> str:
    """What decides about a call: the rules that may apply, up to the first that always does, else the tool."""
    rules = [rule for rule in policy if matches(rule, [tool.name])]
    always = next((at for at, rule in enumerate(rules) if rule.when is None), len(rules))
    own: Callable[..., Any] | bool = tool.options.approval or tool.fn is None
    verdicts = {rule.verdict for rule in rules[: always + 1]}
    if always == len(rules) and own:
        verdicts.add("review")
    if "review" in verdicts:
        is_sure = len(verdicts) == 1 and (always == 0 if rules else not callable(own))
        return "asks" if is_sure else "may ask"
    return "" if "deny" not in verdicts else "denied" if always == 0 else "may be denied"
