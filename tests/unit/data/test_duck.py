"""DuckDB queries over tables of any library and DuckDB databases; they reach only the passed data."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nbagent as nb
from nbagent.data import duck
from nbagent.data.reading import QueryError
from nbagent.data.tools import NotebookData
from tests.asked import text_to_model

OTHERS = pd.DataFrame({"mine": ["secret"]})
DATA = {"month": ["jan", "feb", "mar"], "amount": [3.5, None, 8.0]}
TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.fixture
def tables():
    """A small table, ``sales``, for queries."""
    return NotebookData({"sales": pd.DataFrame(DATA)}, rows=100, seconds=10.0)


@pytest.fixture
def shop(tmp_path):
    """A connection to a file that it locks, with a table, a view of a file, and a schema."""
    (tmp_path / "costs.csv").write_text("item,cost\na,7\n")
    with closing(duckdb.connect(tmp_path / "shop.duckdb")) as con:
        con.execute(
            "CREATE TABLE orders AS SELECT range AS id, 'item ' || range AS item FROM range(300)"
        )
        con.execute(f"CREATE VIEW costs AS SELECT * FROM '{tmp_path}/costs.csv'")
        con.execute('CREATE SCHEMA old; CREATE TABLE old."odd one" AS SELECT 1 AS a')
        yield con


@pytest.mark.parametrize("library", TABLES)
async def test_c419_a_table_of_any_library_is_listed_described_and_queried(library):
    """One SELECT in DuckDB's dialect joins tables of two libraries, with their current values."""
    sales, days = TABLES[library](DATA), pd.DataFrame({"month": ["jan"], "days": [31]})
    tools = nb.notebook_tools(sales, days)
    assert "The SQL dialect is DuckDB" in tools[-1].description
    assert "sales\ttable\tDuckDB\t3 rows\tmonth, amount" in await text_to_model(tools, "list_data")
    described = await text_to_model(tools, "describe_data", name="sales")
    assert "amount\t" in described
    assert described.splitlines()[2].endswith("\t2\t2\t3.5\t8.0")
    assert "feb\t\n(the first 2 of 3 rows)" in await text_to_model(
        tools, "head_data", name="sales", rows=2
    )
    sql = "SELECT days, amount FROM sales JOIN days USING (month)"
    assert await text_to_model(tools, "query_data", sql=sql) == "days\tamount\n31\t3.5"
    found = await text_to_model(tools, "query_data", sql="FROM sales SELECT median(amount) AS m")
    assert found == "m\n5.75"


def test_c419_unusual_tables_can_be_read_too():
    """Repeated names, two levels of columns and rows, values of several types, and types unknown to Parquet."""
    odd = pd.DataFrame(
        [[1, "x", pd.NaT, 2**70, {"a": 1}, 1 + 2j, pd.Period("2026-01")]] * 2,
        columns=["a", "A", 'q"uo', ("two", "levels"), 5, "c", "p"],
        index=pd.MultiIndex.from_tuples([("n", 1), ("s", 2)], names=["region", None]),
        dtype=object,
    )
    odd.iloc[1, 1] = 3
    found = NotebookData({"odd one": odd}, 5, 9.0).query('SELECT * FROM "odd one"', "")
    names = ["region", "level_1", "a", "A_2", 'q"uo', "two_levels", "5", "c", "p"]
    assert found.columns == names
    assert list(map(str, found.rows[1]))[:5] == ["s", "2", "1", "3", "None"]
    assert "2026-01" in str(found.rows[0])
    large = pd.DataFrame(np.zeros((600_000, 100), "int8")).add_prefix("c")
    with pytest.raises(QueryError, match="50,000,000"):
        NotebookData({"large": large}, 5, 9.0).query("SELECT count(*) FROM large", "")


FILE = "/etc/passwd"
HOSTILE = [
    f"SELECT * FROM read_csv('{FILE}')",
    f"SELECT * FROM '{FILE}'",
    f"SELECT * FROM read_text('{FILE}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_metadata('/tmp/x.parquet')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "COPY sales TO '@out'",
    "COPY (SELECT 1) TO '@out'",
    "EXPORT DATABASE '@out'",
    "ATTACH '@out' AS evil",
    "ATTACH ':memory:' AS evil",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT * FROM 'https://example.org/x.csv'",
    "SELECT * FROM duckdb_secrets()",
    "CREATE SECRET s (TYPE s3)",
    "SET enable_external_access = true",
    "SET allowed_paths = ['/']",
    "SET memory_limit = '100GB'",
    "RESET ALL",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "SELECT * FROM OTHERS",
    "SELECT getenv('HOME')",
    "CREATE TABLE t (a INT)",
    "CREATE MACRO f(x) AS x",
    "INSERT INTO orders VALUES (1, 'x')",
    "DROP TABLE orders",
    "WITH x AS (DELETE FROM orders RETURNING 1) SELECT * FROM x",
    "SELECT 1; SELECT 2",
    "EXPLAIN ANALYZE SELECT 1",
    "CHECKPOINT",
    "",
    "-- nothing",
]


@pytest.mark.timeout(300)  # many queries, each in a process of its own
@pytest.mark.parametrize(
    "kind",
    [
        "frames",
        pytest.param("connection", marks=pytest.mark.variant),
        pytest.param("file opened for reading", marks=pytest.mark.variant),
    ],
)
def test_c420_a_duckdb_query_reaches_no_file_setting_extension_or_variable(
    kind, tables, shop, tmp_path
):
    """DuckDB itself refuses each query, in a process that can write no file; the data stays unchanged."""
    data, database = (
        (tables, "") if kind == "frames" else (NotebookData({"shop": shop}, 100, 10.0), "shop")
    )
    if kind.startswith("file"):
        shop.close()
        con = duckdb.connect(tmp_path / "shop.duckdb", read_only=True)
        data = NotebookData({"shop": con}, 100, 10.0)
    out = tmp_path / "out"
    given = []
    for sql in HOSTILE if kind == "frames" else HOSTILE[::3]:
        try:
            given.append((sql, str(data.query(sql.replace("@out", str(out)), database))))
        except QueryError:
            continue
    assert given == []
    assert not out.exists()
    if kind == "connection":
        assert shop.execute("SELECT count(*) FROM orders").fetchall() == [(300,)]
        settings = "SELECT current_setting('enable_external_access'), current_setting('lock_configuration')"
        assert shop.execute(settings).fetchall() == [(True, False)]


ENDLESS = {
    "a cross join": "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "a recursion": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n",
}
LARGE = {
    "a giant value": "SELECT repeat('x', 1000000000)",
    "a giant list": "SELECT list(range) FROM range(500000000)",
    "a sort": "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY hash(range)) AS r FROM range(500000000))",
}


@pytest.mark.parametrize("sql", [*ENDLESS.values(), *LARGE.values()], ids=[*ENDLESS, *LARGE])
def test_c420_a_duckdb_query_is_bounded_in_time_and_memory(sql, begun):
    """The query's process ends, after a time limit or an error about memory; the next query works."""
    data = NotebookData({"sales": pd.DataFrame(DATA)}, 5, 20.0 if sql in LARGE.values() else 0.5)
    with pytest.raises(QueryError, match=r"took longer|of memory"):
        data.query(sql, "")
    assert [process.poll() is not None for process in begun] == [True]
    assert data.query("SELECT count(*) AS n FROM sales", "").rows == [(3,)]


async def test_c420_a_duckdb_connection_is_read_through_copies_and_a_file_in_place(
    shop, tmp_path, monkeypatch
):
    """Tables, schemas and views can be read, with new writes; large tables are not copied, and no copy stays."""
    monkeypatch.setattr(duck.tempfile, "tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    tools = nb.notebook_tools(shop)
    assert 'shop\tdatabase\tDuckDB\t3 tables\tcosts, orders, old."odd one"' in await text_to_model(
        tools, "list_data"
    )
    assert 'old."odd one"\ta\tINTEGER' in await text_to_model(tools, "describe_data", name="shop")
    assert await text_to_model(tools, "query_data", sql="SELECT cost FROM costs") == "cost\n7"
    assert await text_to_model(tools, "head_data", name='shop.old."odd one"') == "a\n1"
    shop.execute("INSERT INTO orders VALUES (-1, 'new')")
    count = 'SELECT count(*) AS n, min(item) AS i FROM orders JOIN old."odd one" ON true'
    assert await text_to_model(tools, "query_data", sql=count) == "n\ti\n301\titem 0"
    wrong = await text_to_model(tools, "query_data", sql="SELECT itm FROM orders")
    assert 'Did you mean \'item\'? "orders" has "id", "item"' in wrong
    assert "Did you mean 'orders'?" in await text_to_model(
        tools, "query_data", sql="SELECT * FROM order_s"
    )
    monkeypatch.setattr(duck, "MAX_CELLS", 500)
    assert "read_only=True" in await text_to_model(tools, "query_data", sql="SELECT id FROM orders")
    assert "0\titem 0\n" in await text_to_model(tools, "head_data", name="shop.orders", rows=2)
    assert "Did you mean 'orders'?" in await text_to_model(tools, "head_data", name="shop.order")
    assert not [*os.scandir(tmp_path / "copies")]
    shop.close()
    with closing(duckdb.connect(tmp_path / "shop.duckdb", read_only=True)) as con:
        tools = nb.notebook_tools(con)
        assert (
            await text_to_model(tools, "query_data", sql="SELECT count(id) AS n FROM orders")
            == "n\n301"
        )


async def test_c420_an_approval_shows_the_result_of_a_duckdb_query(tables):
    """The preview is the query's result."""
    query = nb.notebook_tools(sales=pd.DataFrame(DATA), approval=True)[-1]
    shown = query.options.preview(query.parse({"sql": "SELECT month FROM sales"}))
    assert "<td>jan</td>" in shown._repr_html_()
    with pytest.raises(QueryError, match="one SELECT"):
        query.options.preview(query.parse({"sql": "DROP TABLE sales"}))


def test_an_unsupported_duckdb_object_is_refused_with_an_alternative():
    """For example a relation or a lazy frame."""
    for value, said in (
        (duckdb.sql("SELECT 1"), r"Pass the connection, or its \.df\(\)"),
        (pl.LazyFrame({"a": [1]}), r"Call its \.collect\(\)"),
    ):
        with pytest.raises(nb.errors.UsageError, match=said):
            nb.notebook_tools(data=value)


def test_only_a_query_loads_duckdb():
    """Creating the tools of a frame does not import it."""
    code = (
        "import sys, pandas as pd, nbagent as nb; t = nb.notebook_tools(a=pd.DataFrame({'a': [1]})); "
        "assert 'duckdb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


NAMED = {
    "SELECT count(*) FROM orders": ["orders"],
    "SELECT count(*) FROM orders JOIN costs USING (n)": ["costs", "orders"],
    "FROM main.orders NATURAL JOIN costs": ["costs", "orders"],
    'SELECT a FROM old."odd one"': ["odd one"],
    "WITH x AS (FROM Orders) SELECT n FROM x WHERE EXISTS (FROM costs)": ["costs", "orders"],
    "SELECT orders FROM costs AS orders -- not FROM orders, 'orders'": ["costs"],
    "SELECT 'orders' AS reorders, '\"table_name\":\"orders\"' AS t FROM costs": ["costs"],
    "FROM query_table(['orders', 'costs'])": ["costs", "orders"],
    "FROM query('SELECT * FROM query_table(''orders'')')": ["orders"],
    "SUMMARIZE orders": ["orders"],
    f"SELECT {'(' * 300}n{' + 1)' * 300} AS n FROM orders": ["orders"],
    "SELECT 1": [],
}


@pytest.mark.parametrize("sql", NAMED)
def test_c420_only_the_tables_that_a_query_names_are_copied(sql, monkeypatch):
    """A view of the user's connection runs only if it is a table of the query, not for a part of a word."""
    copied = []
    copy = duck.Duck._copied

    def noted(self, cursor, widths, path, most):
        copied.extend(sorted(table for _, table in widths))
        return copy(self, cursor, widths, path, most)

    monkeypatch.setattr(duck.Duck, "_copied", noted)
    with closing(duckdb.connect()) as con:
        con.execute("CREATE VIEW orders AS SELECT 1 AS n; CREATE TABLE costs AS SELECT 1 AS n")
        con.execute('CREATE SCHEMA old; CREATE TABLE old."odd one" AS SELECT 1 AS a')
        con.execute("CREATE VIEW r AS SELECT error('it ran'); CREATE VIEW rd AS FROM r")
        assert NotebookData({"shop": con}, 5, 20.0).query(sql, "shop").rows
    assert copied == NAMED[sql]


async def test_c420_a_view_that_would_change_the_database_is_not_read():
    """A view with ``nextval`` advances no sequence of the user, and the error names the view."""
    with closing(duckdb.connect()) as con:
        con.execute("CREATE SEQUENCE ids; CREATE VIEW fresh AS SELECT nextval('ids') AS id")
        tools = nb.notebook_tools(con)
        for name, arguments in (
            ("query_data", {"sql": "FROM fresh"}),
            ("head_data", {"name": "con.fresh"}),
        ):
            said = await text_to_model(tools, name, **arguments)
            assert "fresh of con cannot be copied" in said
        assert con.execute("SELECT nextval('ids')").fetchall() == [(1,)]


EXACT = {
    f"{2**127 - 1}::HUGEINT": ("HUGEINT", f"{2**127 - 1}"),
    "'b'::ENUM('b', 'a')": ("ENUM('b', 'a')", "b"),
    "INTERVAL '1 year 2 months 0.000001 seconds'": ("INTERVAL", "1 year 2 months 00:00:00.000001"),
    "'10:00:00.123456+02:30'::TIMETZ": ("TIME WITH TIME ZONE", "10:00:00.123456+02:30"),
    "'2020-01-01 00:00:00.123456789'::TIMESTAMP_NS": (
        "TIMESTAMP_NS",
        "2020-01-01 00:00:00.123456789",
    ),
    "'infinity'::TIMESTAMP": ("TIMESTAMP", "infinity"),
    "['-infinity'::DATE]": ("DATE[]", "[-infinity]"),
    "union_value(num := 2)": ("UNION(num INTEGER)", "2"),
    "'101'::BIT": ("BIT", "101"),
    "[1.5, 2]::FLOAT[2]": ("FLOAT[2]", "(1.5, 2.0)"),
}


def test_values_of_a_duckdb_database_keep_their_types_and_are_exact():
    """No id becomes a float, no month 30 days, no infinity a year, and an Enum keeps its order."""
    with closing(duckdb.connect()) as con:
        names = [f"c{number}" for number in range(len(EXACT))]
        columns = ", ".join(f"{sql} AS {name}" for sql, name in zip(EXACT, names, strict=True))
        con.execute(
            f"CREATE TABLE t AS SELECT {columns}; INSERT INTO t SELECT * REPLACE ('a' AS c1) FROM t"
        )
        kinds = ", ".join(f"typeof({name})" for name in names)
        found = NotebookData({"shop": con}, 5, 20.0)
        (first, _) = found.query(f"SELECT {kinds}, * FROM t ORDER BY c1", "shop").rows
    assert [*zip(first, map(str, first[len(EXACT) :]), strict=False)] == [*EXACT.values()]
