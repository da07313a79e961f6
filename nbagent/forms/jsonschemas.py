"""jsonschema's errors as complaints with a place and a sentence that repeats no input.

Loads ``jsonschema``; import it where a bare schema is validated and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from jsonschema.exceptions import ValidationError, best_match
from referencing.jsonschema import EMPTY_REGISTRY

from .cost import refuse_if_costly
from .parts import Part
from .place import Complaint, at_path, others
from .repair import repaired
from .texts import say, say_counted
from .values import Json, shown
from .vocabulary import validator_class


def validator_for(schema: Json) -> Any:
    """A validator that knows this document only: no reference is loaded from anywhere.

    Raises:
        TooCostly: checking would not end in reasonable time.
    """
    refuse_if_costly(schema)
    return validator_class(schema)(repaired(schema), registry=EMPTY_REGISTRY)


def complaints_of(validator: Any, document: Json, part: Part) -> list[Complaint]:
    """Every error of a document, each at the deepest place it can be blamed on."""
    return [
        complaint
        for error in validator.iter_errors(document)
        for complaint in _complaints(error, part)
    ]


def _complaints(error: ValidationError, part: Part) -> Iterator[Complaint]:
    path = tuple(error.absolute_path)
    missing = _missing(error)
    if error.validator in ("anyOf", "oneOf") and error.context:
        yield from _of_branches(error, part)
    elif missing:
        yield from (Complaint((*path, *name), say("answer")) for name in missing)
    elif error.validator == "additionalProperties":
        yield Complaint(path, say("extra", name=path[-1]))
    elif "propertyNames" in list(error.absolute_schema_path)[:-1] and isinstance(
        error.instance, str
    ):
        yield Complaint((*path, error.instance), say("wrong_name", problem=_sentence(error)))
    else:
        yield Complaint(path, _sentence(error))


def _missing(error: ValidationError) -> list[tuple[str, ...]]:
    """Where an object lacks something, from the place that the error names."""
    document: Json = error.instance
    rule: Json = error.validator_value
    if error.validator == "required":
        return [(name,) for name in rule if name not in document] if rule is not True else [()]
    if error.validator not in ("dependentRequired", "dependencies"):
        return []
    return [
        (name,)
        for source, names in rule.items()
        if source in document and isinstance(names, list)
        for name in names
        if name not in document
    ]


def _of_branches(error: ValidationError, part: Part) -> Iterator[Complaint]:
    """Of a union: the errors of the branch that was answered, else of the one that nearly fits."""
    here = at_path(part, list(error.absolute_path))
    raw = here.raw if here is not None else None
    mine = [each for each in error.context or () if raw is not None and _index(each) == raw]
    if mine:
        found = [complaint for each in mine for complaint in _complaints(each, part)]
        yield from (replace(each, why=each.why or _others(error, here)) for each in found[:1])
        yield from found[1:]
        return
    nearest = best_match([error])
    if nearest is None or nearest is error:
        yield Complaint(tuple(error.absolute_path), _sentence(error))
    else:
        yield from _complaints(nearest, part)


def _index(error: ValidationError) -> Any:
    """Which branch of a union an error is of."""
    return next(iter(error.schema_path), None)


def _others(error: ValidationError, part: Part | None) -> str:
    """What the branches that were not picked say."""
    known = getattr(part.node, "branches", ()) if part is not None else ()
    labels = {branch.raw: branch.label for branch in known}
    said: dict[str, list[str]] = {}
    for each in error.context or ():
        index = _index(each)
        if part is not None and index != part.raw and index in labels:
            said.setdefault(labels[index], []).append(_sentence(each))
    return others(said)


_KNOWN_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_COUNTED = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_PLAIN = (
    "const", "enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "uniqueItems", "oneOf", "anyOf", "contains", "not",
)  # fmt: skip
_ALIKE = {
    "additionalProperties": "extra_names",
    "unevaluatedProperties": "extra_names",
    "additionalItems": "extra_items",
    "unevaluatedItems": "extra_items",
    "divisibleBy": "wrong_multipleOf",
}


def _sentence(error: ValidationError) -> str:
    """What is wrong, by the schema's keyword and limit; the input is never repeated."""
    word, limit = str(error.validator), cast("Json", error.validator_value)
    if word == "type":
        return say("wrong_type", types=_types(limit))
    listed = ", ".join(map(shown, limit[:12])) if isinstance(limit, list) else shown(limit)
    told = listed if len(listed) < 300 else listed[:299] + "…"
    if word in _COUNTED:
        return say_counted(f"wrong_{word}", limit, limit=told)
    known = f"wrong_{word}" if word in _PLAIN and limit != {} else "wrong"
    return say(_ALIKE.get(word, known), limit=told)


def _types(limit: Json) -> str:
    names = limit if isinstance(limit, list) else [limit]
    told = [say(f"type_{name}") if name in _KNOWN_TYPES else shown(name) for name in names]
    return say("or").join(told)
