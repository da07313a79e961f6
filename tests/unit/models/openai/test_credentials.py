"""Credentials are searched again after a client, a tool or the environment has changed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

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
    assert Credentials.of(asked).secrets == first.secrets
