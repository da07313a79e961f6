"""Choices that come from the kernel are a plain list once the question is asked."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import nbagent as nb
from nbagent.core.base.interrupts import to_json

COLUMN = pd.Series(["b", "a", None, "b"])


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (["a", "b"], ["a", "b"]),
        (lambda: ["a", "b"], ["a", "b"]),
        (COLUMN, ["b", "a"]),
        (lambda: COLUMN, ["b", "a"]),
        (pd.Series([2.0, float("nan"), 2.0]), [{"value": 2.0, "label": "2.0", "help": None}]),
        (
            pd.Series(pd.to_datetime(["2026-01-02"])),
            [{"value": "2026-01-02T00:00:00", "label": "2026-01-02 00:00:00", "help": None}],
        ),
    ],
    ids=["list", "function", "column", "function of a column", "numbers", "dates"],
)
def test_choices_are_stored_when_the_question_is_asked(given: Any, stored: list[Any]) -> None:
    """Each value once, without missing ones, as JSON that a later process reads the same."""
    asked = nb.Choose(message="Which?", choices=given)
    document = to_json(asked)
    assert document["choices"] == stored
    assert nb.Choose.model_validate_json(json.dumps(document)).choices == [
        nb.Option(**one) if isinstance(one, dict) else one for one in stored
    ]


def test_a_function_of_choices_is_called_at_each_question() -> None:
    """The person sees the current values."""
    rows = ["a"]
    first = nb.Choose(message="?", choices=lambda: rows)
    rows = ["a", "b"]
    assert first.choices == ["a"]
    assert nb.Choose(message="?", choices=lambda: rows).choices == ["a", "b"]
