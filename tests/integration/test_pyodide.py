"""Runs the core in Pyodide, whose Python has no threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.install_pyodide import ROOT, folder, installed

MISSING = "Pyodide is not installed: python tests/integration/install_pyodide.py"
HERE = Path(__file__).parent / "pyodide"


def needs_pyodide() -> None:
    """Without Pyodide, skip the test, or fail it in CI."""
    if not installed():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)


def run_in_pyodide(script: str) -> None:
    """Run a script of ``pyodide/``, which must print "whole" at its end."""
    needs_pyodide()
    node = shutil.which("node")
    assert node is not None
    command = [node, str(HERE / "run.mjs"), script, f"{folder() / 'pyodide'}/"]
    command += [str(folder() / "packages"), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines()[-1:] == ["whole"], done.stdout[-4000:] + done.stderr[-4000:]


def test_c470_without_threads_tools_run_on_the_loop_and_what_needs_a_thread_says_so() -> None:
    """Plain and async tools, approvals, questions, flows, a store on disk and HTML work; errors have one sentence."""
    run_in_pyodide("core.py")


def test_c473_c474_a_card_receives_only_messages_of_its_page_and_without_a_sanitizer_shows_plain_text() -> (
    None
):
    """A card ignores invalid messages, null is None in both directions, and without nh3 all HTML becomes text."""
    run_in_pyodide("cards.py")
