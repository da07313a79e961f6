"""``nb.allow_nested`` where it cannot work."""

from __future__ import annotations

import asyncio

import pytest

import nbagent as nb
from nbagent.notebook import nested


class Loop(asyncio.AbstractEventLoop):
    """A loop that is not asyncio's own, as uvloop's."""


def test_c778_a_loop_that_cannot_be_patched_is_refused_before_anything_is(monkeypatch):
    """The error says what to do; so does one for a missing package."""
    before = asyncio.run
    monkeypatch.setattr(nested, "running_loop", Loop)
    with pytest.raises(nb.errors.UsageError, match="thread, where asyncio"):
        nb.allow_nested()
    monkeypatch.setattr(nested, "running_loop", lambda: None)
    monkeypatch.setattr(nested, "find_spec", lambda _name: None)
    with pytest.raises(nb.errors.UsageError, match="pip install nest_asyncio2"):
        nb.allow_nested()
    assert asyncio.run is before
