"""The API has the types that it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_api_type_checks_as_a_person_writes_it():
    """Correct uses pass and each wrong use is an error; an unneeded ignore fails too."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file", str(HERE / "mypy.ini")]
    checked = subprocess.run(
        [*command, "--cache-dir", os.devnull, str(HERE / "api.py")],
        capture_output=True,
        text=True,
        cwd=HERE.parent.parent,
        check=False,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
