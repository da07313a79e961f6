"""A target and a document to a tree of nodes that is small enough to be sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .build import MAX_FIELDS, Builder
from .check import Checker
from .decode import Opens
from .masks import masked, without_masks
from .nodes import Node
from .source import Source, source_of
from .spec import spec
from .values import ABSENT, Json, as_document, dumps

MAX_SPEC = 256 * 1024
"""Characters of a spec; a larger form is built with fewer fields and more JSON boxes."""


class Tree(Opens, Protocol):
    """Makes the nodes of a form for a document."""

    def root(self, value: Json, *, read_only: bool) -> Node:
        """The whole tree, prefilled unless ``value`` is ``ABSENT``."""
        ...


@dataclass(frozen=True)
class Made:
    """What a form works with: its nodes and how to make them anew, the validator, the prefill."""

    tree: Tree
    root: Node
    checker: Checker
    document: Json
    outside: bool = False
    """Whether it is a bare JSON Schema, which may come from anywhere."""


def made_of(target: Any, value: Any, editable: bool | Iterable[str]) -> Made:  # noqa: FBT001 - as Form
    """The parts of a form for a target; never raises."""
    source = source_of(target)
    document = ABSENT if value is ABSENT else as_document(value)
    named = None if isinstance(editable, bool) else frozenset(editable)
    read_only = editable is False
    tree, root = _grown(source, named, document, read_only=read_only)
    if masked(document):
        document = without_masks(root)
        tree, root = _grown(source, named, document, read_only=read_only)
    return Made(tree, root, source.checker, document, isinstance(target, dict | bool))


def _grown(
    source: Source, editable: frozenset[str] | None, document: Json, *, read_only: bool
) -> tuple[Tree, Node]:
    """The tree with as many fields as a spec has room for."""
    for limit in (MAX_FIELDS, 100, 20):
        tree = _builder(source, editable, limit)
        root = tree.root(document, read_only=read_only)
        if len(dumps(spec(root))) <= MAX_SPEC:
            return tree, root
    tree = _builder(source, editable, 0)
    return tree, tree.root(document, read_only=read_only)


def _builder(source: Source, editable: frozenset[str] | None, limit: int) -> Builder:
    return Builder(
        source.schema, sends_defaults=source.sends_defaults, editable=editable, max_fields=limit
    )
