"""What several files of integration tests start."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Begin, beginning

# a Dask cluster gives up workers that take longer to restart
os.environ.setdefault("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "10m")
# and starts them from a process that has loaded it, in a quarter of the time
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Begin]:
    """A function that starts processes on one store."""
    with beginning(tmp_path) as new:
        yield new


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Path]:
    """The file in which MCP servers write their effects. At the end, the servers that the test made are closed."""
    from tests.integration.mcp_servers import made  # noqa: PLC0415 - mcp, which few tests load

    yield tmp_path / "notes"
    while made:
        await made.pop().aclose()
