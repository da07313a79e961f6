"""The tools of an agent: its own, and those of sources such as MCP servers, which must be connected first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from nbagent.core.base.errors import ToolError

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

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[ToolSource, Mapping[str, Tool[..., Any]] | None] = {}
        """The sources with their last known tools; None before the first ``ready``."""
        self.has_sources = False
        """Whether there are sources of tools."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the tools of sources, which are requested again."""
        of_sources = [tool for known in self._known.values() for tool in (known or {}).values()]
        own = [tool for tool in self.values() if not any(tool is one for one in of_sources)]
        return toolbox, ([*own, *self._known],)

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


def toolbox(tools: Iterable[Tool[..., Any] | ToolSource]) -> Toolbox:
    """A toolbox with these tools and sources. If two tools have the same name, the last one counts."""
    made = Toolbox()
    for one in tools:
        if isinstance(one, ToolSource):
            made.add_source(one)
        else:
            made[one.name] = one
    return made


def is_complete(tools: Mapping[str, Tool[..., Any]]) -> bool:
    """Whether all tools are known."""
    return not isinstance(tools, Toolbox) or tools.is_complete
