"""Schemas and tool calls published by other projects, and recordings of other frameworks, in ``../shared`` beside this checkout.

Tests that use them skip where the folder is missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parents[2] / "shared" / "cases"
FORMS = CASES / "forms"
COLLECTIONS = (
    "bfcl-simple", "github-mcp-tools", "jedison-docs", "json-editor-pages", "mcp",
    "rjsf-playground-v3", "sjsf-presets", "streamlit-pydantic-examples",
)  # fmt: skip


def published(name: str) -> list[dict[str, Any]]:
    """The cases of one collection: schemas, some with a document; the test skips if the folder is missing."""
    path = FORMS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{name}.json is not in ../shared beside this checkout")
    return cases_of(path)


def cases_of(path: Path) -> list[dict[str, Any]]:
    """The cases in one file."""
    cases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return cases


def recorded(name: str) -> dict[str, Any]:
    """A recording of a framework; the test skips if the folder is missing."""
    path = CASES / "others" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{name}.json is not in ../shared beside this checkout")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
