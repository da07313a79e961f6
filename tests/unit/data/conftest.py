"""What tests of queries look at."""

from __future__ import annotations

import subprocess

import pytest

from nbagent.data import reading


@pytest.fixture
def begun(monkeypatch):
    """The processes of queries that the test has begun."""
    begun = []

    class Seen(subprocess.Popen):
        """A process that is recorded."""

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            begun.append(self)

    monkeypatch.setattr(reading.subprocess, "Popen", Seen)
    return begun
