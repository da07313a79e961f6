"""The form in which a model gets a tool's result."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, computed_field

import nbagent as nb
from nbagent.core.tools.result_text import for_model


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
def test_the_leaves_of_a_result_are_data_where_possible(value, plain):
    """One odd leaf does not turn everything around it into text."""
    assert for_model(value) == plain


def test_large_and_rich_values_are_bounded_text():
    """An array's numbers, a table, an odd leaf: no result fills the model's context."""
    assert for_model({"a": np.arange(1001)})["a"].startswith("[   0    1    2 ... ")
    assert for_model(pd.Series([1, 2], name="price")).endswith("All its rows:\nprice\n1\n2")
    assert "price" in for_model({"a": pd.DataFrame({"price": [1]})})["a"]
    assert len(for_model({"a": pd.DataFrame({"c": ["x" * 45] * 59})})["a"]) < 1_040


GIANT = 2**3_000_000
SIZE = "an integer of about 903,090 digits"


class Big(enum.Enum):
    """A giant behind a name."""

    ONE = GIANT


@dataclasses.dataclass
class Total:
    """A giant in a field."""

    amount: int


class Sum(BaseModel):
    """A giant that a model works out."""

    of: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        """The giant."""
        return GIANT


GIANTS = {
    "alone": (lambda: GIANT, SIZE),
    "negative": (lambda: -GIANT, SIZE),
    "in a list": (lambda: [1, GIANT, "x"], [1, SIZE, "x"]),
    "deeper": (lambda: {"n": {"m": (GIANT,)}}, {"n": {"m": [SIZE]}}),
    "a key": (lambda: {GIANT: 1}, {SIZE: 1}),
    "an enum": (lambda: [Big.ONE], [SIZE]),
    "a dataclass": (lambda: {"total": Total(GIANT)}, {"total": {"amount": SIZE}}),
    "a model": (lambda: [Sum(of=GIANT)], [{"of": SIZE, "twice": SIZE}]),
    "an iterator": (lambda: iter([GIANT]), [SIZE]),
    "an array": (lambda: {"a": np.array([GIANT, 1], dtype=object)}, {"a": [SIZE, 1]}),
    "no finite one": (
        lambda: [10**600, float("inf"), float("-inf")],
        [10**600, "Infinity", "-Infinity"],
    ),
    "beside others": (lambda: [GIANT, float("nan"), "\ud800"], [SIZE, "NaN", "\\ud800"]),
    "just too long": (lambda: 10**4_400, "an integer of about 4,400 digits"),
}


@pytest.mark.parametrize("kind", GIANTS)
@pytest.mark.parametrize("limit", [4_300, 0, 640])
def test_a_giant_integer_is_described_by_its_size(kind, limit):
    """Anywhere in a value, with any digit limit of Python: no digits are made, which takes seconds."""
    if kind == "a key" and not limit:
        pytest.skip(
            "pydantic writes the names of an object, as long as Python was told to write them"
        )
    value, plain = GIANTS[kind]
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        told = for_model(value(), 200_000)
    finally:
        sys.set_int_max_str_digits(before)
    assert told == plain


async def test_a_tool_can_return_a_giant_integer():
    """The run continues, its journal can be read, and the model gets a short text."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("power"), "done"]))

    @agent.tool
    def power() -> int:
        return GIANT

    run = agent.run("go", show=False)
    await run
    (finished,) = (event for event in run.journal if event.type == "tool_finished")
    assert finished.output == SIZE
