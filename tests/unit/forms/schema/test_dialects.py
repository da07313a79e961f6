"""References and drafts: each schema is interpreted by its own draft."""

import json

import pytest

from nbagent.forms.form import Form

DRAFT = "http://json-schema.org/draft-0{}/schema#".format
TREE = {
    "$id": "https://example.org/tree",
    "type": "object",
    "properties": {"leaf": {"$ref": "parts/leaf#/$defs/name"}, "next": {"$dynamicRef": "#node"}},
    "$dynamicAnchor": "node",
    "$defs": {
        "part": {"$id": "parts/leaf", "$defs": {"name": {"$ref": "#/$defs/text"}, "text": {"type": "string"}}},
        "text": {"type": "integer"},
    },
}  # fmt: skip

VERDICTS = [
    # schema, a valid document, an invalid document, the field of the error
    ({"$schema": DRAFT(4), "minimum": 3, "exclusiveMinimum": True}, 4, 3, ""),
    ({"minimum": 3, "exclusiveMinimum": True}, 4, 3, ""),
    ({"exclusiveMaximum": 3}, 2, 3, ""),
    ({"minLength": 2.0}, "ab", "a", ""),
    ({"items": [{"type": "integer"}, {"$ref": "#/items/0"}]}, [1, 2], [1, "b"], "/1"),
    ({"items": [{}], "additionalItems": {"type": "null"}}, [1, None], [1, 2], ""),
    ({"$schema": DRAFT(7), "dependencies": {"a": ["b"]}}, {"b": 1}, {"a": 1}, ""),
    ({"$schema": DRAFT(7), "$ref": "#/definitions/a", "maxLength": 1, "definitions": {"a": {"type": "string"}}}, "ab", 1, ""),
    ({"$schema": DRAFT(4), "id": "http://x/", "$ref": "a", "definitions": {"a": {"id": "a", "type": "null"}}}, None, 1, ""),
    ({"$schema": DRAFT(3), "properties": {"a": {"type": "any", "required": True}}}, {"a": 1}, {}, "/a"),
    ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}, "type": "array"}, [[]], [1], "/0"),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"minLength": 1}, {"minLength": -1}, ""),
    ({"$ref": "#/$defs/a%25~1b", "$defs": {"a%/b": {"type": "null"}}}, None, 1, ""),
    (TREE, {"leaf": "a", "next": {"leaf": "b"}}, {"leaf": 1}, "/leaf"),
    (TREE, {"next": {"leaf": "a"}}, {"next": {"leaf": 1}}, "/next/leaf"),
    ({"properties": {"a": False, "b": {}}}, {"b": 1}, {"a": 1}, "/a"),
    ({"oneOf": [False, False, {"type": "null"}]}, None, [], ""),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, {"ab": 1}, {"abc": 1}, "/0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "good", "bad", "field"), VERDICTS, ids=lambda value: str(value)[:40]
)
def test_a_document_is_accepted_where_the_draft_of_the_schema_accepts_it(schema, good, bad, field):
    """An invalid document is refused at the field with the error."""
    assert Form(schema, value=good).submit(None).ok
    refused = Form(schema, value=bad).submit(None)
    assert [each[0] for each in refused.errors] == [field], refused.errors
    assert json.loads(refused.json_text) == bad


def test_a_reference_is_resolved_from_its_own_position():
    """Inside a part with its own ``$id``, ``#/$defs/text`` differs from the root's."""
    leaf, again = Form(TREE).fields.fields
    assert (leaf.kind, again.fields[1].kind) == ("text", "lazy")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}}},
        {"$ref": "https://127.0.0.1:9/never.json"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://[broken"},
        {"$id": "http://[broken", "type": "object"},
        {"$schema": 5, "$id": 6, "$anchor": [], "$ref": {}, "required": True, "minLength": "5"},
    ],
    ids=str,
)  # fmt: skip
def test_an_unresolvable_or_circular_reference_asks_for_nothing(schema):
    """Otherwise nobody could ever submit the form."""
    assert Form(schema, value={"a": 1}).submit(None).ok


def test_a_schema_that_names_its_draft_is_still_safe():
    """A subschema that names a draft makes jsonschema switch to its own validator."""
    draft = DRAFT(7)
    text = "a" * 200 + "!"
    for schema in (
        {"$schema": draft, "pattern": "^(a+)+$"},
        {"allOf": [{"$schema": draft, "pattern": "^(a+)+$"}]},
    ):
        assert not Form(schema, value=text).submit(None).ok
    circle = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicRef": "#"}
    assert Form(circle, value=text).submit(None).ok
    assert not Form({"$schema": DRAFT(4), "items": False}, value=[1]).submit(None).ok
