"""The runs of a store as they are read again, only where they have grown."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import RunCompleted, RunQueued, RunRetried, StoredEvent
from nbagent.core.stored.catalog import Catalog

MANY = 220
"""Runs from which a SQLite file tells what changed."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield nb.MemoryStore()
        return
    with nb.SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened
