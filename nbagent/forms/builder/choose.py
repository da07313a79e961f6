"""A question that is one list of options: the form of ``Choose`` and of similar questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nbagent.forms.answer.check import AnyChecker, Checker
from nbagent.forms.nodes import Choice, Leaf, Node, Rows
from nbagent.forms.schema.shape import SchemaOption, label_of
from nbagent.forms.spec import initial
from nbagent.forms.texts import text_for
from nbagent.forms.values import ABSENT, Json, as_document, same

from .builder import Builder, FormSetup
from .source import source_of

_TYPED = ("text", "int", "num", "decimal", "duration")


def choice_setup(
    options: Sequence[tuple[Any, str | None, str | None]],
    *,
    multiple: bool,
    allow_other: bool,
    selected: Iterable[Any],
    output: Any,
) -> FormSetup:
    """The setup of a form of options; the chosen value must fit ``output``."""
    source = source_of(output) if output is not None else None
    shape: Node | None = None
    if source is not None:
        shape = Builder(source).root(ABSENT, read_only=False)
    node = Choice(
        id="",
        key="",
        kind="multi" if multiple else "choice",
        label="",
        options=tuple(_option(each) for each in options),
        other=_write_in(shape) if allow_other else None,
        limits=dict(shape.limits) if shape is not None and multiple else {},
    )
    known = [  # a value that is not an option is left out unless it can be written in
        each
        for each in map(as_document, selected)
        if any(same(each, option.value) for option in node.options)
        or (node.other is not None and isinstance(each, str))
    ]
    document: Json = ABSENT
    if known:
        document = known if multiple else known[0]
    checker: Checker = source.checker if source is not None else AnyChecker()
    return FormSetup(lambda closed: closed, _prefilled(node, document), checker)


def _prefilled(node: Choice, value: Json) -> Choice:
    """The options, with an answer chosen unless it is ``ABSENT``."""
    node = replace(node, value=value, prefilled=value is not ABSENT, nullable=value is None)
    if value is ABSENT or value is None or initial(node) is not None:
        return node
    unknown_option = SchemaOption(value, label_of(value), text_for("not_an_option"))
    return replace(node, options=(*node.options, unknown_option))


def _option(given: tuple[Any, str | None, str | None]) -> SchemaOption:
    value = as_document(given[0])
    return SchemaOption(
        None if value is ABSENT else value, given[1] or label_of(value), given[2] or ""
    )


def _write_in(shape: Node | None) -> Leaf:
    """The field for a typed value: of the output's own kind if a person types such values as one text."""
    inner = shape.item if isinstance(shape, Rows) else shape
    if isinstance(inner, Leaf) and inner.kind in _TYPED:
        return replace(inner, id="/*", key="", value=ABSENT, default=ABSENT)
    return Leaf(id="/*", key="", kind="text", label="")
