"""The tree of field nodes: the content of a form, as plain frozen data.

A node has its prefill (``value``). ``spec.py`` writes the part of a node that the front end draws; the node
itself stays in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from nbagent.forms.schema.shape import SchemaOption
from nbagent.forms.values import ABSENT, Json, list_or_empty

Draft = Any
"""A person's input for a field, as the forms contract describes it; null means untouched."""
MAX_LEVELS = 40
"""Levels of drafts that are read or stored; a shape that contains itself has no last level."""
Kind = Literal[
    "object", "bool", "choice", "multi", "text", "int", "num", "decimal", "duration", "const", "list",
    "table", "grid", "map", "tuple", "union", "lazy", "code", "file", "json", "widget",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Node:
    """The common part of all fields.

    ``value`` is the document's value, which an untouched field returns unchanged. ``default`` is the schema's
    default. With ``sends_default``, an untouched field answers with the default; otherwise it is left out.
    """

    id: str
    key: str
    kind: Kind
    label: str
    help: str = ""
    required: bool = True
    nullable: bool = False
    has_default: bool = False
    default_text: str = ""
    read_only: bool = False
    secret: bool = False
    deprecated: bool = False
    limits: Mapping[str, Json] = field(default_factory=dict)
    hint: Mapping[str, Json] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    value: Json = ABSENT
    default: Json = ABSENT
    sends_default: bool = False
    prefilled: bool = False

    @property
    def shows(self) -> Json:
        """The value that the field shows before it is touched: its value, else its default."""
        return self.default if self.value is ABSENT else self.value


@dataclass(frozen=True, kw_only=True)
class Leaf(Node):
    """One control whose state is a text, a truth value or a file."""

    format: str = ""
    multiline: bool = False


@dataclass(frozen=True, kw_only=True)
class Const(Node):
    """A node with nothing to ask: the only possible value, shown as text.

    ``always`` is true for the tag of a union, which is sent although it may be optional.
    """

    const: Json = None
    always: bool = False


@dataclass(frozen=True, kw_only=True)
class Choice(Node):
    """One (``choice``) or several (``multi``) of the options; with ``other``, a person can also type a value."""

    options: tuple[SchemaOption, ...] = ()
    other: Node | None = None
    """The node of a typed value, or None if only the options are allowed."""


@dataclass(frozen=True, kw_only=True)
class Object(Node):
    """Named fields; ``more`` is the field for further names, if the schema explicitly allows them."""

    fields: tuple[Node, ...] = ()
    more: Map | None = None


@dataclass(frozen=True, kw_only=True)
class Rows(Node):
    """A list or table: the template for a new row, and the prefilled rows."""

    item: Node
    rows: tuple[Node, ...] = ()

    def template(self, source: Json) -> Node | None:
        """The node for a row of a draft; ``source`` is the index of the prefilled row, null for a new row."""
        return self.item if source is None else _at(self.rows, source)


@dataclass(frozen=True, kw_only=True)
class Grid(Node):
    """Many rows of plain values: ``item`` is the row to add, and its fields are the columns.

    The rows have no nodes: they are the value that the node shows. ``cells`` is what a page draws of them, as JSON
    (see ``builder/grid.py``).
    """

    item: Object
    cells: str = "[]"

    @property
    def rows(self) -> list[dict[str, Json]]:
        """The prefilled rows."""
        return list_or_empty(self.shows)


@dataclass(frozen=True, kw_only=True)
class Map(Node):
    """Rows of a name and a value."""

    item: Node
    entries: Mapping[str, Node] = field(default_factory=dict)
    key_options: tuple[str, ...] = ()

    def template(self, source: Json) -> Node | None:
        """The node for an entry of a draft; ``source`` is the entry's prefilled name, null for a new entry."""
        if source is None:
            return self.item
        return self.entries.get(source) if isinstance(source, str) else None


@dataclass(frozen=True, kw_only=True)
class Parts(Node):
    """A tuple: fixed parts, of which the first ``least`` are required."""

    parts: tuple[Node, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Branch:
    """One shape of a union; ``raw`` is its index in the schema's own list, nulls included."""

    label: str
    node: Node
    raw: int


@dataclass(frozen=True, kw_only=True)
class Union(Node):
    """One of several shapes; ``branch`` is the index of the prefill's shape."""

    branches: tuple[Branch, ...] = ()
    branch: int | None = None
    exclusive: bool = False
    """Whether a tag identifies the branches, so that a validator reports errors of only one branch."""

    def branch_at(self, index: Json) -> Branch | None:
        """The branch that a draft names by its index, or None if there is none."""
        return _at(self.branches, index)


@dataclass(frozen=True, kw_only=True)
class Lazy(Node):
    """A shape that repeats an enclosing one (``of`` is that node's id) and opens on demand."""

    of: str = ""
    schema: Any = None
    may_hold_secret: bool = False


T = TypeVar("T")


def _at(items: tuple[T, ...], index: Json) -> T | None:
    """The item at an index that a page sent, or None if the index is invalid."""
    usable = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(items)
    return items[index] if usable else None


def below(node: Node) -> list[Node]:
    """The nodes directly below a node, templates included."""
    match node:
        case Object():
            return [*node.fields, *([node.more] if node.more else [])]
        case Rows():
            return [node.item, *node.rows]
        case Grid():
            return [node.item]
        case Map():
            return [node.item, *node.entries.values()]
        case Parts():
            return list(node.parts)
        case Union():
            return [each.node for each in node.branches]
        case _:
            return []
