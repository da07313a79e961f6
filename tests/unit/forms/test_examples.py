"""The examples shared with the front end's tests, answered in the kernel."""

import json
from pathlib import Path

import pytest

from nbagent.forms.form import Form

EXAMPLES = json.loads((Path(__file__).parents[2] / "fixtures" / "forms.json").read_text())


def example_form(form):
    """The form of an example."""
    options = form.get("options", {})
    if "choose" in form:
        return Form.choose([tuple(option) for option in form["choose"]], **options)
    return Form(form["schema"], **options)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_an_example_has_the_spec_that_pages_are_tested_with(example):
    """Kernel and page are tested with one file."""
    assert example_form(example["form"]).spec() == example["spec"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_an_example_has_the_answer_given_in_the_file(example):
    """Drafts in, document or errors out."""
    form = example_form(example["form"])
    for case in example["submissions"]:
        answer = form.submit(case["drafts"])
        errors = [{"field": field, "message": message} for field, _, message in answer.errors]
        document = None if answer.json_text is None else json.loads(answer.json_text)
        assert (answer.ok, document, errors) == (case["ok"], case["document"], case["errors"])
