"""A schema from outside that asks for a secret says so, live and in the record (docs/forms.md)."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, SecretStr

from nbagent.forms.form import Form


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
def test_a_schema_that_asks_for_a_secret_is_warned_of(schema):
    """By format, by writeOnly, by name; however deep."""
    form = Form(schema)
    assert "secret" in form.warning
    assert "nbagent-warning" in form.static_html()


@pytest.mark.parametrize("schema", QUIET, ids=str)
def test_what_only_sounds_alike_is_not_warned_of(schema):
    """A page token is a place in a list."""
    assert Form(schema).warning == ""


def test_a_model_of_the_persons_own_may_ask_for_secrets():
    """Code in this kernel wrote it."""

    class Login(BaseModel):
        password: SecretStr

    assert Form(Login).warning == ""
    assert "nbagent-warning" not in Form(Login).static_html()
    assert "Password" in Form(Login.model_json_schema()).warning


def test_a_label_in_the_warning_is_text():
    """It comes from outside, too."""
    html = Form(asking("x", text(title="<b>Token"))).static_html()
    assert "<b>Token" not in html
    assert "&lt;b&gt;Token" in html
