"""The typed API holds what its types promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_api_type_checks_as_a_person_writes_it(tmp_path):
    """Right uses pass, and each wrong one is an error: an ignore that is not needed fails too."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    checked = subprocess.run(
        [*command, "--follow-imports=silent", str(HERE / "api.py")],
        capture_output=True,
        text=True,
        cwd=HERE.parent.parent,
        check=False,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
