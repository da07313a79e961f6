"""What several files of integration tests start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Begin, beginning


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Begin]:
    """A function that starts processes on one store."""
    with beginning(tmp_path) as new:
        yield new
