"""The tools of an agent: its own, and those of sources such as MCP servers, which must be connected first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from nbagent.core.base.errors import ToolError
from nbagent.core.base.origin import CHANGE, PERSON, check_person, marked, only_person, process

from .tool import Tool


class ToolSource(ABC):
    """A source of tools that are unknown before it is connected."""

    name: str
    """The source's name in errors."""

    @abstractmethod
    async def ready(self) -> Mapping[str, Tool[..., Any]]:
        """The source's tools by name, connected on the running event loop.

        Until the tools change, each call returns the same object.

        Raises:
            NbagentError: the tools are not available, and were never loaded before.
        """


class Toolbox(dict[str, Tool[..., Any]]):
    """Tools by name. ``ready`` adds the tools of a source, and removes those that the source no longer has."""

    def __init__(self, of: Mapping[str, Tool[..., Any]] = MappingProxyType({})) -> None:
        super().__init__(of)
        self._original = of if isinstance(of, Toolbox) else None
        known = {} if self._original is None else self._original._known  # noqa: SLF001 - of its class
        self._known: dict[ToolSource, Mapping[str, Tool[..., Any]] | None] = {**known}
        """The sources with their last known tools; None before the first ``ready``."""
        self.has_sources = bool(known)
        """Whether there are sources of tools."""

    def __setitem__(self, name: str, tool: Tool[..., Any]) -> None:
        if process.has_run_code and self.get(name, tool) is not tool:
            check_person(*CHANGE)
        super().__setitem__(name, tool)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the tools of sources, which are requested again."""
        own = [tool for tool in self.values() if not self.is_of_source(tool)]
        return toolbox, ([*own, *self._known],)

    def is_of_source(self, tool: Tool[..., Any]) -> bool:
        """Whether the tool comes from a source."""
        return any(tool is one for known in self._known.values() for one in (known or {}).values())

    @property
    def sources(self) -> list[ToolSource]:
        """The sources of tools, besides the single tools."""
        return list(self._known)

    @property
    def is_complete(self) -> bool:
        """Whether the tools of each source are known."""
        return None not in self._known.values()

    def add_source(self, source: ToolSource) -> None:
        """Add a source. The next ``ready`` adds the source's tools."""
        self._known.setdefault(source, None)
        self.has_sources = True

    async def ready(self) -> None:
        """Update the tools of all sources.

        Raises:
            ToolError: two tools have the same name.
            NbagentError: the tools of a source are not available.
        """
        if self.has_sources and self._original is not None:
            await self._original.ready()
        for source, known in list(self._known.items()):
            tools = await source.ready()
            if tools is not known:
                self._take(source, tools)

    def _take(self, source: ToolSource, tools: Mapping[str, Tool[..., Any]]) -> None:
        before = self._known[source] or {}
        for name in tools:
            if name in self and before.get(name) is not self[name]:
                raise ToolError(
                    f"Both {source.name} and {self._owner(name)} have a tool {name!r}. Rename one of them, as in nb.mcp(…, "
                    "prefix='files_'), or leave one out with exclude="
                )
        with marked(PERSON):  # who added the source
            for name, old in before.items():
                if name not in tools and self.get(name) is old:
                    del self[name]
            self.update(tools)
        self._known[source] = tools

    def _owner(self, name: str) -> str:
        for source, tools in self._known.items():
            if tools is not None and tools.get(name) is self[name]:
                return source.name
        return "the agent itself"


only_person(Toolbox, "__delitem__", "__ior__", "clear", "pop", "popitem", "update")


def toolbox(tools: Iterable[Tool[..., Any] | ToolSource]) -> Toolbox:
    """A toolbox with these tools and sources. If two tools have the same name, the last one counts."""
    made = Toolbox()
    for one in tools:
        if isinstance(one, ToolSource):
            made.add_source(one)
        else:
            made[one.name] = one
    return made


def with_inner(tools: Mapping[str, Tool[..., Any]]) -> Iterator[Mapping[str, Tool[..., Any]]]:
    """These tools, and those of the agents among them, directly or not. Agents may contain each other."""
    todo, seen = [tools], {id(tools)}
    while todo:
        one = todo.pop()
        yield one
        inner = [tool.options.inner.tools for tool in one.values() if tool.options.inner]
        todo += [each for each in inner if id(each) not in seen]
        seen |= set(map(id, inner))


def is_complete(tools: Mapping[str, Tool[..., Any]]) -> bool:
    """Whether all tools are known."""
    return not isinstance(tools, Toolbox) or tools.is_complete
