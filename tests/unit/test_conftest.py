"""``pytest`` runs whole folders on all cores, and everything else in one process."""

from __future__ import annotations

import argparse
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
