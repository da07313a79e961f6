"""Forms of schemas that other projects published, filled in Chromium by keyboard alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser

from nbagent.forms.form import Form
from nbagent.forms.nodes import Node, below
from tests.browser.form_page import FormPage
from tests.browser.typist import MANY, Typist
from tests.shared import published

THOROUGH = "NBAGENT_THOROUGH" in os.environ
COLLECTIONS = ("github-mcp-tools", "mcp")


def traits(node: Node, within: str = "") -> set[tuple[Any, ...]]:
    """Traits of a field and its children that decide how the front end draws them: no words, no values."""
    options = min(len(getattr(node, "options", ())), MANY + 1)
    told = (node.kind, getattr(node, "format", ""), options, bool(node.help), bool(node.examples))
    flags = (getattr(node, each.name) for each in dataclasses.fields(node))
    limits = (*sorted(node.limits), *sorted(node.hint))
    own = (within, *told, *(flag for flag in flags if isinstance(flag, bool)), *limits)
    return {own}.union(*(traits(each, node.kind) for each in below(node)))


PARTS = 5
"""The first part has each kind of field with each single trait, the others have the traits as they come together."""


@cache
def parts() -> list[list[dict[str, Any]]]:
    """Few cases whose fields have all traits, in parts; all cases if ``NBAGENT_THOROUGH`` is set."""
    cases = [case for collection in COLLECTIONS for case in published(collection)]
    if THOROUGH:
        return [cases[part::PARTS] for part in range(PARTS)]
    together = [traits(Form(case["schema"]).fields) for case in cases]
    single = [set().union(*map(single_traits, found)) for found in together]
    first = covering(single, set())
    others = covering(together, set().union(*(together[n] for n in first)))
    return [
        [cases[n] for n in part]
        for part in (first, *(others[n :: PARTS - 1] for n in range(PARTS - 1)))
    ]


def single_traits(together: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    """Each of a field's traits by itself; flags differ by their place alone."""
    within, kind, *others = together
    named = {(kind, each) for each in (within, *others) if not isinstance(each, bool)}
    return named | {(kind, n, each) for n, each in enumerate(others) if isinstance(each, bool)}


def covering(found: list[set[Any]], had: set[Any]) -> list[int]:
    """Few of these sets, by position, that have all that is in one of them and was not had."""
    missing, chosen = set().union(*found) - had, []
    while missing:
        chosen.append(max(range(len(found)), key=lambda n: len(found[n] & missing)))
        missing -= found[chosen[-1]]
    return chosen


@pytest.fixture
def page(browser: Browser) -> Iterator[FormPage]:
    """One page for all the forms of a test; script errors fail the test."""
    page = FormPage(browser, Form({}))
    yield page
    assert page.errors == []
    page.close()


def check_by_keyboard(page: FormPage, form: Form) -> None:
    """Send the form empty, then filled: controls show their errors, and the intended values arrive."""
    page.ask_next(form)
    typist = Typist(page.page)
    typist.enter()
    typist.press("Control+Enter")
    (empty,) = page.answers()
    refused = form.submit(empty["drafts"]).errors
    page.refuse(empty, refused or [(None, (), "Once more.")])
    typist.enter()
    meant = typist.fill(form.fields)
    for field, _, message in refused:
        assert message in typist.errors[str(field)], f"{field} does not say: {message}"
    assert typist.leave()[-2:] == ["Send", "Stop"]
    assert typist.missed() == []
    assert page.tangles() == {"twice": [], "lost": [], "jumps": []}
    assert page.violations() == []
    while typist.tab("Shift+Tab") != "Send":
        pass
    typist.press("Enter")
    sent = form.submit(page.answers()[-1]["drafts"])
    assert sent.errors == []
    assert sent.json_text == json.dumps(meant, ensure_ascii=False)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.variant) for n in range(1, PARTS))]
)
def test_every_published_tool_is_filled_by_keyboard_and_arrives_as_meant(page, part):
    """Tab leads through every control and out, axe finds nothing, and errors are described; each kind of form once."""
    for case in parts()[part]:
        try:
            check_by_keyboard(page, Form(case["schema"]))
        except (AssertionError, NotImplementedError) as problem:
            problem.add_note(f"in the form {case['id']}")
            raise


def test_an_elicitation_is_sent_with_its_defaults_by_one_key(page):
    """As MCP's specification requires, untouched defaults are sent, and nothing is invented."""
    asked = 0
    for case in published("mcp"):
        fields = case["schema"].get("properties", {})
        defaults = {key: field["default"] for key, field in fields.items() if "default" in field}
        if not defaults or set(case["schema"].get("required", [])) - set(defaults):
            continue
        form = Form(case["schema"])
        page.ask_next(form)
        typist = Typist(page.page)
        typist.enter()
        typist.press("Control+Enter")
        assert form.submit(page.answers()[-1]["drafts"]).value == defaults, case["id"]
        asked += 1
    assert asked >= 3
