"""Plays a few rounds of each attack of ``attack``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.processes import ROOT


@pytest.mark.parametrize(
    ("what", "number"), [("kills", 6), ("races", 8), ("terminals", 5), ("exits", 1)]
)
def test_no_round_of_the_attack_breaks_a_promise(what: str, number: int) -> None:
    """Check P2, P3, P6, P7 and P13 while processes are killed at random and while answers race."""
    command = [sys.executable, "-m", "tests.integration.attack", what, str(number), "1"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
