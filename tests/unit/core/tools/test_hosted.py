"""Hosted tools and rules: which may be offered to a model, by the rules of an agent and of those around it."""

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
def test_what_is_not_plainly_allowed_is_not_offered(rules: Any, left: list[str]) -> None:
    """Fail closed: what a rule would have to ask about is left out, should it ever come this far."""
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
def test_c176_what_an_outer_rule_may_deny_of_a_hosted_tool_it_denies(
    outer: Any, left: list[str]
) -> None:
    """By its name or its path; what those rules would ask about is the inner agent's to say, as of any tool."""
    assert names(above=((outer, "inner"),)) == left


@pytest.mark.parametrize("kind", [None, "", 3])
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    """Where it is made."""
    with pytest.raises(UsageError, match="such as 'web_search'"):
        nb.hosted(kind)


def test_a_function_that_takes_only_functions_says_so() -> None:
    """A hosted tool where a function is wanted is told where it belongs."""
    agent = nb.Agent(nb.ScriptedModel([]))
    with pytest.raises(nb.errors.ToolError, match="hosted"):
        agent.add(SEARCH)


@pytest.mark.parametrize("given", ["web_search", {"type": "web_search"}])
def test_what_other_libraries_write_is_told_in_our_words(given: Any) -> None:
    """A name or a dict in ``tools=``: the error says what to write."""
    with pytest.raises(nb.errors.ToolError, match=r"nb\.hosted\('web_search'\)"):
        nb.Agent(nb.ScriptedModel([]), tools=[given])
