"""Schemas like those of well-known collections have a control for each part."""

import json

import pytest

from nbagent.forms.form import Form
from nbagent.forms.nodes import below
from tests.unit.forms.judging import broken_versions, ids, offered, oracle, scalars, verdict
from tests.unit.forms.shapes import SHAPES


def boxes(node):
    """The fields that are JSON boxes."""
    own = [node.id] if node.kind == "json" else []
    return [*own, *(each for child in below(node) for each in boxes(child))]


@pytest.mark.variant
@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case["id"].partition(":")[0])
def test_a_well_known_shape_has_controls_and_is_exact(case):
    """Only parts of any type are JSON boxes; documents are kept and validated exactly."""
    schema, data = case["schema"], case["data"]
    form = Form(schema, value=data)
    assert sorted(boxes(form.fields)) == sorted(case["boxes"])
    untouched = form.submit(None)
    assert (untouched.ok, untouched.json_text) == (True, json.dumps(data)), untouched.errors
    empty = Form(schema).submit(None)
    if empty.json_text is not None:
        assert scalars(empty.document) <= offered(schema)
    validator = oracle(schema)
    for document in broken_versions(data):
        form = Form(schema, value=document)
        answer = form.submit(None)
        assert answer.ok is verdict(validator, document), (document, answer.errors)
        assert {field for field, _, _ in answer.errors} <= ids(form.fields) | {None}


def test_texts_that_a_schema_names_beside_a_pattern_are_suggested():
    """As in tsconfig.json: pick a text, or write one that the pattern allows."""
    schema = {
        "type": "string",
        "anyOf": [{"enum": ["ES5", "ESNext"]}, {"pattern": "^[Ee][Ss]\\d+$"}],
    }
    form = Form(schema)
    assert [option.label for option in form.fields.options] == ["ES5", "ESNext"]
    assert form.submit({"option": 1}).value == "ESNext"
    assert form.submit({"other": "es2020"}).value == "es2020"
    assert form.submit({"other": "else"}).errors[0][0] == ""
