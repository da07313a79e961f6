"""The wire: kernel and page check the same examples; the page's test is frontend/reduce.test.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from nbagent.notebook import wire
from nbagent.notebook.render import plain, shorthand
from tests.unit.notebook.page import Page

FIXTURE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "wire.json").read_text(encoding="utf-8")
)
ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "from_kernel": TypeAdapter(wire.FromKernel),
    "from_front_end": TypeAdapter(wire.FromFrontEnd),
}
MESSAGES = [(end, name) for end in ADAPTERS for name in FIXTURE[end]]


@pytest.mark.parametrize(("end", "name"), MESSAGES)
def test_every_example_is_unchanged_after_a_round_trip(end: str, name: str) -> None:
    """The page is tested with exactly what the kernel sends: no field more, less or renamed."""
    message = ADAPTERS[end].validate_python(FIXTURE[end][name])
    assert message.model_dump(mode="json") == FIXTURE[end][name]


@pytest.mark.parametrize(("end", "name"), MESSAGES)
def test_an_unknown_field_is_refused(end: str, name: str) -> None:
    """A field that was added at only one end fails."""
    with pytest.raises(ValidationError):
        ADAPTERS[end].validate_python({**FIXTURE[end][name], "surprise": 1})


def test_the_view_after_the_patch_is_a_view() -> None:
    """The state that both ends agree on after the example patch fits the types."""
    expected = FIXTURE["after_patch"]
    assert wire.View.model_validate(expected).model_dump(mode="json") == expected


def _tags(union: Any, tag: str) -> set[str]:
    members = get_args(get_args(union)[0])
    return {member.model_fields[tag].default for member in members}


def test_the_examples_cover_every_type() -> None:
    """A message, item or operation without an example would be checked at neither end."""
    snapshot, patch = (FIXTURE["from_kernel"][name] for name in ("snapshot", "patch"))
    assert set(FIXTURE["from_kernel"]) == _tags(wire.FromKernel, "type")
    assert set(FIXTURE["from_front_end"]) == _tags(wire.FromFrontEnd, "type")
    assert {item["type"] for item in snapshot["view"]["items"]} == _tags(wire.Item, "type")
    assert {op["op"] for op in patch["ops"]} == _tags(wire.Op, "op")


def test_the_text_in_the_examples_is_what_the_kernel_reads_in_their_html() -> None:
    """A page extracts the same plain text from its HTML (frontend/saved.test.js)."""
    for case in FIXTURE["texts_of_html"]:
        assert plain.text_of(case["html"]) == case["text"]


def test_the_shorthand_in_the_examples_is_what_the_kernel_writes() -> None:
    """Both ends use the same signs, and continue an open text at the same place."""
    examples = FIXTURE["shorthand"]
    assert tuple(examples["tags"]) == shorthand.TAGS
    for case in examples["cases"]:
        page = Page()
        page.items = [wire.TextItem(key="t", tail=case["tail"], raw=case["raw"])]
        page.apply([wire.Block.model_validate(case["op"])])
        assert page.items == [
            wire.TextItem(key="t", blocks=case["blocks"], tail=case["then"], raw=case["op"]["raw"])
        ]
