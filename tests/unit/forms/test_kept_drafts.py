"""Stored drafts contain no secret, whatever a page sends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from nbagent.forms.form import Form
from tests.unit.forms.test_properties import RELAXED, documents


class Login(BaseModel):
    name: str = ""
    token: SecretStr
    next: Login | None = None


class Box(BaseModel):
    login: Login
    logins: list[Login] = []
    by_name: dict[str, Login] = {}
    either: int | Login = 1
    pair: tuple[int, SecretStr] | None = None
    plain: list[str] = []


def _login(text="x"):
    return {"fields": {"name": {"text": "me"}, "token": {"text": text}}}


SECRET = "hunter2"
KEPT = [
    ({"login": _login(SECRET)}, {"login": {"fields": {"name": {"text": "me"}, "token": None}}}),
    ({"login": {"json": {"text": SECRET}}}, {"login": None}),
    ({"login": {"fields": {"token": {"text": SECRET}, "no": {"text": SECRET}}, "no": SECRET}}, {"login": {"fields": {"token": None}}}),
    ({"logins": {"rows": [{"from": None, "draft": _login(SECRET)}]}}, {"logins": {"rows": [{"from": None, "draft": {"fields": {"name": {"text": "me"}, "token": None}}}]}}),
    ({"by_name": {"entries": [{"from": None, "key": "k", "draft": _login(SECRET)}]}}, {"by_name": {"entries": [{"from": None, "key": "k", "draft": {"fields": {"name": {"text": "me"}, "token": None}}}]}}),
    ({"either": {"branch": 1, "draft": _login(SECRET)}}, {"either": {"branch": 1, "draft": {"fields": {"name": {"text": "me"}, "token": None}}}}),
    ({"either": {"branch": 0, "draft": {"text": "5"}}}, {"either": {"branch": 0, "draft": {"text": "5"}}}),
    ({"pair": {"parts": [{"text": "1"}, {"text": SECRET}]}}, {"pair": {"parts": [{"text": "1"}, None]}}),
    ({"pair": {"null": True}}, {"pair": {"null": True}}),
    ({"login": {"fields": {"next": {"open": True, "draft": _login(SECRET)}}}}, {"login": {"fields": {"next": {"open": True, "draft": {"fields": {"name": {"text": "me"}, "token": None}}}}}}),
    ({"login": {"fields": {"next": {"open": True, "draft": {"text": SECRET}}}}}, {"login": {"fields": {"next": {"open": True, "draft": None}}}}),
    ({"plain": {"rows": [{"from": None, "draft": {"text": "a"}}]}}, {"plain": {"rows": [{"from": None, "draft": {"text": "a"}}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "kept"), KEPT, ids=lambda value: json.dumps(value)[:60])
def test_typed_text_is_kept_except_for_secrets(fields, kept):
    """Drafts are in snapshots, which are part of the widget's saved state."""
    assert Form(Box).storable_draft({"fields": fields}) == {"fields": kept}


def test_malformed_drafts_of_an_old_page_are_not_kept():
    """Text in places that the form does not have, and a form that is one secret."""
    assert Form(SecretStr).storable_draft({"text": SECRET}) is None
    for draft in (SECRET, [SECRET], {"text": SECRET}, {"rows": SECRET}, {"fields": [SECRET]}):
        assert SECRET not in json.dumps(Form(Box).storable_draft(draft))


@RELAXED
@given(draft=documents, key=st.sampled_from(list(Box.model_fields)))
def test_any_json_can_be_kept(draft, key):
    """A stored draft can be submitted again."""
    form = Form(Box)
    form.submit(form.storable_draft(draft))
    form.submit(form.storable_draft({"fields": {key: draft}}))
