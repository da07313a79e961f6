"""How a form is judged on schemas that others wrote: the oracle, documents gone wrong, what was invented."""

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
    """Every field id of a tree, those that stand twice twice."""
    return [node.id, *(each for child in below(node) for each in listed(child))]


def oracle(schema):
    """The reference validator of the schema's own draft, or None for a schema it cannot work with."""
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError:
        return None
    return kind(schema, registry=EMPTY_REGISTRY)


def verdict(validator, document):
    """Whether the reference validator takes it; None where it gives up."""
    try:
        return validator.is_valid(document)
    except BaseException as error:  # a full stack makes rpds panic, which is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


OTHERS = (None, "text", "", -1, 1.5, 10**20, True, [], {}, [{"x": 1}])


def broken_versions(document) -> Iterator[object]:
    """Documents that differ in one place: a key gone, a value of another type, one too many."""
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
    """Texts, numbers, truth values and nulls anywhere inside, as JSON texts."""
    if isinstance(value, dict):
        return set().union(*map(scalars, value.values()))
    if isinstance(value, list):
        return set().union(*map(scalars, value))
    return {json.dumps(value)}


def offered(schema):
    """What a schema itself gives: defaults, constants, options of which there is one."""
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
