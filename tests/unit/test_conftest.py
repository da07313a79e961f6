"""``pytest`` runs whole folders on all cores, and everything else in one process; no test hangs for ever."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_whole

PLAIN: dict[str, Any] = {
    "numprocesses": None,
    "tx": [],
    "dist": "no",
    "usepdb": False,
    "keyword": "",
    "maxfail": 0,
}


@pytest.mark.parametrize(
    ("options", "args", "whole"),
    [
        ({}, ["tests", "notebooks"], True),
        ({}, ["tests/unit"], True),
        ({"markexpr": "not browser"}, ["tests", "notebooks"], True),
        ({}, ["tests/unit/test_cli.py"], False),
        ({}, ["tests/unit", "tests/unit/test_cli.py::test_x"], False),
        ({"keyword": "pay"}, ["tests"], False),
        ({"maxfail": 1}, ["tests"], False),
        ({"usepdb": True}, ["tests"], False),
        ({"collectonly": True}, ["tests"], False),
        ({"numprocesses": 0}, ["tests"], False),
        ({"numprocesses": 3}, ["tests"], False),
        ({"tx": ["popen"], "dist": "each"}, ["tests"], False),
    ],
)
def test_whole_folders_are_tested_on_all_cores(
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    args: list[str],
    whole: bool,
) -> None:
    """Options that select tests or set processes turn this off."""
    monkeypatch.chdir(pytestconfig.rootpath)
    assert is_whole(argparse.Namespace(**PLAIN | options), args) is whole


IMPATIENT = """
from tests import conftest
from tests.conftest import pytest_runtest_teardown, pytest_timeout_set_timer

conftest.AGAIN = 1
"""
HANGS = """
import asyncio, signal
import pytest

async def test_waits_for_nothing():
    await asyncio.Event().wait()

def test_suppresses_its_end():
    try:
        signal.pause()
    except BaseException:
        signal.pause()

@pytest.fixture
def stuck():
    yield
    signal.pause()

def test_fails_and_then_hangs(stuck):
    raise AssertionError

def test_next():
    pass
"""


@pytest.mark.timeout(300)  # it starts pytest
def test_a_test_that_hangs_fails_and_the_others_go_on(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Even a test that suppresses its first interruption, or whose teardown hangs."""
    (tmp_path / "conftest.py").write_text(IMPATIENT)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-n0", "--timeout=1", "-q", str(tmp_path)]
    settings = ["-c", str(pytestconfig.rootpath / "pyproject.toml")]
    done = subprocess.run(
        [*command, *settings],
        cwd=pytestconfig.rootpath,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "3 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
