"""A cell that runs again: its new tools replace the tools that it added before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nbagent as nb
from nbagent.core.hooks import hooks
from nbagent.core.run.host import ScriptHost


class Cells(ScriptHost):
    """A notebook that says which cell runs."""

    at: tuple[str, str] | None = None

    def cell(self) -> tuple[str, str] | None:
        return self.at


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cells]:
    """The notebook."""
    host = Cells()
    monkeypatch.setattr(hooks, "find_host", lambda: host)
    return host


def define(agent: nb.Agent, *names: str, module: str = "__main__") -> None:
    """Define these tools, as the cell does."""
    for name in names:

        def fn() -> None:
            """Do it."""

        fn.__name__, fn.__module__ = name, module
        agent.add(fn)


def test_c230_a_renamed_tool_is_removed_under_its_old_name(cells):
    """Tools of other cells and libraries stay; one cell may define several."""
    agent = nb.Agent(nb.ScriptedModel([]))
    cells.at = ("other", "1")
    define(agent, "kept")
    cells.at = ("a", "2")
    define(agent, "lookup", "price")
    define(agent, "from_library", module="library")
    assert list(agent.tools) == ["kept", "lookup", "price", "from_library"]
    cells.at = ("a", "3")
    define(agent, "find", "price")
    assert set(agent.tools) == {"kept", "from_library", "find", "price"}
    cells.at = ("a", "4")
    define(agent, "price")
    assert set(agent.tools) == {"kept", "from_library", "price"}


def test_c230_a_tool_that_another_cell_redefined_stays(cells):
    """A tool belongs to the cell that defined it last."""
    agent = nb.Agent(nb.ScriptedModel([]))
    for cell, execution, name in [("a", "1", "x"), ("b", "2", "x"), ("a", "3", "y")]:
        cells.at = (cell, execution)
        define(agent, name)
    assert set(agent.tools) == {"x", "y"}


def test_c230_without_a_known_cell_no_tool_is_removed(cells):
    """In a front end that reports no cell, and in a script."""
    agent = nb.Agent(nb.ScriptedModel([]))
    define(agent, "lookup")
    define(agent, "find")
    assert set(agent.tools) == {"lookup", "find"}
