"""Databases through SQLAlchemy: PostgreSQL, and other databases if the user confirms that they are read-only.

PostgreSQL runs a model's query as a cursor in a read-only transaction. A cursor is one statement that returns
rows, and the server prevents the statement from writing. The server also limits time, rows and their size.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from functools import partial
from typing import Any

from nbagent.core.base.incoming_json import TooManyParts, within_parts

from .reading import MissingName, QueryError
from .table import MAX_SCHEMA, Table, columns_table
from .worker import MAX_RESULT_CHARS, MAX_VALUE_CHARS, shown

_DIALECTS = {
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "mssql": "SQL Server",
    "postgresql": "PostgreSQL",
}
MAX_ROW = 1_000_000
"""Characters of one row, as JSON."""
_OPEN = """DO $nbagent$ DECLARE portal refcursor := 'nbagent'; BEGIN
  OPEN portal NO SCROLL FOR EXECUTE current_setting('nbagent.query');
END $nbagent$"""
_FETCH = f"""DO $nbagent$
DECLARE
  portal refcursor := 'nbagent';
  each record; line text; lines text := ''; number int := 0;
  most int := current_setting('nbagent.rows')::int;
BEGIN
  LOOP
    FETCH portal INTO each;
    EXIT WHEN NOT FOUND;
    number := number + 1;
    EXIT WHEN number > most;
    line := row_to_json(each)::text;
    IF length(line) > {MAX_ROW} THEN RAISE EXCEPTION 'nbagent: a row is too large'; END IF;
    IF length(lines) + length(line) > {MAX_RESULT_CHARS} THEN number := most + 1; EXIT; END IF;
    lines := lines || line || E'\\n';
  END LOOP;
  PERFORM set_config('nbagent.lines', lines, true), set_config('nbagent.number', number::text, true);
END $nbagent$"""
_MAY_DO_MORE = """SELECT bool_or(pg_has_role(person, role, 'MEMBER'))
FROM unnest(ARRAY[current_user, session_user]) AS person,
unnest(ARRAY['pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program']::name[]) AS role"""
_TABLE = (
    "CASE WHEN pg_table_is_visible(c.oid) THEN quote_ident(c.relname) "
    "ELSE quote_ident(n.nspname) || '.' || quote_ident(c.relname) END"
)
_COLUMNS = f"""SELECT {_TABLE} AS "table", a.attname AS "column", format_type(a.atttypid, a.atttypmod) AS "type"
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1, a.attnum"""
_MISSING = re.compile(
    r'(?P<kind>column|relation) "?(?:[^ ".]*\.)?(?P<name>[^"]+?)"? does not exist'
)


class _Pairs(list[Any]):
    """A JSON object as names and values; a name may occur twice."""


class _Exact(str):
    """A number, whose digits are more than Python's float or integer may have."""


class Server:
    """A database whose login can only read, as the person confirmed."""

    _patience = 1.0
    """Seconds to wait for a result, in addition to the query's time limit."""

    def __init__(self, engine: Any, name: str) -> None:
        self._engine, self._name = engine, name
        self.dialect = _DIALECTS.get(engine.dialect.name, engine.dialect.name)

    def tables(self) -> list[str]:
        """The names of the database's tables and views."""
        return [*dict.fromkeys(str(row[0]) for row in self.described().rows)]

    def described(self) -> Table:
        """A row for each column of the database's tables."""
        inspector = importlib.import_module("sqlalchemy").inspect(self._engine)
        rows: list[tuple[Any, ...]] = []
        for table in [*inspector.get_table_names(), *inspector.get_view_names()]:
            rows += [
                (table, each["name"], str(each["type"])) for each in inspector.get_columns(table)
            ]
            if len(rows) > MAX_SCHEMA:
                break
        return columns_table(rows)

    def head(self, table: str, *, rows: int, seconds: float) -> Table:
        """The first rows of a table."""
        quoted = self._engine.dialect.identifier_preparer.quote(table)
        return self.query(f"SELECT * FROM {quoted}", rows=rows, seconds=seconds)

    def query(self, sql: str, *, rows: int, seconds: float) -> Table:
        """The result of one statement; changes by the statement are rolled back.

        Raises:
            QueryError: the statement fails, or takes too long; a late result is ignored.
        """
        given: Future[Table] = Future()

        def work() -> None:
            try:
                given.set_result(self._queried(sql, rows, seconds))
            except BaseException as error:
                given.set_exception(error)

        threading.Thread(target=work, daemon=True, name="nbagent query").start()
        try:
            return given.result(seconds + self._patience)
        except Late:
            raise QueryError(
                f"The query took longer than {seconds:g} seconds. Select less"
            ) from None

    def _queried(self, sql: str, rows: int, seconds: float) -> Table:
        del seconds  # the caller stops waiting
        errors = importlib.import_module("sqlalchemy.exc")
        try:
            with self._engine.connect() as connection:
                streamed = connection.execution_options(
                    stream_results=True, max_row_buffer=rows + 1, no_parameters=True
                )
                result = streamed.exec_driver_sql(sql)
                with result:
                    if not result.returns_rows:
                        raise QueryError("The query returns no rows. Write one SELECT")
                    columns, found = [*result.keys()], result.fetchmany(rows + 1)
        except errors.SQLAlchemyError as error:
            raise QueryError(f"The query failed: {getattr(error, 'orig', error)!s:.500}") from error
        return _result_table(columns, [tuple(map(_short_value, row)) for row in found], rows)


class Postgres(Server):
    """A PostgreSQL database, with any driver."""

    _patience = (
        20.0  # the server stops the query; these seconds are for connecting and checking the user
    )

    def described(self) -> Table:
        """A row for each column of the database's tables."""
        return columns_table(self._queried(_COLUMNS, MAX_SCHEMA + 1, 10.0).rows)

    def head(self, table: str, *, rows: int, seconds: float) -> Table:
        """The first rows of a table; ``table`` is quoted as in SQL."""
        return self.query(f"SELECT * FROM {table}", rows=rows, seconds=seconds)

    def _queried(self, sql: str, rows: int, seconds: float) -> Table:
        if "\0" in sql:
            raise QueryError("The query failed: it contains a null character")
        sqlalchemy = importlib.import_module("sqlalchemy")
        try:
            with self._engine.connect() as connection:
                try:
                    return self._run_query(connection, sqlalchemy.text, sql, rows, seconds)
                finally:
                    if not connection.invalidated:
                        connection.detach()  # not reused: the query may have changed the session
        except sqlalchemy.exc.DBAPIError as error:
            raise self._query_error(str(error.orig), seconds) from error
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise QueryError(f"{self._name} cannot be read: {error!s:.500}") from error

    def _run_query(self, connection: Any, text: Any, sql: str, rows: int, seconds: float) -> Table:
        run = connection.exec_driver_sql
        # an engine may be on AUTOCOMMIT
        connection.execution_options(isolation_level="READ COMMITTED")
        run("SET TRANSACTION READ ONLY")
        run(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
        run("SET LOCAL lock_timeout = 1000")
        if run("SHOW transaction_read_only").scalar() != "on":
            raise QueryError(f"{self._name} did not start a read-only transaction")
        if run(_MAY_DO_MORE).scalar():
            raise QueryError(
                f"The database user of {self._name} can access files of the server, as a superuser can. A read-only transaction does not prevent this. Pass an "
                "engine whose user only reads, such as CREATE ROLE reader LOGIN PASSWORD '…'; GRANT pg_read_all_data TO "
                "reader"
            )
        asked = "SELECT set_config('nbagent.query', :sql, true), set_config('nbagent.rows', :rows, true)"
        connection.execute(text(asked), {"sql": sql, "rows": str(rows)})
        run(_OPEN)
        columns = [*run("FETCH 0 FROM nbagent").keys()]
        run(_FETCH)
        lines, number = run(
            "SELECT current_setting('nbagent.lines'), current_setting('nbagent.number')"
        ).one()
        try:
            read = partial(
                json.loads, object_pairs_hook=_Pairs, parse_float=_Exact, parse_int=_Exact
            )
            pairs = (read(within_parts(line)) for line in lines.split("\n")[:-1])
            found = [tuple(_short_value(value) for _, value in row) for row in pairs]
        except (TooManyParts, RecursionError) as error:
            raise QueryError(
                f"A row cannot be read: {error}. Leave its large columns out of the query"
            ) from error
        more = [()] if int(number) > len(found) else []
        return _result_table(columns, [*found, *more], len(found) if more else rows)

    def _query_error(self, message: str, seconds: float) -> QueryError:
        first = message.partition("\n")[0]
        if "nbagent: a row is too large" in first:
            return QueryError(
                f"A row has more than {MAX_ROW:,} characters. Leave its large columns out of the query"
            )
        if "statement timeout" in first:
            return QueryError(
                f"The query took longer than {seconds:g} seconds and was stopped. Select less"
            )
        refusals = ("read-only transaction", "query as cursor", "plan as cursor")
        if any(each in first for each in refusals):
            return QueryError(f"Only one SELECT statement is allowed here: {first}")
        missing = _MISSING.match(first)
        if missing is None:
            return QueryError(f"The query failed: {first:.500}")
        kind = "column" if missing["kind"] == "column" else "table"
        return MissingName(
            f"The query failed: no such {kind}: {missing['name']}", kind, missing["name"]
        )


def _result_table(columns: Any, found: list[Any], rows: int) -> Table:
    note = f"the first {rows:,} rows; there are more" if len(found) > rows else ""
    return Table([str(name)[:MAX_VALUE_CHARS] for name in columns], found[:rows], note)


def _short_value(value: Any) -> Any:
    """A value, shortened for a table."""
    return shown(_json(value) if isinstance(value, list | dict) else value)


def _json(value: Any) -> str:
    """A value as JSON, in which each number has all its digits."""
    if isinstance(value, _Pairs):
        return f"{{{', '.join(f'{_json(name)}: {_json(each)}' for name, each in value)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    return value if isinstance(value, _Exact) else json.dumps(value, ensure_ascii=False)
