"""How much work a schema is for a validator: small documents can unfold without end."""

from __future__ import annotations

from nbagent.forms.values import Json, children

from .refs import Refs

MAX_COST = 5_000
"""Schemas that one place of a document may be checked against."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")


class TooCostly(ValueError):
    """Checking against this schema would not end in reasonable time."""


def refuse_if_costly(schema: Json) -> None:
    """Raise TooCostly where one value would be checked against more than ``MAX_COST`` schemas."""
    known: dict[int, int] = {}
    refs, todo = Refs(schema), [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict) and _cost(item, refs, known) > MAX_COST:
            raise TooCostly("the schema unfolds to too many rules")
        todo.extend(children(item))


def _cost(schema: Json, refs: Refs, known: dict[int, int]) -> int:
    """Schemas that apply to the same value; a circle counts once, the validator notices it."""
    if not isinstance(schema, dict):
        return 1
    if id(schema) not in known:
        known[id(schema)] = 1
        parts = [part for word in _LISTS for part in children(schema.get(word))]
        parts += [schema[word] for word in _SINGLE if word in schema]
        named = schema.get("dependentSchemas")
        parts += children(named)
        ref = refs.ref_of(schema)
        if ref:
            parts.append(refs.target(ref))
        known[id(schema)] = 1 + sum(_cost(part, refs, known) for part in parts)
    return known[id(schema)]
