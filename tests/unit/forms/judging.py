"""Tools that judge forms on published schemas: reference validator, broken documents, invented answers."""

import copy
import json
from collections.abc import Iterator

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing.jsonschema import EMPTY_REGISTRY

from nbagent.forms.nodes import below


def ids(node):
    """Every field id of a tree."""
    return set(listed(node))


def listed(node):
    """Every field id of a tree, repeated ids included."""
    return [node.id, *(each for child in below(node) for each in listed(child))]


def oracle(schema):
    """The reference validator of the schema's own draft, or None for an invalid schema."""
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError:
        return None
    return kind(schema, registry=EMPTY_REGISTRY)


def verdict(validator, document):
    """Whether the reference validator accepts the document; None if the validator fails."""
    try:
        return validator.is_valid(document)
    except BaseException as error:  # a stack overflow makes rpds panic, which is not an Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


OTHERS = (None, "text", "", -1, 1.5, 10**20, True, [], {}, [{"x": 1}])


def broken_versions(document) -> Iterator[object]:
    """Documents that differ in one place: a missing or extra part, or a value of another type."""
    for path, value in _places(document, ()):
        for other in OTHERS:
            if type(other) is not type(value):
                yield _changed(document, path, other)
        if isinstance(value, dict):
            yield _changed(document, path, {**value, "not a name of the schema": 1})
            for key in value:
                yield _changed(document, path, {k: v for k, v in value.items() if k != key})
        if isinstance(value, list) and value:
            yield _changed(document, path, value[:-1])
            yield _changed(document, path, [*value, value[-1]])


def _places(value, path):
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for step, each in inner:
        yield from _places(each, (*path, step))


def _changed(document, path, value):
    if not path:
        return value
    made = copy.copy(document)
    made[path[0]] = _changed(document[path[0]], path[1:], value)
    return made


def scalars(value):
    """All strings, numbers, booleans and nulls inside, as JSON."""
    if isinstance(value, dict):
        return set().union(*map(scalars, value.values()))
    if isinstance(value, list):
        return set().union(*map(scalars, value))
    return {json.dumps(value)}


def offered(schema):
    """Values that a schema itself offers: defaults, constants, single options."""
    found = set()
    if isinstance(schema, dict):
        for word in ("default", "const"):
            if word in schema:
                found |= scalars(schema[word])
        if isinstance(schema.get("enum"), list) and len(schema["enum"]) == 1:
            found |= scalars(schema["enum"])
        if "null" in (schema.get("type"), *_first(schema.get("type"))):
            found.add("null")
        return found.union(*map(offered, schema.values()))
    return found.union(*map(offered, schema)) if isinstance(schema, list) else found


def _first(types):
    return types if isinstance(types, list) and len(types) == 1 else ()
