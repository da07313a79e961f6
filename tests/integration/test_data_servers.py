"""``nb.notebook_tools`` on a real PostgreSQL server can only read, whatever a query contains."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

import nbagent as nb
from nbagent.data import servers
from nbagent.data.reading import QueryError
from nbagent.data.tools import NotebookData
from tests.asked import text_to_model
from tests.postgres import server

SETUP = """
CREATE TABLE orders (id int, item text, price numeric, at timestamptz, more jsonb, raw bytea);
INSERT INTO orders SELECT n, 'item ' || n, n * 1.1, '2026-01-02 03:04:05+00', '{"a": {"b": 1}}', '\\x00ff'
FROM generate_series(1, 300) n;
CREATE VIEW large AS SELECT * FROM orders WHERE id > 100;
CREATE SCHEMA old; CREATE TABLE old."odd one" (a int);
CREATE SEQUENCE numbers;
CREATE FUNCTION sneaky() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN DELETE FROM orders; RETURN 1; END $$;
CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader;
CREATE ROLE writer LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;
GRANT ALL ON SEQUENCE numbers TO writer;
"""


@pytest.fixture(scope="module")
def place():
    """A server with the tables of a shop."""
    with server() as found:
        engine = engine_of(found, "tester")
        with engine.begin() as connection:
            for statement in SETUP.split(";\n"):
                connection.exec_driver_sql(statement)
        engine.dispose()
        yield found


def engine_of(place, user, **options):
    """An engine for a user, without a connection pool."""
    url = f"postgresql+psycopg://{user}@/postgres?host={place}"
    return sa.create_engine(url, poolclass=sa.NullPool, **options)


@pytest.fixture
def shop(place):
    """An engine of a user who may write."""
    return engine_of(place, "writer")


def test_numbers_of_any_length_are_exact_also_in_json(place):
    """Python refuses an integer of 5,000 digits, and rounds floats."""
    found = NotebookData({"shop": engine_of(place, "reader")}, 5, 20.0)
    sql = """SELECT trunc(10::numeric ^ 5000), '{"a": 1.50, "b": ["1", 9007199254740993]}'::jsonb"""
    (row,) = found.query(sql, "").rows
    assert [row[0][:3], row[1]] == ["100", '{"a": 1.50, "b": ["1", 9007199254740993]}']


@pytest.mark.parametrize("options", [{}, {"isolation_level": "AUTOCOMMIT"}])
async def test_c421_a_postgresql_database_is_listed_described_and_queried(place, options):
    """Queries use PostgreSQL's dialect and any type of value; errors suggest existing names."""
    shop = engine_of(place, "reader", **options)
    tools = nb.notebook_tools(shop)
    assert "The SQL dialect is PostgreSQL" in tools[-1].description
    listed = await text_to_model(tools, "list_data")
    assert 'shop\tdatabase\tPostgreSQL\t3 tables\tlarge, old."odd one", orders' in listed
    described = await text_to_model(tools, "describe_data", name="shop")
    assert "orders\tprice\tnumeric" in described
    assert "300\titem 300\t330.0\t2026-01-02" in await text_to_model(
        tools, "query_data", sql="SELECT * FROM large ORDER BY id DESC"
    )
    same = await text_to_model(
        tools,
        "query_data",
        sql="SELECT 1 AS a, 'x'::text AS a, NULL AS b, more FROM orders LIMIT 1",
    )
    assert same == 'a\ta\tb\tmore\n1\tx\t\t{"a": {"b": 1}}'
    assert await text_to_model(
        tools, "query_data", sql="SELECT id FROM orders WHERE item LIKE '%x'"
    ) == ("id\n(no rows)")
    assert await text_to_model(tools, "head_data", name='shop.old."odd one"') == "a\n(no rows)"
    many = await text_to_model(tools, "query_data", sql="SELECT id FROM orders ORDER BY id")
    assert many.endswith("\n100\n(the first 100 rows; there are more)")
    wrong = await text_to_model(tools, "query_data", sql="SELECT o.itm FROM orders o")
    assert "no such column: itm. Did you mean 'item'?" in wrong
    assert "Did you mean 'orders'?" in await text_to_model(
        tools, "query_data", sql="SELECT * FROM order_s"
    )


HOSTILE = [
    "INSERT INTO orders (id) VALUES (1)",
    "UPDATE orders SET item = 'x'",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE t (a int)",
    "CREATE TEMP TABLE t (a int)",
    "WITH x AS (DELETE FROM orders RETURNING 1) SELECT * FROM x",
    "SELECT 1; DELETE FROM orders",
    "SELECT 1; COMMIT; DELETE FROM orders",
    "COMMIT",
    "ROLLBACK",
    "SELECT * INTO t FROM orders",
    "SELECT * FROM orders FOR UPDATE",
    "SELECT nextval('numbers')",
    "SELECT setval('numbers', 5)",
    "SELECT sneaky()",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT set_config('role', 'tester', true)",
    "SET ROLE tester",
    "SET TRANSACTION READ WRITE",
    "COPY orders TO '/tmp/evil'",
    "COPY orders TO PROGRAM 'true'",
    "COPY orders FROM '/etc/passwd'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT query_to_xml('DELETE FROM orders', true, true, '')",
    "DO $$ BEGIN DELETE FROM orders; END $$",
    "CALL nothing()",
    "LISTEN x",
    "LOCK TABLE orders",
    "VACUUM",
    "DECLARE c CURSOR FOR SELECT 1",
    "$nbagent$ DELETE FROM orders",
    "",
    "-- nothing",
    "SELECT '\0'",
]


@pytest.mark.parametrize("options", [{}, {"isolation_level": "AUTOCOMMIT"}])
def test_c421_a_postgresql_query_that_does_more_than_read_is_refused_by_the_server(place, options):
    """This holds for a user who may write and with autocommit; nothing changes, and no session remains."""
    data = NotebookData({"shop": engine_of(place, "writer", **options)}, 100, 10.0)
    given = []
    for sql in HOSTILE:
        try:
            given.append((sql, str(data.query(sql, ""))))
        except QueryError:
            continue
    assert given == []
    data.query("SELECT pg_advisory_lock(5), set_config('statement_timeout', '0', false)", "")
    with contextlib.suppress(QueryError):  # older servers run this, but roll it back
        data.query("SELECT lo_create(1)", "")
    with engine_of(place, "tester").connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM orders").scalar() == 300
        assert (
            connection.exec_driver_sql("SELECT count(*) FROM pg_largeobject_metadata").scalar() == 0
        )
        assert connection.exec_driver_sql("SELECT is_called FROM numbers").scalar() is False
        assert connection.exec_driver_sql("SELECT pg_try_advisory_lock(5)").scalar() is True


def test_c421_a_user_who_can_reach_files_of_the_server_is_refused(place):
    """A superuser can reach files even in a read-only transaction; the error suggests another user."""
    with pytest.raises(QueryError, match="GRANT pg_read_all_data TO reader"):
        NotebookData({"shop": engine_of(place, "tester")}, 10, 5.0).query("SELECT 1", "")


def test_c421_a_postgresql_query_is_bounded_in_time_rows_and_size(shop):
    """The server applies the limits before it sends rows, even if the query lifts the time limit."""
    data = NotebookData({"shop": shop}, 1_000, 0.5)
    for sql in (
        "SELECT pg_sleep(60)",
        "SELECT set_config('statement_timeout', '0', true), pg_sleep(60)",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
    ):
        with pytest.raises(QueryError, match=r"longer than 0\.5 seconds"):
            data.query(sql, "")
    with pytest.raises(QueryError, match="Leave its large columns out of the query"):
        NotebookData({"shop": shop}, 10, 30.0).query("SELECT repeat('x', 20000000)", "")
    found = NotebookData({"shop": shop}, 1_000, 30.0).query(
        "SELECT repeat('x', 900000) AS x FROM generate_series(1, 1000)", ""
    )
    assert len(found.rows) < 10
    assert found.note.endswith("there are more")
    assert all(len(x) <= servers.MAX_VALUE_CHARS for (x,) in found.rows)


def test_c422_an_engine_of_another_database_needs_the_word_of_the_person_that_it_is_read_only(
    place,
):
    """Without ``reads_only=True``, the engine is refused; with it, queries are rolled back and limited."""
    engine = engine_of(place, "reader")
    engine.url = SimpleNamespace(get_backend_name=lambda: "oracle", database="x")
    with pytest.raises(nb.errors.UsageError, match=r"database of oracle.*reads_only=True"):
        nb.notebook_tools(engine)
    data = NotebookData({"shop": engine}, 2, 0.5, reads_only=True)
    assert type(data.databases["shop"]) is servers.Server
    assert "orders" in data.databases["shop"].tables()
    found = data.query("SELECT id FROM orders WHERE item LIKE '%1%' ORDER BY id", "")
    assert (found.rows, found.note) == ([(1,), (10,)], "the first 2 rows; there are more")
    with pytest.raises(QueryError, match="The query failed"):
        data.query("SELECT nothing FROM orders", "")
    with pytest.raises(QueryError, match="took longer"):
        data.query("SELECT pg_sleep(4)", "")
    time.sleep(4)  # the abandoned query and its thread end
    writer = engine_of(place, "writer")
    writer.url = engine.url
    with pytest.raises(QueryError, match=r"no rows|syntax error"):
        NotebookData({"shop": writer}, 2, 5.0, reads_only=True).query("DELETE FROM orders", "")
    with writer.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM orders").scalar() == 300


def test_an_async_engine_is_refused_with_its_sync_replacement(place):
    """Tools in a thread need a synchronous engine."""
    made = SimpleNamespace(sync_engine=engine_of(place, "reader"))
    with pytest.raises(nb.errors.UsageError, match="create_engine"):
        nb.notebook_tools(shop=made)
