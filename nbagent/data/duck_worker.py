"""The process that runs one DuckDB query over given files, without access to anything else.

DuckDB's own settings limit the query: it cannot read other files, load extensions, read Python variables or change
settings. The system limits the time and memory of the process, and prevents the process from writing files.

Run this file as a script, by its path. The script reads a line of JSON from standard input. If the query is not over a
database, it writes the names of the query's tables, and reads where they are. Then it writes one JSON object. The script imports the standard library, and duckdb from the folder that the input names.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import signal
import sys
import threading
from typing import Any

SHOWN_COLUMNS = 60
"""The maximum number of columns with values in the result."""
MAX_VALUE_CHARS = 600
"""Characters of one value in the result. A longer value is cut to its beginning and its last character."""
MAX_RESULT_CHARS = 5_000_000
"""Characters of all values in the result."""
MAX_MEMORY = 512_000_000
"""Bytes that DuckDB may use; a larger query fails, because it cannot use the disk."""
MAX_PROCESS = 512_000_000
"""Bytes that the process may use beyond ``MAX_MEMORY`` and its size at the start, if the system can limit them."""
MAX_THREADS = 4
GRACE = 0.5
"""Seconds that a query has after its time limit to stop by itself; then the process is ended."""
_MISSING = (
    re.compile(r'Referenced (?P<kind>column) "(?P<name>[^"]+)" not found'),
    re.compile(r'does not have a (?P<kind>column) named "(?P<name>[^"]+)"'),
    re.compile(r"(?P<kind>Table) with name (?P<name>.+?) does not exist"),
)
_CLOSED = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
}


def main() -> None:
    """Run the query on standard input, and write its result."""
    asked = json.loads(sys.stdin.buffer.readline())
    sys.path.append(asked["site"])
    given = answer(asked)
    sys.stdout.buffer.write(json.dumps(given).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # a normal exit may wait for the threads of a stopped query


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The result's columns, rows and note, or a message under ``error``."""
    import duckdb  # noqa: PLC0415 - known once the folder is

    if asked["database"] is None:
        asked |= _data(duckdb, asked["sql"])
    seconds = asked["seconds"]
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    try:
        connection = _open(duckdb, asked)
        _bound()
        timer = threading.Timer(seconds, connection.interrupt)
        timer.daemon = True
        timer.start()
        return _fetched(connection, asked["sql"], asked["rows"])
    except duckdb.InterruptException:
        return {
            "error": f"The query took longer than {seconds:g} seconds and was stopped. Select less"
        }
    except (duckdb.OutOfMemoryException, MemoryError):
        return {
            "error": f"The query needs more than {MAX_MEMORY // 10**6} MB of memory. Select fewer columns or rows, or "
            "aggregate, for example with sums"
        }
    except (duckdb.Error, ValueError) as error:
        return _why(str(error))


def _data(duckdb: Any, sql: str) -> Any:
    """The data of a query, from the process that has it: a database, or the schema, name and file of each table."""
    with duckdb.connect(":memory:", config=_CLOSED) as parser:
        try:
            names = _names(parser, sql)
        except (duckdb.Error, ValueError):  # the query will fail too, and say why
            names = set()
    sys.stdout.buffer.write(json.dumps([*names]).encode() + b"\n")
    sys.stdout.buffer.flush()
    return json.loads(sys.stdin.buffer.readline())


def _names(parser: Any, sql: str) -> set[str]:
    """The names of the tables in a query, found by DuckDB's parser; none if it is not one SELECT."""
    (tree,) = parser.execute("SELECT json_serialize_sql($1)", [sql]).fetchone()
    found = _texts("table_name", tree)
    if '"function_name":"query' in tree:  # query('FROM a'), query_table('a')
        for text in _texts("value|text", tree):
            found |= {text} | _names(parser, text)
    return found


def _texts(keys: str, tree: str) -> set[str]:
    """The texts under these keys anywhere in a JSON text, which may be nested too deep for Python."""
    found = re.findall(rf'"(?:{keys})":("(?:[^"\\]|\\.)*")', tree)
    return set(map(json.loads, found))


def _open(duckdb: Any, asked: dict[str, Any]) -> Any:
    """A connection that has the tables and cannot open anything else."""
    cores = min(MAX_THREADS, os.cpu_count() or 1)
    config = {**_CLOSED, "memory_limit": f"{MAX_MEMORY // 10**6}MB", "threads": cores}
    database = asked.get("database")
    connection = (
        duckdb.connect(":memory:", config=config)
        if database is None
        else duckdb.connect(database, read_only=True, config=config)
    )
    for schema, table, path in asked["tables"]:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
        file = path.replace("'", "''")
        name = f"{_quoted(schema)}.{_quoted(table)}"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{file}')")
    connection.execute("SET allowed_paths = ?", [[path for *_, path in asked["tables"]]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bound() -> None:
    """Limit the memory of this process, and prevent it from writing files."""
    try:
        import resource  # noqa: PLC0415  Windows has none

        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    bounds = {
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_AS: size + MAX_MEMORY + MAX_PROCESS,
    }
    for limit, bound in bounds.items():
        _, most = resource.getrlimit(limit)
        resource.setrlimit(
            limit, (bound if most == resource.RLIM_INFINITY else min(most, bound), most)
        )


def _fetched(connection: Any, sql: str, rows: int) -> dict[str, Any]:
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if kinds != ["SELECT"]:
        kind_names = ", ".join(kinds) or "nothing"
        return {"error": f"Only one SELECT statement is allowed here, got {kind_names}"}
    result = connection.execute(sql)
    columns = [name[:MAX_VALUE_CHARS] for name, *_ in result.description or ()]
    found: list[list[Any]] = []
    size = 0
    while row := result.fetchone():
        values = [_plain(each) for each in row[:SHOWN_COLUMNS]]
        size += sum(len(each) for each in values if isinstance(each, str))
        if len(found) == rows or size > MAX_RESULT_CHARS:
            note = f"the first {len(found):,} rows; there are more"
            return {"columns": columns, "rows": found, "note": note}
        found.append(values)
    return {"columns": columns, "rows": found, "note": ""}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value):,} bytes"
    text = value.isoformat(sep=" ") if isinstance(value, dt.datetime) else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + text[-1]


def _why(text: str) -> dict[str, Any]:
    first = text.partition("\n")[0]
    if first.startswith("Permission Error") or "configuration has been locked" in first:
        return {"error": f"Only the given tables can be read here: {first}"}
    for pattern in _MISSING:
        missing = pattern.search(text)
        if missing is not None:
            kind = missing["kind"].lower()
            return {
                "error": f"The query failed: no such {kind}: {missing['name']}",
                "missing": [kind, missing["name"]],
            }
    return {"error": f"The query failed: {first}"}


if __name__ == "__main__":
    main()
