"""Runs that Ctrl+C or a notebook's stop button stops are stored as stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nbagent as nb
from tests.integration.kernels import PATIENCE, front_end

ROOT = Path(__file__).parents[2]
MOMENTS = 34
"""The number of moments in a script that is not interrupted."""
FEW = (1, 2, 3, 7, 12, 19, 26, 33)
"""Moments in every phase: before the first event and after it, in the model, in each tool, at the end."""
EVERY = range(1, MOMENTS + 1) if "NBAGENT_THOROUGH" in os.environ else ()
MOMENTS_TESTED = {"": EVERY or FEW, "+": EVERY or FEW[::2]}
"""Where Ctrl+C comes once, and where it comes twice."""


def last_events(path: Path) -> list[str]:
    """The types of the last event of each run in a store."""
    with nb.SQLiteStore(path) as store:
        return [store.read(run_id)[-1].type for run_id in store.run_ids()]


@pytest.mark.variant
@pytest.mark.parametrize(
    "at", [f"{n}{again}" for again in ("", "+") for n in MOMENTS_TESTED[again]]
)
@pytest.mark.parametrize("how", ["run_sync", "asyncio"])
def test_a_run_stopped_by_ctrl_c_is_stored_as_stopped(tmp_path: Path, how: str, at: str) -> None:
    """Ctrl+C may come at any moment and twice; no process that opens the run continues it."""
    command = ["-m", "tests.integration.interrupted", tmp_path / "runs.db", how, at]
    command[:0] = [sys.executable]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    ends = last_events(tmp_path / "runs.db")
    if done.returncode == 0:  # Ctrl+C came when nothing was left to stop
        assert ends == ["run_completed"], done.stderr
        return
    assert "KeyboardInterrupt" in done.stderr
    assert ends in ([], ["run_cancelled"], ["run_completed"]), done.stderr


@pytest.mark.variant
@pytest.mark.parametrize("cell", ["agent.run_sync('go')", "await agent.run('go')"])
@pytest.mark.parametrize(
    "tool", ["def slow():\n    time.sleep(0.5)", "async def slow():\n    await asyncio.sleep(60)"]
)
def test_a_run_stopped_by_the_stop_button_is_stored_as_stopped(
    tmp_path: Path, cell: str, tool: str
) -> None:
    """The run is stored before the cell ends, because a kernel may be killed right after that."""
    path = tmp_path / "runs.db"
    begin = f"import asyncio, time, nbagent as nb; store = nb.SQLiteStore({str(path)!r})"
    with front_end() as page:
        page.must_run(begin)
        page.must_run("model = nb.ScriptedModel([[nb.ScriptedModel.call('slow')], 'done'])")
        page.must_run("agent = nb.Agent(model, store=store)")
        page.must_run(f"@agent.tool\n{tool}")
        request = page.send(cell)
        until = time.monotonic() + PATIENCE
        while last_events(path) != ["tool_started"]:
            assert time.monotonic() < until, page.errors()
        page.interrupt()
        assert page.finish(request).status == "error"
        assert last_events(path) == ["run_cancelled"]
