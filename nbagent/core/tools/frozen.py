"""The frozen copy of a run's rules, limits and tools, for agents whose models write code that could change them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from nbagent.core.base.memory import Remembered

from .spec import BodySettings, Inner, RunSpec
from .tool import Tool
from .toolbox import Toolbox, with_inner


class RunMemory(list[Remembered]):
    """A copy of the approvals that an agent remembers; new ones are also added to the ``originals``."""

    def __init__(self, original: list[Remembered]) -> None:
        super().__init__(original)
        self.originals: tuple[list[Remembered], ...] = (
            original,
            *getattr(original, "originals", ()),
        )


def frozen(spec: RunSpec) -> RunSpec:
    """The settings at the start of a run: a copy if a model of the run may write code, else the same object."""
    every = (tool for tools in with_inner(spec.tools) for tool in tools.values())
    runs_code = any(tool.options.always_needs_approval for tool in every)
    return _Copies().of_spec(spec) if runs_code else spec


class _Copies:
    """The copies for one run, in which agents may contain each other."""

    def __init__(self) -> None:
        self._boxes: dict[int, Toolbox] = {}
        self._inner: dict[int, Inner] = {}

    def of_spec(self, spec: RunSpec) -> RunSpec:
        return replace(
            spec,
            tools=self._of_tools(spec.tools),
            policy=[copy(rule) for rule in spec.policy],
            above=tuple(([copy(rule) for rule in rules], path) for rules, path in spec.above),
            remembered=RunMemory(spec.remembered),
            middleware=[*spec.middleware],
            budget=copy(spec.budget),
        )

    def _of_tools(self, tools: Mapping[str, Tool[..., Any]]) -> Toolbox:
        if id(tools) not in self._boxes:
            made = self._boxes[id(tools)] = Toolbox(tools)
            for name, tool in tools.items():
                if not made.is_of_source(tool):
                    dict.__setitem__(made, name, self._of_tool(tool))
        return self._boxes[id(tools)]

    def _of_tool(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        made, inner, own = copy(tool), tool.options.inner, tool.options.body_settings
        if inner is not None:
            made.options = tool.options._replace(inner=self._of_inner(inner))
        elif own is not None:
            settings = BodySettings([*map(copy, own.policy)], [*own.middleware], copy(own.budget))
            made.options = tool.options._replace(body_settings=settings)
        return made

    def _of_inner(self, inner: Inner) -> Inner:
        tools, key = self._of_tools(inner.tools), id(inner.tools)
        if key not in self._inner:  # else the agent is also one of its own tools
            spec = replace(self.of_spec(inner.spec()), tools=tools)
            self._inner[key] = Inner(tools, lambda: spec, spec.remembered)
        return self._inner[key]
