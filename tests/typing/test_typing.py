"""The public API type-checks the way people write it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_the_api_type_checks_as_a_person_writes_it():
    """Under mypy strict; its ignores are errors that mypy must find."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            "pyproject.toml",
            str(HERE / "api.py"),
        ],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
