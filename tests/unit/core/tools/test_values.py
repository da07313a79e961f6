"""What the model is told of what a tool returned."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nbagent as nb
from nbagent.core.tools.values import for_model


class Kind(enum.Enum):
    """A kind."""

    TEA = "tea"


@dataclasses.dataclass
class Price:
    """A price."""

    amount: Decimal


class Odd:
    """No data."""

    def __str__(self) -> str:
        return "odd"


TOLD = [
    (
        {"n": np.int64(3), "x": np.float32(0.5), "ok": np.bool_(True)},
        {"n": 3, "x": 0.5, "ok": True},
    ),
    (np.int64(3), 3),
    ([np.array([[1, 2], [3, 4]])], [[[1, 2], [3, 4]]]),
    (np.arange(3), [0, 1, 2]),
    ({np.int64(1): np.float64("nan")}, {"1": "NaN"}),
    ({"at": np.datetime64("2026-01-02")}, {"at": "2026-01-02"}),
    ({"at": pd.Timestamp("2026-01-02")}, {"at": "2026-01-02T00:00:00"}),
    (
        {"kind": Kind.TEA, "price": Price(Decimal("1.50"))},
        {"kind": "tea", "price": {"amount": "1.50"}},
    ),
    (
        {"path": Path("a/b"), "set": {1}, "model": nb.Option("a")},
        {"path": "a/b", "set": [1], "model": {"value": "a", "label": None, "help": None}},
    ),
    (
        {"day": datetime.date(2026, 1, 2), "odd": Odd(), "n": np.int8(1)},
        {"day": "2026-01-02", "odd": "odd", "n": 1},
    ),
    (Odd(), "odd"),
    (
        [{"at": pd.NaT, "n": np.int64(1)}, {"at": pd.Timestamp("2026-01-02"), "n": 2}],
        [{"at": "NaT", "n": 1}, {"at": "2026-01-02T00:00:00", "n": 2}],
    ),
    ({pd.NaT: {"set": {2}}, ("a", 1): (pd.NaT,)}, {"NaT": {"set": [2]}, "a,1": ["NaT"]}),
    (pd.NaT, "NaT"),
]


@pytest.mark.parametrize(("value", "plain"), TOLD, ids=[str(n) for n in range(len(TOLD))])
def test_the_leaves_of_a_result_are_data_where_they_can_be(value, plain):
    """One odd leaf does not make one text of everything around it."""
    assert for_model(value) == plain


def test_large_and_rich_values_are_bounded_text():
    """An array's numbers, a table, an odd leaf: no result fills the model's context."""
    assert for_model({"a": np.arange(1001)})["a"].startswith("[   0    1    2 ... ")
    assert for_model(pd.Series([1, 2], name="price")) == str(pd.Series([1, 2], name="price"))
    assert "price" in for_model({"a": pd.DataFrame({"price": [1]})})["a"]
    assert len(for_model({"a": pd.DataFrame({"c": ["x" * 45] * 59})})["a"]) < 1_040
