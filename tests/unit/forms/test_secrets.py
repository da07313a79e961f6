"""A secret is neither shown nor sent as its mask; a foreign schema that asks for one has a warning."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Json, Secret, SecretStr

from nbagent.forms.form import Form
from nbagent.forms.secrets import MASK
from tests.unit.forms.drawn import drawn


def text(**more):
    return {"type": "string", **more}


def asking(name, schema=None):
    return {"type": "object", "properties": {name: schema or text(), "note": text()}}


WARNED = [
    asking("password"),
    asking("apiKey"),
    asking("github_token"),
    asking("client-secret"),
    asking("PASSWORD"),
    asking("x", text(format="password")),
    asking("x", text(writeOnly=True)),
    asking("x", text(title="Your API key")),
    asking("who", asking("passphrase")),
    {"type": "array", "items": asking("pin")},
    text(title="Secret"),
]
QUIET = [
    asking("pageToken"),
    asking("next_token"),
    asking("max_tokens", {"type": "integer"}),
    asking("tokenizer"),
    asking("key"),
    asking("sort_key"),
    asking("secretary"),
    asking("is_secret", {"type": "boolean"}),
]


@pytest.mark.parametrize("schema", WARNED, ids=str)
def test_a_schema_that_asks_for_a_secret_has_a_warning(schema):
    """Found by format, ``writeOnly`` or name, at any depth."""
    form = Form(schema)
    assert "secret" in form.warning
    assert escape(form.warning) in drawn(form)


@pytest.mark.parametrize("schema", QUIET, ids=str)
def test_a_name_that_only_resembles_a_secret_has_no_warning(schema):
    """A page token is a position in a list."""
    assert Form(schema).warning == ""


def test_a_model_class_of_the_person_can_ask_for_secrets():
    """The class is code of this kernel."""

    class Login(BaseModel):
        password: SecretStr

    assert Form(Login).warning == ""
    assert "secret" not in drawn(Form(Login))
    assert "Password" in Form(Login.model_json_schema()).warning


def test_a_label_in_the_warning_is_text():
    """The label comes from outside too."""
    html = drawn(Form(asking("x", text(title="<b>Token"))))
    assert "<b>Token" not in html
    assert "&lt;b&gt;Token" in html


class Login(BaseModel):
    name: str = ""
    token: SecretStr
    backup: Login | None = None


class Vault(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SecretStr]

    login: Login | None = None
    pair: tuple[int, SecretStr] | None = None
    text: Json[Login] | None = None
    anything: Any = None
    words: Secret[list[str]] | None = None


def deep(levels):
    """A schema with this many levels, and an answer to it."""
    schema, answer = text(format="password"), "hunter2"
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}
        answer = {"inner": answer}
    return schema, answer


HELD = {
    "a field": (Vault, {"login": {"name": "me", "token": "hunter2"}}),
    "a name that is not listed": (Vault, {"spare": "hunter2"}),
    "a shape that repeats itself": (
        Login,
        {"token": "x", "backup": {"token": "x", "backup": {"name": "me", "token": "hunter2"}}},
    ),
    "a part of a tuple": (Vault, {"pair": [1, "hunter2"]}),
    "a text that is JSON": (Vault, {"text": '{"token": "hunter2"}'}),
    "a secret of another type": (Vault, {"words": ["hunter2"]}),
    "a box for what is too deep": deep(15),
}


@pytest.mark.parametrize("place", HELD)
def test_a_secret_in_an_answer_is_shown_nowhere(place):
    """At any place of the schema, even in a shape that is still closed."""
    target, answer = HELD[place]
    form = Form(target)
    shown = json.dumps(form.without_secrets(answer, "(hidden)")) + drawn(form, answer)
    assert "hunter2" not in shown
    assert "(hidden)" in shown
    prefilled = Form(target, value=answer)
    assert "hunter2" not in json.dumps(prefilled.spec()) + drawn(prefilled)


def test_values_that_are_not_secret_are_shown():
    """Also beside a secret, and in a field of any type."""
    answer = {"login": {"name": "me", "token": "hunter2"}, "anything": {"a": [1]}}
    shown = Form(Vault).without_secrets(answer, "(hidden)")
    assert shown == {"login": {"name": "me", "token": "(hidden)"}, "anything": {"a": [1]}}


@pytest.mark.parametrize("target", [Vault, Vault.model_json_schema()], ids=["type", "schema"])
@pytest.mark.parametrize(
    "value",
    [
        {"pair": [1, MASK]},
        {"login": {"token": MASK, "backup": None}},
        {"login": {"token": "x", "backup": {"token": MASK}}},
        {"spare": MASK},
    ],
    ids=str,
)
def test_a_mask_is_never_sent_as_the_secret(target, value):
    """Pydantic writes masks into documents; a masked value is asked again or left out."""
    answer = Form(target, value=value).submit(None)
    assert MASK not in (answer.json_text or "")
    assert "backup" not in value.get("login", {}) or "login" in (answer.document or {})


def test_drafts_of_a_recursive_shape_are_kept_where_nothing_is_secret():
    """A closed shape can hide a secret only if the schema has one."""
    tree = {
        "$defs": {"N": {"type": "object", "properties": {"in": {"$ref": "#/$defs/N"}}}},
        "$ref": "#/$defs/N",
    }
    drafts = {"json": {"text": '{"in": {}}'}}
    assert Form(tree).storable_draft(drafts) == drafts
    assert Form(Login).storable_draft(drafts) is None
