"""The process that runs one query over a SQLite or DuckDB database: read-only, with limits of time, memory and disk.

SQLite reports each action of a statement before the statement runs. An authorizer allows reading and function calls;
any other action fails while the statement is prepared. DuckDB's own settings prevent a query from reading other files,
loading extensions, reading Python variables or changing settings. So no code searches a statement for forbidden words.

Run this file as a script, by its path. The script reads a line of JSON from standard input, then a SQLite database that
is not a file. If a DuckDB query is not over a file, the script writes the names of the query's tables, and reads the
path of a database with them. Then it writes one JSON object. It imports the standard library, and duckdb from the folder ``site`` of
the input, because nbagent is not available in this process. A process is needed, because a thread cannot be ended
inside a function of a database.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from typing import Any

SHOWN_COLUMNS = 60
"""The maximum number of columns with values in the result."""
MAX_VALUE_CHARS = 600
"""Characters of one value in the result. A longer value is cut to its beginning and its last character."""
MAX_RESULT_CHARS = 5_000_000
"""Characters of all values in the result."""
MAX_PROCESS = 512_000_000
"""Bytes that the process may use, if the system can limit them; some builds of SQLite do not count memory. A process
with DuckDB may use as many beyond ``DUCKDB_MEMORY`` and its size at the start."""
GRACE = 0.5
"""Seconds that a query has after its time limit to stop by itself; then the process is ended."""

MAX_VALUE = 1_000_000
"""Bytes of one value in SQLite, including intermediate values."""
MAX_MEMORY = 64_000_000
"""Bytes that SQLite may use in addition to the database itself, including the values of the current row."""
MAX_FILE = 1_000_000_000
"""Bytes of a temporary file of SQLite, for example of a sort."""
_STEPS = 500
"""Instructions of SQLite's virtual machine between two checks of the clock."""
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer"})
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 2_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}
_PRAGMAS = ("data_version", "page_size")
"""What tables of full text ask while they are read."""
_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})

DUCKDB_MEMORY = 512_000_000
"""Bytes that DuckDB may use; a larger query fails, because it cannot use the disk."""
MAX_THREADS = 4
_CLOSED = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
}

_MISSING = (
    re.compile(r"^no such (?P<kind>table|column): (?:[^ .]*\.)?(?P<name>.+)"),
    re.compile(r'Referenced (?P<kind>column) "(?P<name>[^"]+)" not found'),
    re.compile(r'does not have a (?P<kind>column) named "(?P<name>[^"]+)"'),
    re.compile(r"(?P<kind>Table) with name (?P<name>.+?) does not exist"),
)


def main() -> None:
    """Run the query on standard input, and write its result."""
    asked = json.loads(sys.stdin.buffer.readline())
    image = sys.stdin.buffer.read() if asked.get("address", "") is None else b""
    _write(answer(asked, image))
    os._exit(0)  # a normal exit may wait for the threads of a stopped query


def _write(given: Any) -> None:
    sys.stdout.buffer.write(json.dumps(given).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(asked: dict[str, Any], image: bytes) -> dict[str, Any]:
    """The result's columns, rows and note, or a message under ``error``."""
    return _of_duckdb(asked) if "site" in asked else _of_sqlite(asked, image)


def _limit_seconds(seconds: float) -> None:
    """End this process if the query does not stop by itself."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)


def _limit_sizes(memory: int, files: int) -> None:
    """Limit the memory of this process, and of each file that it writes, in bytes."""
    try:
        import resource  # noqa: PLC0415  Windows has none
    except ImportError:
        return
    for limit, bound in {resource.RLIMIT_FSIZE: files, resource.RLIMIT_AS: memory}.items():
        _, most = resource.getrlimit(limit)
        resource.setrlimit(
            limit, (bound if most == resource.RLIM_INFINITY else min(most, bound), most)
        )


def _fetched(result: Any, names: list[str], rows: int) -> dict[str, Any]:
    columns = [name[:MAX_VALUE_CHARS] for name in names]
    found: list[list[Any]] = []
    size = 0
    while row := result.fetchone():
        values = [shown(each) for each in row[:SHOWN_COLUMNS]]
        size += sum(len(each) for each in values if isinstance(each, str))
        if len(found) == rows or size > MAX_RESULT_CHARS:
            note = f"the first {len(found):,} rows; there are more"
            return {"columns": columns, "rows": found, "note": note}
        found.append(values)
    return {"columns": columns, "rows": found, "note": ""}


def shown(value: Any) -> Any:
    """A value of a result, shortened."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value):,} bytes"
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + text[-1]


def _failed(why: str, text: str) -> dict[str, Any]:
    """The error of a query, with the kind and the name of what it misses according to the database's ``text``."""
    missing = next(filter(None, (pattern.search(text) for pattern in _MISSING)), None)
    if missing is None:
        return {"error": f"The query failed: {why}"}
    kind, name = missing["kind"].lower(), missing["name"]
    return {"error": f"The query failed: no such {kind}: {name}", "missing": [kind, name]}


# --- SQLite


def _of_sqlite(asked: dict[str, Any], image: bytes) -> dict[str, Any]:
    seconds = asked["seconds"]
    _limit_seconds(seconds)
    _limit_sizes(MAX_PROCESS + 3 * len(image), MAX_FILE)
    try:
        connection = sqlite3.connect(asked["address"] or ":memory:", uri=True, isolation_level=None)
        if image:
            connection.deserialize(image)
    except (sqlite3.Error, MemoryError) as error:
        return {"error": f"The database cannot be opened for reading: {error}"}
    try:
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_MEMORY + 2 * len(image)}")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_authorizer(_allowed)
        ends_at = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)
        connection.text_factory = _shortened
        cursor = connection.execute(asked["sql"])
        if not cursor.description:
            return {"error": "The query failed: it returns no rows. Write one SELECT"}
        return _fetched(cursor, [name for name, *_ in cursor.description], asked["rows"])
    except MemoryError:
        return {
            "error": f"The query needs more than {MAX_MEMORY // 10**6} MB of memory, for example for a row with many large "
            "values. Select fewer columns, or length(column)"
        }
    except sqlite3.DatabaseError as error:
        return _sqlite_error(str(error), seconds)
    except (sqlite3.Warning, sqlite3.Error, ValueError, OverflowError) as error:
        return {"error": f"The query failed: {error}"}


def _allowed(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_IGNORE  # SQLite asks when it loads a virtual table, such as json_each
    if action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS and second is None:
        return sqlite3.SQLITE_OK
    is_function = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FORBIDDEN
    return sqlite3.SQLITE_OK if action in _READS or is_function else sqlite3.SQLITE_DENY


def _shortened(text: bytes) -> str:
    """The beginning of a text and its last character, which shows whether the text ends with a space."""
    if len(text) <= MAX_VALUE_CHARS:
        return text.decode(errors="replace")
    decoded = text[: 4 * MAX_VALUE_CHARS].decode(errors="replace")
    last = text[-4:].decode(errors="replace")[-1]
    is_short = len(text) <= 4 * MAX_VALUE_CHARS and len(decoded) <= MAX_VALUE_CHARS
    return decoded if is_short else decoded[: MAX_VALUE_CHARS - 1] + last


def _sqlite_error(text: str, seconds: float) -> dict[str, Any]:
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return {"error": f"Only one SELECT statement is allowed here: {text}"}
    if "interrupted" in text:
        return _late(seconds)
    if "too big" in text:
        return {
            "error": f"A value has more than {MAX_VALUE:,} bytes. Leave out its column, or select length(column)"
        }
    return _failed(text, text)


def _late(seconds: float) -> dict[str, Any]:
    return {"error": f"The query took longer than {seconds:g} seconds and was stopped. Select less"}


# --- DuckDB


def _of_duckdb(asked: dict[str, Any]) -> dict[str, Any]:
    sys.path.append(asked["site"])
    import duckdb  # noqa: PLC0415 - known once the folder is

    sql, seconds = asked["sql"], asked["seconds"]
    if asked["database"] is None:
        asked["database"] = _data(duckdb, sql)
    _limit_seconds(seconds)
    try:
        cores = min(MAX_THREADS, os.cpu_count() or 1)
        config: Any = {**_CLOSED, "memory_limit": f"{DUCKDB_MEMORY // 10**6}MB", "threads": cores}
        connection = duckdb.connect(asked["database"], read_only=True, config=config)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        if size := _size():
            _limit_sizes(size + DUCKDB_MEMORY + MAX_PROCESS, 0)
        timer = threading.Timer(seconds, connection.interrupt)
        timer.daemon = True
        timer.start()
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
        if kinds != ["SELECT"]:
            kind_names = ", ".join(kinds) or "nothing"
            return {"error": f"Only one SELECT statement is allowed here, got {kind_names}"}
        return _fetched(*_exact(connection, sql, asked["rows"]), asked["rows"])
    except duckdb.InterruptException:
        return _late(seconds)
    except (duckdb.OutOfMemoryException, MemoryError):
        return {
            "error": f"The query needs more than {DUCKDB_MEMORY // 10**6} MB of memory. Select fewer columns or rows, or "
            "aggregate, for example with sums"
        }
    except (duckdb.Error, ValueError) as error:
        first = str(error).partition("\n")[0]
        if first.startswith("Permission Error") or "configuration has been locked" in first:
            return {"error": f"Only the given tables can be read here: {first}"}
        return _failed(first, str(error))


_TIMES = re.compile("DATE|TIME|INTERVAL")
"""In a type of DuckDB: its Python values can have fewer digits, other months, no zone or no infinity."""


def _exact(connection: Any, sql: str, rows: int) -> tuple[Any, list[str]]:
    """The first rows of a query, with times as DuckDB's own text, and the names of the columns."""
    query = connection.sql(sql)
    columns = (
        f"#{number}::VARCHAR" if _TIMES.search(str(kind)) else f"#{number}"
        for number, kind in enumerate(query.types, 1)
    )
    first = query.project(", ".join(columns)).limit(rows + 1)
    return connection.execute(first.sql_query()), query.columns


def _data(duckdb: Any, sql: str) -> Any:
    """The path of a database with the query's tables, from the process that has them."""
    with duckdb.connect(":memory:", config=_CLOSED) as parser:
        try:
            names = _names(parser, sql)
        except (duckdb.Error, ValueError):  # the query will fail too, and say why
            names = set()
    _write([*names])
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


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever its characters; a plain word may be a keyword, such as order."""
    return '"' + name.replace('"', '""') + '"'


def _size() -> int:
    """The bytes of memory that this process has reserved; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
