"""Forms for schemas that others wrote: total, identical, honest, strict."""

import copy
import json
import socket

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from nbagent.forms import Form
from nbagent.forms.spec import below


def ids(node):
    """Every field id of a tree."""
    return {node.id}.union(*(ids(each) for each in below(node)))


def oracle(schema):
    """The reference validator, or None for a schema that it cannot work with."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return None
    return Draft202012Validator(schema, registry=Registry())


def verdict(validator, document):
    """Whether the reference validator takes it; None where it gives up."""
    try:
        return validator.is_valid(document)
    except Exception:
        return None


def test_every_form_of_a_collection_is_built_without_network(collection, monkeypatch):
    """Whatever a schema holds, there is a form, its spec is strict JSON, and nothing is fetched."""

    def refuse(*_args, **_kwargs):
        pytest.fail("a form touched the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for case in collection:
        form = Form(case["schema"])
        text = json.dumps(form.spec(), allow_nan=False)
        assert len(text) < 400_000, case["id"]
        form.submit(form.untouched())
        assert len(ids(form.fields)) > 0


def test_field_ids_of_a_form_are_unique(collection):
    """Two controls never share an id, which is what errors and labels point at."""

    def listed(node):
        return [node.id, *(each for child in below(node) for each in listed(child))]

    for case in collection:
        found = listed(Form(case["schema"], **_value(case)).fields)
        assert len(found) == len(set(found)), case["id"]


def _value(case):
    return {"value": case["data"]} if "data" in case else {}


def test_an_untouched_prefill_comes_back_byte_for_byte(collection):
    """Types, keys and their order are those of the document, whether it fits the schema or not."""
    for case in collection:
        if "data" in case:
            form = Form(case["schema"], value=case["data"])
            answer = form.submit(form.untouched())
            assert answer.json_text is not None, (case["id"], answer.errors)
            assert json.dumps(json.loads(answer.json_text)) == json.dumps(case["data"]), case["id"]
            assert answer.changed == {}


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
        if schema.get("type") == "null":
            found.add("null")
        return found.union(*map(offered, schema.values()))
    return found.union(*map(offered, schema)) if isinstance(schema, list) else found


def test_a_form_that_nobody_touched_invents_no_answer(collection):
    """Every value in an untouched answer is the schema's own default or constant."""
    for case in collection:
        form = Form(case["schema"])
        answer = form.submit(form.untouched())
        if answer.json_text is not None:
            strange = scalars(json.loads(answer.json_text)) - offered(case["schema"])
            assert not strange, (case["id"], strange)


def broken_versions(document):
    """Documents that differ in one place: a key gone, a value of another type, one too many."""
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        without = copy.deepcopy(document)
        del without[key]
        yield without
        for other in (None, "text", -1, 1.5, True, [], {}, [{"x": 1}]):
            if type(other) is not type(value):
                yield {**document, key: other}
    yield {**document, "not a name of the schema": 1}


def test_a_form_refuses_exactly_what_the_validator_refuses(collection):
    """Every invalid document is refused, and each error is at a field that is there, or the summary."""
    tried = 0
    known = [(case, oracle(case["schema"])) for case in collection if "data" in case]
    for case, validator in [pair for pair in known if pair[1] is not None][:40]:
        for document in broken_versions(case["data"]):
            expected = verdict(validator, document)
            if expected is None:
                continue
            form = Form(case["schema"], value=document)
            answer = form.submit(None)
            tried += 1
            assert answer.ok is expected, (case["id"], document, answer.errors)
            assert bool(answer.errors) is not expected
            places = ids(form.fields) | {None}
            assert {field for field, _, _ in answer.errors} <= places, (case["id"], answer.errors)
    assert bool(tried) is bool(known)
