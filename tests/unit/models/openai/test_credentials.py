"""Credentials are searched again after a client, a tool or the environment has changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

import nbagent as nb
from nbagent.core.base.model import Hosted
from nbagent.models.openai import credentials
from nbagent.models.openai.credentials import Credentials, Keyring

NEW = "a-new-secret-4711"


def client() -> Any:
    return SimpleNamespace(
        api_key="an-old-secret-0815",
        base_url=httpx2.URL("http://host/v1"),
        _custom_headers={"X-Title": "notebook"},
        _custom_query={"version": "1"},
        _client=SimpleNamespace(headers=httpx2.Headers({"User-Agent": "me"})),
        secrets=[],
    )


def _key(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client.api_key = NEW


def _header(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client._custom_headers["X-Api-Key"] = NEW


def _header_below(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client._client.headers["Authorization"] = f"Bearer {NEW}"


def _query(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client._custom_query["token"] = NEW


def _url(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client.base_url = httpx2.URL(f"http://{NEW}@host/v1")


def _own(client: Any, _tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    client.secrets.append(NEW)


def _tool(_client: Any, tool: Hosted, _monkeypatch: pytest.MonkeyPatch) -> None:
    tool.options["headers"]["Authorization"] = NEW  # type: ignore[index]


def _environment(_client: Any, _tool: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", NEW)


CHANGES = (_key, _header, _header_below, _query, _url, _own, _tool, _environment)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_new_secret_is_found_at_the_next_request(
    change: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client, a hosted tool or the environment changed in place."""
    asked, tool, keyring = client(), Hosted("mcp", {"headers": {"X": "y"}}), Keyring()
    assert keyring.of(asked, [tool]).remove(NEW) == NEW
    change(asked, tool, monkeypatch)
    assert keyring.of(asked, [tool]).remove(NEW) == "•••"
    assert keyring.all.remove(f"{NEW} an-old-secret-0815") == "••• •••"


def test_a_request_without_changes_does_not_search_for_secrets_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headers, URLs and the environment are read once until something changes."""
    walks = []
    search = credentials._secret_values
    monkeypatch.setattr(
        credentials, "_secret_values", lambda named: walks.append(named) or search(named)
    )
    asked, keyring = client(), Keyring()
    first = keyring.of(asked)
    count = len(walks)
    assert count
    assert all(keyring.of(asked) is first for _ in range(50))
    assert len(walks) == count
    assert Keyring().of(asked).secrets == first.secrets


def test_a_credential_is_removed_from_base64_too() -> None:
    """As a proxy repeats it, in basic auth or alone."""
    for sent in (f"user:{NEW}", f":{NEW}", NEW):
        encoded = b64encode(sent.encode()).decode()
        assert Credentials([NEW]).remove(f"Basic {encoded}, no") == "Basic •••, no"


async def test_a_key_that_no_header_can_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a copied ellipsis, or bytes that are no text; a key of another provider does not matter."""
    monkeypatch.setenv("MISTRAL_API_KEY", "broken-\udc80-key")
    for key, letter in (("sk-\ud800abcdef", "D800"), ("sk-\u2026abcdef", "2026")):
        model = nb.OpenAIModel("x", base_url="http://127.0.0.1:9/v1", api_key=key)
        with pytest.raises(
            nb.errors.ModelConfigError, match=rf"API key .* U\+{letter} at position 3"
        ):
            await model.check_ready()
    good = nb.OpenAIModel("x", base_url="http://127.0.0.1:9/v1", api_key="sk-abcdef")
    await good.check_ready()
    await good.aclose()
