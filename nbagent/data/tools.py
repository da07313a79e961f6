"""``nb.notebook_tools``: tools that read only the notebook data that the user passes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import AfterValidator

from nbagent.core.base.errors import UsageError, suggest
from nbagent.core.base.hidden import checked_code
from nbagent.core.tools.define import tool
from nbagent.core.tools.tables import Frame
from nbagent.core.tools.tool import Tool, ToolResult

from . import frames
from .databases import Database, database_of
from .reading import MissingName, QueryError
from .table import Table, some
from .worker import quoted

MAX_TABLES = 5
"""Tables whose columns a message lists after a query named an unknown column."""
PREVIEWED = 10
"""Rows of a query's result that an approval shows."""


class NotebookData:
    """The data of one call of ``notebook_tools``, with methods to read that data."""

    def __init__(
        self, values: Mapping[str, Any], rows: int, seconds: float, *, reads_only: bool = False
    ) -> None:
        self.frames: dict[str, Frame] = {}
        self.databases: dict[str, Database] = {}
        self._rows, self._seconds = rows, seconds
        for name, value in values.items():
            if (frame := frames.table_of(value)) is not None:
                if name.lower() in map(str.lower, self.frames):
                    raise UsageError(
                        f"SQL does not tell two tables named {name} apart. Pass one as nb.notebook_tools(other={name})"
                    )
                self.frames[name] = frame
            elif (found := database_of(value, name, reads_only=reads_only)) is not None:
                self.databases[name] = found
            else:
                raise _unreadable(name, value)
        if self.frames:
            frames.check_installed()

    @property
    def dialects(self) -> list[str]:
        """The SQL dialects of queries over this data."""
        of_frames = [frames.DIALECT] if self.frames else []
        return [*dict.fromkeys([*of_frames, *(each.dialect for each in self.databases.values())])]

    def named(self) -> str:
        """The tables with their columns, and the databases, as text within a sentence."""
        tables = (
            f"{quoted(name)} ({some([*map(quoted, frames.column_names(frame))])})"
            for name, frame in self.frames.items()
        )
        databases = (f"the database {quoted(name)}" for name in self.databases)
        return some([*tables, *databases])

    def listed(self) -> Table:
        """A row for each table and each database."""
        rows = [
            [
                name,
                "table",
                frames.DIALECT,
                f"{frame.height:,} rows",
                some(frames.column_names(frame)),
            ]
            for name, frame in self.frames.items()
        ]
        for name, found in self.databases.items():
            names = found.tables()
            rows.append([name, "database", found.dialect, f"{len(names):,} tables", some(names)])
        return Table(["name", "kind", "SQL dialect", "size", "contents"], rows)

    def described(self, name: str) -> Table:
        """The columns of a table, or of all tables of a database."""
        if name in self.databases:
            return self.databases[name].described()
        return frames.described(self._frame(name))

    def head(self, name: str, rows: int) -> Table:
        """The first rows of a table."""
        rows = max(1, min(rows, self._rows))
        source, _, table = name.partition(".")
        if table and source in self.databases:
            with self._suggesting(table, source):
                return self.databases[source].head(table, rows=rows, seconds=self._seconds)
        return frames.head(self._frame(name), rows)

    def query(self, sql: str, database: str, rows: int | None = None) -> Table:
        """The result of one SELECT."""
        rows = self._rows if rows is None else rows
        if not database and not self.frames and len(self.databases) == 1:
            database = next(iter(self.databases))
        with self._suggesting(sql, database):
            if database:
                found = self._database(database)
                return found.query(sql, rows=rows, seconds=self._seconds)
            return frames.query(self.frames, sql, rows=rows, seconds=self._seconds)

    @contextmanager
    def _suggesting(self, sql: str, database: str) -> Iterator[None]:
        """Add to the error about a missing name the names that the query could have meant."""
        try:
            yield
        except MissingName as error:
            columns = self._columns(sql, database)
            raise QueryError(f"{error}{_suggestions(error, columns)}") from error

    def _columns(self, sql: str, database: str) -> dict[str, list[str]]:
        """The columns of each table that a query names; of all tables if it names none."""
        columns: dict[str, list[str]] = {}
        if database:
            for table, column, *_ in self._database(database).described().rows:
                columns.setdefault(str(table), []).append(str(column))
        else:
            columns = {name: frames.column_names(frame) for name, frame in self.frames.items()}
        named = {name: each for name, each in columns.items() if name.lower() in sql.lower()}
        return named or columns

    def _frame(self, name: str) -> Frame:
        if name not in self.frames:
            known = [*self.frames, *(f"{db}.TABLE" for db in self.databases)]
            raise QueryError(
                f"Unknown table {name!r}. Available: {', '.join(known)}{suggest(name, known)}"
            )
        return self.frames[name]

    def _database(self, name: str) -> Database:
        if name not in self.databases:
            known = [*self.databases]
            raise QueryError(
                f"Unknown database {name!r}. Available: {', '.join(known) or 'none'}. Leave `database` out to query "
                "DataFrames."
            )
        return self.databases[name]


def notebook_tools(
    *values: Any,
    approval: bool = False,
    rows: int = 100,
    seconds: float = 10.0,
    reads_only: bool = False,
    code: bool = False,
    **named: Any,
) -> list[Tool[..., Any]]:
    """Return tools that read the tables and databases that you pass, by their variable names.

    Example:
            agent = nb.Agent("gpt-5", tools=nb.notebook_tools(sales, shop, approval=True))

    The tools are ``list_data``, ``describe_data``, ``head_data`` and ``query_data``. A query is one SELECT, over all
    DataFrames together (in DuckDB's dialect; this needs ``jupyter-nbagent[duckdb]``) or over one database (in its
    dialect). The tools cannot write, and cannot read other data. A call reads the current state of a table.

    Args:
        values: pandas, polars or Arrow tables; ``sqlite3`` and ``duckdb`` connections; SQLAlchemy engines.
            The model sees each value by its variable name.
        approval: True if a person must approve each query. The form shows 10 rows, and the query can be changed.
        rows: the maximum number of rows that a call returns.
        seconds: the time limit of a query.
        reads_only: True to confirm that an engine's database user can only read. Needed for engines that nbagent
            cannot restrict: any database except SQLite and PostgreSQL.
        code: True to add ``run_python``, which runs Python with the notebook's variables. Each piece of code needs
            approval, even if a rule allows it. This is not a sandbox.
        named: the same kinds of data as ``values``, with names of your choice.

    Raises:
        UsageError: a value has no name, is not a table or database, or cannot be guaranteed to be read-only.
    """
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    scope = {} if caller is None else {**caller.f_globals, **caller.f_locals}
    given = {**{_name(value, scope): value for value in values}, **named}
    data = NotebookData(given, rows, seconds, reads_only=reads_only)
    runs = _running(code)
    if data.frames or data.databases:
        return [*_looking(data), _querying(data, approval=approval), *runs]
    if not runs:
        raise UsageError(
            "notebook_tools needs data, as in nb.notebook_tools(df, con) or nb.notebook_tools(sales=df)"
        )
    return runs


def _running(code: Any) -> list[Tool[..., Any]]:
    """The tool that runs code, if ``code`` is True."""
    if code is False:
        return []
    if code is not True:
        raise UsageError(
            f"code must be True or False, got a {type(code).__name__}. To pass data, use a name other than code="
        )
    from .code import code_tool  # noqa: PLC0415 - for those who want it

    return [code_tool()]


def _suggestions(missing: MissingName, columns: Mapping[str, list[str]]) -> str:
    """The names that a query could have meant, as the end of a sentence; names in SQL's form."""
    if missing.kind == "table":
        near, names = suggest(missing.name, columns), [*map(quoted, columns)]
        return f"{near or '.'} Available: {some(names)}"
    near = suggest(missing.name, (one for each in columns.values() for one in each))
    tables = (f"{quoted(t)} has {some([*map(quoted, c)])}" for t, c in columns.items())
    return f"{near or ';'} {some([*tables], joint='; ', most=MAX_TABLES)}"


def _unreadable(name: str, value: Any) -> UsageError:
    """The error for a value that cannot be read, with what to pass instead."""
    kind = type(value).__name__
    if name.isidentifier() and isinstance(value, bool | None):
        near = suggest(name, inspect.signature(notebook_tools).parameters)
        return UsageError(
            f"notebook_tools has no option {name!r}{near or ', and cannot read a ' + kind}"
        )
    hint = ""
    if isinstance(value, str) and value.isidentifier():
        hint = f". Write it without quotes: {value}"
    elif isinstance(value, str | os.PathLike):
        hint = ". Open the file first: pd.read_csv(path), sqlite3.connect(path) or sqlalchemy.create_engine(url)"
    elif hasattr(value, "collect_schema"):
        hint = ". Call its .collect()"
    elif hasattr(value, "fetch_arrow_table") or type(value).__name__ == "DuckDBPyRelation":
        hint = ". Pass the connection, or its .df()"
    elif hasattr(value, "to_frame"):
        hint = ". Call its .to_frame()"
    elif isinstance(value, Sequence | Mapping):
        hint = ". Pass each one separately, as in nb.notebook_tools(sales, costs), and rows as pd.DataFrame(…)"
    return UsageError(
        f"Got a {kind}{f' for {name}' if name.isidentifier() else ''}. notebook_tools reads tables (pandas, polars, Arrow) and databases{hint}"
    )


def _name(value: Any, scope: Mapping[str, Any]) -> str:
    """The value's name in the calling code; names that begin with an underscore do not count."""
    for name, each in scope.items():
        if each is value and not name.startswith("_"):
            return name
    if frames.table_of(value) is None and database_of(value, "it", reads_only=True) is None:
        raise _unreadable("what was given", value)
    raise UsageError(
        f"A {type(value).__name__} that is not in a variable needs a name, as in nb.notebook_tools(sales=…)"
    )


def _looking(data: NotebookData) -> list[Tool[..., Any]]:
    def list_data() -> ToolResult:
        """List the tables and databases of this notebook that can be read."""
        return _result(data.listed())

    def describe_data(name: str) -> ToolResult:
        """Describe the columns of a table: type, count of values and distinct values, minimum and maximum.

        Args:
            name: the name of a table or a database. For a database, all its tables are described.
        """
        return _result(data.described(name))

    def head_data(name: str, rows: int = 5) -> ToolResult:
        """Show the first rows of a table.

        Args:
            name: the name of a table, or database.table.
            rows: number of rows.
        """
        return _result(data.head(name, rows))

    made = tool(idempotent=True)
    return [made(list_data), made(describe_data), made(head_data)]


def _querying(data: NotebookData, *, approval: bool) -> Tool[..., Any]:
    def query_data(
        sql: Annotated[str, AfterValidator(checked_code)], database: str = ""
    ) -> ToolResult:
        """Run one read-only SELECT statement.

        {dialect} Available: {there}.

        Args:
            sql: the statement; use the table names of list_data.
            database: the database to query; leave it empty for DataFrames.
        """
        return _result(data.query(sql, database))

    several = len(data.dialects) > 1
    dialect = (
        "list_data says which SQL dialect each table or database uses."
        if several
        else f"The SQL dialect is {data.dialects[0]}."
    )
    words = str(query_data.__doc__).replace("{dialect}", dialect)
    query_data.__doc__ = words.replace("{there}", data.named())

    def preview(typed: Any) -> Table:
        """The first rows of the query's result."""
        return data.query(typed.sql, typed.database, PREVIEWED)

    if not approval:
        return tool(idempotent=True)(query_data)
    return tool(idempotent=True, approval=True, editable=True, preview=preview)(query_data)


def _result(table: Table) -> ToolResult:
    return ToolResult(str(table), display=table)
