"""The answered tree: every node with its answer, and its place in the document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nbagent.forms.nodes import Node
from nbagent.forms.values import ABSENT, Json

Segment = str | int
Path = tuple[Segment, ...]


@dataclass(frozen=True)
class Problem:
    """An error at a field (None: the form as a whole) and a place in the document."""

    field: str | None
    path: Path
    message: str
    why: str = ""
    """The messages of a union's shapes that the person did not pick, on one line."""
    cell: tuple[int, str] | None = None
    """In a grid: the row in the answer, and the key of the column; an empty key for the row as a whole."""


@dataclass
class Part:
    """A node with its answer: its value, and its children by their places in the document."""

    node: Node
    id: str
    path: Path
    value: Json = ABSENT
    children: dict[Segment, Part] = field(default_factory=dict)
    branch: Part | None = None
    """The answered branch of a union; the branch has the union's path."""
    raw: int | None = None
    """The index of ``branch`` in the schema's own list."""
    index: int | None = None
    """The index of ``branch`` among the branches that are not null."""
    failed: bool = False
    typed: bool = False
    """Whether the value was typed as one JSON text, so that the part has no fields below."""

    def walk(self) -> Iterator[Part]:
        """This part and all parts inside, in the order of the form."""
        todo = [self]
        while todo:
            here = todo.pop()
            yield here
            todo += reversed(here.inner)

    @property
    def inner(self) -> list[Part]:
        """The parts directly inside this one."""
        return [*([self.branch] if self.branch else []), *self.children.values()]
