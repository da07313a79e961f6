"""The ways a conversation is driven, as fixtures, and the usual tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from tests.unit.core.behavior.drivers import Define, Json, Live, Reopened, Session, Steps
from tests.unit.core.behavior.elsewhere import Elsewhere
from tests.unit.core.usual import Keeping, Tools


@pytest.fixture
def tools() -> Tools:
    """The usual tools."""
    return Tools()


@pytest.fixture
def keeping() -> Keeping:
    """The usual tools, whose gate keeps state."""
    return Keeping()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give cancelled tools little time to end."""
    monkeypatch.setattr("nbagent.core.run.session.GRACE", 0.2)


@pytest.fixture(scope="session")
def ended_process() -> str:
    """The id of a process that has ended."""
    says = "from nbagent.core.base.process import this_process; print(this_process())"
    told = subprocess.run([sys.executable, "-c", says], capture_output=True, text=True, check=True)
    return told.stdout.strip()


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """The runner of code in processes that have not run the test."""
    made = Elsewhere()
    yield made
    made.close()


@pytest.fixture(params=["steps", "live", "json", "reopened"])
def play(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Start a conversation from a script, its tools, and the options of the agent; on every driver."""
    return _starter(request, request.param)


@pytest.fixture(params=["steps", "json"])
def play_steps(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``play`` on the drivers of ``generate``."""
    return _starter(request, request.param)


@pytest.fixture(params=["live", "sqlite", "reopened"])
def play_stored(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``play`` on the drivers of runs: in memory, in a file, and reopened in other processes."""
    return _starter(request, request.param)


def _starter(request: pytest.FixtureRequest, kind: str) -> Callable[..., Any]:
    async def start(script: Any, define: Define | None = None, prompt: str = "go", **options: Any):
        session = _session(request, kind, script, define, options)
        await session.start(prompt)
        return session

    return start


def _session(
    request: pytest.FixtureRequest, kind: str, script: Any, define: Define | None, options: Any
) -> Session:
    if kind == "steps":
        return Steps(script, define, **options)
    if kind == "live":
        return Live(script, define, store=nb.MemoryStore(), **options)
    if kind == "json":
        elsewhere: Elsewhere = request.getfixturevalue("elsewhere")
        return Json(script, define, elsewhere=elsewhere, **options)
    folder: Path = request.getfixturevalue("tmp_path")
    path = folder / "runs.db"
    if kind == "reopened":
        elsewhere = request.getfixturevalue("elsewhere")
        return Reopened(script, define, elsewhere=elsewhere, store=path, **options)
    store = nb.SQLiteStore(path)
    request.addfinalizer(store.close)
    return Live(script, define, store=store, **options)
