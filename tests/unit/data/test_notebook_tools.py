"""Tools over the person's data: a query can read only the passed data. DuckDB reads frames: ``test_duck.py``."""

from __future__ import annotations

import importlib.util
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import create_engine

import nbagent as nb
from nbagent.data import databases, worker
from nbagent.data.reading import QueryError, run_worker
from nbagent.data.table import MAX_CELL, MAX_TEXT
from nbagent.data.tools import NotebookData
from nbagent.data.worker import MAX_MEMORY, MAX_RESULT_CHARS, MAX_VALUE
from tests.asked import text_to_model

SALES = {
    "month": ["jan", "feb", "mar"],
    "amount": [3.5, None, 8.0],
    "day": pd.Timestamp("2026-01-02"),
}
OTHERS = "secret"


def in_memory(sql, seconds=5.0):
    """The result of a query over an empty database."""
    return run_worker({"address": None, "sql": sql, "rows": 5, "seconds": seconds})


@pytest.fixture
def sales():
    """A small DataFrame."""
    return pd.DataFrame(SALES)


@pytest.fixture
def shop(tmp_path):
    """A connection to a file with one table."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, item TEXT)")
        connection.executemany(
            "INSERT INTO orders VALUES (?, ?)", [(n, f"item {n}") for n in range(300)]
        )
        connection.commit()
        yield connection


async def test_the_tools_list_the_data_under_the_names_of_the_variables(sales, shop):
    """Names come from the calling code; the four tools work with frames and databases."""
    tools = nb.notebook_tools(sales, shop, totals=sales.groupby("month").sum(numeric_only=True))
    for wrong, said in (
        ({"aproval": True}, "no option 'aproval'. Did you mean 'approval'"),
        ({"allow": True}, "no option 'allow', and cannot read a bool"),
    ):
        with pytest.raises(nb.errors.UsageError, match=said):
            nb.notebook_tools(sales, **wrong)
    with pytest.raises(nb.errors.UsageError, match="without quotes: sales"):
        nb.notebook_tools("sales")
    [query] = [one for one in tools if one.name == "query_data"]
    assert 'Available: "sales" ("month", "amount", "day"), "totals"' in query.description
    assert 'the database "shop".' in query.description
    listed = await text_to_model(tools, "list_data")
    assert "sales\ttable\tDuckDB\t3 rows\tmonth, amount, day" in listed
    assert "totals\ttable\tDuckDB\t3 rows\tmonth, amount" in listed
    assert "shop\tdatabase\tSQLite\t1 tables\torders" in listed
    assert "amount\tfloat64\t2\t2\t3.5\t8.0" in await text_to_model(
        tools, "describe_data", name="sales"
    )
    assert "orders\titem\tTEXT" in await text_to_model(tools, "describe_data", name="shop")
    assert "jan\t3.5\t2026-01-02 00:00:00\n(the first 1 of 3 rows)" in await text_to_model(
        tools, "head_data", name="sales", rows=1
    )
    assert "0\titem 0\n1\titem 1" in await text_to_model(
        tools, "head_data", name="shop.orders", rows=2
    )


async def test_one_select_joins_frames_and_another_reads_a_database(sales, shop):
    """All frames are tables of one database, with their current values; a connection is read directly."""
    names = pd.DataFrame({"month": ["jan"], "long": ["January"]})
    tools = nb.notebook_tools(sales, names, shop)
    joined = "SELECT long, amount FROM sales JOIN names USING (month)"
    assert await text_to_model(tools, "query_data", sql=joined) == "long\tamount\nJanuary\t3.5"
    sales.loc[0, "amount"] = 100.0
    assert await text_to_model(tools, "query_data", sql=joined) == "long\tamount\nJanuary\t100.0"
    many = await text_to_model(tools, "query_data", sql="SELECT id FROM orders", database="shop")
    assert many.endswith("99\n(the first 100 rows; there are more)")


HAS = '"sales" has "month", "amount", "day"'
MISTAKES = [
    ("SELECT amout FROM sales", "", f"no such column: amout. Did you mean 'amount'? {HAS}"),
    (
        "SELECT unit price FROM orders",
        "",
        'no such column: unit; "orders" has "unit price", "order", "say ""so"""',
    ),
    ("SELECT s.kost FROM sales s", "", f"no such column: kost; {HAS}"),
    (
        "SELECT * FROM sale",
        "",
        'no such table: sale. Did you mean \'sales\'? Available: "sales", "orders"',
    ),
    ("SELECT * FROM df", "", 'no such table: df. Available: "sales", "orders"'),
    ("SELECT itm FROM orders", "shop", 'Did you mean \'item\'? "orders" has "id", "item"'),
    ("SELECT * FROM order_s", "shop", "Did you mean 'orders'? Available: \"orders\""),
]


@pytest.mark.parametrize(("sql", "database_", "said"), MISTAKES)
async def test_a_query_with_an_unknown_name_gets_the_known_names(sql, database_, said, sales, shop):
    """Names are quoted as in SQL, for the mentioned tables or all, so that the model's next query can work."""
    orders = pd.DataFrame({"unit price": [1], "order": [2], 'say "so"': [3]})
    tools = nb.notebook_tools(sales, shop, orders=orders)
    assert said in await text_to_model(tools, "query_data", sql=sql, database=database_)


async def test_invisible_differences_in_values_are_shown():
    """An empty string differs from a missing value, and a space at an end is visible."""
    dirt = pd.DataFrame({"region": ["North", "North ", "", None, "a\tb  c", 'say "so"', "\u202e"]})
    tools = nb.notebook_tools(dirt)
    shown = 'region\nNorth\n"North "\n""\n\n"a\\tb  c"\nsay "so"\n"\\u202e"'
    assert await text_to_model(tools, "query_data", sql="SELECT region FROM dirt") == shown
    assert await text_to_model(tools, "head_data", name="dirt", rows=7) == shown
    dirt["region"] = [np.array([0.1234567890123, 2])] + [None] * 6  # which numpy's own text rounds
    assert "[0.1234567890123" in await text_to_model(tools, "head_data", name="dirt", rows=1)


HOSTILE = [
    "INSERT INTO orders VALUES (1, 'x')",
    "UPDATE orders SET item = 'x'",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)",
    "ALTER TABLE orders RENAME TO gone",
    "WITH x AS (SELECT 1) DELETE FROM orders",
    "SELECT 1; DELETE FROM orders",
    "ATTACH DATABASE '/tmp/evil.db' AS evil",
    "ATTACH DATABASE ':memory:' AS evil",
    "VACUUM INTO '/tmp/evil.db'",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA writable_schema = ON",
    "SELECT load_extension('/tmp/evil.so')",
    "SELECT writefile('/tmp/evil', 'x')",
    "SELECT readfile('/etc/passwd')",
    "BEGIN IMMEDIATE",
    "REINDEX",
    "UPDATE sqlite_master SET sql = 'x'",
    "PRAGMA page_size = 512",
    "ANALYZE",
    "EXPLAIN DELETE FROM orders; DELETE FROM orders",
    "__import__('os').system('true')",
    "@OTHERS",
    "SELECT @OTHERS",
    "SELECT OTHERS",
    "SELECT * FROM globals()",
    "",
    "-- nothing",
    "SELECT '\0'; DROP TABLE orders",
    "SELECT zeroblob(2000000000)",
]


async def test_c238_a_query_that_does_more_than_read_is_refused(sales, shop):
    """SQLite itself refuses the query before it runs; the model gets the reason, and nothing changes."""
    before = list(shop.execute("SELECT * FROM orders"))
    asked = [nb.ScriptedModel.call("query_data", sql=sql, database="shop") for sql in HOSTILE]
    tools = nb.notebook_tools(shop, orders=sales)
    run = nb.Agent(nb.ScriptedModel([asked, "done"]), tools=tools).run("go", show=False)
    await run
    said = {call.input["sql"]: call.output for call in run.calls["query_data"]}
    refused = ("The tool query_data failed", "The arguments do not match the schema of query_data")
    assert [sql for sql in HOSTILE if not said[sql].startswith(refused)] == []
    assert not any(OTHERS in text for text in said.values())
    assert list(shop.execute("SELECT * FROM orders")) == before
    shop.execute("INSERT INTO orders VALUES (-1, 'still mine')")
    shop.rollback()


async def test_c239_an_endless_query_is_stopped_and_a_huge_result_is_bounded(shop):
    """The limits are time, rows, the size of a cell and the size of the whole text."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
    tools = nb.notebook_tools(shop, seconds=0.3, rows=5_000)
    begun = time.monotonic()
    said = await text_to_model(tools, "query_data", sql=endless.format("count(*)"))
    assert "took longer than 0.3 seconds" in said
    assert time.monotonic() - begun < 20
    said = await text_to_model(
        tools, "query_data", sql=endless.format("hex(zeroblob(2000)) AS wide")
    )
    assert len(said) < MAX_TEXT + 500
    assert "more rows are too long to show" in said
    assert "the first 5,000 rows; there are more" in said


LONG = "replace(hex(zeroblob({})), '0', '{}')"
DOUBLED = "".join(f", t{n} AS (SELECT p.x FROM t{n - 1} p, t{n - 1} q)" for n in range(1, 25))
ENDLESS_STEPS = {
    "a function over long texts": f"SELECT trim({LONG.format(400_000, 'b')}, {LONG.format(35_000, 'a')} || 'b')",
    "a statement that is made larger than memory": f"WITH t0 AS (SELECT 1 AS x){DOUBLED} SELECT * FROM t24",
}


@pytest.mark.parametrize("sql", ENDLESS_STEPS.values(), ids=ENDLESS_STEPS)
def test_c239_a_query_is_stopped_wherever_it_is(sql, begun):
    """When the error is raised, the query's process has ended and left no thread here."""
    threads = threading.active_count()
    with pytest.raises(QueryError, match=r"it was stopped|of memory"):
        in_memory(sql, seconds=0.2)
    assert [process.poll() is not None for process in begun] == [True]
    assert threading.active_count() <= threads  # a thread of an earlier test may end meanwhile
    assert in_memory("SELECT 1 AS one").rows == [(1,)]


def test_c239_an_orphaned_query_process_ends_too():
    """The system ends the process at its time limit, even if the kernel was killed."""
    asked = {"address": None, "rows": 5, "seconds": 0.2, "sql": next(iter(ENDLESS_STEPS.values()))}
    command = [sys.executable, "-I", "-S", worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.close()
        assert process.wait(30) == -signal.SIGALRM


PEAK = """
import json, re, sys
sys.path.insert(0, {folder!r})
import worker
given = worker.answer(json.loads({asked!r}), b"")
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(json.dumps([int(peak[1]) * 1024, given.get("error", "")]))
"""
LARGE = {
    "a row with many large values": ", ".join(["randomblob(1000000)"] * 400),
    "a function of many large values": f"max({', '.join(['randomblob(1000000)'] * 120)})",
    "text that is four times as large in Python": ", ".join(
        ["hex(zeroblob(400000)) || char(128512)"] * 40
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("columns", LARGE.values(), ids=LARGE)
def test_c239_a_row_uses_bounded_memory_before_it_is_created(columns):
    """SQLite counts the values before Python gets the row, in a process of its own."""
    asked = json.dumps({"address": None, "rows": 400, "seconds": 20, "sql": f"SELECT {columns}"})
    program = PEAK.format(folder=str(Path(worker.__file__).parent), asked=asked)
    command = [sys.executable, "-I", "-S", "-c", program]
    peak, error = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert peak < 30_000_000 + 2 * MAX_MEMORY
    assert "of memory" in error or columns == LARGE["text that is four times as large in Python"]


@pytest.mark.parametrize("many", [1, 25])
async def test_c239_large_values_are_bounded_in_total(shop, many):
    """A hundred rows of large values take no more memory than a table may."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
    wide = ", ".join(f"hex(zeroblob({MAX_VALUE // 2 - 10})) AS b{n}" for n in range(many))
    tables = NotebookData({"shop": shop}, rows=100, seconds=30.0)
    found = tables.query(endless.format(wide), "")
    assert sum(len(value) for row in found.rows for value in row) <= MAX_RESULT_CHARS
    assert found.note.endswith("rows; there are more")
    with pytest.raises(QueryError, match=r"Leave out its column, or select length"):
        tables.query(f"SELECT zeroblob({MAX_VALUE + 1})", "")


def test_a_long_value_is_shown_with_its_beginning_and_its_end():
    """The text has the value's start, and quotes show a space at the end."""
    for text, told in (
        ("é" * 5_000, "é" * (MAX_CELL - 1) + "…"),
        ("é" * 5_000 + " ", f'"{"é" * (MAX_CELL - 1)}…"'),
        ("😀" * 500, "😀" * (MAX_CELL - 1) + "…"),
    ):
        found = in_memory(f"SELECT '{text}' AS v, x'00ff' AS b")
        assert str(found) == f"v\tb\n{told}\t2 bytes"


def test_data_that_cannot_be_read_safely_is_refused_when_the_tools_are_created(sales):
    """Refused are unnamed data, databases that cannot be protected, no data, and other objects."""
    with pytest.raises(nb.errors.UsageError, match="is not in a variable needs a name"):
        nb.notebook_tools(pd.DataFrame(SALES))
    for value, said in [
        ("sales.csv", r"Got a str .*Open the file first: pd.read_csv\(path\)"),
        (sales["amount"], r"Got a Series .*Call its \.to_frame\(\)"),
        ([sales], r"Got a list .*Pass each one separately"),
        (7, r"Got a int .*notebook_tools reads tables \(pandas, polars, Arrow\) and databases$"),
    ]:
        with pytest.raises(nb.errors.UsageError, match=said):
            nb.notebook_tools(value)
    with pytest.raises(nb.errors.UsageError, match="Got a str"):
        nb.notebook_tools(password="hunter2")
    with pytest.raises(nb.errors.UsageError, match="needs data"):
        nb.notebook_tools()
    with pytest.raises(nb.errors.UsageError, match=r"does not tell two tables named Sales apart"):
        nb.notebook_tools(sales=sales, Sales=sales)
    with (
        closing(sqlite3.connect(":memory:")) as alone,
        pytest.raises(nb.errors.UsageError, match="check_same_thread=False"),
    ):
        nb.notebook_tools(alone)

    class Postgres:
        """A connection of another database."""

        def cursor(self):
            raise AssertionError

        commit = cursor

    with pytest.raises(nb.errors.UsageError, match="cannot guarantee that"):
        nb.notebook_tools(warehouse=Postgres())


async def test_each_kind_of_table_of_a_sqlite_database_is_described_and_read(tmp_path):
    """Generated columns, full text and JSON; a view whose table is gone hides no other; also by a URI and when locked."""
    address = f"file:{tmp_path}/odd.db"
    with closing(sqlite3.connect(address, uri=True)) as con:
        con.executescript(
            "CREATE TABLE t (a INT, twice INT AS (2 * a)); INSERT INTO t VALUES (7);"
            "CREATE VIEW gone AS SELECT * FROM dropped;"
            "CREATE VIRTUAL TABLE words USING fts5(word); INSERT INTO words VALUES ('hello')"
        )
        tools = nb.notebook_tools(con, engine=create_engine(f"sqlite:///{address}?uri=true"))
        assert "t\ttwice\tINT" in await text_to_model(tools, "describe_data", name="engine")
        for sql, told in (
            ("SELECT twice FROM t", "twice\n14"),
            ("SELECT value FROM json_each('[1]')", "value\n1"),
            ("SELECT word FROM words WHERE words MATCH 'hello'", "word\nhello"),
            ("SELECT twic FROM t", "no such column: twic. Did you mean 'twice'? \"t\" has"),
        ):
            assert told in await text_to_model(tools, "query_data", sql=sql, database="con")
        con.executescript("BEGIN EXCLUSIVE")
        locked = await text_to_model(tools, "list_data")
        assert "The database cannot be read: database is locked" in locked


async def test_an_in_memory_database_is_read_and_not_changed():
    """A query reads a copy, so the person's connection is never touched."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as con:
        con.execute("CREATE TABLE t (a)")
        con.execute("INSERT INTO t VALUES (7)")
        con.commit()
        tools = nb.notebook_tools(con)
        assert await text_to_model(tools, "query_data", sql="SELECT a FROM t") == "a\n7"
        con.execute("INSERT INTO t VALUES (8)")
        con.commit()
        assert await text_to_model(tools, "query_data", sql="SELECT max(a) AS a FROM t") == "a\n8"


async def test_uncommitted_changes_in_an_in_memory_database_are_reported_at_once(
    monkeypatch,
):
    """SQLite could not copy it, and the copy would wait forever: each tool says what to do."""
    monkeypatch.setattr(databases, "_WAIT_S", 0.0)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as con:
        con.execute("CREATE TABLE t (a)")
        con.execute("INSERT INTO t VALUES (7)")  # starts a transaction and leaves it open
        tools = nb.notebook_tools(con)
        for name, arguments in (
            ("list_data", {}),
            ("describe_data", {"name": "con"}),
            ("query_data", {"sql": "SELECT a FROM t"}),
        ):
            assert "con has uncommitted changes" in await text_to_model(tools, name, **arguments)
        con.commit()
        assert await text_to_model(tools, "query_data", sql="SELECT a FROM t") == "a\n7"


async def test_a_frame_without_columns_is_described_in_words(sales):
    """SQL has no such tables; queries of other frames still work."""
    tools = nb.notebook_tools(sales, nothing=pd.DataFrame())
    assert "nothing has no columns" in await text_to_model(
        tools, "query_data", sql="SELECT * FROM nothing"
    )
    assert (
        await text_to_model(tools, "query_data", sql="SELECT 1 AS one FROM sales LIMIT 1")
        == "one\n1"
    )


@pytest.mark.parametrize("missing", ["duckdb", "pyarrow"])
def test_tables_without_duckdb_are_refused_with_what_to_install(missing, sales, shop, monkeypatch):
    """One line names the extra; databases need no other library."""
    find = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == missing else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(nb.errors.UsageError) as told:
        nb.notebook_tools(sales)
    assert str(told.value) == (
        'SQL over DataFrames needs DuckDB and pyarrow: pip install "jupyter-nbagent[duckdb]"'
    )
    assert nb.notebook_tools(shop)


async def test_c240_an_approval_shows_the_result_of_a_query_and_can_be_changed(sales):
    """With ``approval=True`` only the query waits, and its preview is the query's result."""
    tools = nb.notebook_tools(sales, approval=True)
    asks = {tool.name: bool(tool.options.approval) for tool in tools}
    assert asks == {
        "list_data": False,
        "describe_data": False,
        "head_data": False,
        "query_data": True,
    }
    query = tools[-1]
    shown = query.options.preview(query.parse({"sql": "SELECT month FROM sales"}))
    assert "<td>jan</td>" in shown._repr_html_()
    with pytest.raises(QueryError, match="Only one SELECT"):
        query.options.preview(query.parse({"sql": "DELETE FROM sales"}))
    edited = {"sql": "SELECT count(*) AS n FROM sales", "database": ""}
    model = nb.ScriptedModel([nb.ScriptedModel.call("query_data", sql="SELECT 1"), "done"])
    run = nb.Agent(model, tools=tools).run("go", show=False, answers=[nb.Restart(edited)])
    await run
    assert run.calls["query_data"][-1].output.endswith("\nn\n3")
