"""DuckDB: queries over the user's connections, in a process without other access.

The user's own connection never runs a model's SQL. It copies the tables that a query names into a database in a
folder that only the user can read and that is deleted after the query. If the user opened a file with
``read_only=True``, the file is read directly.
"""

from __future__ import annotations

import importlib
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from .reading import MissingName, QueryError, run_worker
from .table import MAX_SCHEMA, Table, columns_table
from .worker import quoted

MAX_CELLS = 50_000_000
"""The maximum number of values that are copied for one query."""
_COLUMNS = """SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
WHERE NOT internal AND database_name = current_database() ORDER BY ALL"""


def ask_worker(
    sql: str,
    written: Callable[[set[str]], str] | None,
    *,
    rows: int,
    seconds: float,
    database: str | None = None,
) -> Table:
    """The result of one SELECT over a database, or over the one that ``written`` returns for the query's names.

    Raises:
        QueryError: the query is not allowed, fails, or exceeds a limit.
    """
    duckdb = importlib.import_module("duckdb")
    asked: dict[str, Any] = {
        "site": str(Path(str(duckdb.__file__)).parents[1]),
        "database": database,
        "sql": sql,
        "rows": rows,
        "seconds": seconds,
    }
    return run_worker(asked, written=written)


class Duck:
    """A DuckDB database. Of the user's connection, only cursors are used."""

    dialect = "DuckDB"

    def __init__(self, connection: Any, name: str) -> None:
        self._connection, self._name = connection, name

    def tables(self) -> list[str]:
        """The names of the database's tables and views, as SQL writes them."""
        return [*dict.fromkeys(_written(*row[:2]) for row in self._columns())]

    def described(self) -> Table:
        """A row for each column of the database's tables."""
        found = self._columns()[: MAX_SCHEMA + 1]
        return columns_table([(_written(*row[:2]), *row[2:]) for row in found])

    def head(self, table: str, *, rows: int, seconds: float) -> Table:
        """The first rows of a table; only these rows are copied.

        Raises:
            MissingName: there is no table with this name.
        """
        named = {_written(*row[:2]): (str(row[0]), str(row[1])) for row in self._columns()}
        known = {**{name: each for each in named.values() for name in each[1:]}, **named}
        if table not in known:
            raise MissingName(f"Unknown table {table!r}", "table", table)
        schema, name = known[table]
        sql = f"FROM {quoted(schema)}.{quoted(name)}"
        return self._run_query(sql, {known[table]: 0}, rows=rows, seconds=seconds, most=rows + 1)

    def query(self, sql: str, *, rows: int, seconds: float) -> Table:
        """The result of one SELECT over the tables that it names.

        Raises:
            QueryError: the query is not allowed, fails, or exceeds a limit.
        """
        widths = Counter((schema, table) for schema, table, *_ in self._columns())
        return self._run_query(sql, widths, rows=rows, seconds=seconds)

    def _run_query(
        self,
        sql: str,
        widths: Mapping[tuple[str, str], int],
        *,
        rows: int,
        seconds: float,
        most: int | None = None,
    ) -> Table:
        """The result of a query over those tables of ``widths`` that it names; at most ``most`` rows are copied."""
        with self._connection.cursor() as cursor:
            path, read_only = cursor.execute(
                "SELECT path, readonly FROM duckdb_databases() WHERE database_name = current_database()"
            ).fetchone()
            if path and read_only:
                return ask_worker(sql, None, rows=rows, seconds=seconds, database=path)
            with tempfile.TemporaryDirectory(prefix="nbagent-") as folder:

                def copied(names: set[str]) -> str:
                    used = {each: n for each, n in widths.items() if each[1].lower() in names}
                    timer = threading.Timer(seconds, cursor.interrupt)
                    timer.start()
                    try:
                        return self._copied(cursor, used, str(Path(folder) / "copy.duckdb"), most)
                    finally:
                        timer.cancel()

                return ask_worker(sql, copied, rows=rows, seconds=seconds)

    def _copied(
        self, cursor: Any, widths: Mapping[tuple[str, str], int], path: str, most: int | None
    ) -> str:
        """Copy each table into a new database; return its path."""
        errors = importlib.import_module("duckdb").Error
        remaining_cells, table = MAX_CELLS, ""
        copy, file = quoted(f"nbagent {uuid4().hex}"), path.replace("'", "''")
        limit = "" if most is None else f" LIMIT {most}"
        try:
            cursor.execute(f"ATTACH '{file}' AS {copy}")
            cursor.execute("BEGIN")
            for (schema, table), width in widths.items():
                name = f"{quoted(schema)}.{quoted(table)}"
                # first, as a transaction writes to one database: a view with nextval fails from here on
                cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {copy}.{quoted(schema)}")
                if most is None:
                    (height,) = cursor.execute(f"SELECT count(*) FROM {name}").fetchone()
                    remaining_cells -= height * width
                if remaining_cells < 0:
                    raise QueryError(
                        f"The tables in this query have more than {MAX_CELLS:,} values, which is too much to copy. Use fewer "
                        f"tables, or open {self._name} with duckdb.connect(path, read_only=True), which needs no copy"
                    )
                cursor.execute(f"CREATE TABLE {copy}.{name} AS FROM {name}{limit}")
            cursor.execute("COMMIT")
        except errors as error:
            first = str(error).partition("\n")[0]
            raise QueryError(
                f"The table {table} of {self._name} cannot be copied: {first:.300}"
            ) from error
        finally:
            with suppress(errors):  # nothing is open after the commit
                cursor.execute("ROLLBACK")
            cursor.execute(f"DETACH DATABASE IF EXISTS {copy}")
        return path

    def _columns(self) -> list[Any]:
        with self._connection.cursor() as cursor:
            return [*cursor.execute(_COLUMNS).fetchall()]


def _written(schema: str, table: str) -> str:
    named = [table] if schema == "main" else [schema, table]
    return ".".join(n if re.fullmatch(r"[A-Za-z_]\w*", n) else quoted(n) for n in named)
