"""Columns of any type of any library come back from SQL exactly; what has no type there is text."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nbagent as nb
from nbagent.data.frames import column_names
from nbagent.data.tools import NotebookData

BIG = 2**70
UUIDS = [uuid.UUID(int=1), uuid.UUID(int=2), None]
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - a column without a zone
DAYS = [dt.date(2026, 1, 2), dt.date(1950, 12, 31), None]
NANOSECONDS = pd.Series(pd.to_datetime([1, 2, None], unit="ns"))


def objects(*values):
    """A column of pandas without a type of its own."""
    return pd.Series(values, dtype=object)


# the column; its type in SQL; its values there, as SQL returns them
COLUMNS = {
    "pd.cut": (
        pd.Series(pd.cut([1, 5, np.nan], [0, 2, 10])),
        "VARCHAR",
        ["(0.0, 2.0]", "(2.0, 10.0]", None],
    ),
    "pd.cut of integers": (pd.Series(pd.cut([1, 5], [0, 2, 9])), "VARCHAR", ["(0, 2]", "(2, 9]"]),
    "pd.cut with labels": (pd.Series(pd.cut([1, 5], 2, labels=["a", "b"])), "VARCHAR", ["a", "b"]),
    "pd.qcut": (pd.Series(pd.qcut([1, 3], 2)), "VARCHAR", ["(0.999, 2.0]", "(2.0, 3.0]"]),
    "intervals": (pd.Series(pd.interval_range(0, 2)), "VARCHAR", ["(0, 1]", "(1, 2]"]),
    "categories": (pd.Series(["b", "a", None], dtype="category"), "VARCHAR", ["b", "a", None]),
    "categories of integers": (pd.Series([2, 1], dtype="category"), "BIGINT", [2, 1]),
    "categories of several types": (
        pd.Series(pd.Categorical(["a", 1], ["a", 1])),
        "VARCHAR",
        ["a", "1"],
    ),
    "months": (
        pd.Series(pd.period_range("2026-01", periods=2, freq="M")),
        "VARCHAR",
        ["2026-01", "2026-02"],
    ),
    "sparse": (pd.Series(pd.arrays.SparseArray([0, 2**60 + 1])), "BIGINT", [0, 2**60 + 1]),
    "sparse floats": (pd.Series(pd.arrays.SparseArray([np.nan, 0.1])), "DOUBLE", [None, 0.1]),
    "half floats": (pd.Series([1.5, 2], dtype="float16"), "DOUBLE", [1.5, 2.0]),
    "several types": (objects(1, "1", None, 1.5), "VARCHAR", ["1", "1", None, "1.5"]),
    "text and bytes": (objects("a", b"a"), "VARCHAR", ["a", "b'a'"]),
    "integers and floats": (objects(1, 2.5), "DOUBLE", [1.0, 2.5]),
    "long integers and floats": (objects(2**60 + 1, 0.5), "VARCHAR", [f"{2**60 + 1}", "0.5"]),
    "days and times": (
        objects(DAYS[0], MOMENT),
        "VARCHAR",
        ["2026-01-02", "2026-01-02 03:04:05.678901"],
    ),
    "times with and without a zone": (
        objects(MOMENT, MOMENT.replace(tzinfo=dt.UTC)),
        "VARCHAR",
        [str(MOMENT), f"{MOMENT}+00:00"],
    ),
    "half of a surrogate pair": (objects("\ud800", "b"), "VARCHAR", [r"\ud800", "b"]),
    "complex": (pd.Series([1 + 2j]), "VARCHAR", ["(1+2j)"]),
    "sets": (objects({1}, None), "VARCHAR", ["{1}", None]),
    "arrays": (objects(np.array([1, 2]), None), "BIGINT[]", ["[1, 2]", None]),
    "matrices": (objects(np.array([[1], [2]])), "BIGINT[][]", ["[[1], [2]]"]),
    "arrays of times": (
        objects(np.array([1], "datetime64[ns]"), np.array([2], "datetime64[ns]")),
        "VARCHAR",
        [f"[np.datetime64('1970-01-01T00:00:00.00000000{n}')]" for n in (1, 2)],
    ),
    "arrays of several types": (
        objects(np.array([1]), np.array([0.5]), np.array(["a"])),
        "VARCHAR",
        ["[1]", "[0.5]", "['a']"],
    ),
    "long floats": (objects(np.longdouble(1) / 3), "VARCHAR", [str(np.longdouble(1) / 3)]),
    "tables": (objects(pd.DataFrame({"a": [1]})), "VARCHAR", ["   a\n0  1"]),
    "numbers of numpy": (objects(np.int64(2**60 + 1), None), "BIGINT", [2**60 + 1, None]),
    "arrays of long integers": (objects([BIG], [BIG + 1]), "VARCHAR", [f"[{BIG}]", f"[{BIG + 1}]"]),
    "lists of records": (
        objects([{"a": 1}], [], [{"a": 2, "b": "x"}]),
        "STRUCT(a BIGINT, b VARCHAR)[]",
        ["[{'a': 1, 'b': None}]", "[]", "[{'a': 2, 'b': 'x'}]"],
    ),
    "records of several types": (
        objects({"a": 1}, {"a": "x"}),
        "VARCHAR",
        ["{'a': 1}", "{'a': 'x'}"],
    ),
    "decimals": (
        objects(Decimal("1.10"), Decimal(200), None),
        "DECIMAL(5,2)",
        ["1.10", "200.00", None],
    ),
    "decimals of 50 digits": (objects(Decimal(10**50)), "VARCHAR", [f"{10**50}"]),
    "integers beyond 64 bits": (
        objects(BIG, BIG + 1, None, 5),
        "DECIMAL(38,0)",
        [str(BIG), str(BIG + 1), None, "5"],
    ),
    "integers beyond 38 digits": (objects(10**40, -1), "VARCHAR", [f"{10**40}", "-1"]),
    "an integer that Python does not write": (objects(2**20_000), "VARCHAR", [hex(2**20_000)]),
    "unsigned integers": (pd.Series([2**64 - 1], dtype="uint64"), "UBIGINT", [2**64 - 1]),
    "integers with gaps": (pd.array([2**60 + 1, None], "Int64"), "BIGINT", [2**60 + 1, None]),
    "truth values with gaps": (pd.array([True, None], "boolean"), "BOOLEAN", [True, None]),
    "uuids": (objects(*UUIDS), "UUID", [str(UUIDS[0]), str(UUIDS[1]), None]),
    "bytes": (objects(b"a\0", None), "BLOB", ["2 bytes", None]),
    "durations": (
        pd.Series(pd.to_timedelta([1, 86_400_000_001, None], unit="us")),
        "INTERVAL",
        ["00:00:00.000001", "24:00:00.000001", None],
    ),
    "durations of nanoseconds": (
        pd.Series(pd.to_timedelta([1, None], unit="ns")),
        "VARCHAR",
        ["1 ns", None],
    ),
    "times": (pd.Series([MOMENT, None]), "TIMESTAMP", [str(MOMENT), None]),
    "times of nanoseconds": (
        NANOSECONDS,
        "VARCHAR",
        ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000000002", None],
    ),
    "times with a zone": (
        pd.Series(pd.to_datetime(["2026-07-01 02:00"])).dt.tz_localize("Europe/Berlin"),
        "TIMESTAMP WITH TIME ZONE",
        ["2026-07-01 00:00:00+00"],
    ),
    "times in the far future": (
        pd.Series(np.array(["400000-01-01"], "datetime64[s]")),
        "VARCHAR",
        ["400000-01-01 00:00:00"],
    ),
    "days": (objects(*DAYS), "DATE", ["2026-01-02", "1950-12-31", None]),
    "nothing": (objects(None, None), '"NULL"', [None, None]),
    "Arrow's types in pandas": (
        pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        "TINYINT[]",
        ["[1]"],
    ),
    "polars: integers of 128 bits": (
        pl.Series([BIG, None], dtype=pl.Int128),
        "DECIMAL(38,0)",
        [str(BIG), None],
    ),
    "polars: objects": (pl.Series([BIG, "a"], dtype=pl.Object), "VARCHAR", [str(BIG), "a"]),
    "polars: categories": (pl.Series(["a"], dtype=pl.Enum(["b", "a"])), "VARCHAR", ["a"]),
    "polars: records": (pl.Series([{"a": [1]}]), "STRUCT(a BIGINT[])", ["{'a': [1]}"]),
    "polars: arrays": (pl.Series([[1, 2]], dtype=pl.Array(pl.Int8, 2)), "TINYINT[2]", ["(1, 2)"]),
    "polars: durations": (pl.Series([1, None]).cast(pl.Duration("ns")), "VARCHAR", ["1 ns", None]),
    "polars: times of nanoseconds": (
        pl.Series([1]).cast(pl.Datetime("ns")),
        "VARCHAR",
        ["1970-01-01 00:00:00.000000001"],
    ),
    "polars: times of a day": (pl.Series([dt.time(1, 2, 3)]), "TIME", ["01:02:03"]),
    "Arrow: decimals of 50 digits": (
        pa.array([Decimal(10**50), None], pa.decimal256(60, 0)),
        "VARCHAR",
        [f"{10**50}", None],
    ),
    "Arrow: dictionary": (pa.array(["a", None]).dictionary_encode(), "VARCHAR", ["a", None]),
    "Arrow: map": (
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        "MAP(VARCHAR, TINYINT)",
        ["{'k': 1}"],
    ),
    "Arrow: half floats": (pa.array(np.array([1.5], "float16")), "DOUBLE", [1.5]),
    "Arrow: calendar intervals": (
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        "VARCHAR",
        ["MonthDayNano(months=1, days=2, nanoseconds=3)"],
    ),
}


def table_of(column):
    """A table of the column's library with this column alone."""
    if isinstance(column, pl.Series):
        return pl.DataFrame({"x": column})
    return pa.table({"x": column}) if isinstance(column, pa.Array) else pd.DataFrame({"x": column})


@pytest.mark.variant
@pytest.mark.parametrize("name", COLUMNS)
def test_c419_a_column_of_any_type_comes_back_from_sql_exactly(name):
    """Its values have a type of SQL, or are text; the description says which."""
    column, kind, expected = COLUMNS[name]
    data = NotebookData({"t": table_of(column)}, 10, 20.0)
    sql = "SELECT x, typeof(x), (SELECT count(DISTINCT x) FROM t) FROM t"
    values, kinds, counts = zip(*data.query(sql, "").rows, strict=True)
    assert [*values] == [None if each is None else _shown(each) for each in expected]
    assert {*kinds} == {kind}
    assert {*counts} == {len({each for each in expected if each is not None})}
    described = data.described("t").rows[0][1]
    texts = ("str", "string", "object", "String", "category", "Enum")
    if kind != "VARCHAR":
        assert "text" not in described
    elif not described.startswith(texts) and "dictionary" not in described:
        assert described.endswith("(text in SQL)")


def _shown(value):
    """A long value as a result has it: its beginning and its last character."""
    return value if not isinstance(value, str) or len(value) <= 600 else value[:599] + value[-1]


async def test_c419_an_odd_column_leaves_its_table_readable():
    """All of them in one table, with repeated names and names that are no text."""
    odd = [each for each, *_ in COLUMNS.values() if isinstance(each, pd.Series)]
    table = pd.concat(
        [pd.Series([1, 2]), *(each.iloc[:2].reset_index(drop=True) for each in odd)], axis=1
    )
    table.columns = [1, "x", "x", ("a", 2), None, *range(10, len(odd) + 6)]
    tools = nb.notebook_tools(table)
    model = nb.ScriptedModel(
        [
            nb.ScriptedModel.call("query_data", sql='SELECT "1", x, x_2, a_2, "None" FROM "table"'),
            nb.ScriptedModel.call("describe_data", name="table"),
            "done",
        ]
    )
    run = nb.Agent(model, tools=tools).run("go", show=False)
    await run
    assert run.calls["query_data"][-1].output.splitlines()[:2] == [
        "1\tx\tx_2\ta_2\tNone",
        "1\t(0, 2]\t(0, 2]\ta\t(0.999, 2.0]",
    ]
    described = run.calls["describe_data"][-1].output
    assert "x\tcategory (text in SQL)\t2\t2\t(0, 2]\t(2, 10]" in described
    assert "period[M] (text in SQL)\t2\t2\t2026-01\t2026-02" in described


@pytest.mark.parametrize("library", ["pandas", "arrow"])
def test_c419_integers_beyond_64_bits_compare_and_add_as_numbers(library):
    """As floats, two long ids would be equal that are not; as text, 9 would be more than 10."""
    rows = {"pandas": pd.DataFrame({"id": objects(BIG, BIG + 1, 9)})}
    rows["arrow"] = pa.table({"id": pa.array([BIG, BIG + 1, 9], pa.decimal128(38, 0))})
    data = NotebookData({"t": rows[library]}, 10, 20.0)
    assert data.query(f"SELECT count(*) FROM t WHERE id = {BIG}", "").rows == [(1,)]
    assert data.query("SELECT max(id), sum(id) FROM t", "").rows == [
        (str(BIG + 1), str(2 * BIG + 10))
    ]


def test_columns_of_one_name_are_numbered_in_order_in_linear_time():
    """Also if a number is taken, and by names that SQL does not tell apart."""
    names = ["a", "A", "a", "a_3", "a", "b"]
    frame = SimpleNamespace(names=lambda: names)
    assert column_names(frame) == ["a", "A_2", "a_3", "a_3_2", "a_4", "b"]
    names = ["a"] * 20_000
    assert column_names(frame)[-1] == "a_20000"
