"""jsonschema's errors as complaints with a place and a sentence that repeats no input.

Loads ``jsonschema``; import it where a bare schema is validated and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry

from .cost import refuse_if_costly
from .parts import Part
from .place import Complaint, at_path
from .repair import repaired
from .texts import say
from .values import Json, shown
from .vocabulary import Validator


def validator_for(schema: Json) -> Any:
    """A validator that knows this document only: no reference is loaded from anywhere.

    Raises:
        TooCostly: checking would not end in reasonable time.
    """
    refuse_if_costly(schema)
    registry: Registry[Any] = Registry()
    return Validator(repaired(schema), registry=registry)


def complaints_of(validator: Any, document: Json, part: Part) -> list[Complaint]:
    """Every error of a document, each at the deepest place it can be blamed on."""
    return [
        complaint
        for error in validator.iter_errors(document)
        for complaint in _complaints(error, part)
    ]


def _complaints(error: ValidationError, part: Part) -> Iterator[Complaint]:
    path = tuple(error.absolute_path)
    if error.validator in ("anyOf", "oneOf") and error.context:
        yield from _of_branches(error, part)
    elif error.validator in ("required", "dependentRequired"):
        yield from (Complaint((*path, name), say("answer")) for name in _missing(error))
    elif error.validator == "additionalProperties":
        yield Complaint(path, say("extra", name=path[-1]))
    else:
        yield Complaint(path, _sentence(error))


def _missing(error: ValidationError) -> list[str]:
    """The names that an object lacks."""
    document: Json = error.instance
    rule: Json = error.validator_value
    if error.validator == "required":
        return [name for name in rule if name not in document]
    return [
        name
        for source, names in rule.items()
        if source in document
        for name in names
        if name not in document
    ]


def _of_branches(error: ValidationError, part: Part) -> Iterator[Complaint]:
    """Of a union: the errors of the branch that was answered, else of the one that nearly fits."""
    here = at_path(part, list(error.absolute_path))
    raw = here.raw if here is not None else None
    mine = [each for each in error.context or () if raw is not None and each.schema_path[0] == raw]
    if mine:
        for each in mine:
            yield from _complaints(each, part)
        return
    nearest = best_match([error])
    if nearest is None or nearest is error:
        yield Complaint(tuple(error.absolute_path), _sentence(error))
    else:
        yield from _complaints(nearest, part)


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_SENTENCES = {
    "const": "Should be {limit}.",
    "enum": "Should be one of {limit}.",
    "minLength": "Should have at least {limit} characters.",
    "maxLength": "Should have at most {limit} characters.",
    "pattern": "Should match {limit}.",
    "format": "Should be a valid {limit}.",
    "minimum": "Should be at least {limit}.",
    "maximum": "Should be at most {limit}.",
    "exclusiveMinimum": "Should be more than {limit}.",
    "exclusiveMaximum": "Should be less than {limit}.",
    "multipleOf": "Should be a multiple of {limit}.",
    "minItems": "Should have at least {limit} items.",
    "maxItems": "Should have at most {limit} items.",
    "uniqueItems": "Should have no item twice.",
    "minProperties": "Should have at least {limit} names.",
    "maxProperties": "Should have at most {limit} names.",
    "oneOf": "Should fit exactly one of the possible shapes.",
    "anyOf": "Should fit one of the possible shapes.",
    "contains": "Should have an item that fits.",
    "not": "Should not be this.",
    "additionalProperties": "Has names that are not expected here.",
    "unevaluatedProperties": "Has names that are not expected here.",
    "unevaluatedItems": "Has items that are not expected here.",
    "propertyNames": "Has a name that is not allowed here.",
}


def _sentence(error: ValidationError) -> str:
    """What is wrong, by the schema's keyword and limit; the input is never repeated."""
    word, limit = str(error.validator), cast("Json", error.validator_value)
    if word == "type":
        names = limit if isinstance(limit, list) else [limit]
        return f"Should be {' or '.join(_TYPES.get(name, str(name)) for name in names)}."
    listed = ", ".join(map(shown, limit[:12])) if isinstance(limit, list) else shown(limit)
    template = _SENTENCES.get(word, "Is not expected here.")
    return template.format(limit=listed if len(listed) < 300 else listed[:299] + "…")
