"""Schemas and tool calls that other projects published, where their folder is there."""

import json
from pathlib import Path

import pytest

CASES = Path(__file__).parents[4] / "shared" / "cases" / "forms"
COLLECTIONS = (
    "bfcl-simple", "github-mcp-tools", "jedison-docs", "json-editor-pages", "mcp",
    "rjsf-playground-v3", "sjsf-presets", "streamlit-pydantic-examples",
)  # fmt: skip


@pytest.fixture(params=COLLECTIONS)
def collection(request):
    """The cases of one collection."""
    path = CASES / f"{request.param}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    return json.loads(path.read_text())["cases"]
