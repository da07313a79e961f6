"""Placeholders in braces of a prompt: those that are filled and those that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError
from pydantic import SecretStr

import nbagent as nb
from nbagent.notebook.magics import AgentMagics, _filled

CALLED: list[int] = []
NAMES: dict[str, Any] = {
    "row": {"to": "Rome", ("a", 1): "pair", -1: "last"},
    "key": "to",
    "cities": ["Rome", "Oslo", "Lima"],
    "trip": SimpleNamespace(city="Rome"),
    "price": 3.14159,
    "secret": SecretStr("hunter2"),
    "call": CALLED.append,
}
TOLD = {
    "{row['to']} {row[key]} {row['a', 1]} {row[-1]}": "Rome Rome pair last",
    "{cities[-1]} {cities[0:2]} {trip.city}": "Lima ['Rome', 'Oslo'] Rome",
    "{price:.2f} {price!s:>9} {price!r}": "3.14   3.14159 3.14159",
    "{secret} {secret!s} {secret!r}": "SecretStr('**********') ********** SecretStr('**********')",
}
REFUSED = {
    "{row[call(1)]}": "only names",
    "{row[[call(1) for _ in (1,)][0]]}": None,
    "{row[(lambda: call(1))()]}": "only names",
    "{print[call(1)]}": "NameError",
    "{id}": "NameError",
    '{price:"+str(call(1))+"}': "ValueError",
    "{row.__class__}": "only names",
    "{price!r:>999999999}": "999999999",
    "{price:.999999999f}": "999999999",
    "{row['to'}": None,
}
"""By prompt: the error's text, or None if the braces are no placeholder and stay."""


@pytest.mark.parametrize("prompt", TOLD)
def test_a_placeholder_in_braces_is_a_value_of_the_notebook(prompt):
    """Names, attributes, keys and slices are read, never called."""
    assert _filled(prompt, NAMES) == [TOLD[prompt]]


@pytest.mark.parametrize("prompt", REFUSED)
def test_nothing_in_braces_is_executed_or_unbounded(prompt):
    """A prompt may be pasted from elsewhere: placeholders are looked up, not executed."""
    said = REFUSED[prompt]
    if said is None:
        assert _filled(prompt, NAMES) == [prompt]
    else:
        with pytest.raises(UsageError, match=said):
            _filled(prompt, NAMES)
    assert CALLED == []


def test_c687_a_name_that_is_no_agent_is_answered_with_the_agents():
    """The nearest name is suggested; without one, all agents are listed, each once."""
    one, two = (nb.Agent(nb.ScriptedModel([]), name=name) for name in ("one", "two"))
    shell = SimpleNamespace(user_ns={"writer": one, "banker": two, "same": two}, configurables=[])
    magics = AgentMagics(shell)
    told = {
        "riter": "'riter' is not defined. Did you mean 'writer'?",
        "nosuch": "'nosuch' is not defined. Agents of this notebook: writer, banker",
    }
    for name, text in told.items():
        with pytest.raises(UsageError) as error:
            magics.agent(name, "Hello")
        assert str(error.value) == f"%%agent: {text}"
    shell.user_ns.clear()
    with pytest.raises(UsageError, match=r"'nosuch' is not defined$"):
        magics.agent("nosuch", "Hello")
