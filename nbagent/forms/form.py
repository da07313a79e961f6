"""``Form``: a question as fields, and a person's drafts as a validated answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .answer.check import Checked, accept_any
from .answer.decode import Decoder
from .answer.parts import Part, Path, Problem
from .builder.builder import Builder, FormSetup, setup_of
from .builder.source import source_of
from .nodes import Choice, Draft, Leaf, Node, Rows
from .schema.shape import SchemaOption, label_of
from .secrets import scrub, secret_labels, secret_texts, storable_draft, without_secrets
from .spec import initial, spec
from .texts import text_for
from .values import (
    ABSENT,
    MAX_NESTING,
    Json,
    as_document,
    dumps,
    equality_key,
    has_lone_surrogates,
    is_nested_deeper,
)

_TYPED = ("text", "int", "num", "decimal", "duration")
"""Kinds of fields whose values a person types as one text."""
Error = tuple[str | None, Path, str]
"""Field id (None: the form as a whole), place in the document, message."""


@dataclass(frozen=True)
class Submission:
    """The result of a person's drafts.

    ``json_text`` is the answered document, even if the validator rejected it; None if a draft could not
    be read. ``value`` has the type of the form's target; for a JSON Schema, ``value`` is the document.
    """

    ok: bool
    json_text: str | None = None
    value: Any = None
    errors: list[Error] = field(default_factory=list)
    why: dict[int, str] = field(default_factory=dict)
    """The messages of a union's shapes that the person did not pick, by index in ``errors``."""
    cells: dict[int, tuple[int, str]] = field(default_factory=dict)
    """The row and the key of each error in a cell of a grid, by index in ``errors``; the field is the grid."""

    @property
    def document(self) -> Json:
        """The answered document; None if there is none."""
        return None if self.json_text is None else json.loads(self.json_text)


class Form:
    """A form for a pydantic type, a function's parameters, or a JSON Schema.

    ``target`` is a pydantic type of any root kind, a ``TypeAdapter``, a function (its parameters; the function
    is never called), or a JSON Schema (a dict or bool). ``value`` is a JSON document that prefills the form.
    The document need not fit; its untouched parts are returned unchanged. ``editable`` is True, False, or
    the names of the top-level fields that may be changed. Creating a form never raises an error.
    """

    def __init__(
        self,
        target: Any,
        *,
        value: Any = ABSENT,
        editable: bool | Iterable[str] = True,
    ) -> None:
        setup = target if isinstance(target, FormSetup) else setup_of(target, value, editable)
        self.fields: Node = setup.root
        self._setup = setup

    @classmethod
    def choose(
        cls,
        options: Sequence[tuple[Any, str | None, str | None]],
        *,
        multiple: bool = False,
        allow_other: bool = False,
        selected: Iterable[Any] = (),
        output: Any = None,
    ) -> Form:
        """A form whose root is one choice among ``options``, each a value, a label and a help text.

        The answer is the value of the chosen option; with ``multiple``, a list of values. With ``allow_other``,
        a person can also type a value. The answer must also fit ``output`` (a type, TypeAdapter or JSON Schema).
        """
        source = None if output is None else source_of(output)
        shape = None if source is None else Builder(source).root(ABSENT, read_only=False)
        node = Choice(
            id="",
            key="",
            kind="multi" if multiple else "choice",
            label="",
            options=tuple(_option(each) for each in options),
            other=_write_in(shape) if allow_other else None,
            limits=dict(shape.limits) if shape is not None and multiple else {},
        )
        keys = {equality_key(option.value) for option in node.options}
        known = [  # a value that is not an option is left out unless it can be written in
            each
            for each in map(as_document, selected)
            if equality_key(each) in keys or (node.other is not None and isinstance(each, str))
        ]
        document: Json = ABSENT
        if known:
            document = known if multiple else known[0]
        checker = accept_any if source is None else source.checker
        return cls(FormSetup(lambda closed: closed, _prefilled(node, document), checker))

    @property
    def warning(self) -> str:
        """A warning for the person if a JSON Schema, which may be from anybody, asks for secrets; else empty."""
        labels = secret_labels(self.fields) if self._setup.foreign else ()
        return text_for("asks_secret", names=", ".join(labels)) if labels else ""

    def spec(self) -> dict[str, Json]:
        """The spec for the front end: strict JSON, without secrets."""
        return {"root": spec(self.fields), **({"grid": True} if self._setup.has_grid else {})}

    def submit(self, drafts: Draft) -> Submission:
        """Read and validate drafts (None: untouched); any JSON is accepted, and the problems are in ``errors``."""
        decoder = Decoder(self._setup.expand)
        part = decoder.decode(self.fields, drafts)
        text = None if part.value is ABSENT else _json_text(part.value)
        if text is None and part.value is not ABSENT:
            decoder.problems.append(Problem(None, (), text_for("broken_text")))
        checked = Checked() if text is None else self._setup.checker(text, part.value, part)
        gaps = {each.path for each in decoder.problems}  # where a draft could not be read
        kept = [
            each
            for each in checked.problems
            if not any(each.path[:length] in gaps for length in range(len(each.path) + 1))
        ]
        problems = _in_order(part, [*decoder.problems, *kept])
        if text is not None and not problems:
            return Submission(ok=True, json_text=text, value=checked.value)
        secrets = secret_texts((each.node, each.value) for each in part.walk() if not each.inner)
        return Submission(
            ok=False,
            json_text=None if decoder.problems else text,
            errors=[(each.field, each.path, scrub(each.message, secrets)) for each in problems],
            why={i: scrub(each.why, secrets) for i, each in enumerate(problems) if each.why},
            cells={i: each.cell for i, each in enumerate(problems) if each.cell is not None},
        )

    def storable_draft(self, drafts: Draft) -> Draft:
        """The drafts to store and show again: without the text of secret fields."""
        # no page creates such drafts, and they could not be sent back
        if is_nested_deeper(drafts, MAX_NESTING):
            return None
        return storable_draft(self._setup.expand, self.fields, drafts)

    def without_secrets(self, answer: Json, provided: str) -> Json:
        """An answered document to show, with ``provided`` instead of each secret."""
        return without_secrets(self.fields, answer, provided)


def _json_text(value: Json) -> str | None:
    """The JSON text, or None for a value that JSON cannot represent (lone surrogates, NaN, Infinity)."""
    try:
        text = dumps(value)
    except (ValueError, RecursionError):
        return None
    return None if has_lone_surrogates(text) else text


def _in_order(part: Part, problems: list[Problem]) -> list[Problem]:
    """The problems in the order of the fields; problems of the form as a whole are last."""
    order = {each.id: at for at, each in enumerate(part.walk())} if problems else {}
    return sorted(
        problems, key=lambda each: len(order) if each.field is None else order.get(each.field, -1)
    )


def _prefilled(node: Choice, value: Json) -> Choice:
    """The options, with an answer chosen unless it is ``ABSENT``."""
    node = replace(node, value=value, prefilled=value is not ABSENT, nullable=value is None)
    if value is ABSENT or value is None or initial(node) is not None:
        return node
    unknown_option = SchemaOption(value, label_of(value), text_for("not_an_option"))
    return replace(node, options=(*node.options, unknown_option))


def _option(given: tuple[Any, str | None, str | None]) -> SchemaOption:
    value = as_document(given[0])
    label = given[1] if given[1] and not given[1].isspace() else label_of(value)
    return SchemaOption(None if value is ABSENT else value, label, given[2] or "")


def _write_in(shape: Node | None) -> Leaf:
    """The field for a typed value: of the output's own kind if a person types such values as one text."""
    inner = shape.item if isinstance(shape, Rows) else shape
    if isinstance(inner, Leaf) and inner.kind in _TYPED:
        return replace(inner, id="/*", key="", value=ABSENT, default=ABSENT)
    return Leaf(id="/*", key="", kind="text", label="")
