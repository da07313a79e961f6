"""What holds for every test: no key, and no way to a real model."""

from __future__ import annotations

import pytest

REFUSED = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def no_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the API key and point the client at a port that refuses."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", REFUSED)
