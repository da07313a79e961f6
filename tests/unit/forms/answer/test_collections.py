"""Forms for published schemas: they lose, invent and wrongly accept nothing."""

import itertools
import json
import socket

import pytest

from nbagent.forms.form import Form
from tests.unit.forms.judging import (
    broken_versions,
    ids,
    listed,
    offered,
    oracle,
    scalars,
    verdict,
)


def test_every_form_of_a_collection_is_built_without_network(collection, monkeypatch):
    """Every schema gets a form, the form's spec is strict JSON, and nothing is fetched."""

    def refuse(*_args, **_kwargs):
        pytest.fail("a form touched the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for case in collection:
        form = Form(case["schema"])
        text = json.dumps(form.spec(), allow_nan=False)
        assert len(text) < 400_000, case["id"]
        form.submit(None)
        assert len(ids(form.fields)) > 0


def test_field_ids_of_a_form_are_unique(collection):
    """Errors and labels refer to controls by id."""
    for case in collection:
        found = listed(Form(case["schema"], **_value(case)).fields)
        assert len(found) == len(set(found)), case["id"]


def _value(case):
    return {"value": case["data"]} if "data" in case else {}


def test_an_untouched_prefill_is_returned_byte_for_byte(collection):
    """Types, keys and key order are those of the document, valid or not."""
    for case in collection:
        if "data" in case:
            form = Form(case["schema"], value=case["data"])
            answer = form.submit(None)
            assert answer.json_text is not None, (case["id"], answer.errors)
            assert json.dumps(json.loads(answer.json_text)) == json.dumps(case["data"]), case["id"]


def test_an_untouched_form_invents_no_answer(collection):
    """Every value in an untouched answer is the schema's own default or constant."""
    for case in collection:
        form = Form(case["schema"])
        answer = form.submit(None)
        if answer.json_text is not None:
            strange = scalars(json.loads(answer.json_text)) - offered(case["schema"])
            assert not strange, (case["id"], strange)


def test_a_form_refuses_exactly_what_the_validator_refuses(collection):
    """Every invalid document is refused, and each error names an existing field or the summary."""
    tried = 0
    known = [(case, oracle(case["schema"])) for case in collection if "data" in case]
    for case, validator in [pair for pair in known if pair[1] is not None][:40]:
        for document in itertools.islice(broken_versions(case["data"]), 30):
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
