"""Hosted tools that may be offered to a model, by the rules of its agent and of outer agents."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.tools.hosted import allowed

SEARCH = nb.hosted("web_search")
DOCS = nb.hosted("mcp", server_label="docs")


def yes(_typed: Any) -> bool:
    return True


def names(rules: Any = (), above: Any = ()) -> list[str]:
    return [tool.name for tool in allowed((SEARCH, DOCS), list(rules), above)]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([], ["web_search", "docs"]),
        ([nb.deny("docs")], ["web_search"]),
        ([nb.allow("web_*"), nb.deny()], ["web_search"]),
        ([nb.deny(), nb.allow("web_*")], []),
        ([nb.review("docs")], ["web_search"]),
        ([nb.allow("docs", when=yes)], ["web_search"]),
        ([nb.deny("docs", when=yes)], ["web_search"]),
    ],
)
def test_a_hosted_tool_that_is_not_clearly_allowed_is_not_offered(
    rules: Any, left: list[str]
) -> None:
    """Fail closed: a tool that a rule would have to ask about is left out."""
    assert names(rules) == left


@pytest.mark.parametrize(
    ("outer", "left"),
    [
        ([nb.deny("docs")], ["web_search"]),
        ([nb.deny("inner/docs")], ["web_search"]),
        ([nb.deny("inner/*")], []),
        ([nb.allow("web_search"), nb.deny("*")], ["web_search"]),
        ([nb.deny("docs", when=yes)], ["web_search"]),
        ([nb.allow("docs", when=yes), nb.deny("*")], []),
        ([nb.review("*")], ["web_search", "docs"]),
        ([nb.review("*"), nb.deny("docs")], ["web_search"]),
    ],
)
def test_c176_an_outer_rule_can_deny_a_hosted_tool(outer: Any, left: list[str]) -> None:
    """By name or path; outer review rules do not apply to inner tools, as for any tool."""
    assert names(above=((outer, "inner"),)) == left


@pytest.mark.parametrize("kind", [None, "", 3])
def test_an_invalid_kind_is_refused(kind: Any) -> None:
    """``nb.hosted`` raises."""
    with pytest.raises(UsageError, match="such as 'web_search'"):
        nb.hosted(kind)


def test_an_api_that_accepts_only_functions_says_so() -> None:
    """The error says that a hosted tool is not a function."""
    agent = nb.Agent(nb.ScriptedModel([]))
    with pytest.raises(nb.errors.ToolError, match="hosted"):
        agent.add(SEARCH)


@pytest.mark.parametrize("given", ["web_search", {"type": "web_search"}])
def test_a_tool_written_as_in_other_libraries_is_an_error_that_says_what_to_write(
    given: Any,
) -> None:
    """A name or a dict in ``tools=``."""
    with pytest.raises(nb.errors.ToolError, match=r"nb\.hosted\('web_search'\)"):
        nb.Agent(nb.ScriptedModel([]), tools=[given])
