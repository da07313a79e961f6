"""Forms of schemas that other projects published, filled in Chromium by keyboard alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
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


def cases_with_all_traits() -> Iterator[dict[str, Any]]:
    """Few cases whose fields have all traits; all cases if ``NBAGENT_THOROUGH`` is set."""
    cases = [case for collection in COLLECTIONS for case in published(collection)]
    found = [traits(Form(case["schema"]).fields) for case in cases]
    missing = set().union(*found)
    while missing and not THOROUGH:
        best = max(range(len(cases)), key=lambda n: len(found[n] & missing))
        missing -= found[best]
        yield cases[best]
    if THOROUGH:
        yield from cases


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


def test_every_published_tool_is_filled_by_keyboard_and_arrives_as_meant(page):
    """Tab leads through every control and out, axe finds nothing, and errors are described; each kind of form once."""
    for case in cases_with_all_traits():
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
